"""How questions are carried over a Flower grid, and what of the replies is believed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from sottovoce.core.check import InvalidInput
from sottovoce.deploy import wire
from sottovoce.deploy.flower import post as posts
from sottovoce.deploy.flower import superlink
from sottovoce.deploy.flower.post import FlowerPost
from sottovoce.deploy.flower.records import from_records, replied, to_records
from sottovoce.deploy.wire import Ask, Hello, Reply, Status


@pytest.fixture(autouse=True)
def process_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process that Flower started has."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Lossy:
    """A grid with one node, some of whose messages are lost: fates are "lost", "unstored" (an error) or "gone"."""

    def __init__(self, *fates: str) -> None:
        self.asked: list[Any] = []
        self._fates, self._replies, self._here = list(fates), [], [7]

    def get_node_ids(self) -> list[int]:
        return self._here

    def push_messages(self, messages: Any) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"{len(self.asked)}"  # as Flower's own grid does
            self.asked.append(from_records(message.content, *wire.QUESTIONS))
            fate = self._fates.pop(0) if self._fates else ""
            status = Status("north", 5, 2, 0.0, 1.0, 1e-3)
            said = status if isinstance(self.asked[-1], Hello) else Reply(up={"x": ((1,), bytes(8))})
            lost = Error(ErrorCode.MESSAGE_UNAVAILABLE, "") if fate != "gone" else Error(ErrorCode.NODE_UNAVAILABLE, "")
            if fate != "lost":
                self._replies.append(Message(lost if fate else to_records(said), reply_to=message))
            self._here = [] if fate == "gone" else self._here
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids: Any) -> list[Any]:
        return [reply for reply in self._replies if reply.metadata.reply_to_message_id in ids]


@pytest.mark.parametrize("fates", [[], ["lost"], ["unstored"], ["lost", "unstored"]], ids=str)
def test_what_was_lost_on_its_way_is_asked_for_again(fates: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same question, for a client gives the same answer to it."""
    monkeypatch.setattr(posts, "_SOON", 0.1)
    grid: Any = Lossy("", *fates)
    post = FlowerPost(grid, ("north",), deadline=6.0)
    assert post.statuses(wait=4.0)[0].size == 5
    ask = Ask("0" * 32, 0, 1, "")
    assert post.ask({0: ask}, deadline=6.0)[0].up == {"x": ((1,), bytes(8))}
    assert grid.asked == [Hello()] + [ask] * (1 + len(fates))


def test_a_node_that_is_gone_is_not_waited_for() -> None:
    grid: Any = Lossy("", "gone")
    post = FlowerPost(grid, ("north",), deadline=600.0)
    assert post.statuses(wait=4.0)[0].size == 5
    assert post.ask({0: Ask("0" * 32, 0, 1, "")}, deadline=600.0)[0].code == wire.UNREACHABLE
    assert post.ask({0: Ask("0" * 32, 0, 1, "")}, deadline=600.0)[0].code == wire.ABSENT


@pytest.mark.parametrize("numbers", [0, 1, 100, 2**19, 2**19 + 1, 3 * 2**19], ids=str)
def test_messages_travel_whole_and_in_few_pieces(numbers: int) -> None:
    """Values and small arrays in one record; large arrays in parts that our SuperLink takes."""
    data = np.arange(numbers, dtype="<f8").tobytes()
    ask = Ask("0" * 32, 3, 1, "task", "events", 1.5, wire.MODEL, {"z": ((1, numbers), data), "none": ((0,), b"")})
    records = to_records(ask)
    assert from_records(records, *wire.QUESTIONS) == ask
    assert len(records) == (1 if len(data) <= 2**22 else 1 + -(-len(data) // 2**22))
    assert all(len(record.deflate()) < superlink.LARGEST_PIECE for record in records.values())
    with pytest.raises(InvalidInput, match="unknown kind 'ask'"):
        from_records(records, *wire.REPLIES)


@pytest.mark.parametrize("layout", ["", "{", "5", "[5]", '[["x", [1], -8]]', '[["x", [1], 16]]', '[["x", 5, 8]]',
                                    '[["x", [1e999], 8]]', "[" * 10**5, "[]"])  # fmt: skip
def test_arrays_that_are_not_what_they_are_said_to_be_are_refused(layout: str) -> None:
    values, data = wire.taken_apart(Reply(up={"x": ((1,), bytes(8))}))
    assert wire.put_together(values, data, Reply).up == {"x": ((1,), bytes(8))}
    with pytest.raises(InvalidInput):
        wire.put_together(values | {"layout": layout}, data, Reply)


def message(said: Any) -> Any:
    """A reply as Flower brings it, of these records."""
    return type("Message", (), {"has_content": lambda self: True, "content": said})()


def test_a_reply_is_bounded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its arrays may be small, each of its texts short."""
    many = {f"{number}": ((100,), bytes(800)) for number in range(10)}
    assert replied(message(to_records(Reply(up=many)))) == Reply(up=many)
    monkeypatch.setattr(wire, "MOST_BYTES", 7999)
    reply: Any = replied(message(to_records(Reply(up=many))))
    assert (reply.code, reply.up) == (wire.BAD_ANSWER, {})
    assert "at most 7999 bytes of arrays, got 8000" in reply.why
    monkeypatch.setattr(wire, "LONGEST_TEXT", 100)
    reply = replied(message(to_records(Reply("a" * 50, "b" * 51))))
    assert reply.code == wire.BAD_ANSWER


def test_what_a_node_says_is_fit_for_a_terminal(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """No escape sequence and no second line, however it is refused, and not without end."""
    asked = Ask("0" * 32, 0, 1, "", "\x1b[2J")
    for said in (Reply("busy\x1b[2J", f"come\nback later{'!' * 1000}"), asked, replace(asked, task="\n" * 2**19)):
        grid: Any = type("Grid", (), {"get_node_ids": lambda self: []})()
        post = FlowerPost(grid, ("north",), deadline=2.0)
        monkeypatch.setattr(post, "_exchange", lambda *_, said=said: {7: replied(message(to_records(said)))})
        assert post._meet([7], 1.0) == {}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert told[0].startswith("a node was left out: busy?[2J: come?back later!!!")
    assert all(text.isprintable() and len(text) < 400 for text in told)
