"""The optimum that private methods are compared with, against SciPy's general minimiser and scikit-learn."""

import numpy as np
import pytest
from scipy.optimize import minimize

from sottovoce.core.penalty import Penalty
from sottovoce.experiment.optimum import optimum
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L1, L2, ElasticNet, NoPenalty
from tests import reference

SIZES = (5, 60, 200, 35)  # every client counts the same, so rows do not


def one_hot(labels: bool) -> Federation:
    """Rows with a column for each level of two attributes, which always add up to one, and a column of ones."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, sum(SIZES)), rng.integers(0, 3, sum(SIZES))
    X = np.hstack([np.eye(4)[first], np.eye(3)[second], np.ones((sum(SIZES), 1)), rng.normal(size=(sum(SIZES), 2))])
    scores = X @ rng.normal(size=X.shape[1]) + rng.logistic(size=len(X))
    y = np.where(scores > 0, 1.0, -1.0) if labels else scores
    ends = np.cumsum(SIZES)[:-1]
    return Federation.from_clients(list(zip(np.split(X, ends), np.split(y, ends), strict=True)))


def mean_of_clients(federation: Federation, loss: Loss, penalty: Penalty, w: np.ndarray) -> float:
    losses = loss.value(federation.X @ w, federation.y)
    means = [part.mean() for part in np.split(losses, np.cumsum(SIZES)[:-1])]
    return float(np.mean(means) + penalty.value(w))


@pytest.mark.parametrize("penalty", [NoPenalty(), L2(1e-9), L2(0.1), L1(0.003), ElasticNet(0.003, 0.01)])
@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge(0.5), Huber(1.0)])
def test_it_is_as_low_as_a_general_minimiser_gets(loss: Loss, penalty: Penalty) -> None:
    """Columns that depend on each other: without a penalty there are many minimisers, of one value."""
    federation = one_hot(loss.classification)
    model, said = optimum(federation, Objective(loss, penalty), (federation.X, federation.y))
    assert said["objective"] == pytest.approx(mean_of_clients(federation, loss, penalty, model), rel=1e-12)
    assert np.linalg.norm(model) < 100
    start = np.zeros(federation.X.shape[1])
    options = {"maxiter": 100_000, "maxfev": 100_000, "xtol": 1e-8, "ftol": 1e-12}
    found = minimize(lambda w: mean_of_clients(federation, loss, penalty, w), start, method="Powell", options=options)
    assert said["objective"] <= found.fun + (1e-9 if penalty.smooth else 1e-3)


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
@pytest.mark.parametrize("intercept", [False, True])
def test_it_is_the_one_that_others_find(loss: Loss, intercept: bool) -> None:
    federation = one_hot(loss.classification)
    objective = Objective(loss, L2(0.01), fit_intercept=intercept)
    model, _ = optimum(federation, objective, (federation.X, federation.y))
    np.testing.assert_allclose(model, reference.optimum(federation, objective), atol=2e-4)
