"""Which classes there are is declared by a node's owner: one record must neither renumber the others nor be counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.deploy import wire
from sottovoce.deploy.node import Node
from sottovoce.experiment.tables import to_toml
from tests.deploy.test_node import asks
from tests.deployments import LIMITS, SEEDED, charged


def node(folder: Path, labels: list[str], declared: list[str], losses: list[str]) -> Path:
    folder.mkdir()
    np.savez(folder / "rows.npz", X=np.full((len(labels), 4), 0.1), y=np.array(labels))
    data: dict[str, Any] = {"npz": "rows.npz", "row_bound": 1.0} | ({"labels": declared} if declared else {})
    tables = {"node": {"name": "north"}, "data": data, "limits": LIMITS | {"losses": losses}}
    (folder / "node.toml").write_text(to_toml(tables))
    return folder / "node.toml"


def test_a_node_for_classification_declares_its_classes(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="needs labels = the classes there can be"):
        Node(node(tmp_path / "a", ["no", "yes"] * 6, [], ["logistic"])).inspect()
    with pytest.raises(InvalidInput, match="labels must name every class, and row 12 has another"):
        Node(node(tmp_path / "b", [*["no", "yes"] * 5, "no", "odd"], ["no", "yes"], ["logistic"])).inspect()


def test_no_record_renumbers_the_others(tmp_path: Path) -> None:
    """With codes made of the labels that are there, a new smallest label would turn every other one round."""
    declared = ["a", "b", "c"]
    own = [Node(node(tmp_path / f"{i}", ["b", "c"] * 5 + last, declared, ["softmax"]))._data for i, last in
           enumerate((["b", "c"], ["a", "c"]))]  # fmt: skip
    from sottovoce.problems.losses import Softmax

    codes = [each.coded(["b", "c"], Softmax(3)).tolist() for each in own]
    assert codes == [[1.0, 2.0], [1.0, 2.0]]


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_a_server_cannot_count_the_classes(tmp_path: Path, classes: int) -> None:
    """What is refused follows from the declaration: the same for clients with three and with four of the classes."""
    seen = []
    question = asks("dp-sgd", SEEDED)[0]
    task = question.task.replace('loss = "logistic"', f'loss = "softmax"\nclasses = {classes}')
    width = 4 * classes
    down = {"w": ((1, width), np.zeros(width).tobytes())}
    for number, last in enumerate(("c", "d")):
        file = node(tmp_path / f"{number}", [*"abcabcabc", last], list("abcd"), ["softmax"])
        reply = Node(file).answer(wire.Ask(question.experiment, 0, 1, task, question.events, 1.0, wire.ROUND, down))
        seen.append((reply.code, reply.why, sorted(reply.up), charged(file)))
    assert seen[0] == seen[1]
    assert (seen[0][0] == "") == (classes == 4)
