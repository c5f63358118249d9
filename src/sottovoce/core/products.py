"""Products of tables whose columns are split between owners, in whole numbers.

Owner m has a table T_m with one row per sample: its columns X_m, and at the owner of the labels one more column for
each margin of the loss, s. The moments of all records are the products of these tables,

    X_a'X_b for all a <= b,   and   X_a's,

sums over samples of x x' and of x ⊗ s, as in `core/moments.py`. All of it is computed in whole numbers, so that it can
be masked modulo 2^64 (`privacy/masked_products.py`), and so that a bound on a row is a comparison of whole numbers.

    symbol    here               meaning
    c_m       Split.reach(m)     an owner's part of a row is at most this long, Σ c_m² = 1
    2^-18     1 / STEPS          entries are whole multiples of it
    2^-36     1 / STEPS²         products are
    |s|       at most 1/2        slopes are divided by twice their bound

**Rows.** c_m² is the owner's share of the columns that are public (`shares`), so owner m can scale its part of a row
without knowing anything of the others' parts, and |x|² = Σ_m |x_m|² <= 1. Entries are truncated toward zero; then each
row is compared with its bound in whole numbers, Σ_j X_ij² <= 2^36 c_m², and shrunk where it is longer. Rounding to the
nearest would break the bound in half of all rows. A row of zeros stays one.

**Sensitivity.** Replace one record: all of its columns at all owners, and its label. A record adds exact products, so
Δ is that of `core/moments.py` for |x| <= 1 and B = 1/2, without slack for rounding: 1.25 at κ² = 1/2, and 1 up to
κ² = 1/8, in units of 2^36. It is the same for every loss, because slopes are divided by 2B: for a logistic loss s is
y/2; for a squared loss y/(2 y_bound), cut to that; for a softmax loss (e_y − 1/K)/(2 √(1 − 1/K)), of length 1/2. In
all three two records can have <s, s'> = 1/4 with c = <x, x'> < 0, so the bound is attained.

**Noise.** Of scale σ on X's, σ/κ on the diagonal of X'X and σ/(κ√2) beside it, each pair of columns once: then σ = Δ/μ
in units of 2^36 makes the whole one Gaussian release of parameter μ. κ² is at most 1/2, so that σ is the least of them.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from sottovoce.core import check, moments
from sottovoce.core.arrays import AnyArray, Booleans, Floats, Integers, Matrix, is_sparse
from sottovoce.core.clipping import clip_rows

STEPS = 1 << 18  # entries are multiples of 2^-18
UNIT = STEPS**2  # products are multiples of 2^-36
LABEL_REACH = 0.5  # no row of slopes is longer
MOST_SAMPLES = 1 << 26
MOST_COLUMNS = 2048  # of all owners: the moments have the square of it
LARGEST_SCALE = 2.0**47  # of noise that `privacy/discrete_gaussian.py` draws
NOISE_REACH = 80.0  # no honest sum of noise is this many σ large
LARGEST_KAPPA = math.sqrt(0.5)
_BLOCK = 8192  # rows: sums of so many products of entries, up to 2^20 each, are at most 2^53: exact in floating point


@dataclass(frozen=True)
class Split:
    """Who has which columns: everything about the products that is public.

    Parameters
    ----------
    widths
        Columns of each owner's part, as it is multiplied.
    shares
        Columns of the table that each part was made from: a category is one column here, whatever its levels.
    holder
        The number of the owner that has the labels.
    outputs
        Margins of the loss: columns of s.

    Examples
    --------
    >>> from sottovoce.core.products import Split
    >>> split = Split(widths=(2, 3), shares=(1, 3), holder=0)
    >>> split.columns, split.size, split.reach(0)
    (5, 20, 0.5)
    """

    widths: Annotated[tuple[int, ...], check.Interval(1, whole=True, each=True)]
    shares: Annotated[tuple[int, ...], check.Interval(1, whole=True, each=True)]
    holder: check.WholeOrZero = 0
    outputs: check.Whole = 1

    def __post_init__(self) -> None:
        check.fields(self)
        owners = len(self.widths)
        rule = "widths and shares must be one whole number >= 1 for each owner"
        check.require(len(self.shares) == owners > 0, "Split", rule)
        check.require(self.holder < owners, "Split", "holder must be the number of an owner", self.holder)
        rule = f"all owners together may have at most {MOST_COLUMNS} columns: their products are as many squared"
        check.require(self.columns <= MOST_COLUMNS, "masked products", rule, self.columns, "Leave columns out")

    @property
    def owners(self) -> int:
        return len(self.widths)

    @property
    def columns(self) -> int:
        """Columns of all owners, without the labels."""
        return sum(self.widths)

    @property
    def size(self) -> int:
        """How many products there are: d (d + 1)/2 + d K."""
        return self.columns * (self.columns + 1) // 2 + self.columns * self.outputs

    def reach(self, m: int) -> float:
        """c_m."""
        return math.sqrt(self.shares[m] / sum(self.shares))

    def longest(self, m: int) -> int:
        """The largest whole number that 2^36 c_m², the square of owner m's longest row, allows."""
        return UNIT * self.shares[m] // sum(self.shares)

    def table_width(self, m: int) -> int:
        """Columns of T_m: those of the owner, and at the owner of the labels s."""
        return self.widths[m] + (self.outputs if m == self.holder else 0)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of owners (a, b), a < b."""
        return list(itertools.combinations(range(self.owners), 2))

    @cached_property
    def starts(self) -> list[int]:
        """Where each table begins if all stand side by side, and where the last one ends."""
        return list(itertools.accumulate(map(self.table_width, range(self.owners)), initial=0))

    @cached_property
    def _owner(self) -> Integers:
        return np.repeat(np.arange(self.owners), np.diff(self.starts))

    @cached_property
    def is_label(self) -> Booleans:
        """Which columns of the tables side by side are slopes."""
        label = np.zeros(self.starts[-1], dtype=bool)
        label[self.starts[self.holder] + self.widths[self.holder] : self.starts[self.holder + 1]] = True
        return label

    @cached_property
    def places(self) -> tuple[Integers, Integers]:
        """The row and the column, in the products of all tables side by side, of each of the numbers that are released.

        First the blocks of one owner each (the upper triangle of X_m'X_m, and X_m's), then those of each pair (a, b),
        a < b, row by row: T_a'T_b as it is.
        """
        blocks: list[tuple[Integers, Integers]] = []
        for m in range(self.owners):
            first, last = self.starts[m], self.starts[m + 1]
            above, beside = np.triu_indices(last - first)
            needed = ~self.is_label[first + above]  # products of slopes with slopes are nobody's business
            blocks.append((first + above[needed], first + beside[needed]))
        for pair in self.pairs:
            rows, columns = (np.arange(self.starts[m], self.starts[m + 1]) for m in pair)
            blocks.append((np.repeat(rows, len(columns)), np.tile(columns, len(rows))))
        rows, columns = (np.concatenate(each) for each in zip(*blocks, strict=True))
        return rows, columns

    @cached_property
    def owners_of(self) -> tuple[Integers, Integers]:
        """The two owners of each number, (a, b) with a <= b."""
        rows, columns = self.places
        return self._owner[rows], self._owner[columns]

    def of_owner(self, m: int) -> Booleans:
        """Which numbers owner m has a part in, and adds noise to."""
        a, b = self.owners_of
        return (a == m) | (b == m)

    def of_pair(self, a: int, b: int) -> slice:
        """Where T_a'T_b, a < b, stands among the numbers, row by row."""
        first, second = self.owners_of
        inside = np.flatnonzero((first == a) & (second == b))
        return slice(int(inside[0]), int(inside[-1]) + 1)

    def noise_factors(self, kappa: float) -> Floats:
        """The scale of the noise on each number, in units of σ: 1 on X's, 1/κ on the diagonal, 1/(κ√2) beside it."""
        rows, columns = self.places
        first = self.is_label[rows] | self.is_label[columns]
        beside = np.where(rows == columns, 1 / kappa, 1 / (kappa * math.sqrt(2)))
        return np.where(first, 1.0, np.maximum(beside, 1.0))  # κ² = 1/2: exactly 1

    def noises(self) -> Integers:
        """How many owners' noise is in each number."""
        a, b = self.owners_of
        return np.where(a == b, 1, 2)

    def largest_entries(self, samples: int) -> Floats:
        """No exact number can be larger than this: n c_a c_b, in units of 2^-36."""
        rows, columns = self.places
        reach = np.array([self.reach(m) for m in range(self.owners)])[self._owner]
        reach = np.where(self.is_label, LABEL_REACH, reach)
        return samples * reach[rows] * reach[columns] * UNIT


