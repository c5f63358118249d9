"""Statistical tests of noise and batches against what is promised, each with a bound on its error.

Noise: z = (answer − exact answer) / promised scale is an array (runs, questions, clients, coordinates). If all is as
promised, its numbers are independent, standard normal (or Laplace of scale 1), and independent of the exact answers.
Every test returns the probability that honest noise looks this bad, times the number of comparisons (Bonferroni). So
a small probability is evidence, however many numbers were compared. Whether noise is related to other noise, or to an
answer, is tested by signs alone: given the sizes |z|, the signs of honest noise are fair coins, and Hoeffding's
inequality bounds P(|Σ ±a_i| >= t) by 2 exp(−t² / (2 Σ a_i²)).

Batches: `drawn` is an array of bool (runs, questions, clients, records). Each record is drawn at a promised rate, each
on its own (Poisson) or equally many in every batch (fixed size), and every question of every client in every run has a
new batch. Sums of independent bounded numbers are compared with Bernstein's inequality, so that the stated error is
never exceeded.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, chi2, gamma, kstest

AXES = {"runs": 0, "rounds and questions": 1, "clients": 2, "coordinates": 3}
FALSE_ALARM = 1e-6  # probability that one audit, with all its tests, accuses an honest library
SAME = 1e-8  # numbers of two noise vectors that are closer count as equal


@dataclass(frozen=True)
class Outcome:
    """One test: what was seen, what is promised, and the probability `p` that honest noise looks this bad."""

    name: str
    seen: str
    promised: str
    p: float


def of_noise(z: np.ndarray, exact: np.ndarray, kind: str) -> list[Outcome]:
    """All tests of noise of this kind ("gaussian" or "laplace"), which was added to the answers `exact`."""
    outcomes = [
        scale(z, kind, (), "size of the noise"),
        scale(z, kind, (2, 3), "size of the noise, per client and coordinate"),
        scale(z, kind, (1,), "size of the noise, per question"),
        centre(z),
        law(z, kind),
        repeats(z),
        *(related(z, name) for name, axis in AXES.items() if z.shape[axis] > 1),
        with_answer(z, exact),
    ]
    return [one for one in outcomes if one is not None]


def scale(z: np.ndarray, kind: str, of: tuple[int, ...], name: str) -> Outcome:
    """Σ z² is chi-squared; Σ |z| of Laplace numbers has a gamma distribution. One sum for each place on axes `of`."""
    sizes = np.abs(z) if kind == "laplace" else np.square(z)
    others = tuple(axis for axis in range(4) if axis not in of)
    sums, count = np.atleast_1d(sizes.sum(axis=others)), math.prod(z.shape[axis] for axis in others)
    law = gamma(count) if kind == "laplace" else chi2(count)
    p = 2 * np.minimum(law.cdf(sums), law.sf(sums)).min() * sums.size
    ratio = sums / count if kind == "laplace" else np.sqrt(sums / count)
    seen = f"{ratio.min():.3f}" if not of else f"{ratio.min():.3f} to {ratio.max():.3f}"
    return Outcome(name, f"{seen} times it", "as promised (1)", _probability(p))


def centre(z: np.ndarray) -> Outcome:
    """The mean at each coordinate of each client: noise must not pull an answer to one side."""
    flat = np.moveaxis(z, (2, 3), (0, 1)).reshape(z.shape[2] * z.shape[3], -1)
    p = _coins(flat.sum(axis=1), np.square(flat).sum(axis=1)).min() * len(flat)
    return Outcome("mean of the noise", f"at most {np.abs(flat.mean(axis=1)).max():.3f}", "0", _probability(p))


def law(z: np.ndarray, kind: str) -> Outcome:
    """The Kolmogorov-Smirnov test of all numbers together."""
    name, words = ("laplace", "Laplace") if kind == "laplace" else ("norm", "normal")
    test = kstest(z.ravel(), name, method="asymp")
    seen = f"distance {test.statistic:.4f} from {words}"
    return Outcome("distribution of the noise", seen, words, _probability(test.pvalue))


def repeats(z: np.ndarray, same: float = SAME) -> Outcome:
    """Whether any two noise vectors, of any rounds, questions, clients and runs, are equal or opposite.

    `same`: vectors that differ by less, in every coordinate, count as equal.
    """
    vectors = z.reshape(-1, z.shape[-1])
    if vectors.shape[1] == 1:  # single numbers are close by chance: then all noise of a run is one vector
        vectors = z.reshape(len(z), -1)
    both = np.concatenate([vectors, -vectors])
    owner = np.concatenate([np.arange(len(vectors))] * 2)
    order = np.argsort(both[:, 0], kind="stable")
    both, owner = both[order], owner[order]
    copied: set[int] = set()
    for gap in (1, 2, 3):  # next to each other in the order of the first coordinate: some of many copies are
        close = np.all(np.abs(both[gap:] - both[:-gap]) < same, axis=1) & (owner[gap:] != owner[:-gap])
        copied.update(owner[gap:][close].tolist())
    count = len(copied)
    chance = len(both) ** 2 / 2 * (2 * same * 0.5) ** both.shape[1]  # of all pairs; 0.5: no density here is larger
    words = "none" if count == 0 else f"{count} of {len(vectors)} vectors"
    return Outcome("noise used more than once", words, "none", _probability(chance if count else 1.0))


def related(z: np.ndarray, axis: str) -> Outcome:
    """Whether the noise of any two places on an axis is correlated."""
    flat = np.moveaxis(z, AXES[axis], 0).reshape(z.shape[AXES[axis]], -1)
    sums, squares = flat @ flat.T, np.square(flat) @ np.square(flat).T
    upper = np.triu_indices(len(flat), 1)
    lengths = np.linalg.norm(flat, axis=1)
    correlations = (sums / np.maximum(np.outer(lengths, lengths), 1e-300))[upper]
    p = _coins(sums[upper], squares[upper]).min() * len(upper[0])
    seen = f"correlation at most {np.abs(correlations).max():.3f}"
    return Outcome(f"noise of different {axis}", seen, "none", _probability(p))


def fair_bits(ones: np.ndarray, count: int) -> Outcome:
    """Whether each low bit of `count` whole numbers is 1 as often as 0. `ones`: how often each was 1."""
    share = ones / max(count, 1)
    p = 2 * len(ones) * math.exp(-2 * count * float(np.abs(share - 0.5).max()) ** 2)  # Hoeffding
    seen = f"{share.min():.3f} to {share.max():.3f} of them are 1"
    return Outcome(f"last {len(ones)} bits of answers", seen, "one half", _probability(p))


def with_answer(z: np.ndarray, exact: np.ndarray) -> Outcome | None:
    """Whether noise is correlated with the answer that it should hide, in each question."""
    answers = np.broadcast_to(exact, z.shape)
    answers = np.moveaxis(answers, 1, 0).reshape(z.shape[1], -1)
    size = np.abs(answers).max(axis=1, keepdims=True)
    if not size.any():
        return None
    products = np.moveaxis(z, 1, 0).reshape(z.shape[1], -1) * (answers / np.where(size > 0, size, 1.0))
    squares = np.square(products).sum(axis=1)
    together = np.abs(products.sum(axis=1)) / np.sqrt(np.where(squares > 0, squares, 1.0))
    p = _coins(products.sum(axis=1), squares).min() * len(products)
    seen = f"at most {together.max():.1f} deviations together"
    return Outcome("noise and exact answer", seen, "unrelated", _probability(p))


def _coins(sums: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Hoeffding's bound for sums of numbers with fair signs, given their squares."""
    return 2 * np.exp(-np.square(sums) / (2 * np.where(squares > 0, squares, 1.0)))


