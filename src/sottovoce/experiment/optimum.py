"""The model that one owner of all rows would find without privacy: what private methods can be compared with."""

import time
from typing import cast

import numpy as np

from sottovoce.core.plain import Json
from sottovoce.experiment.source import TestRows
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.metrics import metrics
from sottovoce.problems.objective import Objective

NAME = "optimum"


def optimum(data: FederatedData, objective: Objective, test: tuple[TestRows, np.ndarray]) -> tuple[np.ndarray, Json]:
    """The minimiser over all clients' rows, by L-BFGS; and a summary of it like that of a run (`store.summary`)."""
    from scipy.optimize import minimize

    begun = time.perf_counter()
    rows, loss, penalty = data.as_rows(NAME, "is for rows, not columns"), objective.loss, objective.penalty
    federation = objective.on(rows)
    X, y = federation.X, loss.check_labels(federation.y)
    weight = np.repeat(1 / (federation.n * federation.sizes), federation.sizes)  # every client counts the same

    def value_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = np.einsum("ij,j->i", X, w)  # X @ w keeps several threads busy, and is no faster
        value = (weight * loss.value(margin, y)).sum() + penalty.value(w)
        return float(value), np.einsum("ij,i->j", X, weight * loss.slope(margin, y)) + penalty.subgradient(w)

    options = {"maxiter": 1000, "maxcor": 100, "ftol": 0.0, "gtol": 1e-6}
    start = np.zeros(federation.X.shape[1])
    solution = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    test_X, test_y = cast(np.ndarray, test[0]), test[1]
    margin = (test_X if federation is rows else rows.with_ones(test_X)) @ solution.x
    measured = metrics(loss, margin, test_y).items()
    return solution.x, {
        "method": NAME,
        "rounds": None,
        "objective": float(solution.fun),
        "test_loss": float(loss.value(margin, test_y).mean()),
        **{f"test_{name}": float(value) for name, value in measured if name != "confusion"},
        "bytes_up": None,
        "bytes_down": None,
        "seconds": time.perf_counter() - begun,
        "privacy": "none",
    }
