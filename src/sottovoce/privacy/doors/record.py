"""Proven doors: every answer is clipped, charged to the ledger, noised and only then given.

Whatever an algorithm makes of an answer is post-processing, so a badly written algorithm can be useless but not leaky.

The order is the same for every answer: afford (refuse before anything is computed), compute, charge, noise, reply. From
the first exact number on there is one way on: nothing that depends on data raises, warns or takes another path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.check import BudgetSpent, InvalidInput, NoGuarantee
from sottovoce.core.contract import Asks, Descent, Noise, Oracle, ProxSteps
from sottovoce.core.random.streams import Purpose
from sottovoce.core.vouched import vouched
from sottovoce.ledger.budget import LedgerError
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy import local_steps as local_runs
from sottovoce.privacy import sensitivity
from sottovoce.privacy.doors.base import (
    ARGMIN_TOL,
    Door,
    ExactOracle,
    PublishedDoor,
    Question,
    Sealed,
    Visit,
    batch_rates,
    places_of,
    quietly,
)
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Privacy, Proven, Published

PROMISE_SLACK = 1 + 2.0**-30  # the square of a row's length is checked against its promised bound to 12 digits
MOST_KINDS = 64  # different sampling rates that are accounted one by one


class Ledger(Protocol):
    """What a proven door asks before it answers (`ledger/memory.py`, `ledger/owner_ledgers.py`)."""

    def charge(self, event: Event, clients: Any, active: Any, round: int, question: int) -> None: ...
    def afford(self, event: Event, answers: int, clients: Any, round: int | None) -> np.ndarray: ...
    def kept(self, round: int, question: int, clients: Any, active: Any) -> np.ndarray | None: ...
    def keep(self, round: int, question: int, clients: Any, active: Any, answer: np.ndarray) -> None: ...


@dataclass(kw_only=True)
class ProvenDoor(Door):
    """What all proven doors share: a budget, one kind of event, and constants that never look at data."""

    privacy: Proven
    event: Event  # what an answer is; clients of other sizes differ from it in their batches alone
    ledger: Ledger

    def answered(
        self, question: Question, compute: Callable[[], np.ndarray], finish: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """The one way to an answer: `compute` looks at data, `finish` clips and adds noise.

        An answer that this run gave to this question before (it was interrupted and goes on) is sent again as it was,
        without a look at data. Everything else is new: paid for, and with noise of its own.
        """
        named = (question.k, question.number, question.local, question.active)
        before = self.ledger.kept(*named)
        if before is not None:
            return self.intercept(before)
        self.must_afford(question)
        with quietly():
            try:
                exact = compute()
            except Exception:
                self.charge(question)  # nothing was given; but trying again must not be free
                raise
            self.charge(question)
            answer = finish(exact)
        self.ledger.keep(*named, answer)
        return answer

    def must_afford(self, question: Question) -> None:
        """Refuse, before anything is computed, what the budget does not hold."""
        for event, places in self.events(question.local):
            able = self.ledger.afford(event, 1, question.local[places], None)
            if (question.active[..., places] & ~able).any():
                raise BudgetSpent("Oracle: a client's privacy budget does not hold this answer; nothing was computed")

    def charge(self, question: Question) -> None:
        for event, places in self.events(question.local):
            active = question.active[..., places]
            self.ledger.charge(event, question.local[places], active, question.k, question.number)

    def able(self, local: np.ndarray, k: int) -> np.ndarray:
        able, answers = np.empty(self.shape(len(local)), dtype=bool), costs(self.privacy, self.asks)
        for event, places in self.events(local):
            able[..., places] = self.ledger.afford(event, answers, local[places], k)
        return able

    def events(self, local: np.ndarray) -> list[tuple[Event, slice | np.ndarray]]:
        """What an answer of these clients is, and whose: one event for all, if batches are not unequal shares."""
        return [(self.event, slice(None))]

    def longest(self, local: np.ndarray) -> np.ndarray | float:
        return np.inf if self.row_bound is None else self.row_bound

    def smoothness(self, local: np.ndarray) -> np.ndarray:
        return self.curvature_bound(local) * self.exact.weights[local] * self.exact.sizes[local][:, None]

    def strong_convexity(self, local: np.ndarray) -> np.ndarray:
        return np.zeros_like(self.exact.weights[local])


@dataclass
class RecordDoor(ProvenDoor):
    """Noisy answers; uploads are post-processing and go out as they are.

    Gradient: with everything before it fixed, the clipped sums of two neighbouring data sets differ in one term, so
    the sensitivity is 2·clip·weight (replace-one) or clip·weight (add-remove), whatever the loss and the point; over
    a batch both are divided by the public share drawn. The weight, 1/m or 1, is public. Sums are rounded, for which
    `sensitivity.sum_rounding` adds a little. (A record that is removed leaves a blank row in its place, so that the
    other rows are computed alike, to the last bit.)

    Arg-min: the minimised function is (rho + ridge)-strongly convex, and two neighbours' gradients differ by that
    same amount *everywhere*, because rows are scaled so that |slope|·|row| <= clip for a loss of bounded slope. So
    the minimisers differ by that amount / (rho + ridge), and what a solver returns within `tol` by 2·tol / (rho +
    ridge) more. The tolerance is public, and that it is reached is proved of public numbers first (`_sure_tolerance`).

    Runs of local steps: see `local_runs.py`.
    """

    counted = True

    def __post_init__(self) -> None:
        self.poisson = self.event.sampling == "poisson"
        kind, loss = self.asks.kind, self.exact.loss
        if not (vouched(loss) and vouched(getattr(loss, "output_loss", loss))):
            raise NoGuarantee(
                f"Proven: nobody vouches for the constants of {type(loss).__name__}, which is not a loss of this "
                "library; use one that is, such as Logistic() or Huber(), or unit='client', or Published or NoPrivacy"
            )
        mechanisms.check_clip(self.privacy.clip)
        if kind != "gradient" and self.privacy.noise == "secure":
            raise NoGuarantee(
                f"Proven: secure noise is offered for gradients, not for {kind!r}; use the method's default variant"
            )
        if kind in ("argmin", "descent") and self.privacy.mechanism != "gaussian":
            raise NoGuarantee(f"Proven: no {self.privacy.mechanism} noise for {kind!r}; use mechanism='gaussian'")
        if kind == "argmin" and not loss.convex:
            raise NoGuarantee(
                f"Proven: the arg-min of {type(loss).__name__}, which is not convex, has no bounded sensitivity; use a "
                "method that asks for gradients"
            )
        if kind == "argmin" and not np.isfinite(loss.lipschitz):
            raise NoGuarantee(
                f"Proven: the arg-min of {type(loss).__name__} has no bounded sensitivity (its slope is unbounded); "
                "use a loss of bounded slope such as Huber(), or a method that asks for gradients"
            )
        if kind == "descent" and (not loss.convex or loss.outputs > 1 or self.asks.batch):
            raise NoGuarantee(
                "Proven: hidden local steps need a convex loss of one margin and all records (batch=0) in each step; "
                "use the method's default variant"
            )

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        if self.privacy.noise == "secure":
            return self.answered(
                question, lambda: self._grid_gradient(w, question.local), lambda sums: self._secure(sums, question)
            )
        scale = self.event.noise_multiplier * self._sensitivity(question.local)
        return self.answered(
            question,
            lambda: self.exact_gradient(w, question, self.privacy.clip, self._norm),
            lambda exact: self.noisy(exact, scale, Purpose.NOISE, question, self.event.mechanism),
        )

    def argmin(
        self, centre: np.ndarray, rho: Any, linear: Any, ridge: float, start: np.ndarray | None, question: Question
    ) -> np.ndarray:
        one, cap = self._sensitivity(question.local), self.privacy.clip / self.exact.loss.lipschitz * (1 - 2.0**-50)
        terms = self._argmin_terms(centre, np.asarray(rho), np.asarray(linear), ridge, question.local, cap)
        tol = _sure_tolerance(terms, one)
        change = (one + 2 * (tol + terms.rounding)) / terms.pull
        _finer_than(change, centre, np.max(np.abs(linear)) / (np.min(rho) + ridge))
        tols = np.broadcast_to(tol, (*np.broadcast_shapes(tol.shape, one.shape)[:-1], 1))[..., 0]
        steps = sensitivity.LAST_STEPS
        return self.answered(
            question,
            lambda: self.exact.argmin(centre, rho, linear, ridge, question.local, start, tols, cap, steps),
            lambda exact: self.noisy(exact, self.event.noise_multiplier * change, Purpose.NOISE, question),
        )

    def _argmin_terms(
        self, centre: np.ndarray, rho: np.ndarray, linear: np.ndarray, ridge: float, local: np.ndarray, cap: float
    ) -> sensitivity.ArgminTerms:
        exact, loss = self.exact, self.exact.loss
        shift = np.linalg.norm(linear - rho * centre, axis=-1, keepdims=True)
        return sensitivity.ArgminTerms(
            *(exact.sizes[local][:, None], exact.dim // loss.outputs, loss.outputs, exact.weights[local]),
            *(cap, loss.lipschitz, loss.curvature, shift, rho + ridge),
        )

    def prox_steps(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        change = self._prox_steps_sensitivity(spec, question.local)
        _finer_than(change, start - spec.centre, np.max(np.abs(spec.push)) / spec.weights[1].min())
        gradients = self.gradients(question, self.privacy.clip, self._norm)
        scale = self.event.noise_multiplier * change
        # The centre may be large, and rounding to its digits would show through noise that is added later.
        away = self.answered(
            question,
            lambda: local_runs.take_prox_steps(gradients, start, spec),
            lambda away: self.noisy(away, scale, Purpose.NOISE, question, self.event.mechanism),
        )
        return spec.centre + away

    def descent(self, start: np.ndarray, spec: Descent, question: Question) -> np.ndarray:
        c = local_runs.contraction(spec, self.smoothness(question.local) * PROMISE_SLACK)
        if not (c < 1).all():  # also when no bound on the rows was promised: c is then infinite
            raise NoGuarantee(
                f"Proven: local steps must contract, got a factor of {float(np.max(c)):.4g}; promise a row_bound and "
                "take a step below 2 / (smoothness + ridge + pull)"
            )
        noise = self.event.noise_multiplier * local_runs.chain_gain(c, spec.count) * self._sensitivity(question.local)

        def noisy(x: np.ndarray, j: int) -> np.ndarray:
            step = self.step_of(question, j)
            exact = self.exact_gradient(x, step, self.privacy.clip)
            return exact + noise * self.seeded(exact, Purpose.NOISE, step)

        # Noise is in every step, so what is computed is already what may be given.
        return self.answered(question, lambda: local_runs.take_descent(noisy, start, spec), self.intercept)

    def _prox_steps_sensitivity(self, spec: ProxSteps, local: np.ndarray) -> np.ndarray:
        one = self._sensitivity(local)
        if not vouched(spec.h):  # those of ours are known to stretch no distance
            raise NoGuarantee(
                f"Proven: nothing is known about the prox of {type(spec.h).__name__}; use a library penalty"
            )
        if self._norm == 1 and not spec.h.separable:
            raise NoGuarantee(
                f"Proven: the prox of {type(spec.h).__name__} may stretch L1 distances; use Gaussian noise"
            )
        if not spec.fresh:
            return local_runs.prox_steps_sensitivity(spec, one, one)
        # Clipping keeps the gradient of a loss of *one* margin the gradient of a convex function, no steeper than
        # before; so the steps absorb differences of the points if they keep enough of them.
        convex = self.exact.loss.convex and self.exact.loss.outputs == 1 and self._norm == 2
        if convex and np.all(self.smoothness(local) * PROMISE_SLACK <= 2 * spec.weights[0]):
            return local_runs.prox_steps_sensitivity(spec, one, one)
        bounded = 2 * self.privacy.clip * self.exact.weights[local] * self.exact.sizes[local][:, None]
        bounded = bounded * self._rounding[local]
        return local_runs.prox_steps_sensitivity(spec, one, bounded)

    def noise_std(self, local: np.ndarray) -> np.ndarray:
        unit = np.sqrt(2.0) if self.event.mechanism == "laplace" else 1.0  # deviation of a Laplace number of scale 1
        return unit * self.event.noise_multiplier * self._sensitivity(local)

    def gradient_bound(self, local: np.ndarray) -> np.ndarray | float:
        return self.privacy.clip

    @property
    def _norm(self) -> int:
        return 1 if self.event.mechanism == "laplace" else 2

    @property
    def _reach(self) -> int:
        """In clip norms: how far one record moves the sum of clipped gradients."""
        return 2 if self.event.relation == "replace-one" else 1

    def _sensitivity(self, local: np.ndarray) -> np.ndarray:
        return self._sensitivities[local]

    @cached_property
    def _sensitivities(self) -> np.ndarray:
        return self._reach * self.privacy.clip * self.exact.weights / self.rates * self._rounding

    @cached_property
    def _rounding(self) -> np.ndarray:
        return sensitivity.sum_rounding(self.exact.sizes[:, None], self.exact.roundings + 1, self._reach)

    def events(self, local: np.ndarray) -> list[tuple[Event, slice | np.ndarray]]:
        kinds, kind_of = self._kinds
        if len(kinds) == 1:
            return [(kinds[0], slice(None))]
        return [(kinds[kind], np.flatnonzero(kind_of[local] == kind)) for kind in np.unique(kind_of[local])]

    @cached_property
    def _kinds(self) -> tuple[list[Event], np.ndarray]:
        """The distinct events of all clients, and which is whose.

        The plan's event is that of the client with the largest share. Smaller shares cost less; but where there are
        very many different ones, all are charged as the largest, which is an upper bound.
        """
        rates, kind_of = np.unique(self.rates[:, 0], return_inverse=True)
        if self.event.sampling == "full" or len(rates) > MOST_KINDS:
            return [self.event], np.zeros_like(kind_of)
        if self.poisson:
            return [replace(self.event, rate=float(rate)) for rate in rates], kind_of
        sizes = [int(self.exact.sizes[kind_of == kind][0]) for kind in range(len(rates))]
        pairs = zip(rates, sizes, strict=True)
        return [replace(self.event, batch=round(rate * size), size=size) for rate, size in pairs], kind_of

    def _grid_gradient(self, w: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Sums of clipped gradients as integers on a grid, one client after the other."""
        points = np.broadcast_to(w, (*self.shape(len(local)), self.exact.dim))
        sums = np.empty(points.shape, dtype=np.int64)
        for place in np.ndindex(points.shape[:-1]):
            client = int(local[place[-1]])
            examples = self.exact.clipped_examples(points[place], client, self.privacy.clip, self._norm)
            sums[place] = mechanisms.to_grid(examples, self.privacy.clip, self._norm).sum(axis=0)
        return sums

    def _secure(self, sums: np.ndarray, question: Question) -> np.ndarray:
        """The gradients of integer sums, with discrete noise from the operating system."""
        scale = self.event.noise_multiplier * self._reach * mechanisms.GRID_BOUND
        noisy = mechanisms.noised(self.privacy.mechanism, scale, sums)
        return self.intercept(mechanisms.from_grid(noisy, self.privacy.clip) * self.exact.weights[question.local])