def _probability(p: float) -> float:
    return float(min(max(p, 0.0), 1.0)) if not math.isnan(p) else 0.0


# ------------------------------------------------------------------------------------------------------------ batches


def of_batches(drawn: np.ndarray, rate: float, fixed: bool) -> list[Outcome]:
    """All tests of batches that hold each record with probability `rate`, all of one size if `fixed`."""
    axes = ("runs", "rounds and questions", "clients")
    redrawn = [redrawn_along(drawn, rate, fixed, axis) for axis in axes if drawn.shape[AXES[axis]] > 1]
    return [inclusion(drawn, rate), sizes(drawn, rate, fixed), *redrawn]


def inclusion(drawn: np.ndarray, rate: float) -> Outcome:
    """How often each record of each client was drawn: a binomial count."""
    batches = drawn.shape[0] * drawn.shape[1]
    hits = drawn.sum(axis=(0, 1))
    p = 2 * np.minimum(binom.cdf(hits, batches, rate), binom.sf(hits - 1, batches, rate)).min() * hits.size
    shares = hits / batches
    seen = f"{drawn.mean():.4f}; of single records {shares.min():.3f} to {shares.max():.3f}"
    # The mean of all records is a stronger test than the count of any of them.
    together = bernstein(float(drawn.sum() - rate * drawn.size), drawn.size * rate * (1 - rate), drawn.shape[-1])
    return Outcome("share of records drawn", seen, f"{rate:.4f} each", min(1.0, float(p), 2 * together))


