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
from sottovoce.problems.vectors import BLOCK, add_rows, collect, copy, dots, spread

ROWS_PER_CHUNK = 512  # a client is split by its own size alone, so its sums depend neither on others nor on threads
MOST_ROWS = 256  # of a block (`vectors.BLOCK`): their labels and caps take room in the nearest cache too
IN_VECTOR = 16  # slopes of the longest vector that a processor has
EACH, EACH_SECOND = (0,), (0, 0)  # which rows are fetched: what counts is the length (`vectors.dots`)
TASKS = 64  # more than any sensible number of threads; all take equally long, so that sharing them out is balanced
SOFTMAX = 1  # the code of the loss with several margins


class Plan(NamedTuple):
    """Which rows are summed together, for one choice of clients."""

    chunks: np.ndarray  # (chunks, 5): first row, end row, client's place, first place in `keep`, place of the sum
    tasks: list[int]  # chunks tasks[t]:tasks[t+1] are one unit of work for a thread
    folds: list[tuple[np.ndarray, np.ndarray]]  # clients of equally many chunks; places of the later ones
    places: int  # how many sums there are: one for each client, then one for each later chunk

    @np.errstate(over="ignore", invalid="ignore")  # compiled loops do not warn either
    def add_up(self, sums: np.ndarray) -> None:
        """Add the later chunks of each client to its first, in an order that does not depend on other clients."""
        for clients, later in self.folds:
            sums[:, clients] += sums.take(later, axis=1).sum(axis=2)


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
    tasks = min(TASKS, len(work))
    inner = np.searchsorted(work, work[-1] * np.arange(1, tasks) / tasks)

    later, firsts = counts - 1, n + np.cumsum(counts - 1) - (counts - 1)
    folds = [
        (clients := np.flatnonzero(later == count), firsts[clients, None] + np.arange(count))
        for count in (np.unique(later[later > 0]) if len(client) > n else ())
    ]
    return Plan(chunks, [0, *inner.tolist(), len(work)], folds, places=n + int(later.sum()))


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


@njit(error_model="numpy", inline="always")
def _padded(count):
    """Four rows are always taken together: the last of a client are filled up with its last one, whose slope is 0."""
    return (count + 3) // 4 * 4


@njit(error_model="numpy", inline="always")
def _parts(chunks, chunk):
    """What `Plan.chunks` says of a chunk, with signs: Numba computes unsigned and signed numbers in floating point."""
    first, end, client = np.int64(chunks[chunk, 0]), np.int64(chunks[chunk, 1]), np.int64(chunks[chunk, 2])
    return first, end, client, np.int64(chunks[chunk, 3]), np.int64(chunks[chunk, 4])


@njit(error_model="numpy", inline="always")
def _last(chunks, first, end, most):
    """The end of the chunks from `first` on that are taken together: at least one, or several of few rows."""
    places = 0
    for chunk in range(first, end):
        places += _padded(np.int64(chunks[chunk, 1]) - np.int64(chunks[chunk, 0]))
        if places > most:
            return max(chunk, first + 1)
    return end


@njit(error_model="numpy", inline="always")
def _four(row, last):
    """Four rows from this one on, or the last one again: so a row's slope has the same bits wherever it stands."""
    return row, min(row + 1, last), min(row + 2, last), min(row + 3, last)


@njit(error_model="numpy", inline="always")
def _take(X, y, caps, lanes, own, low, high, at):
    """Put margins, labels and caps of the rows low:high into their room, from the place `at` on."""
    point, _, slopes, labels, bounds = own
    for row in range(low, high, 4):
        dots(X, _four(row, high - 1), point, slopes, at + row - low, lanes, EACH_SECOND)
    copy(y, low, high - low, labels, at)
    if len(caps):
        copy(caps, low, high - low, bounds, at)


