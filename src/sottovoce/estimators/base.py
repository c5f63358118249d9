"""What all estimators share: parameters become the parts of a run, and fits and gaps of the guarantee are stated."""

import warnings
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.check import BudgetSpent, InvalidInput, PrivacyWarning
from sottovoce.core.contract import Algorithm, Layout, Method
from sottovoce.core.plain import Json
from sottovoce.estimators.fit_counter import Counted
from sottovoce.estimators.scalers import RandomState
from sottovoce.estimators.validation import Table, public_range
from sottovoce.experiment.evaluation import PrivateEvaluation
from sottovoce.experiment.refit import method_of
from sottovoce.experiment.result import Result
from sottovoce.experiment.task import USUAL_ROUNDS, Task
from sottovoce.experiment.train import run_task
from sottovoce.privacy.guarantee import LABELS_FOUND, Guarantee
from sottovoce.privacy.modes import PrivacyMode
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import LOSSES, Logistic, Loss, Softmax, WeightedLogistic, WeightedSoftmax
from sottovoce.problems.metrics import class_numbers, decided, probabilities
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2, Penalty
from sottovoce.problems.schema import Label, Schema
from sottovoce.rules import Chosen

EARLIER_STEPS = (
    "whatever was done to X before fit, which is not known here: scaling by private maxima, means or deviations is a "
    "leak (use PublicScaler or PrivateScaler, or declare earlier_steps='public' if no private number was used)"
)


