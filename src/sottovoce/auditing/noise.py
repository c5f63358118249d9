"""Is the noise that was added the noise that was promised? Tests of standardised noise, each with a bound on error.

z = (answer − exact answer) / promised scale is an array (runs, questions, clients, coordinates). If all is as promised
its numbers are independent, standard normal (or Laplace of scale 1), and independent of the exact answers. Every test
here gives a probability that honest noise looks as bad as what was seen, times the number of comparisons that were
made (Bonferroni), so that a small one is evidence however many numbers were looked at.

Whether noise is related to other noise, or to an answer, is tested by signs alone: given the sizes |z|, the signs of
honest noise are fair coins, and Hoeffding's inequality bounds P(|Σ ±a_i| >= t) by 2 exp(−t² / (2 Σ a_i²)).
"""

import math
from dataclasses import dataclass

import numpy as np

AXES = {"runs": 0, "rounds and questions": 1, "clients": 2, "coordinates": 3}
SAME = 1e-8  # noise vectors that differ by less, in every coordinate, are one and the same


@dataclass(frozen=True)
class Outcome:
    """One test: what was seen in words, what is promised, and how likely honest noise is to look that bad."""

    name: str
    seen: str
    promised: str
    p: float


def look(z: np.ndarray, exact: np.ndarray, kind: str) -> list[Outcome]:
    """All tests of noise of this kind ("gaussian" or "laplace"); `exact` are the answers it was added to."""
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
    from scipy.stats import chi2, gamma

    sizes = np.abs(z) if kind == "laplace" else np.square(z)
    others = tuple(axis for axis in range(4) if axis not in of)
    sums, count = np.atleast_1d(sizes.sum(axis=others)), math.prod(z.shape[axis] for axis in others)
    law = gamma(count) if kind == "laplace" else chi2(count)
    p = 2 * np.minimum(law.cdf(sums), law.sf(sums)).min() * sums.size
    found = sums / count if kind == "laplace" else np.sqrt(sums / count)
    seen = f"{found.min():.3f}" if not of else f"{found.min():.3f} to {found.max():.3f}"
    return Outcome(name, f"{seen} times it", "as promised (1)", _probability(p))


def centre(z: np.ndarray) -> Outcome:
    """Of each client's each coordinate: noise must not pull an answer to one side."""
    flat = np.moveaxis(z, (2, 3), (0, 1)).reshape(z.shape[2] * z.shape[3], -1)
    means = flat.mean(axis=1)
    p = _coins(flat.sum(axis=1), np.square(flat).sum(axis=1)).min() * len(flat)
    return Outcome("mean of the noise", f"at most {np.abs(means).max():.3f}", "0", _probability(p))


def law(z: np.ndarray, kind: str) -> Outcome:
    """Kolmogorov and Smirnov's test of all numbers at once."""
    from scipy.stats import kstest

    promised = "laplace" if kind == "laplace" else "norm"
    found = kstest(z.ravel(), promised, method="asymp")
    words = "Laplace" if kind == "laplace" else "normal"
    return Outcome(
        "law of the noise", f"distance {found.statistic:.4f} from {words}", words, _probability(found.pvalue)
    )


def repeats(z: np.ndarray) -> Outcome | None:
    """Whether any two noise vectors are the same, or opposite: of whatever rounds, questions, clients and runs."""
    vectors = z.reshape(-1, z.shape[-1])
    if vectors.shape[1] == 1:  # single numbers come near each other by chance: a run's noise is taken as one vector
        vectors = z.reshape(len(z), -1)
    both = np.concatenate([vectors, -vectors])
    owner = np.concatenate([np.arange(len(vectors))] * 2)
    order = np.argsort(both[:, 0], kind="stable")
    both, owner = both[order], owner[order]
    same: set[int] = set()
    for gap in (1, 2, 3):  # neighbours in the order of the first coordinate: of many copies some are next to each other
        close = np.all(np.abs(both[gap:] - both[:-gap]) < SAME, axis=1) & (owner[gap:] != owner[:-gap])
        same.update(owner[gap:][close].tolist())
    count = len(same)
    pairs, numbers = len(both) ** 2 / 2, both.shape[1]
    chance = pairs * (2 * SAME * 0.5) ** numbers  # 0.5: no density here is larger
    words = "none" if count == 0 else f"{count} of {len(vectors)} vectors"
    return Outcome("noise used more than once", words, "none", _probability(chance if count else 1.0))


def related(z: np.ndarray, axis: str) -> Outcome:
    """Whether noise of two places on an axis goes together, or against each other."""
    flat = np.moveaxis(z, AXES[axis], 0).reshape(z.shape[AXES[axis]], -1)
    sums, squares = flat @ flat.T, np.square(flat) @ np.square(flat).T
    upper = np.triu_indices(len(flat), 1)
    lengths = np.linalg.norm(flat, axis=1)
    correlations = (sums / np.maximum(np.outer(lengths, lengths), 1e-300))[upper]
    p = _coins(sums[upper], squares[upper]).min() * len(upper[0])
    return Outcome(
        f"noise of different {axis}", f"correlation at most {np.abs(correlations).max():.3f}", "none", _probability(p)
    )


def with_answer(z: np.ndarray, exact: np.ndarray) -> Outcome | None:
    """Whether noise goes together with the answer it should hide, in each question."""
    answers = np.broadcast_to(exact, z.shape)
    answers = np.moveaxis(answers, 1, 0).reshape(z.shape[1], -1)
    size = np.abs(answers).max(axis=1, keepdims=True)
    if not size.any():
        return None
    products = np.moveaxis(z, 1, 0).reshape(z.shape[1], -1) * (answers / np.where(size > 0, size, 1.0))
    squares = np.square(products).sum(axis=1)
    together = np.abs(products.sum(axis=1)) / np.sqrt(np.where(squares > 0, squares, 1.0))
    p = _coins(products.sum(axis=1), squares).min() * len(products)
    return Outcome(
        "noise and exact answer", f"at most {together.max():.1f} deviations together", "unrelated", _probability(p)
    )


def _coins(sums: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Hoeffding's bound for sums of numbers with fair signs, given their squares."""
    return 2 * np.exp(-np.square(sums) / (2 * np.where(squares > 0, squares, 1.0)))


def _probability(p: float) -> float:
    return float(min(max(p, 0.0), 1.0)) if not math.isnan(p) else 0.0
