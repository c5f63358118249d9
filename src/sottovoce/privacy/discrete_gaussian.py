"""Integers with a discrete Gaussian distribution, within 2^-300 of it, from a stream of random bits.

P(z) is proportional to exp(−z²/(2σ²)) for every integer z. The low bits of floating-point noise show what it was added
to (Mironov 2012); integers with this distribution, added to integers, show nothing but their sum.

How a number is drawn
---------------------
|z| = aW + b, where the width W = 2^w lies between σ/32 and σ/16 (W = 1 for σ < 32) and 0 <= b < W. A candidate takes
three uniform numbers U, V, R from the stream:

1. U chooses the block a with probability proportional to exp(−(aW)²/(2σ²)), from a table of thresholds;
2. the bits of R are the sign and b; minus zero is refused, because zero must not count twice;
3. the candidate is kept if V < exp(−γ), γ = b(2aW + b)/(2σ²).

The chance that one candidate is z and is kept is therefore proportional to
exp(−(aW)²/(2σ²)) · 1/(2W) · exp(−γ) = exp(−(aW + b)²/(2σ²))/(2W), because (aW)² + b(2aW + b) = (aW + b)². So the
candidates that are kept have the right distribution. A candidate is kept with a chance of at least 1/2, because for
W = 1 only minus zero is refused, and of at least 0.95 for σ >= 32: it is the sum of exp(−z²/(2σ²)) over all z, at least
σ√(2π), divided by 2W times the sum of the weights, at most 2W + σ√(2π).

The numbers drawn are the candidates that were kept, in the order of the stream: candidate i takes the words 3i, 3i + 1
and 3i + 2. Drawing 100 and then 100 numbers gives the same as drawing 200.

Why the result is a function of the bits alone
----------------------------------------------
U and V have 320 bits each, and their thresholds are whole multiples of 2^-320, computed with Python's integers. Most
comparisons are decided by the first 64 bits, and never wrongly:

* U: the first 64 bits decide unless they equal those of a threshold. There are fewer than 770 thresholds, so this
  happens once in 2^54 numbers.
* V: the first 64 bits are compared with exp(−γ) in floating point. They decide if the two are more than SLACK = 2^-40
  apart, which fails once in 2^39 numbers. The decision is right because all errors together are below 2^-50:

  - b, aW and 2aW + b are whole numbers, the last at most 48σ + W < 2^53 for σ up to 2^47. So they are exact;
  - γ has three roundings (1/(2σ²) and two products): a relative error of at most 3.01 · 2^-53. It moves exp(−γ) by at
    most 3.01 · 2^-53 · γ exp(−γ) <= 1.2 · 2^-53;
  - NumPy's exp is *assumed* to be off by at most 4 units in the last place, 4 · 2^-53 (its authors claim less than 1,
    and a test measures it). The slack would forgive a thousand times more;
  - V as a floating-point number is off by 2^-54 at most, and the bits that are left out are worth 2^-64.

In the rare cases that remain, 256 further bits are compared with the exact threshold. They belong to the one number
that needs them and shift nothing else in the stream (`core/random/bits.py`). So exp may differ in its last bits between
machines, compilers or SIMD widths, and the integers stay the same.

How far from the distribution
-----------------------------
The distance in total variation, for one number, has three parts:

* The table leaves out the tail beyond 24σ. Its probability is at most 2 exp(−24²/2) < 2^-414, because the distribution
  is sub-Gaussian (Canonne, Kamath and Steinke 2020). Numbers beyond 40σ would have less than 2^-1000.
* Thresholds of U are rounded down by less than 2^-320, after errors below 2^-450 (`_table`), so the chance of each of
  at most 769 blocks is off by at most 2^-319.
* Thresholds of V are off by at most 2^-319 (`exp_minus`).

Errors in the chance that a candidate is z and kept are divided by the chance, at least 1/2, that it is kept at all:
together less than 2 · 770 · 2^-319 + 2^-414 < 2^-300. σ has no error: a floating-point number is a rational one. So N
numbers add less than N · (1 + exp(ε)) · 2^-300 to δ, if the bits of the stream are independent and uniform.

Timing
------
How many candidates were refused says nothing about those that were kept. But a number near the border of a block, or
in the tail, takes some nanoseconds longer. Draw noise in batches ahead of the question, where time can be observed.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from sottovoce.core import check
from sottovoce.core.random.bits import FURTHER_BITS, Bits

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-4, 2.0**47
REACH = 24  # blocks cover |z| <= REACH·σ; every number drawn is below (REACH + 1)·σ + 1 in size
SLACK = 2.0**-40  # on both sides of exp(−γ), where the errors of floating point are below 2^-50
_CHUNK = 1 << 15  # candidates at a time, so that they stay in the cache; the numbers drawn do not depend on it
_PLACES = 512  # binary places of exact weights
_THRESHOLD_BITS = 64 + FURTHER_BITS
_HALVINGS = 16
_CELL_BITS = 12
_TO_CELL = np.uint64(64 - _CELL_BITS)
_SIGN = np.uint64(1 << 63)
_float_exp = np.exp  # tests replace it by a less accurate one

Further = Callable[[int], int]  # index of a word in the array of words -> its further 256 bits


def draw(sigma: float, shape: int | tuple[int, ...], bits: Bits) -> np.ndarray:
    """Independent integers (int64), each within 2^-300 of the discrete Gaussian distribution of parameter `sigma`.

    Parameters
    ----------
    sigma
        From 2^-4 to 2^47. Smaller noise hides nothing; larger numbers would not be exact in floating point. The
        standard deviation is at most sigma, and equal to it in all digits from sigma = 2 on.
    shape
        Of the result.
    bits
        `SystemBits()` for noise that leaves a machine, `SeededBits(seed, context)` in simulations.

    Examples
    --------
    >>> from sottovoce.core.random.bits import SeededBits
    >>> from sottovoce.privacy.discrete_gaussian import draw
    >>> draw(1000.0, 4, SeededBits(0, "an example")).tolist()
    [763, -126, -992, -900]
    """
    table = _table(_checked(sigma))
    sizes = shape if isinstance(shape, tuple) else (shape,)
    for size in sizes:
        check.whole("discrete_gaussian", at_least=0, shape=size)
    numbers = np.empty(math.prod(sizes), dtype=np.int64)
    done = 0
    while done < len(numbers):
        place = bits.position
        words = bits.words(3 * min(len(numbers) - done, _CHUNK))
        candidates, kept = _candidates(table, words, partial(_further, [bits], [place], np.zeros(1, np.int64)))
        fresh = candidates[kept]
        numbers[done : done + len(fresh)] = fresh  # never more than are still missing
        done += len(fresh)
    return numbers.reshape(sizes)


def draw_rows(sigma: float, count: int, streams: Sequence[Bits]) -> np.ndarray:
    """`draw(sigma, count, bits)` for each of the streams, as the rows of one array, in fewer steps.

    A simulator that draws for many clients gets the numbers that each client would draw for itself. The streams are
    then used up: more candidates are taken at once than are needed, so that one turn is nearly always enough.
    """
    table = _table(_checked(sigma))
    check.whole("discrete_gaussian", at_least=0, count=count)
    numbers = np.empty((len(streams), count), dtype=np.int64)
    done = np.zeros(len(streams), dtype=np.int64)
    while (rows := np.flatnonzero(done < count)).size:
        missing = count - done[rows]
        sizes = np.minimum(missing + missing // 12 + 16, _CHUNK // len(rows) + 1)
        active = [streams[row] for row in rows.tolist()]
        asked = [(bits.position, bits.words(3 * size)) for bits, size in zip(active, sizes.tolist(), strict=True)]
        places, words = [place for place, _ in asked], np.concatenate([part for _, part in asked])
        starts = 3 * (np.cumsum(sizes) - sizes)  # of each row's words
        candidates, kept = _candidates(table, words, partial(_further, active, places, starts))
        owners = np.repeat(rows, sizes)[kept]
        fresh = np.bincount(owners, minlength=len(streams))
        rank = np.arange(len(owners)) - np.repeat(np.cumsum(fresh) - fresh, fresh)  # among the row's own
        places = done[owners] + rank
        needed = places < count
        numbers[owners[needed], places[needed]] = candidates[kept][needed]
        done += np.minimum(fresh, count - done)
    return numbers


def _further(streams: Sequence[Bits], places: Sequence[int], starts: np.ndarray, index: int) -> int:
    """The further bits of a word: stream i has given those from `starts[i]` on, and was at `places[i]` before."""
    which = int(starts.searchsorted(index, side="right")) - 1
    return streams[which].further(places[which] + index - int(starts[which]))


@dataclass(frozen=True)
class _Table:
    """What the candidates of one σ are drawn with."""

    width: int  # W
    ratio: tuple[int, int]  # 1/(2σ²), exactly: numerator and denominator
    rate: float  # −1/(2σ²), rounded
    thresholds: list[int]  # block a or a later one is chosen if U >= thresholds[a − 1] / 2^320
    prefixes: np.ndarray  # the first 64 bits of each threshold
    guide: np.ndarray  # aW by the first 12 bits of U; −1 where these do not tell the block


def _checked(sigma: float) -> float:
    check.positive("discrete_gaussian", sigma=sigma)
    fits, rule = SMALLEST_SCALE <= sigma <= LARGEST_SCALE, "sigma must lie between 2^-4 and 2^47"
    hint = "Choose a grid on which the noise is a few thousand to a few million steps wide"
    check.require(fits, "discrete_gaussian", rule, sigma, hint)
    return float(sigma)


@lru_cache(maxsize=64)
def _table(sigma: float) -> _Table:
    """The table for one σ, computed with whole numbers.

    Weights are q^(a²), q = exp(−W²/(2σ²)), by one multiplication each: q^((a+1)²) = q^(a²) · q^(2a+1). A product of
    two numbers of at most 1, rounded down to 512 places, has at most the sum of their errors and 2^-512. So if q is
    within e = 2^-487 (`exp_minus`), then q^(2a+1) is within (2a + 1)(e + 2^-512) and q^(a²), a < 769, is within
    a² (e + 2^-511) < 2^-467; sums of at most 769 weights are within 2^-457; partial sums divided by the sum of all,
    which is at least 1, are within 2^-455.
    """
    numerator, denominator = sigma.as_integer_ratio()
    ratio = (denominator**2, 2 * numerator**2)
    width = 1 << max(0, math.frexp(sigma)[1] - 5)  # frexp: sigma = m · 2^e, 1/2 <= m < 1
    q = exp_minus(width**2 * ratio[0], ratio[1])
    weight, step, square = 1 << _PLACES, q, q * q >> _PLACES
    sums = [0]
    for _ in range(int(REACH * sigma / width) + 1):
        sums.append(sums[-1] + weight)
        weight, step = weight * step >> _PLACES, step * square >> _PLACES
    thresholds = [(part << _THRESHOLD_BITS) // sums[-1] for part in sums[1:-1]]
    prefixes = np.array([threshold >> FURTHER_BITS for threshold in thresholds], dtype=np.uint64)
    first = np.arange(1 << _CELL_BITS, dtype=np.uint64) << _TO_CELL  # numbers U that begin like this
    last = first + ((np.uint64(1) << _TO_CELL) - np.uint64(1))
    low, high = _enclosed(prefixes, first)[0], _enclosed(prefixes, last)[1]
    guide = np.where(low == high, low * float(width), -1.0)
    return _Table(width, ratio, -(ratio[0] / ratio[1]), thresholds, prefixes, guide)


def _candidates(table: _Table, words: np.ndarray, further: Further) -> tuple[np.ndarray, np.ndarray]:
    """One candidate from each three words, and whether it is kept."""
    block_words, keep_words, other_words = words.reshape(-1, 3).T
    starts = table.guide[(block_words >> _TO_CELL).view(np.int64)]  # aW
    searched = np.flatnonzero(starts < 0)
    if len(searched):
        starts[searched] = _blocks(table, block_words[searched], 3 * searched, further) * float(table.width)
    offsets = (other_words & np.uint64(table.width - 1)).view(np.int64).astype(np.float64)  # b
    sizes = starts + offsets
    margins = _float_exp((starts + sizes) * offsets * table.rate) - keep_words * 2.0**-64
    kept = margins > SLACK
    for i in np.flatnonzero(np.abs(margins) <= SLACK):
        kept[i] = _keeps(table, int(starts[i]), int(offsets[i]), int(keep_words[i]), further(3 * int(i) + 1))
    signed = sizes.view(np.uint64) | (other_words & _SIGN)  # the sign bit of a floating-point number
    kept &= signed != _SIGN  # minus zero
    return signed.view(np.float64).astype(np.int64), kept


def _enclosed(prefixes: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest block that a number U with these first 64 bits can choose."""
    return prefixes.searchsorted(words, side="left"), prefixes.searchsorted(words, side="right")


