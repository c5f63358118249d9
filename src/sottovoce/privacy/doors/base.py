"""The only way from an algorithm to a client's rows.

Four doors, one per kind of promise: `Door` (none) and `PublishedDoor` (the paper's noise on uploads) are here;
`RecordDoor` and `ClientDoor` (proven) are in `proven.py`. Everything an algorithm holds is a function or a public
number: no attribute of its `Site` leads to a row.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Asks, Claim, Descent, Noise, Oracle, ProxSteps
from sottovoce.core.random.streams import Purpose
from sottovoce.privacy import local_steps as local_runs
from sottovoce.privacy.modes import Published
from sottovoce.privacy.noise_key import NoiseKey

ARGMIN_TOL = 1e-9
MOST_STEPS = 4096  # of one run of local steps


class ExactOracle(Protocol):
    """What a door wraps: exact answers about the rows of the clients on this machine (`problems/rows/oracle.py`)."""

    loss: Any
    dim: int
    sizes: np.ndarray
    weights: np.ndarray

    @property
    def roundings(self) -> np.ndarray: ...
    def gradient(self, w: np.ndarray, clients: Any, clip: Any, norm: Any, keep: Any) -> np.ndarray: ...
    def clipped_examples(self, w: np.ndarray, client: int, clip: float, norm: Any) -> np.ndarray: ...
    def argmin(
        self,
        centre: Any,
        rho: Any,
        linear: Any,
        ridge: Any,
        clients: Any,
        start: Any,
        tol: Any,
        row_cap: Any = None,
        last_steps: int | None = None,
    ) -> np.ndarray: ...
    def smoothness(self, clients: Any) -> np.ndarray: ...
    def strong_convexity(self, clients: Any) -> np.ndarray: ...
    def longest_row(self, clients: Any) -> np.ndarray: ...


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
    key, clients
        What noise and batches are bound to, and the clients' numbers in the whole federation.
    row_bound
        A public promise on the length of rows.
    intercept
        Sees every answer on its way out and may replace it: how replay and audits record and force answers. It is
        called with the answer and, where noise was added to it here, with what it was made of: see `noisy`.
    """

    exact: ExactOracle
    asks: Asks
    key: NoiseKey
    clients: np.ndarray
    row_bound: float | None = None
    intercept: Callable[..., np.ndarray] = lambda answer, *made_of: answer

    _shown = None  # see `_constants`
    clip: float | None = None  # applied to answers that are not noisy (`Published` may ask for it)
    counted = False  # whether answers cost, so that asking more than declared is refused
    poisson = False  # whether batches are drawn record by record; else they have a fixed size

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        return self.exact_gradient(w, question, self.clip)

    def argmin(
        self, centre: np.ndarray, rho: Any, linear: Any, ridge: float, start: np.ndarray | None, question: Question
    ) -> np.ndarray:
        # Rows are scaled so that no record's gradient exceeds the clip norm anywhere.
        cap = None if self.clip is None else self.clip / self.exact.loss.lipschitz
        return self.exact.argmin(centre, rho, linear, ridge, question.local, start, ARGMIN_TOL, cap)

    def prox_steps(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        return spec.centre + local_runs.take_prox_steps(self.gradients(question, self.clip), start, spec)

    def descent(self, start: np.ndarray, spec: Descent, question: Question) -> np.ndarray:
        return local_runs.take_descent(self.gradients(question, self.clip), start, spec)

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        return u

    def able(self, local: np.ndarray, k: int) -> np.ndarray:
        """Who of these clients can afford round k: (runs?, clients) of bool."""
        return np.ones(self.shape(len(local)), dtype=bool)

    def noise_std(self, local: np.ndarray) -> np.ndarray:
        return np.zeros_like(self.exact.weights[local])

    def gradient_bound(self, local: np.ndarray) -> np.ndarray | float:
        return self.exact.loss.lipschitz * self.longest(local)

    def curvature_bound(self, local: np.ndarray) -> np.ndarray | float:
        return self.exact.loss.curvature * self.longest(local) ** 2

    def longest(self, local: np.ndarray) -> np.ndarray | float:
        """The promised bound on rows, or each client's own longest: nobody's number depends on another's rows."""
        return self.exact.longest_row(local) if self.row_bound is None else self.row_bound

    def smoothness(self, local: np.ndarray) -> np.ndarray:
        return self.exact.smoothness(local)

    def strong_convexity(self, local: np.ndarray) -> np.ndarray:
        return self.exact.strong_convexity(local)

    @property
    def claim(self) -> Claim | None:
        return None

    # What follows is the same behind every door.

    def open(
        self, local: np.ndarray, active: np.ndarray, k: int, public: Sequence["Sealed"] = ()
    ) -> tuple[Oracle, "Releases"]:
        """The oracle and the releases of round k for the clients at places `local`, asked in the runs `active`.

        `public` holds the arrays that may serve as the centre of a release: the broadcast, and zeros.
        Before the first round (k = 0) nothing may be asked: a starting state must not depend on data.
        """
        next_question = self.questions(local, active, k)

        def grad(w: np.ndarray) -> np.ndarray:
            return self.gradient(w, next_question("gradient"))

        def prox_steps(start: np.ndarray, spec: ProxSteps) -> np.ndarray:
            return self.prox_steps(start, spec, next_question("prox-steps"))

        def descent(start: np.ndarray, spec: Descent) -> np.ndarray:
            return self.descent(start, spec, next_question("descent"))

        def argmin(
            centre: np.ndarray, rho: Any, linear: Any = 0.0, ridge: float = 0.0, start: np.ndarray | None = None
        ) -> np.ndarray:
            return self.argmin(centre, rho, linear, ridge, start, next_question("argmin"))

        oracle = Oracle(
            grad=grad,
            argmin=argmin,
            prox_steps=prox_steps,
            descent=descent,
            **self._constants(local),
            smoothness=lambda: self.smoothness(local),
            strong_convexity=lambda: self.strong_convexity(local),
            dim=self.exact.dim,
        )
        return oracle, Releases(self, local, active, k, public)

    def take_part(self, visit: "Visit") -> tuple[Any, Any]:
        """One round of the algorithm's client half: the new states, and an upload made of what was released."""
        after, up = visit.play(visit.before, visit.oracle, visit.releases)
        return after, visit.releases.sealed(up)

    def _constants(self, local: np.ndarray) -> dict[str, Any]:
        """The numbers that an oracle shows, kept until other clients are asked: of a door, only they change."""
        shown = self._shown
        if shown is None or not np.array_equal(local, shown[0]):
            constants: dict[str, Any] = {
                "size": self.exact.sizes[local][:, None].astype(np.float64),
                "weight": self.exact.weights[local],
                "noise_std": self.noise_std(local),
                "gradient_bound": self.gradient_bound(local),
                "curvature_bound": self.curvature_bound(local),
            }
            for numbers in constants.values():
                if isinstance(numbers, np.ndarray):
                    numbers.flags.writeable = False  # the next round sees the same
            shown = self._shown = local.copy(), constants
        return shown[1]

    def questions(self, local: np.ndarray, active: np.ndarray, k: int) -> Callable[[str], Question]:
        """Numbers the questions of a round; behind a door that counts, no more and no others than were declared."""
        most, enforced = (self.asks.answers, self.counted) if k > 0 else (0, True)
        asked = 0

        def next_question(kind: str) -> Question:
            nonlocal asked
            if enforced and kind != self.asks.kind:
                raise InvalidInput(f"Oracle: this algorithm declared {self.asks.kind!r} and asked for {kind!r}")
            if enforced and asked >= most:
                raise InvalidInput(
                    f"Oracle: this algorithm declared {most} answers for round {k} and asked for one more"
                )
            asked += 1
            return Question(local, active, k, asked - 1)

        return next_question

    def exact_gradient(self, w: np.ndarray, question: Question, clip: float | None, norm: int = 2) -> np.ndarray:
        """The gradient; over a batch if one was declared, divided by the expected batch, never by the realised one."""
        local = question.local
        if self.asks.batch == 0 or (self.rates[local] == 1).all():
            return self.exact.gradient(w, local, clip, norm, None)
        rate = self.rates[local]
        sizes = self.exact.sizes[local]
        draws = self.key.batch(self.clients[local], local, sizes, question.k, question.number)
        if self.poisson:
            keep = draws < np.repeat(rate[:, 0], sizes)
        else:
            keep = _smallest_of_each(draws, sizes, np.rint(rate[:, 0] * sizes).astype(np.int64))
        return self.exact.gradient(w, local, clip, norm, keep) / rate

    @cached_property
    def rates(self) -> np.ndarray:
        """The share of its records that each client's gradient is taken over: (n, 1)."""
        return batch_rates(self.asks.batch, self.exact.sizes, whole=not self.poisson)[:, None]

    def gradients(
        self, question: Question, clip: float | None, norm: int = 2
    ) -> Callable[[np.ndarray, int], np.ndarray]:
        """The exact gradients of a run of steps; each step draws its own batch."""
        return lambda x, j: self.exact_gradient(x, self.step_of(question, j), clip, norm)

    @staticmethod
    def step_of(question: Question, j: int) -> Question:
        """Step j of a question counts as a question of its own in the random streams."""
        check.require(j < MOST_STEPS, "Oracle", f"a run of local steps may have at most {MOST_STEPS}", j + 1)
        return replace(question, number=MOST_STEPS * (question.number + 1) + j)

    def seeded(
        self, exact: np.ndarray, purpose: Purpose, question: Question, kind: str = "gaussian", count: int = 0
    ) -> np.ndarray:
        """Seeded noise of deviation 1 (Laplace: of scale 1) for this exact answer to this question."""
        who, k, number = self.clients[question.local], question.k, question.number
        return self.key.noise(kind, who, question.local, k, purpose, number, exact, count)

    def noisy(
        self, exact: np.ndarray, scale: Any, purpose: Purpose, question: Question, kind: str = "gaussian"
    ) -> np.ndarray:
        """`exact` with fresh noise of deviation (Laplace: of scale) `scale`: the one place where the two meet."""
        noisy = scale * self.seeded(exact, purpose, question, kind)
        noisy += exact
        return self.intercept(noisy, exact, scale, kind)

    def shape(self, clients: int) -> tuple[int, ...]:
        runs = self.key.streams.runs
        return (clients,) if runs is None else (runs, clients)


@dataclass(kw_only=True)
class PublishedDoor(Door):
    """Exact (or clipped) answers; an upload gets the noise its paper states."""

    privacy: Published

    def __post_init__(self) -> None:
        self.clip = self.privacy.clip
        if self.privacy.clip is None and not np.isfinite(self.exact.loss.lipschitz):
            raise InvalidInput(
                f"Published: the gradients of {type(self.exact.loss).__name__} are unbounded, so the paper's noise is "
                "not defined; give Published(clip=...)"
            )

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        if noise is None:
            return self.intercept(u)
        return self.noisy(u, noise.scale, Purpose.RELEASE, question, noise.kind)

    def gradient_bound(self, local: np.ndarray) -> np.ndarray | float:
        return super().gradient_bound(local) if self.privacy.clip is None else self.privacy.clip

    @property
    def claim(self) -> Claim | None:
        return Claim(self.privacy.epsilon, self.privacy.delta)


class Sealed:
    """Numbers in bytes that nobody can change, and an array over them to give away.

    Whoever has that array cannot write into it, and whatever they do to the array object itself changes nothing here.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._bytes, self._shape = np.ascontiguousarray(array, dtype=np.float64).tobytes(), np.shape(array)
        self.given = self.again()

    def again(self) -> np.ndarray:
        """Another array over the same bytes."""
        return np.frombuffer(self._bytes).reshape(self._shape)


@contextmanager
def quietly() -> Iterator[None]:
    """No warning of what is computed inside: it would depend on private numbers."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Visit:
    """One round of some clients: what an algorithm's client half is called with, once or, to be safe, twice."""

    before: Any  # the clients' states
    clients: int
    start: Callable[[], Any]  # makes the states that they begin with: they are public
    oracle: Any
    releases: "Releases"
    zeros: np.ndarray  # (runs?, clients, dim)
    play: Callable[[Any, Any, Any], tuple[Any, Any]]  # play(states, oracle, release) -> (new states, upload)
    alone: Callable[[int], "Visit"]  # the same round of the client at this place alone


@dataclass
class Releases:
    """The exit of one round, and a record of what went through it: uploads are made from what is kept here."""

    door: Door
    local: np.ndarray
    active: np.ndarray
    k: int
    public: Sequence[Sealed] = ()
    shapes: Sequence[tuple[int, ...]] | None = None  # of what may be released, one after the other, where that is fixed
    before: Sequence[np.ndarray] = ()  # what was released in a first try of this round: it is not released again

    def __post_init__(self) -> None:
        self._kept: list[Sealed] = []

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, u: np.ndarray, noise: Noise | None = None, centre: np.ndarray | None = None) -> np.ndarray:
        """The value to upload in place of `u`: read-only, so that it stays what was released."""
        place = len(self._kept)
        if self.shapes is not None and (place >= len(self.shapes) or np.shape(u) != self.shapes[place]):
            raise InvalidInput("release: this algorithm releases other arrays for some data sets than for others")
        if place < len(self.before):
            released = self.before[place]
        else:
            question = Question(self.local, self.active, self.k, place)
            released = self.door.release(u, noise, self._public_centre(centre), question)
        self._kept.append(Sealed(released))
        return self._kept[-1].given

    def of_client(self, place: int) -> list[np.ndarray]:
        """What was released so far of one client."""
        return [kept.again()[..., place : place + 1, :] for kept in self._kept]

    def sealed(self, upload: Any) -> Any:
        """The upload, made of the kept bytes; refuses a field that did not come out of `release`."""
        return self.message(type(upload), places_of(upload, [kept.given for kept in self._kept]))

    def message(self, kind: type[Any], places: Mapping[str, int]) -> Any:
        """A message whose fields are what these calls of `release` gave, whatever its class does when it is made."""
        arrays = {name: self._kept[place].again() for name, place in places.items()}
        made = kind(**arrays)
        changed = [name for name, array in arrays.items() if getattr(made, name) is not array]
        check.require(not changed, "upload", "a message must keep its fields as they are given", ", ".join(changed))
        return made

    def _public_centre(self, centre: np.ndarray | None) -> np.ndarray | None:
        if centre is None:
            return None
        for public in self.public:
            if centre is public.given:
                return public.again()
        raise InvalidInput("release: the centre must be public: a field of the broadcast as it came, or site.zeros")


