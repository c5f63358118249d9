"""The fused gradient kernel: a row is read from memory once and serves all runs, outputs and both passes over it.

Import this module only where it is needed: it loads Numba, and the first use on a machine compiles for some seconds
(later ones read the disk cache). The arrays were checked by `problems/rows`; nothing is checked again.
"""
# Numba infers the types inside compiled functions; their signatures are stated where they are compiled.
# pyright: basic

import functools
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from sottovoce.core.arrays import CACHE_LINE
from sottovoce.core.compiling import Kernel, compile_for
from sottovoce.problems.slopes import FAST, LOGISTIC_32, clamped, clip_softmax, slope_of, softmax_slopes
from sottovoce.problems.vectors import add_rows, collect, dots, spread

ROWS_PER_CHUNK = 512  # a client is split by its own size alone, so its sums depend neither on others nor on threads
NUMBERS_PER_BLOCK = 2048  # in rows that stay in the nearest cache while all runs use them
SHARED_CACHE = 20 * 2**20  # bytes of rows that stay in the cache that a processor's cores share
BLOCK_NEAR, BLOCK_FAR = 2**15, 2**13  # bytes of rows that a pass takes together, from that cache and from memory
TASKS = 64  # more than any sensible number of threads; all take equally long, so that sharing them out is balanced
SOFTMAX = 1  # the code of the loss with several margins


class Blocks(NamedTuple):
    """How many rows, and how many numbers of a row, a pass takes together."""

    rows: int  # whose slopes are computed together, a multiple of 4; 0: one row after the other
    dots: int  # whose margins are, 1 or 2
    lanes: int  # numbers of a row (`vectors.py`)


class Plan(NamedTuple):
    """Which rows are summed together, for one choice of clients."""

    chunks: np.ndarray  # (chunks, 5): first row, end row, client's place, first place in `keep`, place of the sum
    tasks: list[int]  # chunks tasks[t]:tasks[t+1] are one unit of work for a thread
    folds: np.ndarray  # (clients of several chunks, 3): client's place, first and end place of its later chunks
    places: int  # how many sums there are: one for each client, then one for each later chunk


