"""The one switch: what the oracle answers, what happens to an upload, and what is printed with the result."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import NoGuarantee
from sottovoce.core.contract import Asks, Layout, Mode, Part, Penalty
from sottovoce.core.vouched import vouched
from sottovoce.privacy.events import Event, Relation

if TYPE_CHECKING:
    from sottovoce.privacy.calibration import AnswerShape

LEAST_CLIP, LARGEST_CLIP = 1e-60, 1e60


def _left_out(value: object) -> bool:
    return value is None


class PrivacyMode:
    """What all modes answer for themselves, so that nobody has to ask which mode it is."""

    mode: ClassVar[Mode]
    layouts: ClassVar[frozenset[Layout]] = frozenset({"rows", "columns"})  # how the data may be split between owners

    @property
    def promise(self) -> str:
        """Which door keeps it, and which statement is made about it (`doors/__init__.py`, `guarantee.py`)."""
        return self.mode

    @property
    def budget(self) -> tuple[float, float] | None:
        """The (epsilon, delta) that each owner may spend on the run; None where nothing is counted."""
        return None

    @property
    def secret_noise(self) -> bool:
        """Whether noise comes from the operating system, so that nobody can draw it again."""
        return getattr(self, "noise", "") == "secure"

    @property
    def on_grid(self) -> bool:
        """Whether noise is integers on a grid."""
        return getattr(self, "noise", "") in ("secure", "discrete")

    @property
    def cut(self) -> tuple[str, float]:
        """To what length answers, or what they are made of, are cut: the name of the parameter, and its value."""
        return "clip", float("inf")

    @property
    def predicts(self) -> bool:
        """Whether there will be a model that new rows can be scored with."""
        return True

    def clipping(self, slope: float, row_bound: float | None) -> "PrivacyMode":
        """The same with a clip norm, where none was given: `slope` is the loss's at 0, `row_bound` a promise."""
        return self

    def check(self, asks: Asks, penalty: Penalty) -> None:
        """Refuse what no proof covers, before any work starts."""

    def plan(
        self,
        asks: Asks,
        rounds: int,
        sizes: np.ndarray,
        spent: Mapping[Event, int] | None = None,
        row_bound: float | None = None,
        most: int | None = None,
        shape: "AnswerShape | None" = None,
    ) -> tuple[Event, ...]:
        """What an answer of each part of `asks` is, with the least noise that the budget allows.

        Nothing where there is no budget. `sizes`: records of each client. `spent`: what each client has answered
        before, out of the same budget. `row_bound`: what no row is longer than. `most`: rounds that one client takes
        part in, if fewer than all. `shape`: how long answers are, for noise on a grid.
        """
        return ()

    def parts(self, asks: Asks) -> tuple[Part, ...]:
        """The kinds of answer that are charged: one event of `plan` for each."""
        return asks.parts

    def kind_of_answer(
        self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: "AnswerShape | None" = None
    ) -> dict[str, Any]:
        """What an answer to this part's questions is, whatever its noise: the other fields of its event."""
        return {}

    def costs(self, asks: Asks, part: Part) -> int:
        """Events charged to a client for one round of this part."""
        return 0

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: "AnswerShape") -> bool:
        """Whether a client of so many records makes answers that are this event, whatever their noise."""
        return False


@dataclass(frozen=True)
class NoPrivacy(PrivacyMode):
    """Exact answers, plain uploads, and a result that says "no privacy".

    Examples
    --------
    >>> from sottovoce import NoPrivacy
    >>> NoPrivacy().mode
    'none'
    """

    mode: ClassVar[Mode] = "none"


@dataclass(frozen=True)
class Published(PrivacyMode):
    """The noise a paper states, per round, to reproduce its figures. Printed with the paper's claim and our verdict.

    Parameters
    ----------
    epsilon, delta
        What the paper's mechanism is asked to promise *per round* (Fed-PLT's: for the whole run).
    clip
        Bound on one record's gradient, enforced by clipping. None: the bound the loss and the rows have by
        themselves (as the papers assume).

    Examples
    --------
    >>> from sottovoce import Published
    >>> Published(epsilon=0.1, delta=1e-4)
    Published(epsilon=0.1, delta=0.0001, clip=None)
    """

    epsilon: float
    delta: float = 0.0
    clip: float | None = None
    mode: ClassVar[Mode] = "published"

    def __post_init__(self) -> None:
        check.positive("Published", epsilon=self.epsilon)
        check.non_negative("Published", delta=self.delta)
        check.require(self.delta < 1, "Published", "delta must lie in [0, 1)", self.delta)
        if self.clip is not None:
            check.positive("Published", clip=self.clip)


