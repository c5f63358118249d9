"""From a budget to noise: what each answer of a run is, with the least noise that the budget allows."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check, histogram, moments
from sottovoce.core.contract import Part
from sottovoce.core.plain import Json
from sottovoce.privacy import accounting
from sottovoce.privacy.discrete_noise import GRID_BOUND, GRID_STEPS, difference_steps
from sottovoce.privacy.events import Event, contributors_of, make_event

if TYPE_CHECKING:
    from sottovoce.privacy.modes import Proven


@dataclass(frozen=True)
class AnswerShape:
    """Public numbers that noise on a grid is made for.

    Parameters
    ----------
    dim
        Parameters of the model; where columns are split, samples, or how many products are asked for.
    columns
        Columns of a row; where they are split, of the widest party.
    slope
        Size of the loss's slope at a margin of 0.
    """

    dim: int
    columns: int
    slope: float = np.inf


Spent = Mapping[Event, int] | None


def shared_out(
    budget: tuple[float, float], kinds: list[Json], counts: list[int], shares: list[float], spent: Spent
) -> tuple[Event, ...]:
    """Events with noise such that part p, asked counts[p] times, spends its share of the budget.

    mu² adds up over Gaussian answers, and n answers of noise multiplier z have n/z². So with one answer of multiplier
    z* for the whole budget, part p has z_p = z* √(n_p / share_p). The accountant has the last word.
    """
    kind_events = [make_event(noise_multiplier=1.0, **kind) for kind in kinds]
    if len(kinds) == 1:
        return (accounting.with_least_noise(kind_events[0], *budget, counts[0], spent),)
    plain = all(event.sampling == "full" and event.mechanism.endswith("gaussian") for event in kind_events)
    if not plain and len(kinds) == 2 and counts[1] == 1:
        return _beside_one_answer(budget, kind_events, counts[0], shares[1], spent)
    rule = "several kinds of question share a budget with Gaussian noise on all records"
    check.require(plain, "Proven", rule, hint="Use batch=0 and Gaussian noise")
    check.require(min(counts) > 0, "Proven", "every kind of question needs a round in which it is asked")
    one = accounting.with_least_noise(kind_events[0], *budget, 1, spent).noise_multiplier
    events = [
        replace(event, noise_multiplier=one * float(np.sqrt(count / share)))
        for event, count, share in zip(kind_events, counts, shares, strict=True)
    ]

    def cost() -> float:
        total = Counter(spent or {})
        for event, count in zip(events, counts, strict=True):  # two parts may have the same event
            total[event] += count
        return accounting.epsilon(total, budget[1])

    while cost() > budget[0]:
        events = [replace(event, noise_multiplier=event.noise_multiplier * (1 + 2.0**-40)) for event in events]
    return tuple(events)


def _beside_one_answer(
    budget: tuple[float, float], events: list[Event], count: int, share: float, spent: Spent
) -> tuple[Event, ...]:
    """The same where the first kind is drawn on batches, or in chains: one plain answer has its share of mu², and the
    accountant gives all that is left to the others."""
    last = accounting.with_least_noise(events[1], *budget, 1, spent)
    last = replace(last, noise_multiplier=last.noise_multiplier / float(np.sqrt(share)))
    before = Counter(spent or {}) + Counter({last: 1})
    return accounting.with_least_noise(events[0], *budget, count, before), last


def grid_numbers(privacy: "Proven", part: Part, shape: AnswerShape) -> Json:
    """How far one unit moves the integers of an answer, in grid steps, and how many integers there are."""
    width = moments.width(shape.dim, shape.columns)
    if privacy.unit == "client":
        return {"sensitivity": 2.0 * GRID_BOUND, "coordinates": width if part.kind == "moments" else shape.dim}
    reach = 2 if privacy.relation == "replace-one" else 1
    if part.kind == "histogram":
        return {"sensitivity": histogram_steps(reach == 2), "coordinates": part.cells}
    if part.kind == "moments":
        return {"sensitivity": moments_steps(part, shape, reach == 2, width), "coordinates": width}
    if part.kind in ("prox-steps", "argmin"):
        return {"sensitivity": difference_steps(shape.dim), "coordinates": shape.dim}
    return {"sensitivity": float(reach * GRID_BOUND), "coordinates": shape.dim}


def moments_steps(part: Part, shape: AnswerShape, replaced: bool, width: int) -> float:
    """How far one record moves the moments of a client, in grid steps; rounding adds less than two in each coordinate.

    (`doors/grid_sums.moment_sums`. What coordinates are multiplied by is rounded too, and so is this number.)
    """
    slope = min(part.slope_bound, shape.slope)
    one, longest = moments.sensitivity(part.kappa, slope, replaced), float(np.hypot(slope, part.kappa))
    return float(np.ceil(one * GRID_STEPS / longest * (1 + 2.0**-40)) + 2 * np.sqrt(width))


def histogram_steps(replaced: bool) -> float:
    """How far one record moves the counts of held-out records, in grid steps: each count is GRID_STEPS of them."""
    return float(np.ceil(histogram.sensitivity(replaced) * GRID_STEPS))


def bound_in_force(privacy: "Proven", part: Part, row_bound: float | None) -> float:
    """The bound on rows that the sensitivity of an answer rests on; 0 where it holds for all rows."""
    rests = privacy.unit == "record" and part.kind in ("prox-steps", "descent")
    return float(row_bound) if rests and row_bound is not None else 0.0


def is_of_kind(event: Event, kind: Mapping[str, object], *names: str) -> bool:
    """Whether the event has these fields of a kind of answer, and the shares of noise that this one counts on."""
    # Who believed that others add noise to the same sum would add less itself, and charge for all of it.
    alone = contributors_of(event) == kind.get("contributors", 1)
    return alone and all(getattr(event, name, None) == kind.get(name) for name in names)
