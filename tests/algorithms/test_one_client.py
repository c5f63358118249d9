"""With one client a method is a centralised one: model by model, against that one written out for a single data set."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import TAMUNA
from sottovoce.core.check import InvalidInput
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy
from sottovoce.problems.federation import Federation
from tests.cases import CASES, Method, goal, small
from tests.centralised import SIZE, ZERO, Problem, proximal_point


def problem(penalty: str) -> tuple[Problem, Federation]:
    X, y = small().X[-SIZE:], small().y[-SIZE:]
    ridge, l1 = (0.05, 0.0) if penalty == "l2" else (0.0, 0.01)  # as in `goal`
    return Problem(X, y, ridge, l1), Federation.from_clients([(X, y)], row_bound=1.0)


def takes(algorithm: Method, penalty: str) -> bool:
    try:
        algorithm.check(goal(penalty=penalty).penalty)
    except InvalidInput:
        return False
    return True


PAIRS = [
    pytest.param(algorithm, script, penalty, id=f"{name}, {penalty}")
    for name, case in CASES.items()
    for algorithm, script in case.one_client.items()
    for penalty in ("l1", "l2")
    if takes(algorithm, penalty)
]


@pytest.mark.parametrize("name", CASES)
def test_every_row_has_a_centralised_method(name: str) -> None:
    assert {algorithm.name for algorithm in CASES[name].one_client} == {name}


def models(algorithm: Method, federation: Federation, penalty: str) -> np.ndarray:
    """After each of 15 rounds."""
    kept: list[Checkpoint] = []
    options: dict[str, Any] = {"rounds": 15, "privacy": NoPrivacy(), "engine": "numpy", "seed": 0}
    train(algorithm, federation, goal(penalty=penalty), after_round=kept.append, **options)
    return np.array([algorithm.model(checkpoint.server)[0] for checkpoint in kept])


@pytest.mark.parametrize(("algorithm", "script", "penalty"), PAIRS)
def test_one_client_is_its_centralised_method(algorithm: Method, script: Any, penalty: str) -> None:
    """In every round, long before the limit."""
    p, federation = problem(penalty)
    reached, expected = models(algorithm, federation, penalty), np.array(list(islice(script(p), 15)))
    exact = "argmin" not in algorithm.asks().kinds  # an arg-min is solved to |gradient| <= 1e-9
    np.testing.assert_allclose(reached, expected, atol=1e-12 if exact else 1e-7, rtol=0)
    assert np.linalg.norm(expected[-1] - expected[-3]) > 1e-4


def test_tamuna_takes_random_numbers_of_gradient_steps() -> None:
    p, federation = problem("l2")
    reached = models(TAMUNA(step=0.1, local_steps=3, most_steps=7), federation, "l2")
    every_step = np.array([ZERO, *islice(proximal_point(p, 0.1, 1), 15 * 7)])
    distance = np.linalg.norm(reached[:, None] - every_step, axis=-1)
    np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-12)
    steps = np.diff(distance.argmin(axis=1), prepend=0)
    assert 1 == steps.min() < steps.max() <= 7