def plan(starts: np.ndarray, sizes: np.ndarray) -> Plan:
    """Chunks of at most `ROWS_PER_CHUNK` rows for clients whose rows are starts[i] : starts[i] + sizes[i].

    The first chunk of a client is summed straight into the client's place, later ones into places of their own.
    """
    n = len(sizes)
    counts = -(-sizes // ROWS_PER_CHUNK)
    client = np.repeat(np.arange(n), counts)
    index = np.arange(len(client)) - np.repeat(np.cumsum(counts) - counts, counts)
    low = sizes[client] * index // counts[client]
    high = sizes[client] * (index + 1) // counts[client]
    before = (np.cumsum(sizes) - sizes)[client]
    place = np.where(index > 0, n - 1 + np.cumsum(index > 0), client)
    chunks = np.empty((len(client), 5), np.uint32)  # with many clients, half of 64 bits is much memory
    for part, numbers in enumerate((starts[client] + low, starts[client] + high, client, before + low, place)):
        chunks[:, part] = numbers

    work = np.cumsum(high - low + 4)  # a chunk costs a little even when it is one row
    inner = np.searchsorted(work, np.linspace(0, work[-1], min(TASKS, len(work)) + 1)[1:-1])

    several = np.flatnonzero(counts > 1)
    ends = n + np.cumsum(counts[several] - 1)
    folds = np.stack([several, ends - (counts[several] - 1), ends], axis=1)
    return Plan(
        chunks,
        [0, *inner.tolist(), len(work)],
        folds.astype(np.int64),
        places=n + int(np.sum(counts - 1)),
    )


@njit(fastmath=FAST, error_model="numpy", inline="always")
def _dots(X, row, partner, w, at, c):
    u, v = 0.0, 0.0
    for k in range(X.shape[1]):
        u += X[row, k] * w[at[0], at[1], c, k]
        v += X[partner, k] * w[at[0], at[1], c, k]
    return u, v


@njit(fastmath=FAST, error_model="numpy", inline="always")
def _add(sums, to, c, u, v, X, row, partner):
    for k in range(X.shape[1]):
        sums[to[0], to[1], c, k] += u * X[row, k] + v * X[partner, k]


@njit(fastmath={"contract"}, error_model="numpy", inline="always")
def _add_chosen(X, y, caps, code, parameter, kind, lanes, room, keep, to_keep, rows):
    """Add slope x row to the total over those of rows[0]:rows[1] that are kept, row by row."""
    point, total, _, _, _ = room
    for row in range(rows[0], rows[1]):
        if keep[row + to_keep]:
            (margin,) = dots(X, (row,), point, lanes)
            slope = kind(slope_of(code, parameter, kind(y[row]), margin))
            slope = clamped(slope, kind(caps[row]), kind(0.0)) if len(caps) else slope
            add_rows(X, (row,), (slope,), total, lanes)


@njit(fastmath={"contract"}, error_model="numpy", inline="always")
def _add_all(X, y, caps, code, parameter, kind, most, at_once, pairs, lanes, room, rows):
    """Add slope x row to the total over rows[0]:rows[1], `most` rows at a time: their slopes are computed together.

    Margins may be taken of two rows and terms are added four at a time: so the point and the total are loaded less
    often. The last of them are filled up with the last row, with a slope of 0. So a row's slope has the same bits
    wherever the row stands.
    """
    point, total, slopes, labels, bounds = room
    for low in range(rows[0], rows[1], most):
        high = min(low + most, rows[1])
        count, last = high - low, high - 1
        if pairs:
            for i in range(0, count, 2):
                slopes[i], slopes[i + 1] = dots(X, (low + i, min(low + i + 1, last)), point, lanes)
        else:
            for i in range(count):
                (slopes[i],) = dots(X, (low + i,), point, lanes)
        own_labels, own_caps = y[low:high], caps[low:high]  # whose places are known not to be negative
        for i in range(count):
            labels[i] = own_labels[i]
        whole = -(-count // at_once) * at_once  # what is computed beyond `count` is not used: no slow loop for a rest
        if len(caps):
            for i in range(count):
                bounds[i] = own_caps[i]
            for i in range(whole):
                slopes[i] = clamped(kind(slope_of(code, parameter, labels[i], slopes[i])), bounds[i], kind(0.0))
        else:
            for i in range(whole):
                slopes[i] = slope_of(code, parameter, labels[i], slopes[i])
        slopes[count], slopes[count + 1], slopes[count + 2] = 0.0, 0.0, 0.0
        for i in range(0, count, 4):
            a, b, c, d = low + i, min(low + i + 1, last), min(low + i + 2, last), min(low + i + 3, last)
            add_rows(X, (a, b, c, d), (slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]), total, lanes)


@njit(error_model="numpy")
def _room(count, kind):
    """An array that begins with a line of the cache: a vector that lies across two lines takes twice as long."""
    numbers = np.empty(count + CACHE_LINE, kind)
    first = (CACHE_LINE - numbers.ctypes.data % CACHE_LINE) % CACHE_LINE // numbers.itemsize
    return numbers[first : first + count]


@njit(fastmath=FAST, error_model="numpy", inline="always")
def _kept(keep, sample, row, partner, to_keep):
    """Which rows of a pair count; a last row without a partner is its own partner, which does not count."""
    second = partner > row
    if sample < 0:
        return True, second
    return keep[sample, row + to_keep], second and keep[sample, partner + to_keep]


@njit(fastmath=FAST, error_model="numpy")
def _sum_softmax(X, y, caps, norm, room, w, at, keep, sample, to_keep, rows, slopes, sums, to):
    """The same for softmax; `slopes` has room for the outputs of a pair of rows."""
    for row in range(rows[0], rows[1], 2):
        partner = min(row + 1, rows[1] - 1)
        first, second = _kept(keep, sample, row, partner, to_keep)
        if first or second:
            for c in range(w.shape[2]):
                slopes[0, c], slopes[1, c] = _dots(X, row, partner, w, at, c)
            softmax_slopes(int(y[row]), slopes, 0)
            softmax_slopes(int(y[partner]), slopes, 1)
            if len(caps):
                clip_softmax(slopes, 0, caps[row], norm, room)
                clip_softmax(slopes, 1, caps[partner], norm, room)
            for c in range(w.shape[2]):
                u, v = slopes[0, c] if first else 0.0, slopes[1, c] if second else 0.0
                _add(sums, to, c, u, v, X, row, partner)


def _one_margin(code: int, terms: str, blocks: Blocks) -> FunctionType:
    """The pass for a loss of one margin. It, its slope and slope x row are of the type `terms`, and added in float64.

    What it is made with are constants of the compiled loop: nothing else is compiled.
    """
    kind, together, pairs, lanes = getattr(np, terms), blocks.rows, blocks.dots == 2, (0,) * blocks.lanes
    code = LOGISTIC_32 if (code, terms) == (0, "float32") else code
    at_once = CACHE_LINE // np.dtype(kind).itemsize  # slopes of the longest vector that a processor has

    def one_margin(X, y, caps, parameter, norm, room, weights, w, keep, chunks, sums, begin, end):
        runs, width = len(sums), X.shape[1]  # what follows is of this thread alone
        whole = -(-width // len(lanes)) * len(lanes)
        point, total, slopes = _room(whole, kind), _room(whole, np.float64), _room(together + 16, kind)
        labels, bounds = _room(together + 16, kind), _room(together + 16, kind)
        slopes[:], labels[:], bounds[:] = 0.0, 1.0, 0.0
        own = point, total, slopes, labels, bounds
        for chunk in range(begin, end):
            start, stop, owner = np.int64(chunks[chunk, 0]), np.int64(chunks[chunk, 1]), np.int64(chunks[chunk, 2])
            to_keep, place = np.int64(chunks[chunk, 3]) - start, np.int64(chunks[chunk, 4])
            client, weight = owner if w.shape[1] > 1 else 0, weights[owner]
            step = stop - start if runs == 1 else max(4, NUMBERS_PER_BLOCK // width // 4 * 4)
            for low in range(start, stop, step):
                rows = (low, min(low + step, stop))
                for run in range(runs):
                    spread(w[run if len(w) > 1 else 0, client, 0], point, lanes)
                    if low == start:
                        total[:] = 0.0
                    else:
                        spread(sums[run, place, 0], total, lanes)
                    if together > 0:
                        _add_all(X, y, caps, code, parameter, kind, together, at_once, pairs, lanes, own, rows)
                    else:
                        kept = keep[run if len(keep) > 1 else 0]
                        _add_chosen(X, y, caps, code, parameter, kind, lanes, own, kept, to_keep, rows)
                    collect(total, weight if rows[1] == stop else 1.0, sums[run, place, 0], lanes)

    return one_margin


def _several_margins(X, y, caps, parameter, norm, room, weights, w, keep, chunks, sums, begin, end):
    """The pass for a softmax loss."""
    step = max(2, NUMBERS_PER_BLOCK // X.shape[1] // 2 * 2)
    slopes = np.empty((2, w.shape[2]))
    for chunk in range(begin, end):
        start, stop, owner = np.int64(chunks[chunk, 0]), np.int64(chunks[chunk, 1]), np.int64(chunks[chunk, 2])
        to_keep, place = np.int64(chunks[chunk, 3]) - start, np.int64(chunks[chunk, 4])
        client = owner if w.shape[1] > 1 else 0
        sums[:, place] = 0.0
        for low in range(start, stop, step):
            rows = (low, min(low + step, stop))
            for run in range(len(sums)):
                at, to = (run if len(w) > 1 else 0, client), (run, place)
                sample = -1 if keep.size == 0 else run if len(keep) > 1 else 0
                _sum_softmax(X, y, caps, norm, room, w, at, keep, sample, to_keep, rows, slopes, sums, to)
        for run in range(len(sums)):
            for c in range(sums.shape[2]):
                for k in range(sums.shape[3]):
                    sums[run, place, c, k] *= weights[owner]


@functools.cache
def gradients(stored: str, terms: str, code: int, blocks: Blocks) -> Kernel:
    """The pass over chunks for rows stored as "float64" or "float32", compiled when first asked for.

    It computes sums[run, place] = weight * sum over the rows of a chunk of the clipped gradient at the client's point,
    for the chunks begin:end of a `Plan`. Margins, slopes and slope x row are computed in the type `terms`; a loss of
    several margins has float64 alone. Sums are float64.

    Rounding. A row adds a vector of the norm that its cap allows, whatever error its margin has: slopes are clamped.
    Four such vectors are summed in the type `terms` (float32: `core.clipping.caps_in_float32` has the error, for which
    caps leave room). Those sums are added in float64, so that each row's share goes through at most as many roundings
    as a chunk has rows (`Rows.roundings`), which is part of the sensitivity that doors state
    (`privacy.sensitivity.sum_rounding`): 1 + 1.8e-11 for 400 rows.

    Shapes: `w` (runs, clients, outputs, width), `keep` (runs, rows of these clients), `sums` (runs, places, outputs,
    width). An axis of length 1 of `w` (runs, clients) or of `keep` (runs) is shared; an empty
    `keep` keeps all. `caps` bound the slopes of the rows (`core.clipping.slope_caps`), none if it is empty; `norm`
    (1 or 2) and `room` are for losses of several outputs.

    One explicit signature: inputs may be read-only (memory maps), and no further type is ever compiled.
    """

    def given(scalar: Any, axes: int) -> types.Array:
        return types.Array(scalar, axes, "C", readonly=True)

    real, whole = types.float64, types.int64
    signature = types.void(
        *(given(getattr(types, stored), 2), given(real, 1), given(real, 1)),  # X, y, caps
        *(real, whole, real),  # parameter, norm, room
        *(given(real, 1), given(real, 4), given(types.boolean, 2)),  # weights, w, keep
        *(given(types.uint32, 2), types.Array(real, 4, "C"), whole, whole),  # chunks, sums, begin, end
    )
    if code == SOFTMAX:
        return compile_for(signature, _several_margins, fastmath=FAST)
    return compile_for(signature, _one_margin(code, terms, blocks), fastmath={"contract"})  # `vectors` has the order


def add_up(sums: np.ndarray, folds: np.ndarray) -> None:
    """Add the later chunks of each client to its first."""
    for client, first, end in folds:
        sums[:, client] += sums[:, first:end].sum(axis=1)


@functools.cache
def rows_at_once(stored: str, rows: int, width: int, batches: bool) -> Blocks:
    """How much a pass over so many rows takes together. How many rows there are changes no number.

    Batches have another order of rounding; and so have rows of less than 4 numbers, which are always taken by 32.

    Slopes of many rows take less time together. But the rows should still be in the nearest cache when they are added;
    and if they come from memory, long pauses between one block and the next leave that waiting. Of a batch few rows may
    be needed.
    """
    lanes = next(lanes for least, lanes in ((64, 16), (32, 8), (4, 4), (1, 1)) if width >= least)  # few are in vain
    if batches:
        return Blocks(0, 1, lanes)
    of_row = width * np.dtype(stored).itemsize
    most = (BLOCK_NEAR if rows * of_row <= SHARED_CACHE else BLOCK_FAR) // of_row
    together = next((count for count in (32, 16, 8) if count <= most), 4)
    return Blocks(together, 2 if together == 32 else 1, lanes)
