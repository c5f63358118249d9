"""The shrinking step of `penalties.shrink`, compiled."""
# Numba infers the types inside compiled functions; their signatures are stated where they are compiled.
# pyright: basic

import functools

from numba import types

from sottovoce.core.compiling import Kernel, compile_for


def _shrink(x, keep, g, threshold, total, out):
    """`penalties.shrink`, row by row."""
    for i in range(len(x)):
        scale = 1.0 / total[i, 0]
        for j in range(x.shape[1]):
            v = keep[i, 0] * x[i, j] - g[i, j]
            near = threshold if v > threshold else v
            out[i, j] = (v - (-threshold if near < -threshold else near)) * scale


@functools.cache
def shrink() -> Kernel:
    """shrink(x, keep, g, threshold, total, out): the step of `penalties.shrink`, in one pass."""
    table = types.Array(types.float64, 2, "C", readonly=True)
    return compile_for(types.void(table, table, table, types.float64, table, types.float64[:, ::1]), _shrink)
