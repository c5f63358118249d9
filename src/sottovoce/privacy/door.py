"""The only way from an algorithm to a client's rows.

Four doors, one per kind of promise: `Door` (none), `PublishedDoor` (the paper's noise on uploads), `RecordDoor` and
`ClientDoor` (proven, for one record or one whole client). Behind a proven door every answer is clipped, charged to
the ledger, noised and only then given; whatever an algorithm makes of it is post-processing, so a badly written
algorithm can be useless but not leaky. Everything an algorithm holds is a function or a public number: no attribute
of its `Site` leads to a row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sottovoce.core import check
from sottovoce.core.algorithm import Asks, Claim, Noise, Oracle
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.streams import Purpose, Streams
from sottovoce.privacy import mechanisms
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Privacy, Proven, Published

ARGMIN_TOL = 1e-9
MOST_KINDS = 64  # different sampling rates that are accounted one by one


class ExactOracle(Protocol):
    """What a door wraps: exact answers about the rows of the clients on this machine (`problems/rows.py`)."""

    loss: Any
    dim: int
    sizes: np.ndarray
    weights: np.ndarray

    def gradient(self, w: np.ndarray, clients: Any, clip: Any, norm: Any, keep: Any) -> np.ndarray: ...
    def clipped_examples(self, w: np.ndarray, client: int, clip: float, norm: Any) -> np.ndarray: ...
    def argmin(
        self, centre: Any, rho: Any, linear: Any, ridge: Any, clients: Any, start: Any, tol: Any, row_cap: Any = None
    ) -> np.ndarray: ...
    def smoothness(self, clients: Any) -> np.ndarray: ...
    def strong_convexity(self, clients: Any) -> np.ndarray: ...
    def longest_row(self) -> float: ...


class Ledger(Protocol):
    """What a proven door asks before it answers (`privacy/ledger.py`)."""

    def charge(self, event: Any, clients: Any, active: Any) -> None: ...
    def afford(self, event: Any, answers: Any, clients: Any) -> np.ndarray: ...


@dataclass(frozen=True)
class Question:
    """Who is asked what: the clients' places on this machine, the runs in which they are asked, round and number."""

    local: np.ndarray
    active: np.ndarray  # (runs?, clients) of bool
    k: int
    number: int


