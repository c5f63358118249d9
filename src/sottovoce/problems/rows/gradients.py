"""Clipped gradients of all clients, by NumPy or by the compiled kernel. The two agree up to rounding."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from sottovoce.core import clipping
from sottovoce.core.arrays import Booleans, Floats, Integers, of_clients
from sottovoce.core.compiling import THREADS, Kernel
from sottovoce.problems.rows.active import ActiveClients
from sottovoce.problems.rows.stored import StoredRows, in_float64

SPARE = 2**24  # numbers in one temporary array of the kernels; more runs than that go in turns
MARGINS_AT_ONCE = 2**18  # they are read once, when they are still in a cache
# Nanoseconds for a number of the rows, and for a slope, about.
_BY_KERNEL, _BY_NUMPY, _ON_GRID, _MARGIN = (0.15, 3.0), (0.5, 15.0), (0.5, 3.0), 0.15


@dataclass(frozen=True)
class SlopeBound:
    """How far the slope of each row may go, so that slope x row has at most the norm `bound`."""

    bound: float
    norm: int
    caps: Floats  # the largest slope of each row; empty if nothing is clipped
    terms: str = "float64"  # the type in which the kernel computes margins and slope x row; the bound is made for it

    def apply(self, slopes: Floats, rows: slice | Integers) -> Floats:
        """Slopes (rows, outputs) within the bound; 0 where a slope is not a number."""
        return clipping.clamp(slopes, self.caps[rows][:, None], self.norm) if len(self.caps) else slopes


@np.errstate(over="ignore", invalid="ignore")  # the kernel does not warn either
def by_numpy(rows: StoredRows, active: ActiveClients, points: Floats, bound: SlopeBound, keep: Booleans) -> Floats:
    """Gradients (runs, clients, outputs, features) at points (runs or 1, clients or 1, outputs, features)."""
    loss, runs = rows.loss, max(len(points), len(keep))
    answer = np.empty((runs, len(active.sizes), loss.outputs, rows.features))

    def fill(first: int, end: int) -> None:
        for block in active.blocks[first:end]:
            X, y = in_float64(rows.X[block.rows]), rows.y[block.rows]
            for run in range(runs):
                margins = rows.margins_at(X, points[run if len(points) > 1 else 0], block)
                slopes = bound.apply(loss.slope(margins, y).reshape(len(X), -1), block.rows)
                if len(keep):
                    kept = keep[run if len(keep) > 1 else 0, block.first : block.first + len(X)]
                    slopes = np.where(kept[:, None], slopes, 0.0)
                for c, slope in enumerate(np.ascontiguousarray(slopes.T)):
                    answer[run, block.low : block.high, c] = block.sum(slope, X)

    THREADS.share(fill, range(len(active.blocks) + 1), _nanoseconds(_BY_NUMPY, rows, active, runs))
    answer *= rows.weights[active.clients, :, None]
    return answer


def by_kernel(rows: StoredRows, active: ActiveClients, points: Floats, bound: SlopeBound, keep: Booleans) -> Floats:
    """The same, compiled."""
    loss, n, runs = rows.loss, len(active.sizes), max(len(points), len(keep))
    shape = (runs, n, loss.outputs, rows.features)
    if n == 0:
        return np.empty(shape)
    plan, weights = active.plan, of_clients(rows.weights, active.clients).reshape(-1)
    kernel, most = _loop(rows.stored, rows.features, bound.terms, loss.code, len(keep) > 0)
    at_once = max(1, SPARE // max(1, (plan.places - n) * rows.dim))
    answers: list[Floats] = []
    for low in range(0, runs, at_once):
        turn = slice(low, low + at_once)
        sums = np.empty((min(at_once, runs - low), plan.places, *shape[2:]))
        given = (
            *(rows.X, rows.y, bound.caps, loss.parameter, bound.norm, clipping.room(loss.outputs), most, weights),
            *(points[turn] if len(points) > 1 else points, keep[turn] if len(keep) > 1 else keep, plan.chunks, sums),
        )
        THREADS.share(partial(kernel, *given), plan.tasks, _nanoseconds(_BY_KERNEL, rows, active, len(sums)))
        if plan.places > n:
            plan.add_up(sums)
            sums = np.ascontiguousarray(sums[:, :n])
        answers.append(sums)
    return answers[0] if len(answers) == 1 else np.concatenate(answers)


def margins_by_kernel(
    rows: StoredRows, active: ActiveClients, points: Floats
) -> Iterator[tuple[int, int, int, Floats]]:
    """Margins for a loss of one, in turns: (first run, low, high, margins of the rows of clients low:high, end to end).

    `points` as in `by_numpy`; margins are (some runs, rows).
    """
    kernel, most = _margins_loop(rows.stored, rows.features)
    for low, high in active.turns(MARGINS_AT_ONCE):
        first, count = int(active.bounds[low]), int(active.bounds[high] - active.bounds[low])
        chunks = active.plan.chunks
        if (low, high) != (0, len(active.sizes)):
            chunks = chunks[slice(*np.searchsorted(chunks[:, 2], (low, high)))].copy()
            chunks[:, 3] -= first
        at_once = max(1, MARGINS_AT_ONCE // count)
        for run in range(0, len(points), at_once):
            some = points[run : run + at_once, :, 0]
            margins = np.empty((len(some), count))
            given = rows.X, some, chunks, most, margins
            THREADS.share(partial(kernel, *given), range(len(chunks) + 1), _MARGIN * rows.features * margins.size)
            yield run, low, high, margins


@cache
def _loop(stored: str, features: int, terms: str, code: int, batches: bool) -> tuple[Kernel, int]:
    """The loop over rows of this kind, and how many it takes together.

    Kept: an import statement in each round takes as long as ten calls.
    """
    from sottovoce.problems import kernels

    kernel = kernels.gradients(stored, terms, code, kernels.lanes_of(features), batches)
    return kernel, kernels.rows_at_once(stored, features)


@cache
def _margins_loop(stored: str, features: int) -> tuple[Kernel, int]:
    """The same for margins."""
    from sottovoce.problems import kernels

    return kernels.margins(stored, kernels.lanes_of(features)), kernels.rows_at_once(stored, features)


def on_grid(
    rows: StoredRows,
    active: ActiveClients,
    points: Floats,
    bound: SlopeBound,
    keep: Booleans,
    factors: Floats,
    most: float,
) -> Floats:
    """Sums of each row's clipped gradient times its client's factor, truncated: (runs, clients, features), compiled.

    `points` (runs or 1, clients or 1, features), for a loss of one margin. Whole numbers below 2^53, so exact.
    """
    from sottovoce.problems import grid_kernel

    loss, runs = rows.loss, max(len(points), len(keep))
    starts = np.stack([rows.offsets[active.clients], rows.offsets[active.clients + 1]], axis=1)
    firsts = np.cumsum(active.sizes) - active.sizes
    sums = np.empty((runs, len(active.sizes), rows.features))
    given = (
        *(rows.X, rows.y, bound.caps, loss.parameter, most),
        *(np.ascontiguousarray(points), keep, starts, firsts, np.ascontiguousarray(factors), sums),
    )
    ends = range(runs * len(active.sizes) + 1)
    kernel = grid_kernel.grid_sums(rows.stored, loss.code, bound.norm)
    THREADS.share(partial(kernel, *given), ends, _nanoseconds(_ON_GRID, rows, active, runs))
    return sums


def _nanoseconds(each: tuple[float, float], rows: StoredRows, active: ActiveClients, runs: int) -> float:
    """About how long one thread takes for a pass over these clients' rows."""
    number, slope = each
    slopes = 1 if rows.loss.outputs == 1 else 3 * rows.loss.outputs  # those of several margins have their exponentials
    return int(active.bounds[-1]) * runs * (number * rows.dim + slope * slopes)
