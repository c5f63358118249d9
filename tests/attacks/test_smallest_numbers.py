"""Numbers at the lower end of the floating-point range: noise and clip norms are rounded there, to steps of 5e-324.

Who attacks chooses the clip norm (a server, or whoever writes the run file), or has one record of tiny entries.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD
from sottovoce.core.check import SottovoceError
from sottovoce.deploy.node import Node
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.rows import Rows
from tests.attacks.attacker import first_question, numbers, rows, write_node

KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "laplace": {"delta": 0.0, "mechanism": "laplace"},
    "add-remove": {"relation": "add-remove"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [5e-324, 5e-322, 1e-320])
def test_noise_does_not_vanish_for_a_tiny_clip_norm(clip: float, kind: str) -> None:
    """The noise is nm · 2 · clip / size. With a clip norm of 5e-322 it was rounded to 0, and with it went the noise.

    The exact clipped gradient was released, for any seed, beside epsilon = 1. Such a clip norm must be refused, or the
    noise be there: models of several seeds must not be the same.
    """
    size = 1000
    X, y = np.full((size, 2), 0.5), np.where(np.arange(size) < 700, 1.0, -1.0)
    data, objective = Federation.from_clients([(X, y)], row_bound=1.0), Objective(Logistic(), L2(1e-9))
    models = []
    for seed in range(4):
        try:
            privacy = replace(Proven(epsilon=1.0, delta=1e-4, clip=1.0), clip=clip, **KINDS[kind])
            result = train(DPSGD(step=1.0), data, objective, rounds=1, privacy=privacy, seed=seed, engine="numpy")
        except SottovoceError:
            return  # refused, by a public number
        models.append(tuple(result.model.tolist()))
    assert len(set(models)) == len(models), f"models of {len(models)} seeds: {sorted(set(models))}"


def test_a_client_does_not_answer_a_tiny_clip_norm_without_noise(tmp_path: Path) -> None:
    """The same by a server: it asks twice, in two experiments with two seeds, and gets the same exact number."""
    X, y = rows([1.0], 400)[0]
    file = write_node(tmp_path / "one", X, y)
    ask = first_question(DPSGD(step=1.0), Proven(epsilon=2.0, delta=1e-3, clip=1.0))
    assert "clip = 1.0" in ask.task
    ask = replace(ask, task=ask.task.replace("clip = 1.0", "clip = 4e-322"))
    other = replace(ask, experiment="e" * 32, task=ask.task.replace("seed = 11", "seed = 12"))
    replies = [Node(file).answer(each) for each in (ask, other)]
    if all(reply.code == "" for reply in replies):
        assert not np.array_equal(numbers(replies[0]), numbers(replies[1])), "two answers without any noise"


@pytest.mark.parametrize("engine", ["numpy", "kernel"])
@pytest.mark.parametrize("columns", [2, 5, 6, 12])
def test_a_row_of_the_smallest_numbers_is_clipped_like_any_other(columns: int, engine: str) -> None:
    """Regression: a record with entries of 5e-324 and a label of 1e308. The length of its row was rounded to a whole
    step, so that its clipped gradient was up to 1.41 times as long as the clip norm."""
    data = np.full((3, columns), 5e-324), np.array([1e308, 1e308, -1e308])
    clip = 1e-20
    oracle = Rows(*data, [0, 3], Squared(), "sum", engine)
    examples = oracle.clipped_examples(np.zeros(columns), 0, clip)
    longest = max(float(np.sqrt(np.square(each / clip).sum())) for each in examples)
    together = float(np.linalg.norm(oracle.gradient(np.zeros((1, columns)), None, clip)[0] / clip))  # 1 + 1 − 1
    assert max(longest, together) <= 1 + 1e-9, f"{max(longest, together):.4g} clip norms"
