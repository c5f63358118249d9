"""What a classifier and a regression over rows of many owners share."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.contract import Method
from sottovoce.core.participation import Everyone, Participation
from sottovoce.core.plain import Json
from sottovoce.estimators.base import PrivateEstimator
from sottovoce.estimators.preparation import Steps
from sottovoce.estimators.scalers import Preparation, seed_of
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
from sottovoce.rules import AUTO, METHODS, Rule


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

    _modes: ClassVar = ("proven", "published", "none")
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
        if isinstance(groups, str):
            hint = "Give the column itself, such as groups=frame['owner'], and leave it out of X"
            check.require(False, self._name, "groups must hold the owner of each row, got text", hint=hint)
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
            bounded = replace(prepared, row_bound=self._bound(columns), bias=self._schema is not None)
            result = self._run(task, bounded, left_out, seed=seed, ledgers=ledger)
        finally:
            if isinstance(ledger, OwnerLedgers):
                ledger.close()
        by_output = result.model.reshape(loss.outputs, -1)
        self.coef_ = by_output[:, :columns].copy()
        ones = by_output.shape[1] > columns
        self.intercept_ = by_output[:, columns].copy() if ones else np.zeros(loss.outputs)
        self._flat_model = result.model

    def _named_mode(self, name: str) -> PrivacyMode:
        if name == "none":
            return NoPrivacy()
        kind = Proven if name == "proven" else Published
        return kind(self.epsilon, self.delta, cast(float, self.clip))  # None: settled when the rows are known

    def _task(self, federation: Federation, objective: Objective) -> Task:
        """What to train: as given, or as a rule chooses it, from sizes and the budget alone and so at no cost."""
        mode, participation = self._mode(), Everyone() if self.participation is None else self.participation
        held = evaluation(getattr(self, "evaluate", None))
        more: Json = {"participation": participation, "engine": self.engine, "evaluate": held}
        columns = federation.X.shape[1]
        bound, name = self._bound(columns), self.algorithm
        by_rule = isinstance(name, str) and (name == AUTO or (self.rounds is None and name in METHODS))
        rule = self._rule(str(name) if by_rule else None)
        if not by_rule:
            task = Task(self._algorithm(), objective, mode, rounds=self._rounds, **more)
            if isinstance(mode, Proven) and bound is None and not mode.has_clip:
                return replace(task, privacy=replace(mode, clip=1.0))
            return task
        if objective.intercept and self._schema is None:  # one more column of ones
            columns, bound = columns + 1, None if bound is None else float(np.hypot(bound, 1.0))
        left = self._steps.epsilon_for_training(mode) if isinstance(mode, Proven) else None
        rule = replace(rule, most=0 if self.rounds is None else self._rounds)
        task = Task.by_rule(rule, objective, mode, **more)
        return task.ruled(federation.sizes, columns, bound, left)

    def _rule(self, name: str | None) -> Rule:
        """What is asked of the rule that chooses constants; None: they are given."""
        return Rule(name or AUTO)

    def _bound(self, columns: int) -> float | None:
        """How long prepared rows can be, as far as that is known without looking."""
        stated = self._steps.bound(columns) if self._schema is None else self._schema.row_bound
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
