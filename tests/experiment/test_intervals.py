"""Intervals from noisy counts cover the exact numbers on the counted records, however few these are."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from sottovoce.experiment import intervals
from sottovoce.experiment.evaluation import PrivateEvaluation

TRIALS = 1000
COVERED = 0.936  # 95 % less two deviations of a share of 1,000 trials


def covered(estimate: intervals.Estimate, exact: float) -> float:
    return float(np.mean((estimate.low <= exact + 1e-12) & (exact - 1e-12 <= estimate.high)))


def two_classes(records: int, share: float, bins: int, rng: np.random.Generator):
    """Labels and probabilities of records, and their counts by label, prediction and bin."""
    labels = (np.arange(records) < max(1, round(share * records))).astype(int)
    chance = 1 / (1 + np.exp(-rng.normal(np.where(labels, 0.6, -0.6), 1)))
    predicted = (chance >= 0.5).astype(int)
    sure = np.where(predicted, chance, 1 - chance)
    place = np.minimum(((sure - 0.5) * 2 * bins).astype(int), bins - 1)
    fine = np.bincount((labels * 2 + predicted) * bins + place, minlength=4 * bins)
    table = np.bincount(labels * 2 + predicted, minlength=4)
    return labels, chance, predicted, np.concatenate([table, fine]).astype(float)


@pytest.mark.parametrize("records", [30, 1000, 20_000])
@pytest.mark.parametrize("share", [0.5, 0.03])
@pytest.mark.parametrize("deviation", [1.0, 12.0, 150.0])
@pytest.mark.parametrize("known", [True, False])
def test_two_classes_are_covered(records: int, share: float, deviation: float, known: bool) -> None:
    rng, bins = np.random.default_rng([records, round(100 * share), round(deviation), known]), 5
    labels, chance, predicted, counts = two_classes(records, share, bins, rng)
    noisy = counts + rng.normal(0, deviation, (TRIALS, len(counts)))
    edges, total = np.tile(np.linspace(0.5, 1, bins + 1), (2, 1)), records if known else None
    found = PrivateEvaluation(noisy[0], deviation, 1, total, edges, True)
    table, fine = noisy[:, :4].reshape(TRIALS, 2, 2), noisy[:, 4:].reshape(TRIALS, 2, 2, bins)
    by_score = np.concatenate([fine[:, :, 0, ::-1], fine[:, :, 1]], axis=-1)
    exact = {
        "accuracy": (np.mean(predicted == labels), intervals.accuracy(table, deviation, total)),
        "larger_class": (max(labels.mean(), 1 - labels.mean()), intervals.larger_class(table, deviation, total)),
        "balanced_accuracy": (
            balanced_accuracy_score(labels, predicted), intervals.balanced_accuracy(table, deviation)
        ),
        "auc": (roc_auc_score(labels, chance), intervals.auc(by_score[:, 1], by_score[:, 0], deviation)),
        "calibration_gap": (
            chance.mean() - labels.mean(), intervals.gap(noisy[:, 4:], *found._calibration_bounds(), deviation, total)
        ),
    }  # fmt: skip
    for name, (number, estimate) in exact.items():
        assert covered(estimate, float(number)) >= COVERED, name
        assert np.all(estimate.low <= estimate.high), name
        np.testing.assert_allclose([each[0] for each in estimate], found.estimates[name], err_msg=name)


@pytest.mark.parametrize("classes", [3, 6])
@pytest.mark.parametrize("records", [60, 20_000])
@pytest.mark.parametrize("deviation", [1.0, 30.0])
def test_several_classes_are_covered(classes: int, records: int, deviation: float) -> None:
    rng = np.random.default_rng([classes, records, round(deviation)])
    labels = np.minimum((classes * rng.random(records) ** 2).astype(int), classes - 1)  # unequal
    predicted = np.where(rng.random(records) < 0.6, labels, rng.integers(0, classes, records))
    exact = np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)
    noisy = exact + rng.normal(0, deviation, (TRIALS, classes, classes))
    assert covered(intervals.accuracy(noisy, deviation, records), np.mean(predicted == labels)) >= COVERED
    assert covered(intervals.larger_class(noisy, deviation, records), exact.sum(axis=1).max() / records) >= COVERED
    balanced = balanced_accuracy_score(labels, predicted)
    assert covered(intervals.balanced_accuracy(noisy, deviation), balanced) >= COVERED


@pytest.mark.parametrize("classes", [3, 6, 10])
@pytest.mark.parametrize("recall", [1.0, 0.97, 0.0])
@pytest.mark.parametrize("deviation", [1.0, 8.0, 40.0])
def test_balanced_accuracy_is_covered_where_recalls_are_cut(classes: int, recall: float, deviation: float) -> None:
    """At recalls of 0 and 1 estimates lean to one side; the last class is too small to be told from an empty one."""
    rng = np.random.default_rng([classes, round(100 * recall), round(deviation)])
    sizes = np.where(np.arange(classes) < classes - 1, 100, 4)
    exact = np.zeros((classes, classes))
    right = np.rint(recall * sizes)
    exact[np.arange(classes), np.arange(classes)] = right
    exact[np.arange(classes), (np.arange(classes) + 1) % classes] = sizes - right
    noisy = exact + rng.normal(0, deviation, (TRIALS, classes, classes))
    assert covered(intervals.balanced_accuracy(noisy, deviation), float(np.mean(right / sizes))) >= COVERED


def test_intervals_are_no_wider_than_they_must_be() -> None:
    """Two deviations of a sum of four counts, of which the mean is known."""
    estimate = intervals.accuracy(np.array([[400.0, 100.0], [50.0, 450.0]]), 10.0, 1000)
    assert estimate.value == pytest.approx(0.85)
    assert estimate.high - estimate.value == pytest.approx(2 * 10 / 1000, rel=1e-4)


def test_without_noise_the_numbers_are_exact() -> None:
    rng = np.random.default_rng(0)
    labels, chance, predicted, counts = two_classes(500, 0.3, 50, rng)
    edges = np.tile(np.linspace(0.5, 1, 51), (2, 1))
    found = PrivateEvaluation(counts, 0.0, 1, 500, edges, True).estimates
    assert np.ptp(found["accuracy"]) == 0
    assert found["accuracy"].value == pytest.approx(np.mean(predicted == labels))
    assert found["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(labels, predicted))
    low, high = found["auc"].low, found["auc"].high
    assert low <= roc_auc_score(labels, chance) <= high
    assert high - low < 0.05  # pairs in one bin of a hundred
    gap = found["calibration_gap"]
    assert gap.low <= chance.mean() - labels.mean() <= gap.high
