"""What the estimators share: from parameters to parts of a run, what a guarantee leaves out, how often it was paid."""

import warnings
from collections.abc import Callable, Sequence, Sized
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.check import BudgetSpent, InvalidInput, PrivacyWarning
from sottovoce.core.contract import Algorithm, VerticalAlgorithm
from sottovoce.estimators.fit_counter import Counted
from sottovoce.experiment.result import Result
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.privacy.modes import NoPrivacy, Privacy, Proven, Published
from sottovoce.problems.losses import Loss
from sottovoce.problems.penalties import L2, Penalty

CLASSIFICATION = ("logistic", "softmax", "smoothed-hinge")  # names of losses
EARLIER_STEPS = (
    "what was done to X before it came here, of which nothing is known: scaling by private maxima, means or deviations "
    "is a leak (use PublicScaler or PrivateScaler, or declare earlier_steps='public' if no private number was used)"
)


class PrivateEstimator(Counted):
    """An estimator whose every fit costs."""

    # Declared here, set by the classes themselves.
    algorithm: Any
    epsilon: float
    delta: float
    clip: float | None
    privacy: Any
    loss: Any
    penalty: Any
    earlier_steps: str
    ledgers: Any
    random_state: Any
    guarantee_: Guarantee
    result_: Result
    n_features_in_: int
    feature_names_in_: np.ndarray
    _by_columns = False  # whether it is columns that are split

    def _algorithm(self) -> Algorithm[Any, Any, Any, Any]:
        """The algorithm as an object; an error names those that serve here."""
        known = [name for name, kind in ALGORITHMS.items() if issubclass(kind, VerticalAlgorithm) == self._by_columns]
        given: Any = self.algorithm
        if isinstance(given, str) and given in ALGORITHMS:
            given = ALGORITHMS[given]()
        if isinstance(given, type) and issubclass(given, Algorithm):
            raise InvalidInput(f"{self._name}: algorithm must be an object, got a class. Give {given.__name__}()")
        if not isinstance(given, Algorithm):
            return ALGORITHMS[check.one_of(self._name, "algorithm", self.algorithm, known)]()
        if isinstance(given, VerticalAlgorithm) != self._by_columns:
            use, instead = ("rows", "FederatedClassifier") if self._by_columns else ("columns", "VerticalClassifier")
            raise InvalidInput(
                f"{self._name}: {given.name} is for {use} of many owners. Use {instead}, or one of {', '.join(known)}"
            )
        return given

    def _mode(self) -> Privacy:
        if isinstance(self.privacy, Privacy):
            return self.privacy
        match check.one_of(self._name, "privacy", self.privacy, ("proven", "published", "none")):
            case "proven":
                return Proven(self.epsilon, self.delta, self.clip)  # type: ignore[arg-type]  (None is refused there)
            case "published":
                return Published(self.epsilon, self.delta, self.clip)
        return NoPrivacy()

    def _penalty(self) -> Penalty:
        penalty = L2(1e-4) if self.penalty is None else self.penalty
        check.of_kind(self._name, "penalty", penalty, Penalty, "L2(1e-4)")
        return penalty

    def _loss(self, known: Sequence[str]) -> Loss | str:
        """The loss as an object, or one of the known names; the first is the default."""
        loss = known[0] if self.loss is None else self.loss
        name = loss.name if isinstance(loss, Loss) else loss
        check.one_of(self._name, "loss", name, known)
        return loss

    def _count_fit(self, mode: Any) -> None:
        """Say that budgets add up, from the second fit on: nobody else sees that the rows are the same."""
        if mode.mode != "proven":
            return
        self.fits.seed_used = True
        if self.ledgers is not None:  # on disk they count by themselves
            return
        self.fits.count += 1
        again = self.fits.count > 1
        if again or self.fits.elsewhere:
            how = "or a copy of it was fitted before" if again else "is a copy, and others may be fitted elsewhere"
            warnings.warn(
                f"{self._name}: this estimator {how}, each fit spends epsilon = {mode.epsilon:g} of its own, and a "
                "record that is in several (as in cross-validation or a search) has spent their sum",
                PrivacyWarning,
                stacklevel=4,
            )

    def _nothing_trained(self, stopped: str) -> BudgetSpent:
        """The error for a fit without a single round, which is where ledgers from before have nothing left."""
        earlier = (
            f". Earlier fits have spent what the ledgers in {str(self.ledgers)!r} hold: use their model, ask for a "
            "smaller epsilon if anything is left, or have the owners raise their budgets (FileLedger.change_budget)"
        )
        return BudgetSpent(f"{self._name}: nothing was trained; {stopped}{earlier if self.ledgers is not None else ''}")

    def _earlier(self, mode: Any) -> tuple[str, ...]:
        """What the guarantee has to say about earlier preparation. No look at X: what is said must not depend on it."""
        check.one_of(self._name, "earlier_steps", self.earlier_steps, ("unknown", "public"))
        return () if mode.mode != "proven" or self.earlier_steps == "public" else (EARLIER_STEPS,)

    def _refuse(self, arguments: dict[str, Any]) -> None:
        """Arguments of `fit` that other estimators have."""
        if arguments.get("sample_weight") is not None:
            raise InvalidInput(
                f"{self._name}: fit takes no sample_weight: the noise is made for records that count the same, and a "
                "heavier one would show. Leave it out"
            )
        unknown = [name for name in arguments if name != "sample_weight"]
        if unknown:
            raise TypeError(f"{self._name}.fit() got an unexpected keyword argument {unknown[0]!r}")

    def _margins(self, X: Any) -> np.ndarray:
        """Scores of new rows."""
        raise NotImplementedError  # rows and columns have their own

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def _noisy(self) -> bool:
        """Few rows under a real budget make a poor model, and scikit-learn's checks have few rows."""
        return not (isinstance(self.privacy, NoPrivacy) or (isinstance(self.privacy, str) and self.privacy == "none"))


