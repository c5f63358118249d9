"""From sampled runs to a lower bound on epsilon, by default with 95 % confidence.

The statistic is chosen on some of the runs, the pilot, and its bound is taken on the others, so that the bound holds
whatever was chosen. Probabilities are bounded by Clopper and Pearson's intervals.

* If the true likelihood ratio of each run is known: `epsilon_from_ratios`.
* For any score of the messages: `epsilon_from_seen` learns a linear score, guesses the data set of the runs with a very
  large or a very small score, and counts the right guesses: `epsilon_from_guesses`. `by_score` plays these runs. It
  trusts nothing but the messages.

The inequality behind all of them: P(A) <= e^epsilon Q(A) + delta for every event A, P and Q being the distributions
under the two neighbours.
"""

import math

import numpy as np
from scipy.stats import beta

from sottovoce.auditing.finding import Finding, conclude
from sottovoce.auditing.game import Game, Heard, Player, Sampling, in_turns, streams_of
from sottovoce.core import check

CONFIDENCE = Sampling.confidence
_ENOUGH = 10  # hits on the pilot, so that a threshold is almost surely reached again
_THRESHOLDS = 64  # tried on the pilot


def by_score(game: Game, sampling: Sampling) -> Finding | None:
    """A bound from a score of the messages, learnt on pilot runs."""
    at_once = min(game.at_once, max(16, sampling.runs // 4))
    players = [Player(game, side, at_once, sampling.runs) for side in (0, 1)]
    row = game.neighbours.row
    directions = None if row is None else np.kron(np.eye(game.objective.loss.outputs), row)
    pilot: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    tested: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])

    def messages(side: int, what: str) -> np.ndarray:
        heard = Heard(at_once, game.neighbours.client, directions)
        players[side].play(streams_of(sampling.seed, what, at_once), heard)
        return heard.numbers()

    def play(side: int, turn: int) -> bool:
        """As many pilot runs, which share their noise so that differences show, as runs to test on, which do not."""
        both = messages(side, f"pilot {turn}"), messages(side, f"score {turn} {side}")
        pilot[side].append(both[0])
        tested[side].append(both[1])
        return True

    played, interrupted = in_turns(play, 2 * at_once, sampling.runs, sampling.progress)
    turns = played // (4 * at_once)  # an interrupted turn is left out
    first, second = (np.concatenate(pilot[side][:turns] + tested[side][:turns]) for side in (0, 1))
    useful = np.any(np.abs(first - first[:1]) > 0, axis=0) | np.any(first[:1] != second[:1], axis=0)

    def bound(_: slice, delta: float) -> float:
        return epsilon_from_seen(first[:, useful], second[:, useful], delta, sampling.confidence)

    evidence = f"every upload of the client and every broadcast, along the record, {game.rounds} rounds"
    return conclude(game, "score", evidence, played, bound, "none", sampling.confidence, interrupted)


# ------------------------------------------------------------------------------------------------------------- bounds


def at_least(hits: np.ndarray | int, n: np.ndarray | int, confidence: float = CONFIDENCE) -> np.ndarray:
    """The probability behind `hits` of `n` is at least this, with one-sided `confidence`."""
    hits = np.asarray(hits, dtype=np.float64)
    return np.where(hits > 0, beta.ppf(1 - confidence, np.maximum(hits, 1), n - hits + 1), 0.0)


def epsilon_from_ratios(first: np.ndarray, second: np.ndarray, delta: float, confidence: float = CONFIDENCE) -> float:
    """A lower bound on epsilon from *true* log likelihood ratios, each of the data set played over its neighbour.

    If the ratio is known, A = {ratio >= t} has Q(A) <= e^-t P(A), and only P(A) must be bounded: epsilon >=
    t + log(1 - delta/P(A)). So a few runs can show an epsilon far above the logarithm of their number.
    """
    sides = [_ratio_side(side, delta, confidence) for side in (first, second) if len(side) > 1]
    if not sides:
        return 0.0
    _, threshold, tested = max(sides, key=lambda side: side[0])
    return max(0.0, float(_ratio_bound(threshold, (tested >= threshold).sum(), len(tested), delta, confidence)))


def _ratio_side(ratios: np.ndarray, delta: float, confidence: float) -> tuple[float, float, np.ndarray]:
    """The bound on the pilot, the threshold that gives it, and the other half, to test it on."""
    pilot, tested = _halves(ratios)
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
        return np.where(probable > delta, threshold + np.log1p(-delta / probable), -np.inf)


