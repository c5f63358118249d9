"""SCAFFOLD against the paper's Algorithm 1 written out client by client, and in its limit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import SCAFFOLD
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import Bernoulli, Everyone, KOfN, Participation
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy
from sottovoce.problems.penalties import L1
from tests.cases import goal, small
from tests.reference import optimum

RIDGE = 0.05  # of goal(penalty="l2")
PLAIN: dict[str, Any] = {"privacy": NoPrivacy(), "engine": "numpy", "seed": 7}


def printed(algorithm: SCAFFOLD, participation: Participation, rounds: int) -> list[np.ndarray]:
    """Algorithm 1 with option II as the paper has it: clients keep their c_i and send increments. The models."""
    federation, eta, steps = small(), algorithm.step, algorithm.local_steps
    bounds = zip(federation.offsets, federation.offsets[1:], strict=False)
    clients = [(federation.X[a:b], federation.y[a:b]) for a, b in bounds]
    x, c, variates = np.zeros(4), np.zeros(4), np.zeros((6, 4))
    models = []
    for _, active in zip(range(rounds), participation.masks(6, Streams(PLAIN["seed"])), strict=False):
        moves, changes = [], []
        for i in np.flatnonzero(active):
            X, y = clients[i]
            local = x.copy()
            for _ in range(steps):
                slope = -(X * (y / (1 + np.exp(y * (X @ local))))[:, None]).mean(axis=0) + RIDGE * local
                local = local - eta * (slope - variates[i] + c)
            new = variates[i] - c + (x - local) / (steps * eta)
            moves.append(local - x)
            changes.append(new - variates[i])
            variates[i] = new
        if moves:
            x = x + algorithm.global_step * np.mean(moves, axis=0)
            c = c + np.sum(changes, axis=0) / 6
        models.append(x)
    return models


@pytest.mark.parametrize("participation", [Everyone(), KOfN(3), KOfN(1), Bernoulli(0.2)], ids=lambda rule: rule.name)
@pytest.mark.parametrize("global_step", [1.0, 0.6])
def test_agrees_with_the_printed_algorithm(participation: Participation, global_step: float) -> None:
    algorithm, kept = SCAFFOLD(step=0.8, local_steps=4, global_step=global_step), []
    train(algorithm, small(), goal(), rounds=12, participation=participation, after_round=kept.append, **PLAIN)
    models = np.array([algorithm.model(checkpoint.server)[0] for checkpoint in kept])
    expected = np.array(printed(algorithm, participation, 12))
    np.testing.assert_allclose(models, expected, atol=1e-12, rtol=0)
    assert np.linalg.norm(expected[-1] - expected[-2]) > 1e-4


@pytest.mark.parametrize(
    ("algorithm", "participation", "rounds"),
    [
        (SCAFFOLD(step=1.0, local_steps=5), KOfN(3), 300),
        (SCAFFOLD(step=0.5, local_steps=5, global_step=0.8), Bernoulli(0.4), 300),
        (SCAFFOLD(step=0.5, local_steps=3), KOfN(1), 800),
    ],
)
def test_exact_whoever_takes_part(algorithm: SCAFFOLD, participation: Participation, rounds: int) -> None:
    """Also one client at a time: unlike LED and TAMUNA it learns from that how clients differ."""
    options = PLAIN | {"participation": participation, "record_every": rounds}
    result = train(algorithm, small(), goal(), rounds=rounds, **options)
    np.testing.assert_allclose(result.model, optimum(small(), goal()), atol=1e-10, rtol=0)


def test_a_lost_reply_does_not_move_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fourth reply of each client is lost. In the paper's form each would shift the sum of the c_i for good."""
    plain = SCAFFOLD.server

    def some_replies_are_lost(self: SCAFFOLD, server: Any, up: Any, hub: Any) -> Any:
        came = (np.arange(hub.n)[:, None] + hub.k) % 4 > 0
        return plain(self, server, up, replace(hub, answered=hub.answered & came))

    monkeypatch.setattr(SCAFFOLD, "server", some_replies_are_lost)
    kept: list[Checkpoint] = []
    result = train(SCAFFOLD(step=1.0, local_steps=3), small(), goal(), rounds=300, after_round=kept.append, **PLAIN)
    np.testing.assert_allclose(result.model, optimum(small(), goal()), atol=1e-10, rtol=0)
    np.testing.assert_allclose(kept[-1].server.c.mean(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"step": 0.0}, "SCAFFOLD: step must be > 0"),
        ({"global_step": -1.0}, "SCAFFOLD: global_step must be > 0"),
        ({"local_steps": 0}, "SCAFFOLD: local_steps must be a whole number >= 1"),
        ({"batch": -1}, "SCAFFOLD: batch must be >= 0"),
    ],
)
def test_refusals(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        SCAFFOLD(**wrong)
    with pytest.raises(InvalidInput, match=r"SCAFFOLD: needs a smooth penalty.*got L1"):
        SCAFFOLD().check(L1(0.1))
