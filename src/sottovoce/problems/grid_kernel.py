"""Sums of clipped gradients and of moments in whole grid steps, compiled: each row's are truncated, and then added.

Import this module only where it is needed: it loads Numba (`kernels.py`). What a row adds depends on that row and the
point alone: the same instructions are carried out for every row, whoever else is asked.
"""
# Numba infers the types inside compiled functions; their signatures are stated where they are compiled.
# pyright: basic

import functools
import math
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types

from sottovoce.core.compiling import Kernel, compile_for
from sottovoce.problems.kernels import _FAST, _clamped, _slope


@njit(fastmath=_FAST, error_model="numpy")
def _margin(X, row, w, run, place):
    margin = 0.0
    for k in range(X.shape[1]):
        margin += X[row, k] * w[run, place, k]
    return margin


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _truncate(X, row, factor, values):
    """values = factor times the row, truncated toward zero; and their L1 and squared L2 norm."""
    absolute, square = 0.0, 0.0
    for k in range(X.shape[1]):
        value = np.trunc(X[row, k] * factor)
        values[k] = value
        absolute += abs(value)
        square += value * value
    return absolute, square


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _moments_of(x, row, slope, kappa, factor, values):
    """values = factor times the moments of a row (`core/moments.py`), truncated; and their squared norm."""
    d, square = x.shape[1], 0.0
    for k in range(d):
        first, diagonal = np.trunc(slope * x[row, k] * factor), np.trunc(kappa * x[row, k] * x[row, k] * factor)
        values[k], values[d + k] = first, diagonal
        square += first * first + diagonal * diagonal
    place = 2 * d
    for i in range(d):
        beside = kappa * math.sqrt(2.0) * x[row, i] * factor
        for j in range(i + 1, d):
            value = np.trunc(beside * x[row, j])
            values[place + j - i - 1] = value
            square += value * value
        place += d - i - 1
    return square


def _moment_sums(x, slopes, kappa, factors, most, starts, sums, begin, end):
    """sums[i]: over the rows starts[i] to starts[i + 1] of client i, the moments times factors[i], truncated."""
    values = np.empty(sums.shape[1])
    for place in range(begin, end):
        for row in range(starts[place], starts[place + 1]):
            if _moments_of(x, row, slopes[row], kappa, factors[place], values) <= most:
                for k in range(sums.shape[1]):
                    sums[place, k] += values[k]


@functools.cache
def moment_sums() -> Kernel:
    """moment_sums(x, slopes, kappa, factors, most, starts, sums, begin, end), for a loss of one margin."""
    real, whole = types.float64, types.int64
    rows, numbers = types.Array(real, 2, "C", readonly=True), types.Array(real, 1, "C", readonly=True)
    starts = types.Array(whole, 1, "C", readonly=True)
    sums = types.Array(real, 2, "C")
    return compile_for(types.void(rows, numbers, real, numbers, real, starts, sums, whole, whole), _moment_sums)


def _sums_for(code: int) -> FunctionType:
    """The loop for one loss (`Loss.code`), which is a constant of what is compiled."""

    def grid_sums(X, y, caps, parameter, norm, most, w, keep, starts, firsts, factors, sums, begin, end):
        n, values = sums.shape[1], np.empty(X.shape[1])
        for task in range(begin, end):
            run, place = task // n, task % n
            at, point = run if len(w) > 1 else 0, place if w.shape[1] > 1 else 0
            sample = run if len(keep) > 1 else 0
            for row in range(starts[place, 0], starts[place, 1]):
                if keep.size and not keep[sample, firsts[place] + row - starts[place, 0]]:
                    continue
                slope = _clamped(_slope(code, parameter, y[row], _margin(X, row, w, at, point)), caps[row])
                absolute, square = _truncate(X, row, slope * factors[place], values)
                if (absolute if norm == 1 else square) <= most:
                    for k in range(X.shape[1]):
                        sums[run, place, k] += values[k]

    return grid_sums


@functools.cache
def grid_sums(stored: str, code: int) -> Kernel:
    """The kernel for rows stored as "float64" or "float32", compiled when first asked for.

    sums[run, i]: over the rows of client i that are kept, the gradient at w[run, i] times factors[i], truncated; for
    the sums begin:end, counted over runs and then clients.

    Shapes: `w` (runs, clients, width) and `keep` (runs, rows of these clients); an axis of length 1 is shared, an empty
    `keep` keeps all. Client i has the rows starts[i, 0] to starts[i, 1], of which firsts[i] is the first in `keep`.
    A row whose norm (L1, or squared L2) would exceed `most`, or is not a number, adds nothing. `sums` is 0 at the
    start, and holds whole numbers.
    """

    def given(scalar: Any, axes: int) -> types.Array:
        return types.Array(scalar, axes, "C", readonly=True)

    real, whole = types.float64, types.int64
    signature = types.void(
        *(given(getattr(types, stored), 2), given(real, 1), given(real, 1)),  # X, y, caps
        *(real, whole, real),  # parameter, norm, most
        *(given(real, 3), given(types.boolean, 2)),  # w, keep
        *(given(whole, 2), given(whole, 1), given(real, 1)),  # starts, firsts, factors
        *(types.Array(real, 3, "C"), whole, whole),  # sums, begin, end
    )
    return compile_for(signature, _sums_for(code))
