"""Noise on a grid of integers: for answers that leave a machine, and for simulations of them.

Floating-point noise can be undone from its low bits (Mironov 2012; Jin et al. 2022), and floating-point sums have an
order-dependent sensitivity (Casacuberta et al. 2022). So a bounded vector is *truncated toward zero* onto a grid of
step clip / 2^24, which can only shrink it; vectors are summed as integers; and the noise is a discrete Gaussian
(`discrete_gaussian.py`) or a discrete Laplace drawn by OpenDP. The random bits are an argument: those of the operating
system, or seeded ones, which give the same integers every time and protect nobody.

Gaussian noise is drawn by this library's own sampler. OpenDP is an independent implementation of the same distribution
and about 500 times slower. Whoever trusts it more sets the environment variable SOTTOVOCE_SAMPLER=opendp where noise is
drawn (at each node): then all noise of the operating system is OpenDP's. Nothing else changes, neither how much noise
there is nor what it costs. A value that is not "own" or "opendp" is refused.

Where each of two vectors is bounded, truncated vectors are within the same bound. Where only their *difference* is
bounded, division by the step and truncation move it by less than two steps in each coordinate: 2√d steps in all
(`difference_to_grid`).
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.random.bits import Bits, SystemBits, must_be_secret
from sottovoce.privacy.discrete_gaussian import LARGEST_SCALE, REACH, draw, draw_rows

if TYPE_CHECKING:
    from opendp.mod import Measurement

GRID_STEPS = 1 << 24  # grid steps in one clip norm: truncation moves a gradient by less than 1e-7 of it
GRID_BOUND = GRID_STEPS + 1  # on the norm of grid integers: one step more, so that a check in floating point is enough
LARGEST_SQUARE = GRID_STEPS**2 * (1 + 2.0**-24)  # of such a norm, which may be off by as much when it is summed up
LARGEST_INTEGER = 2.0**52  # below it a quotient is rounded by at most half a step
VARIABLE = "SOTTOVOCE_SAMPLER"
LEAST_CLIP = 1e-200  # below, rounding errors and grid steps would be no normal numbers


def check_clip(clip: float) -> None:
    """Refuse a clip norm next to which rounding errors are not small. It is public."""
    check.require(clip > LEAST_CLIP, "Proven", f"clip must be above {LEAST_CLIP:g}", clip)


def to_grid(vectors: np.ndarray, clip: float, norm: int = 2) -> np.ndarray:
    """Vectors of a norm (1 or 2) <= clip as integers, truncated toward zero, of a norm of at most GRID_BOUND.

    Whatever the vectors, the norm of each result is at most GRID_BOUND: one that would have more becomes 0. No vector
    of a norm <= clip does: multiplying it rounds by two parts in 2^53, far less than one step in 2^24.
    """
    return _truncated(vectors, clip, norm).astype(np.int64)


def grid_sum(vectors: np.ndarray, clip: float, norm: int = 2) -> np.ndarray:
    """The sum of `to_grid` over all vectors, (count, length) -> (length), exactly.

    It is taken in floating point, which is exact for whole numbers below 2^53: there are at most 2^24 + 1 steps in each
    of fewer than 2^28 vectors.
    """
    check.require(len(vectors) < 2**28, "grid_sum", "must have fewer than 2^28 vectors", len(vectors))
    return _truncated(vectors, clip, norm).sum(axis=0).astype(np.int64)


def _truncated(vectors: np.ndarray, clip: float, norm: int) -> np.ndarray:
    """`to_grid`, as floating-point numbers that are whole."""
    check_clip(clip)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = vectors * (GRID_STEPS / clip)
        np.trunc(numbers, out=numbers)
        if norm == 1:
            sizes, most = np.abs(numbers).sum(axis=-1, keepdims=True), float(GRID_BOUND)
        else:  # sums of squares may be off by 2^-24
            sizes, most = np.vecdot(numbers, numbers)[..., None], LARGEST_SQUARE
        np.copyto(numbers, 0.0, where=~(sizes <= most))  # also where a size is NaN
    return numbers


def difference_to_grid(vectors: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Vectors of which a neighbour's are at most `change` (..., 1) away, as integers: `change` has GRID_STEPS steps.

    Integers of neighbours differ by at most `difference_steps`: numbers beyond LARGEST_INTEGER are cut to it, which
    brings no two of them further apart; each quotient is rounded by at most half a step, and truncated by less than
    one. So every coordinate of the difference grows by less than two steps.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.clip(vectors / (change / GRID_STEPS), -LARGEST_INTEGER, LARGEST_INTEGER)
    return np.trunc(np.nan_to_num(numbers)).astype(np.int64)


def difference_steps(length: int, norm: int = 2) -> float:
    """How far one record moves the integers of `difference_to_grid`, in the L1 or the L2 norm."""
    return GRID_STEPS + 2.0 * (length if norm == 1 else float(np.sqrt(length)))


def noised(
    kind: Literal["gaussian", "laplace"], scale: float, numbers: np.ndarray, streams: Sequence[Bits] = ()
) -> np.ndarray:
    """Integers with discrete Gaussian or Laplace noise of the given scale.

    `streams`: seeded bits, one for each row of numbers; without them the noise is the operating system's, drawn by the
    `sampler()` that was chosen.

    Where noise could leave 64 bits OpenDP draws it: it adds, and then cuts off at their ends. Noise of its own that is
    cut off there, added here, would wrap around and show the numbers.
    """
    by = sampler()
    room = 2.0**62 - (REACH + 1) * scale - 1
    fits = kind == "gaussian" and scale <= LARGEST_SCALE and np.abs(numbers).max(initial=0) < room
    if streams:
        check.require(fits, "Proven", "seeded noise on a grid must be Gaussian, and within 62 bits", scale)
        return numbers + draw_rows(scale, numbers.shape[-1], streams).reshape(numbers.shape)
    if fits and by == "own":
        bits = SystemBits()
        must_be_secret(bits)
        return numbers + draw(scale, numbers.shape, bits)
    return noised_by_opendp(kind, scale, numbers)


def noised_by_opendp(kind: Literal["gaussian", "laplace"], scale: float, numbers: np.ndarray) -> np.ndarray:
    """The same, drawn by OpenDP whatever the `sampler()`."""
    noisy = _measurement(kind, float(scale))(numbers.reshape(-1).tolist())
    return np.array(noisy, dtype=np.int64).reshape(numbers.shape)


def sampler() -> str:
    """Who draws Gaussian noise of the operating system: the environment variable SOTTOVOCE_SAMPLER, or "own"."""
    name = os.environ.get(VARIABLE, "own")
    return name if name == "own" else check.one_of(VARIABLE, "sampler", name, ("own", "opendp"))


@lru_cache(maxsize=64)
def _measurement(kind: Literal["gaussian", "laplace"], scale: float) -> "Measurement":
    from opendp.domains import atom_domain, vector_domain  # pyright: ignore[reportUnknownVariableType]
    from opendp.measurements import make_gaussian, make_laplace  # pyright: ignore[reportUnknownVariableType]
    from opendp.metrics import l1_distance, l2_distance  # pyright: ignore[reportUnknownVariableType]
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"))
    if kind == "gaussian":
        return make_gaussian(domain, l2_distance(T="i64"), scale=scale)
    return make_laplace(domain, l1_distance(T="i64"), scale=scale)
