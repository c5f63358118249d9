"""Counts on records that were held out: what quality on private rows is computed from.

Each owner sets aside some of its records. They are in no answer during training. At the end they are scored by the
finished model, and the owner answers one question with noisy counts of them:

    table    (label, predicted class)                           K² counts for K classes
    bins     (label, predicted class, how sure the model is)    K² C counts; where the C bins end is public

Which records are held out. Owner i with n_i records holds out h_i of them: those at the positions with the h_i smallest
of n_i numbers that a secret key gives. h_i and the positions are functions of the key, n_i and a public share, and
of no record's content. So the same records are held out in every run, whatever is trained.

Sensitivity. Fix the model (it was released before, so it is public here). A held-out record adds 1 to one count of the
table and 1 to one count of the bins, and nothing else in the answer depends on it.

* Replace-one. The record at position j gets other content; its position stays. If j is held out, at most two counts of
  the table and two of the bins change, by 1 each: the L2 distance is at most √4 = 2. If j is not held out, no count
  changes. The record never moves between the two sets, and the sizes of both sets stay the same.
* Add-remove. The record at position j is there, or a blank (a row of zeros) that contributes nothing. How many there
  are is public, so no other record gets another position. Blanks are counted nowhere: one count of the table and
  one of the bins change by 1, √2. (A record that really is a row of zeros is taken for a blank, and not counted.)

A hash of the record's *content* would be wrong. A replaced record could then move from one set to the other: it would
change the counts and the training answers at once, and the sizes of both sets with them, which are treated as public.

Cost. The counts are charged to the same ledger as the answers during training, one after the other: the sum of both is
what is stated. A single record is in one of the two sets only, so it loses less than that; the sum holds as well for
records that an earlier run, without held-out records, trained on.

Two histograms cost a factor √2 beside one, and are the better choice: accuracy needs the few counts of the table, whose
noise does not grow with the number of bins.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Booleans, Floats


@dataclass(frozen=True)
class Evaluation:
    """A private estimate of a model's quality, on records that its owners held out.

    Parameters
    ----------
    share
        Its share of the budget, counted in mu². The rest is for training.
    held_out
        Share of each owner's records that is held out, in this and in all other runs with an evaluation.
    bins
        Bins of scores, over all classes: for AUC and calibration. More bins are finer, and noisier together.
    threshold
        Of two classes: the second is predicted where its probability is at least this.

    Examples
    --------
    >>> from sottovoce import Evaluation
    >>> Evaluation()
    Evaluation(share=0.05, held_out=0.2, bins=10, threshold=0.5)
    >>> Evaluation(held_out=0)
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: evaluate: held_out must lie in (0, 1), got 0
    """

    share: check.Fraction = 0.05
    held_out: check.Fraction = 0.2
    bins: Annotated[int, check.Interval(2, whole=True)] = 10
    threshold: check.Fraction = 0.5

    def __post_init__(self) -> None:
        check.fields(self, "evaluate")
        check.require(self.bins <= 1000, "evaluate", "bins must be at most 1000", self.bins)

    def bins_of_class(self, classes: int) -> int:
        """C: bins for each predicted class."""
        return max(1, self.bins // classes)

    def width(self, classes: int) -> int:
        """How many counts an answer holds."""
        return classes**2 * (1 + self.bins_of_class(classes))

    def edges(self, classes: int, longest: float) -> Floats:
        """Where the bins of each predicted class end, as probabilities of that class: (classes, C + 1), rising.

        `longest`: what no score is larger than in size, by public numbers; infinite where none is known.
        """
        least = np.full(classes, 1.0 / classes)
        most = np.ones(classes)
        if classes == 2:
            least[:] = 1 - self.threshold, self.threshold
            most[:] = np.maximum(least, 1 / (1 + math.exp(-min(longest, 700.0))))
        return np.linspace(least, most, self.bins_of_class(classes) + 1, axis=-1)

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """How many records are left for training, of so many: public."""
        held = np.clip(np.rint(self.held_out * sizes), 1, np.maximum(sizes - 1, 0))
        return (sizes - held).astype(np.int64)

    def positions(self, key: bytes, size: int) -> Booleans:
        """Which of an owner's `size` records are held out, by the key and their positions alone."""
        check.require(size >= 2, "evaluate", "every owner needs at least 2 records, one of them to hold out", size)
        ranks = np.frombuffer(hashlib.shake_256(b"sottovoce held out " + key).digest(8 * size), dtype="<u8")
        held = size - int(self.training_sizes(np.array([size]))[0])
        chosen = np.zeros(size, dtype=bool)
        chosen[np.argsort(ranks, kind="stable")[:held]] = True
        return chosen


def sensitivity(replaced: bool) -> float:
    """How far one record moves an answer, in L2: where it is replaced, or where it is there or blank."""
    return 2.0 if replaced else math.sqrt(2.0)
