"""Moments of the records of one client (`core/moments.py` says what they are)."""

import math

import numpy as np

from sottovoce.core import moments, products
from sottovoce.core.arrays import Floats, Integers
from sottovoce.core.clipping import clip_rows
from sottovoce.problems.rows.stored import StoredRows


def whole(rows: StoredRows, client: int, row_bound: float, slope_bound: float) -> Integers:
    """Sums of products of a client's rows and slopes, made whole numbers of at most STEPS each: exact, (width,)."""
    x, s = _stored(rows, client)
    tables = [products.whole_rows(part, moments.STEPS**2, bound) for part, bound in ((x, row_bound), (s, slope_bound))]
    gram, d = products.gram(tables), x.shape[1]
    return moments.laid_out(gram[d:, :d], gram[:d, :d])


def of_client(rows: StoredRows, client: int, kappa: float, row_bound: float, slope_bound: float) -> Floats:
    """The sum over a client's records, by two products of matrices, (width,).

    Rows are divided by `row_bound` and cut to length 1, slopes are cut to `slope_bound`; with an infinite bound they
    are taken as they are.
    """
    x, s = _stored(rows, client)
    x = x if row_bound == math.inf else clip_rows(x / row_bound, 1.0)
    s = s if slope_bound == math.inf else clip_rows(s, slope_bound)
    gram = x.T @ x
    return moments.laid_out(s.T @ x, gram) * moments.weights(rows.dim, len(gram), kappa, 1.0)


def _stored(rows: StoredRows, client: int) -> tuple[Floats, Floats]:
    """Rows as they are, and minus the slopes of their losses at margin 0, (records, outputs)."""
    place = slice(rows.offsets[client], rows.offsets[client + 1])
    x, outputs = np.asarray(rows.X[place], dtype=np.float64), rows.loss.outputs
    nothing = np.zeros((len(x), outputs) if outputs > 1 else len(x))
    return x, -rows.loss.slope(nothing, rows.y[place]).reshape(len(x), outputs)
