"""What one answer costs: everything an accountant needs to know, and nothing about the data.

A door (`privacy/doors/`) makes an `Event` when it answers, the ledger keeps it, and `privacy/accounting/` turns it into
an epsilon. So there are three places for three questions: what happened, how often, and what does it cost.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from sottovoce.core import check

Mechanism = Literal["gaussian", "discrete-gaussian", "gaussian-chain", "laplace", "randomized-response"]
Sampling = Literal["full", "poisson", "fixed-size"]
Relation = Literal["replace-one", "add-remove", "replace-client", "replace-column"]
LEAST_SCALE = 8.0  # grid steps: the r of Theorem 2; noise on a grid must have a larger scale


@dataclass(frozen=True, slots=True)
class Event:
    """One noisy answer about one client's data.

    Parameters
    ----------
    mechanism
        Which noise was added. "laplace" noise is on a value of bounded L1 sensitivity and is pure DP. A
        "gaussian-chain" is the end of several noisy contracting steps: accountants use only its Rényi divergences,
        which are those of a Gaussian (`privacy/local_steps.py`).
    noise_multiplier
        Standard deviation of the noise (Laplace: its scale; randomised response: 1/epsilon) divided by the
        sensitivity *under `relation`*. No accountant rescales it.
    sampling
        "full": every record took part. "poisson": each record with probability `rate`, independently. "fixed-size":
        `batch` of `size` records, without replacement.
    relation
        The neighbouring relation of the sensitivity. Epsilons under different relations cannot be added, so
        accountants refuse to mix them.
    row_bound
        The sensitivity holds if no row, and no row of a neighbour, is longer than this. 0: it holds for all rows. It
        does not change the cost; guarantees name it.
    """

    mechanism: Mechanism
    noise_multiplier: float
    sampling: Sampling = "full"
    relation: Relation = "replace-one"
    rate: float = 1.0
    batch: int = 0
    size: int = 0
    row_bound: float = 0.0

    def __post_init__(self) -> None:
        check.positive("Event", noise_multiplier=self.noise_multiplier)
        check.non_negative("Event", row_bound=self.row_bound)
        if self.sampling == "poisson":
            check.require(0 < self.rate <= 1, "Event", "a Poisson rate must lie in (0, 1]", self.rate)
            # Poisson sampling changes the number of records, so add/remove is its only neighbouring relation.
            check.require(self.relation == "add-remove", "Event", "Poisson sampling needs add-remove", self.relation)
        if self.sampling == "fixed-size":
            check.require(0 < self.batch <= self.size, "Event", "batch must lie in 1..size", (self.batch, self.size))
            rule = "fixed-size sampling needs replace-one"
            check.require(self.relation == "replace-one", "Event", rule, self.relation)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEvent(Event):
    """One answer of whole numbers with discrete Gaussian noise, with what Theorem 2 needs to know about it.

    `privacy/accounting/discrete.py` has the theorem. A plain `Event` of mechanism "discrete-gaussian" does not know
    these numbers (`sottovoce account` may not be told them), and is accounted by zCDP.

    Parameters
    ----------
    sensitivity
        How far one unit under `relation` moves the vector of whole numbers, in L2 and in grid steps.
    coordinates
        The length of that vector.
    contributors
        How many independent discrete Gaussians are certain to be in the noise: 1 where an observer sees this answer,
        the number of honest contributors where an observer sees a sum of answers. `noise_multiplier` is that of all
        of them together.

    Examples
    --------
    >>> from sottovoce.privacy.events import GridEvent
    >>> GridEvent("discrete-gaussian", 5.0, sensitivity=2**25, coordinates=104).scale
    167772160.0
    >>> GridEvent("discrete-gaussian", 5.0, sensitivity=1, coordinates=104)
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: GridEvent: noise needs a finite scale above 8 grid steps, got 5.0
    """

    sensitivity: float
    coordinates: int
    contributors: int = 1

    def __post_init__(self) -> None:
        Event.__post_init__(self)
        discrete = self.mechanism == "discrete-gaussian"
        check.require(discrete, "GridEvent", "mechanism must be 'discrete-gaussian'", self.mechanism)
        check.positive("GridEvent", sensitivity=self.sensitivity)
        for name in ("coordinates", "contributors"):
            count = getattr(self, name)
            check.require(check.is_whole(count) and count <= 2**53, "GridEvent", f"{name} must lie in 1..2**53", count)
        rule = f"noise needs a finite scale above {LEAST_SCALE:g} grid steps"
        check.require(LEAST_SCALE < self.scale < math.inf, "GridEvent", rule, self.scale)

    @property
    def scale(self) -> float:
        """The parameter sigma of the discrete Gaussian that each contributor adds, in grid steps."""
        return self.noise_multiplier * self.sensitivity / math.sqrt(self.contributors)


def contributors_of(event: Event) -> int:
    """How many independent shares of noise are certain to be in what an observer sees of this answer."""
    return event.contributors if isinstance(event, GridEvent) else 1


def pack_event(event: Event) -> dict[str, object]:
    """The event as plain numbers and text, for JSON; `make_event` undoes it exactly."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in asdict(event).items()}


def make_event(**fields: object) -> Event:
    """The event with these fields: a `GridEvent` if they have the numbers of a grid."""
    try:
        return _known_event(**fields)
    except TypeError:  # of a value that cannot be compared, which the class refuses
        return _known_event.__wrapped__(**fields)


@lru_cache(maxsize=256, typed=True)
def _known_event(**fields: Any) -> Event:
    """Checked once: a ledger holds the same few events many times."""
    return event_class(fields)(**fields)


def event_class(fields: Mapping[str, object]) -> type[Event]:
    return GridEvent if "coordinates" in fields else Event
