"""Were the batches that were drawn the batches that were promised? Tests of who was in which batch.

`drawn` is an array of bool (runs, questions, clients, records). Promised is a rate for each record: each on its own
(Poisson), or as many records in every batch (fixed size); and a new batch for every question, client and run. Sums of
independent bounded numbers are held against Bernstein's inequality, so that the stated error is never exceeded.
"""

import math

import numpy as np

from sottovoce.auditing.noise import AXES, Outcome


def look(drawn: np.ndarray, rate: float, fixed: bool) -> list[Outcome]:
    """All tests of batches that hold each record with probability `rate`, all of one size if `fixed`."""
    axes = ("runs", "rounds and questions", "clients")
    redrawn = [redrawn_along(drawn, rate, fixed, axis) for axis in axes if drawn.shape[AXES[axis]] > 1]
    return [inclusion(drawn, rate), sizes(drawn, rate, fixed), *redrawn]


def inclusion(drawn: np.ndarray, rate: float) -> Outcome:
    """How often each record of each client was drawn: a binomial count."""
    from scipy.stats import binom

    batches = drawn.shape[0] * drawn.shape[1]
    hits = drawn.sum(axis=(0, 1))
    p = 2 * np.minimum(binom.cdf(hits, batches, rate), binom.sf(hits - 1, batches, rate)).min() * hits.size
    found = hits / batches
    seen = f"{drawn.mean():.4f}; of single records {found.min():.3f} to {found.max():.3f}"
    # The mean of all is sharper than any record's own count.
    together = bernstein(float(drawn.sum() - rate * drawn.size), drawn.size * rate * (1 - rate), drawn.shape[-1])
    return Outcome("share of records drawn", seen, f"{rate:.4f} each", min(1.0, float(p), 2 * together))


def sizes(drawn: np.ndarray, rate: float, fixed: bool) -> Outcome:
    """All batches of one size, or of a size that varies as binomial counts do."""
    from scipy.stats import binom

    counts, records = drawn.sum(axis=-1).ravel(), drawn.shape[-1]
    seen = f"{counts.min()} to {counts.max()} records"
    if fixed:
        wanted = round(rate * records)
        return Outcome("size of batches", seen, f"always {wanted}", 1.0 if (counts == wanted).all() else 0.0)
    spread = np.square(counts - rate * records)
    moments = binom.stats(records, rate, moments="vk")
    variance = float(moments[0])
    fourth = (float(moments[1]) + 3) * variance**2
    excess = float(spread.sum() - len(counts) * variance)
    p = bernstein(excess, len(counts) * (fourth - variance**2), records**2)
    if excess < 0:  # squares are not negative, so that a sum far too small is less likely still
        p = min(p, math.exp(-(excess**2) / (2 * len(counts) * fourth)))
    words = f"{seen}, deviation {math.sqrt(spread.mean()):.2f}"
    return Outcome("size of batches", words, f"binomial, deviation {math.sqrt(variance):.2f}", p)


def redrawn_along(drawn: np.ndarray, rate: float, fixed: bool, axis: str) -> Outcome:
    """How many records two batches have in common, for every pair of places on an axis."""
    records = drawn.shape[-1]
    batches = np.moveaxis(drawn, AXES[axis], 0).reshape(drawn.shape[AXES[axis]], -1).astype(np.float64) - rate
    upper = np.triu_indices(len(batches), 1)
    common = (batches @ batches.T)[upper]
    variance = rate * (1 - rate)
    # Of two batches of fixed size the records in common have a hypergeometric number.
    each = records * variance**2 * (records / (records - 1) if fixed and records > 1 else 1.0)
    pairs = batches.shape[1] / records
    # Independent are records, or else batches: how much can one of them count for at most?
    largest = records * variance if fixed else max(rate, 1 - rate) ** 2
    p = max(1, len(common)) * bernstein(float(np.abs(common).max()), pairs * each, largest)
    share = (common / batches.shape[1] + rate**2) / rate
    seen = f"{share.min():.3f} to {share.max():.3f} of a batch in common"
    return Outcome(f"batches of different {axis}", seen, f"{rate:.3f}: drawn anew", min(1.0, p))


def bernstein(excess: float, variance: float, largest: float) -> float:
    """P(|sum of independent numbers of mean 0| >= |excess|) at most: their variances add up to `variance`, and none is
    larger than `largest`."""
    return min(1.0, 2 * math.exp(-(excess**2) / (2 * (variance + largest * abs(excess) / 3)) if excess else 0.0))
