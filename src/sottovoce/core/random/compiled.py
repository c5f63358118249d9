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

from sottovoce.core.compiling import Kernel, compile_for, intrinsic
from sottovoce.core.random import quantiles
from sottovoce.core.random.philox import M0, M1, W0, W1

BLOCK = 2048  # numbers whose tails are gathered
LONG = 24  # blocks of one client that are worth a loop of their own: a processor works on several of them at once
_PARTS = (
    *(quantiles.to_unit, quantiles.middle_quantile),
    *(quantiles.tail_root, quantiles.tail_quantile, quantiles.far_quantile),
)
_compiled: list[Any] = [njit(error_model="numpy")(part) for part in _PARTS]
_unit, _middle, _root, _tail, _far = _compiled
_WHOLE, _REAL, _PLACE = types.uint64, types.float64, types.int64
_READ = {axes: types.Array(_WHOLE, axes, "C", readonly=True) for axes in (1, 2, 3)}
_WORDS = {axes: types.Array(types.uint32, axes, "C", readonly=True) for axes in (2, 3)}
_KEYS, _COUNTER = (_READ[1], _READ[1]), (_READ[1], _WHOLE, _WHOLE)  # k0, k1; clients, round, tag


@intrinsic
def _long_vectors(typing_context):
    """In the function that calls this, vectors are as long as the processor has them.

    LLVM takes half of that for many of Intel's, since the first that had 512 bits were slowed down by them. Philox
    takes half the time with the long ones; the numbers are the same.
    """

    def build(context, builder, signature, given):
        # llvmlite's own `add` knows the names of few attributes; one that LLVM does not know does nothing.
        if isinstance(attributes := builder.function.attributes, set):
            set.add(attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), build


@functools.cache
def fill() -> Kernel:
    """fill(k0, k1, about, clients, round, tag, out, low, high): random bits of Philox, for these clients of all runs.

    k0 and k1 hold the key of each run. Where `about` (runs or 1, clients, 4) is not empty, it changes the key.
    """
    return compile_for(types.void(*_KEYS, _READ[3], *_COUNTER, _WHOLE[:, :, ::1], _PLACE, _PLACE), _fill)


@functools.cache
def normal() -> Kernel:
    """normal(k0, k1, about, clients, round, tag, out, low, high): standard normal numbers of the same bits."""
    return compile_for(types.void(*_KEYS, _READ[3], *_COUNTER, _REAL[:, :, ::1], _PLACE, _PLACE), _normal)


@functools.cache
def noisy() -> Kernel:
    """noisy(k0, k1, factors, others, rows, clients, round, tag, scale, words, out, low, high).

    The same numbers, times the scale of their place (run x clients + client), are added to what is in `out`. They are
    bound to what `binding.Bound` says of `factors`, `others` (runs or 1, clients or 1, 2) and `rows` (clients, 2), in
    the same loop; to nothing if `factors` is empty. `words`: the numbers in `out` as words, the same memory.
    """
    given = *_KEYS, _READ[2], _READ[3], _READ[2], *_COUNTER, types.Array(_REAL, 1, "C", readonly=True), _WORDS[3]
    return compile_for(types.void(*given, _REAL[:, :, ::1], _PLACE, _PLACE), _noisy)


@functools.cache
def hashes() -> Kernel:
    """hashes(words, factors, out, low, high): `binding.sums` of these rows of words."""
    return compile_for(types.void(_WORDS[2], _READ[2], _WHOLE[:, ::1], _PLACE, _PLACE), _hashes)


@njit(error_model="numpy", inline="always")
def _philox(c0, c1, c2, c3, k0, k1):
    """`philox.philox` of one counter."""
    _long_vectors()
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c3, k0, k1 = c0 & low, c3 & low, k0 & low, k1 & low  # they are short; now LLVM knows, and takes short products
    for _ in range(10):
        p0, p1 = np.uint64(M0) * c0, np.uint64(M1) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(W0)) & low, (k1 + np.uint64(W1)) & low
    return c0, c1, c2, c3


@njit(error_model="numpy", inline="always")
def _put(bits, i, words):
    bits[2 * i], bits[2 * i + 1] = (words[0] << np.uint64(32)) | words[1], (words[2] << np.uint64(32)) | words[3]


@njit(error_model="numpy", inline="always")
def _next(run, client, clients):
    """The place after this one: a division for each would take longer."""
    return (run, client + 1) if client + 1 < clients else (run + 1, 0)


@njit(error_model="numpy")
def _keys(k0, k1, about, clients, low, high, table):
    """The keys and clients of the places low:high (run x clients + client), into `table`: see `_draw`."""
    run, client = low // len(clients), low % len(clients)
    for i in range(high - low):
        table[0, i], table[1, i], table[6, i] = k0[run], k1[run], clients[client]
        if about.size:
            own = about[run if len(about) > 1 else 0, client]
            for word in range(4):
                table[2 + word, i] = own[word]
        run, client = _next(run, client, len(clients))
    if about.size:
        _change(high - low, table)


@njit(error_model="numpy")
def _bound_keys(k0, k1, factors, others, rows, words, clients, low, high, table):
    """The same, bound to what `binding.Bound` says."""
    run, client = low // len(clients), low % len(clients)
    for i in range(high - low):
        table[0, i], table[1, i], table[6, i] = k0[run], k1[run], clients[client]
        if factors.size:
            known = others[run if len(others) > 1 else 0, client if others.shape[1] > 1 else 0]
            first, second = _hash(words[run, client], factors, known[0], known[1])  # sums mod 2^64: in any order
            table[2, i], table[3, i] = first >> np.uint64(32), second >> np.uint64(32)
            table[4, i], table[5, i] = rows[client, 0], rows[client, 1]
        run, client = _next(run, client, len(clients))
    if factors.size:
        _change(high - low, table)


