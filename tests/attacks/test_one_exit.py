"""A server that chooses every number tries to learn from which rounds a client answers, and what its ledger counts.

After the first exact number about private rows there is one exit: charge, clip, noise, reply.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import LED, FedPD, FedPLT, FiveGCS
from sottovoce.deploy.node import Node
from sottovoce.experiment import whole_files
from sottovoce.privacy.modes import Proven
from tests.attacks.attacker import about, first_question, rows, seen, told_apart, write_node
from tests.cases import CASES
from tests.deploy.test_node import Killed
from tests.deployments import charged

CLIENT = Proven(epsilon=20.0, delta=1e-3, clip=1.0, unit="client")
RECORD = Proven(epsilon=20.0, delta=1e-3, clip=1.0)
ROUNDS = 3
HUGE: dict[str, Any] = {
    "fedpd, long steps": FedPD(eta=1.0, local_steps=1, step=1e156),
    "fedpd, long steps below the square root": FedPD(eta=1.0, local_steps=2, step=1e110),
    "fedpd, many steps of an allowed size": FedPD(eta=1.0, local_steps=100, step=50.0),
    "fed-plt, many steps of an allowed size": FedPLT(rho=1.0, local_steps=100, step=50.0),
    "fedpd, strong pull": FedPD(eta=1e-156, local_steps=5, step=1.2),
    "fed-plt, long steps": FedPLT(rho=8.0, step=1e156),
    "fed-plt, strong pull": FedPLT(rho=1e-156, step=1.5),
    "led, long steps": LED(step=1e156, local_steps=3),
    "5gcs, long steps": FiveGCS(tau=0.3, local_steps=5, step=1e156),
    "5gcs, long steps of the dual": FiveGCS(tau=1e156, local_steps=5, step=1.2),
}


@pytest.mark.parametrize("of", HUGE)
def test_a_hidden_state_that_overflows_does_not_show(of: str, tmp_path: Path) -> None:
    """The server takes steps so long that a client's hidden state overflows for some rows and not for others.

    It saw a later round fail, at no cost, exactly where the gradient was larger than a number of its choice. Codes,
    words, the ledger's count and warnings must be the same for all rows.
    """
    ask = first_question(HUGE[of], CLIENT, ROUNDS)
    views = told_apart(tmp_path, [about(ask, k, 0.0) for k in range(1, ROUNDS + 1)], rows([1.0, 1e-4, 0.0]))
    assert len(views) == 1, f"the server tells rows apart: {views}"


def test_no_threshold_reads_the_gradient(tmp_path: Path) -> None:
    """The same as a search: with steps of 1e150 to 1e158 each experiment halves the interval for the gradient.

    Whatever step the server picks, two clients whose gradients differ by a factor of 2 must look the same.
    """
    for exponent in (102.7, 154.25, 155, 158):
        method = FedPD(eta=1.0, local_steps=1, step=10.0**exponent)
        questions = [about(first_question(method, CLIENT, ROUNDS), k, 0.0) for k in range(1, ROUNDS + 1)]
        views = told_apart(tmp_path / f"{exponent}", questions, rows([0.5, 1.0]))
        assert len(views) == 1, f"steps of 1e{exponent} tell rows apart: {views}"


@pytest.mark.parametrize("of", ["fedpd, long steps", "fed-plt, strong pull"])
def test_every_round_that_is_asked_is_answered_and_charged_or_refused_for_all(of: str, tmp_path: Path) -> None:
    """The server counts: a question to which a look at the rows was taken must be in the ledger.

    A client either refuses such numbers in every round (before it looks), or answers and charges every round.
    """
    ask = first_question(HUGE[of], CLIENT, ROUNDS)
    for number, (X, y) in enumerate(rows([1.0, 0.0])):
        view = seen(write_node(tmp_path / f"{number}", X, y), [about(ask, k, 0.0) for k in range(1, ROUNDS + 1)])
        answered = [each.answered for each in view]
        assert all(answered) or not any(answered), f"it stopped answering on the way: {view}"
        assert [each.charged for each in view] == list(np.cumsum(answered)), view


@pytest.mark.parametrize("name", ["admm", "pvp"])
def test_a_solver_that_does_not_finish_does_not_show(name: str, tmp_path: Path) -> None:
    """Record level, arg-mins: the server's point lies so far away that the solver ends for some rows, for others not.

    Whether a local solver reached its certificate is an exact fact about the rows. It must not decide what is said.
    """
    X, y = rows([1.0])[0]
    spread = np.random.default_rng(0).normal(size=X.shape)
    spread /= np.linalg.norm(spread, axis=1)[:, None]
    sides = np.where(spread.sum(axis=1) > 0, 1.0, -1.0)
    ask = first_question(CASES[name].algorithm, RECORD, 2)
    data = [(X, y), (0.0 * X, y), (spread, y), (spread, sides)]
    views = told_apart(tmp_path, [about(ask, 1, 1e8), about(ask, 2, 1e8)], data)
    assert len(views) == 1, f"the server tells rows apart: {views}"


def test_killed_between_charge_and_answer_gives_no_second_answer_for_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client dies after its charge and before its answer is kept. The server asks the same question again.

    Nothing is stored that could be sent again, so an answer is a new look at the rows: it must be charged, or refused.
    """
    X, y = rows([1.0])[0]
    file = write_node(tmp_path / "one", X, y)
    ask = first_question(CASES["dp-sgd"].algorithm, RECORD)

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(whole_files, "replace_arrays", die)
        with pytest.raises(Killed):
            Node(file).answer(ask)
    before = charged(file)
    assert before == 1
    reply = Node(file).answer(ask)
    assert reply.code != "" or charged(file) == before + 1, "a second look at the rows was free"
    assert reply.code == "" or reply.up == {}
