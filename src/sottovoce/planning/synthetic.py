"""Synthetic rows of a given shape, to try settings on: nothing here has seen data.

Columns are normal numbers and rows have the promised length. Labels follow a model of the objective's own kind, and are
as hard to predict as was asked. For each test row the probability of every label is known, so a model's quality is
computed from that, and not from drawn labels, which would add chance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import softmax

from sottovoce.planning.problem import Problem
from sottovoce.problems.federation import Federation
from sottovoce.problems.objective import Objective
from sottovoce.problems.rows import Rows

Spectrum = Literal["correlated", "independent"]
TEST_ROWS = 5000
_WITHIN = 3.0  # deviations of a label of a regression that its range [-1, 1] holds on each side


@dataclass(frozen=True, eq=False)
class World:
    """A synthetic federation, and test rows of which the truth is known."""

    federation: Federation
    objective: Objective
    test: np.ndarray
    truth: np.ndarray  # probability of every class (rows, classes); for regression the expected label (rows,)
    noise: float  # variance of labels around it

    def quality(self, model: np.ndarray) -> float:
        """Expected accuracy, or R²."""
        loss = self.objective.loss
        predicted = loss.predict(loss.scores(self.test, model))
        if loss.classification:
            classes = (predicted > 0 if loss.outputs == 1 else predicted).astype(np.int64)
            return float(np.take_along_axis(self.truth, classes[:, None], axis=1).mean())
        return float(1 - (np.square(predicted - self.truth).mean() + self.noise) / (self.truth.var() + self.noise))

    def auc(self, model: np.ndarray) -> float | None:
        """Expected area under the ROC curve, for two classes: the chance that the score of a positive is the higher."""
        loss = self.objective.loss
        if not loss.classification or self.truth.shape[1] != 2:
            return None
        scores = loss.scores(self.test, model)
        scores = scores if loss.outputs == 1 else scores[:, 1] - scores[:, 0]
        negative, positive = self.truth[np.argsort(scores)].T
        return float((positive * (np.cumsum(negative) - negative / 2)).sum() / (positive.sum() * negative.sum()))

    def constant(self) -> float:
        """What a constant prediction reaches: the share of the larger class; an R² of 0."""
        return float(self.truth.mean(axis=0).max()) if self.objective.loss.classification else 0.0

    def optimum(self) -> np.ndarray:
        """The model that one owner of all rows would find."""
        X, y = self.federation.X, self.objective.loss.check_labels(self.federation.y)
        together = Rows(X, y, np.array([0, len(X)]), self.objective.loss)
        penalty = getattr(self.objective.penalty, "penalty", self.objective.penalty)  # without the intercept
        ridge = max(float(getattr(penalty, "lam", 0.0)), 1e-6)
        return together.argmin(np.zeros((1, together.dim)), 0.0, ridge=ridge, tol=1e-5)[0]


@lru_cache(maxsize=4)
def world_of(problem: Problem, spectrum: Spectrum = "correlated") -> World:
    """Rows of the shape of this problem. Correlated: the variance of direction j falls like 1/j."""
    objective, sizes, best = problem.objective, problem.simulated_sizes, problem.best
    loss, rows = objective.loss, sum(sizes)
    for_model, for_rows = (np.random.default_rng([problem.seed, purpose]) for purpose in (0, 1))
    X = for_rows.normal(size=(rows + TEST_ROWS, problem.features))
    if spectrum == "correlated":
        X /= np.sqrt(np.arange(1, problem.features + 1))
    X *= problem.row_bound * (1 - 1e-9) / np.linalg.norm(X, axis=1, keepdims=True)
    scores = X @ for_model.normal(size=(problem.features, loss.outputs))
    scores /= scores.std()
    if loss.classification:
        logits = scores if loss.outputs > 1 else np.concatenate([np.zeros_like(scores), scores], axis=1)
        truth, noise = _as_hard(logits, logits[rows:], best, problem.balance), 0.0
        classes = (for_rows.random((len(X), 1)) > np.cumsum(truth, axis=1)[:, :-1]).sum(axis=1)
        y = classes.astype(np.float64) if loss.outputs > 1 else 2.0 * classes - 1.0
    else:
        truth, noise = np.sqrt(best) * scores[:, 0] / _WITHIN, (1 - best) / _WITHIN**2
        y = np.clip(truth + np.sqrt(noise) * for_rows.normal(size=len(X)), -1.0, 1.0)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    federation = Federation.from_arrays(X[:rows], y[:rows], owners, row_bound=problem.row_bound)
    test = federation.with_ones(X[rows:]) if objective.intercept else X[rows:]
    return World(objective.on(federation), objective, test, truth[rows:], noise)


def _as_hard(logits: np.ndarray, test: np.ndarray, best: float, balance: float | None) -> np.ndarray:
    """Probabilities by logits times a factor, the last shifted: the best accuracy is `best`, classes are balanced."""

    def shift(factor: float) -> float:
        if balance is None:
            return 0.0
        return _bisected(lambda b: float(_shifted(factor * test, b)[:, 1].mean()), balance, -1e3, 1e3)

    def reached(log_factor: float) -> float:
        factor = float(np.exp(log_factor))
        return float(_shifted(factor * test, shift(factor)).max(axis=1).mean())

    factor = float(np.exp(_bisected(reached, best, np.log(1e-3), np.log(1e6))))
    return _shifted(factor * logits, shift(factor))


def _shifted(logits: np.ndarray, by: float) -> np.ndarray:
    moved = logits.copy()
    moved[:, -1] += by
    return softmax(moved, axis=1)


def _bisected(rising: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a rising function has a value."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2
