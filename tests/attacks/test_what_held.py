"""Attacks that follow from the same rules and did not succeed: kept, so that they never will.

Who attacks is a server that chooses every number, and what it may learn from is which rounds a client answers, what its
ledger counts, and differences of answers.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD, FedPD
from sottovoce.deploy.node import Node
from sottovoce.estimators import FederatedClassifier
from sottovoce.privacy.modes import Proven
from tests.attacks.attacker import about, first_question, numbers, rows, told_apart, write_node
from tests.cases import CASES
from tests.deploy.test_node import at
from tests.deployments import charged

CLIENT = Proven(epsilon=20.0, delta=1e-3, clip=1.0, unit="client")
RECORD = Proven(epsilon=20.0, delta=1e-3, clip=1.0)
ROUNDS = 3


@pytest.mark.parametrize("noise", [1e-3, 2.0**30])
@pytest.mark.parametrize("value", [1e154, 1e300, -1.7e308])
def test_neither_broadcasts_nor_noise_of_any_size_make_rows_show(value: float, noise: float, tmp_path: Path) -> None:
    """The server broadcasts numbers near the end of the range, with the least and the most noise that is accepted."""
    ask = first_question(FedPD(eta=1.0, local_steps=3, step=1e3), CLIENT, ROUNDS, noise)
    questions = [about(ask, k, value * (-1) ** k) for k in range(1, ROUNDS + 1)]
    views = told_apart(tmp_path, questions, rows([1.0, 1e-4, 0.0]))
    assert len(views) == 1, f"the server tells rows apart: {views}"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "proven" in case.algorithm.modes])
@pytest.mark.parametrize("privacy", [CLIENT, RECORD], ids=["client", "record"])
def test_no_method_shows_rows_by_failing(name: str, privacy: Any, tmp_path: Path) -> None:
    """Every method, both units, a huge broadcast between two usual ones: what is answered must not depend on rows."""
    ask = first_question(CASES[name].algorithm, privacy, ROUNDS)
    questions = [about(ask, k, value) for k, value in enumerate((0.0, 1e200, 0.0), start=1)]
    views = told_apart(tmp_path, questions, rows([1.0, 0.0]))
    assert len(views) == 1, f"the server tells rows apart: {views}"


def test_a_repeated_question_with_another_broadcast_gets_nothing_for_free(tmp_path: Path) -> None:
    """The server asks the same round of the same experiment again about another point, and hopes for the same noise.

    Whatever it gets must be refused, or charged with noise of its own: the difference of two answers must not be the
    noise-free difference of two gradients.
    """
    X, y = rows([1.0])[0]
    file = write_node(tmp_path / "one", X, y)
    ask = first_question(CASES["dp-sgd"].algorithm, RECORD)
    first = Node(file).answer(ask)
    for other in (at(ask, 1, 0.5), replace(at(ask, 1, 0.5), experiment="f" * 32)):
        before = charged(file)
        again = Node(file).answer(other)
        if again.code == "":
            assert charged(file) == before + 1
            exact = exact_step(X, y, 0.5) - exact_step(X, y, 0.0)
            difference = numbers(again) - numbers(first)
            assert np.linalg.norm(difference - exact) > 1e-6, "two answers share their noise"
        else:
            assert again.up == {}


def exact_step(X: np.ndarray, y: np.ndarray, at_: float) -> np.ndarray:
    """The mean gradient of the logistic loss, written out."""
    margin = y * (X @ np.full(X.shape[1], at_))
    return -(X * (y / (1 + np.exp(margin)))[:, None]).mean(axis=0)


# ------------------------------------------------------------------------------------ neighbours, by way of estimators


def labelled(turned: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three owners; one row is turned round in the neighbour."""
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(60, 4))
    if turned:
        X[0] *= -1
    return X, np.where(np.arange(60) % 2 == 0, "no", "yes"), np.arange(60) % 3


def test_estimators_of_neighbours_do_not_share_noise() -> None:
    """Two fits with one `random_state` on rows that differ in one record: the difference must be full of noise."""
    models = []
    for turned, state in ((False, 0), (True, 0), (False, 1)):
        X, y, groups = labelled(turned)
        model = FederatedClassifier(
            DPSGD(step=1.0), epsilon=0.5, delta=1e-3, clip=1.0, rounds=1, classes=["no", "yes"],
            earlier_steps="public", fit_intercept=False, random_state=state,
        )  # fmt: skip
        models.append(np.ravel(model.fit(X, y, groups=groups).coef_))
    noise = np.linalg.norm(models[2] - models[0])
    assert np.linalg.norm(models[1] - models[0]) > 0.05 * noise
