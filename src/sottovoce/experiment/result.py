"""What a finished run gives: a model, how it got there, and what may be said about privacy."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.contract import Layout
from sottovoce.core.plain import Columns, Json
from sottovoce.core.round import History
from sottovoce.experiment import store
from sottovoce.experiment.evaluation import PrivateEvaluation
from sottovoce.experiment.task import check_threshold
from sottovoce.ledger.charges import Charges
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.problems.federation import with_ones
from sottovoce.problems.metrics import ALONE, class_numbers, decided, probabilities
from sottovoce.problems.objective import Objective
from sottovoce.problems.schema import Schema
from sottovoce.problems.schema.effects import Effect, effects
from sottovoce.rules import Chosen

_SHOWN = ("objective", "test_loss", "test_accuracy", "test_larger_class", "test_auc", "test_r2")


@dataclass(frozen=True, repr=False)
class Result:
    """A trained model, how it got there, and what may be said about privacy.

    Examples
    --------
    >>> import sottovoce as sv
    >>> fed = sv.Federation.from_arrays([[1.0], [-1.0], [0.9], [-0.8]], [1, -1, 1, -1], groups=["a", "a", "b", "b"])
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(0.1))
    >>> result = sv.train(sv.DPADMM(), fed, goal, rounds=10, privacy=sv.NoPrivacy(), seed=0, engine="numpy")
    >>> result.predict([[0.5], [-0.3]])
    array([ 1., -1.])
    >>> result.rounds, result.model.shape, sorted(result.history.columns)[:3]
    (10, (1,), ['answered', 'bytes_down', 'bytes_up'])
    >>> print(result.guarantee)
    No privacy: exact answers were sent in the clear.
    >>> result
    Result: dp-admm, 10 rounds, a model of shape (1,)
      objective 0.3342
      privacy: none
    """

    model: np.ndarray  # (dim,), or (runs, dim)
    history: History
    guarantee: Guarantee
    rounds: int
    stopped: str
    objective: Objective
    config: Json
    charges: Charges | None = None  # what the owners' ledgers were charged, where there are any
    metrics: Columns = field(default_factory=Columns)  # on test rows: one entry per run
    evaluations: tuple[PrivateEvaluation, ...] = ()  # on held-out records: one per run, where that was asked for
    standard_errors: np.ndarray | None = field(default=None, kw_only=True)  # of the model: see `interval`
    layout: ClassVar[Layout] = "rows"

    @property
    def evaluation(self) -> PrivateEvaluation | None:
        """The private estimate of the model's quality on held-out records; None if none was asked for, or answered."""
        rule = "this result holds several runs; evaluations has one estimate for each"
        check.require(len(self.evaluations) <= 1, "evaluation", rule, len(self.evaluations))
        return self.evaluations[0] if self.evaluations else None

    def __repr__(self) -> str:
        """What was trained, the last numbers that were measured, the guarantee, and why constants were chosen."""
        method = self.config.get("algorithm", {}).get("name", "a method")
        shown = [name for name in self.ends if name in _SHOWN or name.endswith(ALONE)]
        last = ", ".join(f"{name.replace('_', ' ')} {self.ends[name][-1]:.4g}" for name in shown)
        first = f"{type(self).__name__}: {method}, {self.rounds} rounds, a model of shape {self.model.shape}"
        lines = [first, last or "nothing was measured", f"privacy: {self.guarantee.short}", *self.remarks]
        return "\n  ".join(lines)

    @property
    def remarks(self) -> list[str]:
        """What a rule that chose the method has to say: why, and whether noise exceeds signal."""
        choice = self.config.get("choice")
        return [] if choice is None else Chosen(**choice).sentences

    @property
    def runs(self) -> int:
        """How many runs were trained at once."""
        return 1 + int(max(self.history.columns.get("run", [0])))

    @cached_property
    def ends(self) -> dict[str, np.ndarray]:
        """The last number in each column of the history, and what was measured on test rows: one entry per run."""
        last = {name: self.history[name][-self.runs :] for name in self.history.columns}
        return last | {name: np.array(values, dtype=np.float64) for name, values in self.metrics.items()}

    @cached_property
    def schema(self) -> Schema | None:
        """How tables are encoded before the model sees them; None if it was trained without a schema."""
        table = self.config.get("schema")
        return None if table is None else Schema.from_tables(table, "config, [schema]")

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """For each parameter a range that holds, at this rate, what the same rounds would have given without noise.

        For our own methods, whose noise has a known law. The range is about noise alone. It does not cover the
        optimum (early stopping, clipping and the ridge are biased towards zero), nor what other records would have
        given. For noisy gradient descent and moments-then-gradients it is too wide rather than too narrow, and so
        holds more often than stated.
        """
        from scipy.stats import norm

        check.between("interval", 0, 1, level=level)
        rule = (
            "standard errors are known for noisy-gd, moments, moments-then-gradients and masked-moments, with proven "
            "Gaussian noise, everyone in every round and a penalty without kinks"
        )
        reach = float(norm.ppf((1 + level) / 2)) * check.given(self.standard_errors, "interval", rule)
        return self.model - reach, self.model + reach

    def scores(self, X: object) -> np.ndarray:
        """Margins of new rows: (runs?, rows), or with one column per class for softmax."""
        loss = self.objective.loss
        if self.schema is not None:
            return loss.scores(self.schema.transform(X), self.model)
        rows = check.finite_array("Result", "X", cast(ArrayLike, X), ndim=2)
        rows = with_ones(rows) if self.objective.intercept else rows
        fits = loss.model_size(rows.shape[1]) == self.model.shape[-1]
        ones = int(self.objective.intercept)
        columns = self.model.shape[-1] // loss.outputs - ones
        rule = f"X must have {columns} columns, like the rows that the model was trained on"
        check.require(fits, "Result", rule, rows.shape[1] - ones)
        return loss.scores(rows, self.model)

    def predict(self, X: object, threshold: float | None = None) -> np.ndarray:
        """Labels (or values, for regression) of new rows. `threshold`: see `decided`.

        After training with a schema: of a table as it is, with its own labels. Else of an array of numbers, prepared
        like the rows that the model was trained on, with labels -1 and +1 (or 0, 1, ...).
        """
        return self.labels_of(self.scores(X), threshold)

    def labels_of(self, scores: np.ndarray, threshold: float | None = None) -> np.ndarray:
        """Labels (or values) of rows with these scores, as the user writes them."""
        coded = self.decided(scores, threshold)
        label = None if self.schema is None else self.schema.label
        if label is None:
            return coded
        if label.range is not None:
            return label.from_unit(coded)
        return np.array(label.classes)[class_numbers(self.objective.loss, coded)]

    def decided(self, scores: np.ndarray, threshold: float | None = None) -> np.ndarray:
        """Labels (or values) as the loss has them.

        `threshold`: the second of two classes where its probability is at least this. None: what the model was
        evaluated with (`Evaluation.threshold`), else 1/2.
        """
        kept = self.threshold if threshold is None else threshold
        check.between("predict", 0, 1, threshold=kept)
        check_threshold("predict", self.objective.loss, kept)
        return decided(self.objective.loss, scores, kept, self.calibration)

    def predict_proba(self, X: object) -> np.ndarray:
        """Probabilities of the classes, (runs?, rows, classes), as far as the noisy model knows them.

        Where a rule chose the constants, logits are scaled down for the noise in the model (`rules.Chosen`).
        """
        return self.probabilities_of(self.scores(X))

    def probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """The same for rows whose scores are known."""
        loss, hint = self.objective.loss, "Use predict or scores"
        chances = probabilities(loss, self.calibration * scores)
        return check.given(chances, "predict_proba", f"the {loss.name} loss has no probabilities", hint)

    @property
    def calibration(self) -> float:
        """The factor for logits with which probabilities are calibrated."""
        return float(self.config.get("choice", {}).get("calibration", 1.0))

    @property
    def threshold(self) -> float:
        """From which probability on the second of two classes is predicted: what the model was evaluated with."""
        return float(self.config.get("evaluate", {}).get("threshold", 0.5))

    def effects(self) -> dict[str, list[Effect]]:
        """By how much a score changes for each column and level, before a row is divided by its length.

        One list for the score of the second of two classes (or of a number); for several classes one for each.
        """
        schema = check.given(self.schema, "effects", "this run keeps no schema, so its columns have no names")
        check.require(self.model.ndim == 1, "effects", "this result holds several runs, with a model each")
        outputs = self.objective.loss.outputs
        classes = [str(name) for name in schema.label.classes] if schema.label else []
        names = classes if outputs > 1 else [classes[1] if classes else "value"]
        of_scores = zip(names, self.model.reshape(outputs, -1), strict=True)
        return {name: self._effects_of(schema, weights) for name, weights in of_scores}

    def _effects_of(self, schema: Schema, weights: np.ndarray) -> list[Effect]:
        return effects(schema, weights)

    def save(self, path: str | Path) -> Path:
        """Write a run folder: config, history (Parquet), model, guarantee, charges. All of it, or nothing."""
        return store.save(self, Path(path))
