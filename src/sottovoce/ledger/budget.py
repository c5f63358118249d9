"""A budget, what was spent of it, and whether one more answer fits: the same rule for every ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import check
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event

Spread = tuple[NDArray[np.float64] | float, NDArray[np.float64] | float, NDArray[np.float64] | float]


def spread_of(epsilons: NDArray[np.float64]) -> Spread:
    """The largest, the median and the smallest epsilon of all clients (last axis)."""
    most, least = epsilons.max(axis=-1), epsilons.min(axis=-1)
    if (least == most).all():
        return most, most, least
    middle = (epsilons.shape[-1] - 1) // 2, epsilons.shape[-1] // 2
    ordered = np.partition(epsilons, middle, axis=-1)  # np.median takes far longer for few clients
    return most, (ordered[..., middle[0]] + ordered[..., middle[1]]) / 2, least


class LedgerError(check.SottovoceError):
    """A ledger cannot be trusted, read or written; no answer may be given on it."""


@dataclass(frozen=True)
class Budget:
    """The most that all answers together may give away. `delta` = 0 is for pure mechanisms (Laplace) only."""

    epsilon: check.Positive
    delta: check.NonNegative

    def __post_init__(self) -> None:
        check.fields(self)
        check.require(self.delta < 1, "Budget", "delta must lie in [0, 1)", self.delta)


@dataclass(frozen=True)
class Standing:
    """Where one owner stands: its budget, and how often it gave each kind of answer."""

    budget: Budget
    spent: Mapping[Event, int]

    def cap(self, event: Event) -> int:
        """How many answers of this kind the budget holds *in total* beside the other kinds in `spent`.

        It does not change while only this kind is asked, so it is computed once and each further charge is a
        comparison.
        """
        others = frozenset((other, count) for other, count in self.spent.items() if count and other != event)
        return _cap(event, self.budget, others)

    def remaining(self, event: Event) -> int:
        """How many more answers of this kind the budget holds."""
        return max(0, self.cap(event) - self.spent.get(event, 0))

    def epsilon(self) -> float:
        """The epsilon spent so far, at the budget's delta."""
        return accounting.epsilon(self.spent, self.budget.delta)

    def refusal(self, who: str, event: Event) -> check.BudgetSpent:
        """The error for an answer that does not fit any more; it says what was spent and what it would cost."""
        delta = self.budget.delta
        after = accounting.epsilon({**self.spent, event: self.spent.get(event, 0) + 1}, delta)
        now = f"epsilon {self.epsilon():.6g} is spent after {sum(self.spent.values())} answers"
        then = f"the next would make it {after:.6g}, the budget is {self.budget.epsilon:.6g} at delta {delta:g}"
        hint = "Nothing was answered; give it a larger budget or more noise, or go on without it"
        return check.BudgetSpent(f"{who}: the next answer would exceed the privacy budget: {now}, {then}. {hint}")


@lru_cache(maxsize=4096)
def _cap(event: Event, budget: Budget, others: frozenset[tuple[Event, int]]) -> int:
    return accounting.affordable(event, budget.epsilon, budget.delta, spent=dict(others))