@dataclass
class Door:
    """Exact answers, plain uploads: no privacy. The base of the other doors.

    Parameters
    ----------
    exact
        The rows.
    asks
        What the algorithm declared that it will ask in a round.
    streams, clients
        Random numbers, and the clients' numbers in the whole federation, which key them.
    row_bound
        A public promise on the length of rows.
    intercept
        Sees every answer on its way out and may replace it: how replay records and forces answers.
    """

    exact: ExactOracle
    asks: Asks
    streams: Streams
    clients: np.ndarray
    row_bound: float | None = None
    intercept: Callable[[np.ndarray], np.ndarray] = lambda answer: answer

    counted = False  # whether answers cost, so that asking more than declared is refused
    poisson = False  # whether batches are drawn record by record; else they have a fixed size

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        return self.exact_gradient(w, question, clip=None)

    def argmin(
        self, centre: np.ndarray, rho: Any, linear: Any, ridge: float, start: np.ndarray | None, question: Question
    ) -> np.ndarray:
        return self.exact.argmin(centre, rho, linear, ridge, question.local, start, ARGMIN_TOL)

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        return u.copy()  # a fresh array, so that a released value can be told from one that was not

    def able(self, local: np.ndarray) -> np.ndarray:
        """Who of these clients can afford one more round: (runs?, clients) of bool."""
        return np.ones(self.shape(len(local)), dtype=bool)

    def noise_std(self, local: np.ndarray) -> np.ndarray:
        return np.zeros_like(self.exact.weights[local])

    def gradient_bound(self) -> float:
        return self.exact.loss.lipschitz * (self.row_bound or self.exact.longest_row())

    def curvature_bound(self) -> float:
        return self.exact.loss.curvature * (self.row_bound or self.exact.longest_row()) ** 2

    def smoothness(self, local: np.ndarray) -> np.ndarray:
        return self.exact.smoothness(local)

    def strong_convexity(self, local: np.ndarray) -> np.ndarray:
        return self.exact.strong_convexity(local)

    @property
    def claim(self) -> Claim | None:
        return None

    # What follows is the same behind every door.

    def open(self, local: np.ndarray, active: np.ndarray, k: int) -> tuple[Oracle, "Releases"]:
        """The oracle and the way out in round k for the clients at places `local`, asked in the runs `active`.

        Before the first round (k = 0) nothing may be asked: a starting state must not depend on data.
        """
        most, enforced = (self.asks.answers, self.counted) if k > 0 else (0, True)
        asked = 0

        def next_question() -> Question:
            nonlocal asked
            if enforced and asked >= most:
                raise InvalidInput(
                    f"Oracle: this algorithm declared {most} answers for round {k} and asked for one more"
                )
            asked += 1
            return Question(local, active, k, asked - 1)

        def grad(w: np.ndarray) -> np.ndarray:
            return self.gradient(w, next_question())

        def argmin(
            centre: np.ndarray, rho: Any, linear: Any = 0.0, ridge: float = 0.0, start: np.ndarray | None = None
        ) -> np.ndarray:
            return self.argmin(centre, rho, linear, ridge, start, next_question())

        weights = self.exact.weights[local]
        oracle = Oracle(
            grad=grad,
            argmin=argmin,
            size=self.exact.sizes[local][:, None].astype(np.float64),
            weight=weights,
            noise_std=self.noise_std(local),
            gradient_bound=self.gradient_bound(),
            curvature_bound=self.curvature_bound(),
            smoothness=lambda: self.smoothness(local),
            strong_convexity=lambda: self.strong_convexity(local),
            dim=self.exact.dim,
        )
        return oracle, Releases(self, local, active, k)

    def exact_gradient(self, w: np.ndarray, question: Question, clip: float | None, norm: int = 2) -> np.ndarray:
        """The gradient; over a batch if one was declared, divided by the expected batch, never by the realised one."""
        local = question.local
        rate = self.rates[local]
        if (rate == 1).all():
            return self.exact.gradient(w, local, clip, norm, None)
        sizes = self.exact.sizes[local]
        draws = self.streams.uniform_rows(self.clients[local], sizes, question.k, Purpose.BATCH, question.number)
        if self.poisson:
            keep = draws < np.repeat(rate[:, 0], sizes)
        else:
            keep = _smallest_of_each(draws, sizes, np.rint(rate[:, 0] * sizes).astype(np.int64))
        return self.exact.gradient(w, local, clip, norm, keep) / rate

    @cached_property
    def rates(self) -> np.ndarray:
        """The share of its records that each client's gradient is taken over: (n, 1)."""
        return batch_rates(self.asks.batch, self.exact.sizes, whole=not self.poisson)[:, None]

    def seeded(self, purpose: Purpose, question: Question, count: int, kind: str = "gaussian") -> np.ndarray:
        """Seeded noise of deviation 1 (Laplace: of scale 1), `count` numbers per client."""
        draw = self.streams.laplace if kind == "laplace" else self.streams.normal
        return draw(self.clients[question.local], question.k, purpose, count, question.number)

    def shape(self, clients: int) -> tuple[int, ...]:
        return (clients,) if self.streams.runs is None else (self.streams.runs, clients)


@dataclass(kw_only=True)
class PublishedDoor(Door):
    """Exact (or clipped) answers; an upload gets the noise its paper states."""

    privacy: Published

    def __post_init__(self) -> None:
        if not np.isfinite(self.gradient_bound()):
            raise InvalidInput(
                f"Published: the gradients of {type(self.exact.loss).__name__} are unbounded, so the paper's noise is "
                "not defined; give Published(clip=...)"
            )

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        return self.exact_gradient(w, question, self.privacy.clip)

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        if noise is None:
            return u.copy()
        return u + noise.scale * self.seeded(Purpose.RELEASE, question, u.shape[-1], noise.kind)

    def gradient_bound(self) -> float:
        return super().gradient_bound() if self.privacy.clip is None else self.privacy.clip

    @property
    def claim(self) -> Claim | None:
        return Claim(self.privacy.epsilon, self.privacy.delta)