@dataclass
class ClientDoor(ProvenDoor):
    """Exact answers that stay with the client; every upload is clipped around a public centre, charged and noised.

    Given past releases, a release is a mixture over hidden states of Gaussians around points within `clip` of the
    centre; any two such points are at most 2·clip apart, and mixtures do not widen that. So whatever hidden state an
    algorithm keeps, replacing a client's whole data set moves the release by at most 2·clip.
    """

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        if centre is None:
            raise NoGuarantee(
                "Proven(unit='client') needs a public centre: this algorithm released a value without one"
            )
        if question.number >= self.asks.releases:
            raise InvalidInput(f"release: this algorithm declared {self.asks.releases} a round and asked for one more")
        moved = self.answered(
            question,
            lambda: mechanisms.clip_rows(u - centre, self.privacy.clip),
            lambda moved: self._noised(moved, question),
        )
        return centre + moved  # not before the noise: see `prox_steps`

    def _noised(self, moved: np.ndarray, question: Question) -> np.ndarray:
        if self.privacy.noise == "seeded":
            scale = self.event.noise_multiplier * 2 * self.privacy.clip
            return self.noisy(moved, scale, Purpose.NOISE, question)
        grid = mechanisms.to_grid(moved, self.privacy.clip)
        scale = self.event.noise_multiplier * 2 * mechanisms.GRID_BOUND
        return self.intercept(mechanisms.from_grid(mechanisms.noised("gaussian", scale, grid), self.privacy.clip))

    def take_part(self, visit: Visit) -> tuple[Any, Any]:
        """One round whose outcome has one form, whatever the data: the declared releases, and finite states.

        The algorithm works with exact numbers here, and what it does with them could fail, or leave a state that fails
        in the next round: an observer would see it, for free. So the round is first played on answers that are public
        (zeros); whatever that raises, it raises for every data set, and which releases make up the upload is decided
        there. If the true round then fails, it is tried client by client, so that no client's failure shows in
        another's upload; of one that fails alone, what is still to be released is public, charged and noised like any
        other, and so is its state. A state that is not finite is replaced by the public one too.
        """
        rehearsal = _Rehearsal()
        public_after, public_up = visit.play(visit.start(), _public_answers(visit.oracle, visit.zeros), rehearsal)
        places, releases, promised = rehearsal.places(public_up), visit.releases, rehearsal.released
        within = len(promised) <= self.asks.releases
        check.require(within, "release", f"at most {self.asks.releases} a round were declared", len(promised))
        releases.shapes = [np.shape(u) for u, _ in promised]
        after = None
        with quietly():
            try:
                played, _ = visit.play(visit.before, visit.oracle, releases)
                after = _finite(played, public_after) if len(releases) == len(promised) else None
            except (BudgetSpent, LedgerError):
                raise  # of ledgers, not of data
            except Exception:
                after = None
            if after is None and visit.clients > 1:
                return self._one_by_one(visit)
            for u, centre in promised[len(releases) :]:
                releases(u, centre=centre)
        return public_after if after is None else after, releases.message(type(public_up), places)

    def _one_by_one(self, visit: Visit) -> tuple[Any, Any]:
        """The round of each client by itself; what was released of it before, stays released."""
        rounds = []
        for place in range(visit.clients):
            alone = visit.alone(place)
            alone.releases.before = visit.releases.of_client(place)
            rounds.append(self.take_part(alone))
        after, up = zip(*rounds, strict=True)
        return codec.stacked(after), codec.stacked(up)


