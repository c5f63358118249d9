"""LED and TAMUNA reach the optimum if and only if their clients meet; where they do not, a run says so once."""

import warnings
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from sottovoce.algorithms import LED, TAMUNA, FedLin, FedPD, FedPLT, FiveGCS
from sottovoce.algorithms.corrected_steps import MissesOptimum
from sottovoce.core.participation import Bernoulli, Covering, Everyone, KOfN, Participation, Schedule
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy
from sottovoce.problems.federation import Federation
from tests.cases import goal, small
from tests.reference import optimum

LEARNERS = (LED(step=1.0, local_steps=5), TAMUNA(step=1.0, local_steps=5))
ROUNDS = 250


def again(*sets: tuple[int, ...]) -> Schedule:
    return Schedule(tuple(islice((chosen for _ in range(ROUNDS) for chosen in sets), ROUNDS)))


APART = {
    "one": KOfN(1),
    "one, everyone in turn": Covering(1, 6),
    "two groups": again((0, 1, 2), (3, 4, 5)),
    "one is left out": again((0, 1, 2), (2, 3, 4)),
}
TOGETHER = {
    "two": KOfN(2),
    "two, everyone in turn": Covering(2, 3),
    "some, often one or nobody": Bernoulli(0.25),
    "by way of others, with lonely rounds": again((0, 1, 2), (3,), (2, 3, 4), (5,), (4, 5, 0)),
}


def off(algorithm: Any, participation: Participation, federation: Federation, rounds: int = ROUNDS) -> float:
    """How far from the optimum a run ends."""
    options: dict[str, Any] = {"engine": "numpy", "record_every": rounds, "seed": 0, "participation": participation}
    result = train(algorithm, federation, goal(), rounds=rounds, privacy=NoPrivacy(), **options)
    return float(np.abs(result.model - optimum(federation, goal())).max())


@pytest.mark.parametrize("algorithm", LEARNERS, ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("who", APART)
def test_a_warning_where_clients_do_not_meet(algorithm: Any, who: str) -> None:
    with pytest.warns(MissesOptimum, match=r"the 6 clients are not all linked.*KOfN\(2\), or use FedPD") as warned:
        distance = off(algorithm, APART[who], small(), rounds=80)  # it stays where it is
    assert len(warned) == 1
    assert distance > 1e-3  # and it is right to warn: a thousand times what those who meet are off


@pytest.mark.parametrize("algorithm", LEARNERS, ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("who", TOGETHER)
def test_no_warning_where_they_do(algorithm: Any, who: str) -> None:
    assert off(algorithm, TOGETHER[who], small()) < 1e-6  # a warning would be an error here


@pytest.mark.parametrize("algorithm", LEARNERS, ids=lambda algorithm: algorithm.name)
def test_groups_that_agree_need_not_meet(algorithm: Any) -> None:
    """What `needs_meetings` says of groups: gradients of each must add up to zero at the optimum."""
    half = small()
    rows = [slice(a, b) for a, b in zip(half.offsets[:3], half.offsets[1:4], strict=True)]
    twice = Federation.from_clients([(half.X[row], half.y[row]) for row in (*rows, *rows)], row_bound=1.0)
    with pytest.warns(MissesOptimum, match="unless they agree"):
        assert off(algorithm, APART["two groups"], twice) < 1e-9


def test_others_need_no_company() -> None:
    for algorithm in (FedPD(), FedLin(), FiveGCS(), FedPLT()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            algorithm.warn_about(KOfN(1), 6)
    for algorithm in LEARNERS:
        algorithm.warn_about(KOfN(1), 1)  # a client that is all there is


@pytest.mark.parametrize("rule", [*APART.values(), *TOGETHER.values(), Everyone(), KOfN(6), again((), (0, 5))])
def test_who_meets_is_what_the_draws_show(rule: Participation) -> None:
    drawn = np.array(list(islice(rule.masks(6, Streams(0)), ROUNDS))).astype(int)
    assert rule.meet(6) == (connected_components(drawn.T @ drawn)[0] == 1)
