"""Random numbers, compiled: the same bits and the same normal numbers as in `streams.py`, in one pass each.

Imported only once Numba is loaded. Every function is compiled twice: threads cost more than a small draw takes.
"""

from typing import Any

import numpy as np
from numba import njit, prange, types

from sottovoce.core.streams import DENOMINATOR, NUMERATOR


def _fill(k0, k1, clients, round_, tag, out):
    """out[run, client, 2 block + half]: 64 bits each, for keys k0[run], k1[run]."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    m0, m1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    w0, w1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
    runs, n, count = out.shape
    for place in prange(runs * n):
        run, client = place // n, place % n
        for block in range((count + 1) // 2):
            c0, c1, c2, c3 = np.uint64(block), clients[client], round_, tag
            a, b = k0[run], k1[run]
            for _ in range(10):
                p0, p1 = m0 * c0, m1 * c2
                c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ a, p1 & low, (p0 >> half) ^ c3 ^ b, p0 & low
                a, b = (a + w0) & low, (b + w1) & low
            out[run, client, 2 * block] = (c0 << half) | c1
            if 2 * block + 1 < count:
                out[run, client, 2 * block + 1] = (c2 << half) | c3


def _middle(bits, out):
    """`streams.normal` of each number where that is a rational function, else NaN."""
    a, b = NUMERATOR, DENOMINATOR
    for i in prange(len(bits)):
        q = (np.int64(bits[i] >> np.uint64(12)) + 0.5) * 2.0**-52 - 0.5  # exact up to the last difference, as there
        r = 0.180625 - q * q  # unrolled, so that several numbers are worked on at once
        above = ((((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * r + a[6]) * r + a[7]
        below = ((((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + b[5]) * r + b[6]) * r + b[7]
        out[i] = q * above / below if abs(q) <= 0.425 else np.nan


def _compile(function: Any, *arguments: Any) -> tuple[Any, Any]:
    """(alone, threaded)"""
    signature = types.void(*arguments)
    return tuple(
        njit(signature, parallel=threads, cache=True, error_model="numpy")(function) for threads in (False, True)
    )  # type: ignore


_WHOLE, _REAL = types.uint64, types.float64
_KEYS = types.Array(_WHOLE, 1, "C", readonly=True)
fill = _compile(_fill, _KEYS, _KEYS, _KEYS, _WHOLE, _WHOLE, types.Array(_WHOLE, 3, "C"))
middle = _compile(_middle, _KEYS, types.Array(_REAL, 1, "C"))