@njit(fastmath={"contract"}, error_model="numpy", inline="always")
def _to_slopes(clips, code, parameter, kind, own, count):
    """Margins become slopes, all in one loop. What it computes beyond `count` is not used: no slow loop for a rest."""
    _, _, slopes, labels, bounds = own
    whole = -(-count // IN_VECTOR) * IN_VECTOR
    if clips:
        for i in range(whole):
            slopes[i] = clamped(kind(slope_of(code, parameter, labels[i], slopes[i])), bounds[i], kind(0.0))
    else:
        for i in range(whole):
            slopes[i] = slope_of(code, parameter, labels[i], slopes[i])


@njit(error_model="numpy", inline="always")
def _add_all(X, lanes, own, low, high, at):
    """Add slope x row to the total over the rows low:high, whose slopes stand at the place `at`."""
    _, total, slopes, _, _ = own
    for i in range(at + high - low, at + _padded(high - low)):
        slopes[i] = 0.0
    for row in range(low, high, 4):
        add_rows(X, _four(row, high - 1), slopes, at + row - low, total, lanes)


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
    """Add slope x row over some rows, for softmax; `slopes` has room for the outputs of a pair of rows."""
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


@njit(error_model="numpy", inline="always")
def _rooms(width, most, lanes, kind):
    """What a thread needs for itself: the point and the total of a client; slopes, labels and caps of some rows."""
    whole, many = -(-width // len(lanes)) * len(lanes), most + IN_VECTOR
    slopes, labels, bounds = _room(many, kind), _room(many, kind), _room(many, kind)
    slopes[:], labels[:], bounds[:] = 0.0, 1.0, 0.0
    return _room(whole, kind), _room(whole, np.float64), slopes, labels, bounds


def _one_margin(code: int, terms: str, lanes: tuple[int, ...]) -> FunctionType:
    """The pass for a loss of one margin. Margins, slopes and the sums of four rows have the type `terms`; these sums
    are added in float64.

    What it is made with are constants of the compiled loop: nothing else is compiled.

    Several small clients are taken together, and a part of a large one: first all margins, then all slopes, then all
    sums. A processor that goes from one of these to the next waits for a while, so each should last long.
    """
    kind = getattr(np, terms)

    def one_margin(X, y, caps, parameter, norm, room, most, weights, w, keep, chunks, sums, begin, end):
        own = _rooms(X.shape[1], most, lanes, kind)
        point, total, _, _, _ = own
        first, runs = begin, len(sums)
        while first < end:
            last, size = _last(chunks, first, end, most), np.int64(chunks[first, 1]) - np.int64(chunks[first, 0])
            for part in range(0, size, most):
                for run in range(runs):
                    at = 0
                    for chunk in range(first, last):
                        low, stop = np.int64(chunks[chunk, 0]) + part, np.int64(chunks[chunk, 1])
                        if part == 0 or runs > 1:
                            client = np.int64(chunks[chunk, 2]) if w.shape[1] > 1 else 0
                            spread(w[run if len(w) > 1 else 0, client, 0], point, lanes)
                        _take(X, y, caps, lanes, own, low, min(low + most, stop), at)
                        at += _padded(min(most, stop - low))
                    _to_slopes(len(caps) > 0, code, parameter, kind, own, at)
                    at = 0
                    for chunk in range(first, last):
                        low, stop = np.int64(chunks[chunk, 0]) + part, np.int64(chunks[chunk, 1])
                        answer = sums[run, np.int64(chunks[chunk, 4]), 0]
                        if part == 0:
                            total[:] = 0.0
                        elif runs > 1:
                            spread(answer, total, lanes)
                        _add_all(X, lanes, own, low, min(low + most, stop), at)
                        at += _padded(min(most, stop - low))
                        if low + most >= stop:
                            collect(total, weights[np.int64(chunks[chunk, 2])], answer, lanes)
                        elif runs > 1:
                            collect(total, 1.0, answer, lanes)
            first = last

    return one_margin


def _chosen_rows(code: int, terms: str, lanes: tuple[int, ...]) -> FunctionType:
    """The same for batches: row by row, for few of them may be needed."""
    kind = getattr(np, terms)

    def chosen_rows(X, y, caps, parameter, norm, room, most, weights, w, keep, chunks, sums, begin, end):
        point, total, slopes, _, _ = _rooms(X.shape[1], 0, lanes, kind)
        for chunk in range(begin, end):
            start, stop, owner, in_keep, place = _parts(chunks, chunk)
            to_keep = in_keep - start
            step = stop - start if len(sums) == 1 else most
            for low in range(start, stop, step):
                for run in range(len(sums)):
                    kept = keep[run if len(keep) > 1 else 0]
                    spread(w[run if len(w) > 1 else 0, owner if w.shape[1] > 1 else 0, 0], point, lanes)
                    if low == start:
                        total[:] = 0.0
                    else:
                        spread(sums[run, place, 0], total, lanes)
                    for row in range(low, min(low + step, stop)):
                        if kept[row + to_keep]:
                            dots(X, (row,), point, slopes, 0, lanes, EACH_SECOND)
                            slope = kind(slope_of(code, parameter, kind(y[row]), slopes[0]))
                            slope = clamped(slope, kind(caps[row]), kind(0.0)) if len(caps) else slope
                            slopes[0] = slope
                            add_rows(X, (row,), slopes, 0, total, lanes)
                    collect(total, weights[owner] if low + step >= stop else 1.0, sums[run, place, 0], lanes)

    return chosen_rows


def _several_margins(X, y, caps, parameter, norm, room, most, weights, w, keep, chunks, sums, begin, end):
    """The pass for a softmax loss."""
    slopes = np.empty((2, w.shape[2]))
    for chunk in range(begin, end):
        start, stop, owner, in_keep, place = _parts(chunks, chunk)
        to_keep = in_keep - start
        client = owner if w.shape[1] > 1 else 0
        sums[:, place] = 0.0
        for low in range(start, stop, most):
            rows = (low, min(low + most, stop))
            for run in range(len(sums)):
                at, to = (run if len(w) > 1 else 0, client), (run, place)
                sample = -1 if keep.size == 0 else run if len(keep) > 1 else 0
                _sum_softmax(X, y, caps, norm, room, w, at, keep, sample, to_keep, rows, slopes, sums, to)
        for run in range(len(sums)):
            for c in range(sums.shape[2]):
                for k in range(sums.shape[3]):
                    sums[run, place, c, k] *= weights[owner]


def _given(scalar: Any, axes: int) -> types.Array:
    return types.Array(scalar, axes, "C", readonly=True)


@functools.cache
def gradients(stored: str, terms: str, code: int, lanes: int, batches: bool) -> Kernel:
    """The pass over chunks for rows stored as "float64" or "float32", compiled when first asked for.

    It computes sums[run, place] = weight * sum over the rows of a chunk of the clipped gradient at the client's point,
    for the chunks begin:end of a `Plan`. Margins, slopes and slope x row are computed in the type `terms`; a loss of
    several margins has float64 alone. Sums are float64.

    Rounding. A row adds a vector of the norm that its cap allows, whatever error its margin has: slopes are clamped.
    Four such vectors are summed in the type `terms` (float32: `core.clipping.caps_in_float32` has the error, for which
    caps leave room). Those sums are added in float64. `Rows.roundings` says how many roundings a row's share goes
    through, and the sensitivity that doors state grows by them (`privacy.sensitivity.sum_rounding`): at 400 rows by a
    factor of 1 + 1.8e-11 where a record is replaced, and of 1 + 3.6e-11 where one is added or removed.

    Shapes: `w` (runs, clients, outputs, width), `keep` (runs, rows of these clients), `sums` (runs, places, outputs,
    width). An axis of length 1 of `w` (runs, clients) or of `keep` (runs) is shared; an empty `keep` keeps all. `caps`
    bound the slopes of the rows (`core.clipping.slope_caps`), none if it is empty; `norm` (1 or 2) and `room` are for
    losses of several outputs. `most` rows are taken together (`rows_at_once`).

    One explicit signature: inputs may be read-only (memory maps), and no further type is ever compiled.
    """

    real, whole, given = types.float64, types.int64, _given
    signature = types.void(
        *(given(getattr(types, stored), 2), given(real, 1), given(real, 1)),  # X, y, caps
        *(real, whole, real, whole),  # parameter, norm, room, most
        *(given(real, 1), given(real, 4), given(types.boolean, 2)),  # weights, w, keep
        *(given(types.uint32, 2), types.Array(real, 4, "C"), whole, whole),  # chunks, sums, begin, end
    )
    if code == SOFTMAX:
        return compile_for(signature, _several_margins, fastmath=FAST)
    code = LOGISTIC_32 if (code, terms) == (0, "float32") else code
    make = _chosen_rows if batches else _one_margin
    return compile_for(signature, make(code, terms, (0,) * lanes), fastmath={"contract"})  # `vectors` has the order


def _margins(lanes: tuple[int, ...]) -> FunctionType:
    def margins_of(X, w, chunks, most, margins, begin, end):
        point, _, some, _, _ = _rooms(X.shape[1], most, lanes, np.float64)
        one_point = len(w) == 1 and w.shape[1] == 1
        if one_point:
            spread(w[0, 0], point, lanes)
        for chunk in range(begin, end):
            start, stop, client, to, _ = _parts(chunks, chunk)
            for low in range(start, stop, most):
                high = min(low + most, stop)
                for run in range(len(w)):
                    if not one_point:
                        spread(w[run, client if w.shape[1] > 1 else 0], point, lanes)
                    for row in range(low, high, 4):
                        dots(X, _four(row, high - 1), point, some, row - low, lanes, EACH)
                    copy(some, 0, high - low, margins[run], to + low - start)

    return margins_of


@functools.cache
def margins(stored: str, lanes: int) -> Kernel:
    """The products of rows with their client's point, in float64: margins (runs, rows of these clients).

    It computes those of the chunks begin:end of a `Plan`. `w` (runs, clients or 1, width).
    """
    signature = types.void(
        *(_given(getattr(types, stored), 2), _given(types.float64, 3), _given(types.uint32, 2), types.int64),
        *(types.Array(types.float64, 2, "C"), types.int64, types.int64),  # margins, begin, end
    )
    return compile_for(signature, _margins((0,) * lanes), fastmath={"contract"})


def rows_at_once(stored: str, width: int) -> int:
    """How many rows a pass takes together, a multiple of 4. It changes no number.

    Slopes of many rows take less time together. But the rows should still be in the nearest cache when they are added,
    and when the next run uses them.
    """
    rows = min(MOST_ROWS, BLOCK // (width * np.dtype(stored).itemsize))
    return max(4, rows // 4 * 4 if rows < IN_VECTOR else rows // IN_VECTOR * IN_VECTOR)


def lanes_of(width: int) -> int:
    """How many numbers of a row stand in a vector (`vectors.py`)."""
    return next(lanes for least, lanes in ((64, 16), (32, 8), (4, 4), (1, 1)) if width >= least)  # few are in vain
