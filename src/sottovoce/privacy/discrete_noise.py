"""Noise on a grid of integers: for answers that leave a machine, and for simulations of them.

Floating-point noise can be undone from its low bits (Mironov 2012; Jin et al. 2022), and floating-point sums have an
order-dependent sensitivity (Casacuberta et al. 2022). So a bounded vector is *truncated toward zero* onto a grid of
step clip / 2^24, which can only shrink it; vectors are summed as integers; and the noise is a discrete Gaussian
(`discrete_gaussian.py`) or a discrete Laplace drawn by OpenDP. The random bits are an argument: those of the operating
system, or seeded ones, which give the same integers every time and protect nobody.

Where each of two vectors is bounded, truncated vectors are within the same bound. Where only their *difference* is
bounded, truncation moves it by less than one step in each coordinate: √d steps in all.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.random.bits import Bits, SystemBits, must_be_secret
from sottovoce.privacy.discrete_gaussian import LARGEST_SCALE, REACH, draw, draw_rows

GRID_STEPS = 1 << 24  # grid steps in one clip norm: truncation moves a gradient by less than 1e-7 of it
GRID_BOUND = GRID_STEPS + 1  # on the norm of grid integers: one step more, so that a check in floating point is enough
LEAST_CLIP = 1e-200  # below, rounding errors and grid steps would be no normal numbers


def check_clip(clip: float) -> None:
    """Refuse a clip norm next to which rounding errors are not small. It is public."""
    check.require(clip > LEAST_CLIP, "Proven", f"clip must be above {LEAST_CLIP:g}", clip)


def to_grid(vectors: np.ndarray, clip: float, norm: int = 2) -> np.ndarray:
    """Vectors of a norm (1 or 2) <= clip as integers, truncated toward zero, of a norm of at most GRID_BOUND.

    Whatever the vectors, the norm of each result is at most GRID_BOUND: one that would have more becomes 0. No vector
    of a norm <= clip does: multiplying it rounds by two parts in 2^53, far less than one step in 2^24.
    """
    check_clip(clip)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.trunc(vectors * (GRID_STEPS / clip))
        sizes = np.abs(numbers) if norm == 1 else np.square(numbers)
        most = GRID_BOUND if norm == 1 else GRID_STEPS**2 * (1 + 2.0**-24)  # sums of squares may be off by 2^-24
        within = sizes.sum(axis=-1, keepdims=True) <= most  # False for NaN
    return np.where(within, numbers, 0.0).astype(np.int64)


def from_grid(numbers: np.ndarray, clip: float) -> np.ndarray:
    """Grid integers back as numbers."""
    return numbers * (clip / GRID_STEPS)


def noised(
    kind: Literal["gaussian", "laplace"], scale: float, numbers: np.ndarray, streams: Sequence[Bits] = ()
) -> np.ndarray:
    """Integers with discrete Gaussian or Laplace noise of the given scale.

    `streams`: seeded bits, one for each row of numbers; without them the noise is the operating system's.

    Where noise could leave 64 bits OpenDP draws it: it adds, and then cuts off at their ends. Noise of its own that is
    cut off there, added here, would wrap around and show the numbers.
    """
    room = 2.0**62 - (REACH + 1) * scale - 1
    fits = kind == "gaussian" and scale <= LARGEST_SCALE and np.abs(numbers).max(initial=0) < room
    if streams:
        check.require(fits, "Proven", "seeded noise on a grid must be Gaussian, and within 62 bits", scale)
        return numbers + draw_rows(scale, numbers.shape[-1], streams).reshape(numbers.shape)
    if fits:
        bits = SystemBits()
        must_be_secret(bits)
        return numbers + draw(scale, numbers.shape, bits)
    said = _measurement(kind, float(scale))(numbers.reshape(-1).tolist())
    return np.array(said, dtype=np.int64).reshape(numbers.shape)


def discrete_cost(kind: Literal["gaussian", "laplace"], scale: float, sensitivity: int) -> float:
    """What OpenDP itself says one such release costs: zCDP's rho for Gaussian noise, epsilon for Laplace noise."""
    return float(_measurement(kind, float(scale)).map(d_in=sensitivity))


@lru_cache(maxsize=64)
def _measurement(kind: Literal["gaussian", "laplace"], scale: float) -> Any:
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import l1_distance, l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"))
    if kind == "gaussian":
        return make_gaussian(domain, l2_distance(T="i64"), scale=scale)
    return make_laplace(domain, l1_distance(T="i64"), scale=scale)
