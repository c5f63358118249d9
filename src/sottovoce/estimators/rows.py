"""Linear models over rows of many owners, as scikit-learn estimators."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import Everyone
from sottovoce.estimators.base import (
    CLASSIFICATION,
    LinearClassifier,
    PrivateEstimator,
    measured,
    numbered,
    refuse_other_targets,
)
from sottovoce.estimators.scalers import (
    PrivateScaler,
    PublicScaler,
    RowClipper,
    seed_of,
)
from sottovoce.estimators.validation import validated
from sottovoce.experiment.train import train
from sottovoce.ledger.memory import Budget, MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.guarantee import LABELS_FOUND, ONE_OWNER
from sottovoce.privacy.modes import Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import LOSSES, Loss, Softmax
from sottovoce.problems.objective import Objective

_REGRESSION = ("squared", "huber")


class _FederatedLinear(PrivateEstimator):
    __metadata_request__fit = {"groups": True}  # noqa: RUF012 (read by scikit-learn)

    rounds: int
    fit_intercept: bool
    prepare: Any
    row_bound: float | None
    participation: Any
    engine: Any
    y_range: Any = None  # of regression

    def _train(self, X: np.ndarray, y: np.ndarray, groups: Any, loss: Loss, *left_out: str) -> None:
        """Prepare the rows and train on them, out of one budget."""
        if isinstance(groups, str):
            hint = "Give the column itself, such as groups=frame['owner'], and leave it out of X"
            check.require(False, self._name, "groups must hold the owner of each row, got text", hint=hint)
        federation = Federation.from_arrays(X, y, np.zeros(len(X)) if groups is None else groups)
        self._steps, objective = self._settled_steps(X.shape[1]), Objective(loss, self._penalty())
        algorithm, mode, rounds = self._method(federation, objective)
        self._warn_of_sizes(mode)
        left_out = (*left_out, *self._earlier(mode), *([ONE_OWNER] if groups is None else []))
        participation = Everyone() if self.participation is None else self.participation
        seed = seed_of(self.random_state)
        self._count_fit(mode)
        ledger = self._open_ledger(federation, mode)
        try:
            result = train(
                algorithm,
                self._with_intercept(self._prepared(federation, mode, ledger, seed)),
                objective,
                rounds=rounds,
                privacy=mode,
                participation=participation,
                seed=seed,
                engine=self.engine,
                record_every=rounds,
                measure_training=False,  # exact numbers about private rows do not belong into a model
                ledgers=ledger,
            )
        finally:
            if isinstance(ledger, OwnerLedgers):
                ledger.close()
        if result.rounds == 0:
            raise self._nothing_trained(result.stopped)
        self.guarantee_ = result.guarantee.leaving_out(*left_out)
        self.result_ = replace(result, guarantee=self.guarantee_)
        self.algorithm_, self.rounds_ = algorithm, result.rounds
        by_output = result.model.reshape(loss.outputs, -1)
        self.coef_ = by_output[:, : X.shape[1]].copy()
        self.intercept_ = by_output[:, X.shape[1]].copy() if self.fit_intercept else np.zeros(loss.outputs)

    def _method(self, federation: Federation, objective: Objective) -> tuple[Any, Any, int]:
        """Algorithm, privacy and rounds, as given or chosen by `sottovoce plan`: from sizes alone, so at no cost."""
        mode = self._mode()
        if not (isinstance(self.algorithm, str) and self.algorithm == "auto"):
            return self._algorithm(), mode, self.rounds
        from sottovoce.planning import forecast as plan

        if not isinstance(mode, Proven):
            raise InvalidInput(f"{self._name}: algorithm='auto' is for privacy 'proven', got {mode.mode!r}. Name one")
        columns = federation.X.shape[1]
        bound = self._bound(columns)
        if bound is None:
            raise InvalidInput(
                f"{self._name}: algorithm='auto' has to know how long rows are. Give prepare=PublicScaler(...), "
                "PrivateScaler(...) or RowClipper(...), or promise a row_bound"
            )
        if self.fit_intercept:
            columns, bound = columns + 1, float(np.hypot(bound, 1.0))
        epsilon = mode.epsilon
        for step in self._steps:
            if isinstance(step, PrivateScaler):
                step.must_leave_enough(mode)
                epsilon = step.leaves(mode)
        chosen = plan.choose(
            federation.sizes.tolist(),
            columns,
            epsilon=epsilon,
            delta=mode.delta,
            objective=objective,
            unit=mode.unit,
            secure=mode.noise == "secure",
            row_bound=bound,
        )
        return chosen.algorithm, replace(mode, clip=chosen.privacy.clip), chosen.rounds

    def _bound(self, columns: int) -> float | None:
        """How long prepared rows can be, as far as is known without looking."""
        if self.row_bound is not None or not self._steps:
            return self.row_bound
        return self._steps[-1].bound_of(columns)

    def _warn_of_sizes(self, mode: Any) -> None:
        """Say what is not known of the rows: clipping leaves little of columns, or of y, of other sizes than about 1.

        Whether they are is not looked at, for what is said would then depend on private rows.
        """
        if mode.mode != "proven" or self.earlier_steps == "public":
            return
        said = []
        if not self._steps and self.row_bound is None:
            said.append(
                "nothing is stated about the sizes of columns, and those of other sizes than about 1 will be clipped "
                "away. Give prepare=PublicScaler(ranges), a row_bound, or earlier_steps='public' if they have that size"
            )
        if isinstance(self, RegressorMixin) and self.y_range is None:
            said.append("no range of y is stated, and y beyond about 1 will be clipped away. Give y_range=(low, high)")
        for words in said:
            warnings.warn(f"{self._name}: {words}", stacklevel=4)

    def _open_ledger(self, federation: Federation, mode: Any) -> MemoryLedger | OwnerLedgers | None:
        """One ledger per owner for preparation and training; on disk it is bound to the rows as they came."""
        if not isinstance(mode, Proven):
            check.require(self.ledgers is None, self._name, "ledgers are for privacy 'proven'", self.ledgers)
            return None
        budget = Budget(mode.epsilon, mode.delta)
        if self.ledgers is None:
            return MemoryLedger(budget, (federation.n,))
        return OwnerLedgers.open(Path(self.ledgers), federation.names, federation.data(), budget)

    def _settled_steps(self, columns: int) -> list[Any]:
        """Own copies of what is in `prepare`, ready where that takes no data."""
        given = self.prepare if isinstance(self.prepare, list | tuple) else [self.prepare]
        steps: list[Any] = [clone(step, safe=False) for step in given if step is not None]
        for step in steps:
            if isinstance(step, PublicScaler):
                step.settle(step.stated(columns, getattr(self, "feature_names_in_", None)))
            elif isinstance(step, RowClipper):
                step.settle()
            else:
                fits = isinstance(step, PrivateScaler)
                rule, hint = "prepare takes PublicScaler, PrivateScaler and RowClipper", "Give PublicScaler(ranges)"
                check.require(fits, self._name, f"{rule}, got {type(step).__name__}", hint=hint)
        asking = sum(isinstance(step, PrivateScaler) for step in steps)
        check.require(asking <= 1, self._name, "prepare takes one PrivateScaler at most", asking)
        return steps

    def _prepared(self, federation: Federation, mode: Any, ledger: Any, seed: int | None) -> Federation:
        """The rows as `prepare` leaves them. A scaler that asks is paid from `ledger`."""
        for step in self._steps:
            if isinstance(step, PrivateScaler):
                check.require(
                    isinstance(mode, Proven),
                    self._name,
                    "PrivateScaler is for privacy 'proven', where a budget pays for it",
                    mode.mode,
                    "State ranges, PublicScaler(ranges), or fit the scaler by itself before",
                )
                step.must_leave_enough(mode)
                step.ask(federation, mode, ledger, seed)
            federation = replace(federation, X=step.apply(federation.X))
        return replace(federation, row_bound=self._bound(federation.X.shape[1]))

    def _with_intercept(self, federation: Federation) -> Federation:
        if not self.fit_intercept:
            return federation
        bound = federation.row_bound
        X = np.column_stack([federation.X, np.ones(len(federation.X))])
        return replace(federation, X=X, row_bound=None if bound is None else float(np.hypot(bound, 1.0)))

    def _margins(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        rows = np.asarray(validated(self, X, reset=False, dtype=np.float64))
        for step in self._steps:
            rows = step.apply(rows)
        scores = rows @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores


class FederatedClassifier(LinearClassifier, _FederatedLinear):
    """A linear classifier over rows of many owners, with a privacy guarantee that is true.

    Parameters
    ----------
    algorithm
        An object of `sottovoce.algorithms`, or the name of one (`sottovoce list`) to have it with its defaults. "auto":
        method, rounds and clip as `sottovoce plan` chooses them for such sizes and such a budget, without looking.
    epsilon, delta, clip
        The whole budget of each owner for one fit, `prepare` included, and the bound on one record's gradient.
    privacy
        "proven", "published" or "none"; or an object such as `Proven(...)`, in place of epsilon, delta and clip.
    loss
        "logistic" (the default; for more than two classes it is softmax), "softmax", "smoothed-hinge", or an object.
    penalty
        For instance `L1(1e-3)`. None: `L2(1e-4)`. The intercept is penalised like the rest.
    classes
        The labels there can be, declared. None: those that occur; that is read off private data, and the guarantee
        says so.
    rounds
        How many rounds.
    fit_intercept
        Whether rows get one more column, of ones. It counts in the length of a row.
    prepare
        `PublicScaler`, `PrivateScaler` or `RowClipper`, or a list of them: applied to rows here and before predicting.
        What it costs is paid from the budget and covered by the guarantee. `coef_` belongs to prepared features.
    row_bound
        A public promise that no row (as `prepare` leaves it) is longer; it is checked. None: that of `prepare`, if any.
    earlier_steps
        "public" declares that whatever was done to X before used no private numbers. "unknown": the guarantee says
        that it does not cover it.
    participation
        Who takes part in which round. None: everyone.
    ledgers
        Folder of the owners' ledger files, for budgets that outlive the fit. None: each fit has a budget of its own,
        and from the second on it warns of that. Copies in worker processes (`n_jobs`) cannot be counted together: each
        of them warns, on the worker's stderr.
    engine
        "auto", "numpy" or "kernel".
    random_state
        Seed of the noise: the same for the same rows and settings, other noise for others (such as the folds of a
        cross-validation). None: a fresh one that is not kept. Once the model or a copy of it has been fitted in
        "proven" mode, pickles of either do not contain it: a search that is pickled holds an unfitted copy.

    Attributes
    ----------
    classes_ : array
        In the order of the columns of `predict_proba`.
    coef_, intercept_ : arrays
        As in scikit-learn's linear models.
    guarantee_ : Guarantee
        What may be said about privacy, and what may not. Print it.
    algorithm_
        The algorithm that was used, with its settings.
    rounds_ : int
        Rounds done: fewer than asked for if budgets ran out.
    result_ : Result
        The run itself, on prepared features: `result_.save(folder)` keeps it, for `sottovoce verify` and `report`. It
        knows the seed, so it is not in pickles.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import FederatedClassifier, PublicScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, size=(3000, 2))  # two features that are known to lie between 0 and 100
    >>> y = np.where(X[:, 0] > X[:, 1], "sick", "well")
    >>> hospital = rng.integers(0, 3, size=3000)
    >>> model = FederatedClassifier(
    ...     epsilon=1.0, delta=1e-5, prepare=PublicScaler((0, 100)), classes=["sick", "well"], random_state=0
    ... ).fit(X, y, groups=hospital)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> model.predict([[90.0, 10.0]])
    array(['sick'], dtype='<U4')
    >>> model.guarantee_.short
    '1 (δ=1e-05) per record, server sees all messages, simulated noise'
    """

    def __init__(
        self,
        algorithm: Any = "dp-admm",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        clip: float | None = 1.0,
        privacy: Any = "proven",
        loss: Any = None,
        penalty: Any = None,
        classes: Any = None,
        rounds: int = 50,
        fit_intercept: bool = True,
        prepare: Any = None,
        row_bound: float | None = None,
        earlier_steps: str = "unknown",
        participation: Any = None,
        ledgers: Any = None,
        engine: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.privacy = privacy
        self.loss = loss
        self.penalty = penalty
        self.classes = classes
        self.rounds = rounds
        self.fit_intercept = fit_intercept
        self.prepare = prepare
        self.row_bound = row_bound
        self.earlier_steps = earlier_steps
        self.participation = participation
        self.ledgers = ledgers
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, **others: Any) -> "FederatedClassifier":
        """Train. `groups` says who owns each row, as in grouped cross-validation; None: one owner has them all."""
        self._refuse(others)
        X, y = validated(self, X, y, dtype=np.float64)
        refuse_other_targets(self._name, y)
        self.classes_, number = numbered(self._name, y, self.classes)
        loss, count = self._loss(CLASSIFICATION), len(self.classes_)
        if isinstance(loss, str):
            loss = Softmax(count) if loss == "softmax" or (loss == "logistic" and count > 2) else LOSSES[loss]()
        fits = loss.outputs == count or (loss.outputs == 1 and count == 2)
        check.require(fits, self._name, f"loss must fit {count} classes", loss, "Use loss='logistic'")
        coded = number.astype(np.float64) if loss.outputs > 1 else 2.0 * number - 1.0
        self._train(X, coded, groups, loss, *([] if self.classes is not None else [LABELS_FOUND]))
        if loss.outputs == 2:  # two columns of softmax are one of logistic
            self.coef_ = self.coef_[1:] - self.coef_[:1]
            self.intercept_ = self.intercept_[1:] - self.intercept_[:1]
        return self


class FederatedRegressor(RegressorMixin, _FederatedLinear):
    """A linear regression over rows of many owners, with a privacy guarantee that is true.

    Parameters and attributes are those of `FederatedClassifier`, but for classes and

    Parameters
    ----------
    loss
        "squared" (the default), "huber", or an object such as `Huber(width=0.5)`.
    y_range
        A public range of y, (low, high): values are clipped to it and trained on as numbers in [-1, 1]. Without it the
        clip norm has to suit the scale of y.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import FederatedRegressor, PublicScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, size=(3000, 2))
    >>> y = 200 + 3 * X[:, 0] - X[:, 1] + rng.normal(size=3000)
    >>> firm = rng.integers(0, 3, size=3000)
    >>> model = FederatedRegressor(prepare=PublicScaler((0, 100)), y_range=(0, 600), random_state=0)
    >>> bool(model.fit(X, y, groups=firm).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        algorithm: Any = "dp-admm",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        clip: float | None = 1.0,
        privacy: Any = "proven",
        loss: Any = None,
        penalty: Any = None,
        y_range: Any = None,
        rounds: int = 50,
        fit_intercept: bool = True,
        prepare: Any = None,
        row_bound: float | None = None,
        earlier_steps: str = "unknown",
        participation: Any = None,
        ledgers: Any = None,
        engine: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.delta = delta
        self.clip = clip
        self.privacy = privacy
        self.loss = loss
        self.penalty = penalty
        self.y_range = y_range
        self.rounds = rounds
        self.fit_intercept = fit_intercept
        self.prepare = prepare
        self.row_bound = row_bound
        self.earlier_steps = earlier_steps
        self.participation = participation
        self.ledgers = ledgers
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None, **others: Any) -> "FederatedRegressor":
        """Train. `groups` says who owns each row, as in grouped cross-validation; None: one owner has them all."""
        self._refuse(others)
        X, y = validated(self, X, y, dtype=np.float64, y_numeric=True)
        loss = self._loss(_REGRESSION)
        loss = LOSSES[loss]() if isinstance(loss, str) else loss
        middle, reach = 0.0, 1.0
        if self.y_range is not None:
            low, high = _pair(self._name, self.y_range)
            middle, reach = (low + high) / 2, (high - low) / 2
            y = (np.clip(y, low, high) - middle) / reach
        self._train(X, np.asarray(y, dtype=np.float64), groups, loss)
        self.coef_ = reach * self.coef_[0]
        self.intercept_ = reach * self.intercept_[0] + middle
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The value of each row."""
        return self._margins(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R²."""
        return measured(self._name, r2_score, y, self.predict(X), sample_weight, "y must hold finite numbers")

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._noisy
        return tags


def _pair(who: str, y_range: Any) -> tuple[float, float]:
    pair = check.finite_array(who, "y_range", y_range, ndim=1)
    check.require(pair.shape == (2,) and pair[0] < pair[1], who, "y_range must be (low, high), low < high")
    return float(pair[0]), float(pair[1])
