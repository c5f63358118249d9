"""What an algorithm may ask its oracle, and how it declares beforehand what it will ask."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from sottovoce.core import check
from sottovoce.core.penalty import Penalty as Penalty
from sottovoce.core.vouched import vouched

Array = np.ndarray

_WHOLE: tuple[type[Any], ...] = (int, np.integer)
Kind = Literal["gradient", "argmin", "prox-steps", "descent", "moments", "histogram", "fit", "scores", "products"]


@dataclass(frozen=True)
class Part:
    """One kind of question of a plan, and the rounds in which it is asked.

    Parameters
    ----------
    kind
        Which question: "gradient", "argmin", "prox-steps", "descent", "moments" or "histogram" (see `Oracle`), "fit",
        "scores" or "products" (see `ColumnOracle`).
    answers
        Questions in each of its rounds.
    batch
        Each gradient is taken over about this many of a client's records, drawn anew for every question: a whole
        number of records, or a share of them if < 1. 0: all records.
    first, last
        The rounds in which it is asked, both included. None: to the end.
    share
        Its share of the budget, counted in mu² (the squared parameter of Gaussian differential privacy, which adds up).
    kappa, slope_bound
        Of "moments" and "products": what the oracle will be asked with.
    cells
        Of "histogram": how many counts an answer holds.
    """

    kind: Kind = "gradient"
    answers: int = 1
    batch: float = 0
    first: int = 1
    last: int | None = None
    share: float = 1.0
    kappa: float = 0.0
    slope_bound: float = math.inf
    cells: int = 0

    def end(self, most: int) -> int:
        """The last round, of a run of `most`, in which it may be asked."""
        return most if self.last is None else min(self.last, most)

    def rounds(self, most: int) -> int:
        """In how many rounds, of a run of `most`, it is asked."""
        return max(self.end(most) - self.first + 1, 0)

    def given(self, rounds: int, times: int) -> int:
        """Answers of a client that takes part in `times` of `rounds` rounds; held-out records are asked about once."""
        return self.answers if self.kind == "histogram" else min(times, self.rounds(rounds)) * self.answers


@dataclass(frozen=True)
class Asks:
    """What taking part costs: which questions an algorithm puts to its oracle, in which rounds.

    It is a public function of the round. Noise is calibrated from it before training starts. The door enforces it: an
    algorithm that asks for anything else than it declared is refused, so a wrong declaration cannot break a guarantee.

    Parameters
    ----------
    parts
        The kinds of question, one after the other: in each round at most one of them is asked.
    releases
        Calls of `site.release` a round (what counts when the unit is a whole client).

    Examples
    --------
    >>> from sottovoce.algorithms import DPSGD
    >>> DPSGD(batch=32).asks().parts
    (Part(kind='gradient', answers=1, batch=32, first=1, last=None, share=1.0, kappa=0.0, slope_bound=inf, cells=0),)
    >>> from sottovoce.core.contract import Asks, Part
    >>> asks = Asks((Part("argmin", last=1, share=0.1), Part("gradient", first=2, share=0.9)))
    >>> asks.at(1).kind, asks.at(5).kind
    ('argmin', 'gradient')
    """

    parts: tuple[Part, ...] = (Part(),)
    releases: int = 1

    def __post_init__(self) -> None:
        ends = [0, *(part.last for part in self.parts)]
        apart = all(
            end is not None and part.first > end and (part.last is None or part.last >= part.first)
            for end, part in zip(ends, self.parts, strict=False)
        )
        check.require(len(self.parts) > 0 and apart, "Asks", "parts must follow each other, in rounds of their own")
        shares = [part.share for part in self.parts]
        whole = min(shares) > 0 and abs(sum(shares) - 1.0) <= 1e-9
        check.require(whole, "Asks", "shares must be > 0 and add up to 1")

    @classmethod
    def every_round(cls, answers: int = 1, kind: Kind = "gradient", batch: float = 0, releases: int = 1) -> "Asks":
        """The same questions in every round."""
        return cls((Part(kind, answers, batch),), releases)

    def then_histogram(self, rounds: int, share: float, cells: int) -> "Asks":
        """The same questions in `rounds` rounds, and after them one about held-out records (`core/histogram.py`)."""
        asked = [part for part in self.parts if part.first <= rounds]
        whole = sum(part.share for part in asked)  # what is asked in no round needs no share
        parts = [replace(part, last=part.end(rounds), share=part.share / whole * (1 - share)) for part in asked]
        last = Part("histogram", first=rounds + 1, last=rounds + 1, share=share, cells=cells)
        return replace(self, parts=(*parts, last))

    def at(self, k: int) -> Part | None:
        """What is asked in round k; None where nothing is."""
        return next((part for part in self.parts if part.first <= k and (part.last is None or k <= part.last)), None)

    @property
    def only(self) -> Part:
        """The one kind of question of a method that has no other."""
        check.require(len(self.parts) == 1, "Asks", "this is for methods with one kind of question", self.kinds)
        return self.parts[0]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of question, in their order."""
        return tuple(part.kind for part in self.parts)

    @property
    def batch(self) -> float:
        """The batch of its gradients; 0 where all records take part."""
        return max(part.batch for part in self.parts)


def plain_array(numbers: Array) -> Array:
    """The same numbers as an array of NumPy's own type: the same array if it is one.

    Whoever asks may give numbers of a type of their own, whose arithmetic runs their code, with exact answers in hand.
    """
    return np.asarray(numbers, np.float64)