def dealer_of(pair: tuple[int, int], owners: int) -> int | None:
    """Who deals masks to a pair of owners: another owner, the next one after the pair; None: the coordinator.

    >>> from sottovoce.core.products import dealer_of
    >>> [dealer_of(pair, 3) for pair in ((0, 1), (0, 2), (1, 2))], dealer_of((0, 1), 2)
    ([2, 1, 0], None)
    """
    others = [m % owners for m in range(pair[1] + 1, pair[1] + owners) if m % owners not in pair]
    return others[0] if others else None


# ------------------------------------------------------------------------------------------------------ whole numbers


def whole_rows(rows: Matrix, longest: int, row_bound: float) -> AnyArray:
    """An owner's part of the rows as whole numbers, no row longer than √longest: Σ_j z_ij² <= longest, as integers.

    Rows that are longer than `row_bound` are scaled down to it, and that length becomes √longest.
    """
    whole = np.empty(rows.shape, dtype=np.int32)
    for start in range(0, rows.shape[0], _BLOCK):
        part = rows[start : start + _BLOCK]
        dense: Floats = part.toarray() if is_sparse(part) else np.asarray(part, dtype=np.float64)
        scaled = clip_rows(dense, row_bound) * (math.sqrt(longest) / row_bound)
        whole[start : start + _BLOCK] = _within(np.trunc(scaled, out=scaled), longest)
    return whole


