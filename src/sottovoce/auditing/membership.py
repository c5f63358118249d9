"""Membership inference: how well does the loss of a final model tell its training rows from other rows?

This sees less than the distinguishing game: typical rows instead of the worst one, one model instead of every message,
one simple attack. A curve near the diagonal is no evidence of privacy; a curve far above it is evidence of a leak.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np

from sottovoce.auditing.game import Progress, silent
from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.experiment.run_file import Experiment


@dataclass(frozen=True, eq=False)
class Curve:
    """The attack's true positive rate against its false positive rate, and the area under it (0.5: blind)."""

    false_positives: np.ndarray
    true_positives: np.ndarray
    area: float

    def at(self, false_positives: float) -> float:
        """The largest true positive rate with at most this false positive rate."""
        return float(self.true_positives[self.false_positives <= false_positives].max(initial=0.0))


def curve(members: np.ndarray, others: np.ndarray) -> Curve:
    """The curve of the attack that calls a row a member if its score (for example, minus its loss) is large enough."""
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


def membership(experiment: Experiment, progress: Progress = silent) -> tuple[Curve, Json]:
    """Train as the run file says, and attack the final model: training rows against test rows, by their loss."""
    data, rounds = experiment.data(), experiment.settings.rounds
    test = check.given(data.test, "audit", "membership needs rows that were not trained on: [data] test = 0.2")
    federation = data.federation.as_rows("audit", "membership is for rows, not for split columns")
    result = experiment.train(after_round=lambda checkpoint: progress("training", checkpoint.k, rounds))
    loss = experiment.task.objective.loss
    model = result.model if result.model.ndim == 1 else result.model[0]
    rows = (federation.X, federation.y), (cast(np.ndarray, test[0]), test[1])
    of_members, of_others = (loss.value(loss.scores(X, model), loss.check_labels(y)) for X, y in rows)
    attack = curve(-of_members, -of_others)
    summary = {
        "method": experiment.task.algorithm.name,
        "members": len(of_members),
        "others": len(of_others),
        "area": attack.area,
        "true_positives_at_0.001": attack.at(1e-3),
        "true_positives_at_0.01": attack.at(1e-2),
        "epsilon": result.guarantee.epsilon,
        "delta": result.guarantee.delta,
    }
    return attack, summary
