"""Loops that NumPy makes in many passes, compiled into one each: the same numbers, to the last bit.

Imported only once Numba is loaded. What draws is compiled twice, when first asked for: threads cost more than a small
draw takes.
"""

import contextlib
import functools
import hashlib
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, prange, types

from sottovoce.core.random import streams

BLOCK = 1024  # numbers whose tails are gathered
_WHOLE, _REAL = types.uint64, types.float64
_KEYS, _TABLE = types.Array(_WHOLE, 1, "C", readonly=True), types.Array(_REAL, 2, "C", readonly=True)
_PARTS = (streams.to_unit, streams.middle_quantile, streams.tail_quantile)
_inner: Any = [njit(error_model="numpy")(part) for part in _PARTS]
_unit, _middle, _tail = _inner


def _fill(k0, k1, clients, round_, tag, out):
    """out[run, client, 2 block + half]: 64 bits each, for one key k0, k1 of each client in each run."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    m0, m1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    w0, w1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
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
    """`streams.normal` of each number, before SciPy. The tails of a block are gathered, to work on several at once."""
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


def _shrink(x, keep, g, threshold, total, out):
    """`penalties.shrink`, row by row."""
    for i in range(len(x)):
        scale = 1.0 / total[i, 0]
        for j in range(x.shape[1]):
            v = keep[i, 0] * x[i, j] - g[i, j]
            near = threshold if v > threshold else v
            out[i, j] = (v - (-threshold if near < -threshold else near)) * scale


def compile_for(signature: Any, function: Any, **options: Any) -> Any:
    """Compiled for these types and no others, and kept on disk where there is a place to write.

    Numba finds what it kept by the function's name and its file's date. The name is therefore made to tell the options
    too, and what is compiled into the function from other files.
    """
    code = [(part.__code__.co_code, part.__code__.co_consts, part.__code__.co_names) for part in _PARTS]
    settings = sorted((name, sorted(value) if isinstance(value, set) else value) for name, value in options.items())
    about = hashlib.sha256(repr((settings, code, streams.TABLES)).encode()).hexdigest()[:12]
    function = FunctionType(function.__code__, function.__globals__, function.__name__)
    function.__qualname__ = f"{function.__name__}_{about}"
    kernel: Any = njit(error_model="numpy", **options)(function)
    with contextlib.suppress(RuntimeError):  # no place: compile in each process
        kernel.enable_caching()
    kernel.compile(signature)
    kernel.disable_compile()
    return kernel


@functools.cache
def fill(threads: bool) -> Any:
    return compile_for(types.void(_KEYS, _KEYS, _KEYS, _WHOLE, _WHOLE, _WHOLE[:, :, ::1]), _fill, parallel=threads)


@functools.cache
def hashes(threads: bool) -> Any:
    words = types.Array(types.uint32, 2, "C", readonly=True)
    factors = types.Array(_WHOLE, 2, "C", readonly=True)
    return compile_for(types.void(words, factors, _WHOLE[:, ::1]), _hashes, parallel=threads)


@functools.cache
def quantile(threads: bool) -> Any:
    return compile_for(types.void(_KEYS, _REAL[::1]), _quantile, parallel=threads)


@functools.cache
def shrink() -> Any:
    return compile_for(types.void(_TABLE, _TABLE, _TABLE, _REAL, _TABLE, _REAL[:, ::1]), _shrink)