class _Declared(Counted):
    """Types of attributes that are no parameters, or whose defaults differ between estimators."""

    algorithm: Method | str
    algorithm_: Method
    chosen_: Chosen | None
    classes_: np.ndarray
    coef_: np.ndarray
    guarantee_: Guarantee
    intercept_: np.ndarray
    evaluation_: PrivateEvaluation
    result_: Result
    rounds_: int
    n_features_in_: int
    feature_names_in_: np.ndarray


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
    _modes: ClassVar[tuple[str, ...]]  # the names of privacy modes that it can take
    _example: ClassVar[str]  # what `privacy` may be
    _outputs = 1  # of the loss

    @property
    def _schema(self) -> Schema | None:
        """The schema that encodes tables, if that is the preparation."""
        return self.prepare if isinstance(self.prepare, Schema) else None

    def _mode(self) -> PrivacyMode:
        """The privacy mode as an object."""
        given = self.privacy
        if isinstance(given, str):
            return self._named_mode(check.one_of(self._name, "privacy", given, self._modes))
        if not (isinstance(given, PrivacyMode) and self._layout in given.layouts):
            raise InvalidInput(f"{self._name}: privacy must be {self._example}, got {check.shown(given)}")
        rule = "a model is needed to predict: ProvenColumns(model=True)"
        check.require(given.predicts, self._name, rule, given)
        return given

    def _named_mode(self, name: str) -> PrivacyMode:
        """The privacy mode of this name, with the estimator's epsilon and delta."""
        raise NotImplementedError  # rows and columns have their own

    def _algorithm(self) -> Method:
        """The algorithm as an object. An error names those that can be used here."""
        known = [name for name, kind in ALGORITHMS.items() if kind.layout == self._layout]
        given: Any = self.algorithm
        algorithm = ALGORITHMS[given]() if isinstance(given, str) and given in ALGORITHMS else given
        if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
            raise InvalidInput(f"{self._name}: algorithm must be an object, got a class. Give {algorithm.__name__}()")
        if not isinstance(algorithm, Algorithm):
            return ALGORITHMS[check.one_of(self._name, "algorithm", given, known)]()
        if algorithm.layout != self._layout:
            other = "FederatedClassifier" if algorithm.layout == "rows" else "VerticalClassifier"
            raise InvalidInput(
                f"{self._name}: {algorithm.name} is for {algorithm.layout} of many owners. Use {other}, or one of "
                f"{', '.join(known)}"
            )
        return algorithm

    def set_params(self, **params: Any) -> Self:
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
            current: Any = ALGORITHMS[value]() if named else value
            if not hasattr(current, "set_params"):
                names = ", ".join(f"{part}__{name}" for name in changes)
                raise InvalidInput(f"{self._name}: cannot set {names}, as {part} is {check.shown(value)}. Give {part}")
            setattr(self, part, current.set_params(**changes))
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

    def _run(self, task: Task, federation: FederatedData, left_out: list[str], **options: Any) -> Result:
        """Train, and keep the result with a guarantee that also names what it has `left_out`."""
        # A model must not contain exact numbers about private rows: no history, no training loss.
        result = run_task(task, federation, measure_training=False, **options)
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
        if arguments.get("sample_weight") is not None:
            raise InvalidInput(
                f"{self._name}: fit takes no sample_weight: the noise is made for records that all count the same, and "
                "a heavier one would show. Leave it out"
            )
        unknown = [name for name in arguments if name != "sample_weight"]
        if unknown:
            raise TypeError(f"{self._name}.fit() got an unexpected keyword argument {unknown[0]!r}")

    def predict(self, X: Table) -> np.ndarray:
        """The class, or the value, of each row."""
        raise NotImplementedError  # classifiers and regressions have their own

    def _fit(self, X: Table, y: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        """Train, once the arguments of `fit` are known to be good."""
        raise NotImplementedError  # classifiers and regressions have their own

    def _read(
        self, X: Table, y: ArrayLike | None, groups: ArrayLike | None, numeric: bool
    ) -> tuple[Any, np.ndarray, ArrayLike | None]:
        """Rows as numbers; labels as given, or as the schema codes them (`numeric`: they are numbers); and owners."""
        raise NotImplementedError  # rows and columns have their own

    def _train(self, table: Any, y: np.ndarray, loss: Loss, left_out: list[str], groups: ArrayLike | None) -> None:
        """Train on labels as the loss has them, and set `coef_` and `intercept_`."""
        raise NotImplementedError  # rows and columns have their own

    def _scores(self, X: Table) -> np.ndarray:
        """Scores of new rows."""
        raise NotImplementedError  # rows and columns have their own

    def __sklearn_tags__(self) -> Tags:
        tags: Any = super().__sklearn_tags__()
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


def _has_probabilities(estimator: "LinearClassifier") -> bool:
    """Hinge losses have no probabilities."""
    return estimator._loss_name() != "smoothed-hinge"


@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, PrivateEstimator):
    """A classifier: everything that follows from the scores of rows."""

    classes: ArrayLike | None = None

    def _code_labels(self, y: np.ndarray) -> tuple[np.ndarray, list[str]]:
        """Set `classes_`; return the number of each label's class, and what the guarantee has to leave out for it."""
        _refuse_other_targets(self._name, y)
        self.classes_, numbers = _numbered(self._name, y, self.classes)
        return numbers, [] if self.classes is not None else [LABELS_FOUND]

    def _stated_classes(self, label: Label | None) -> np.ndarray:
        """The classes of a schema, in its order."""
        fits = label is not None and label.range is None and self.classes is None
        rule = "a schema must state the classes, Label(column, [...]), and classes must be left out"
        check.require(fits, self._name, rule)
        assert label is not None
        return np.array(label.classes)

    def _coded(self, numbers: np.ndarray) -> tuple[Loss, np.ndarray]:
        """The loss for as many classes as there are, and the classes' numbers as it wants them."""
        count = len(self.classes_)
        loss = self._loss(count)
        fits = loss.outputs == count or (loss.outputs == 1 and count == 2)
        check.require(fits, self._name, f"loss must fit {count} classes", loss, "Use loss='logistic'")
        return loss, numbers.astype(np.float64) if loss.outputs > 1 else 2.0 * numbers - 1.0

    def _fit(self, X: Table, y: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        """Train on labels that are coded as the loss wants them."""
        table, labels, groups = self._read(X, y, groups, numeric=False)
        if self._schema is None:
            labels, left_out = self._code_labels(labels)
        else:
            self.classes_, left_out = self._stated_classes(self._schema.label), []
        loss, coded = self._coded(labels)
        self._outputs = loss.outputs
        self._train(table, coded, loss, left_out, groups)

    def __sklearn_tags__(self) -> Tags:
        tags: Any = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self._noisy
        return tags

    def decision_function(self, X: Table) -> np.ndarray:
        """Scores: positive for the second of two classes; one column per class if there are more."""
        return self._scores(X)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Table) -> np.ndarray:
        """Probabilities of the classes, as far as the noisy model knows them, and less sure for its noise."""
        scores = self._scores(X) * (1.0 if self.chosen_ is None else self.chosen_.calibration)
        chances = probabilities(Softmax(scores.shape[1]) if scores.ndim == 2 else Logistic(), scores)
        assert chances is not None
        return chances

    def predict(self, X: Table) -> np.ndarray:
        """The class of each row."""
        scores, loss = self._scores(X), Softmax(self._outputs) if self._outputs > 1 else Logistic()
        if self._outputs == 2 and scores.ndim == 1:  # by how much the second class is ahead
            scores = np.column_stack([np.zeros_like(scores), scores])
        threshold = getattr(getattr(self, "evaluate", None), "threshold", 0.5)
        calibration = 1.0 if self.chosen_ is None else self.chosen_.calibration
        return self.classes_[class_numbers(loss, decided(loss, scores, threshold, calibration))]

    def score_privately(self) -> PrivateEvaluation:
        """The quality of the model on records that its owners held out, with 95 % intervals. The fit has paid for it.

        It needs `evaluate=True` at the fit. Nothing is asked again: it may be called and shown as often as one likes.
        """
        hint = "Fit again with evaluate=True (of FederatedClassifier), or use score on public rows"
        rule = "no records were held out by this fit, or no owner had budget left to count them"
        return check.given(getattr(self, "evaluation_", None), self._name, rule, hint)

    def score(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy."""
        rule = "labels in y must be of the kind of classes_, text or numbers"
        return self._measured(accuracy_score, rule, X, y, sample_weight)


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegressor(RegressorMixin, PrivateEstimator):
    """A regression: everything that follows from the range of y."""

    y_range: tuple[float, float] | None = None
    _losses: ClassVar = ("squared", "huber")

    def _fit(self, X: Table, y: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        """Train on values that are brought to [-1, 1], and state the model in units of y."""
        loss, (low, high) = self._loss(), self._range()
        middle, reach = (low + high) / 2, (high - low) / 2
        table, values, groups = self._read(X, y, groups, numeric=True)
        values = np.asarray(values, dtype=np.float64)
        if self._schema is None and (self.y_range is not None or self._layout == "columns"):
            values = (np.clip(values, low, high) - middle) / reach
        self._train(table, values, loss, [], groups)
        self.coef_, self.intercept_ = reach * self.coef_[0], reach * self.intercept_[0] + middle

    def _range(self) -> tuple[float, float]:
        """What -1 and +1 stand for in `coef_`: the range of y; of a table of several parties, as it is coded."""
        if self._schema is None:
            return public_range(self._name, self.y_range)
        stated = self._schema.label.range if self._schema.label is not None else None
        rule = "a schema must state the range of y, Label(column, range=(low, high)), and y_range must be left out"
        check.require(stated is not None and self.y_range is None, self._name, rule)
        return stated if stated is not None and self._layout == "rows" else (-1.0, 1.0)

    def predict(self, X: Table) -> np.ndarray:
        """The value of each row."""
        scores, schema = self._scores(X), self._schema
        return scores if schema is None or schema.label is None else schema.label.from_unit(scores)

    def score(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R², the share of the variance of y that the model explains."""
        return self._measured(r2_score, "y must hold finite numbers", X, y, sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags: Any = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._noisy
        return tags


def _refuse_other_targets(who: str, y: np.ndarray) -> None:
    """Refuse y that does not hold classes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it tells the number of classes among private labels
            check_classification_targets(y)
        return
    except ValueError:
        pass
    # The first words are those that scikit-learn's own tests look for.
    raise InvalidInput(f"{who}: Unknown label type: y must hold one class per row. For numbers use FederatedRegressor")


def _numbered(who: str, y: np.ndarray, declared: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """The classes, sorted, and for each label the number of its class."""
    present, numbers = np.unique(y, return_inverse=True)
    hint = "Add rows of another class; shuffle before taking a part, or split by StratifiedKFold"
    check.require(len(present) > 1, who, "two classes are needed, and y holds one class only", hint=hint)
    if declared is None:
        return present, numbers
    listed = isinstance(declared, list | tuple | np.ndarray) or hasattr(declared, "to_numpy")
    check.require(listed, who, "classes must be a list of labels, such as ['ill', 'well']", declared)
    classes = np.unique(check.any_array(who, "classes", declared))
    check.require(len(classes) > 1, who, "classes must name two labels or more")
    place = {label: index for index, label in enumerate(classes.tolist())}
    numbers = np.array([place.get(label, -1) for label in present.tolist()])[numbers]
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        raise InvalidInput(
            f"{who}: y must hold the declared classes {classes.tolist()}, and row {unknown[0]} has another label "
            f"({len(unknown)} such rows). Declare it too, or drop these rows"
        )
    return classes, numbers
