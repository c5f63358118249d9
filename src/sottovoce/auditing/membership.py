"""Membership inference: how well does a final model's loss tell rows it was trained on from rows it was not?

A weaker view than the distinguishing game: typical rows instead of the worst one, one model instead of every message,
one simple attack. A curve near the diagonal is no evidence of privacy; one far above it is evidence of a leak.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.core import check


@dataclass(frozen=True, eq=False)
class Curve:
    """The attack's true positive rate against its false positive rate, and the area under it (0.5: blind)."""

    false_positives: np.ndarray
    true_positives: np.ndarray
    area: float

    def at(self, false_positives: float) -> float:
        """The largest true positive rate with at most so many false positives."""
        return float(self.true_positives[self.false_positives <= false_positives].max(initial=0.0))


def curve(members: np.ndarray, others: np.ndarray) -> Curve:
    """The curve of the attack that calls a row a member if its score (say, minus its loss) is large enough."""
    members, others = (np.asarray(scores, dtype=np.float64) for scores in (members, others))
    for name, scores in (("members", members), ("others", others)):
        good = scores.ndim == 1 and len(scores) > 0 and not np.isnan(scores).any()
        check.require(good, "membership", f"{name} must be a list of at least one score", scores.shape)
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    hits, alarms = (
        np.concatenate([[0.0], 1 - np.searchsorted(np.sort(scores), thresholds) / len(scores)])
        for scores in (members, others)
    )
    return Curve(alarms, hits, float(np.trapezoid(hits, alarms)))
