"""Audits of a single training run: many canaries in it, or the losses of its final model."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.auditing import membership as audit_membership
from sottovoce.auditing.finding import Comparison, Finding, claimed
from sottovoce.auditing.game import Game, Progress, silent
from sottovoce.auditing.neighbours import FAR, Neighbours
from sottovoce.auditing.one_run import epsilon_from_one_run
from sottovoce.auditing.statistics import CONFIDENCE
from sottovoce.core import check
from sottovoce.experiment.run_file import Experiment
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import Proven, Published
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Loss

SHARES = (1.0, 0.5, 0.25, 0.125)  # of the canaries, that guesses are made on


@dataclass(frozen=True, eq=False)
class Planted:
    """Rows with canaries among them: canary j has column `first` + j to itself; `heads` are the coins to be guessed."""

    federation: Federation
    heads: np.ndarray
    first: int


def plant(federation: Federation, loss: Loss, canaries: int, blank: bool, seed: int) -> Planted:
    """Give clients in turn one more record per canary: of this class or that as a coin says (`blank`: there or not).

    Rows are as long as the longest there may be.
    """
    check.whole("audit", at_least=8, canaries=canaries)
    rng = np.random.default_rng(seed)
    heads = rng.random(canaries) < 0.5
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
    made = Federation.from_arrays(X, np.concatenate([y, labels]), groups)
    return Planted(replace(made, names=federation.names, row_bound=federation.row_bound), heads, features)


def one_run(
    todo: Experiment,
    canaries: int = 500,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    progress: Progress = silent,
) -> Finding:
    """Train once with canaries planted, guess from the final model which way each coin fell, and bound epsilon.

    For several numbers of guesses, among which the confidence is shared out.
    """
    federation, privacy, loss = todo.data().federation, todo.task.privacy, todo.task.objective.loss
    check.require(isinstance(federation, Federation), "audit", "one run is audited where rows are split, not columns")
    check.require(isinstance(privacy, Published | Proven), "audit", "needs a mode that promises something", privacy)
    assert isinstance(federation, Federation)
    assert isinstance(privacy, Published | Proven)
    per_record = getattr(privacy, "unit", "record") == "record"
    check.require(per_record, "audit", "canaries are records: use unit = 'record'", getattr(privacy, "unit", ""))
    begun = time.perf_counter()
    blank = getattr(privacy, "relation", "replace-one") == "add-remove"
    planted = plant(federation, loss, canaries, blank, seed)
    result = train(
        todo.task.algorithm,
        planted.federation,
        todo.task.objective,
        rounds=todo.settings.rounds,
        privacy=privacy,
        participation=todo.task.participation,
        seed=seed,
        engine=todo.settings.engine,
        record_every=todo.settings.rounds,
        measure_training=False,
        after_round=lambda checkpoint: progress("training", checkpoint.k, todo.settings.rounds),
    )
    weights = result.model.reshape(loss.outputs, -1)[:, planted.first :]
    scores = weights[1] - weights[0] if loss.outputs > 1 else weights[0]
    trained_on = planted.federation  # a claim may depend on how many rows there are
    neighbours = Neighbours(trained_on, trained_on, 0, None, f"{canaries} canaries in one run")
    epsilon, delta, _ = claimed(
        Game(todo.task.algorithm, neighbours, todo.task.objective, privacy, todo.settings.rounds)
    )
    each = 1 - (1 - confidence) / len(SHARES)
    order = np.argsort(scores)
    bounds = []
    for share in SHARES:
        half = max(1, math.floor(canaries * share / 2))
        right = int(planted.heads[order[-half:]].sum() + (~planted.heads[order[:half]]).sum())
        bounds.append(epsilon_from_one_run(right, 2 * half, canaries, delta, each))
    found = (Comparison(f"all {result.rounds} rounds", epsilon, delta, max(bounds)),)
    evidence = "the canaries' own coordinates of the final model"
    seconds = time.perf_counter() - begun
    return Finding(
        todo.task.algorithm.name, privacy.mode, "guesses", evidence, neighbours.words, 1, confidence, found, seconds
    )


def membership(todo: Experiment, progress: Progress = silent) -> tuple[audit_membership.Curve, dict[str, Any]]:
    """Train as the file says, and attack the final model: training rows against test rows, by their loss."""
    data = todo.data()
    check.require(data.test is not None, "audit", "membership needs rows that were not trained on: [data] test = 0.2")
    check.require(isinstance(data.federation, Federation), "audit", "membership is for rows, not for split columns")
    assert data.test is not None
    result = todo.train(after_round=lambda checkpoint: progress("training", checkpoint.k, todo.settings.rounds))
    loss = todo.task.objective.loss
    model = result.model if result.model.ndim == 1 else result.model[0]
    federation: Any = data.federation
    losses = [
        loss.value(loss.scores(X, model), loss.check_labels(y)) for X, y in ((federation.X, federation.y), data.test)
    ]
    found = audit_membership.curve(-losses[0], -losses[1])
    guarantee = result.guarantee
    summary = {
        "method": todo.task.algorithm.name,
        "members": len(losses[0]),
        "others": len(losses[1]),
        "area": found.area,
        "true_positives_at_0.001": found.at(1e-3),
        "true_positives_at_0.01": found.at(1e-2),
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
    }
    return found, summary
