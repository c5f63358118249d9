"""How fast a server may ask: the owner's pace, whatever the clock says, and when to come back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.deploy import pace, wire
from sottovoce.deploy.limits import Limits
from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy import accounting
from tests.deploy.test_node import asks, at
from tests.deployments import SECURE, charged, write_nodes

START = 1_800_000_000.0  # a whole minute: 2027-01-15 08:00 UTC


class Clocks:
    """Both clocks of a machine: `pass_` lets time pass, `set_ahead` sets the wall clock alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed, self.ahead = 0.0, 0.0
        monkeypatch.setattr(pace, "wall", self.wall)
        monkeypatch.setattr(pace, "steady", lambda: self.passed)
        monkeypatch.setattr("sottovoce.ledger.file.time.time", self.wall)

    def wall(self) -> float:
        return START + self.passed + self.ahead

    def pass_(self, seconds: float) -> None:
        self.passed += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def paced(folder: Path, **limits: float) -> Path:
    return write_nodes(folder, modes=["proven"], **limits)[0]


@pytest.fixture
def first() -> Ask:
    return asks("dp-admm", SECURE, 500)[0]


def answers(node: Node, first: Ask, rounds: range, between: Callable[[], None] = lambda: None) -> list[Reply]:
    replies = []
    for k in rounds:
        replies.append(node.answer(at(first, k)))
        between()
    return replies


def test_the_101st_question_of_an_hour_is_refused_and_told_when_to_come_back(
    tmp_path: Path, clocks: Clocks, first: Ask
) -> None:
    file = paced(tmp_path, questions_per_hour=100)
    node = Node(file)
    replies = answers(node, first, range(1, 101), lambda: clocks.pass_(20))  # 33 minutes
    assert {reply.code for reply in replies} == {""}
    refused = node.answer(at(first, 101))
    assert refused.code == wire.PACE
    # The first was asked at 08:00:00, and is an hour old at 09:00:00; now it is 08:33:20.
    assert refused.why == "it answers 100 questions an hour and has. Ask again in 27 minutes (2027-01-15 09:00 UTC)"
    assert charged(file) == 100
    assert node.answer(at(first, 100)) == replies[-1]  # one that was answered is sent again, whenever
    assert f"round 101: pace: {refused.why}" in (node.folder / "node.log").read_text()
    clocks.pass_(3600 - 2000)
    assert node.answer(at(first, 101)).code == ""
    assert node.answer(at(first, 102)).code == wire.PACE  # one place was free, the next is in 20 seconds
    clocks.pass_(20)
    assert node.answer(at(first, 102)).code == ""


@pytest.mark.parametrize("hours", [-500.0, -0.5, 0.75, 2.0, 500.0])
def test_a_clock_that_is_set_while_the_client_runs_changes_nothing(
    hours: float, tmp_path: Path, clocks: Clocks, first: Ask
) -> None:
    node = Node(paced(tmp_path, questions_per_hour=3))
    assert {reply.code for reply in answers(node, first, range(1, 4))} == {""}
    clocks.ahead = hours * 3600
    assert {reply.code for reply in answers(node, first, range(4, 8), lambda: clocks.pass_(600))} == {wire.PACE}
    clocks.pass_(1200)
    assert {reply.code for reply in answers(node, first, range(4, 7))} == {""}
    assert node.answer(at(first, 7)).code == wire.PACE


def test_a_client_that_is_started_again_goes_on_counting_whether_its_clock_is_right_or_behind(
    tmp_path: Path, clocks: Clocks, first: Ask
) -> None:
    file = paced(tmp_path, questions_per_hour=2)
    answers(Node(file), first, range(1, 3))
    clocks.pass_(1800)
    for clocks.ahead in (0.0, -86400.0 * 400):
        assert Node(file).answer(at(first, 3)).code == wire.PACE
    clocks.ahead = 0.0
    clocks.pass_(1801)
    assert Node(file).answer(at(first, 3)).code == ""
    for name in ("ledger", "ledger.head"):  # without it nothing is answered, however much time has passed
        (file.parent / "node" / name).unlink()
    clocks.pass_(10 * 3600)
    assert Node(file).answer(at(first, 4)).code == wire.LEDGER


def test_a_day_gives_away_no_more_than_its_epsilon(tmp_path: Path, clocks: Clocks, first: Ask) -> None:
    probe = paced(tmp_path / "probe")
    Node(probe).answer(first)
    with FileLedger.open(probe.parent / "node" / "ledger") as ledger:
        (event,) = ledger.spent()
    of_five, of_six = (accounting.epsilon({event: count}, 1e-3) for count in (5, 6))
    file = paced(tmp_path / "paced", epsilon_per_day=(of_five + of_six) / 2)
    node = Node(file)
    assert {reply.code for reply in answers(node, first, range(1, 6), lambda: clocks.pass_(3600))} == {""}
    refused = node.answer(at(first, 6))
    assert (refused.code, charged(file)) == (wire.PACE, 5)
    assert refused.why.endswith("a day and has. Ask again in 1140 minutes (2027-01-16 08:00 UTC)")
    assert Node(file).answer(at(first, 6)).code == wire.PACE
    clocks.pass_(19 * 3600)
    assert node.answer(at(first, 6)).code == ""
    assert node.answer(at(first, 7)).code == wire.PACE
    too_little = paced(tmp_path / "little", epsilon_per_day=accounting.epsilon({event: 1}, 1e-3) * 0.9)
    assert Node(too_little).answer(first).code == wire.LIMITS  # it would never fit: no time to come back


def test_both_kinds_of_pace_hold_through_a_change_of_the_file(tmp_path: Path, clocks: Clocks, first: Ask) -> None:
    file = paced(tmp_path, questions_per_hour=5)
    node = Node(file)
    answers(node, first, range(1, 4))
    file.write_text(file.read_text().replace("questions_per_hour = 5", "questions_per_hour = 3"))
    node = node.renewed()
    assert node.answer(at(first, 4)).code == wire.PACE


def test_rounds_clip_and_row_bound_have_public_bounds(tmp_path: Path, first: Ask) -> None:
    narrow = Node(paced(tmp_path / "rounds", most_rounds=499)).answer(first)
    assert (narrow.code, narrow.why) == (
        wire.LIMITS,
        "this client's limits: 500 rounds are asked for, the most are 499",
    )
    clip = Node(paced(tmp_path / "clip", most_clip=0.5)).answer(first)
    assert (clip.code, clip.why) == (wire.LIMITS, "this client's limits: clip 1 is above 0.5")
    bound = Node(paced(tmp_path / "bound")).answer(replace(first, row_bound=1e200))
    assert (bound.code, "row_bound 1e+200 is not from" in bound.why) == (wire.LIMITS, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"questions_per_hour": -1}, "questions_per_hour must be"),
        ({"epsilon_per_day": 3.0}, "at most epsilon, 2"),
        ({"epsilon_per_day": 1.0, "modes": ("proven", "none")}, "only the mode 'proven'"),
        ({"most_rounds": 0}, "most_rounds must be"),
        ({"most_clip": 0.0}, "most_clip must be"),
    ],
)
def test_limits_that_make_no_sense_are_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Limits(2.0, 1e-5, ("dp-admm",), ("logistic",), **given)  # type: ignore[arg-type]
