"""`ProvenColumns`: a promise to parties whose columns are split."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import Fraction, NoGuarantee, Positive
from sottovoce.core.contract import Asks, Layout, Mode, Part, Penalty
from sottovoce.core.plain import Json
from sottovoce.core.vouched import vouched
from sottovoce.privacy.events import Event, Relation
from sottovoce.privacy.modes.base import PrivacyMode, explain_infinity

if TYPE_CHECKING:
    from sottovoce.privacy.calibration import AnswerShape

_LEFT_OUT: Any = None
_BOUNDS = {  # what each is, and what is sensible
    "bound": "the norm to which the numbers of a party's fit, one per sample, are cut. The square root of the number "
    "of samples suits scores of about 1",
    "column_bound": "the length to which longer columns are scaled down. The square root of the number of samples "
    "suits columns in [-1, 1]",
    "row_bound": "the length to which longer rows of a party are scaled down. The square root of its number of columns "
    "suits columns in [-1, 1]",
    "score_bound": "the size to which a party's score of a sample is clipped. Try 0.3; noise grows with it",
    "model_bound": "the norm to which a party's model is clipped before it is released. Try 1; noise grows with it",
}


@dataclass(frozen=True)
class ProvenColumns(PrivacyMode):
    """As `Proven`, where columns are split between parties: a total (epsilon, delta) for each party's features.

    Parameters
    ----------
    epsilon, delta
        The whole budget of each party for the whole run, its model for prediction included.
    unit
        What a neighbour differs in: "party" (all columns of one party), "column" (one column) or "record" (one row of
        one party: a person). There is no default: they cost very differently. Noise on N samples that hides a column
        or a party must be as large as the whole vector of scores, noise that hides a record only as large as one score.
    bound
        Variant "ridge": U, targets of a party's fit (one number per sample) are projected on |u| <= U. Variant "clip":
        C, each vector of scores is clipped to that norm. The square root of the number of samples suits scores of
        about 1.
    variant
        "ridge": the sensitivity of a ridge fit, for an L2 penalty only. "clip": any penalty, whatever the unit.
    column_bound, row_bound, score_bound
        Variant "ridge": for unit "column" columns longer than `column_bound` are scaled down to it; for unit "record"
        rows longer than `row_bound` are, and each score is clipped to `score_bound` in size. Sensible: the square
        root of the number of samples, of a party's number of columns (where these lie in [-1, 1]), and 0.3.
    model
        Whether a noisy copy of each party's model is made after the last round, one more answer: scores of new rows
        then cost nothing. Without it a result cannot predict.
    model_bound
        Variant "clip": the norm to which a party's model is clipped for that.
    label_epsilon
        Each label is flipped with probability 1/(1 + exp(label_epsilon)) before training. None: labels are NOT
        protected, and the broadcast shows every one of them.
    noise
        As in `Proven`.

    Examples
    --------
    >>> from sottovoce import ProvenColumns
    >>> privacy = ProvenColumns(epsilon=1.0, delta=1e-6, unit="record", bound=20.0, row_bound=1.0, score_bound=2.0)
    >>> privacy.variant, privacy.label_epsilon
    ('ridge', None)
    """

    epsilon: Positive
    delta: Fraction
    unit: Literal["party", "column", "record"] = _LEFT_OUT  # refused below, with what it means
    bound: Positive = _LEFT_OUT  # the same
    variant: Literal["ridge", "clip"] = "ridge"
    column_bound: Positive | None = None
    row_bound: Positive | None = None
    score_bound: Positive | None = None
    model: bool = True
    model_bound: Positive | None = None
    label_epsilon: Positive | None = None
    noise: Literal["seeded", "secure", "discrete"] = "seeded"
    mode: ClassVar[Mode] = "proven"
    layouts: ClassVar[frozenset[Layout]] = frozenset({"columns"})

    def __post_init__(self) -> None:
        who = "ProvenColumns"
        unit, bound = cast(tuple[str | None, float | None], (self.unit, self.bound))
        check.require(unit is not None, who, "needs unit, what is hidden: 'record', 'column' or 'party'")
        check.require(bound is not None, who, f"needs bound, {_BOUNDS['bound']}")
        explain_infinity(who, self.epsilon)
        check.fields(self)
        needs = {
            "column_bound": self.variant == "ridge" and self.unit == "column",
            "row_bound": self.variant == "ridge" and self.unit == "record",
            "score_bound": self.variant == "ridge" and self.unit == "record",
            "model_bound": self.variant == "clip" and self.model,
        }
        given = f"unit {self.unit!r}, variant {self.variant!r}"
        for name, needed in needs.items():
            value = getattr(self, name)
            check.require(not needed or value is not None, who, f"{given} needs {name}, {_BOUNDS[name]}")
            rule = f"{given} has no {name}, got {check.shown(value)}"
            check.require(needed or value is None, who, rule, hint="Leave it out")

    @property
    def promise(self) -> str:
        return "columns"

    @property
    def budget(self) -> tuple[float, float]:
        return self.epsilon, self.delta

    @property
    def cut(self) -> tuple[str, float]:
        return "bound", self.bound

    @property
    def predicts(self) -> bool:
        return self.model

    @property
    def counted_relation(self) -> Relation:
        """The neighbouring relation that the budget is counted for."""
        relations: dict[str, Relation] = {
            "party": "replace-client",
            "column": "replace-column",
            "record": "replace-one",
        }
        return relations[self.unit]

    def check(self, asks: Asks, penalty: Penalty) -> None:
        if asks.kinds != ("fit",):
            kinds = ", ".join(map(repr, asks.kinds))
            raise NoGuarantee(f"ProvenColumns: there is no proof for a method that asks for {kinds}; use admm-sharing")
        ridge = vouched(penalty) and penalty.ridge and penalty.strong > 0
        if self.variant == "ridge" and not ridge:  # the one of ours with these constants is L2
            raise NoGuarantee(
                f"ProvenColumns: variant 'ridge' is proven for an L2 penalty, got {penalty!r}; use L2, or "
                "variant='clip'"
            )

    def plan(
        self,
        asks: Asks,
        rounds: int,
        sizes: np.ndarray,
        spent: Mapping[Event, int] | None = None,
        row_bound: Positive | None = None,
        most: int | None = None,
        shape: "AnswerShape | None" = None,
    ) -> tuple[Event, ...]:
        from sottovoce.privacy import calibration

        return calibration.plan_columns(self, asks, rounds if most is None else most, shape)

    def kind_of_answer(
        self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: "AnswerShape | None" = None
    ) -> Json:
        from sottovoce.privacy import calibration

        return calibration.column_kind(self, shape) | {"row_bound": 0.0}

    def costs(self, asks: Asks, part: Part) -> int:
        return part.answers

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: "AnswerShape") -> bool:
        from sottovoce.privacy import calibration

        return calibration.is_answer_of_columns(self, event, shape)