@njit(error_model="numpy", inline="always")
def _change(count, table):
    for i in range(count):
        changed = _philox(table[2, i], table[3, i], table[4, i], table[5, i], table[0, i], table[1, i])
        table[0, i], table[1, i] = changed[0], changed[1]


@njit(error_model="numpy")
def _draw(round_, tag, places, half, table, bits):
    """Random words for some places, 2 half of them for each, one place after the other.

    `table` begins with the keys, and ends with the clients. It has room for what differs between blocks: two words of
    the key, the client's number and the block's.
    """
    if half >= LONG:
        for i in range(places):
            number, own = table[6, i], bits[2 * half * i : 2 * half * (i + 1)]
            for block in range(half):
                _put(own, block, _philox(np.uint64(block), number, round_, tag, table[0, i], table[1, i]))
        return
    for place in range(places - 1, -1, -1):  # from the last: keys are spread out over the room they stand in
        a, b, number = table[0, place], table[1, place], table[6, place]
        for block in range(half):
            i = place * half + block
            table[0, i], table[1, i], table[2, i], table[3, i] = a, b, number, block
    for i in range(places * half):  # all of them in one loop, where there are few for each place
        _put(bits, i, _philox(table[3, i], table[2, i], round_, tag, table[0, i], table[1, i]))


def _fill(k0, k1, about, clients, round_, tag, out, first, end):
    _long_vectors()
    count = out.shape[2]
    words, half = out.reshape(-1), (count + 1) // 2
    at_once = max(1, BLOCK // max(1, count))
    bits, table = np.empty(at_once * 2 * half, np.uint64), np.empty((7, at_once * max(1, half)), np.uint64)
    for low in range(first, end, at_once):
        high = min(low + at_once, end)
        own = words[low * count : high * count]
        _keys(k0, k1, about, clients, low, high, table)
        _draw(round_, tag, high - low, half, table, bits if count % 2 else own)
        if count % 2:
            for i in range(len(own)):
                own[i] = bits[i // count * 2 * half + i % count]


@njit(error_model="numpy")
def _quantiles(bits, half, places, numbers, q, tails, roots, where):
    """Normal numbers of the bits of some places, into `numbers`. The tails are gathered: to work on several at once."""
    _long_vectors()
    count, found = len(numbers) // places, 0
    if count % 2:
        for place in range(places):
            for i in range(count):
                q[place * count + i] = _unit(bits[place * 2 * half + i]) - 0.5
    else:
        for i in range(len(numbers)):
            q[i] = _unit(bits[i]) - 0.5
    for i in range(len(numbers)):
        numbers[i] = _middle(q[i])
    for i in range(len(numbers)):
        where[found] = i
        found += abs(q[i]) > 0.425
    for j in range(found):
        tails[j] = q[where[j]]
    for j in range(found):
        roots[j] = _root(tails[j])
        tails[j] = _tail(tails[j], roots[j])
    for j in range(found):
        numbers[where[j]] = tails[j] if roots[j] <= quantiles.FAR else _far(tails[j], roots[j])  # its sign is q's


@njit(error_model="numpy", inline="always")
def _room(count):
    """How many clients are worked on together, while all about them is in the nearest cache; and room for that."""
    at_once, half = max(1, BLOCK // max(1, count)), (count + 1) // 2
    bits, table = np.empty(at_once * 2 * half, np.uint64), np.empty((7, at_once * max(1, half)), np.uint64)
    of_each = at_once * count
    q, tails, roots, where = np.empty(of_each), np.empty(of_each), np.empty(of_each), np.empty(of_each, np.int64)
    return at_once, half, bits, table, (q, tails, roots, where)


def _normal(k0, k1, about, clients, round_, tag, out, first, end):
    _long_vectors()
    count = out.shape[2]
    at_once, half, bits, table, room = _room(count)
    for low in range(first, end, at_once):
        high = min(low + at_once, end)
        _keys(k0, k1, about, clients, low, high, table)
        _draw(round_, tag, high - low, half, table, bits)
        _quantiles(bits, half, high - low, out.reshape(-1)[low * count : high * count], *room)


def _noisy(k0, k1, factors, others, rows, clients, round_, tag, scale, words, out, first, end):
    _long_vectors()
    whole, count = out.reshape(-1), out.shape[2]
    at_once, half, bits, table, room = _room(count)
    numbers = np.empty(at_once * count)
    for low in range(first, end, at_once):
        high = min(low + at_once, end)
        _bound_keys(k0, k1, factors, others, rows, words, clients, low, high, table)
        _draw(round_, tag, high - low, half, table, bits)
        _quantiles(bits, half, high - low, numbers[: (high - low) * count], *room)
        for place in range(low, high):
            own, added = whole[place * count : (place + 1) * count], numbers[(place - low) * count :]
            for i in range(count):
                own[i] = scale[place] * added[i] + own[i]


@njit(error_model="numpy", inline="always")
def _hash(words, factors, first, second):
    """`binding.sums` of one row of words, added to two sums."""
    _long_vectors()
    first, second = first + factors[0, 0], second + factors[1, 0]
    for j in range(len(words)):
        first += factors[0, j + 1] * np.uint64(words[j])
        second += factors[1, j + 1] * np.uint64(words[j])
    return first, second


def _hashes(words, factors, out, low, high):
    for row in range(low, high):
        out[row, 0], out[row, 1] = _hash(words[row], factors, np.uint64(0), np.uint64(0))
