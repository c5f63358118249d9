"""Every method on nodes where two of three clients are asked a round, and questions and replies get lost.

The simulator is run with the same losses, and both must end with the same model, bit for bit.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.participation import KOfN
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Exchange
from sottovoce.deploy import home, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.experiment.local import LocalClients
from tests.cases import CASES, EVERY, VERTICAL, Method, all_modes
from tests.deploy.test_node_server import implied
from tests.deployments import NAME, LocalPost, column_tables, run_tables, simulated, write_nodes, write_parties

ROUNDS = 6
ASKED = [set(np.flatnonzero(mask).tolist()) for mask in islice(KOfN(2).masks(3, Streams(11)), ROUNDS)]
UNHEARD = {3: min(ASKED[2])}  # by round: a client that the question does not reach
UNSEEN = {1: max(ASKED[0]), 2: min(ASKED[1]), 5: min(ASKED[4])}  # one whose reply does not come back
ANSWERED = [asked - {UNHEARD.get(k), UNSEEN.get(k)} for k, asked in enumerate(ASKED, start=1)]


class LossyPost(LocalPost):
    """Loses questions and replies. With `warm`, nodes stay in memory from one message to the next."""

    def __init__(self, files: list[Path], warm: bool) -> None:
        super().__init__(files)
        self.warm = [Node(file) for file in files] if warm else []

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        replies = {}
        for client, ask in asks.items():
            of_round = ask.what == wire.ROUND
            if of_round and UNHEARD.get(ask.k) == client:
                continue
            reply = self.warm[client].answer(ask) if self.warm else super().ask({client: ask}, deadline)[client]
            assert reply.code == "", reply
            if not (of_round and UNSEEN.get(ask.k) == client):
                replies[client] = reply
        return replies


@contextmanager
def losses() -> Iterator[None]:
    """The simulator loses the same messages."""
    plain = LocalClients.exchange

    def exchange(self: LocalClients, algorithm: Method, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        numbers = np.arange(self.n)
        exchanged = plain(self, algorithm, down, active & (numbers != UNHEARD.get(k, -1)), k)
        assert exchanged is not None
        return replace(exchanged, answered=exchanged.answered & (numbers != UNSEEN.get(k, -1)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalClients, "exchange", exchange)
        yield


def built(name: str) -> Deployment:
    algorithm = EVERY[name].algorithm
    write = column_tables if name in VERTICAL else run_tables
    mode = list(all_modes(algorithm).values())[-1]  # proven where there is a proof
    tables = write(algorithm, mode, ROUNDS, least=1)
    return Deployment.build(tables | {"participation": {"name": "k-of-n", "k": 2}}, "run.toml")


WARM = ("led", "dp-admm", "fedlin", "admm-sharing")


@pytest.mark.parametrize(
    ("name", "warm"), [*((name, False) for name in EVERY), *((name, True) for name in WARM)],
    ids=[*EVERY, *(f"{name} warm" for name in WARM)],
)  # fmt: skip
def test_lost_questions_and_replies_leave_the_simulators_numbers(
    name: str, warm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "KEPT", 100)  # for `implied`
    made, files = built(name), (write_parties if name in VERTICAL else write_nodes)(tmp_path)
    result = serve(made, NAME, LossyPost(files, warm), tmp_path / "run")
    with losses():
        expected = simulated(made)
    assert result.history["answered"].tolist() == [len(answered) for answered in ANSWERED]
    assert {1, 2} == set(map(len, ANSWERED))
    assert np.array_equal(result.model, expected.model)
    assert result.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    if name in CASES:  # and it is what the answers on the clients' disks imply
        assert np.array_equal(result.model, implied(made, files, ANSWERED))
    assert not np.array_equal(result.model, simulated(made).model), "what got lost makes no difference"
