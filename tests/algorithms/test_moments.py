"""Moments: one round, whose model is the minimiser of a quadratic. Its other checks are those of every method."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms.moments import Moments
from sottovoce.core import moments
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.train import train
from tests.cases import small
from tests.local import assemble


def trained(algorithm: Moments, federation: sv.Federation, goal: sv.Objective, **more: Any) -> sv.Result:
    options: dict[str, Any] = {"rounds": 5, "privacy": sv.NoPrivacy(), "seed": 0, "engine": "numpy"}
    return train(algorithm, federation, goal, **(options | more))


@pytest.mark.parametrize("unequal", [False, True])
def test_for_a_squared_loss_it_is_the_ridge_regression(unequal: bool) -> None:
    federation = small("squared", unequal)
    result = trained(Moments(curvature=1.0), federation, sv.Objective(sv.Squared(), sv.L2(0.05), scale="records"))
    X, y = federation.X, federation.y
    expected = np.linalg.solve(X.T @ X / len(y) + 0.05 * np.eye(4), X.T @ y / len(y))
    np.testing.assert_allclose(result.model, expected, atol=1e-13)
    assert result.rounds == 1
    assert "one round" in result.stopped


def test_lasso_by_proximal_steps_on_the_quadratic() -> None:
    from sklearn.linear_model import Lasso

    federation = small("squared")
    goal = sv.Objective(sv.Squared(), sv.L1(0.02), scale="records")
    result = trained(Moments(curvature=1.0), federation, goal)
    lasso = Lasso(alpha=0.02, fit_intercept=False, tol=1e-14, max_iter=10**6).fit(federation.X, federation.y)
    np.testing.assert_allclose(result.model, lasso.coef_, atol=1e-8)


def test_for_a_logistic_loss_it_is_newtons_first_step_and_softmax_of_two_classes_agrees() -> None:
    federation = small()
    goal = sv.Objective(sv.Logistic(), sv.L2(0.05), scale="records")
    X, y, n = federation.X, federation.y, len(federation.y)
    expected = np.linalg.solve(X.T @ X / (4 * n) + 0.05 * np.eye(4), X.T @ (y / 2) / n)
    np.testing.assert_allclose(trained(Moments(), federation, goal).model, expected, atol=1e-13)
    two = sv.Federation(X, (y + 1) / 2, federation.offsets, federation.names, federation.row_bound)
    soft = trained(Moments(curvature=0.5, outputs=2), two, sv.Objective(sv.Softmax(2), sv.L2(0.1), scale="records"))
    w = soft.model.reshape(2, 4)
    np.testing.assert_allclose(w[1] - w[0], expected, atol=1e-13)


@pytest.mark.parametrize(
    ("kappa2", "slope", "replaced"), [*product((0.05, 0.125, 0.5, 2.0), (0.5, 0.9), (True, False))]
)
def test_no_neighbour_moves_the_moments_further(kappa2: float, slope: float, replaced: bool) -> None:
    """An adversary turns two records against each other, at every angle, and finds the stated bound and no more."""
    kappa, angles = np.sqrt(kappa2), np.linspace(0, np.pi, 2001)
    x, others = np.array([1.0, 0.0]), np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    one = np.concatenate([slope * x, kappa * np.outer(x, x).ravel()])
    reached = []
    for sign in (1.0, -1.0):
        second = (others[:, :, None] * others[:, None, :]).reshape(len(angles), -1)
        two = np.hstack([sign * slope * others, kappa * second]) * float(replaced)
        reached.append(np.linalg.norm(one - two, axis=1).max())
    stated = moments.sensitivity(kappa, slope, replaced)
    assert max(reached) <= stated * (1 + 1e-12)
    assert max(reached) >= stated * (1 - 1e-5)


def test_the_vector_of_a_matrix_is_as_long_as_the_matrix() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 5))
    gram = x.T @ x
    vector = np.concatenate([np.zeros(5), np.diagonal(gram), np.sqrt(2) * gram[np.triu_indices(5, 1)]])
    assert np.linalg.norm(vector) == pytest.approx(np.linalg.norm(gram), rel=1e-14)
    np.testing.assert_allclose(moments.split(vector, 5, 1.0)[1], gram, rtol=1e-14)


@pytest.mark.parametrize("noise", ["seeded", "discrete", "secure"])
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_noise_has_the_stated_deviation(noise: Any, relation: Any) -> None:
    privacy = sv.Proven(1.0, 1e-4, relation=relation, noise=noise)
    goal = sv.Objective(sv.Logistic(), scale="records")
    plain = assemble(Moments(), small(), goal, sv.NoPrivacy(), Everyone(), 1, Streams(0), None, "numpy")
    place = assemble(Moments(), small(), goal, privacy, Everyone(), 1, Streams(0, 400), None, "numpy")
    here, everyone = np.arange(6), np.ones((400, 6), dtype=bool)
    exact = plain.door.open(here, everyone[0], 1)[0].moments(Moments().kappa, Moments().slope_bound)
    noisy = place.door.open(here, everyone, 1)[0].moments(Moments().kappa, Moments().slope_bound)
    weight = 6 / len(small().y)
    wanted = place.door.events[0].noise_multiplier * moments.sensitivity(
        Moments().kappa, 0.5, relation == "replace-one"
    ) * weight  # fmt: skip
    assert (noisy - exact).std() == pytest.approx(wanted, rel=0.03)
    assert abs((noisy - exact).mean()) < wanted / 10


def test_moments_must_be_asked_for_as_declared() -> None:
    place = assemble(Moments(), small(), sv.Objective(sv.Logistic()), sv.Proven(1.0, 1e-4), Everyone(), 1, Streams(0),
                     None, "numpy")  # fmt: skip
    oracle, _ = place.door.open(np.arange(6), np.ones(6, dtype=bool), 1)
    with pytest.raises(sv.core.check.InvalidInput, match="that were declared"):
        oracle.moments(0.1, 1.0)
