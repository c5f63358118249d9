"""The numbers behind `sottovoce account`: epsilon for given noise, noise for given epsilon, rounds for both."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sottovoce.core import check
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event, Mechanism, Relation

ROUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Account:
    """What so many answers cost one client."""

    event: Event
    answers_per_round: int
    rounds: int
    epsilon: float
    delta: float
    accountant: str
    affordable_rounds: int | None  # within a given budget; None when no budget was given
    table: tuple[tuple[int, float], ...]  # (rounds, epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def account(
    *,
    delta: float,
    rounds: int,
    noise: float | None = None,
    epsilon: float | None = None,
    answers_per_round: int = 1,
    mechanism: Mechanism = "gaussian",
    relation: Relation = "replace-one",
    batch: int = 0,
    size: int = 0,
    milestones: Sequence[int] = ROUNDS,
) -> Account:
    """With `epsilon` alone: the noise it needs. With `noise`: what it costs; with both: also how long it lasts.

    `noise` is the noise multiplier: standard deviation (Laplace: scale) over sensitivity under `relation`. `batch` of
    `size` records is drawn record by record for add-remove, with fixed size for replace-one.
    """
    who = "account"
    check.whole(who, rounds=rounds, answers_per_round=answers_per_round)
    check.require(noise is not None or epsilon is not None, who, "give a noise multiplier, an epsilon, or both")
    kind: dict = {"mechanism": mechanism, "relation": relation}
    if batch:
        check.require(0 < batch <= size, who, "batch needs the number of records, 1 <= batch <= size", (batch, size))
        if relation == "add-remove":
            kind |= {"sampling": "poisson", "rate": batch / size}
        else:
            kind |= {"sampling": "fixed-size", "batch": batch, "size": size}
    if noise is None:
        assert epsilon is not None
        noise = accounting.calibrate(epsilon, delta, rounds * answers_per_round, **kind)
    event = Event(noise_multiplier=noise, **kind)
    spent = {event: rounds * answers_per_round}
    asked = sorted({*(r for r in milestones if r < rounds), rounds})
    table = tuple((r, e) for r, (_, e) in zip(asked, _costs(event, delta, asked, answers_per_round), strict=True))
    lasts = None if epsilon is None else accounting.affordable(event, epsilon, delta) // answers_per_round
    name = accounting.accountant_name(spent, delta)
    return Account(event, answers_per_round, rounds, table[-1][1], delta, name, lasts, table)


def _costs(event: Event, delta: float, rounds: Sequence[int], answers: int) -> list[tuple[int, float]]:
    return accounting.table(event, delta, [r * answers for r in rounds])