def places_of(upload: Any, released: Sequence[np.ndarray]) -> dict[str, int]:
    """Which of the released arrays each field of an upload is; refuses a field that is none of them."""
    found = {}
    for name, array in codec.to_arrays(upload).items():
        place = next((j for j, given in enumerate(released) if given is array), None)
        if place is None:
            raise InvalidInput(f"upload: field {name!r} did not pass through site.release; nothing was sent")
        found[name] = place
    return found


def batch_rates(batch: float, sizes: np.ndarray, whole: bool) -> np.ndarray:
    """The share of its records each client draws for a batch of `batch` records (or that share of them, if < 1)."""
    if batch == 0:
        return np.ones(np.shape(sizes))
    drawn = np.minimum(batch * sizes if batch < 1 else np.full(np.shape(sizes), float(batch)), sizes)
    return (np.maximum(np.rint(drawn), 1) if whole else drawn) / sizes


def _smallest_of_each(draws: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Whether a draw is among the `counts` smallest of its client: sampling without replacement."""
    if (sizes == sizes[0]).all() and (counts == counts[0]).all():
        table = draws.reshape(*draws.shape[:-1], len(sizes), int(sizes[0]))
        last = np.partition(table, int(counts[0]) - 1, axis=-1)[..., int(counts[0]) - 1, None]
        keep = table <= last
        if keep.sum() == counts[0] * last.size:  # else two draws were equal: sort them as below
            return keep.reshape(draws.shape)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.lexsort((draws, np.broadcast_to(owner, draws.shape)), axis=-1)
    chosen = np.arange(len(owner)) - starts < np.repeat(counts, sizes)  # places within each client, best first
    keep = np.empty(draws.shape, dtype=bool)
    np.put_along_axis(keep, order, np.broadcast_to(chosen, draws.shape), axis=-1)
    return keep
