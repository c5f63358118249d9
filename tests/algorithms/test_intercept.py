"""An intercept that no penalty counts: every algorithm reaches scikit-learn's optimum, on plain and on encoded rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from sottovoce.core.check import InvalidInput
from sottovoce.core.histogram import Evaluation
from sottovoce.core.random.streams import Streams
from sottovoce.core.vouched import vouched
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import local_clients, train
from sottovoce.problems.penalties import Ball, Box, ElasticNet, Penalty, WithIntercept
from tests.cases import CASES, goal, small
from tests.reference import optimum

PROXES = ("admm", "dp-admm", "fedavg", "fedepm", "fed-plt", "fedspd-dp", "fedpd", "5gcs")  # each uses it elsewhere
PROBLEMS = [*((name, "logistic", "l2") for name in CASES), *((name, "squared", "l1") for name in PROXES)]
BIAS = 0.4  # in the column for the intercept, as of rows that were divided by their length
EXACT: dict[str, Any] = {"privacy": sv.NoPrivacy(), "engine": "numpy", "seed": 0}


def shifted(loss: str) -> sv.Federation:
    """Unequal clients whose labels need an intercept."""
    federation = small(loss, unequal=True)
    y = np.where(federation.X @ np.arange(federation.X.shape[1]) + 0.3 > 0, 1, -1)
    return replace(federation, X=0.9 * federation.X, y=y if loss == "logistic" else federation.y + 0.4)


@pytest.mark.parametrize(("name", "loss", "penalty"), PROBLEMS)
def test_every_algorithm_reaches_the_optimum_with_a_free_intercept(name: str, loss: str, penalty: str) -> None:
    case, federation = CASES[name], shifted(loss)
    plain = goal(loss, penalty)
    objective = sv.Objective(plain.loss, plain.penalty, plain.scale, fit_intercept=True)
    wide = np.column_stack([federation.X, np.full(len(federation.X), BIAS)])
    encoded = replace(federation, X=wide, bias=True)
    rounds = case.rounds if loss == "logistic" else case.enough(loss, penalty)  # a small bias is slow to learn
    result = train(case.algorithm, encoded, objective, rounds=rounds, record_every=rounds, **EXACT)
    best = optimum(federation, objective)
    found = np.append(result.model[:-1], BIAS * result.model[-1])
    np.testing.assert_allclose(found, best, atol=max(1e-6, 10 * case.tolerance), rtol=0)
    assert abs(best[-1]) > 0.1


def test_a_column_of_ones_is_added_in_training_and_in_predictions() -> None:
    federation = shifted("logistic")
    objective = sv.Objective(sv.Logistic(), sv.L2(0.1), fit_intercept=True)
    test = federation.X[:50], federation.y[:50]
    result = train(sv.ADMM(rho=0.5), federation, objective, rounds=300, test=test, **EXACT)
    best = optimum(federation, objective)
    np.testing.assert_allclose(result.model, best, atol=1e-7)
    np.testing.assert_allclose(result.scores(test[0]), test[0] @ best[:-1] + best[-1], atol=1e-6)
    assert result.history["test_accuracy"][-1] == (result.predict(test[0]) == test[1]).mean()
    with pytest.raises(InvalidInput, match="X must have 4 columns"):
        result.predict(np.zeros((2, 5)))


def test_the_bias_of_encoded_rows_is_the_intercept() -> None:
    """scikit-learn on the same rows: the bias column, which holds 1/length, costs nothing if it is scaled up."""
    rng = np.random.default_rng(0)
    table = {"age": rng.uniform(0, 100, 300), "sex": rng.choice(["f", "m"], 300), "ward": rng.choice(["a", "b"], 300)}
    ill = np.where(table["age"] + 20 * rng.normal(size=300) > 30, "yes", "no")
    columns: dict[str, Any] = {"age": sv.Number(0, 100), "sex": sv.Category("f", "m")}
    schema = sv.Schema(columns, label=sv.Label("ill", ["no", "yes"]), owner="ward")
    X, y, owners = schema.encode(table | {"ill": ill})
    assert y is not None
    assert owners is not None
    federation = replace(sv.Federation.from_arrays(X, 2 * y - 1, owners, row_bound=1.0), bias=True)
    lam, far = 0.05, 1e4
    objective = sv.Objective(sv.Logistic(), sv.L2(lam), "records", fit_intercept=True)
    result = train(sv.ADMM(rho=0.05), federation, objective, rounds=300, **EXACT)
    wide = np.column_stack([X[:, :-1], far * X[:, -1]])  # a coefficient 10^4 times smaller costs 10^8 times less
    model = LogisticRegression(C=1 / (lam * len(X)), fit_intercept=False, tol=1e-14, max_iter=10_000,
                               solver="newton-cholesky").fit(wide, y)  # fmt: skip
    expected = np.append(model.coef_[0, :-1], far * model.coef_[0, -1])
    np.testing.assert_allclose(result.model, expected, atol=1e-6)
    assert abs(result.model[-1]) > 0.1
    counted = replace(objective, penalty=sv.L2(lam))
    pulled = train(sv.ADMM(rho=0.05), federation, counted, rounds=300, **EXACT)
    assert abs(pulled.model[-1]) < 0.8 * abs(result.model[-1])


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("inner", [sv.L1(0.3), sv.L2(0.3), ElasticNet(0.2, 0.3), Box(-0.2, 0.3), Ball(0.4)], ids=repr)
def test_the_penalty_of_the_others_is_left_as_it_was(inner: Penalty, outputs: int) -> None:
    penalty, rng = WithIntercept(inner, outputs), np.random.default_rng(1)
    w = rng.normal(size=(2, 4, outputs * 3)) / 4
    last = np.arange(2, outputs * 3, 3)
    others = np.delete(w, last, axis=-1)
    np.testing.assert_array_equal(penalty.value(w), inner.value(others))
    moved = penalty.prox(w, 0.7)
    np.testing.assert_array_equal(moved[..., last], w[..., last])
    np.testing.assert_array_equal(np.delete(moved, last, axis=-1), inner.prox(others, 0.7))
    slope = penalty.subgradient(moved)
    assert (slope[..., last] == 0).all()
    np.testing.assert_array_equal(np.delete(slope, last, axis=-1), inner.subgradient(np.delete(moved, last, axis=-1)))
    assert penalty.subgradient_bound(3 * outputs) == inner.subgradient_bound(2 * outputs)
    assert (penalty.strong, penalty.curvature, penalty.separable) == (0.0, inner.curvature, inner.separable)
    one = penalty.prox(w[0], rng.uniform(0.5, 1, (2, 4, 1)))
    assert one.shape == w.shape
    away = penalty.prox(w + 0.3, 0.7)
    assert (np.linalg.norm(away - moved, axis=-1) <= np.linalg.norm(0.3 * np.ones(3 * outputs)) * (1 + 1e-12)).all()


def test_a_penalty_of_ones_own_is_not_vouched_for_inside() -> None:
    class Own(sv.L2):
        pass

    assert vouched(WithIntercept(sv.L2(0.1)))
    assert not vouched(WithIntercept(Own(0.1)))


def test_what_has_no_intercept_says_so() -> None:
    with pytest.raises(InvalidInput, match="penalise_intercept goes with fit_intercept"):
        sv.Objective(sv.Logistic(), sv.L2(0.1), penalise_intercept=True)
    parties = sv.VerticalFederation.from_columns(np.eye(4), [1, -1, 1, -1], [2, 2])
    objective = sv.Objective(sv.Logistic(), sv.L2(0.1), fit_intercept=True)
    with pytest.raises(InvalidInput, match="the penalty counts the intercept too"):
        train(sv.ADMMSharing(), parties, objective, rounds=2, **EXACT)
    counted = sv.Objective(sv.Logistic(), sv.L2(0.1), fit_intercept=True, penalise_intercept=True)
    result: Any = train(sv.ADMMSharing(), parties, counted, rounds=200, **EXACT)
    assert result.widths == (3, 2)
    wide = np.column_stack([np.eye(4), np.ones(4)])
    other = LogisticRegression(C=1 / (0.1 * 4), fit_intercept=False, tol=1e-12).fit(wide, parties.y).coef_[0]
    np.testing.assert_allclose(result.model, other[[0, 1, 4, 2, 3]], atol=1e-5)
    np.testing.assert_allclose(result.scores([np.eye(4)[:, :2], np.eye(4)[:, 2:]]), wide @ other, atol=1e-5)


def test_a_record_that_is_not_there_has_no_intercept_either() -> None:
    """Where records may be blank a row of zeros is one: it moves no gradient and no count, whatever its label."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), rng.choice([-1.0, 1.0], 40)
    X /= 1.01 * np.linalg.norm(X, axis=1)[:, None]
    objective = sv.Objective(sv.Logistic(), sv.L2(0.01), "records", fit_intercept=True)
    privacy = sv.Proven(1.0, 1e-3, relation="add-remove")
    task = Task(sv.NoisyGD(), objective, privacy, rounds=2, evaluate=Evaluation())

    def answer(place: int, label: float, there: bool) -> np.ndarray:
        rows, labels = np.insert(X, place, np.eye(3)[0] * there, axis=0), np.insert(y, place, label)
        federation = sv.Federation.from_arrays(rows, labels, np.zeros(len(rows), int), row_bound=1.0)
        clients: Any = local_clients(task, federation, Streams(0), None, None, "a run")
        local, point = np.arange(1), np.array([[0.3, -0.2, 0.1, 0.4]])
        gradient = clients.exact.gradient(point, local, clients.task.privacy.clip, 2, None)
        return np.concatenate([gradient.ravel(), np.ravel(clients.door.held.counts(point, local, True))])

    moved = []
    for place in range(0, 41, 4):  # some of these are held out
        blank = answer(place, 1.0, False)
        assert np.array_equal(blank, answer(place, -1.0, False)), "the label of a blank says nothing"
        moved.append(np.flatnonzero(blank != answer(place, 1.0, True)))
    assert any((which < 4).all() for which in moved if len(which)), "a record that is there moves a gradient"
    assert any((which >= 4).all() for which in moved if len(which)), "or counts"
