"""Replies leave at fixed times. The clock is a fake one: no test waits."""

from pathlib import Path

import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.deploy import pace
from sottovoce.deploy.limits import Limits
from sottovoce.deploy.node import Node
from tests.deploy.test_node import asks, at
from tests.deployments import SECURE, write_nodes


class Clock:
    """Seconds that pass by working and sleeping only. Sleeps end early, as they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 100.0, list[float]()
        monkeypatch.setattr(pace, "steady", lambda: self.now)
        monkeypatch.setattr(pace, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds if seconds < 1e-3 else 0.75 * seconds

    def work(self, seconds: float) -> str:
        self.now += seconds
        return "done"


@pytest.mark.parametrize(
    ("took", "leaves"), [(0.0, 2.0), (0.001, 2.0), (1.9, 2.0), (2.0, 2.0), (2.001, 4.0), (7.0, 8.0)]
)
def test_a_reply_leaves_at_a_multiple(took: float, leaves: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert pace.at_fixed_times(2.0, lambda: clock.work(took)) == "done"
    assert clock.now - 100.0 == pytest.approx(leaves, abs=1e-9)
    assert clock.now - 100.0 >= leaves - 1e-9


def test_without_a_limit_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace.at_fixed_times(0.0, lambda: clock.work(0.3))
    assert (clock.now, clock.slept) == (100.3, [])


def test_answers_repeats_and_refusals_of_a_node_leave_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, node = Clock(monkeypatch), Node(write_nodes(tmp_path, answer_after=5.0)[0])
    ask = asks("dp-admm", SECURE)[0]
    plain = Node._answer

    def slow(self: Node, question: object) -> object:
        clock.work(1.7)
        return plain(self, question)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "_answer", slow)
    codes = []
    for k, question in enumerate((ask, ask, at(ask, 2), at(ask, 99))):
        codes.append(node.answer(question).code)
        assert clock.now == pytest.approx(100.0 + 5.0 * (k + 1), abs=1e-6)
    assert codes[:3] == ["", "", ""]
    assert codes[3]


def test_a_limit_must_be_a_time() -> None:
    with pytest.raises(InvalidInput, match="answer_after must be >= 0"):
        Limits(1.0, 1e-5, ("dp-admm",), ("logistic",), answer_after=-1.0)
