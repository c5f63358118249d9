"""Records that their owners held out, counted by label and by what a model says of them (`core/histogram.py`)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sottovoce.core.arrays import AnyArray, Booleans, Floats, Integers
from sottovoce.core.histogram import Evaluation
from sottovoce.problems.losses import Loss
from sottovoce.problems.metrics import chances_by, class_numbers, decided


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out rows, sorted by client: client i owns rows offsets[i] to offsets[i+1].

    Parameters
    ----------
    X, y, offsets, loss
        As in `Rows`.
    evaluation
        What is counted.
    row_bound
        What no row is longer than; None where nothing is promised.
    calibration
        The factor for scores with which probabilities are calibrated.
    """

    X: AnyArray
    y: Floats
    offsets: Integers
    loss: Loss
    evaluation: Evaluation
    row_bound: float | None = None
    calibration: float = 1.0

    @property
    def sizes(self) -> Integers:
        return np.diff(self.offsets)

    @property
    def width(self) -> int:
        """How many counts an answer holds."""
        return self.evaluation.width(number_of_classes(self.loss))

    def counts(self, w: Floats, clients: Integers, blanks: bool) -> Floats:
        """Counts of each client's records at w (..., 1 or clients, dim): (..., clients, width).

        `blanks`: rows of zeros stand for records that are not there, and are counted nowhere.
        """
        points = np.broadcast_to(w, (*w.shape[:-2], len(clients), w.shape[-1]))
        counts = np.zeros((*points.shape[:-1], self.width))
        for place in np.ndindex(points.shape[:-1]):
            client = clients[place[-1]]
            counts[place] = self._of_client(points[place], int(client), blanks)
        return counts

    def _of_client(self, w: Floats, client: int, blanks: bool) -> Floats:
        rows, classes = slice(self.offsets[client], self.offsets[client + 1]), number_of_classes(self.loss)
        X, labels = np.asarray(self.X[rows], dtype=np.float64), self._labels[rows]
        most = self.calibration * longest(self.loss, w, self.row_bound)
        predicted, bins = sorted_into(self.evaluation, self.loss, self.loss.scores(X, w), most, self.calibration)
        table = labels * classes + predicted
        fine = table * self.evaluation.bins_of_class(classes) + bins
        there = self._there[rows] if blanks else slice(None)
        of_table = np.bincount(table[there], minlength=classes**2)
        of_bins = np.bincount(fine[there], minlength=self.width - classes**2)
        return np.concatenate([of_table, of_bins]).astype(np.float64)

    @cached_property
    def _labels(self) -> Integers:
        return class_numbers(self.loss, self.y)

    @cached_property
    def _there(self) -> Booleans:
        return np.any(self.X != 0, axis=1)


def number_of_classes(loss: Loss) -> int:
    return max(2, loss.outputs)


def longest(loss: Loss, w: Floats, row_bound: float | None) -> float:
    """What no score by the model w is larger than in size; infinite where nothing is known."""
    if row_bound is None or hasattr(loss, "output_loss"):
        return np.inf
    apart = np.sqrt(2.0) if loss.outputs == 2 else 1.0  # of two margins it is their difference that counts
    return float(apart * np.linalg.norm(w)) * row_bound * (1 + 1e-9)


def sorted_into(
    evaluation: Evaluation, loss: Loss, scores: Floats, most: float, calibration: float
) -> tuple[Integers, Integers]:
    """The predicted class of each row, and its bin, by how sure the model is: each row has both, whatever its score."""
    predicted = class_numbers(loss, decided(loss, scores, evaluation.threshold, calibration))
    chances = chances_by(loss, calibration * scores)
    sure = chances[np.arange(len(predicted)), predicted]
    inner = evaluation.edges(chances.shape[-1], most)[predicted, 1:-1]
    return predicted, (sure[:, None] >= inner).sum(axis=-1)
