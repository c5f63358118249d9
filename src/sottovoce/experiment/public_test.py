"""Public rows that a model is measured on: their scores, and how good a model is on them."""

from dataclasses import dataclass
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Matrix
from sottovoce.core.plain import Columns
from sottovoce.experiment.source import TestRows
from sottovoce.experiment.task import Task
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import Loss
from sottovoce.problems.metrics import metrics
from sottovoce.problems.vertical import summed_scores

Pair = tuple[TestRows, np.ndarray]  # rows and labels, checked


@dataclass(frozen=True)
class PublicTest:
    """Public rows that a model is measured on.

    Parameters
    ----------
    X, y
        Rows and labels; where columns are split `X` is a list with the rows of each party.
    loss, calibration
        What labels are predicted by, and the factor for logits with which its probabilities are calibrated.
    widths
        How many columns each party has, where columns are split.
    """

    X: TestRows
    y: np.ndarray
    loss: Loss
    calibration: float = 1.0
    widths: tuple[int, ...] = ()

    @classmethod
    def of(cls, task: Task, federation: FederatedData, pair: Pair) -> "PublicTest":
        """Rows and labels that were checked before."""
        return cls(*pair, task.objective.loss, task.calibration, **federation.model_parts())

    def scores(self, model: np.ndarray) -> np.ndarray:
        """Scores of the rows by a model (runs?, dim)."""
        if self.widths:
            return summed_scores(cast(list[Matrix], self.X), model, self.widths, self.loss.outputs)
        return self.loss.scores(cast(np.ndarray, self.X), model)

    def measured(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Loss and accuracy, for the history."""
        scores = self.scores(model)
        numbers = {"test_loss": self.loss.value(scores, self.y).mean(axis=-1)}
        if self.loss.classification:
            numbers["test_accuracy"] = (self.loss.predict(scores) == self.y).mean(axis=-1)
        return numbers

    def metrics(self, model: np.ndarray) -> Columns:
        """How good a finished model is, one entry for each run."""
        if model.shape[-1] == 0:
            return {}
        measured = metrics(self.loss, self.calibration * self.scores(model), self.y)
        return {f"test_{name}": list(values.reshape(-1, *values.shape[model.ndim - 1 :]).tolist())
                for name, values in measured.items() if name != "accuracy"}  # fmt: skip

    def metric(self, name: str, model: np.ndarray) -> list[float]:
        """One number of how good a model is, one entry for each run."""
        return np.ravel(metrics(self.loss, self.scores(model), self.y)[name]).tolist()


def checked(task: Task, federation: FederatedData, test: object) -> Pair | None:
    """Test rows and labels, checked; the rows with a column for the intercept, if the model has one."""
    if test is None:
        return None
    if not isinstance(test, tuple) or len(test) != 2:
        rule = "test must be a pair (X, y); where columns are split X is a list with the rows of each party"
        raise check.InvalidInput(f"train: {rule}, got {check.shown(type(test).__name__)}")
    X, labels = federation.rows_like_these("test", test[0]), task.objective.loss.check_labels(test[1])
    rows = X[0].shape[0] if isinstance(X, list) else len(X)
    check.require(len(labels) == rows, "test", f"y must have one entry per row of X ({rows})", len(labels))
    return federation.with_ones(X) if task.objective.intercept and not federation.bias else X, labels
