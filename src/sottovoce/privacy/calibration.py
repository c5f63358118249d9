"""From a budget to noise: what each answer of a run is, with the least noise that the budget allows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import NoGuarantee
from sottovoce.core.contract import Asks, Part
from sottovoce.privacy import accounting
from sottovoce.privacy.batches import batch_rates
from sottovoce.privacy.events import Event

if TYPE_CHECKING:
    from sottovoce.privacy.modes import Proven, ProvenColumns


def plan_rows(
    privacy: "Proven",
    asks: Asks,
    rounds: int,
    sizes: np.ndarray,
    spent: Mapping[Event, int] | None,
    row_bound: float | None,
    most: int | None,
) -> tuple[Event, ...]:
    """What an answer of each part is (for unit "client": what an upload is, one event for all)."""
    times = min(number for number in (rounds, most, privacy.participations) if number is not None)
    check.whole("Proven", participations=times)
    if privacy.unit == "client":
        parts, counts = asks.parts[:1], [times * asks.releases]
    else:
        parts, counts = asks.parts, [min(times, part.rounds(rounds)) * part.answers for part in asks.parts]
    kinds = [
        kind_of_answer(privacy, part, sizes) | {"row_bound": bound_in_force(privacy, part, row_bound)} for part in parts
    ]
    return _shared_out(privacy.epsilon, privacy.delta, kinds, counts, [part.share for part in parts], spent)


def plan_columns(privacy: "ProvenColumns", asks: Asks, rounds: int) -> tuple[Event, ...]:
    """What each answer of a party is; its model for prediction is one more."""
    counts = [part.rounds(rounds) * part.answers for part in asks.parts]
    counts[-1] += privacy.model
    shares = [part.share for part in asks.parts]
    return _shared_out(privacy.epsilon, privacy.delta, [column_kind(privacy)] * len(counts), counts, shares, None)


def _shared_out(
    epsilon: float,
    delta: float,
    kinds: list[dict[str, Any]],
    counts: list[int],
    shares: list[float],
    spent: Mapping[Event, int] | None,
) -> tuple[Event, ...]:
    """Events with noise such that part p, asked counts[p] times, spends its share of the budget.

    mu² adds up over Gaussian answers, and n answers of noise multiplier z have n/z². So with one answer of multiplier
    z* for the whole budget, part p has z_p = z* √(n_p / share_p). The accountant has the last word.
    """
    accounted = [{name: value for name, value in kind.items() if name != "row_bound"} for kind in kinds]
    if len(kinds) == 1:
        noise = accounting.calibrate(epsilon, delta, counts[0], spent=spent, **accounted[0])
        return (Event(noise_multiplier=noise, **kinds[0]),)
    plain = all(kind.get("sampling", "full") == "full" and kind["mechanism"] == "gaussian" for kind in kinds)
    rule = "several kinds of question share a budget with Gaussian noise on all records"
    check.require(plain, "Proven", rule, hint="Use batch=0 and seeded Gaussian noise")
    check.require(min(counts) > 0, "Proven", "every kind of question needs a round in which it is asked")
    one = accounting.calibrate(epsilon, delta, 1, spent=spent, **accounted[0])
    events = [
        Event(noise_multiplier=one * float(np.sqrt(count / share)), **kind)
        for kind, count, share in zip(kinds, counts, shares, strict=True)
    ]
    while accounting.epsilon({**dict(zip(events, counts, strict=True)), **(spent or {})}, delta) > epsilon:
        events = [replace(event, noise_multiplier=event.noise_multiplier * (1 + 2.0**-40)) for event in events]
    return tuple(events)


def bound_in_force(privacy: "Proven", part: Part, row_bound: float | None) -> float:
    """The bound on rows that the sensitivity of an answer rests on; 0 where it holds for all rows."""
    rests = privacy.unit == "record" and part.kind in ("prox-steps", "descent")
    return float(row_bound) if rests and row_bound is not None else 0.0


def kind_of_answer(privacy: "Proven", part: Part, sizes: np.ndarray) -> dict[str, Any]:
    """What an answer is, but for how much noise there is: the other arguments of its `Event`.

    Batches follow from the relation: drawn record by record (Poisson) for add-remove, of fixed size for replace-one;
    the accountants for the two are not interchangeable. With unequal clients the event is that of the client whose
    batch is the largest share, which costs the most. Only single gradients gain from random batches.
    """
    mechanism = privacy.mechanism
    if mechanism == "gaussian" and privacy.noise == "secure":
        mechanism = "discrete-gaussian"
    kind: dict[str, Any] = {"mechanism": mechanism, "relation": privacy.counted_relation}
    if privacy.unit == "client":
        return kind
    if part.kind == "descent" and mechanism == "gaussian":
        kind["mechanism"] = "gaussian-chain"
    elif part.batch and part.kind == "gradient":
        poisson = privacy.relation == "add-remove"
        rates = batch_rates(part.batch, sizes, whole=not poisson)
        worst = int(np.argmax(rates))
        if rates[worst] < 1:
            if mechanism != "gaussian":
                raise NoGuarantee(
                    f"Proven: no proof for {mechanism} noise on random batches; use batch=0, or seeded noise"
                )
            if poisson:
                kind |= {"sampling": "poisson", "rate": float(rates[worst])}
            else:
                size = int(sizes[worst])
                kind |= {"sampling": "fixed-size", "batch": round(rates[worst] * size), "size": size}
    return kind


def is_answer_of_rows(privacy: "Proven", event: Event, part: Part, size: int, row_bound: float | None) -> bool:
    """Whether a client of so many records makes an answer that is this event, whatever its noise."""
    kind = kind_of_answer(privacy, part, np.array([size]))
    # Whether batches are drawn also depends on the other clients' sizes: to be charged for a full one costs more.
    drawn = "poisson" if privacy.relation == "add-remove" else "fixed-size"
    batches = bool(part.batch) and part.kind == "gradient" and privacy.unit == "record"
    rests_on = bound_in_force(privacy, part, row_bound)
    same = (event.mechanism, event.relation, event.row_bound) == (kind["mechanism"], kind["relation"], rests_on)
    return same and event.sampling in ({"full", drawn} if batches else {"full"})


def is_answer_of_columns(privacy: "ProvenColumns", event: Event) -> bool:
    """The same for an answer of a party."""
    return event == Event(noise_multiplier=event.noise_multiplier, **column_kind(privacy))


def column_kind(privacy: "ProvenColumns") -> dict[str, Any]:
    """The same for an answer of a party."""
    mechanism = "discrete-gaussian" if privacy.noise == "secure" else "gaussian"
    return {"mechanism": mechanism, "relation": privacy.counted_relation}
