"""The events of one client, put in the form that accountants take."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from sottovoce.core import check
from sottovoce.privacy.accounting.discrete import as_gaussian
from sottovoce.privacy.events import Event, GridEvent

Spent = Mapping[Event, int]
"""How often each event happened to one client."""

Items = tuple[tuple[Event, int], ...]
PURE = ("laplace", "randomized-response")


@dataclass(frozen=True)
class Composition:
    """Events with their counts, in a fixed order, whose costs can be added.

    Discrete noise on a grid is here as the continuous noise that Theorem 2 accounts for instead; `slack` is the A of
    that theorem. So the cost at `delta` is 2 A more than the epsilon of `items` at delta e^-A.
    """

    items: Items
    slack: float = 0.0


def compose(who: str, spent: Spent, delta: float | None) -> Composition:
    """The events of `spent`; NoGuarantee if no proof covers them together. `who` is for the error."""
    for count in spent.values():
        check.whole(who, 0, count=count)
    events = [event for event, count in spent.items() if count]
    slack, counts = 0.0, dict[Event, int]()
    for event in events:
        plain, slack_of_one = _plain(event)
        slack += spent[event] * slack_of_one
        counts[plain] = counts.get(plain, 0) + int(spent[event])
        if plain.mechanism != "gaussian" and is_sampled(plain):
            raise check.NoGuarantee(
                f"{who}: no proof covers {event.mechanism} noise on {event.sampling} batches ({event}). "
                "Use sampling='full', or Gaussian noise"
            )
    relations = sorted({event.relation for event in events})
    if len(relations) > 1:
        named = "; ".join(str(event) for event in sorted(events, key=repr))
        raise check.NoGuarantee(
            f"{who}: events under different neighbouring relations ({', '.join(relations)}) do not add up: {named}. "
            "Keep to one relation per client"
        )
    if delta is not None and not (delta == 0 and all(event.mechanism in PURE for event in events)):
        check.between(who, 0, 1, delta=delta)
    ordered = counts if len(counts) < 2 else sorted(counts, key=repr)
    return Composition(tuple((event, counts[event]) for event in ordered), slack)


@lru_cache(maxsize=1024)  # every round asks for the same few
def _plain(event: Event) -> tuple[Event, float]:
    """What accountants take for an event, and the A of Theorem 2 that goes with it."""
    if isinstance(event, GridEvent):
        return as_gaussian(event)
    return replace(event, row_bound=0.0), 0.0  # what a sensitivity rests on does not change its cost


def is_sampled(event: Event) -> bool:
    """Whether chance can leave a record out: a rate of one or a batch of all records is a full batch."""
    return (event.sampling == "poisson" and event.rate < 1) or (
        event.sampling == "fixed-size" and event.batch < event.size
    )


def squared_mu(items: Iterable[tuple[Event, int]]) -> float:
    """The sum of 1/noise multiplier², which is mu² of Gaussians and twice the rho of zCDP."""
    return math.fsum(count / event.noise_multiplier**2 for event, count in items)