def epsilon_from_guesses(right: int, guesses: int, runs: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """A lower bound on epsilon from `right` of `guesses`, made on some of `runs` independent runs.

    In each run a fair coin chose the data set, and an observer guessed it or said nothing. Add the two inequalities
    of (epsilon, delta)-privacy, for "guesses the first" and "guesses the second"; with c and w the probabilities of a
    right and of a wrong guess: c - delta <= e^epsilon w. Among guesses the share of right ones bounds c/w; c itself,
    which only matters next to delta, gets a tenth of the allowed error.
    """
    if right == 0 or guesses == 0:
        return 0.0
    error = 1 - confidence
    share, often = float(at_least(right, guesses, 1 - 0.9 * error)), float(at_least(right, runs, 1 - 0.1 * error))
    if often <= delta or share == 0:
        return 0.0
    return max(0.0, math.log(share) - math.log1p(-share) + math.log1p(-delta / often))


def epsilon_from_seen(
    first: np.ndarray, second: np.ndarray, delta: float, confidence: float = CONFIDENCE, seed: int = 0
) -> float:
    """A lower bound on epsilon from the messages on two data sets, (runs, numbers) each, runs in independent order.

    Linear scores are learnt on a quarter of the runs; one of them, and when to guess, is chosen on the next quarter;
    and the guesses are made on the second half. The first half of `first` and of `second` may share their noise (which
    improves the learning), the second half must not.
    """
    (pilot, tested), (pilot_other, tested_other) = _halves(first), _halves(second)
    (learnt, chosen), (learnt_other, chosen_other) = _halves(pilot), _halves(pilot_other)
    if min(len(learnt), len(learnt_other)) < 8:
        return 0.0
    centre = (learnt.mean(axis=0) + learnt_other.mean(axis=0)) / 2
    candidates = learn_scores(learnt, learnt_other)
    choices = [_choose((chosen - centre) @ w, (chosen_other - centre) @ w, confidence) for w in candidates]
    best = max(range(len(choices)), key=lambda place: choices[place][0])
    weights, (least, most) = candidates[best], choices[best][1]
    first_scores, second_scores = ((side - centre) @ weights for side in (tested, tested_other))
    sides, scores = _fair_coins(first_scores, second_scores, np.random.default_rng(seed))
    up, down = scores >= least, scores <= most
    right = int((sides & up).sum() + (~sides & down).sum())
    return epsilon_from_guesses(right, int(up.sum() + down.sum()), len(scores), delta, confidence)


def _choose(first: np.ndarray, second: np.ndarray, confidence: float) -> tuple[float, tuple[float, float]]:
    """The share of right guesses to expect, and the scores from which the first and the second data set are guessed.

    Equally many guesses of each, or only of one. The confidence is shared among all tries: the best may be luck.
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
    """(whether of the first, score) of runs whose data set a fair coin chose, in effect: some runs are left out.

    They are few, but enough that the coins almost never need more runs of a side than there are. If they do, nothing is
    returned: then the bound is 0.
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
    """How many of the n largest to count as hits: all small numbers, then wider and wider steps."""
    return np.unique(np.rint(np.geomspace(1, n, min(n, _THRESHOLDS))).astype(np.int64))


def learn_scores(first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """The weights of linear scores: Fisher's discriminant of two samples (runs, numbers), with their mean covariance
    and with each one's.

    The latter two find a direction in which one side does not vary at all; the mean would hide it.
    """
    check.require(first.shape[1:] == second.shape[1:], "audit", "both sides must show the same numbers", first.shape)
    size = np.sqrt((first.var(axis=0) + second.var(axis=0)) / 2) + 1e-300
    of_each = [np.cov(side / size, rowvar=False, ddof=0).reshape(len(size), len(size)) for side in (first, second)]
    apart = (first.mean(axis=0) - second.mean(axis=0)) / size
    scores = []
    for covariance in (sum(of_each) / 2, *of_each):
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 1e-9 * max(values[-1], 1e-300))
        weights = vectors @ ((vectors.T @ apart) / values)
        length = np.linalg.norm(weights)
        scores.append(weights / (length if length > 0 else 1.0) / size)
    return scores
