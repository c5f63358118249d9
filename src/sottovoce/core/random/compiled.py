"""The loops behind random numbers, compiled: one pass each, where NumPy makes many. The numbers are the same.

Import this module only once Numba is loaded. A loop is compiled when it is first asked for, once with threads and once
without: for a small draw threads cost more than they save.
"""
# Numba infers the types inside compiled functions; their signatures are stated where they are compiled.
# pyright: basic

import functools
from typing import Any

import numpy as np
from numba import njit, prange, types

from sottovoce.core.compiling import Kernel, compile_for
from sottovoce.core.random import quantiles
from sottovoce.core.random.philox import M0, M1, W0, W1

BLOCK = 1024  # numbers whose tails are gathered
_PARTS = (quantiles.to_unit, quantiles.middle_quantile, quantiles.tail_quantile)
_compiled: list[Any] = [njit(error_model="numpy")(part) for part in _PARTS]
_unit, _middle, _tail = _compiled
_WHOLE, _REAL = types.uint64, types.float64
_KEYS = types.Array(_WHOLE, 1, "C", readonly=True)


@functools.cache
def fill(threads: bool) -> Kernel:
    """fill(k0, k1, clients, round, tag, out): random bits of Philox."""
    return compile_for(types.void(_KEYS, _KEYS, _KEYS, _WHOLE, _WHOLE, _WHOLE[:, :, ::1]), _fill, parallel=threads)


@functools.cache
def hashes(threads: bool) -> Kernel:
    """hashes(words, factors, out): sums of `noise_key.answer_hash`."""
    words = types.Array(types.uint32, 2, "C", readonly=True)
    factors = types.Array(_WHOLE, 2, "C", readonly=True)
    return compile_for(types.void(words, factors, _WHOLE[:, ::1]), _hashes, parallel=threads)


@functools.cache
def quantile(threads: bool) -> Kernel:
    """quantile(bits, out): standard normal numbers, before SciPy's part."""
    signature = types.void(_KEYS, _REAL[::1])
    return compile_for(signature, _quantile, _PARTS, quantiles.TABLES, parallel=threads)


def _fill(k0, k1, clients, round_, tag, out):
    """out[run, client, 2 block + half]: 64 bits each, for one key k0, k1 of each client in each run."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    m0, m1 = np.uint64(M0), np.uint64(M1)
    w0, w1 = np.uint64(W0), np.uint64(W1)
    runs, n, count = out.shape
    for place in prange(runs * n):
        run, client = place // n, place % n
        for block in range((count + 1) // 2):
            c0, c1, c2, c3 = np.uint64(block), clients[client], round_, tag
            a, b = k0[place], k1[place]
            for _ in range(10):
                p0, p1 = m0 * c0, m1 * c2
                c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ a, p1 & low, (p0 >> half) ^ c3 ^ b, p0 & low
                a, b = (a + w0) & low, (b + w1) & low
            out[run, client, 2 * block] = (c0 << half) | c1
            if 2 * block + 1 < count:
                out[run, client, 2 * block + 1] = (c2 << half) | c3


def _hashes(words, factors, out):
    """`noise_key.answer_hash` of each row of words, before the last 32 bits of each sum are dropped."""
    for row in prange(len(words)):
        first, second = factors[0, 0], factors[0, 1]
        for j in range(words.shape[1]):
            word = np.uint64(words[row, j])
            first += factors[j + 1, 0] * word
            second += factors[j + 1, 1] * word
        out[row, 0], out[row, 1] = first, second


def _quantile(bits, out):
    """`normal` of each number, before SciPy's part. The tails of a block are gathered, to work on several at once."""
    for block in prange((len(bits) + BLOCK - 1) // BLOCK):
        start = block * BLOCK
        size = min(BLOCK, len(bits) - start)
        q, tails, places, found = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, dtype=np.int64), 0
        for i in range(size):
            q[i] = _unit(bits[start + i]) - 0.5
            out[start + i] = _middle(q[i])
        for i in range(size):
            tails[found], places[found] = q[i], start + i
            found += abs(q[i]) > 0.425
        for j in range(found):
            tails[j] = _tail(tails[j])
        for j in range(found):
            out[places[j]] = tails[j]