def _has_probabilities(estimator: "LinearClassifier") -> bool:
    """Hinges have no probabilities."""
    loss = estimator._loss(CLASSIFICATION)
    return (loss if isinstance(loss, str) else loss.name) != "smoothed-hinge"


class LinearClassifier(ClassifierMixin, PrivateEstimator):
    """What follows from scores."""

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self._noisy
        return tags

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores: positive for the second of two classes; one column per class if there are more."""
        return self._margins(X)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, as far as the noisy model knows them."""
        from scipy.special import expit, softmax

        scores = self._margins(X)
        return softmax(scores, axis=1) if scores.ndim == 2 else np.column_stack([expit(-scores), expit(scores)])

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        scores = self._margins(X)
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy."""
        rule = "labels in y must be of the kind of classes_, text or numbers"
        return measured(self._name, accuracy_score, y, self.predict(X), sample_weight, rule)


def measured(
    who: str, metric: Callable[..., float], y: Any, predicted: np.ndarray, sample_weight: Any, rule: str
) -> float:
    """What a metric of scikit-learn says. Its errors would quote labels: `rule` says in their place what y must be."""
    rows = len(y) if isinstance(y, Sized) else 0
    check.require(rows == len(predicted), who, f"y must have one label per row of X ({len(predicted)})", rows)
    try:
        return float(metric(y, predicted, sample_weight=sample_weight))
    except (TypeError, ValueError):
        pass  # ours is raised outside, so that this one is not in its context
    also = "" if sample_weight is None else ", and sample_weight one number per row"
    raise InvalidInput(f"{who}: {rule}{also}")


def refuse_other_targets(who: str, y: np.ndarray) -> None:
    """Refuse y that does not hold classes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about how many classes there are, read off private labels
            check_classification_targets(y)
        return
    except ValueError:
        pass
    # The first words are those that scikit-learn's own tests look for.
    raise InvalidInput(f"{who}: Unknown label type: y must hold one class per row. For numbers use FederatedRegressor")


def numbered(who: str, y: np.ndarray, declared: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes, sorted, and the number of each label's class among them."""
    found, number = np.unique(y, return_inverse=True)
    hint = "Add rows of another class; shuffle before taking a part, or split by StratifiedKFold"
    check.require(len(found) > 1, who, "two classes are needed, and y holds one class only", hint=hint)
    if declared is None:
        return found, number
    listed = isinstance(declared, list | tuple | np.ndarray) or hasattr(declared, "to_numpy")
    check.require(listed, who, "classes must be a list of labels, such as ['ill', 'well']", declared)
    classes = np.unique(check.any_array(who, "classes", declared))
    check.require(len(classes) > 1, who, "classes must name two labels or more")
    place = {label: index for index, label in enumerate(classes.tolist())}
    new = np.array([place.get(label, -1) for label in found.tolist()])[number]
    unknown = np.flatnonzero(new < 0)
    if len(unknown):
        raise InvalidInput(
            f"{who}: y must hold the declared classes {classes.tolist()}, and row {unknown[0]} has another label "
            f"({len(unknown)} such rows). Declare it too, or drop these rows"
        )
    return classes, new
