"""The model that one owner of all rows would find without privacy: what private methods can be compared with."""

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np

from sottovoce.core.arrays import Floats
from sottovoce.core.plain import Json
from sottovoce.experiment.source import TestRows
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import Loss
from sottovoce.problems.metrics import metrics
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import Penalty
from sottovoce.problems.rows.subproblem import NEWTON_SOON_UP_TO, newton

NAME = "optimum"
_TOLERANCE = 1e-6  # of the gradient
_AT_ONCE = 2**17  # numbers of rows that are multiplied at a time: they stay in the cache


def optimum(data: FederatedData, objective: Objective, test: tuple[TestRows, np.ndarray]) -> tuple[np.ndarray, Json]:
    """The minimiser over all clients' rows; and a summary of it like that of a run (`store.summary`)."""
    begun = time.perf_counter()
    rows, loss = data.as_rows(NAME, "is for rows, not columns"), objective.loss
    federation = objective.on(rows)
    weight = np.repeat(1 / (federation.n * federation.sizes), federation.sizes)  # every client counts the same
    pooled = Pooled(federation.X, loss.check_labels(federation.y), weight, loss, objective.penalty)
    model = pooled.minimiser()
    test_X, test_y = cast(np.ndarray, test[0]), test[1]
    margin = (test_X if federation is rows else rows.with_ones(test_X)) @ model
    measured = metrics(loss, margin, test_y).items()
    return model, {
        "method": NAME,
        "rounds": None,
        "objective": pooled.value_and_gradient(model)[0],
        "test_loss": float(loss.value(margin, test_y).mean()),
        **{f"test_{name}": float(value) for name, value in measured if name != "confusion"},
        "bytes_up": None,
        "bytes_down": None,
        "seconds": time.perf_counter() - begun,
        "privacy": "none",
    }


@dataclass(frozen=True)
class Pooled:
    """The weighted sum of all rows' losses, of one output, plus the penalty."""

    X: Floats
    y: Floats
    weight: Floats  # of each row
    loss: Loss
    penalty: Penalty

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        margin = np.einsum("ij,j->i", self.X, w)  # X @ w keeps several threads busy, and is no faster
        value = (self.weight * self.loss.value(margin, self.y)).sum() + self.penalty.value(w)
        slope = self.weight * self.loss.slope(margin, self.y)
        return float(value), np.einsum("ij,i->j", self.X, slope) + self.penalty.subgradient(w)

    def hessian(self, w: Floats) -> Floats:
        """Of a convex loss and a quadratic penalty."""
        root = np.sqrt(self.weight * self.loss.second(np.einsum("ij,j->i", self.X, w), self.y))[:, None]
        hessian = np.diag(cast(Floats, self.penalty.curvatures(len(w))))
        step = max(1, _AT_ONCE // len(w))
        for low in range(0, len(root), step):
            scaled = root[low : low + step] * self.X[low : low + step]
            hessian += scaled.T @ scaled
        return hessian

    def minimiser(self) -> Floats:
        """By Newton's method if the function is smooth and convex in few parameters; else, or if that fails, L-BFGS."""
        w = np.zeros(self.X.shape[1])
        few = len(w) <= NEWTON_SOON_UP_TO
        if few and self.loss.convex and self.penalty.curvatures(len(w)) is not None:
            with suppress(np.linalg.LinAlgError):
                w, size = newton(self, w, _TOLERANCE, solve=_short_step)
                if size <= _TOLERANCE:
                    return w
        from scipy.optimize import minimize

        options = {"maxiter": 1000, "maxcor": 100, "ftol": 0.0, "gtol": _TOLERANCE}
        return minimize(self.value_and_gradient, w, jac=True, method="L-BFGS-B", options=options).x


def _short_step(hessian: Floats, gradient: Floats) -> Floats:
    """Newton's step. Where columns depend on each other many steps are as good; a little ridge makes it a short one."""
    ridge = 1e-13 * float(np.trace(hessian))
    return cast(Floats, np.linalg.solve(hessian + ridge * np.eye(len(gradient)), gradient))