def sizes(drawn: np.ndarray, rate: float, fixed: bool) -> Outcome:
    """Whether all batches have one size, or sizes that vary like binomial counts."""
    counts, records = drawn.sum(axis=-1).ravel(), drawn.shape[-1]
    seen = f"{counts.min()} to {counts.max()} records"
    if fixed:
        wanted = round(rate * records)
        return Outcome("size of batches", seen, f"always {wanted}", 1.0 if (counts == wanted).all() else 0.0)
    spread = np.square(counts - rate * records)
    variance, kurtosis = map(float, binom.stats(records, rate, moments="vk"))
    fourth = (kurtosis + 3) * variance**2
    excess = float(spread.sum() - len(counts) * variance)
    p = bernstein(excess, len(counts) * (fourth - variance**2), records**2)
    if excess < 0:  # squares are not negative, so a sum that is far too small is even less likely
        p = min(p, math.exp(-(excess**2) / (2 * len(counts) * fourth)))
    words = f"{seen}, deviation {math.sqrt(spread.mean()):.2f}"
    return Outcome("size of batches", words, f"binomial, deviation {math.sqrt(variance):.2f}", p)


def redrawn_along(drawn: np.ndarray, rate: float, fixed: bool, axis: str) -> Outcome:
    """How many records two batches have in common, for each pair of places on an axis."""
    records = drawn.shape[-1]
    batches = np.moveaxis(drawn, AXES[axis], 0).reshape(drawn.shape[AXES[axis]], -1).astype(np.float64) - rate
    common = (batches @ batches.T)[np.triu_indices(len(batches), 1)]
    variance = rate * (1 - rate)
    # Of two batches of fixed size the records in common have a hypergeometric number.
    each = records * variance**2 * (records / (records - 1) if fixed and records > 1 else 1.0)
    pairs = batches.shape[1] / records
    # The largest term of the sum: records are independent, or with a fixed size only batches.
    largest = records * variance if fixed else max(rate, 1 - rate) ** 2
    p = max(1, len(common)) * bernstein(float(np.abs(common).max()), pairs * each, largest)
    share = (common / batches.shape[1] + rate**2) / rate
    seen = f"{share.min():.3f} to {share.max():.3f} of a batch in common"
    return Outcome(f"batches of different {axis}", seen, f"{rate:.3f}: drawn anew", min(1.0, p))


def bernstein(excess: float, variance: float, largest: float) -> float:
    """An upper bound on P(|sum| >= |excess|) for independent numbers of mean 0, whose variances add up to `variance`
    and none of which is larger than `largest`."""
    return min(1.0, 2 * math.exp(-(excess**2) / (2 * (variance + largest * abs(excess) / 3)) if excess else 0.0))
