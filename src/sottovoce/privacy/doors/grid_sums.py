"""Sums of clipped gradients, and of moments, as whole numbers on a grid."""

import numpy as np

from sottovoce.core import check, moments
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy.doors.base import ExactOracle

_AT_ONCE = 1 << 21  # numbers of single gradients that are held at a time


def gradient_sums(
    exact: ExactOracle,
    points: np.ndarray,
    local: np.ndarray,
    drawn: np.ndarray | None,
    clip: float,
    norm: int,
    shares: np.ndarray,
) -> np.ndarray:
    """For each client (and run): the sum of its records' clipped gradients at its point, each truncated, (..., dim).

    A gradient has at most GRID_STEPS steps; it is multiplied by its client's `share`, at most 1, before that. `drawn`
    says which records count, clients end to end; None: all of them.

    All records of a client are computed, in pieces that depend on public sizes alone, and those that were not drawn
    are left out afterwards. Else a record's last bits, and with them whole grid steps, could depend on who else is in
    the batch: products of matrices round differently for other shapes. (The compiled engine takes row by row, and has
    nothing to leave out.)
    """
    most = float(mechanisms.GRID_BOUND) if norm == 1 else mechanisms.LARGEST_SQUARE
    factors = mechanisms.GRID_STEPS / clip * shares[local, 0]
    sums = exact.truncated_sums(points, local, clip, norm, factors, most, drawn)
    if sums is not None:
        return sums
    sums = np.zeros(points.shape, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(exact.sizes[local])])
    for place in np.ndindex(points.shape[:-1]):
        client = int(local[place[-1]])
        rows: np.ndarray = np.arange(int(exact.sizes[client]))
        in_batch = None if drawn is None else drawn[(*place[:-1], slice(starts[place[-1]], starts[place[-1] + 1]))]
        for some in np.array_split(rows, max(1, len(rows) * exact.dim // _AT_ONCE)):
            piece = slice(int(some[0]), int(some[-1]) + 1)
            examples = exact.clipped_examples(points[place], client, clip, norm, piece)
            chosen = examples if in_batch is None else examples[in_batch[piece]]
            share = float(shares[client, 0])
            sums[place] += mechanisms.grid_sum(chosen if share == 1 else chosen * share, clip, norm)
    return sums


def moment_sums(
    exact: ExactOracle, local: np.ndarray, kappa: float, bounds: tuple[float, float], shares: np.ndarray
) -> np.ndarray:
    """For each client: the sum of its records' moments in grid steps, (clients, width).

    `bounds`, on rows and on slopes, are those of `core/moments.py`; the moments of a record have at most GRID_STEPS
    steps, times its client's share.

    Sums of exact products are multiplied by a number for each coordinate and rounded, once for all records. So two
    neighbours' differ by what one record moves them (`moments.sensitivity`) and by less than two steps in each
    coordinate: no number has more than MOST_RECORDS · GRID_STEPS = 2^46 steps, so three roundings in floating point
    move it by less than 2^-5 steps, and rounding to whole steps by half a step.
    """
    totals, longest = exact.whole_moments(local, *bounds), float(np.hypot(bounds[1], kappa))
    columns = exact.dim // exact.loss.outputs
    steps = moments.weights(exact.dim, columns, kappa, bounds[1]) / longest * mechanisms.GRID_STEPS / moments.STEPS**2
    return in_steps(totals, steps * shares[local])


def in_steps(totals: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Whole numbers of up to 62 bits times `steps`, rounded; those of up to 2^46 are off by at most 1/2 + 2^-6."""
    return np.rint(totals * steps).astype(np.int64)


def must_be_few(sizes: np.ndarray) -> None:
    """Refuse clients with more records than exact sums of moments have room for. Ask before anything is charged."""
    rule = "moments on a grid may be of at most 2^22 records of each client"
    check.require(int(sizes.max(initial=0)) <= moments.MOST_RECORDS, "Proven", rule, int(sizes.max(initial=0)))