class _Rehearsal:
    """Stands in for `release` where all numbers are public: keeps what is released, and charges nothing."""

    def __init__(self) -> None:
        self.released: list[tuple[np.ndarray, np.ndarray | None]] = []
        self._given: list[np.ndarray] = []

    def __call__(self, u: np.ndarray, noise: Noise | None = None, centre: np.ndarray | None = None) -> np.ndarray:
        self.released.append((u, centre))
        self._given.append(Sealed(u).given)
        return self._given[-1]

    def places(self, upload: Any) -> dict[str, int]:
        return places_of(upload, self._given)


def _public_answers(oracle: Oracle, zeros: np.ndarray) -> Oracle:
    """The same oracle, but for its answers: they are what anybody could say."""
    return replace(
        oracle,
        grad=lambda w: zeros,
        argmin=lambda centre, *_, **__: zeros + centre,
        prox_steps=lambda start, spec: zeros + start,
        descent=lambda start, spec: zeros + start,
    )


def _finite(states: Any, instead: Any) -> Any:
    """The states, those of a client with a number that is not finite replaced whole."""
    arrays, others = codec.to_arrays(states), codec.to_arrays(instead)
    alike = all(array.shape == others[name].shape for name, array in arrays.items())
    check.require(alike, "client", "states must have one shape, whatever the data")
    fine = [np.isfinite(array).all(axis=-1, keepdims=True) for array in arrays.values()]
    if all(each.all() for each in fine):
        return states
    good = np.logical_and.reduce(np.broadcast_arrays(*fine))
    return type(states)(**{name: np.where(good, array, others[name]) for name, array in arrays.items()})


