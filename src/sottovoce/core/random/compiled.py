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
from sottovoce.core.random.normal import FAR
from sottovoce.core.random.philox import M0, M1, W0, W1

BLOCK = 1024  # numbers whose tails are gathered
_PARTS = (quantiles.to_unit, quantiles.middle_quantile, quantiles.tail_quantile)
_compiled: list[Any] = [njit(error_model="numpy")(part) for part in _PARTS]
_unit, _middle, _tail = _compiled
_WHOLE, _REAL, _PLACE = types.uint64, types.float64, types.int64
_KEYS = types.Array(_WHOLE, 1, "C", readonly=True)
_ABOUT = types.Array(_WHOLE, 3, "C", readonly=True)
_WHOSE = (_KEYS, _KEYS, _ABOUT, _KEYS, _WHOLE, _WHOLE)  # k0, k1, about, clients, round, tag


@functools.cache
def fill() -> Kernel:
    """fill(k0, k1, about, clients, round, tag, out, low, high): random bits of Philox, for these clients of all runs.

    k0 and k1 hold the key of each run. Where `about` (runs or 1, clients, 4) is not empty, it changes the key.
    """
    return compile_for(types.void(*_WHOSE, _WHOLE[:, :, ::1], _PLACE, _PLACE), _fill)


@functools.cache
def normal() -> Kernel:
    """normal(k0, k1, about, clients, round, tag, far, out, low, high): standard normal numbers of the same bits.

    far[0] becomes 1 if one of them is SciPy's part (`normal.py`).
    """
    return compile_for(types.void(*_WHOSE, _WHOLE[::1], _REAL[:, :, ::1], _PLACE, _PLACE), _normal)


@functools.cache
def hashes() -> Kernel:
    """hashes(words, factors, out, low, high): the sums of `noise_key.hash_of`, of these rows of words."""
    words = types.Array(types.uint32, 2, "C", readonly=True)
    factors = types.Array(_WHOLE, 2, "C", readonly=True)
    return compile_for(types.void(words, factors, _WHOLE[:, ::1], _PLACE, _PLACE), _hashes)


@njit(error_model="numpy", inline="always")
def _philox(c0, c1, c2, c3, k0, k1):
    """`philox.philox` of one counter."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = np.uint64(M0) * c0, np.uint64(M1) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(W0)) & low, (k1 + np.uint64(W1)) & low
    return c0, c1, c2, c3


@njit(error_model="numpy")
def _words(k0, k1, about, run, client, number, round_, tag, out):
    """out[2 block + half]: 64 bits each, for this client of this run."""
    half, count = np.uint64(32), len(out)
    a, b = k0[run], k1[run]
    if about.size:
        own = about[run if len(about) > 1 else 0, client]
        a, b, _, _ = _philox(own[0], own[1], own[2], own[3], a, b)
    for block in range((count + 1) // 2):
        c0, c1, c2, c3 = _philox(np.uint64(block), number, round_, tag, a, b)
        out[2 * block] = (c0 << half) | c1
        if 2 * block + 1 < count:
            out[2 * block + 1] = (c2 << half) | c3


def _fill(k0, k1, about, clients, round_, tag, out, first, end):
    n = out.shape[1]
    for place in range(first, end):
        run, client = place // n, place % n
        _words(k0, k1, about, run, client, clients[client], round_, tag, out[run, client])


def _normal(k0, k1, about, clients, round_, tag, far, out, first, end):
    """Some clients at a time: their bits, then the quantile of each number, while both are in the nearest cache.

    The tails are gathered, to work on several at once.
    """
    _, n, count = out.shape
    numbers = out.reshape(-1)
    at_once = max(1, BLOCK // count)
    bits = np.empty(at_once * count, np.uint64)
    q, tails, places = np.empty(len(bits)), np.empty(len(bits)), np.empty(len(bits), dtype=np.int64)
    for low in range(first, end, at_once):
        size, start, found = min(at_once, end - low) * count, low * count, 0
        for place in range(low, min(low + at_once, end)):
            run, client, own = place // n, place % n, (place - low) * count
            _words(k0, k1, about, run, client, clients[client], round_, tag, bits[own : own + count])
        for i in range(size):
            q[i] = _unit(bits[i]) - 0.5
            numbers[start + i] = _middle(q[i])
        for i in range(size):
            tails[found], places[found] = q[i], start + i
            found += abs(q[i]) > 0.425
        for j in range(found):
            tails[j] = _tail(tails[j])
        for j in range(found):
            numbers[places[j]] = tails[j]
            if abs(tails[j]) > FAR:
                far[0] = 1


def _hashes(words, factors, out, low, high):
    """`noise_key.hash_of` each row of words, before the last 32 bits of each sum are dropped."""
    for row in range(low, high):
        first, second = factors[0, 0], factors[1, 0]
        for j in range(words.shape[1]):
            first += factors[0, j + 1] * np.uint64(words[row, j])
            second += factors[1, j + 1] * np.uint64(words[row, j])
        out[row, 0], out[row, 1] = first, second
