"""The numbers behind `sottovoce account`: epsilon for given noise, noise for given epsilon, rounds for both."""

from dataclasses import dataclass
from typing import get_args

from sottovoce.core import check
from sottovoce.core.plain import Json, Progress, silent
from sottovoce.privacy import accounting
from sottovoce.privacy.discrete_noise import GRID_BOUND
from sottovoce.privacy.events import Event, Relation, make_event

MECHANISMS = ("gaussian", "discrete-gaussian", "laplace")
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


def account(
    *,
    delta: float,
    rounds: int,
    noise: float | None = None,
    epsilon: float | None = None,
    answers_per_round: int = 1,
    mechanism: str = "gaussian",
    relation: str = "replace-one",
    batch: int = 0,
    size: int = 0,
    coordinates: int | None = None,
    progress: Progress = silent,
) -> Account:
    """With `epsilon` alone: the noise it needs. With `noise`: its cost; with both: also how many rounds it pays for.

    `noise` is the noise multiplier: standard deviation (Laplace: scale) over sensitivity under `relation`. `batch` of
    `size` records is drawn record by record for add-remove, with fixed size for replace-one. With the number of
    `coordinates` of an answer, discrete Gaussian noise is accounted as runs account it, by Theorem 2; else by zCDP.
    """
    check.whole("account", rounds=rounds, answers_per_round=answers_per_round)
    check.one_of("account", "mechanism", mechanism, MECHANISMS)
    check.one_of("account", "relation", relation, get_args(Relation))
    kind: Json = {"mechanism": mechanism, "relation": relation}
    if coordinates is not None:
        rule = "coordinates are for mechanism 'discrete-gaussian'"
        check.require(mechanism == "discrete-gaussian", "account", rule, mechanism)
        kind |= {"coordinates": coordinates, "sensitivity": float(GRID_BOUND)}
    if batch:
        rule = "batch needs the number of records, 1 <= batch <= size"
        check.require(0 < batch <= size, "account", rule, (batch, size))
        poisson, fixed = {"rate": batch / size}, {"batch": batch, "size": size}
        kind |= {"sampling": "poisson"} | poisson if relation == "add-remove" else {"sampling": "fixed-size"} | fixed
    answers = rounds * answers_per_round
    if noise is None:
        budget = check.given(epsilon, "account", "give a noise multiplier, an epsilon, or both")
        progress("noise", 0, 0)
        noise = accounting.calibrate(budget, delta, answers, **kind)
    event = make_event(noise_multiplier=noise, **kind)
    listed = sorted({*(number for number in ROUNDS if number < rounds), rounds})
    progress("costs", 0, 0)
    costs = accounting.table(event, delta, [number * answers_per_round for number in listed])
    table = tuple((number, cost) for number, (_, cost) in zip(listed, costs, strict=True))
    progress("rounds", 0, 0)
    lasts = None if epsilon is None else accounting.affordable(event, epsilon, delta) // answers_per_round
    accountant = accounting.accountant_name({event: answers}, delta)
    return Account(event, answers_per_round, rounds, table[-1][1], delta, accountant, lasts, table)
