"""Sums of clipped gradients in whole grid steps, compiled: each row's is truncated, and then added.

Import this module only where it is needed: it loads Numba (`kernels.py`). What a row adds depends on that row and the
point alone: the same instructions are carried out for every row, whoever else is asked.
"""
# Numba infers the types inside compiled functions; their signatures are stated where they are compiled.
# pyright: basic

import functools
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types

from sottovoce.core.compiling import Kernel, compile_for
from sottovoce.problems.slopes import FAST, clamped, slope_of


@njit(fastmath=FAST, error_model="numpy")
def _margin(X, row, w, run, place):
    margin = 0.0
    for k in range(X.shape[1]):
        margin += X[row, k] * w[run, place, k]
    return margin


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _added(X, row, factor, norm, total):
    """Add factor times the row, truncated toward zero, to `total`; returns the L1 or the squared L2 norm of it."""
    size = 0.0
    for k in range(X.shape[1]):
        value = np.trunc(X[row, k] * factor)
        total[k] += value
        size += abs(value) if norm == 1 else value * value
    return size


def _sums_for(code: int, norm: int) -> FunctionType:
    """The loop for one loss (`Loss.code`) and norm, which are constants of what is compiled."""

    def grid_sums(X, y, caps, parameter, most, w, keep, starts, firsts, factors, sums, begin, end):
        n, total, spare = sums.shape[1], np.empty(X.shape[1]), np.empty(X.shape[1])
        for task in range(begin, end):
            run, place = task // n, task % n
            at, point = run if len(w) > 1 else 0, place if w.shape[1] > 1 else 0
            sample = run if len(keep) > 1 else 0
            for careful in range(2):
                total[:] = 0.0
                fine = True
                for row in range(starts[place, 0], starts[place, 1]):
                    if keep.size and not keep[sample, firsts[place] + row - starts[place, 0]]:
                        continue
                    slope = slope_of(code, parameter, y[row], _margin(X, row, w, at, point))
                    factor = clamped(slope, caps[row], 0.0) * factors[place]
                    if careful == 0:
                        fine &= _added(X, row, factor, norm, total) <= most
                    elif _added(X, row, factor, norm, spare) <= most:
                        _added(X, row, factor, norm, total)
                if fine:  # the caps see to that; if they failed, once more, with a look at each row first
                    break
            sums[run, place] = total

    return grid_sums


@functools.cache
def grid_sums(stored: str, code: int, norm: int) -> Kernel:
    """The kernel for rows stored as "float64" or "float32", compiled when first asked for.

    sums[run, i]: over the rows of client i that are kept, the gradient at w[run, i] times factors[i], truncated; for
    the sums begin:end, counted over runs and then clients.

    Shapes: `w` (runs, clients, width) and `keep` (runs, rows of these clients); an axis of length 1 is shared, an empty
    `keep` keeps all. Client i has the rows starts[i, 0] to starts[i, 1], of which firsts[i] is the first in `keep`.
    A row whose `norm` (L1, or squared L2) would exceed `most`, or is not a number, adds nothing.
    """

    def given(scalar: Any, axes: int) -> types.Array:
        return types.Array(scalar, axes, "C", readonly=True)

    real, whole = types.float64, types.int64
    signature = types.void(
        *(given(getattr(types, stored), 2), given(real, 1), given(real, 1)),  # X, y, caps
        *(real, real),  # parameter, most
        *(given(real, 3), given(types.boolean, 2)),  # w, keep
        *(given(whole, 2), given(whole, 1), given(real, 1)),  # starts, firsts, factors
        *(types.Array(real, 3, "C"), whole, whole),  # sums, begin, end
    )
    return compile_for(signature, _sums_for(code, norm))
