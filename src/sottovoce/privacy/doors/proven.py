"""What all proven doors share: every answer is clipped, charged to the ledger, noised and only then given.

Whatever an algorithm makes of an answer is post-processing, so a badly written algorithm can be useless but not leaky.

The order is the same for every answer: afford (refuse before anything is computed), compute, charge, noise, reply. From
the first exact number on there is one way on: nothing that depends on data raises, warns or takes another path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from sottovoce.core import moments
from sottovoce.core.arrays import every
from sottovoce.core.check import BudgetSpent
from sottovoce.core.contract import Part
from sottovoce.core.random.bits import Bits, SystemBits
from sottovoce.core.random.quantiles import to_unit
from sottovoce.core.random.streams import Purpose
from sottovoce.privacy import discrete_noise
from sottovoce.privacy.doors.base import Door, Numbers
from sottovoce.privacy.doors.releases import Question, quietly
from sottovoce.privacy.events import Event, GridEvent
from sottovoce.privacy.modes import Proven, ProvenColumns


class Ledger(Protocol):
    """What a proven door asks before it answers (`ledger/memory.py`, `ledger/owner_ledgers.py`)."""

    def charge(self, event: Event, clients: np.ndarray, active: np.ndarray, round: int, question: int) -> None: ...
    def afford(self, event: Event, answers: int, clients: np.ndarray, round: int | None) -> np.ndarray: ...
    def kept(self, round: int, question: int, clients: np.ndarray, active: np.ndarray) -> np.ndarray | None: ...
    def keep(self, round: int, question: int, clients: np.ndarray, active: np.ndarray, answer: np.ndarray) -> None: ...


Costs = list[tuple[Event, np.ndarray, np.ndarray]]  # of an answer: what it is, which clients pay, in which runs


@dataclass(kw_only=True)
class ProvenDoor(Door):
    """What all proven doors share: a budget, a kind of event for each part, and constants that never look at data."""

    privacy: Proven | ProvenColumns
    events: tuple[Event, ...]  # what an answer of each part is; clients of other sizes differ in their batches alone
    ledger: Ledger

    def event_of(self, part: Part) -> Event:
        """What an answer of this part is. Where whole clients are hidden, all uploads are alike."""
        return self.events[self.asks.parts.index(part) if len(self.events) > 1 else 0]

    def answered(
        self, question: Question, compute: Callable[[], np.ndarray], finish: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """The one way to an answer: `compute` looks at data, `finish` clips and adds noise.

        An answer that this run gave to this question before (it was interrupted and goes on) is sent again as it was,
        without a look at data. Everything else is new: paid for, and with noise of its own.
        """
        named = (question.k, question.number, question.local, question.active)
        before = self.ledger.kept(*named)
        if before is not None:
            return before.view(np.uint64) if self.summed else self.intercept(before)
        costs = self.must_afford(question)
        with quietly():
            try:
                exact = compute()
            except Exception:
                self.charge(question, costs)  # nothing was given; but trying again must not be free
                raise
            self.charge(question, costs)
            answer = finish(exact)
        self.ledger.keep(*named, answer.view(np.float64) if self.summed else answer)
        return answer

    def must_afford(self, question: Question) -> Costs:
        """Refuse, before anything is computed, what the budget does not hold, or noise that cannot be drawn."""
        discrete_noise.sampler()
        kinds = self.charged(question.local, question.part)
        costs = [(event, _those(question.local, places), _those(question.active, places)) for event, places in kinds]
        for event, clients, active in costs:
            able = self.ledger.afford(event, 1, clients, None)
            if not every(able) and (active & ~able).any():
                raise BudgetSpent("Oracle: a client's privacy budget does not hold this answer; nothing was computed")
        return costs

    def charge(self, question: Question, costs: Costs) -> None:
        for event, clients, active in costs:
            self.ledger.charge(event, clients, active, question.k, question.number)

    def able(self, local: np.ndarray, k: int) -> np.ndarray:
        part = self.part_at(k)
        answers = self.privacy.costs(self.asks, part)
        kinds = self.charged(local, part) if answers else []
        if len(kinds) == 1 and kinds[0][1] is None:  # one for all, as nearly always
            return self.ledger.afford(kinds[0][0], answers, local, k)
        able = super().able(local, k)
        for event, places in kinds:
            able[..., places] = self.ledger.afford(event, answers, _those(local, places), k)
        return able

    def charged(self, local: np.ndarray, part: Part) -> list[tuple[Event, np.ndarray | None]]:
        """What an answer of these clients is, and whose (None: everyone's), if batches are not unequal shares."""
        return [(self.event_of(part), None)]

    def batch_numbers(self, sizes: np.ndarray, question: Question) -> np.ndarray:
        if not self.privacy.secret_noise:
            return super().batch_numbers(sizes, question)
        words = SystemBits().words(int(sizes.sum()) * (self.key.streams.runs or 1))  # secret, like the noise
        return to_unit(words).reshape(*self.shape(1)[:-1], -1)

    def on_grid(
        self, exact: np.ndarray, step: Numbers, scale: float, purpose: Purpose, question: Question
    ) -> np.ndarray:
        """Integers with discrete noise of this scale in grid steps, as numbers: `step` is what one of them is worth."""
        streams: Sequence[Bits] = ()
        if not self.privacy.secret_noise:
            arrays = (exact.astype(np.float64), np.full((1, 1), scale), *question.asked)
            streams = self.key.bits(self.occasion(purpose, question), arrays)
        laplace = self.event_of(question.part).mechanism == "laplace"
        kind: Literal["gaussian", "laplace"] = "laplace" if laplace else "gaussian"
        noisy = discrete_noise.noised(kind, scale, exact, streams)
        return self.leaving(noisy, exact, step, scale, kind)

    def leaving(self, noisy: np.ndarray, exact: np.ndarray, step: Numbers, scale: float, kind: str) -> np.ndarray:
        """Noisy whole numbers as the numbers that they stand for."""
        return self.intercept(noisy * step, exact * step, scale * step, kind)

    def noisy_within(self, change: np.ndarray, exact: np.ndarray, purpose: Purpose, question: Question) -> np.ndarray:
        """Numbers that one unit moves by at most `change`, a public number for each client, with noise for that."""
        event = self.event_of(question.part)
        if not self.privacy.on_grid:
            return self.noisy(exact, event.noise_multiplier * change, purpose, question, event.mechanism)
        change = np.maximum(change, discrete_noise.LEAST_CLIP)  # so that a grid step is a normal number; noise grows
        integers = discrete_noise.difference_to_grid(exact, change)
        norm = 1 if event.mechanism == "laplace" else 2
        scale = self.grid_scale(question.part, discrete_noise.difference_steps(exact.shape[-1], norm))
        return self.on_grid(integers, change / discrete_noise.GRID_STEPS, scale, purpose, question)

    def noisy_in_ball(self, vectors: np.ndarray, radius: float, purpose: Purpose, question: Question) -> np.ndarray:
        """Vectors no longer than `radius`, with noise for any two of those: they are at most twice that apart."""
        if not self.privacy.on_grid:
            return self.noisy(vectors, self.events[0].noise_multiplier * 2 * radius, purpose, question)
        grid = discrete_noise.to_grid(vectors, radius)
        scale = self.grid_scale(self.asks.parts[0], 2 * discrete_noise.GRID_BOUND)
        return self.on_grid(grid, radius / discrete_noise.GRID_STEPS, scale, purpose, question)

    def grid_scale(self, part: Part, sensitivity: float) -> float:
        """The scale of discrete noise in grid steps: the event's own, or that of its multiplier."""
        event = self.event_of(part)
        return event.scale if isinstance(event, GridEvent) else event.noise_multiplier * sensitivity

    @property
    def moments_width(self) -> int:
        """How many numbers an answer about moments has."""
        return moments.width(self.exact.dim, self.exact.dim // self.exact.loss.outputs)

    def longest(self, local: np.ndarray) -> np.ndarray | float:
        return np.inf if self.row_bound is None else self.row_bound

    def smoothness(self, local: np.ndarray) -> np.ndarray:
        return self.curvature_bound(local) * self.exact.weights[local] * self.exact.sizes[local][:, None]

    def strong_convexity(self, local: np.ndarray) -> np.ndarray:
        return np.zeros_like(self.exact.weights[local])


def _those(clients: np.ndarray, places: np.ndarray | None) -> np.ndarray:
    """Some clients (last axis); None: all."""
    return clients if places is None else clients[..., places]
