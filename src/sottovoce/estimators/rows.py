"""A linear classifier and a regression over rows of many owners, as scikit-learn estimators."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.contract import Method
from sottovoce.core.histogram import Evaluation
from sottovoce.core.participation import Everyone, Participation
from sottovoce.core.plain import Json
from sottovoce.estimators.base import PrivateEstimator
from sottovoce.estimators.scalers import Preparation, Steps, seed_of
from sottovoce.estimators.targets import LinearClassifier, LinearRegressor
from sottovoce.estimators.validation import Table, validated, validated_rows
from sottovoce.experiment.task import Engine, Task
from sottovoce.experiment.train import evaluation, open_ledgers
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.guarantee import ONE_OWNER
from sottovoce.privacy.modes import NoPrivacy, PrivacyMode, Proven, Published
from sottovoce.problems.federation import Federation, dense
from sottovoce.problems.losses import Loss
from sottovoce.problems.losses.base import margins
from sottovoce.problems.objective import Objective
from sottovoce.problems.schema import Schema
from sottovoce.rules import AUTO, METHODS, Rule, constant_entry


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedLinear(PrivateEstimator):
    """What a classifier and a regression over rows of many owners share; `FederatedClassifier` has the parameters."""

    __metadata_request__fit = {"groups": True}  # noqa: RUF012 (read by scikit-learn)

    algorithm: Method | str = field(default=AUTO, kw_only=False)
    clip: float | None = None
    prepare: Schema | Preparation | Sequence[Preparation] | None = None
    row_bound: float | None = None
    participation: Participation | None = None
    engine: Engine = "auto"

    _modes: ClassVar = {"proven": Proven, "published": Published, "none": NoPrivacy}
    _example: ClassVar = "for rows of many owners, such as Proven(epsilon=1.0, delta=1e-5, clip=1.0)"

    def fit(self, X: Table, y: ArrayLike | None = None, groups: ArrayLike | None = None, **others: object) -> Self:
        """Train. `groups` holds the owner of each row, as in grouped cross-validation; None: one owner has all rows."""
        self._refuse(others)
        self._fit(X, y, groups)
        return self

    def _read(
        self, X: Table, y: ArrayLike | None, groups: ArrayLike | None, numeric: bool
    ) -> tuple[np.ndarray, np.ndarray, ArrayLike | None]:
        schema = self._schema
        if schema is None:
            rows, labels = validated(self, X, y, numeric)
            return dense(self._name, rows), labels, groups
        hint = "Give Label(column, classes) in the schema"
        check.require(schema.label is not None, self._name, "the schema must say what the label is", hint=hint)
        rows, labels, owners = schema.encode(X, owners=groups is None, labels=y is None)
        labels = schema.code_labels(y, f"{self._name}: y") if labels is None else labels
        fits = len(labels) == len(rows)
        check.require(fits, self._name, f"y must have one label per row of X ({len(rows)})", len(labels))
        self.n_features_in_ = len(schema.features)
        return rows, labels, owners if groups is None else groups

    def _train(
        self, table: np.ndarray, y: np.ndarray, loss: Loss, left_out: list[str], groups: ArrayLike | None
    ) -> None:
        """Prepare the rows and train on them, from one budget."""
        hint = "Give the column itself, such as groups=frame['owner'], and leave it out of X"
        rule = "groups must hold the owner of each row, got text"
        check.require(not isinstance(groups, str), self._name, rule, hint=hint)
        federation = Federation.from_arrays(table, y, np.zeros(len(table)) if groups is None else groups)
        columns, objective = table.shape[1], self._objective(loss)
        steps = None if isinstance(self.prepare, Schema) else self.prepare
        self._steps = Steps.of(self._name, steps, columns, getattr(self, "feature_names_in_", None))
        task = self._task(federation, objective)
        self._warn_of_sizes(task.privacy)
        if groups is None:
            self._warn_of_one_owner(task.privacy)
        left_out = [*left_out, *self._earlier(task.privacy), *([ONE_OWNER] if groups is None else [])]
        seed = seed_of(self.random_state)
        self._count_fit(task.privacy)
        folder = None if self.ledgers is None else Path(self.ledgers)
        ledger = open_ledgers(self._name, task.privacy, federation, folder)  # bound to the rows as they came
        try:
            prepared = self._steps.prepare(federation, task.privacy, ledger, seed)
            bounded = replace(prepared, row_bound=self._bound(), bias=self._schema is not None)
            result = self._run(task, bounded, left_out, seed=seed, ledgers=ledger)
        finally:
            if isinstance(ledger, OwnerLedgers):
                ledger.close()
        by_output = result.model.reshape(loss.outputs, -1)
        self.coef_ = by_output[:, :columns].copy()
        ones = by_output.shape[1] > columns
        self.intercept_ = by_output[:, columns].copy() if ones else np.zeros(loss.outputs)
        self._flat_model = result.model

    @property
    def _budget(self) -> Json:
        return super()._budget | {"clip": self.clip}  # None: chosen when the bound on rows is known

    def _task(self, federation: Federation, objective: Objective) -> Task:
        """What to train: as given, or as a rule chooses it, from sizes and the budget alone and so at no cost."""
        mode, participation = self._mode(), Everyone() if self.participation is None else self.participation
        held = evaluation(getattr(self, "evaluate", None))
        more: Json = {"participation": participation, "engine": self.engine, "evaluate": held}
        columns, proven = federation.X.shape[1], mode if isinstance(mode, Proven) else None
        bound, name = self._bound(), self.algorithm
        by_rule = isinstance(name, str) and (name == AUTO or (self.rounds is None and name in METHODS))
        rule = self._rule(str(name) if by_rule else None)
        if not by_rule:
            task = Task(self._algorithm(), objective, mode, rounds=self._rounds, **more)
            if proven is not None and bound is None and not proven.has_clip:
                return replace(task, privacy=replace(proven, clip=1.0))
            return task
        if objective.intercept and self._schema is None:  # one more column of ones
            columns, bound = columns + 1, None if bound is None else float(np.hypot(bound, 1.0))
        left = None if proven is None else self._steps.epsilon_for_training(proven)
        rule = replace(rule, most=0 if self.rounds is None else self._rounds)
        task = Task.by_rule(rule, objective, mode, **more)
        return task.ruled(federation.sizes, columns, bound, left)

    def _rule(self, name: str | None) -> Rule:
        """What is asked of the rule that chooses constants; None: they are given."""
        return Rule(name or AUTO)

    def _bound(self) -> float | None:
        """How long prepared rows can be, as far as that is known without looking."""
        stated = self._steps.bound if self._schema is None else self._schema.row_bound
        return stated if self.row_bound is None else self.row_bound

    def _unstated_sizes(self) -> list[str]:
        """What a user should state about the sizes of numbers and has not."""
        if self._steps.steps or self._schema is not None or self.row_bound is not None:
            return []
        return [
            "nothing is stated about the sizes of columns, and columns with sizes far from 1 will be clipped away. "
            "Give prepare=PublicScaler(ranges), a row_bound, or earlier_steps='public' if their sizes are about 1"
        ]

    def _warn_of_sizes(self, mode: PrivacyMode) -> None:
        """Warn if sizes are not stated: clipping leaves little of columns, or of y, with sizes far from 1.

        The sizes themselves are not looked at, because the warning would then depend on private rows.
        """
        if mode.budget is None or self.earlier_steps == "public":
            return
        for message in self._unstated_sizes():
            warnings.warn(f"{self._name}: {message}", stacklevel=4)

    def _warn_of_one_owner(self, mode: PrivacyMode) -> None:
        """Say once that there is one owner: a federation was meant if groups were forgotten."""
        if mode.budget is None or self.fits.told_of_groups:
            return
        self.fits.told_of_groups = True
        warnings.warn(
            f"{self._name}: fit was given no groups, so all rows count as those of one owner, and nobody is protected "
            "from that owner. Give groups=the owner of each row, or a schema with owner=",
            stacklevel=4,
        )

    def _scores(self, X: Table) -> np.ndarray:
        check_is_fitted(self, "coef_")
        if self._schema is not None:  # as a saved run computes them, to the last bit
            scores = margins(self._schema.transform(X), self._flat_model, self._outputs)
            return scores[:, 1] - scores[:, 0] if self._outputs == 2 else scores
        rows: np.ndarray = dense(self._name, validated_rows(self, X, sparse=True))
        scores = self._steps.apply(rows) @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedClassifier(LinearClassifier, FederatedLinear):
    """A linear classifier over rows of many owners, with a privacy guarantee that is true.

    Parameters
    ----------
    algorithm
        "auto": a rule chooses method, constants and rounds from sizes and the budget, without looking at the data
        (`sottovoce.rules`). The name of a method (`sottovoce list`): the rule chooses its constants and rounds. Or an
        algorithm such as `DPADMM(rho=0.1)`.
    epsilon
        With `delta` the whole budget of each owner for one fit, `prepare` included.
    delta
        See `epsilon`.
    clip
        The bound on the gradient of one record. None: the longest that it can be at a model of zeros, by the loss and
        the bound on rows: 1/2 for a logistic loss and rows of length 1.
    base_rate
        The share of the second class among all records, if it is publicly known (a prevalence from the literature).
        The intercept leans on it where noise exceeds signal and a rule chooses the constants ("auto", "noisy-gd").
        Never take it from the data: no guarantee covers that.
    privacy
        "proven", "published" or "none"; or an object such as `Proven(...)`, in place of epsilon, delta and clip.
    loss
        "logistic" (the default; for more than two classes it is softmax), "softmax", "smoothed-hinge", or an object.
    penalty
        For instance `L1(1e-3)`. None: `L2(1e-4)`. See `penalise_intercept`.
    classes
        All labels that can occur. None: those that do occur; that is read from private data, and the guarantee says so.
    rounds
        Number of rounds; with algorithm "auto" the most that it may choose. None: as many as the rule says, or 50 if
        the algorithm is an object.
    fit_intercept
        Whether rows get one more column, of ones. It counts in the length of a row. Rows that a `Schema` encodes have
        a column for the intercept already, which then is one of the columns of `coef_`; see `Objective`.
    penalise_intercept
        Whether the penalty counts the intercept too. False: it does not, as in scikit-learn.
    prepare
        A `Schema`: X is then a table as it is, and y and groups may be left out if it has these columns. Or
        `PublicScaler`, `PrivateScaler` or `RowClipper`, or a list of them: applied to rows before training and before
        predicting. The budget pays for it and the guarantee covers it. `coef_` belongs to prepared features.
    row_bound
        A public promise that no row (after `prepare`) is longer; it is checked. None: the bound of `prepare`, if any.
    earlier_steps
        "public" declares that whatever was done to X before used no private numbers. "unknown": the guarantee says
        that it does not cover these steps.
    participation
        Which owners take part in which round. None: everyone.
    ledgers
        Folder of the owners' ledger files, for budgets that outlive the fit. None: each fit has its own budget, and
        from the second fit on a warning says so. Copies in worker processes (`n_jobs`) cannot be counted together:
        each of them warns, on the stderr of the worker.
    engine
        "auto", "numpy" or "kernel".
    class_weight
        How much records of each class weigh, before the clip: public numbers, by label or in the order of `classes_`.
    evaluate
        Whether, and how (`Evaluation(...)`), owners hold out records to measure the model on: see `score_privately`.
    random_state
        Seed of the noise. The same rows and settings get the same noise; others (such as the folds of a
        cross-validation) get different noise. None: a fresh seed that is not kept. Once the model or a copy of it was
        fitted in "proven" mode, pickles do not contain the seed; a pickled search holds an unfitted copy.

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
    chosen_
        What a rule chose, why (`chosen_.why`), and a warning if noise exceeds signal; None if constants were given.
    rounds_ : int
        Rounds done: fewer than asked for if budgets ran out.
    result_ : Result
        The run itself, on prepared features: `result_.save(folder)` keeps it, for `sottovoce verify` and `report`. It
        contains the seed, so pickles leave it out.
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

    class_weight: Mapping[Any, float] | Sequence[float] | None = None
    evaluate: Evaluation | bool = False
    base_rate: float | None = None

    _losses: ClassVar = ("logistic", "softmax", "smoothed-hinge", "weighted-logistic", "weighted-softmax")

    def _rule(self, name: str | None) -> Rule:
        if self.base_rate is None:
            return super()._rule(name)
        check.between(self._name, 0, 1, base_rate=self.base_rate)
        check.require(self.fit_intercept or self._schema is not None, self._name, "base_rate needs fit_intercept=True")
        rule = "base_rate is for constants that a rule chooses, with algorithm 'auto', or 'noisy-gd' and no rounds"
        check.require(name is not None, self._name, rule, hint="Leave it out")
        return Rule(name or "", self.base_rate, 1.0 if self._schema is None else constant_entry(self._schema))

    def _fit(self, X: Table, y: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        super()._fit(X, y, groups)
        if self._outputs == 2:  # two columns of softmax are one of logistic
            self.coef_ = self.coef_[1:] - self.coef_[:1]
            self.intercept_ = self.intercept_[1:] - self.intercept_[:1]


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedRegressor(LinearRegressor, FederatedLinear):
    """A linear regression over rows of many owners, with a privacy guarantee that is true.

    Parameters and attributes are those of `FederatedClassifier`, without `classes` and with these differences:

    Parameters
    ----------
    loss
        "squared" (the default), "huber", or an object such as `Huber(width=0.5)`.
    y_range
        A public range of y, (low, high): values are clipped to it and mapped to [-1, 1] for training. Without it the
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

    def _unstated_sizes(self) -> list[str]:
        unstated = super()._unstated_sizes()
        if self.y_range is None and self._schema is None:
            y = "no range of y is stated, and y beyond about 1 will be clipped away. Give y_range=(low, high)"
            unstated.append(y)
        return unstated
