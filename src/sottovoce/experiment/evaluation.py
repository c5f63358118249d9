"""A model's quality on records that their owners held out, from noisy counts (`core/histogram.py`)."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats
from sottovoce.core.histogram import Evaluation, sensitivity
from sottovoce.core.plain import Json
from sottovoce.experiment import intervals
from sottovoce.experiment.task import Task
from sottovoce.privacy.discrete_noise import GRID_STEPS
from sottovoce.privacy.events import Event, GridEvent
from sottovoce.problems.rows.held_out import longest, number_of_classes

_WORDS = {"auc": "AUC", "calibration_gap": "mean predicted − observed"}  # where a name itself does not say it


@dataclass(frozen=True, eq=False)
class PrivateEvaluation:
    """Noisy counts of held-out records, and what follows from them, each with a 95 % interval.

    The intervals are for the exact numbers on these very records, and include the noise.

    Parameters
    ----------
    counts
        Sums over the owners that answered, as `core/histogram.py` lists them.
    deviation
        Of the noise in each count; 0 without privacy.
    owners, records
        How many owners answered, and how many records they held out; None where that is not public.
    edges
        Where the bins end, as probabilities of the predicted class, (classes, bins + 1).
    calibrated
        Whether the loss has probabilities, so that calibration means something.
    """

    counts: Floats
    deviation: float
    owners: int
    records: int | None
    edges: Floats
    calibrated: bool

    @property
    def classes(self) -> int:
        return len(self.edges)

    @cached_property
    def table(self) -> Floats:
        """Noisy counts by label and prediction, (classes, classes)."""
        return self.counts[: self.classes**2].reshape(self.classes, self.classes)

    @cached_property
    def bins(self) -> Floats:
        """Noisy counts by label, prediction and bin, (classes, classes, bins)."""
        return self.counts[self.classes**2 :].reshape(self.classes, self.classes, -1)

    @cached_property
    def estimates(self) -> dict[str, intervals.Estimate]:
        """Accuracy, the larger class, balanced accuracy, AUC (of two classes) and calibration."""
        noise = self.deviation
        estimates = {
            "accuracy": intervals.accuracy(self.table, noise, self.records),
            "larger_class": intervals.larger_class(self.table, noise, self.records),
            "balanced_accuracy": intervals.balanced_accuracy(self.table, noise),
        }
        if self.classes == 2:  # by the score of the second class: the surest of the first come first
            by_score = np.concatenate([self.bins[:, 0, ::-1], self.bins[:, 1]], axis=-1)
            estimates["auc"] = intervals.auc(by_score[1], by_score[0], noise)
        if self.calibrated:
            bounds = self._calibration_bounds()
            estimates["calibration_gap"] = intervals.gap(self.bins.ravel(), *bounds, noise, self.records)
        return estimates

    def _calibration_bounds(self) -> tuple[Floats, Floats]:
        """What a record of each bin adds to (mean predicted − observed), at least and at most.

        Of two classes: the probability of the second, less 1 for its records. Of more: the winning probability, less 1
        where it was right.
        """
        shape = (self.classes, *self.edges[:, 1:].shape)
        least, most = (np.broadcast_to(ends, shape).copy() for ends in (self.edges[:, :-1], self.edges[:, 1:]))
        if self.classes == 2:
            least[:, 0], most[:, 0] = 1 - most[:, 0], 1 - least[:, 0]
            observed = np.broadcast_to(np.array([0.0, 1.0])[:, None, None], shape)
        else:
            observed = np.broadcast_to(np.eye(self.classes)[..., None], shape)
        return (least - observed).ravel(), (most - observed).ravel()

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """(what, value, interval) for a reader."""
        for name, each in self.estimates.items():
            form = {"auc": ".4g", "calibration_gap": "+.2%"}.get(name, ".2%")
            value, low, high = (f"{float(number):{form}}" for number in each)
            hidden = float(each.high - each.low) >= (2.0 if name == "calibration_gap" else 1.0)
            yield _WORDS.get(name, name.replace("_", " ")), "not known" if hidden else value, f"{low} to {high}"

    @property
    def about(self) -> str:
        """On what it was measured, in one sentence."""
        records = "records" if self.records is None else f"{self.records} records"
        noise = f"noise of deviation {self.deviation:.4g}" if self.deviation else "no noise"
        return (
            f"On {records} that {self.owners} owners held out, by counts with {noise}; 95 % intervals are for the "
            "exact numbers on these records"
        )

    def __str__(self) -> str:
        wide = float(np.subtract(*self.estimates["accuracy"][:0:-1])) > 0.1
        hint = ["  (wide: the noise counts for much here. A larger share of the budget or of the records helps)"] * wide
        lines = [f"  {what} {value} ({limits})" for what, value, limits in self.lines()]
        return "\n".join([f"{self.about}:", *lines, *hint])

    def to_dict(self) -> Json:
        """Plain values, for JSON."""
        kept = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in kept.items()}
        return {"estimates": {name: each.plain() for name, each in self.estimates.items()}} | plain

    @classmethod
    def from_dict(cls, table: Json, where: str) -> "PrivateEvaluation":
        """What `to_dict` gave; the estimates are made again."""
        try:
            counts, edges = (np.array(table[name], dtype=np.float64) for name in ("counts", "edges"))
            numbers = float(table["deviation"]), int(table["owners"])
            records = None if table["records"] is None else int(table["records"])
            made = cls(counts, *numbers, records, edges, bool(table["calibrated"]))
            fits = edges.ndim == 2 and counts.shape == (len(edges) ** 2 * edges.shape[1],) and len(edges) > 1
        except (KeyError, TypeError, ValueError, OverflowError):
            rule = "must hold counts, deviation, owners, records, edges and calibrated"
            raise check.InvalidInput(f"{where}: {rule}") from None
        fits = fits and np.isfinite(counts).all() and np.isfinite(edges).all() and made.deviation >= 0
        check.require(bool(fits), where, "counts must be finite, and as many as the edges of the bins say")
        return made


def evaluations_of(
    task: Task, model: Floats, counts: Floats, answered: np.ndarray, held: np.ndarray, events: tuple[Event, ...],
    row_bound: float | None,
) -> tuple[PrivateEvaluation, ...]:  # fmt: skip
    """One for each run: `counts` (runs?, clients, width) of the clients that `answered` (runs?, clients).

    `model`: (runs?, dim). `held`: how many records each client held out.
    """
    evaluation, loss = cast(Evaluation, task.evaluate), task.objective.loss
    public = getattr(task.privacy, "relation", "replace-one") == "replace-one"
    models, classes = model.reshape(-1, model.shape[-1]), number_of_classes(loss)
    counts, answered = counts.reshape(len(models), *counts.shape[-2:]), answered.reshape(len(models), -1)
    return tuple(
        PrivateEvaluation(
            counts=of_clients[here].sum(axis=0),
            deviation=deviation_of(events, public) * float(np.sqrt(here.sum())),
            owners=int(here.sum()),
            records=int(held[here].sum()) if public else None,
            edges=evaluation.edges(classes, task.calibration * longest(loss, w, row_bound)),
            calibrated=loss.probabilities,
        )
        for w, of_clients, here in zip(models, counts, answered, strict=True)
    )


def deviation_of(events: tuple[Event, ...], replaced: bool) -> float:
    """The deviation of the noise in one client's counts."""
    if not events:
        return 0.0
    event = events[-1]
    return event.scale / GRID_STEPS if isinstance(event, GridEvent) else event.noise_multiplier * sensitivity(replaced)
