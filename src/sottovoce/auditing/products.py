"""Products of split columns: the exact law of what each admissible coalition sees, for the worst records found.

What the server and one owner see of a run is, by the theorem of `privacy/masked_products.py`, made of uniform numbers
and of the opened sums with the noise of the honest owners alone: a colluding owner takes its own noise off. So for two
data sets that differ in one record, at the honest owners, the two laws are Gaussian (up to Theorem 2) with means that
the true code computes and variances that it states. They differ by

    μ² = Σ over sums of (difference)² / (honest noises · scale²),

and ε follows exactly. The records come from a search; the sums are those of the simulator's own tables, and the noise
that its door adds is compared with what is stated.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from sottovoce.algorithms import MaskedMoments
from sottovoce.auditing import noise as tests
from sottovoce.auditing.checks import judged, passed
from sottovoce.auditing.finding import Check, Comparison, Finding
from sottovoce.core import products
from sottovoce.core.arrays import Floats, Integers
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import whole_tables
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import local_clients
from sottovoce.privacy import accounting
from sottovoce.privacy.modes import ProvenColumns
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation

WIDTH, SAMPLES = 2, 5
TRIED, CLIMBS = 100, 300  # pairs of records, and steps of the search for worse ones
RUNS = 400

Record = tuple[Floats, float]  # all columns, owner after owner, and the label


def audit_products(privacy: ProvenColumns, owners: int = 3, seed: int = 0) -> Finding:
    """The epsilon of every admissible coalition, next to the promise: the server, and the server with one owner.

    Of two owners, the other one sees the opened sums too, and has its own noise; but it does not collude with the
    server, which deals to the two.
    """
    begun, rng = time.perf_counter(), np.random.default_rng(seed)
    others = rng.uniform(-1, 1, size=(SAMPLES - 1, owners * WIDTH))
    comparisons: list[Comparison] = []
    for honest in coalitions(owners):
        pair = (_federation(record, others, owners) for record in _worst(owners, honest, rng))
        comparisons.append(_comparison(privacy, [_place(privacy, each, seed) for each in pair], honest))
    federation = _federation((rng.uniform(-1, 1, size=owners * WIDTH), 1.0), others, owners)
    return Finding(
        method=MaskedMoments.name,
        mode=privacy.mode,
        statistic="exact",
        evidence="sums of the true code and the noise of honest owners, a colluding owner's own noise taken off",
        neighbours=f"{owners} owners of {WIDTH} columns, one record replaced: the worst of {TRIED * CLIMBS} pairs",
        runs=RUNS,
        confidence=1.0,
        comparisons=tuple(comparisons),
        seconds=time.perf_counter() - begun,
        tight=True,
        checks=tuple(_noise_checks(privacy, federation, seed)),
    )


def coalitions(owners: int) -> list[tuple[int, ...]]:
    """Who is honest: everybody, or everybody but one."""
    everyone = tuple(range(owners))
    return [everyone, *(honest for honest in itertools.combinations(everyone, owners - 1) if honest)]


def epsilon_of(
    split: products.Split, kappa: float, sigma: float, difference: Integers, honest: tuple[int, ...], delta: float
) -> float:
    """Of sums that differ by this between two neighbours, for an observer who has the noise of all others."""
    noises = np.sum([split.of_owner(m) for m in honest], axis=0)
    seen = noises > 0
    untouched = not difference[~seen].any()  # neighbours differ at the honest owners only
    scale = sigma * split.noise_factors(kappa)
    mu = float(np.sqrt(np.sum(np.square(difference[seen] / scale[seen]) / noises[seen])))
    return accounting.gaussian_epsilon(mu, delta) if untouched else float("inf")


# ---------------------------------------------------------------------------------------------------------- playing


def _comparison(privacy: ProvenColumns, sides: list[LocalClients], honest: tuple[int, ...]) -> Comparison:
    method, event = sides[0].task.masked_moments, sides[0].door.events[0]
    tables = (whole_tables(place.task, cast(VerticalFederation, place.federation)) for place in sides)
    sums = [products.halves(method.split, of_side).sum(axis=0) for of_side in tables]
    epsilon = epsilon_of(method.split, method.kappa, event.scale, sums[0] - sums[1], honest, privacy.delta)
    against = [m for m in range(len(method.widths)) if m not in honest]
    with_server = "the server and " if len(method.widths) > 2 else ""
    who = f"{with_server}owner {against[0]}, with all opened sums" if against else "the server"
    return Comparison(who, privacy.epsilon, privacy.delta, epsilon)


def _noise_checks(privacy: ProvenColumns, federation: VerticalFederation, seed: int) -> Iterator[Check]:
    """Whether the door adds what it states: its scale on every number, and no two numbers with the same noise."""
    place = _place(privacy, federation, seed, RUNS)
    method = place.task.masked_moments
    split = method.split
    oracle, _ = place.door.open(np.arange(split.owners), np.ones((RUNS, split.owners), dtype=bool), 1)
    exact = products.halves(split, whole_tables(place.task, federation))
    noise = products.from_limbs(oracle.products(method.kappa)) - exact
    has_noise = np.array([split.of_owner(m) for m in range(split.owners)])
    scale = place.door.events[0].scale * split.noise_factors(method.kappa)
    standard, answers = ((numbers / scale)[..., has_noise][:, None, None] for numbers in (noise, exact[None]))
    silent = bool((noise[:, ~has_noise] == 0).all())
    yield from judged(tests.of_noise(standard, answers, "gaussian"), "plain")
    yield passed("plain", "sums of others", "no noise" if silent else "noise", "no noise", silent)


def _place(privacy: ProvenColumns, federation: VerticalFederation, seed: int, runs: int | None = None) -> LocalClients:
    task = Task(MaskedMoments(), Objective(Logistic(), L2(1.0)), replace(privacy, row_bound=1.0))
    return local_clients(task, federation, Streams(seed, runs))


def _federation(record: Record, others: Floats, owners: int) -> VerticalFederation:
    rows = np.vstack([record[0], others])
    labels = np.array([record[1], *(1.0 if row % 2 else -1.0 for row in range(len(others)))])
    return VerticalFederation.from_columns(rows, labels, [WIDTH] * owners)


# ----------------------------------------------------------------------------------------------------------- searching


def _worst(owners: int, honest: tuple[int, ...], rng: np.random.Generator) -> tuple[Record, Record]:
    """The pair of records, alike at the owners that are not honest, that moves what is seen the most: by climbing."""
    split, kappa = products.Split((WIDTH,) * owners, (1,) * owners), products.LARGEST_KAPPA
    differs, flipped = np.isin(np.arange(owners), honest)[:, None], -1.0 if split.holder in honest else 1.0

    def pairs(first: Floats, second: Floats) -> tuple[Floats, Floats]:
        first, second = (rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (first, second))
        return first, np.where(differs, second, first)

    def moved(first: Floats, second: Floats) -> Floats:
        one = _weighed(split, kappa, first.reshape(TRIED, -1), 1.0, honest)
        return np.linalg.norm(one - _weighed(split, kappa, second.reshape(TRIED, -1), flipped, honest), axis=-1)

    best = pairs(*rng.normal(size=(2, TRIED, owners, WIDTH)))
    reached = moved(*best)
    for step in np.geomspace(1.0, 0.01, CLIMBS):
        tried = pairs(*(np.array(best) + step * rng.normal(size=(2, TRIED, owners, WIDTH))))
        further = moved(*tried)
        better = further > reached
        best = tuple(np.where(better[:, None, None], new, old) for new, old in zip(tried, best, strict=True))
        reached = np.maximum(reached, further)
    top = int(np.argmax(reached))
    return (best[0][top].ravel(), 1.0), (best[1][top].ravel(), flipped)


def _weighed(split: products.Split, kappa: float, rows: Floats, label: float, honest: tuple[int, ...]) -> Floats:
    """The sums of one record each, in units of the deviation of the honest noise."""
    tables = np.column_stack([rows / np.sqrt(split.owners), np.full(len(rows), label / 2)])
    order = np.insert(np.arange(split.columns), split.widths[0], split.columns)  # the label stands behind owner 0
    places = [order[place] for place in split.places]
    noises = np.sum([split.of_owner(m) for m in honest], axis=0)
    scale = split.noise_factors(kappa) * np.sqrt(np.maximum(noises, 1))
    return tables[:, places[0]] * tables[:, places[1]] / scale
