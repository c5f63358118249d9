"""How good predictions are, in several numbers: accuracy alone says little where one class is much the larger.

Everything is computed from scores and labels as a loss has them, for one model or for several at once (a leading axis).
A number that does not exist, such as an AUC of one class, is NaN and never an error.
"""

from importlib import import_module

import numpy as np

from sottovoce.core.arrays import Booleans, Floats, Integers
from sottovoce.problems.losses import Logistic, Loss, Softmax

BINS = 10  # of probabilities, for the calibration error

Metrics = dict[str, Floats]


ALONE = "_alone"  # how the names of metrics end that are about one party's columns


def metrics(loss: Loss, scores: Floats, y: Floats) -> Metrics:
    """All numbers that suit the loss, (...,) each; the confusion table is (..., classes, classes), labels first.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import Logistic
    >>> from sottovoce.problems.metrics import metrics
    >>> found = metrics(Logistic(), np.array([2.0, 1.0, -1.0, 0.5]), np.array([1.0, 1.0, 1.0, -1.0]))
    >>> {name: float(found[name]) for name in ("accuracy", "larger_class", "auc")}
    {'accuracy': 0.5, 'larger_class': 0.75, 'auc': 0.6666666666666666}
    """
    with np.errstate(all="ignore"):
        return _of_classes(loss, scores, y) if loss.classification else _of_numbers(loss, scores, y)


def _of_numbers(loss: Loss, scores: Floats, y: Floats) -> Metrics:
    errors = loss.predict(scores) - y
    spread = np.square(y - y.mean()).sum() if len(y) else np.nan
    r2 = 1.0 - np.square(errors).sum(axis=-1) / spread if spread > 0 else np.full(errors.shape[:-1], np.nan)
    return {"r2": r2, "mae": _mean(np.abs(errors))}


def _of_classes(loss: Loss, scores: Floats, y: Floats) -> Metrics:
    classes = max(loss.outputs, 2)
    labels = class_numbers(loss, y)
    table = confusion(labels, class_numbers(loss, loss.predict(scores)), classes)
    sizes = np.bincount(labels, minlength=classes)
    hits = np.diagonal(table, axis1=-2, axis2=-1)
    recalls = hits / np.where(sizes > 0, sizes, np.nan)
    several = np.count_nonzero(sizes) > 1
    chances = probabilities(loss, scores)
    missing = np.full(table.shape[:-2], np.nan)
    return {
        "accuracy": hits.sum(axis=-1) / max(len(y), 1) if len(y) else missing,
        "larger_class": np.broadcast_to(sizes.max() / len(y) if len(y) else np.nan, missing.shape),
        "balanced_accuracy": np.nanmean(recalls, axis=-1) if several else missing,
        "auc": _auc(scores[..., 1] - scores[..., 0] if loss.outputs == 2 else scores, labels, classes),
        "log_loss": missing if chances is None else _mean(_plain(loss).value(scores, y)),
        "calibration_error": missing if chances is None else calibration_error(chances, labels),
        "confusion": table.astype(np.float64),
    }


def _plain(loss: Loss) -> Loss:
    """The loss without weights of classes."""
    return Softmax(loss.outputs) if loss.outputs > 1 else Logistic()


def class_numbers(loss: Loss, y: Floats) -> Integers:
    """Labels, or predictions, of a loss as numbers of classes from 0."""
    return (y > 0).astype(np.intp) if loss.outputs == 1 else y.astype(np.intp)


def class_labels(loss: Loss, numbers: Integers) -> Floats:
    """Numbers of classes from 0 as the loss has labels: -1 and +1 of two classes with one score, else the numbers."""
    labels = numbers.astype(np.float64)
    return 2.0 * labels - 1.0 if loss.outputs == 1 else labels


def decided(loss: Loss, scores: Floats, threshold: float = 0.5, calibration: float = 1.0) -> Floats:
    """Labels as the loss has them, by its own rule: a score of 0 is the second of two classes, and of equal scores of
    several classes the first wins.

    `threshold`: the second where its probability, after calibration, is at least this: of a logistic loss only.
    """
    if threshold == 0.5:
        return loss.predict(scores)
    return loss.predict(calibration * scores - np.log(threshold / (1 - threshold)))


def probabilities(loss: Loss, scores: Floats) -> Floats | None:
    """Of each class, (..., rows, classes); None for a loss that has none."""
    return chances_by(loss, scores) if loss.probabilities else None


def chances_by(loss: Loss, scores: Floats) -> Floats:
    """Probabilities of classes if the loss has them; else numbers in their place, in the order of the scores."""
    special = import_module("scipy.special")
    if loss.outputs > 1:
        return special.softmax(scores, axis=-1)
    return np.stack([special.expit(-scores), special.expit(scores)], axis=-1)


def confusion(labels: Integers, predicted: Integers, classes: int) -> Integers:
    """How many rows of each label got each prediction, (..., classes, classes)."""
    cells = labels * classes + predicted
    tables = np.zeros((*cells.shape[:-1], classes**2), dtype=np.intp)
    for run in np.ndindex(cells.shape[:-1]):
        tables[run] = np.bincount(cells[run], minlength=classes**2)
    return tables.reshape(*cells.shape[:-1], classes, classes)


def calibration_error(chances: Floats, labels: Integers) -> Floats:
    """Expected calibration error: |mean probability − share that was right|, over `BINS` equal bins, by their rows.

    Of two classes: of the second one's probability. Of more: of the winning probability.
    """
    if chances.shape[-1] == 2:
        chance, right = chances[..., 1], np.broadcast_to(labels == 1, chances.shape[:-1])
    else:
        chance, right = chances.max(axis=-1), chances.argmax(axis=-1) == labels
    bins = np.minimum((chance * BINS).astype(np.intp), BINS - 1)
    gaps = [np.where(bins == b, chance - right, 0.0).sum(axis=-1) for b in range(BINS)]
    return np.abs(gaps).sum(axis=0) / chance.shape[-1] if chance.shape[-1] else np.full(chance.shape[:-1], np.nan)


def _auc(scores: Floats, labels: Integers, classes: int) -> Floats:
    """Area under the ROC curve; of more than two classes the mean over one class against the rest."""
    if classes == 2:
        return _area(scores, labels == 1)
    return np.mean([_area(scores[..., c], labels == c) for c in range(classes)], axis=0)


def _area(scores: Floats, positive: Booleans) -> Floats:
    many, few = int(np.count_nonzero(~positive)), int(np.count_nonzero(positive))
    if many == 0 or few == 0 or not np.isfinite(scores).all():
        return np.full(scores.shape[:-1], np.nan)
    ranks = np.apply_along_axis(_ranks, -1, scores)
    return (ranks[..., positive].sum(axis=-1) - few * (few + 1) / 2) / (few * many)


def _ranks(scores: Floats) -> Floats:
    """1, 2, .. in rising order. Equal scores share their mean rank, so a tie counts for one half."""
    rising = np.sort(scores)
    return (np.searchsorted(rising, scores, "left") + np.searchsorted(rising, scores, "right") + 1) / 2


def _mean(values: Floats) -> Floats:
    return values.mean(axis=-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan)
