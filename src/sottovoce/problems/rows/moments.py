"""Moments of the records of one client (`core/moments.py` says what they are)."""

import math

import numpy as np

from sottovoce.core.arrays import Floats
from sottovoce.core.clipping import clip_rows
from sottovoce.problems.rows.stored import StoredRows


def of_records(rows: StoredRows, client: int, kappa: float, row_bound: float, slope_bound: float) -> Floats:
    """The moments of each record of a client, (records, width).

    Rows are divided by `row_bound` and cut to length 1; with an infinite bound they are taken as they are.
    """
    x, s = _parts(rows, client, row_bound, slope_bound)
    d = x.shape[1]
    above, beside = np.triu_indices(d, 1)
    first = (s[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    return np.hstack([first, kappa * x * x, kappa * math.sqrt(2) * x[:, above] * x[:, beside]])


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