def _blocks(table: _Table, words: np.ndarray, indices: np.ndarray, further: Further) -> np.ndarray:
    """The blocks chosen by numbers U that begin with `words`."""
    low, high = _enclosed(table.prefixes, words)
    for i in np.flatnonzero(low != high):
        number = int(words[i]) << FURTHER_BITS | further(int(indices[i]))
        low[i] = bisect_right(table.thresholds, number)
    return low


def _keeps(table: _Table, start: int, offset: int, word: int, further: int) -> bool:
    """Whether V < exp(−γ), with whole numbers: V has the first 64 bits `word` and then the 256 bits `further`."""
    numerator, denominator = table.ratio
    exact = exp_minus(offset * (2 * start + offset) * numerator, denominator)
    return (word << FURTHER_BITS | further) < exact >> (_PLACES - _THRESHOLD_BITS)


def exp_minus(numerator: int, denominator: int) -> int:
    """2^512 · exp(−x) for the rational number x = numerator / denominator, 0 <= x <= 1024, within 2^25 units.

    As a number between 0 and 1 it is therefore within 2^-487. Taylor's series of exp(−y), y = x / 2^16 <= 2^-6, in
    units of 2^-512: y is rounded by less than 1 unit; a term has two roundings and the error of the term before, times
    y, so it is off by less than 3 units; there are fewer than 60 terms, because y^60 / 60! < 2^-512; the terms left out
    are worth less than 1 unit. Together: fewer than 255 units. Each of 16 squarings doubles the error, adds less than
    1 unit for its rounding, and the square of the error, which is far less than 1 unit: fewer than 2^25 units.
    """
    check.require(0 <= numerator <= denominator << 10, "exp_minus", "x must lie between 0 and 1024")
    y = (numerator << _PLACES) // (denominator << _HALVINGS)
    term = total = 1 << _PLACES
    k = 0
    while term:
        k += 1
        term = (term * y >> _PLACES) // k
        total += -term if k % 2 else term
    for _ in range(_HALVINGS):
        total = total * total >> _PLACES
    return total
