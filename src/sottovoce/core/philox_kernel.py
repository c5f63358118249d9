"""Philox 4x32-10, compiled: the same bits as `streams.philox`, in one pass. Imported only once Numba is loaded."""

from typing import Any

import numpy as np
from numba import njit, prange, types


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


def _compile() -> Any:
    whole = types.uint64
    given = types.Array(whole, 1, "C", readonly=True)
    signature = types.void(given, given, given, whole, whole, types.Array(whole, 3, "C"))
    return njit(signature, parallel=True, cache=True)(_fill)


fill = _compile()
