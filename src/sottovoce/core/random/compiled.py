"""The loops behind random numbers, compiled: one pass each, where NumPy makes many. The numbers are the same.

Import this module only once Numba is loaded. A loop is compiled when it is first asked for. Each takes the numbers low
to high of what it works on, so that threads can share the work (`core/compiling.py`).
"""
# Numba infers the types inside compiled functions; their signatures are stated where they are compiled.
# pyright: basic

import functools
from typing import Any

import numpy as np
from numba import njit, types

from sottovoce.core.compiling import Kernel, compile_for
from sottovoce.core.random import quantiles
from sottovoce.core.random.philox import M0, M1, W0, W1

BLOCK = 1024  # numbers whose tails are gathered
_PARTS = (quantiles.to_unit, quantiles.middle_quantile, quantiles.tail_quantile)
_compiled: list[Any] = [njit(error_model="numpy")(part) for part in _PARTS]
_unit, _middle, _tail = _compiled
_WHOLE, _REAL, _PLACE = types.uint64, types.float64, types.int64
_KEYS = types.Array(_WHOLE, 1, "C", readonly=True)


@functools.cache
def fill() -> Kernel:
    """fill(k0, k1, clients, round, tag, out, low, high): random bits of Philox, for these clients of all runs."""
    return compile_for(types.void(_KEYS, _KEYS, _KEYS, _WHOLE, _WHOLE, _WHOLE[:, :, ::1], _PLACE, _PLACE), _fill)


@functools.cache
def hashes() -> Kernel:
    """hashes(words, factors, out): sums of `noise_key.answer_hash`."""
    words = types.Array(types.uint32, 2, "C", readonly=True)
    factors = types.Array(_WHOLE, 2, "C", readonly=True)
    return compile_for(types.void(words, factors, _WHOLE[:, ::1]), _hashes)


@functools.cache
def quantile() -> Kernel:
    """quantile(bits, out, low, high): standard normal numbers of these blocks, before SciPy's part."""
    return compile_for(types.void(_KEYS, _REAL[::1], _PLACE, _PLACE), _quantile)


def _fill(k0, k1, clients, round_, tag, out, first, end):
    """out[run, client, 2 block + half]: 64 bits each, for one key k0, k1 of each client in each run."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    m0, m1 = np.uint64(M0), np.uint64(M1)
    w0, w1 = np.uint64(W0), np.uint64(W1)
    _, n, count = out.shape
    for place in range(first, end):
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
    for row in range(len(words)):
        first, second = factors[0, 0], factors[0, 1]
        for j in range(words.shape[1]):
            word = np.uint64(words[row, j])
            first += factors[j + 1, 0] * word
            second += factors[j + 1, 1] * word
        out[row, 0], out[row, 1] = first, second


def _quantile(bits, out, first, end):
    """`normal` of each number, before SciPy's part. The tails of a block are gathered, to work on several at once."""
    q, tails, places = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, dtype=np.int64)
    for block in range(first, end):
        start, found = block * BLOCK, 0
        size = min(BLOCK, len(bits) - start)
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
