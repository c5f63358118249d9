"""How vectors are shortened: scaled down so that the *floating-point result* keeps the bound, whatever the vector.

Privacy noise is proportional to these bounds, so none of them may fail by a rounding error. Every function leaves room
for its own rounding: u = 2^-53 is the relative error of one operation, and a sum of `count` terms, added in any order,
has a relative error of at most count u / (1 - count u) of the sum of their sizes.

`clip_rows` is the one to use. `clip_matrix` applies it to the rows or columns of a dense or sparse matrix, and
`shorten_rows` prepares stored data.
"""

from importlib import import_module

import numpy as np

from sottovoce.core.arrays import Booleans, Floats, Integers, Matrix, Numbers, is_sparse

LEAST_IN_FLOAT32, MOST_IN_FLOAT32 = 2.0**-60, 2.0**60  # bounds between which numbers may be summed in float32
TINY = 2.0**-900  # bounds below it count as 0: next to them the absolute error of denormal numbers would not be small


def room(count: int) -> float:
    """A share that is larger than all relative rounding errors of a norm of `count` numbers and of a scaling by it.

    The norm: a division, a square, `count` - 1 additions, a square root, a product: at most (count + 4) u. The scaling:
    a quotient and two products, at most 4 u. Both together are below (count + 16) 2^-52 <= 2^-40 for 4080 numbers.
    """
    return max(2.0**-40, (count + 16) * 2.0**-52)


def clip_rows(vectors: Floats, clip: Numbers, norm: int = 2) -> Floats:
    """Each vector (last axis) scaled to a norm (1 or 2) <= clip; one that is not finite becomes 0.

    `clip` is a number, or one for each vector, (..., 1). The exact norm of the floating-point result is at most
    `clip`, also for huge, denormal or cancelling entries: norms are taken relative to the largest entry, so that
    nothing that counts overflows or underflows, and a vector nearer to the bound than `room` is scaled down too.
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    top = np.abs(vectors).max(axis=-1, keepdims=True, initial=0.0)
    finite = top < np.inf  # False for NaN too
    scaled = np.where(finite, vectors, 0.0) / np.where(finite & (top > 0.0), top, 1.0)
    norms = np.linalg.norm(scaled, ord=norm, axis=-1, keepdims=True)
    keeps, factor = _scaling(np.where(finite, top, np.inf), norms, clip, vectors.shape[-1])
    return np.where(keeps, vectors, scaled * factor)


def clip_matrix(matrix: Matrix, bound: float, axis: int) -> Matrix:
    """A dense or CSR matrix with its columns (axis 0) or rows (axis 1) scaled down to the Euclidean length `bound`."""
    if not is_sparse(matrix):
        return np.ascontiguousarray(clip_rows(matrix.T, bound).T) if axis == 0 else clip_rows(matrix, bound)
    result = import_module("scipy.sparse").csr_array(matrix, dtype=np.float64, copy=True)
    result.sum_duplicates()
    rows, columns = (int(length) for length in matrix.shape)
    if axis == 0:
        result.data = clip_entries(result.data, result.indices, columns, rows, bound)
    else:
        owner = np.repeat(np.arange(rows), np.diff(result.indptr))
        result.data = clip_entries(result.data, owner, rows, columns, bound)
    return result


def shorten_rows(X: Floats, bound: float) -> Floats:
    """Rows longer than `bound` scaled down to it, to prepare data of ordinary size.

    A ledger is bound to the bytes of the rows that this returns (`shorten = true` in a file), so its arithmetic must
    never change: an owner could not open an existing ledger. Whatever relies on the bound checks it.
    """
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    slack = 1 + 8 * np.finfo(np.float64).eps  # rounding must not lift a row above the bound
    return X / np.maximum(1.0, lengths / bound * slack)


def into_ball(points: Floats, centre: Floats, radius: Numbers) -> Floats:
    """Each point (last axis) moved straight towards `centre` until it is within `radius`, (..., 1), of it.

    The exact distance of the floating-point result from `centre` is at most `radius`, for a `radius` of at least
    |centre|: adding the centre back rounds by at most u (|centre| + radius), for which `room` is left once more. A
    point that is not finite becomes the centre.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        away = points - centre
    return centre + clip_rows(away, radius * (1.0 - room(points.shape[-1])))


