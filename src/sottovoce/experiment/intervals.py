"""From noisy counts to the quality of a model, with intervals.

Each count is exact + noise of a known deviation σ, independent of the others. Intervals are for the exact numbers on
the very records that were counted: they include the noise, and say nothing of other records. Accuracy and shares are
ratios of sums of counts, and so are recalls. For a ratio A/B the value r = A/B makes A − r B noise of mean 0, whatever
B is; so {r : |A − r B| <= z · deviation of A − r B} covers it in 95 % of cases however small the counts are (Fieller
1954). Where B cannot be told from 0, that is every value from 0 to 1. Of a known number of records A/n is used.

The AUC is x'My / (x'1 1'y), x and y the counts of the two classes by score. Again x'(M − θ)y has mean 0 at the true θ,
and its variance is at most what σ²(|(M − θ)y|² + |(M − θ)'x|²) has as its mean. Two records in one bin could stand
either way: the interval goes from all such pairs wrong to all right. The balanced accuracy of two classes is such an
AUC. Of K > 2 classes it is a mean of K recalls, and lies between the means of the ends of their intervals where all of
these hold at once (Bonferroni). Their middles would not do: a recall near 0 or 1 is cut to what it can be, so its
estimate leans to one side, and the mean of several leans as far with less noise.

Arrays may have leading axes: many sets of counts at once.
"""

from typing import NamedTuple

import numpy as np

from sottovoce.core.arrays import Floats

REACH = 0.9545  # what two deviations to either side cover: a little more than is promised, for what is rounded


class Estimate(NamedTuple):
    """A number, and its 95 % interval."""

    value: Floats
    low: Floats
    high: Floats

    def plain(self) -> dict[str, float]:
        return {"value": float(self.value), "low": float(self.low), "high": float(self.high)}


def quantile(tests: int = 1) -> float:
    """How many deviations an interval reaches to either side, if `tests` of them must hold at once."""
    from scipy.stats import norm

    return float(norm.ppf(1 - (1 - REACH) / (2 * tests)))


def share(counts: Floats, weights: Floats, deviation: float, records: float | None, z: float) -> Estimate:
    """Σ weights · counts / Σ counts, for weights (cells,). `records`: Σ of the exact counts, where it is public."""
    if records is None:
        of_sums = np.square(weights).sum(), float(len(weights)), weights.sum()
        var_a, var_b, cov = (float(deviation**2 * each) for each in of_sums)
        return _ratio(counts @ weights, counts.sum(axis=-1), var_a, var_b, cov, z)
    # Since Σ counts is known, a constant may be taken off the weights: the mean leaves the least noise.
    centred = weights - weights.mean()
    value = counts @ centred / records + weights.mean()
    half = z * deviation * np.sqrt(np.square(centred).sum()) / records
    return Estimate(value, value - half, value + half)


def _ratio(a: Floats, b: Floats, var_a: float, var_b: float, cov: float, z: float) -> Estimate:
    """a / b by Fieller's method; (-inf, inf) where b cannot be told from 0."""
    return _between_roots(b**2 - z**2 * var_b, a * b - z**2 * cov, a**2 - z**2 * var_a, a, b)


def _between_roots(square: Floats, linear: Floats, constant: Floats, a: Floats, b: Floats) -> Estimate:
    """{r : square r² − 2 linear r + constant <= 0} around a / b, where it is an interval."""
    with np.errstate(all="ignore"):
        value = np.where(b > 0, a / b, np.nan)
        root = np.sqrt(np.maximum(linear**2 - square * constant, 0.0))
        known = (square > 0) & (b > 0)
        low = np.where(known, (linear - root) / square, -np.inf)
        high = np.where(known, (linear + root) / square, np.inf)
    return Estimate(value, low, high)


def within(estimate: Estimate, least: float, most: float) -> Estimate:
    """Cut to the values that there can be. A value that is not known stands in the middle of them."""
    low, high = (np.clip(end, least, most) for end in (estimate.low, estimate.high))
    value = np.where(np.isnan(estimate.value), (low + high) / 2, np.clip(estimate.value, least, most))
    return Estimate(value, low, high)