def _sure_tolerance(terms: sensitivity.ArgminTerms, one: np.ndarray) -> np.ndarray:
    """To what norm of the gradient an arg-min is to be solved, small beside `one`, what one record does to it.

    Refuses an arg-min of which public numbers do not prove that a solver gets there. After this nothing about it can
    fail, so no failure tells anything of the data.
    """
    with np.errstate(all="ignore"):  # without a pull the condition number is infinite, and is refused
        tol = np.maximum(ARGMIN_TOL, 4 * terms.rounding)
        sure = terms.certain(tol) & (tol <= np.maximum(ARGMIN_TOL, one / 16))  # False for what is no number
    hint = "Use a larger rho or ridge, a smaller clip, or a method that asks for gradients"
    rule = "an arg-min needs rho + ridge > 0, and a condition number and inputs small enough to be found for sure"
    check.require(bool(np.all(sure)), "Proven", rule, hint=hint)
    return tol


def _finer_than(change: np.ndarray, *public: np.ndarray | float) -> None:
    """Refuse to answer near numbers so large that rounding there is no longer small beside what one record changes."""
    largest = max(float(max(np.max(part, initial=0.0), -np.min(part, initial=0.0))) for part in public)
    limit = 2.0**32 * float(np.min(change))
    hint = "Numbers of that size come of training that diverges: take shorter steps, or a larger rho"
    check.require(largest <= limit, "Proven", f"rounding would show through noise beyond {limit:.3g}", largest, hint)


