"""From samples to a lower bound on epsilon, at 95 % confidence unless told otherwise.

Whatever the statistic, it is chosen on some of the runs, the pilot, and its bound is taken on others, so that the bound
holds whatever the choice was. Probabilities are bounded by Clopper and Pearson's intervals.

* The true likelihood ratio of each run is known: `epsilon_from_ratios`.
* Any score of what was seen: `epsilon_from_seen` learns a linear one, guesses the data set of runs with a very large or
  a very small score, and counts how often that is right: `epsilon_from_guesses`.

The inequality behind all of them: P(A) <= e^epsilon Q(A) + delta for every event A and the laws P, Q of neighbours.
"""

import math
from dataclasses import dataclass

import numpy as np

from sottovoce.core import check

CONFIDENCE = 0.95
_ENOUGH = 10  # hits on the pilot, so that a threshold is almost surely met again
_THRESHOLDS = 64  # tried on the pilot


def at_least(hits: np.ndarray | int, n: np.ndarray | int, confidence: float = CONFIDENCE) -> np.ndarray:
    """The probability behind `hits` of `n` is at least this, with one-sided `confidence`."""
    from scipy.stats import beta

    hits = np.asarray(hits, dtype=np.float64)
    return np.where(hits > 0, beta.ppf(1 - confidence, np.maximum(hits, 1), n - hits + 1), 0.0)


def epsilon_from_ratios(first: np.ndarray, second: np.ndarray, delta: float, confidence: float = CONFIDENCE) -> float:
    """A lower bound on epsilon from *true* log likelihood ratios, each of the data set played over its neighbour.

    Where the ratio is known, A = {ratio >= t} has Q(A) <= e^-t P(A), and only P(A) is left to be bounded:
    epsilon >= t + log(1 - delta/P(A)). So a few runs can show an epsilon far beyond the logarithm of their number.
    """
    best = max((_ratio_side(side, delta, confidence) for side in (first, second)), key=lambda found: found[0])
    _, threshold, tested = best
    if threshold is None:
        return 0.0
    return max(0.0, float(_ratio_bound(threshold, (tested >= threshold).sum(), len(tested), delta, confidence)))


def _ratio_side(ratios: np.ndarray, delta: float, confidence: float) -> tuple[float, float | None, np.ndarray]:
    """The pilot's own bound, the threshold it would take, and the half that is left to test it on."""
    pilot, tested = _halves(ratios)
    if len(pilot) == 0 or len(tested) == 0:
        return -math.inf, None, tested
    ordered = np.sort(pilot)[::-1]
    counts = _counts(len(ordered))
    counts = counts[counts >= min(_ENOUGH, len(ordered))]
    bounds = _ratio_bound(ordered[counts - 1], counts, len(ordered), delta, confidence)
    place = int(np.argmax(bounds))
    return float(bounds[place]), float(ordered[counts[place] - 1]), tested


