"""Weights of classes and decision thresholds: public numbers, within the clip norm, or refused."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from sottovoce.algorithms import ADMM, Moments, NoisyGD
from sottovoce.core.check import InvalidInput
from sottovoce.problems.rows import Rows


def rows(count: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.7, 0.7, (count, 2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=count) > 0.4, "ill", "well")
    return X, y, np.arange(count) % 2


def test_weights_minimise_what_scikit_learn_minimises() -> None:
    X, y, owner = rows()
    weights = {"ill": 6.0, "well": 1.0}
    model = sv.FederatedClassifier(
        ADMM(rho=0.5), privacy="none", penalty=sv.L2(0.01), rounds=300, class_weight=weights, random_state=0,
        fit_intercept=False,
    ).fit(X, y, groups=owner)  # fmt: skip
    other = LogisticRegression(C=1 / (0.01 * len(y)), class_weight=weights, fit_intercept=False, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-3)
    plain = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False).fit(X, y)
    assert np.linalg.norm(model.coef_ - plain.coef_) > 0.1


def test_the_clip_norm_bounds_a_record_however_much_it_weighs() -> None:
    X, y = np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([1.0, -1.0])
    exact = Rows(X, y, [0, 1, 2], sv.WeightedLogistic((2.0, 1000.0)), "sum")
    gradients = exact.gradient(np.zeros((1, 2)), clip=1.0)
    assert np.linalg.norm(gradients, axis=1) == pytest.approx([1.0, 0.5])  # 1000/2 · 5 is cut, 2/2 · 0.5 is not
    assert exact.engine == "numpy"
    assert Rows(X, y, [0, 1, 2], sv.WeightedLogistic((2.0, 1000.0)), "sum", "kernel").engine == "numpy"


def test_a_proven_run_with_weights_has_the_same_guarantee() -> None:
    X, y, owner = rows()
    fed = sv.Federation.from_arrays(X, np.where(y == "ill", 1, -1), owner, row_bound=1.0)
    privacy = sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0)
    goal = sv.Objective(sv.WeightedLogistic((1.0, 5.0)), sv.L2(0.01))
    result = sv.train(NoisyGD(), fed, goal, rounds=3, privacy=privacy, seed=0)
    assert result.guarantee.epsilon == pytest.approx(1.0)
    assert result.predict_proba(X).shape == (400, 2)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("balanced", "got 'balanced'. They must be public: weights read off private labels"),
        ([1.0], "class_weight must be 2 numbers"),
        ([1.0, -2.0], "class_weight must be 2 numbers from"),
        ({"ill": 1.0}, r"must have a number for each of the classes \['ill', 'well'\]"),
    ],
)
def test_what_is_refused(weights: object, words: str) -> None:
    X, y, owner = rows()
    with pytest.raises(InvalidInput, match=words):
        sv.FederatedClassifier(class_weight=weights, random_state=0).fit(X, y, groups=owner)  # type: ignore[arg-type]


def test_moments_are_refused_since_they_make_a_quadratic_that_is_alike_for_all_classes() -> None:
    X, y, owner = rows()
    fed = sv.Federation.from_arrays(X, np.where(y == "ill", 1, -1), owner, row_bound=1.0)
    goal = sv.Objective(sv.WeightedLogistic((1.0, 5.0)), sv.L2(0.01))
    with pytest.raises(InvalidInput, match="no class_weight"):
        sv.train(Moments(), fed, goal, rounds=1, privacy=sv.NoPrivacy())


def test_a_threshold_decides_in_results_and_estimators() -> None:
    X, y, owner = rows()
    fed = sv.Federation.from_arrays(X, np.where(y == "ill", 1, -1), owner, row_bound=1.0)
    goal = sv.Objective(sv.Logistic(), sv.L2(0.01))
    asked = sv.Evaluation(threshold=0.2)
    result = sv.train(NoisyGD(), fed, goal, rounds=30, privacy=sv.NoPrivacy(), seed=0, evaluate=asked)
    chances = result.predict_proba(X)[:, 1]
    assert np.array_equal(result.predict(X), np.where(chances >= 0.2, 1.0, -1.0))  # as it was evaluated
    assert np.array_equal(result.predict(X, threshold=0.5), np.where(chances >= 0.5, 1.0, -1.0))
    assert np.mean(result.predict(X) > 0) > np.mean(result.predict(X, threshold=0.5) > 0)
    with pytest.raises(InvalidInput, match="predict: threshold must lie in"):
        result.predict(X, threshold=1.5)
    model = sv.FederatedClassifier("noisy-gd", privacy="none", evaluate=asked, random_state=0).fit(X, y, groups=owner)
    ill = model.predict_proba(X)[:, 1] >= 0.2
    assert np.array_equal(model.predict(X), model.classes_[ill.astype(int)])
    numbers = sv.Objective(sv.SmoothedHinge(), sv.L2(0.01))
    plain = sv.train(NoisyGD(), fed, numbers, rounds=3, privacy=sv.NoPrivacy(), seed=0)
    with pytest.raises(InvalidInput, match="a threshold is a probability of the second of two classes"):
        plain.predict(X, threshold=0.3)