def plain(numbers: Array | float) -> Array | float:
    """The same for an array or one number."""
    return float(numbers) if isinstance(numbers, float | int | np.number) else plain_array(numbers)


def plain_penalty(h: Penalty) -> Penalty:
    """The same for the numbers of a penalty of ours; another one is as it came, and nothing proven rests on it."""
    if not vouched(h):
        return h

    penalty: Any = h  # a dataclass: all of ours are
    return replace(penalty, **{field.name: _plain_field(getattr(h, field.name)) for field in fields(penalty)})


def plain_asks(asks: Asks) -> Asks:
    """The same declaration in these types themselves: batches are drawn, and answers divided, by numbers in it."""
    parts, kinds = list[Part](), get_args(Kind)
    for part in asks.parts:
        of_part = {field.name: getattr(part, field.name) for field in fields(Part)}
        kind = check.one_of("Asks", "kind", of_part.pop("kind"), kinds)
        parts.append(Part(kinds[kinds.index(kind)], **{name: _plain_field(value) for name, value in of_part.items()}))
    return Asks(tuple(parts), int(asks.releases))


def _plain_field(value: Any) -> Any:
    """A number of a setting, or a penalty in one."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Penalty):
        return plain_penalty(value)
    return int(value) if isinstance(value, _WHOLE) else plain(value)


@dataclass(frozen=True)
class ArgMin:
    """The minimiser of f_i(w) + <linear, w> + ridge/2 |w|² + rho/2 |w − centre|², searched from `start` (or `centre`).

    All numbers must be public.
    """

    centre: Array
    rho: Array | float
    linear: Array | float = 0.0
    ridge: float = 0.0
    start: Array | None = None

    @property
    def numbers(self) -> tuple[Array | float, ...]:
        """Everything in it that the answer depends on."""
        return self.centre, self.rho, self.linear, self.ridge, 0.0 if self.start is None else self.start


@dataclass(frozen=True)
class ProxSteps:
    """Several proximal gradient steps taken where the data is, of which only the end leaves:

        x ← centre + prox_{h/total_j}( (keep_j (x − centre) + push − g_j) / total_j ),      j = 1..len(keep)

    Every number and array in it must be public: made from broadcasts, past answers and hyper-parameters.

    Parameters
    ----------
    keep, total
        One number per step (or per step and client, as (n, 1) arrays), 0 <= keep_j <= total_j.
    push, centre
        Vectors that stay the same over the steps.
    h
        The penalty whose prox is taken.
    fresh
        True: g_j is the gradient at the running x (over a new batch, if one was declared). False: all steps use
        the gradient at `at`.
    average
        Whether the mean of the iterates is returned, or the last one.
    """

    keep: Sequence[Array | float] | Array
    total: Sequence[Array | float] | Array
    push: Array | float
    centre: Array | float
    h: Penalty
    fresh: bool = True
    at: Array | None = None
    average: bool = False

    @cached_property
    def weights(self) -> tuple[Array, Array]:
        """`keep` and `total` as one array each, (steps, runs?, clients or 1, 1): as they were when first asked for."""

        def stacked(name: str, numbers: Sequence[Array | float] | Array) -> Array:
            shapes = {np.shape(number) for number in numbers}
            fits = len(numbers) > 0 and all(shape == () or (len(shape) > 1 and shape[-1] == 1) for shape in shapes)
            check.require(fits, "ProxSteps", f"{name} must be numbers, or one number per client (n, 1)", tuple(shapes))
            if len(shapes) > 1:
                numbers = np.broadcast_arrays(*map(np.atleast_2d, numbers))
            table = np.array(numbers, dtype=np.float64)  # a copy
            return table if table.ndim > 2 else table.reshape(len(table), 1, 1)

        return stacked("keep", self.keep), stacked("total", self.total)

    @property
    def numbers(self) -> tuple[Array, ...]:
        """Everything in it that the answer depends on, as arrays with a client axis."""
        keep, total = (np.moveaxis(table[..., 0], 0, -1) for table in self.weights)
        flags = np.array([[self.fresh, self.average, self.at is not None]], dtype=np.float64)
        at = np.zeros((1, 0)) if self.at is None else self.at
        return keep, total, np.atleast_2d(self.push), np.atleast_2d(self.centre), at, flags


def plain_prox_steps(spec: ProxSteps) -> ProxSteps:
    """The same steps in this type itself, read once: a subclass might say other things the next time."""
    return ProxSteps(
        [plain(keep) for keep in spec.keep], [plain(total) for total in spec.total], plain(spec.push),
        plain(spec.centre), plain_penalty(spec.h), bool(spec.fresh), None if spec.at is None else plain_array(spec.at),
        bool(spec.average),
    )  # fmt: skip


@dataclass(frozen=True)
class Descent:
    """`count` gradient steps x ← x − step (∇f(x) + ridge x + pull (x − centre)), of which only the end leaves.

    In `Proven` mode every step is noisy, and since the steps contract, the end gives away less than the steps would
    together. All numbers must be public.
    """

    count: int
    step: Array | float
    pull: float
    centre: Array
    ridge: float = 0.0

    @property
    def numbers(self) -> tuple[Array, ...]:
        """Everything in it that the answer depends on, as arrays with a client axis."""
        return np.atleast_2d(self.step), self.centre, np.array([[self.count, self.pull, self.ridge]], dtype=np.float64)


def plain_descent(spec: Descent) -> Descent:
    """The same for these steps."""
    return Descent(int(spec.count), plain(spec.step), float(spec.pull), plain_array(spec.centre), float(spec.ridge))