def accuracy(table: Floats, deviation: float, records: float | None) -> Estimate:
    """Of counts by label and prediction, (..., classes, classes)."""
    flat, right = table.reshape(*table.shape[:-2], -1), np.eye(table.shape[-1]).ravel()
    return within(share(flat, right, deviation, records, quantile()), 0.0, 1.0)


def larger_class(table: Floats, deviation: float, records: float | None) -> Estimate:
    """The share of the class that has most records."""
    classes = table.shape[-1]
    flat = table.reshape(*table.shape[:-2], -1)
    z = quantile(1 if classes == 2 else classes)
    of = [np.repeat(np.arange(classes) == k, classes).astype(np.float64) for k in range(classes)]
    if classes == 2:  # one share says it all
        s = within(share(flat, of[1], deviation, records, z), 0.0, 1.0)
        ends = np.maximum(s.low, 1 - s.low), np.maximum(s.high, 1 - s.high)
        low = np.where((s.low <= 0.5) & (s.high >= 0.5), 0.5, np.minimum(*ends))
        return Estimate(np.maximum(s.value, 1 - s.value), low, np.maximum(*ends))
    shares = [within(share(flat, each, deviation, records, z), 0.0, 1.0) for each in of]
    value, low, high = (np.max([each[end] for each in shares], axis=0) for end in range(3))
    return Estimate(value, np.maximum(low, 1 / classes), high)


def balanced_accuracy(table: Floats, deviation: float) -> Estimate:
    """The mean over classes of the share of its records that is predicted right."""
    classes = table.shape[-1]
    if classes == 2:  # the AUC of a score that has two values
        pairs = np.array([[0.5, 0.0], [1.0, 0.5]])
        return within(_area(table[..., 1, :], table[..., 0, :], pairs, deviation), 0.0, 1.0)
    variances, z = (deviation**2, classes * deviation**2, deviation**2), quantile(classes)
    recalls = [_ratio(table[..., k, k], table[..., k, :].sum(axis=-1), *variances, z) for k in range(classes)]
    # All recalls lie within their intervals at once, so their mean lies within the means of the ends.
    return Estimate(*np.mean([within(each, 0.0, 1.0) for each in recalls], axis=0))


def auc(x: Floats, y: Floats, deviation: float) -> Estimate:
    """Of counts by score, lowest first, (..., bins): `x` of the class that should score high, `y` of the other."""
    above = np.tril(np.ones((x.shape[-1],) * 2), -1)  # bin i beats bin j
    ties = np.eye(x.shape[-1])
    ends = [_area(x, y, pairs, deviation) for pairs in (above, above + ties)]
    middle = _area(x, y, above + ties / 2, deviation).value
    return within(Estimate(middle, ends[0].low, ends[1].high), 0.0, 1.0)


def _area(x: Floats, y: Floats, pairs: Floats, deviation: float) -> Estimate:
    z2 = (quantile() * deviation) ** 2
    many, few = y.sum(axis=-1), x.sum(axis=-1)
    beaten, beating = y @ pairs.T, x @ pairs  # (pairs y)_i and (pairs' x)_j
    won, bins = (x * beaten).sum(axis=-1), x.shape[-1]
    square = (few * many) ** 2 - z2 * bins * (many**2 + few**2)
    linear = won * few * many - z2 * (many * beaten.sum(axis=-1) + few * beating.sum(axis=-1))
    constant = won**2 - z2 * (np.square(beaten).sum(axis=-1) + np.square(beating).sum(axis=-1))
    total = np.where((few > 0) & (many > 0), few * many, 0.0)
    return _between_roots(square, linear, constant, won, total)


def gap(counts: Floats, least: Floats, most: Floats, deviation: float, records: float | None) -> Estimate:
    """A mean whose terms are known up to the ends of their bins: `least` and `most`, (cells,)."""
    terms = (least, (least + most) / 2, most)
    low, middle, high = (share(counts, weights, deviation, records, quantile()) for weights in terms)
    return within(Estimate(middle.value, low.low, high.high), -1.0, 1.0)