def slope_caps(norms: Floats, clip: float, count: int) -> Floats:
    """The largest slope that each row may have: slope times row then has a norm of at most `clip`, exactly.

    `norms` are those of the rows, of `count` numbers each, as computed. A slope whose size is at most the cap gives
    |slope| |row| <= clip / (1 + room), so the product may be rounded once more. Rows of zeros have cap 0, and so
    have rows so long (or a clip so small) that the cap would be no normal number.
    """
    safe = np.maximum(norms, TINY)  # a denormal norm may be off by half
    with np.errstate(over="ignore"):
        cap = clip / (safe * (1.0 + room(count)))
    cap = np.minimum(np.nextafter(cap, 0.0), np.finfo(np.float64).max)
    return np.where((norms > 0.0) & (cap >= TINY), cap, 0.0)


def caps_in_float32(caps: Floats) -> Floats:
    """Caps for slopes that become float32 numbers, and products with rows that are summed in float32, four at a time.

    Let c be the clip norm, so that no product is longer. A sum of four is off, coordinate by coordinate and so in
    either norm, by at most 4 c g, g = 4 u / (1 - 4 u), u = 2^-24: each product goes through at most four roundings. Of
    two neighbours one sum of four differs, and all others are the same to the last bit. So with one record in the place
    of another they are at most 2 c (1 + 4 g) apart, and with a record in the place of a blank one c (1 + 8 g). As
    8 g < 2^-18, caps that are smaller by 2^-18 pay for both, and for products below 2^-126 that a processor may flush
    to 0, if c is at least `LEAST_IN_FLOAT32`. Caps are float32 numbers: a slope that is below one stays so when it is
    rounded.
    """
    limits = np.finfo(np.float32)
    smaller = np.minimum(caps * (1.0 - 2.0**-18), float(limits.max))
    rounded = smaller.astype(np.float32)
    below = np.where(rounded > smaller, np.nextafter(rounded, np.float32(0.0)), rounded)
    return np.where(below >= limits.tiny, below, 0.0).astype(np.float64)


def clamp(slopes: Floats, caps: Floats, norm: int) -> Floats:
    """Slopes (rows, outputs) brought within the `caps` (rows, 1) of their rows; NaN becomes 0.

    If there is one output, the slope is cut off; if there are several, they are scaled down together, so that their
    norm is at most the cap.
    """
    if slopes.shape[-1] > 1:
        return clip_rows(slopes, caps, norm)
    within = np.minimum(np.maximum(slopes, -caps), caps)  # NaN where the slope is
    return np.where(within == within, within, 0.0)


def clip_entries(entries: Floats, owner: Integers, owners: int, count: int, clip: float) -> Floats:
    """`clip_rows` for sparse vectors: entry i belongs to vector owner[i] of `owners`, of at most `count`."""
    top = np.zeros(owners)
    np.maximum.at(top, owner, np.abs(entries))
    scaled = entries / np.where(top > 0.0, top, 1.0)[owner]
    norms = np.sqrt(np.bincount(owner, np.square(scaled), owners))
    keeps, factor = _scaling(top, norms, clip, count)
    return np.where(keeps[owner], entries, scaled * factor[owner])


def _scaling(top: Floats, norms: Floats, clip: Numbers, count: int) -> tuple[Booleans, Floats]:
    """Which vectors may stay as they are, and by what the others, divided by their largest entry, are multiplied.

    `top`: the largest entry of each vector; `norms`: the norm of each vector divided by that, of `count` numbers.
    """
    clip = np.where(np.asarray(clip) >= TINY, clip, 0.0)
    factor = clip / np.maximum(norms, 1.0) * (1.0 - room(count))
    within: Booleans = top <= factor
    return within, np.where(top < np.inf, factor, 0.0)
