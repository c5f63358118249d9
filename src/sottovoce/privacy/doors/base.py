"""The only way from an algorithm to a client's rows.

One door for each kind of promise: `Door` (none) and `PublishedDoor` (the paper's noise on uploads) are here; the proven
ones are in `record.py`, `client.py` and `party.py`. Everything an algorithm holds is a function or a public number: no
attribute of its `Site` leads to a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import everyone, of_clients, same_clients, unwritable
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import ArgMin, Array, Arrays, Asks, Descent, Noise, Oracle, Part, ProxSteps
from sottovoce.core.loss import Loss
from sottovoce.core.plain import Json
from sottovoce.core.questions import plain, plain_array, plain_descent, plain_prox_steps
from sottovoce.core.random.streams import Purpose
from sottovoce.privacy import local_steps as local_runs
from sottovoce.privacy.batches import batch_rates, smallest_of_each
from sottovoce.privacy.doors.releases import Question, Releases, Sealed, Visit
from sottovoce.privacy.modes import Published
from sottovoce.privacy.noise_key import NoiseKey, Occasion

Numbers = np.ndarray | float
ARGMIN_TOL = 1e-9
LARGEST_SLOPE = 1e100  # stands for no bound on slopes
MOST_STEPS = 4096  # of one run of local steps
_NOTHING = Part(answers=0)


class ExactOracle(Protocol):
    """What a door wraps: exact answers about the rows of the clients on this machine.

    `problems/rows/oracle.py` has them, and says what each takes.
    """

    dim: int
    sizes: np.ndarray
    weights: np.ndarray

    @property
    def loss(self) -> Loss: ...
    @property
    def roundings(self) -> np.ndarray: ...
    def gradient(
        self, w: Array, clients: Array, clip: float | None, norm: int, keep: Array | None, quick: bool, /
    ) -> Array: ...
    def clipped_examples(self, w: Array, client: int, clip: float, norm: int, some: slice, /) -> Array: ...
    def truncated_sums(  # None where they are not compiled
        self, points: Array, clients: Array, clip: float, norm: int, factors: Array, most: float, keep: Array | None, /
    ) -> Array | None: ...
    def argmin(
        self, centre: Array, rho: Numbers, linear: Numbers, ridge: float, clients: Array, start: Array | None,
        tol: Numbers, row_cap: float | None, last_steps: int | None = None, /,
    ) -> Array: ...  # fmt: skip
    def moments(self, clients: Array, kappa: float, row_bound: float, slope_bound: float, /) -> Array: ...
    def whole_moments(self, clients: Array, row_bound: float, slope_bound: float, /) -> Array: ...
    def smoothness(self, clients: np.ndarray) -> np.ndarray: ...
    def strong_convexity(self, clients: np.ndarray) -> np.ndarray: ...
    def longest_row(self, clients: np.ndarray) -> np.ndarray: ...


class HeldOutRows(Protocol):
    """Records that no answer but one is about (`problems/rows/held_out.py`)."""

    width: int
    counts: Callable[[np.ndarray, np.ndarray, bool], np.ndarray]


def untouched(answer: np.ndarray, *made_of: object) -> np.ndarray:
    """An answer as it is."""
    return answer


def _table(numbers: Numbers) -> np.ndarray:
    """Numbers as an array with a client axis."""
    array = np.asarray(numbers, float)
    return array if array.ndim > 1 else np.atleast_2d(array)


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
    held
        The records that were held out; they are not among those of `exact`.
    intercept
        Sees every answer on its way out and may replace it: how replay and audits record and force answers. It is
        called with the answer and, where noise was added to it here, with what it was made of: see `noisy`.
    """

    exact: ExactOracle
    asks: Asks
    key: NoiseKey
    clients: np.ndarray
    row_bound: float | None = None
    held: HeldOutRows | None = None
    intercept: Callable[..., np.ndarray] = untouched

    _shown: tuple[np.ndarray, Part, Json] | None = None  # see `_constants`
    _part: tuple[int, Part] = field(default=(-1, _NOTHING), init=False)  # of the last round: see `part_at`
    _rates: dict[float, np.ndarray] = field(default_factory=dict[float, np.ndarray], init=False)  # by batch
    clip: float | None = None  # applied to answers that are not noisy (`Published` may ask for it)
    counted = False  # whether answers cost, so that asking more than declared is refused
    summed = False  # whether what leaves are whole numbers of which only sums may be seen (`sums.py`)
    poisson = False  # whether batches are drawn record by record; else they have a fixed size

    def gradient(self, w: np.ndarray, question: Question) -> np.ndarray:
        return self.exact_gradient(w, question, self.clip)

    def argmin(self, asked: ArgMin, question: Question) -> np.ndarray:
        # Rows are scaled so that no record's gradient exceeds the clip norm anywhere.
        cap = None if self.clip is None else self.clip / self.exact.loss.lipschitz
        terms = asked.centre, asked.rho, asked.linear, asked.ridge
        return self.exact.argmin(*terms, question.local, asked.start, ARGMIN_TOL, cap)

    def prox_steps(self, start: np.ndarray, spec: ProxSteps, question: Question) -> np.ndarray:
        return spec.centre + local_runs.take_prox_steps(self.gradients(question, self.clip), start, spec)

    def descent(self, start: np.ndarray, spec: Descent, question: Question) -> np.ndarray:
        return local_runs.take_descent(self.gradients(question, self.clip), start, spec)

    def moments(self, kappa: float, slope_bound: float, question: Question) -> np.ndarray:
        return self.in_every_run(self.exact.moments(question.local, kappa, np.inf, slope_bound))

    def histogram(self, w: np.ndarray, question: Question) -> np.ndarray:
        return self.intercept(self.held_out_counts(w, question))

    def held_out_counts(self, w: np.ndarray, question: Question, blanks: bool = False) -> np.ndarray:
        """Exact counts of held-out records, (runs?, clients, counts)."""
        assert self.held is not None
        return self.in_every_run(self.held.counts(w, question.local, blanks))

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        return u

    def able(self, local: np.ndarray, k: int) -> np.ndarray:
        """Who of these clients can afford round k: (runs?, clients) of bool."""
        return np.ones(self.shape(len(local)), dtype=bool)

    def noise_std(self, local: np.ndarray, part: Part) -> np.ndarray:
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

    # What follows is the same behind every door.

    def open(
        self, local: np.ndarray, active: np.ndarray, k: int, public: Sequence[Sealed] = ()
    ) -> tuple[Oracle, Releases]:
        """The oracle and the releases of round k for the clients at places `local`, asked in the runs `active`.

        `public` holds the arrays that may serve as the centre of a release: the broadcast, and zeros.
        Before the first round (k = 0) nothing may be asked: a starting state must not depend on data.
        """
        next_question = self.questions(local, active, k)

        # What is asked with is made plain first: nobody else's code may run between an exact number and its noise.
        def grad(w: np.ndarray) -> np.ndarray:
            w = plain_array(w)
            return self.gradient(w, next_question("gradient", w))

        def prox_steps(start: np.ndarray, spec: ProxSteps) -> np.ndarray:
            start, spec = plain_array(start), plain_prox_steps(spec)
            return self.prox_steps(start, spec, next_question("prox-steps", start, *spec.numbers))

        def descent(start: np.ndarray, spec: Descent) -> np.ndarray:
            start, spec = plain_array(start), plain_descent(spec)
            return self.descent(start, spec, next_question("descent", start, *spec.numbers))

        def moments(kappa: float, slope_bound: float = np.inf) -> np.ndarray:
            kappa, slope_bound = float(kappa), float(slope_bound)
            return self.moments(kappa, slope_bound, next_question("moments", kappa, min(slope_bound, LARGEST_SLOPE)))

        def histogram(w: np.ndarray) -> np.ndarray:
            check.require(self.held is not None, "Oracle", "no records were held out, so none can be counted")
            w = plain_array(w)
            return self.histogram(w, next_question("histogram", w))

        def argmin(
            centre: Array, rho: Numbers, linear: Numbers = 0.0, ridge: float = 0.0, start: Array | None = None
        ) -> Array:
            first = None if start is None else plain_array(start)
            asked = ArgMin(plain_array(centre), plain(rho), plain(linear), float(ridge), first)
            return self.argmin(asked, next_question("argmin", *asked.numbers))

        oracle = Oracle(
            grad=grad,
            argmin=argmin,
            prox_steps=prox_steps,
            descent=descent,
            moments=moments,
            histogram=histogram,
            **self._constants(local, self.part_at(k)),
            smoothness=lambda: self.smoothness(local),
            strong_convexity=lambda: self.strong_convexity(local),
            dim=self.exact.dim,
        )
        return oracle, Releases(self, local, active, k, public)

    def take_part(self, visit: Visit) -> tuple[Arrays, Arrays]:
        """One round of the algorithm's client half: the new states, and an upload made of what was released."""
        after, up = visit.play(visit.before, visit.oracle, visit.releases)
        return after, visit.releases.sealed(up)

    def part_at(self, k: int) -> Part:
        """What was declared for round k."""
        last, part = self._part  # looked at once: another thread may be in another round
        if last != k:  # a round asks for it several times
            part = (self.asks.at(k) or _NOTHING) if k > 0 else replace(self.asks.parts[0], answers=0)
            self._part = k, part
        return part

    def _constants(self, local: np.ndarray, part: Part) -> Json:
        """The numbers that an oracle shows; cached until other clients, or another kind of question, are asked."""
        shown = self._shown
        if shown is None or shown[1] != part or not same_clients(local, shown[0]):
            constants: dict[str, Numbers] = {
                "size": self.exact.sizes[local][:, None].astype(np.float64),
                "weight": self.exact.weights[local],
                "noise_std": self.noise_std(local, part),
                "gradient_bound": self.gradient_bound(local),
                "curvature_bound": self.curvature_bound(local),
            }
            for name, numbers in constants.items():
                if isinstance(numbers, np.ndarray):
                    constants[name] = unwritable(numbers)  # the next round sees the same
            kept = local if local is everyone(len(self.clients)) else local.copy()  # a caller may change its own
            shown = self._shown = kept, part, constants
        return shown[2]

    def questions(self, local: np.ndarray, active: np.ndarray, k: int) -> Callable[..., Question]:
        """Numbers the questions of a round; behind a door that counts, no more and no others than were declared."""
        part, enforced = self.part_at(k), self.counted or k == 0
        count = 0

        def next_question(kind: str, *asked: Numbers) -> Question:
            nonlocal count
            if enforced and kind != part.kind:
                raise InvalidInput(f"Oracle: this algorithm declared {part.kind!r} and asked for {kind!r}")
            if enforced and count >= part.answers:
                raise InvalidInput(
                    f"Oracle: this algorithm declared {part.answers} answers for round {k} and asked for one more"
                )
            tables = tuple(map(_table, asked))
            if any(table.ndim > active.ndim + 1 for table in tables):
                shape = (*active.shape, self.exact.dim)
                raise InvalidInput(f"Oracle: what is asked must fit {shape}, and it has another axis before these")
            count += 1
            return Question(local, active, k, count - 1, part, tables)

        return next_question

    def exact_gradient(
        self, w: np.ndarray, question: Question, clip: float | None, norm: int = 2, quick: bool = False
    ) -> np.ndarray:
        """The gradient; over a batch if one was declared, divided by the expected batch, never by the realised one."""
        local, drawn = question.local, self.drawn(question)
        gradient = self.exact.gradient(w, local, clip, norm, drawn, quick)
        return gradient if drawn is None else gradient / self.rates(question.part.batch)[local]

    def drawn(self, question: Question) -> np.ndarray | None:
        """Which records are in the batch of this question, clients end to end; None where no batches were declared.

        A client that draws all of its records is told so one by one, too: sums over a batch are rounded in another
        order, and its answer must not depend on whether those who are asked with it draw fewer.
        """
        local, batch = question.local, question.part.batch
        if batch == 0:
            return None
        rate, sizes = self.rates(batch)[local], self.exact.sizes[local]
        draws = self.batch_numbers(sizes, question)
        if self.poisson:
            below = np.where(rate < 1, rate - 2.0**-52, 1.0)  # draws have 52 bits: never more than the rate
            return draws < np.repeat(below[:, 0], sizes)
        return smallest_of_each(draws, sizes, np.rint(rate[:, 0] * sizes).astype(np.int64))

    def batch_numbers(self, sizes: np.ndarray, question: Question) -> np.ndarray:
        """A uniform number for each record of these clients."""
        return self.key.batch(self.occasion(Purpose.BATCH, question), sizes, question.asked)

    def rates(self, batch: float) -> np.ndarray:
        """The share of its records that each client's gradient is taken over: (n, 1)."""
        if batch not in self._rates:
            self._rates[batch] = batch_rates(batch, self.exact.sizes, whole=not self.poisson)[:, None]
        return self._rates[batch]

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

    def seeded(self, exact: np.ndarray, scale: Numbers, question: Question, count: int = 0) -> np.ndarray:
        """Seeded noise of deviation 1 for this exact answer, to be multiplied by `scale`."""
        occasion = self.occasion(Purpose.NOISE, question)
        return self.key.noise("gaussian", occasion, exact, self.asked(scale, question), count)

    def noisy(
        self, exact: np.ndarray, scale: Numbers, purpose: Purpose, question: Question, kind: str = "gaussian",
        fresh: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """`exact` with fresh noise of deviation (Laplace: of scale) `scale`: the one place where the two meet.

        `fresh`: nobody else has `exact`. Then noise is added in place, unless somebody looks on: with many clients one
        array more is much memory.
        """
        in_place = fresh and self.intercept is untouched
        about = self.occasion(purpose, question), exact, self.asked(scale, question)
        noisy = self.key.noisy(kind, scale, *about, in_place)
        return self.intercept(noisy, exact, scale, kind)

    def occasion(self, purpose: Purpose, question: Question) -> Occasion:
        """For whom and for what random numbers are drawn, as the key takes it."""
        local = question.local
        return Occasion(of_clients(self.clients, local), local, question.k, purpose, question.number)

    @staticmethod
    def asked(scale: Numbers, question: Question) -> tuple[np.ndarray, ...]:
        """What noise is bound to beside the answer: its scale, and what was asked."""
        return (_table(scale), *question.asked)

    def shape(self, clients: int) -> tuple[int, ...]:
        return self.key.streams.shape(clients)

    def in_every_run(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers (runs?, clients, count) for each of the runs: the same exact ones, if they do not depend on it."""
        return np.broadcast_to(numbers, (*self.shape(numbers.shape[-2]), numbers.shape[-1])).copy()


@dataclass(kw_only=True)
class PublishedDoor(Door):
    """Exact (or clipped) answers; an upload gets the noise its paper states."""

    privacy: Published

    def __post_init__(self) -> None:
        self.clip = self.privacy.clip
        loss, stated = self.exact.loss, self.privacy.clip is not None or self.privacy.assume is not None
        rule = f"the gradients of {type(loss).__name__} are unbounded, so the paper's noise is not defined"
        check.require(stated or loss.lipschitz < np.inf, "Published", rule, hint="Give Published(clip=...)")

    def release(self, u: np.ndarray, noise: Noise | None, centre: np.ndarray | None, question: Question) -> np.ndarray:
        if noise is None:
            return self.intercept(u)
        return self.noisy(u, noise.scale, Purpose.RELEASE, question, noise.kind)

    def gradient_bound(self, local: np.ndarray) -> np.ndarray | float:
        bound = self.privacy.clip if self.privacy.assume is None else self.privacy.assume
        return super().gradient_bound(local) if bound is None else bound