@dataclass(kw_only=True)
class _ProvenDoor(Door):
    """What both proven doors share: a budget, one kind of event, and constants that never look at data."""

    privacy: Proven
    event: Event  # what an answer is; clients of other sizes differ from it in their batches alone
    ledger: Ledger

    def charge(self, question: Question) -> None:
        """Before the answer is computed: refuses when the budget does not hold it."""
        for event, places in self.events(question.local):
            self.ledger.charge(event, question.local[places], question.active[..., places])

    def able(self, local: np.ndarray) -> np.ndarray:
        able, answers = np.empty(self.shape(len(local)), dtype=bool), costs(self.privacy, self.asks)
        for event, places in self.events(local):
            able[..., places] = self.ledger.afford(event, answers, local[places])
        return able

    def events(self, local: np.ndarray) -> list[tuple[Event, np.ndarray]]:
        """What an answer of these clients is, and whose: one event for all, if batches are not unequal shares."""
        return [(self.event, np.arange(len(local)))]

    def gradient_bound(self) -> float:
        return np.inf if self.row_bound is None else super().gradient_bound()

    def curvature_bound(self) -> float:
        return np.inf if self.row_bound is None else super().curvature_bound()

    def smoothness(self, local: np.ndarray) -> np.ndarray:
        return self.curvature_bound() * self.exact.weights[local] * self.exact.sizes[local][:, None]

    def strong_convexity(self, local: np.ndarray) -> np.ndarray:
        return np.zeros_like(self.exact.weights[local])


@dataclass
class RecordDoor(_ProvenDoor):
    """Noisy answers; uploads are post-processing and go out as they are.

    Gradient: with everything before it fixed, the clipped sums of two neighbouring data sets differ in one term, so
    the sensitivity is 2·clip·weight (replace-one) or clip·weight (add-remove), whatever the loss and the point; over
    a batch both are divided by the public share drawn. The weight, 1/m or 1, is public.

    Arg-min: the minimised function is (rho + ridge)-strongly convex, and two neighbours' gradients differ by that
    same amount *everywhere*, because rows are scaled so that |slope|·|row| <= clip for a loss of bounded slope. So
    the minimisers differ by that amount / (rho + ridge), and what a solver returns within `tol` by 2·tol / (rho +
    ridge) more.
    """

    counted = True

    def __post_init__(self) -> None:
        self.poisson = self.event.sampling == "poisson"
        if self.asks.kind == "argmin":
            loss = self.exact.loss
            if not np.isfinite(loss.lipschitz):
                raise NoGuarantee(
                    f"Proven: the arg-min of {type(loss).__name__} has no bounded sensitivity (its slope is "
                    "unbounded); use a loss of bounded slope such as Huber(), or a method that asks for gradients"
                )
            if self.event.mechanism != "gaussian":
                raise NoGuarantee(
                    f"Proven: no {self.event.mechanism} noise for arg-mins; use noise='seeded', 'gaussian'"
                )

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        self.charge(question)
        if self.privacy.noise == "secure":
            return self.intercept(self._secure_gradient(w, question.local))
        exact = self.exact_gradient(w, question, self.privacy.clip, self._norm)
        scale = self.event.noise_multiplier * self._sensitivity(question.local)
        return self.intercept(
            exact + scale * self.seeded(Purpose.NOISE, question, self.exact.dim, self.event.mechanism)
        )

    def argmin(
        self, centre: np.ndarray, rho: Any, linear: Any, ridge: float, start: np.ndarray | None, question: Question
    ) -> np.ndarray:
        if self.asks.kind != "argmin":
            raise InvalidInput("Oracle: this algorithm declared gradients and asked for an arg-min")
        self.charge(question)
        cap = self.privacy.clip / self.exact.loss.lipschitz
        exact = self.exact.argmin(centre, rho, linear, ridge, question.local, start, ARGMIN_TOL, cap)
        change = self._sensitivity(question.local) + 2 * ARGMIN_TOL
        scale = self.event.noise_multiplier * change / (np.asarray(rho) + ridge)
        return self.intercept(exact + scale * self.seeded(Purpose.NOISE, question, self.exact.dim))

    def noise_std(self, local: np.ndarray) -> np.ndarray:
        unit = np.sqrt(2.0) if self.event.mechanism == "laplace" else 1.0  # deviation of a Laplace number of scale 1
        return unit * self.event.noise_multiplier * self._sensitivity(local)

    def gradient_bound(self) -> float:
        return self.privacy.clip

    @property
    def _norm(self) -> int:
        return 1 if self.event.mechanism == "laplace" else 2

    @property
    def _reach(self) -> int:
        """In clip norms: how far one record moves the sum of clipped gradients."""
        return 2 if self.event.relation == "replace-one" else 1

    def _sensitivity(self, local: np.ndarray) -> np.ndarray:
        return self._reach * self.privacy.clip * self.exact.weights[local] / self.rates[local]

    def events(self, local: np.ndarray) -> list[tuple[Event, np.ndarray]]:
        kinds, kind_of = self._kinds
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
            noise = mechanisms.discrete_noise(self.privacy.mechanism, scale, self.exact.dim)
            answer[place] = mechanisms.from_grid(total + noise, self.privacy.clip) * self.exact.weights[client]
        return answer


