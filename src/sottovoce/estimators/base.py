"""What all estimators share: parameters become the parts of a run, and fits and gaps of the guarantee are stated."""

import warnings
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.check import BudgetSpent, InvalidInput, PrivacyWarning
from sottovoce.core.contract import Algorithm, Layout, Method
from sottovoce.core.plain import Json
from sottovoce.estimators.fit_counter import Counted
from sottovoce.estimators.scalers import RandomState
from sottovoce.estimators.validation import Table
from sottovoce.experiment.result import Result
from sottovoce.experiment.task import USUAL_ROUNDS, Task
from sottovoce.experiment.train import AnyLedgers, run_task
from sottovoce.experiment.vertical_result import method_of
from sottovoce.privacy.modes import NoPrivacy, PrivacyMode
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import LOSSES, Loss, Softmax, WeightedLogistic, WeightedSoftmax
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2, Penalty
from sottovoce.problems.schema import Schema
from sottovoce.rules import Chosen

EARLIER_STEPS = (
    "whatever was done to X before fit, which is not known here: scaling by private maxima, means or deviations is a "
    "leak (use PublicScaler or PrivateScaler, or declare earlier_steps='public' if no private number was used)"
)


class _Declared(Counted):
    """Types of attributes that subclasses or scikit-learn set, or whose defaults differ between estimators."""

    algorithm: Method | str
    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray

    # What classifiers and regressions do each in their own way:
    predict: Callable[[Table], np.ndarray]  # the class, or the value, of each row
    _fit: Callable[..., None]  # train on (X, y, groups), once the arguments of `fit` are known to be good
    # What rows and columns do each in their own way:
    _read: Callable[..., tuple[Any, np.ndarray, ArrayLike | None]]  # rows as numbers, labels, owners
    _train: Callable[..., None]  # train on labels as the loss has them, and set `coef_` and `intercept_`
    _scores: Callable[[Table], np.ndarray]  # of new rows


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateEstimator(_Declared):
    """A linear model with a guarantee. Every fit costs.

    The fields are the parameters that all estimators have; `FederatedClassifier` explains them.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    privacy: PrivacyMode | str = "proven"
    prepare: Any = None
    loss: Loss | str | None = None
    penalty: Penalty | None = None
    rounds: int | None = None
    fit_intercept: bool = True
    penalise_intercept: bool = False
    earlier_steps: Literal["unknown", "public"] = "unknown"
    ledgers: str | Path | None = None
    random_state: RandomState = None

    _layout: ClassVar[Layout] = "rows"  # what is split between owners
    _losses: ClassVar[tuple[str, ...]]  # the names of losses that it can take, the default first
    _modes: ClassVar[Mapping[str, type[PrivacyMode]]]  # the privacy modes that it can take, by name
    _example: ClassVar[str]  # what `privacy` may be
    _outputs = 1  # of the loss

    @property
    def _schema(self) -> Schema | None:
        """The schema that encodes tables, if that is the preparation."""
        return self.prepare if isinstance(self.prepare, Schema) else None

    def _mode(self) -> PrivacyMode:
        """The privacy mode as an object."""
        mode = self.privacy
        if isinstance(mode, str):
            kind = self._modes[check.one_of(self._name, "privacy", mode, self._modes)]
            return kind() if kind is NoPrivacy else kind(**self._budget)
        if not (isinstance(mode, PrivacyMode) and self._layout in mode.layouts):
            raise InvalidInput(f"{self._name}: privacy must be {self._example}, got {check.shown(mode)}")
        check.require(mode.predicts, self._name, "a model is needed to predict: ProvenColumns(model=True)", mode)
        return mode

    @property
    def _budget(self) -> Json:
        """What a privacy mode that is named is made with."""
        return {"epsilon": self.epsilon, "delta": self.delta}

    def _algorithm(self) -> Method:
        """The algorithm as an object. An error names those that can be used here."""
        known = [name for name, kind in ALGORITHMS.items() if kind.layout == self._layout]
        named = isinstance(self.algorithm, str) and self.algorithm in ALGORITHMS
        algorithm: object = ALGORITHMS[str(self.algorithm)]() if named else self.algorithm
        if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
            raise InvalidInput(f"{self._name}: algorithm must be an object, got a class. Give {algorithm.__name__}()")
        if not isinstance(algorithm, Algorithm):
            return ALGORITHMS[check.one_of(self._name, "algorithm", cast(str, algorithm), known)]()
        other = "FederatedClassifier" if algorithm.layout == "rows" else "VerticalClassifier"
        rule, hint = f"{algorithm.name} is for {algorithm.layout} of many owners", f"Use {other}, or one of "
        check.require(algorithm.layout == self._layout, self._name, rule, hint=hint + ", ".join(known))
        return algorithm

    def set_params(self, **params: object) -> Self:
        """Set parameters of this estimator, and by names such as `algorithm__rho` those of its parts.

        An algorithm cannot change, so `set_params(algorithm__rho=1.0)` puts a changed copy in its place. An algorithm
        that was given by name becomes an object.
        """
        nested: dict[str, Json] = {}
        for name in [name for name in params if "__" in name]:
            part, _, rest = name.partition("__")
            nested.setdefault(part, {})[rest] = params.pop(name)
        super().set_params(**params)
        for part, changes in nested.items():
            check.one_of(self._name, "parameter", part, self.get_params(deep=False))
            value = getattr(self, part)
            named = part == "algorithm" and isinstance(value, str) and value in ALGORITHMS
            change = getattr(ALGORITHMS[value]() if named else value, "set_params", None)
            if change is None:
                names = ", ".join(f"{part}__{name}" for name in changes)
                raise InvalidInput(f"{self._name}: cannot set {names}, as {part} is {check.shown(value)}. Give {part}")
            setattr(self, part, change(**changes))
        return self

    def _objective(self, loss: Loss) -> Objective:
        penalty = L2(1e-4) if self.penalty is None else self.penalty
        check.of_kind(self._name, "penalty", penalty, Penalty, "L2(1e-4)")
        counted = self.fit_intercept and self.penalise_intercept
        return Objective(loss, penalty, "records", self.fit_intercept, counted)

    def _loss(self, classes: int = 2) -> Loss:
        """The loss as an object."""
        loss, name, weights = self.loss, self._loss_name(), getattr(self, "class_weight", None)
        if isinstance(loss, Loss):
            hint = "Give WeightedLogistic(...) or WeightedSoftmax(...) as the loss"
            check.require(weights is None, self._name, "class_weight goes with the name of a loss", hint=hint)
            return loss
        plain = not name.startswith("weighted")
        check.require(plain, self._name, f"loss {name!r} needs weights: give loss='logistic' and class_weight=[...]")
        several = name == "softmax" or (name == "logistic" and classes > 2)
        if weights is not None:
            return self._weighted(weights, classes, several, name)
        return Softmax(classes) if several else LOSSES[name]()

    def _loss_name(self) -> str:
        loss = self._losses[0] if self.loss is None else self.loss
        return check.one_of(self._name, "loss", loss.name if isinstance(loss, Loss) else loss, self._losses)

    def _weighted(self, weights: object, classes: int, several: bool, name: str) -> Loss:
        """The loss with these weights of classes: a table by label, or a list in the order of `classes_`."""
        check.require(name in ("logistic", "softmax"), self._name, "class_weight goes with a logistic loss", name)
        if isinstance(weights, Mapping):
            labels = self.classes_.tolist()
            fits = set(weights) == set(labels)
            check.require(fits, self._name, f"class_weight must have a number for each of the classes {labels}")
            weights = [weights[label] for label in labels]
        return WeightedSoftmax(classes, weights) if several else WeightedLogistic(weights)  # type: ignore[arg-type]

    def _run(
        self, task: Task, federation: FederatedData, left_out: list[str], seed: int | None, ledgers: AnyLedgers
    ) -> Result:
        """Train, and keep the result with a guarantee that also names what it has `left_out`."""
        # A model must not contain exact numbers about private rows: no history, no training loss.
        result = run_task(task, federation, seed=seed, ledgers=ledgers, measure_training=False)
        if result.rounds == 0 or result.model.size == 0:
            raise self._nothing_trained(result.stopped or "the budget that is left does not pay for a model")
        self.guarantee_ = result.guarantee.leaving_out(*left_out)
        schema = {} if self._schema is None else {"schema": self._schema.to_tables()}  # a saved run prepares rows by it
        self.result_ = replace(result, guarantee=self.guarantee_, config=result.config | schema)
        if result.evaluation is not None:
            self.evaluation_ = result.evaluation
        self.algorithm_, self.rounds_ = method_of(result) or task.algorithm, result.rounds
        choice = result.config.get("choice")
        self.chosen_ = None if choice is None else Chosen(**choice)
        return self.result_

    @property
    def _rounds(self) -> int:
        """Rounds of a method whose constants are given."""
        rounds = USUAL_ROUNDS if self.rounds is None else self.rounds
        check.whole(self._name, rounds=rounds)
        return rounds

    def _measured(self, metric: Callable[..., float], rule: str, X: Table, y: ArrayLike, weight: object) -> float:
        """The value of a metric of scikit-learn. Its errors would quote labels; `rule` is said instead."""
        predicted, rows = self.predict(X), len(y) if isinstance(y, Sized) else 0
        as_many = f"y must have one label per row of X ({len(predicted)})"
        check.require(rows == len(predicted), self._name, as_many, rows)
        try:
            return float(metric(y, predicted, sample_weight=weight))
        except (TypeError, ValueError):
            pass  # our error is raised outside, so that this one is not in its context
        also = "" if weight is None else ", and sample_weight one number per row"
        raise InvalidInput(f"{self._name}: {rule}{also}")

    def _count_fit(self, mode: PrivacyMode) -> None:
        """Warn from the second fit on that budgets add up: no other part can see that the rows are the same."""
        if mode.budget is None:
            return
        self.fits.seed_used = True
        if self.ledgers is not None:  # files count by themselves
            return
        self.fits.count += 1
        again = self.fits.count > 1
        if again or self.fits.elsewhere:
            how = "or a copy of it was fitted before" if again else "is a copy, and others may be fitted elsewhere"
            warnings.warn(
                f"{self._name}: this estimator {how}, each fit spends epsilon = {mode.budget[0]:g} of its own, and a "
                "record that is in several (as in cross-validation or a search) has spent their sum",
                PrivacyWarning,
                stacklevel=4,
            )

    def _nothing_trained(self, stopped: str) -> BudgetSpent:
        """The error for a fit without a single round, which happens if earlier fits have emptied the ledgers."""
        earlier = (
            f". Earlier fits have spent what the ledgers in {str(self.ledgers)!r} hold: use their model, ask for a "
            "smaller epsilon if anything is left, or let the owners raise their budgets (FileLedger.change_budget)"
        )
        return BudgetSpent(f"{self._name}: nothing was trained; {stopped}{earlier if self.ledgers is not None else ''}")

    def _earlier(self, mode: PrivacyMode) -> tuple[str, ...]:
        """What the guarantee says about earlier preparation. It must not depend on X, so nothing looks at X."""
        check.one_of(self._name, "earlier_steps", self.earlier_steps, ("unknown", "public"))
        return () if mode.budget is None or self.earlier_steps == "public" else (EARLIER_STEPS,)

    def _refuse(self, arguments: Json) -> None:
        """Refuse arguments of `fit` that other estimators have."""
        why = "the noise is made for records that all count the same, and a heavier one would show"
        weighted = arguments.get("sample_weight") is not None
        check.require(not weighted, self._name, f"fit takes no sample_weight: {why}", hint="Leave it out")
        unknown = [name for name in arguments if name != "sample_weight"]
        if unknown:
            raise TypeError(f"{self._name}.fit() got an unexpected keyword argument {unknown[0]!r}")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _noisy(self) -> bool:
        """Whether scikit-learn's checks, which have few rows, should expect a poor model."""
        privacy = getattr(self, "privacy", None)
        return str(getattr(privacy, "mode", privacy)) != "none"
