"""The preparation of an estimator's rows: the steps that were given as `prepare=...`, completed and applied."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from sottovoce.core import check
from sottovoce.estimators.scalers import Preparation, PrivateScaler, PublicScaler, RowClipper
from sottovoce.privacy.doors.proven import Ledger
from sottovoce.privacy.modes import PrivacyMode, Proven
from sottovoce.problems.federation import Federation


@dataclass(frozen=True)
class Steps:
    """The preparation of one fitted estimator: its own copies of what `prepare` holds."""

    who: str
    steps: tuple[Preparation, ...]
    columns: int

    @classmethod
    def of(
        cls, who: str, prepare: Preparation | Sequence[Preparation] | None, columns: int, names: ArrayLike | None
    ) -> "Steps":
        """Copy the steps of the estimator called `who`, and settle what needs no data."""
        listed = prepare if isinstance(prepare, list | tuple) else [prepare]
        steps = [cast(Preparation, clone(step, safe=False)) for step in listed if step is not None]
        for step in steps:
            known = isinstance(step, PublicScaler | PrivateScaler | RowClipper)
            rule = "prepare takes PublicScaler, PrivateScaler and RowClipper, or a Schema by itself"
            hint = "Give PublicScaler(ranges)"
            check.require(known, who, f"{rule}, got {type(step).__name__}", hint=hint)
            step.settle_for(columns, names)
        asking = sum(step.asks for step in steps)
        check.require(asking <= 1, who, "prepare takes one PrivateScaler at most", asking)
        return cls(who, tuple(steps), columns)

    @property
    def bound(self) -> float | None:
        """How long prepared rows can be, if the steps say so."""
        return self.steps[-1].bound_of(self.columns) if self.steps else None

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Prepare the rows that are to be predicted."""
        for step in self.steps:
            X = step.apply(X)
        return X

    def epsilon_for_training(self, privacy: Proven) -> float:
        """What the steps leave of a budget; refused if that is next to nothing."""
        return min((step.leaves(privacy, self.columns) for step in self.steps), default=privacy.epsilon)

    def prepare(
        self, federation: Federation, privacy: PrivacyMode, ledger: Ledger | None, seed: int | None
    ) -> Federation:
        """Prepare the rows that are to be trained on. A step that asks is paid from `ledger`."""
        if isinstance(privacy, Proven):
            self.epsilon_for_training(privacy)  # refuses steps that leave too little, before anybody is asked
        for step in self.steps:
            if isinstance(privacy, Proven) and ledger is not None:
                step.ask(federation, privacy, ledger, seed)
            else:
                rule = "PrivateScaler needs privacy 'proven', where a budget pays for it"
                hint = "State ranges, PublicScaler(ranges), or fit the scaler by itself before"
                check.require(not step.asks, self.who, rule, hint=hint)
            federation = replace(federation, X=step.apply(federation.X))
        return federation
