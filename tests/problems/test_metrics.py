"""Metrics against scikit-learn, and where a number does not exist."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as reference

from sottovoce.problems.losses import Logistic, SmoothedHinge, Softmax, Squared
from sottovoce.problems.metrics import BINS, class_labels, class_numbers, metrics


@pytest.mark.parametrize(
    ("loss", "labels"),
    [(Logistic(), [-1.0, 1.0]), (SmoothedHinge(), [-1.0, 1.0]), (Softmax(2), [0.0, 1.0]), (Softmax(4), [0.0, 1.0])],
)
def test_numbers_of_classes_as_labels_of_a_loss_and_back(loss: Logistic, labels: list[float]):
    numbers = np.array([0, 1, 1])
    coded = class_labels(loss, numbers)
    assert np.array_equal(coded, loss.check_labels(np.array(labels)[numbers]))
    assert np.array_equal(class_numbers(loss, coded), numbers)


def test_two_classes_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    scores, y = np.round(rng.normal(-1, 2, 400), 1), np.where(rng.random(400) < 0.2, 1.0, -1.0)  # with ties
    found, predicted = metrics(Logistic(), scores, y), np.where(scores >= 0, 1.0, -1.0)
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(y, predicted))
    assert found["larger_class"] == pytest.approx(max(np.mean(y > 0), np.mean(y < 0)))
    assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(y, predicted))
    assert found["auc"] == pytest.approx(reference.roc_auc_score(y, scores))
    assert found["log_loss"] == pytest.approx(reference.log_loss(y, expit(scores)))
    assert np.array_equal(found["confusion"], reference.confusion_matrix(y, predicted))


def test_several_classes_agree_with_scikit_learn():
    rng = np.random.default_rng(1)
    scores, y = rng.normal(size=(300, 4)), rng.integers(0, 4, 300).astype(float)
    found, predicted = metrics(Softmax(4), scores, y), scores.argmax(axis=1)
    assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(y, predicted))
    chances = softmax(scores, axis=1)
    assert found["log_loss"] == pytest.approx(reference.log_loss(y, chances))
    areas = [reference.roc_auc_score(y == c, scores[:, c]) for c in range(4)]
    assert found["auc"] == pytest.approx(np.mean(areas))
    assert np.array_equal(found["confusion"], reference.confusion_matrix(y, predicted))


def test_two_margins_are_one_score():
    rng = np.random.default_rng(4)
    margins, y = rng.normal(size=(2, 50, 2)), rng.integers(0, 2, 50)
    several = metrics(Softmax(2), margins, y.astype(float))
    one = metrics(Logistic(), margins[..., 1] - margins[..., 0], np.where(y > 0, 1.0, -1.0))
    for name, values in one.items():
        assert np.allclose(several[name], values), name


def test_calibration_error_by_hand():
    """Scores whose probabilities are 0.9 (three rows, two of them right) and 0.25 (one row, wrong)."""
    scores = np.log([9.0, 9.0, 9.0, 1 / 3])
    found = metrics(Logistic(), scores, np.array([1.0, 1.0, -1.0, -1.0]))
    assert found["calibration_error"] == pytest.approx((3 * abs(0.9 - 2 / 3) + 0.25) / 4)
    assert BINS == 10


def test_regression_agrees_with_scikit_learn():
    rng = np.random.default_rng(2)
    scores, y = rng.normal(size=50), rng.normal(size=50)
    found = metrics(Squared(), scores, y)
    assert found["r2"] == pytest.approx(reference.r2_score(y, scores))
    assert found["mae"] == pytest.approx(reference.mean_absolute_error(y, scores))


def test_several_models_at_once_are_each_alone():
    rng = np.random.default_rng(3)
    scores, y = rng.normal(size=(3, 60, 3)), rng.integers(0, 3, 60).astype(float)
    together = metrics(Softmax(3), scores, y)
    for run in range(3):
        for name, value in metrics(Softmax(3), scores[run], y).items():
            assert np.allclose(together[name][run], value), name


def test_what_does_not_exist_is_nan_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_class = metrics(Logistic(), np.array([1.0, -1.0]), np.ones(2))
        assert one_class["larger_class"] == 1.0
        assert np.isnan(one_class["auc"])
        assert np.isnan(one_class["balanced_accuracy"])
        no_chances = metrics(SmoothedHinge(), np.array([1.0, -1.0]), np.array([1.0, -1.0]))
        assert no_chances["auc"] == 1.0
        assert np.isnan(no_chances["log_loss"])
        assert np.isnan(no_chances["calibration_error"])
        assert all(np.isnan(value).all() for name, value in metrics(Logistic(), np.zeros(0), np.zeros(0)).items()
                   if name != "confusion")  # fmt: skip
        assert np.isnan(metrics(Squared(), np.zeros(2), np.ones(2))["r2"])
        assert np.isnan(metrics(Logistic(), np.array([np.nan, 1.0]), np.array([1.0, -1.0]))["auc"])
