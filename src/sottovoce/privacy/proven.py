"""Proven doors: every answer is clipped, charged to the ledger, noised and only then given.

Whatever an algorithm makes of an answer is post-processing, so a badly written algorithm can be useless but not leaky.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sottovoce.core import check
from sottovoce.core.algorithm import Asks, Descent, Noise, ProxSteps
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.streams import Purpose, Streams
from sottovoce.privacy import local_runs, mechanisms
from sottovoce.privacy.door import ARGMIN_TOL, Door, ExactOracle, PublishedDoor, Question, batch_rates
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Privacy, Proven, Published

MOST_KINDS = 64  # different sampling rates that are accounted one by one


class Ledger(Protocol):
    """What a proven door asks before it answers (`privacy/ledger.py`)."""

    def charge(
        self, event: Event, clients: Any, active: Any, round: int, question: int, about: Iterable[np.ndarray]
    ) -> None: ...
    def afford(self, event: Event, answers: int, clients: Any, round: int) -> np.ndarray: ...


@dataclass(kw_only=True)
class ProvenDoor(Door):
    """What all proven doors share: a budget, one kind of event, and constants that never look at data."""

    privacy: Proven
    event: Event  # what an answer is; clients of other sizes differ from it in their batches alone
    ledger: Ledger

    def charge(self, question: Question, about: Callable[[], Iterable[Any]]) -> None:
        """Before the answer is computed: refuses when the budget does not hold it.

        `about`: all that is asked about, numbers and vectors (..., clients or 1, coordinates); only a ledger on disk
        looks at it.
        """
        for event, places in self.events(question.local):
            active = question.active[..., places]
            content = self._content(about, places)
            self.ledger.charge(event, question.local[places], active, question.k, question.number, content)

    def _content(self, about: Callable[[], Iterable[Any]], places: slice | np.ndarray) -> Iterator[np.ndarray]:
        # Steps follow from the bound on rows, so with another bound it is another question.
        for part in about() if self.row_bound is None else (*about(), self.row_bound):
            rows = np.atleast_2d(np.asarray(part, dtype=np.float64))
            yield rows if rows.shape[-2] == 1 else rows[..., places, :]

    @property
    def behind(self) -> Streams:
        return self.streams.derived(self._rows_key) if self._rows_key else self.streams

    @cached_property
    def _rows_key(self) -> str:
        return rows_key(self.row_bound, getattr(self.exact, "X", None))

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
    a batch both are divided by the public share drawn. The weight, 1/m or 1, is public.

    Arg-min: the minimised function is (rho + ridge)-strongly convex, and two neighbours' gradients differ by that
    same amount *everywhere*, because rows are scaled so that |slope|·|row| <= clip for a loss of bounded slope. So
    the minimisers differ by that amount / (rho + ridge), and what a solver returns within `tol` by 2·tol / (rho +
    ridge) more.

    Runs of local steps: see `local_runs.py`.
    """

    counted = True

    def __post_init__(self) -> None:
        self.poisson = self.event.sampling == "poisson"
        kind, loss = self.asks.kind, self.exact.loss
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
        self.charge(question, lambda: (w,))
        if self.privacy.noise == "secure":
            return self.intercept(self._secure_gradient(w, question.local))
        exact = self.exact_gradient(w, question, self.privacy.clip, self._norm)
        scale = self.event.noise_multiplier * self._sensitivity(question.local)
        return self.noisy(exact, scale, Purpose.NOISE, question, self.event.mechanism)

    def argmin(
        self, centre: np.ndarray, rho: Any, linear: Any, ridge: float, start: np.ndarray | None, question: Question
    ) -> np.ndarray:
        change = (self._sensitivity(question.local) + 2 * ARGMIN_TOL) / (np.asarray(rho) + ridge)
        _finer_than(change, centre, np.max(np.abs(linear)) / (np.min(rho) + ridge))
        self.charge(question, lambda: (centre, linear, rho, ridge))
        cap = self.privacy.clip / self.exact.loss.lipschitz
        exact = self.exact.argmin(centre, rho, linear, ridge, question.local, start, ARGMIN_TOL, cap)
        return self.noisy(exact, self.event.noise_multiplier * change, Purpose.NOISE, question)

    def prox_steps(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        change = self._prox_steps_sensitivity(spec, question.local)
        _finer_than(change, start - spec.centre, np.max(np.abs(spec.push)) / spec.weights[1].min())
        self.charge(question, lambda: (start, *_told(spec)))
        # The centre may be large, and rounding to its digits would show through noise that is added later.
        away = local_runs.take_prox_steps(self.gradients(question, self.privacy.clip, self._norm), start, spec)
        scale = self.event.noise_multiplier * change
        return spec.centre + self.noisy(away, scale, Purpose.NOISE, question, self.event.mechanism)

    def descent(self, start: np.ndarray, spec: Descent, question: Question) -> np.ndarray:
        c = local_runs.contraction(spec, self.smoothness(question.local))
        if not (c < 1).all():  # also when no bound on the rows was promised: c is then infinite
            raise NoGuarantee(
                f"Proven: local steps must contract, got a factor of {float(np.max(c)):.4g}; promise a row_bound and "
                "take a step below 2 / (smoothness + ridge + pull)"
            )
        numbers = (spec.centre, spec.step, spec.pull, spec.ridge)
        self.charge(question, lambda: (start, _in_words("descent", spec.count), *numbers))
        noise = self.event.noise_multiplier * local_runs.chain_gain(c, spec.count) * self._sensitivity(question.local)

        def noisy(x: np.ndarray, j: int) -> np.ndarray:
            step = self.step_of(question, j)
            exact = self.exact_gradient(x, step, self.privacy.clip)
            return exact + noise * self.seeded(Purpose.NOISE, step, self.exact.dim)

        return self.intercept(local_runs.take_descent(noisy, start, spec))

    def _prox_steps_sensitivity(self, spec: ProxSteps, local: np.ndarray) -> np.ndarray:
        one = self._sensitivity(local)
        if type(spec.h).__module__ != "sottovoce.problems.penalties":  # whose prox are known to stretch no distance
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
        if convex and np.all(self.smoothness(local) <= 2 * spec.weights[0]):
            return local_runs.prox_steps_sensitivity(spec, one, one)
        bounded = 2 * self.privacy.clip * self.exact.weights[local] * self.exact.sizes[local][:, None]
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
        return self._reach * self.privacy.clip * self.exact.weights / self.rates

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

    def _secure_gradient(self, w: np.ndarray, local: np.ndarray) -> np.ndarray:
        """Integer sums on a grid and discrete noise from the operating system, one client after the other."""
        points = np.broadcast_to(w, (*self.shape(len(local)), self.exact.dim))
        answer = np.empty(points.shape)
        scale = self.event.noise_multiplier * self._reach * mechanisms.GRID_BOUND
        for place in np.ndindex(points.shape[:-1]):
            client = int(local[place[-1]])
            examples = self.exact.clipped_examples(points[place], client, self.privacy.clip, self._norm)
            total = mechanisms.to_grid(examples, self.privacy.clip).sum(axis=0)
            noisy = mechanisms.noised(self.privacy.mechanism, scale, total)
            answer[place] = mechanisms.from_grid(noisy, self.privacy.clip) * self.exact.weights[client]
        return answer


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
        self.charge(question, lambda: (u, centre))
        moved = mechanisms.clip_rows(u - centre, self.privacy.clip)
        if self.privacy.noise == "seeded":
            scale = self.event.noise_multiplier * 2 * self.privacy.clip
            return centre + self.noisy(moved, scale, Purpose.NOISE, question)  # not before: see `prox_steps`
        grid = mechanisms.to_grid(moved, self.privacy.clip)
        scale = self.event.noise_multiplier * 2 * mechanisms.GRID_BOUND
        grid = mechanisms.noised("gaussian", scale, grid)
        return self.intercept(centre + mechanisms.from_grid(grid, self.privacy.clip))


def _in_words(*words: Any) -> np.ndarray:
    """What is asked but for its numbers, as a row of numbers: for a ledger, which tells questions apart by these."""
    return np.frombuffer(hashlib.sha256(repr(words).encode()).digest(), dtype=np.uint8).astype(np.float64)[None]


def _told(spec: ProxSteps) -> tuple[Any, ...]:
    """All that a run of proximal steps is made of but its start and the rows."""
    words = _in_words("prox-steps", spec.h, spec.fresh, spec.average, spec.at is None)
    weights = (np.moveaxis(numbers[..., 0], 0, -1) for numbers in spec.weights)  # all steps of a client in a row
    return words, spec.push, spec.centre, 0.0 if spec.at is None else spec.at, *weights


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


def rows_key(row_bound: float | None, X: np.ndarray | None) -> str:
    """What noise is bound to besides the settings of a run: what is known of the rows, and how they are stored.

    Either changes what is asked. With the noise of another bound, or of rows that are not rounded, a difference of
    two runs would have none.
    """
    bound = "" if row_bound is None else f" no longer than {float(row_bound)!r}"
    stored = " in float32" if getattr(X, "dtype", None) == np.float32 else ""
    return f"rows{bound}{stored}" if bound or stored else ""


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
