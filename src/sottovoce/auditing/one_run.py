"""Two attacks on a single training run, for models that are too expensive to train thousands of times.

`one_run`: many canaries, each present or absent by a coin, and guesses about the coins. Steinke, Nasr and Jagielski,
"Privacy Auditing with One (1) Training Run" (2023), Theorem 5.2 and its appendix. The bound is weaker than the bound
from many runs.

`membership`: how well does the loss of a final model tell its training rows from other rows? This sees less than the
distinguishing game: typical rows instead of the worst one, one model instead of every message, one simple attack. A
curve near the diagonal is no evidence of privacy; a curve far above it is evidence of a leak.
"""

import math
import time
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.stats import binom

from sottovoce.auditing.finding import Finding, conclude
from sottovoce.auditing.game import Game, Promise, relation_of
from sottovoce.auditing.neighbours import FAR, Neighbours
from sottovoce.auditing.score import CONFIDENCE
from sottovoce.core import check
from sottovoce.core.plain import Json, Progress, silent
from sottovoce.experiment.run_file import Experiment
from sottovoce.experiment.train import run_task
from sottovoce.privacy.accounting.search import last_good_from
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Loss

SHARES = (1.0, 0.5, 0.25, 0.125)  # of the canaries, on which guesses are made


def plant(federation: Federation, loss: Loss, canaries: int, blank: bool, seed: int) -> tuple[Federation, np.ndarray]:
    """Give one more record per canary to the clients in turn: the rows with them, and the coins to guess.

    A coin decides the class of a canary; with `blank`, its presence. Each has a column of its own behind the others, in
    which no other row has a number, and the largest allowed length.
    """
    check.whole("audit", at_least=8, canaries=canaries)
    heads = np.random.default_rng(seed).random(canaries) < 0.5
    length = federation.row_bound or float(np.linalg.norm(federation.X, axis=1).max())
    features = federation.X.shape[1]
    y = loss.check_labels(federation.y)
    one, other = (1.0, 0.0) if loss.outputs > 1 else (1.0, -1.0) if loss.classification else (FAR, -FAR)
    rows, labels = np.zeros((canaries, features + canaries)), np.where(heads, one, other)
    rows[np.arange(canaries), features + np.arange(canaries)] = length * (1 - 1e-12)
    if blank:
        rows[~heads] = 0.0
        labels[:] = one
    owner = np.repeat(np.arange(federation.n), federation.sizes)
    X = np.concatenate([np.pad(federation.X, ((0, 0), (0, canaries))), rows])
    groups = np.concatenate([owner, np.arange(canaries) % federation.n])
    planted = Federation.from_arrays(X, np.concatenate([y, labels]), groups)
    known = {"names": federation.names, "row_bound": federation.row_bound, "bias": federation.bias}
    return replace(planted, **known), heads


def one_run(
    experiment: Experiment,
    canaries: int = 500,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress = silent,
) -> Finding:
    """Train once with canaries, guess from the final model how each coin fell, and bound epsilon.

    The confidence is shared among several numbers of guesses.
    """
    task, settings = experiment.task, experiment.settings
    privacy = cast(Promise, task.privacy)
    federation = experiment.data().federation.as_rows("audit", "one run is audited where rows are split, not columns")
    check.require(privacy.mode != "none", "audit", "needs a mode that promises something", privacy)
    per_record = privacy.promise in ("record", "published")
    check.require(per_record, "audit", "canaries are records: use unit = 'record'", privacy.promise)
    begun, loss = time.perf_counter(), task.objective.loss
    planted, heads = plant(federation, loss, canaries, relation_of(privacy) == "add-remove", seed)
    result = run_task(
        replace(task, evaluate=None),  # a canary that is held out would not be trained on
        planted,
        seed=seed,
        measure_training=False,
        after_round=lambda checkpoint: progress("training", checkpoint.k, settings.rounds),
    )
    weights = result.model.reshape(loss.outputs, -1)[:, federation.X.shape[1] :][:, :canaries]
    order = np.argsort(weights[1] - weights[0] if loss.outputs > 1 else weights[0])

    def bound(_: slice, delta: float) -> float:
        of_each = 1 - (1 - confidence) / len(SHARES)
        bounds = []
        for share in SHARES:
            half = max(1, math.floor(canaries * share / 2))
            right = int(heads[order[-half:]].sum() + (~heads[order[:half]]).sum())
            bounds.append(epsilon_from_one_run(right, 2 * half, canaries, delta, of_each))
        return max(bounds)

    # A claim may depend on the number of rows: those that were trained on count.
    neighbours = Neighbours(planted, planted, 0, None, f"{canaries} canaries in one run")
    game = Game(task.algorithm, neighbours, task.objective, privacy, settings.rounds)
    evidence = "the canaries' own coordinates of the final model"
    finding = cast(Finding, conclude(game, "guesses", evidence, 1, bound, confidence=confidence))
    return replace(finding, seconds=time.perf_counter() - begun)


def epsilon_from_one_run(
    right: int, guesses: int, canaries: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """A lower bound on epsilon from `right` of `guesses` about `canaries` fair coins that one run should hide.

    On average at most e^epsilon/(1 + e^epsilon) of the guesses can be right, whichever canaries they are about; for
    delta = 0 this is Clopper and Pearson's bound on that share.
    """
    fits = 0 <= right <= guesses <= canaries
    check.require(fits, "audit", "right <= guesses <= canaries must hold", (right, guesses, canaries))
    error = 1 - confidence
    if guesses == 0 or _luck(right, guesses, canaries, delta, 0.0) > error:
        return 0.0
    return last_good_from(0.0, lambda epsilon: _luck(right, guesses, canaries, delta, epsilon) - error)


def _luck(right: int, guesses: int, canaries: int, delta: float, epsilon: float) -> float:
    """The largest probability of so many right guesses under an (epsilon, delta)-private mechanism."""
    fair = 1 / (1 + math.exp(-epsilon))
    luck = float(binom.sf(right - 1, guesses, fair))
    if delta > 0 and right > 0:
        fewer = np.arange(1, right + 1)
        luck += 2 * canaries * delta * float((np.cumsum(binom.pmf(right - fewer, guesses, fair)) / fewer).max())
    return min(luck, 1.0)


# ------------------------------------------------------------------------------------------------ membership inference


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
        **{f"true_positives_at_{rate:g}": attack.at(rate) for rate in (1e-3, 1e-2)},
        "epsilon": result.guarantee.epsilon,
        "delta": result.guarantee.delta,
    }
    return attack, summary