@dataclass
class ClientDoor(_ProvenDoor):
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
        self.charge(question)
        moved = mechanisms.clip_rows(u - centre, self.privacy.clip)
        if self.privacy.noise == "seeded":
            scale = self.event.noise_multiplier * 2 * self.privacy.clip
            return self.intercept(centre + moved + scale * self.seeded(Purpose.NOISE, question, u.shape[-1]))
        grid = mechanisms.to_grid(moved, self.privacy.clip)
        scale = self.event.noise_multiplier * 2 * mechanisms.GRID_BOUND
        grid = grid + mechanisms.discrete_noise("gaussian", scale, grid.size).reshape(grid.shape)
        return self.intercept(centre + mechanisms.from_grid(grid, self.privacy.clip))


@dataclass
class Releases:
    """The way out of one round, and a record of what went through it."""

    door: Door
    local: np.ndarray
    active: np.ndarray
    k: int

    def __post_init__(self) -> None:
        self._through: list[np.ndarray] = []

    def __call__(self, u: np.ndarray, noise: Noise | None = None, centre: np.ndarray | None = None) -> np.ndarray:
        """The value to upload in place of `u`."""
        released = self.door.release(u, noise, centre, Question(self.local, self.active, self.k, len(self._through)))
        self._through.append(released)
        return released

    def covers(self, upload: dict[str, np.ndarray]) -> None:
        """Refuse an upload with a field that did not come out of `release`."""
        for name, array in upload.items():
            if not any(array is released for released in self._through):
                raise InvalidInput(f"upload: field {name!r} did not pass through site.release; nothing was sent")


def costs(privacy: Proven, asks: Asks) -> int:
    """Events charged to a client for one round."""
    return asks.releases if privacy.unit == "client" else asks.answers


def plan(privacy: Proven, asks: Asks, rounds: int, sizes: np.ndarray) -> Event:
    """The event that each answer (or, for unit "client", each upload) is, with the least noise the budget allows.

    Batches follow from the relation: drawn record by record (Poisson) for add-remove, of fixed size for replace-one;
    the accountants for the two are not interchangeable. With unequal clients the event is that of the client whose
    batch is the largest share, which costs the most.
    """
    from sottovoce.privacy import accounting

    mechanism = privacy.mechanism
    if mechanism == "gaussian" and privacy.noise == "secure":
        mechanism = "discrete-gaussian"
    kind: dict[str, Any] = {"mechanism": mechanism, "relation": privacy.relation}
    if privacy.unit == "client":
        kind["relation"] = "replace-client"
    elif asks.batch:
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
    times = rounds if privacy.participations is None else min(rounds, privacy.participations)
    check.whole("Proven", participations=times)
    noise = accounting.calibrate(privacy.epsilon, privacy.delta, times * costs(privacy, asks), **kind)
    return Event(noise_multiplier=noise, **kind)


def batch_rates(batch: float, sizes: np.ndarray, whole: bool) -> np.ndarray:
    """The share of its records each client draws for a batch of `batch` records (or that share of them, if < 1)."""
    if batch == 0:
        return np.ones(len(sizes))
    drawn = np.minimum(batch * sizes if batch < 1 else np.full(len(sizes), float(batch)), sizes)
    return (np.maximum(np.rint(drawn), 1) if whole else drawn) / sizes


def _smallest_of_each(draws: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Whether a draw is among the `counts` smallest of its client: sampling without replacement."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.lexsort((draws, np.broadcast_to(owner, draws.shape)), axis=-1)
    chosen = np.arange(len(owner)) - starts < np.repeat(counts, sizes)  # places within each client, best first
    keep = np.empty(draws.shape, dtype=bool)
    np.put_along_axis(keep, order, np.broadcast_to(chosen, draws.shape), axis=-1)
    return keep


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