def _within(numbers: Floats, longest: int) -> Floats:
    """Whole numbers, rows that are longer than √longest shrunk until they are not; what is not finite becomes zeros.

    `longest` is at most 2^40. Sums of squares are compared with it in floating point, which is exact up to 2^53 and
    never brings a larger one below that, in whatever order it adds.
    """
    for _ in range(8):
        squares = np.vecdot(numbers, numbers)
        long = np.flatnonzero(~(squares <= longest))  # also where it is not a number
        if not len(long):
            return numbers
        limit = math.isqrt(longest) + 1  # no entry of a row that is short enough is larger
        rows = np.clip(np.where(np.isfinite(numbers[long]), numbers[long], 0.0), -limit, limit)
        shrink = np.sqrt(longest / np.maximum(np.vecdot(rows, rows), longest)) * (1 - 2.0**-40)
        numbers[long] = np.trunc(rows * shrink[:, None])
    numbers[~(np.vecdot(numbers, numbers) <= longest)] = 0.0
    return numbers


def whole_slopes(slopes: Floats, bound: float) -> AnyArray:
    """Minus the slopes of the losses at margin 0, (samples, outputs), cut to length `bound`, which becomes 1/2."""
    return whole_rows(slopes, int(UNIT * LABEL_REACH**2), bound)


def gram(tables: Sequence[AnyArray]) -> Integers:
    """All products of tables side by side, exactly: (D, D) of int64.

    Entries are at most 2^20 in size, so sums over 8192 rows are at most 2^53 and BLAS is exact in floating point.
    """
    samples, width = len(tables[0]), sum(table.shape[1] for table in tables)
    total = np.zeros((width, width), dtype=np.int64)
    for start in range(0, samples, _BLOCK):
        block = np.hstack([table[start : start + _BLOCK] for table in tables]).astype(np.float64)
        total += (block.T @ block).astype(np.int64)
    return total


def halves(split: Split, tables: Sequence[AnyArray]) -> Integers:
    """What each owner contributes, (owners, size) of int64: their sum is the products.

    Where two owners compute a block together, on masked tables, each ends up with a random half of it. Nobody but they
    can see the halves, so here the first owner of a pair has the whole block and the second one zeros.
    """
    rows, columns = split.places
    first, _ = split.owners_of
    return np.where(first == np.arange(split.owners)[:, None], gram(tables)[rows, columns], 0)


def own_part(split: Split, m: int, table: AnyArray) -> Integers:
    """What owner m computes alone, (size,) of int64: the products of its own columns, and zeros elsewhere."""
    rows, columns = split.places
    first, second = split.owners_of
    alone = (first == m) & (second == m)
    numbers = np.zeros(split.size, dtype=np.int64)
    numbers[alone] = gram([table])[rows[alone] - split.starts[m], columns[alone] - split.starts[m]]
    return numbers


def to_limbs(numbers: Integers) -> Floats:
    """64-bit numbers as floating-point ones, without loss: the high 32 bits of all, then the low ones."""
    words = numbers.astype(np.int64, copy=False).view(np.uint64)
    limbs = (words >> np.uint64(32), words & np.uint64(2**32 - 1))
    return np.concatenate([limb.astype(np.float64) for limb in limbs], axis=-1)


def from_limbs(limbs: Floats) -> Integers:
    """What `to_limbs` was given, modulo 2^64; each limb must be a whole number from 0 to 2^32 − 1."""
    whole = (limbs >= 0) & (limbs < 2.0**32) & (limbs == np.floor(limbs))
    check.require(bool(whole.all()), "masked products", "limbs must be whole numbers of 32 bits")
    high, low = np.split(limbs.astype(np.uint64), 2, axis=-1)
    return ((high << np.uint64(32)) | low).view(np.int64)


def opened(limbs: Floats) -> Integers:
    """The sum over owners, (..., owners, 2 size) -> (..., size), modulo 2^64 and as signed numbers."""
    return from_limbs(limbs).sum(axis=-2, dtype=np.int64)  # wraps around, as it should


def products_sensitivity(kappa: float) -> float:
    """Δ, in records: how far one record moves all products, weighed by κ."""
    return moments.sensitivity(kappa, LABEL_REACH, replaced=True)


def is_products_event(event: object) -> bool:
    """Whether a charge is for products: one record moves them by 2^36 steps and more, and nothing else by as many."""
    return getattr(event, "sensitivity", 0.0) >= UNIT


def must_fit(samples: int, sigma: float, kappa: float) -> None:
    """Refuse what would leave 64 bits, by public numbers: σ is the scale of the noise on X's in units of 2^-36."""
    rule = "there may be at most 2^26 samples: sums of products must fit in 64 bits"
    check.require(samples <= MOST_SAMPLES, "masked products", rule, samples)
    check.require(0 < kappa <= LARGEST_KAPPA, "masked products", "kappa² must be at most 1/2", kappa)
    largest = sigma / kappa  # on the diagonal
    room = samples * UNIT + NOISE_REACH * largest
    rule = "noise and products together must fit in 64 bits, and this budget asks for too much noise"
    fits = room < 2.0**63 and largest <= LARGEST_SCALE
    check.require(fits, "masked products", rule, hint="Use a larger epsilon")