def costs(privacy: Proven, asks: Asks) -> int:
    """Events charged to a client for one round."""
    return asks.releases if privacy.unit == "client" else asks.answers


def plan(
    privacy: Proven,
    asks: Asks,
    rounds: int,
    sizes: np.ndarray,
    spent: Mapping[Event, int] | None = None,
    row_bound: float | None = None,
) -> Event:
    """The event that each answer (or, for unit "client", each upload) is, with the least noise the budget allows.

    `spent`: what each client has answered before, out of the same budget. `row_bound`: what no row is longer than.
    """
    from sottovoce.privacy import accounting

    kind = kind_of_answer(privacy, asks, sizes)
    times = rounds if privacy.participations is None else min(rounds, privacy.participations)
    check.whole("Proven", participations=times)
    noise = accounting.calibrate(privacy.epsilon, privacy.delta, times * costs(privacy, asks), spent=spent, **kind)
    return Event(noise_multiplier=noise, row_bound=bound_in_force(privacy, asks, row_bound), **kind)


def bound_in_force(privacy: Proven, asks: Asks, row_bound: float | None) -> float:
    """The bound on rows that the sensitivity of an answer rests on; 0 where it holds for all rows."""
    rests = privacy.unit == "record" and asks.kind in ("prox-steps", "descent")
    return float(row_bound) if rests and row_bound is not None else 0.0


