"""`ProvenColumns`: a promise to parties whose columns are split."""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np

from sottovoce.core import check, products
from sottovoce.core.contract import Asks, Layout, Mode, Part, Penalty
from sottovoce.core.plain import Json
from sottovoce.core.vouched import derived, vouched
from sottovoce.privacy.calibration import AnswerShape, is_of_kind
from sottovoce.privacy.discrete_noise import GRID_BOUND, difference_steps
from sottovoce.privacy.events import Event, Relation
from sottovoce.privacy.modes.base import PrivacyMode

_REFUSED = {  # units that no noise on products is worth, and why
    "label": "there is no unit 'label': a label alone needs as much noise as a record with it. Use unit 'record'",
    "column": "one column moves products of columns by about as many records as there are, so noise that hides it "
    "would be as large as they are",
    "party": "the columns of one party move products of columns by about as many records as there are, so noise that "
    "hides them would be as large as they are",
}
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
_RELATIONS: dict[str, Relation] = {"party": "replace-client", "column": "replace-column", "record": "replace-one"}


def _proven(holds: bool, rule: str, hint: str = "") -> None:
    check.require(holds, "ProvenColumns", rule, hint=hint, error=check.NoGuarantee)


@dataclass(frozen=True)
class ProvenColumns(PrivacyMode):
    """As `Proven`, where columns are split between parties: a total (epsilon, delta) for each party's features.

    Parameters
    ----------
    epsilon, delta
        The whole budget of each party for the whole run, its model for prediction included.
    unit
        What a neighbour differs in. With masked-moments "record": one sample, all of its columns at all parties, and
        its label; nothing else needs to be said. With admm-sharing "party" (all columns of one party), "column" (one
        column) or "record" (one row of one party), which cost very differently: noise on N samples that hides a column
        or a party must be as large as the whole vector of scores, noise that hides a record only as one score.
    bound
        All bounds but `row_bound` are for admm-sharing, which needs them. Variant "ridge": U, targets of a party's fit
        (one number per sample) are projected on |u| <= U. Variant "clip": C, each vector of scores is clipped to that
        norm. The square root of the number of samples suits scores of about 1.
    variant
        "ridge": the sensitivity of a ridge fit, for an L2 penalty only. "clip": any penalty, whatever the unit.
    column_bound, row_bound, score_bound
        Variant "ridge": for unit "column" columns longer than `column_bound` are scaled down to it; for unit "record"
        rows longer than `row_bound` are, and each score is clipped to `score_bound` in size. Sensible: the square
        root of the number of samples, of a party's number of columns (where these lie in [-1, 1]), and 0.3. With
        masked-moments rows longer than `row_bound` are scaled down to it; rows that a `Schema` encoded need none, and
        without one it is the square root of a party's number of columns.
    model
        Whether a noisy copy of each party's model is made after the last round, one more answer: scores of new rows
        then cost nothing. Without it a result cannot predict.
    model_bound
        Variant "clip": the norm to which a party's model is clipped for that.
    label_epsilon
        admm-sharing: each label is flipped with probability 1/(1 + exp(label_epsilon)) before training. None: labels
        are NOT protected, and the broadcast shows every one of them. masked-moments covers labels with the record.
    noise
        As in `Proven`.

    Examples
    --------
    >>> from sottovoce import ProvenColumns
    >>> ProvenColumns(epsilon=1.0, delta=1e-6).unit
    'record'
    >>> privacy = ProvenColumns(epsilon=1.0, delta=1e-6, unit="record", bound=20.0, row_bound=1.0, score_bound=2.0)
    >>> privacy.variant, privacy.label_epsilon
    ('ridge', None)
    """

    epsilon: check.Positive
    delta: check.Fraction
    unit: Literal["party", "column", "record"] = "record"
    bound: check.Positive | None = None
    variant: Literal["ridge", "clip"] = "ridge"
    column_bound: check.Positive | None = None
    row_bound: check.Positive | None = None
    score_bound: check.Positive | None = None
    model: bool = True
    model_bound: check.Positive | None = None
    label_epsilon: check.Positive | None = None
    noise: Literal["seeded", "secure", "discrete"] = "seeded"
    mode: ClassVar[Mode] = "proven"
    layouts: ClassVar[frozenset[Layout]] = frozenset({"columns"})
    promise = "columns"
    budget = derived(lambda self: (self.epsilon, self.delta))
    predicts = derived(lambda self: self.model)

    def __post_init__(self) -> None:
        who = "ProvenColumns"
        check.require(cast(str, self.unit) != "label", who, _REFUSED["label"])
        super().__post_init__()
        if not self.for_scores:
            return
        reason = f". For masked-moments there is no such unit: {_REFUSED[self.unit]}" if self.unit in _REFUSED else ""
        check.require(self.bound is not None, who, f"needs bound, {_BOUNDS['bound']}{reason}")
        needs = {
            "column_bound": self.variant == "ridge" and self.unit == "column",
            "row_bound": self.variant == "ridge" and self.unit == "record",
            "score_bound": self.variant == "ridge" and self.unit == "record",
            "model_bound": self.variant == "clip" and self.model,
        }
        kind = f"unit {self.unit!r}, variant {self.variant!r}"
        for name, needed in needs.items():
            value = getattr(self, name)
            check.require(not needed or value is not None, who, f"{kind} needs {name}, {_BOUNDS[name]}")
            rule = f"{kind} has no {name}, got {check.shown(value)}"
            check.require(needed or value is None, who, rule, hint="Leave it out")

    @property
    def for_scores(self) -> bool:
        """Whether anything was stated that only noise on scores (admm-sharing) has a use for."""
        bounds = (self.bound, self.column_bound, self.score_bound, self.model_bound)
        return self.unit != "record" or self.variant != "ridge" or any(bound is not None for bound in bounds)

    @derived
    def cut(self) -> tuple[str, float]:
        return ("bound", self.bound) if self.bound is not None else ("row_bound", self.row_bound or 1.0)

    @property
    def counted_relation(self) -> Relation:
        """The neighbouring relation that the budget is counted for."""
        return _RELATIONS[self.unit]

    def check(self, asks: Asks, penalty: Penalty) -> None:
        if asks.kinds == ("products",):
            self._check_products()
            return
        rule = f"there is no proof for a method that asks for {', '.join(map(repr, asks.kinds))}"
        _proven(asks.kinds == ("fit",), rule, "Use masked-moments or admm-sharing")
        check.require(self.bound is not None, "ProvenColumns", f"admm-sharing needs bound, {_BOUNDS['bound']}")
        ridge = vouched(penalty) and penalty.ridge and penalty.strong > 0  # the one of ours with these constants is L2
        rule = f"variant 'ridge' is proven for an L2 penalty, got {penalty!r}"
        _proven(ridge or self.variant != "ridge", rule, "Use L2, or variant='clip'")

    def _check_products(self) -> None:
        """Refuse what no proof covers, or what noise on products has no use for."""
        _proven(self.unit == "record", f"unit {self.unit!r} is not for masked-moments: {_REFUSED.get(self.unit)}")
        rule = "masked-moments has no label_epsilon: labels are covered already, by the epsilon of the record"
        _proven(self.label_epsilon is None, rule, "Leave it out")
        check.require(self.model, "ProvenColumns", "masked-moments has a model at no cost: leave model=False out")
        hint = "Leave the bounds and the variant out"
        check.require(not self.for_scores, "ProvenColumns", "masked-moments clips no scores", self, hint)

    def counts(self, asks: Asks, rounds: int, most: int | None) -> list[int]:
        """The model for prediction is one more."""
        counts = [part.rounds(rounds if most is None else most) * part.answers for part in asks.parts]
        counts[-1] += self.model and asks.kinds == ("fit",)
        return counts

    def kind_of_answer(self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: AnswerShape | None) -> Json:
        """What an answer of a party is, but for how much noise there is. Products are whole numbers in every mode."""
        on_grid = self.on_grid or part.kind == "products"
        mechanism = "discrete-gaussian" if on_grid else "gaussian"
        kind: Json = {"mechanism": mechanism, "relation": self.counted_relation, "row_bound": 0.0}
        if shape is None or not on_grid:
            return kind
        if part.kind == "products":
            steps = products.UNIT * products.products_sensitivity(part.kappa)
            return kind | {"sensitivity": steps, "coordinates": shape.dim}
        longest = max(shape.dim, shape.columns)
        steps = 2.0 * GRID_BOUND if self.variant == "clip" else difference_steps(longest)
        return kind | {"sensitivity": steps, "coordinates": longest}

    def costs(self, asks: Asks, part: Part) -> int:
        return part.answers

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: AnswerShape) -> bool:
        kind = self.kind_of_answer(part, np.array([size]), row_bound, shape)
        # How wide the widest party is, one party does not know; longer answers cost more.
        longer = getattr(event, "coordinates", 0) >= kind.get("coordinates", 0)
        same = is_of_kind(event, kind, "mechanism", "relation", "sensitivity", "row_bound")
        return same and longer and event.sampling == "full"