def _ratio_bound(
    threshold: np.ndarray | float, hits: np.ndarray, n: int, delta: float, confidence: float
) -> np.ndarray:
    probable = at_least(hits, n, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.log1p(-delta / probable)
        return np.where(probable > delta, threshold + lost, -np.inf)


def epsilon_from_guesses(right: int, guesses: int, runs: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """A lower bound on epsilon from `right` of `guesses`, made on some of `runs` independent runs.

    In each run a fair coin chose the data set, and an observer guessed it or said nothing. Adding up the two
    inequalities of (epsilon, delta)-privacy, for "guesses the first" and "guesses the second", with c and w the
    probabilities of a right and of a wrong guess: c - delta <= e^epsilon w. Among guesses the share of right ones
    bounds c/w; c itself, which only matters next to delta, gets a tenth of what the confidence leaves.
    """
    if right == 0 or guesses == 0:
        return 0.0
    left = 1 - confidence
    share, often = float(at_least(right, guesses, 1 - 0.9 * left)), float(at_least(right, runs, 1 - 0.1 * left))
    if often <= delta or share == 0:
        return 0.0
    return max(0.0, math.log(share) - math.log1p(-share) + math.log1p(-delta / often))


def epsilon_from_seen(
    first: np.ndarray, second: np.ndarray, delta: float, confidence: float = CONFIDENCE, seed: int = 0
) -> float:
    """A lower bound on epsilon from what was seen on two data sets, (runs, numbers) each, runs in independent order.

    Linear scores are learnt on a quarter of the runs, one of them and when to guess are chosen on the next quarter,
    and the guesses are made on the half that is left. The first half of `first` and `second` may share their noise
    (which makes the learning better), the second half must not.
    """
    (pilot, tested), (pilot_other, tested_other) = _halves(first), _halves(second)
    (learnt, chosen), (learnt_other, chosen_other) = _halves(pilot), _halves(pilot_other)
    if min(len(learnt), len(learnt_other)) < 8:
        return 0.0
    best, score, rule = -1.0, None, (math.inf, -math.inf)
    for candidate in learn_scores(learnt, learnt_other):
        promised, limits = _choose(candidate(chosen), candidate(chosen_other), confidence)
        if promised > best:
            best, score, rule = promised, candidate, limits
    assert score is not None
    sides, scores = _fair_coins(score(tested), score(tested_other), np.random.default_rng(seed))
    up, down = scores >= rule[0], scores <= rule[1]
    right = int((sides & up).sum() + (~sides & down).sum())
    return epsilon_from_guesses(right, int(up.sum() + down.sum()), len(scores), delta, confidence)


def _choose(first: np.ndarray, second: np.ndarray, confidence: float) -> tuple[float, tuple[float, float]]:
    """From which score on to guess the first data set, and up to which the second; and what that promises.

    As many guesses of each, or of one alone. What looks best among many tries by luck must not be taken for good.
    """
    n = len(first) + len(second)
    scores, counts = np.sort(np.concatenate([first, second])), _counts(n // 2)
    none = np.full(len(counts), np.inf)
    ups, downs = scores[n - counts], scores[counts - 1]
    ups, downs = np.concatenate([ups, ups, none]), np.concatenate([downs, -none, downs])
    ordered, ordered_other = np.sort(first), np.sort(second)
    above, above_other = (len(s) - np.searchsorted(s, ups) for s in (ordered, ordered_other))
    below, below_other = (np.searchsorted(s, downs, side="right") for s in (ordered, ordered_other))
    right = above + below_other
    guesses = right + above_other + below
    careful = 1 - (1 - confidence) / len(ups)
    share = np.where((guesses > 0) & (ups > downs), at_least(right, np.maximum(guesses, 1), careful), 0.0)
    best = int(np.argmax(share))
    return float(share[best]), (float(ups[best]), float(downs[best]))


def _fair_coins(first: np.ndarray, second: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(whether of the first, score) of runs whose data set was, in effect, chosen by a fair coin: some are left out.

    So few that it hardly matters, and enough that the coins almost never ask for more runs than there are of a side;
    when they do, nothing is returned, which is a bound too.
    """
    n = min(len(first), len(second))
    total = max(0, 2 * n - math.ceil(4 * math.sqrt(2 * n)))
    heads = int(rng.binomial(total, 0.5))
    if heads > n or total - heads > n:
        total = heads = 0
    return np.arange(total) < heads, np.concatenate([first[:heads], second[: total - heads]])


def _halves(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = len(sample) // 2
    return sample[:middle], sample[middle:]


def _counts(n: int) -> np.ndarray:
    """How many of the n largest to call hits: all small numbers, then ever wider steps."""
    return np.unique(np.rint(np.geomspace(1, n, min(n, _THRESHOLDS))).astype(np.int64))


@dataclass(frozen=True)
class LinearScore:
    """weights · (what was seen): learnt on pilot runs, used on others."""

    centre: np.ndarray
    weights: np.ndarray

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        return (seen - self.centre) @ self.weights


def learn_scores(first: np.ndarray, second: np.ndarray) -> list[LinearScore]:
    """Fisher's discriminant of two samples (runs, numbers), with the common covariance and with either one's.

    The latter two find a direction in which one side does not vary at all, which the common one averages away.
    """
    check.require(first.shape[1:] == second.shape[1:], "audit", "both sides must show the same numbers", first.shape)
    means = [side.mean(axis=0) for side in (first, second)]
    size = np.sqrt((first.var(axis=0) + second.var(axis=0)) / 2) + 1e-300
    own = [np.cov(side / size, rowvar=False, ddof=0).reshape(len(size), len(size)) for side in (first, second)]
    apart = (means[0] - means[1]) / size
    scores = []
    for covariance in (sum(own) / 2, *own):
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 1e-9 * max(values[-1], 1e-300))
        weights = vectors @ ((vectors.T @ apart) / values)
        length = np.linalg.norm(weights)
        scores.append(LinearScore((means[0] + means[1]) / 2, weights / (length if length > 0 else 1.0) / size))
    return scores
