"""What follows from the kind of y: a classifier, and a regression."""

import warnings
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from sottovoce.core import check
from sottovoce.estimators.base import PrivateEstimator
from sottovoce.estimators.validation import Table, public_range
from sottovoce.experiment.evaluation import PrivateEvaluation
from sottovoce.privacy.guarantee import LABELS_FOUND
from sottovoce.problems.losses import Logistic, Loss, Softmax
from sottovoce.problems.metrics import class_labels, class_numbers, decided, probabilities


@dataclass(eq=False, repr=False, kw_only=True)
class LinearClassifier(ClassifierMixin, PrivateEstimator):
    """A classifier: everything that follows from the scores of rows."""

    classes: ArrayLike | None = None

    def _coded(self, numbers: np.ndarray) -> tuple[Loss, np.ndarray]:
        """The loss for as many classes as there are, and the classes' numbers as it wants them."""
        count = len(self.classes_)
        loss = self._loss(count)
        fits = loss.outputs == count or (loss.outputs == 1 and count == 2)
        check.require(fits, self._name, f"loss must fit {count} classes", loss, "Use loss='logistic'")
        return loss, class_labels(loss, numbers)

    def _fit(self, X: Table, y: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        """Train on labels that are coded as the loss wants them."""
        table, labels, groups = self._read(X, y, groups, numeric=False)
        if self._schema is None:
            _refuse_other_targets(self._name, labels)
            self.classes_, labels = _numbered(self._name, labels, self.classes)
            left_out = [] if self.classes is not None else [LABELS_FOUND]
        else:
            label, left_out = self._schema.label, []
            stated = None if label is None or label.range is not None or self.classes is not None else label.classes
            rule = "a schema must state the classes, Label(column, [...]), and classes must be left out"
            self.classes_ = np.array(check.given(stated, self._name, rule))  # in its order
        loss, coded = self._coded(labels)
        self._outputs = loss.outputs
        self._train(table, coded, loss, left_out, groups)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.poor_score = self._noisy
        return tags

    def decision_function(self, X: Table) -> np.ndarray:
        """Scores: positive for the second of two classes; one column per class if there are more."""
        return self._scores(X)

    @available_if(lambda estimator: estimator._loss_name() != "smoothed-hinge")  # which has no probabilities
    def predict_proba(self, X: Table) -> np.ndarray:
        """Probabilities of the classes, as far as the noisy model knows them, and less sure for its noise."""
        scores = self._scores(X) * (1.0 if self.chosen_ is None else self.chosen_.calibration)
        return cast(np.ndarray, probabilities(Softmax(scores.shape[1]) if scores.ndim == 2 else Logistic(), scores))

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
        label = self._schema.label
        rule = "a schema must state the range of y, Label(column, range=(low, high)), and y_range must be left out"
        stated = check.given(None if label is None or self.y_range is not None else label.range, self._name, rule)
        return stated if self._layout == "rows" else (-1.0, 1.0)

    def predict(self, X: Table) -> np.ndarray:
        """The value of each row."""
        scores, schema = self._scores(X), self._schema
        return scores if schema is None or schema.label is None else schema.label.from_unit(scores)

    def score(self, X: Table, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R², the share of the variance of y that the model explains."""
        return self._measured(r2_score, "y must hold finite numbers", X, y, sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.regressor_tags is not None
        tags.regressor_tags.poor_score = self._noisy
        return tags


def _refuse_other_targets(who: str, y: np.ndarray) -> None:
    """Refuse y that does not hold classes."""
    try:
        # A warning would tell the number of classes among private labels.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            check_classification_targets(y)
        return
    except ValueError:
        pass
    # The first words are those that scikit-learn's own tests look for.
    rule = "y must hold one class per row. For numbers use FederatedRegressor"
    raise check.InvalidInput(f"{who}: Unknown label type: {rule}")


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
    rule, fix = f"y must hold the declared classes {classes.tolist()}", "Declare it too, or drop these rows"
    check.every_row(who, rule, np.flatnonzero(numbers < 0).tolist(), "has another label", fix)
    return classes, numbers