def kind_of_answer(privacy: Proven, asks: Asks, sizes: np.ndarray) -> dict[str, Any]:
    """What an answer is, but for how much noise there is: the other arguments of its `Event`.

    Batches follow from the relation: drawn record by record (Poisson) for add-remove, of fixed size for replace-one;
    the accountants for the two are not interchangeable. With unequal clients the event is that of the client whose
    batch is the largest share, which costs the most. Only single gradients gain from random batches.
    """
    mechanism = privacy.mechanism
    if mechanism == "gaussian" and privacy.noise == "secure":
        mechanism = "discrete-gaussian"
    kind: dict[str, Any] = {"mechanism": mechanism, "relation": privacy.relation}
    if privacy.unit == "client":
        kind["relation"] = "replace-client"
    elif asks.kind == "descent" and mechanism == "gaussian":
        kind["mechanism"] = "gaussian-chain"
    elif asks.batch and asks.kind == "gradient":
        poisson = privacy.relation == "add-remove"
        rates = batch_rates(asks.batch, sizes, whole=not poisson)
        worst = int(np.argmax(rates))
        if rates[worst] < 1:
            if mechanism != "gaussian":
                raise NoGuarantee(
                    f"Proven: no proof for {mechanism} noise on random batches; use batch=0, or seeded noise"
                )
            if poisson:
                kind |= {"sampling": "poisson", "rate": float(rates[worst])}
            else:
                size = int(sizes[worst])
                kind |= {"sampling": "fixed-size", "batch": round(rates[worst] * size), "size": size}
    return kind


def open_door(
    privacy: Privacy, event: Event | None, ledger: Ledger | None, exact: ExactOracle, asks: Asks, **rest: Any
) -> Door:
    """The door for this kind of promise."""
    if isinstance(privacy, Published):
        return PublishedDoor(exact, asks, privacy=privacy, **rest)
    if isinstance(privacy, Proven):
        check.require(event is not None and ledger is not None, "Proven", "needs a calibrated event and a ledger")
        kind = ClientDoor if privacy.unit == "client" else RecordDoor
        return kind(exact, asks, privacy=privacy, event=event, ledger=ledger, **rest)  # type: ignore[arg-type]
    return Door(exact, asks, **rest)
