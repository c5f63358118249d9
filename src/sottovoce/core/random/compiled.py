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

BLOCK = 2048  # numbers whose tails are gathered
LONG = 24  # blocks of one client that are worth a loop of their own: a processor works on several of them at once
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
    """normal(k0, k1, about, clients, round, tag, far, scale, exact, out, low, high): normal numbers of the same bits.

    They are standard normal numbers; or, if `exact` (of the shape of `out`) is not empty, those times the scale of
    their place (run x clients + client), added to it. far[0] becomes 1 if one of them is SciPy's part (`normal.py`).
    """
    scale, exact = types.Array(_REAL, 1, "C", readonly=True), types.Array(_REAL, 3, "C", readonly=True)
    return compile_for(types.void(*_WHOSE, _WHOLE[::1], scale, exact, _REAL[:, :, ::1], _PLACE, _PLACE), _normal)


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


@njit(error_model="numpy", inline="always")
def _put(bits, i, words):
    bits[2 * i], bits[2 * i + 1] = (words[0] << np.uint64(32)) | words[1], (words[2] << np.uint64(32)) | words[3]


@njit(error_model="numpy")
def _words(k0, k1, about, clients, round_, tag, n, low, high, half, table, bits):
    """Random words for the places low:high (run x n + client), 2 half of them for each, one place after the other.

    `table` has room for what differs between blocks: two words of the key, the client's number and the block's.
    """
    for place in range(low, high):
        run, client, i = place // n, place % n, place - low
        table[0, i], table[1, i] = k0[run], k1[run]
        if about.size:
            own = about[run if len(about) > 1 else 0, client]
            for word in range(4):
                table[2 + word, i] = own[word]
    if about.size:
        for i in range(high - low):
            changed = _philox(table[2, i], table[3, i], table[4, i], table[5, i], table[0, i], table[1, i])
            table[0, i], table[1, i] = changed[0], changed[1]
    if half >= LONG:
        for place in range(low, high):
            i = place - low
            number, own = clients[place % n], bits[2 * half * i : 2 * half * (i + 1)]
            for block in range(half):
                _put(own, block, _philox(np.uint64(block), number, round_, tag, table[0, i], table[1, i]))
        return
    for place in range(high - 1, low - 1, -1):  # from the last: keys are spread out over the room they stand in
        a, b, number = table[0, place - low], table[1, place - low], clients[place % n]
        for block in range(half):
            i = (place - low) * half + block
            table[0, i], table[1, i], table[2, i], table[3, i] = a, b, number, block
    for i in range((high - low) * half):  # all of them in one loop, where there are few for each place
        _put(bits, i, _philox(table[3, i], table[2, i], round_, tag, table[0, i], table[1, i]))


def _fill(k0, k1, about, clients, round_, tag, out, first, end):
    _, n, count = out.shape
    words, half = out.reshape(-1), (count + 1) // 2
    at_once = max(1, BLOCK // max(1, count))
    bits, table = np.empty(at_once * 2 * half, np.uint64), np.empty((6, at_once * max(1, half)), np.uint64)
    for low in range(first, end, at_once):
        high = min(low + at_once, end)
        own = words[low * count : high * count]
        _words(k0, k1, about, clients, round_, tag, n, low, high, half, table, bits if count % 2 else own)
        if count % 2:
            for i in range(len(own)):
                own[i] = bits[i // count * 2 * half + i % count]


@njit(error_model="numpy", inline="always")
def _scale_and_add(numbers, scale, exact):
    for i in range(len(numbers)):
        numbers[i] = scale * numbers[i] + exact[i]


def _normal(k0, k1, about, clients, round_, tag, far, scale, exact, out, first, end):
    """Some clients at a time: their bits, then the quantile of each number, while both are in the nearest cache.

    The tails are gathered, to work on several at once.
    """
    _, n, count = out.shape
    numbers, half = out.reshape(-1), (count + 1) // 2
    at_once = max(1, BLOCK // max(1, count))
    bits, table = np.empty(at_once * 2 * half, np.uint64), np.empty((6, at_once * max(1, half)), np.uint64)
    q, tails, places = np.empty(at_once * count), np.empty(at_once * count), np.empty(at_once * count, dtype=np.int64)
    for low in range(first, end, at_once):
        high = min(low + at_once, end)
        size, start, found = (high - low) * count, low * count, 0
        _words(k0, k1, about, clients, round_, tag, n, low, high, half, table, bits)
        if count % 2:
            for place in range(high - low):
                for i in range(count):
                    q[place * count + i] = _unit(bits[place * 2 * half + i]) - 0.5
        else:
            for i in range(size):
                q[i] = _unit(bits[i]) - 0.5
        for i in range(size):
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
        if exact.size:
            for place in range(low, high):
                _scale_and_add(out[place // n, place % n], scale[place], exact[place // n, place % n])


def _hashes(words, factors, out, low, high):
    """`noise_key.hash_of` each row of words, before the last 32 bits of each sum are dropped."""
    for row in range(low, high):
        first, second = factors[0, 0], factors[1, 0]
        for j in range(words.shape[1]):
            first += factors[0, j + 1] * np.uint64(words[row, j])
            second += factors[1, j + 1] * np.uint64(words[row, j])
        out[row, 0], out[row, 1] = first, second
