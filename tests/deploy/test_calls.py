"""How much work one answer of a node is, once the run is known to it: counted in calls, so no clock is needed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import Ask
from sottovoce.experiment.tables import to_toml
from tests.counting import calls_of_the_library
from tests.deploy.test_node import asks, at
from tests.deployments import LIMITS, SECURE, SEEDED


def node_with_rows(home: Path, count: int) -> Node:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, 4))
    np.savez(home / "rows.npz", X=X / np.linalg.norm(X, axis=1)[:, None], y=np.where(X[:, 0] > 0, 1.0, -1.0))
    data = {"npz": "rows.npz", "labels": ["-1", "1"], "row_bound": 1.0}
    (home / "node.toml").write_text(to_toml({"node": {"name": "north"}, "data": data, "limits": LIMITS}))
    return Node(home / "node.toml")


def calls(node: Node, ask: Ask) -> int:
    reply, seen = calls_of_the_library(lambda: node.answer(ask))
    assert reply.code == ""
    return seen


@pytest.mark.parametrize("privacy", [SECURE, SEEDED], ids=["secure", "seeded"])
def test_a_warm_answer_takes_few_calls_and_later_rounds_no_more(tmp_path: Path, privacy: Any) -> None:
    """The task is read, labels are coded and the door is built at the first question; no past row is read again."""
    node = node_with_rows(tmp_path, 800)
    ask = asks("dp-admm", privacy, 12)[0]
    counted = [calls(node, at(ask, k)) for k in range(1, 13)]
    assert counted[0] > 2 * counted[1]
    assert max(counted[1:]) <= 500
    assert counted[11] <= counted[1] + 20  # noise that is drawn again takes two more


def test_more_rows_take_no_more_calls(tmp_path: Path) -> None:
    ask, counted = asks("dp-admm", SECURE, 2)[0], []
    for rows in (50, 800):
        home = tmp_path / f"{rows}"
        home.mkdir()
        node = node_with_rows(home, rows)
        assert node.answer(ask).code == ""
        counted.append(calls(node, at(ask, 2)))
    assert counted[1] <= counted[0] + 20  # noise that is drawn again takes two more
