"""What every privacy mode answers for itself, and the two modes that promise nothing of their own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Asks, Claim, Layout, Mode, Part, Penalty
from sottovoce.core.plain import Json
from sottovoce.core.vouched import derived
from sottovoce.privacy import calibration
from sottovoce.privacy.calibration import AnswerShape
from sottovoce.privacy.events import Event


class PrivacyMode:
    """What all modes answer for themselves, so that nobody has to ask which mode it is."""

    mode: ClassVar[Mode]
    layouts: ClassVar[frozenset[Layout]] = frozenset({"rows", "columns"})  # how the data may be split between owners
    # Which door keeps it, and which statement is made about it (`doors/__init__.py`, `guarantee.py`).
    promise: str = derived(lambda self: self.mode)
    budget: tuple[float, float] | None = None  # (epsilon, delta) that each owner may spend; None: nothing is counted
    claim: Claim | None = None  # what a paper's mechanism promises in a round; None: no paper's noise is added
    sums: bool = False  # whether an observer sees only sums of what clients send (`doors/sums.py`)
    honest: int = 1  # how many contributors' noise is certain to be in what an observer sees
    # To what length answers, or what they are made of, are cut: the name of the parameter, and its value.
    cut: tuple[str, float] = ("clip", math.inf)
    predicts: bool = True  # whether there will be a model that new rows can be scored with

    def __post_init__(self) -> None:
        epsilon = getattr(self, "epsilon", None)
        promises = not (check.is_number(epsilon) and epsilon == math.inf)
        hint = "For no privacy say so: NoPrivacy(), in a file mode = 'none'"
        rule = "epsilon = inf promises nothing, and no noise follows from it"
        check.require(promises, type(self).__name__, rule, hint=hint)
        check.fields(self)

    @property
    def secret_noise(self) -> bool:
        """Whether noise comes from the operating system, so that nobody can draw it again."""
        return getattr(self, "noise", "") == "secure"

    @property
    def on_grid(self) -> bool:
        """Whether noise is integers on a grid."""
        return getattr(self, "noise", "") in ("secure", "discrete")

    def among(self, clients: int) -> "PrivacyMode":
        """The same with what follows from the number of clients written out."""
        return self

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
        shape: AnswerShape | None = None,
    ) -> tuple[Event, ...]:
        """What an answer of each part of `asks` is, with the least noise that the budget allows.

        Nothing where there is no budget. `sizes`: records of each client. `spent`: what each client has answered
        before, out of the same budget. `row_bound`: what no row is longer than. `most`: rounds that one client takes
        part in, if fewer than all. `shape`: how long answers are, for noise on a grid.
        """
        if self.budget is None:
            return ()
        parts = self.parts(asks)
        kinds = [self.kind_of_answer(part, sizes, row_bound, shape) for part in parts]
        counts, shares = self.counts(asks, rounds, most), [part.share for part in parts]
        return calibration.shared_out(self.budget, kinds, counts, shares, spent)

    def counts(self, asks: Asks, rounds: int, most: int | None) -> list[int]:
        """How many answers of each part one client gives in `rounds`, if it takes part in at most `most` of them."""
        return []

    def parts(self, asks: Asks) -> tuple[Part, ...]:
        """The kinds of answer that are charged: one event of `plan` for each."""
        return asks.parts

    def kind_of_answer(self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: AnswerShape | None) -> Json:
        """What an answer to this part's questions is, whatever its noise: the other fields of its event."""
        return {}

    def costs(self, asks: Asks, part: Part) -> int:
        """Events charged to a client for one round of this part."""
        return 0

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: AnswerShape) -> bool:
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
    assume
        Bound that goes into the paper's formulas in place of that, and that nothing enforces. A paper that puts a
        constant there and does not clip is run so; the result says that the claim's assumption was not met.

    Examples
    --------
    >>> from sottovoce import Published
    >>> Published(epsilon=0.1, delta=1e-4)
    Published(epsilon=0.1, delta=0.0001, clip=None, assume=None)
    """

    epsilon: check.Positive
    delta: Annotated[float, check.Interval(0, 1, closed=("low",))] = 0.0
    clip: check.Positive | None = None
    assume: check.Positive | None = None
    mode: ClassVar[Mode] = "published"

    claim = derived(lambda self: Claim(self.epsilon, self.delta))

    def unmet(self, row_bound: float | None) -> list[str]:
        """What a claim assumes of gradients that this run does not see to."""
        if self.assume is not None and (self.clip is None or self.clip > self.assume):
            return [f"gradients are assumed to be no longer than {self.assume:g} (assume), and nothing enforces it"]
        if self.clip is None and row_bound is None:
            return ["the bound on gradients was read off the longest private row; give clip, or promise a row_bound"]
        return []