@dataclass(frozen=True)
class Proven(PrivacyMode):
    """A total (epsilon, delta) per unit that a proof supports, for an observer who sees every message.

    Parameters
    ----------
    epsilon, delta
        The whole budget of each client for the whole run. The noise follows from it.
    clip
        Bound on one record's gradient (unit "record") or on one upload's distance from a public centre
        (unit "client"), enforced by clipping. Left out: for unit "record", the longest gradient that a record can have
        at a model of zeros, by the loss and the promised bound on rows (1/2 for a logistic loss and rows of length 1).
    unit
        "record": one row of one client. "client": everything a client has.
    relation
        "replace-one": neighbours differ in the content of one record. "add-remove": one record is there or is a
        blank that contributes nothing; how many records there are is public in both. Random batches are drawn with
        fixed size for the first and record by record (Poisson) for the second.
    mechanism
        "gaussian", or "laplace" for pure epsilon (delta = 0; gradients are then clipped in the L1 norm).
    noise
        "seeded": reproducible, for simulation and tests; the guarantee says so. "discrete": the same, but integers on
        a grid: exactly what "secure" would add if its bits were these. "secure": discrete noise from the
        operating system's generator.
    participations
        The most rounds one client answers in; afterwards it stays silent. None: as many as it can be asked in.

    Examples
    --------
    >>> from sottovoce import Proven
    >>> Proven(epsilon=1.0, delta=1e-5, clip=1.0).unit
    'record'
    >>> Proven(epsilon=1.0, delta=1e-5, clip=0.0)
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: Proven: clip must be > 0, got 0.0
    """

    epsilon: float
    delta: float
    clip: float = cast(Any, None)  # settled by `clipping`
    unit: Literal["record", "client"] = "record"
    relation: Literal["replace-one", "add-remove"] = "replace-one"
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    noise: Literal["seeded", "secure", "discrete"] = "seeded"
    participations: int | None = None
    mode: ClassVar[Mode] = "proven"
    layouts: ClassVar[frozenset[Layout]] = frozenset({"rows"})

    def __post_init__(self) -> None:
        check.positive("Proven", epsilon=self.epsilon)
        if not _left_out(self.clip):
            check.positive("Proven", clip=self.clip)
            usable = LEAST_CLIP <= self.clip <= LARGEST_CLIP
            range_ = f"from {LEAST_CLIP:g} to {LARGEST_CLIP:g}"
            rule = f"clip must be {range_}, so that no noise is rounded to 0 or overflows"
            check.require(usable, "Proven", rule, self.clip)
        check.one_of("Proven", "unit", self.unit, ("record", "client"))
        check.one_of("Proven", "relation", self.relation, ("replace-one", "add-remove"))
        if self.unit == "client":
            whole = self.relation == "replace-one"
            check.require(whole, "Proven", "relation must be 'replace-one' for unit 'client'", self.relation)
        check.one_of("Proven", "mechanism", self.mechanism, ("gaussian", "laplace"))
        check.one_of("Proven", "noise", self.noise, ("seeded", "secure", "discrete"))
        if self.mechanism == "laplace":
            check.require(
                self.delta == 0, "Proven", "delta must be 0 with Laplace noise (it is pure epsilon)", self.delta
            )
            check.require(self.unit == "record", "Proven", "Laplace noise is offered for unit 'record' only", self.unit)
        else:
            check.between("Proven", 0, 1, delta=self.delta)
        if self.participations is not None:
            check.whole("Proven", participations=self.participations)

    @property
    def promise(self) -> str:
        return self.unit

    @property
    def budget(self) -> tuple[float, float]:
        return self.epsilon, self.delta

    @property
    def cut(self) -> tuple[str, float]:
        return "clip", self.clip

    def clipping(self, slope: float, row_bound: float | None) -> "Proven":
        if not _left_out(self.clip):
            return self
        known = self.unit == "record" and self.mechanism == "gaussian" and row_bound is not None and slope < np.inf
        rule = "needs clip, unless it follows from the loss and a bound on rows (unit 'record', Gaussian noise)"
        check.require(known, "Proven", rule, hint="Give clip=..., or promise a row_bound")
        assert row_bound is not None
        return replace(self, clip=slope * row_bound)

    @property
    def counted_relation(self) -> Relation:
        """The neighbouring relation that the budget is counted for."""
        return "replace-client" if self.unit == "client" else self.relation

    def plan(
        self,
        asks: Asks,
        rounds: int,
        sizes: np.ndarray,
        spent: Mapping[Event, int] | None = None,
        row_bound: float | None = None,
        most: int | None = None,
        shape: "AnswerShape | None" = None,
    ) -> tuple[Event, ...]:
        from sottovoce.privacy import calibration

        return calibration.plan_rows(self, asks, rounds, sizes, spent, row_bound, most, shape)

    def parts(self, asks: Asks) -> tuple[Part, ...]:
        """Where whole clients are hidden, all uploads are alike."""
        if self.unit == "record":
            return asks.parts
        return (replace(asks.parts[0], answers=asks.releases, batch=0, last=asks.parts[-1].last, share=1.0),)

    def kind_of_answer(
        self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: "AnswerShape | None" = None
    ) -> dict[str, Any]:
        from sottovoce.privacy import calibration

        bound = calibration.bound_in_force(self, part, row_bound)
        return calibration.kind_of_answer(self, part, sizes, shape) | {"row_bound": bound}

    def costs(self, asks: Asks, part: Part) -> int:
        return asks.releases if self.unit == "client" else part.answers

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: "AnswerShape") -> bool:
        from sottovoce.privacy import calibration

        return calibration.is_answer_of_rows(self, event, part, size, row_bound, shape)


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
        As in `Proven`; "secure" for variant "clip".

    Examples
    --------
    >>> from sottovoce import ProvenColumns
    >>> privacy = ProvenColumns(epsilon=1.0, delta=1e-6, unit="record", bound=20.0, row_bound=1.0, score_bound=2.0)
    >>> privacy.variant, privacy.label_epsilon
    ('ridge', None)
    """

    epsilon: float
    delta: float
    unit: Literal["party", "column", "record"] = cast(Any, None)  # refused below, with what it means
    bound: float = cast(Any, None)  # the same
    variant: Literal["ridge", "clip"] = "ridge"
    column_bound: float | None = None
    row_bound: float | None = None
    score_bound: float | None = None
    model: bool = True
    model_bound: float | None = None
    label_epsilon: float | None = None
    noise: Literal["seeded", "secure", "discrete"] = "seeded"
    mode: ClassVar[Mode] = "proven"
    layouts: ClassVar[frozenset[Layout]] = frozenset({"columns"})

    def __post_init__(self) -> None:
        who = "ProvenColumns"
        check.positive(who, epsilon=self.epsilon)
        check.between(who, 0, 1, delta=self.delta)
        check.require(not _left_out(self.unit), who, "needs unit, what is hidden: 'record', 'column' or 'party'")
        check.one_of(who, "unit", self.unit, ("party", "column", "record"))
        check.require(not _left_out(self.bound), who, f"needs bound, {_BOUNDS['bound']}")
        check.positive(who, bound=self.bound)
        check.one_of(who, "variant", self.variant, ("ridge", "clip"))
        check.one_of(who, "noise", self.noise, ("seeded", "secure", "discrete"))
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
            if value is not None:
                check.positive(who, **{name: value})
        if self.label_epsilon is not None:
            check.positive(who, label_epsilon=self.label_epsilon)
        proved = not self.on_grid or self.variant == "clip"
        check.require(proved, who, "secure noise is offered for variant 'clip'", self.variant)

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
        row_bound: float | None = None,
        most: int | None = None,
        shape: "AnswerShape | None" = None,
    ) -> tuple[Event, ...]:
        from sottovoce.privacy import calibration

        return calibration.plan_columns(self, asks, rounds if most is None else most, shape)

    def kind_of_answer(
        self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: "AnswerShape | None" = None
    ) -> dict[str, Any]:
        from sottovoce.privacy import calibration

        return calibration.column_kind(self, shape) | {"row_bound": 0.0}

    def costs(self, asks: Asks, part: Part) -> int:
        return part.answers

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: "AnswerShape") -> bool:
        from sottovoce.privacy import calibration

        return calibration.is_answer_of_columns(self, event, shape)


Privacy = NoPrivacy | Published | Proven
VerticalPrivacy = NoPrivacy | Published | ProvenColumns
