"""The exact oracle of split columns against closed forms, scikit-learn and SciPy."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet as SklearnElasticNet

from sottovoce.core.check import InvalidInput
from sottovoce.problems.columns import Columns, Party
from sottovoce.problems.penalties import L1, L2, Ball, Box, ElasticNet, NoPenalty
from tests.reference import in_a_box

SHAPES = {"tall": (30, 6), "wide": (12, 25), "square": (8, 8)}


def matrix(shape: str, deficient: bool = False) -> np.ndarray:
    D = np.random.default_rng(1).normal(size=SHAPES[shape])
    if deficient:
        D[:, 2] = D[:, 0] - 2 * D[:, 1]
        D[:, 3] = 0.0
    return D


def target(D: np.ndarray) -> np.ndarray:
    return np.random.default_rng(2).normal(size=len(D))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("deficient", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_ridge_is_the_closed_form(shape: str, deficient: bool, sparse: bool) -> None:
    D, rho, lam = matrix(shape, deficient), 0.7, 0.3
    v = target(D)
    want = np.linalg.solve(rho * D.T @ D + lam * np.eye(D.shape[1]), rho * D.T @ v)
    stored: Any = csr_array(D) if sparse else D
    got = Party(stored, L2(lam)).fit(v, rho)
    np.testing.assert_allclose(got, want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("deficient", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_penalty_it_is_the_least_squares_solution_of_least_norm(shape: str, deficient: bool) -> None:
    D = matrix(shape, deficient)
    want = np.linalg.lstsq(D, target(D), rcond=None)[0]
    np.testing.assert_allclose(Party(D, NoPenalty()).fit(target(D), 2.0), want, atol=1e-9, rtol=0)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.4])
@pytest.mark.parametrize("shape", SHAPES)
def test_l1_and_elastic_net_agree_with_scikit_learn(shape: str, l2: float, sparse: bool) -> None:
    D, rho, l1 = matrix(shape), 1.5, 8.0
    v = target(D)
    penalty = ElasticNet(l1, l2) if l2 else L1(l1)
    alpha = (l1 + l2) / (rho * len(D))  # scikit-learn divides the squares by 2n and mixes by a ratio
    fit = SklearnElasticNet(alpha=alpha, l1_ratio=l1 / (l1 + l2), fit_intercept=False, tol=1e-14, max_iter=10**6)
    want = fit.fit(D, v).coef_
    stored: Any = csr_array(D) if sparse else D
    got = Party(stored, penalty).fit(v, rho)
    np.testing.assert_allclose(got, want, atol=1e-7, rtol=0)
    assert (got == 0).any()


@pytest.mark.parametrize("shape", ["tall", "square"])
def test_box_agrees_with_scipy(shape: str) -> None:
    D = matrix(shape)
    want = in_a_box(D, target(D), -0.1, 0.2)
    got = Party(D, Box(-0.1, 0.2)).fit(target(D), 3.0)
    np.testing.assert_allclose(got, want, atol=1e-7, rtol=0)
    assert (got == -0.1).any()


def test_predict_and_adjoint_are_each_others_transpose_for_unequal_parties() -> None:
    rng = np.random.default_rng(0)
    parts: list[Any] = [rng.normal(size=(9, 2)), csr_array(rng.normal(size=(9, 4)))]
    columns, both = Columns(parts, L2(1.0)), np.arange(2)
    x, v = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 2, 9))
    scores, back = columns.predict(x, both), columns.adjoint(v, both)
    np.testing.assert_allclose(scores[1, 0], parts[0] @ x[1, 0, :2])
    assert (back[:, 0, 2:] == 0).all()  # padding of the narrow party
    inside = np.where(np.arange(4) < columns.widths[:, None], x, 0.0)
    np.testing.assert_allclose((scores * v).sum(), (inside * back).sum())
    rows = np.array([[4.0, 0.0]])
    np.testing.assert_array_equal(columns.predict(x[0], both, rows), scores[0][:, [4, 0]])
    np.testing.assert_allclose(columns.adjoint(v[0][:, :2], both, rows)[0, :2], parts[0][[4, 0]].T @ v[0, 0, :2])


def test_spread_has_the_inverse_gram_matrix_as_covariance() -> None:
    for shape in SHAPES:
        D = matrix(shape)
        party = Party(D, L2(1.0))
        each = np.array([party.spread(unit) for unit in np.eye(min(D.shape))])
        np.testing.assert_allclose(each.T @ each, np.linalg.pinv(D.T @ D), atol=1e-8, rtol=0)


def test_what_cannot_be_split_or_factorised_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="sum over coordinates"):
        Columns([np.ones((3, 2))], Ball(1.0))
    monkeypatch.setattr("sottovoce.problems.columns.MOST", 5)
    with pytest.raises(InvalidInput, match=r"the smaller must be at most 5"):
        Party(np.ones((7, 6)), L2(1.0)).fit(np.ones(7), 1.0)
