"""First and second moments of records: what the loss is to second order around a model of zeros.

For a record with row x and slope −s of its loss at margin 0 (of several margins: a vector s), the moments are

    x ⊗ s  and  κ x x',

the second as its diagonal and √2 times its upper triangle, so that the vector is as long as the matrix. Their sums over
records are the gradient at 0, with its sign turned, and κ times the Gram matrix.

**Sensitivity.** Let |x| <= 1 and |s| <= B. Replace (x, s) by (x', s'), c = <x, x'>. The squared length of the change is

    |x ⊗ s|² + |x' ⊗ s'|² − 2 c <s, s'> + κ² (|x|⁴ + |x'|⁴ − 2 c²).

For fixed c it grows with all lengths, so these are 1 and B; and the worst <s, s'> has the sign of −c and the size B²:

    Δ² = max over |c| <= 1 of  2 B² (1 + |c|) + 2 κ² (1 − c²).

It has its maximum at |c| = 1 if κ² <= B²/2, and then Δ = 2B: *the second moments come free with the first*. Else it is
at |c| = B²/(2κ²), and Δ² = 2 B² + 2 κ² + B⁴/(2κ²). If a record is there or blank, Δ² = B² + κ². For a logistic loss
B = 1/2: Δ = 1 up to κ² = 1/8, and Δ = 1.25 at κ² = 1/2. For softmax over K classes s = e_y − 1/K, B² = 1 − 1/K.

**In whole numbers.** For noise on a grid, x and s/B are first made multiples of 1/STEPS, truncated toward zero, which
leaves their lengths at most 1 (`products.whole_rows` compares whole numbers). A record's moments are then exact
products, to which Δ applies as it stands, and their sums over a client's records are exact whole numbers, in whatever
order they are added. What is done with these sums later rounds once for all records.
"""

import functools
import math

import numpy as np

from sottovoce.core.arrays import AnyArray, Floats, Integers

STEPS = 1 << 20  # a row of length 1, and a slope of size B, in whole numbers
MOST_RECORDS = 1 << 22  # of one client: sums of products of whole numbers then stay below 2^63


def sensitivity(kappa: float, slope_bound: float, replaced: bool) -> float:
    """How far one record of length at most 1 moves the moments of a client: Δ above."""
    b2, k2 = slope_bound**2, kappa**2
    if not replaced:
        return math.sqrt(b2 + k2)
    return 2 * slope_bound if k2 <= b2 / 2 else math.sqrt(2 * b2 + 2 * k2 + b2**2 / (2 * k2))


def width(dim: int, columns: int) -> int:
    """How many numbers the moments of rows of so many columns are, for a model of `dim` parameters."""
    return dim + columns * (columns + 1) // 2


def rescaled(moments: Floats, dim: int, row_bound: float) -> Floats:
    """Moments of rows that were divided by `row_bound`, as those of the rows themselves."""
    return np.concatenate([row_bound * moments[..., :dim], row_bound**2 * moments[..., dim:]], axis=-1)


def laid_out(first: AnyArray, gram: AnyArray) -> AnyArray:
    """Sums of x ⊗ s (outputs, columns) and of x x' (columns, columns) in the order of moments, not weighed by κ."""
    above, beside = _upper(len(gram))
    return np.concatenate([first.ravel(), np.diagonal(gram), gram[above, beside]])


def weights(dim: int, columns: int, kappa: float, slope_bound: float) -> Floats:
    """What STEPS² are worth in each place of `laid_out`, rows and slopes being at most 1 and `slope_bound` long."""
    pairs = columns * (columns - 1) // 2
    return np.repeat([slope_bound, kappa, kappa * math.sqrt(2)], [dim, columns, pairs])


@functools.lru_cache(maxsize=8)
def _upper(columns: int) -> tuple[Integers, Integers]:
    return np.triu_indices(columns, 1)


def split(moments: Floats, dim: int, kappa: float) -> tuple[Floats, Floats]:
    """The first moments (..., dim), and the Gram matrix (..., columns, columns), of (mean) moments."""
    first, second = moments[..., :dim], moments[..., dim:]
    columns = (math.isqrt(8 * second.shape[-1] + 1) - 1) // 2
    gram = np.zeros((*moments.shape[:-1], columns, columns))
    above, beside = _upper(columns)
    gram[..., above, beside] = second[..., columns:] / (kappa * math.sqrt(2))
    gram += np.swapaxes(gram, -1, -2)
    diagonal = np.arange(columns)
    gram[..., diagonal, diagonal] = second[..., :columns] / kappa
    return first, gram
