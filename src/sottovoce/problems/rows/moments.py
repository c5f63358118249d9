"""Moments of the records of one client (`core/moments.py` says what they are)."""

import math
from functools import partial

import numpy as np

from sottovoce.core import moments
from sottovoce.core.arrays import Floats, Integers
from sottovoce.core.clipping import clip_rows
from sottovoce.core.compiling import THREADS
from sottovoce.problems.rows.stored import StoredRows

PIECES = 16  # of a client's records, which threads may share


def of_records(
    rows: StoredRows, client: int, kappa: float, row_bound: float, slope_bound: float, some: slice = slice(None)
) -> Floats:
    """The moments of each record of a client, or of `some` of them, (records, width).

    Rows are divided by `row_bound` and cut to length 1; with an infinite bound they are taken as they are.
    """
    x, s = (part[some] for part in _parts(rows, client, row_bound, slope_bound))
    d = x.shape[1]
    above, beside = np.triu_indices(d, 1)
    first = (s[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    return np.hstack([first, kappa * x * x, kappa * math.sqrt(2) * x[:, above] * x[:, beside]])


def truncated(
    rows: StoredRows, clients: Integers, kappa: float, bounds: tuple[float, float], factors: Floats, most: float
) -> Floats:
    """For each client the sum of its `of_records`, each times the client's factor and truncated; compiled.

    `bounds`: on rows and on slopes. For a loss of one margin. A record whose squared norm would exceed `most` adds
    nothing. Whole numbers below 2^53, so exact.
    """
    from sottovoce.problems import grid_kernel

    sums = np.zeros((len(clients), moments.width(rows.dim, rows.dim)))
    for place, client in enumerate(clients.tolist()):
        x, s = _parts(rows, client, *bounds)
        starts = np.linspace(0, len(x), min(len(x), PIECES) + 1).astype(np.int64)
        parts = np.zeros((len(starts) - 1, sums.shape[1]))
        factor, slopes = np.full(len(parts), factors[place]), np.ascontiguousarray(s[:, 0])
        work = partial(grid_kernel.moment_sums(), x, slopes, kappa, factor, most, starts, parts)
        THREADS.share(work, range(len(starts)), len(x) * sums.shape[1])
        sums[place] = parts.sum(axis=0)
    return sums


def of_client(rows: StoredRows, client: int, kappa: float, row_bound: float, slope_bound: float) -> Floats:
    """The sum of `of_records`, by two products of matrices."""
    x, s = _parts(rows, client, row_bound, slope_bound)
    gram = x.T @ x
    above = gram[np.triu_indices(len(gram), 1)]
    return np.concatenate([(s.T @ x).ravel(), kappa * np.diagonal(gram), kappa * math.sqrt(2) * above])


def _parts(rows: StoredRows, client: int, row_bound: float, slope_bound: float) -> tuple[Floats, Floats]:
    """Rows of length at most 1 and slopes, (records, outputs), of size at most `slope_bound`."""
    place = slice(rows.offsets[client], rows.offsets[client + 1])
    x = np.asarray(rows.X[place], dtype=np.float64)
    if row_bound < math.inf:
        x = clip_rows(x / row_bound, 1.0)
    outputs = rows.loss.outputs
    nothing = np.zeros((len(x), outputs) if outputs > 1 else len(x))
    slopes = -rows.loss.slope(nothing, rows.y[place]).reshape(len(x), outputs)
    return x, slopes if slope_bound == math.inf else clip_rows(slopes, slope_bound)
