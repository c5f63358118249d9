"""A coordinator that carries other bytes than it was given: chunks of other pairs, of other attempts, or too few."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sottovoce.deploy import product_terms, wire
from sottovoce.deploy.node import Node
from sottovoce.deploy.product_terms import FROM_DEALER, SIGNED, pack_place
from sottovoce.deploy.wire import Ask, Reply
from tests.deployments import charged
from tests.multiplied import Attempted, asked


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Attempted:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(product_terms, "CHUNK_BYTES", 500)
        return Attempted(tmp_path_factory.mktemp("three"), 3)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_terms, "CHUNK_BYTES", 500)


def sent(made: Attempted, m: int, pair: int, chunk: int) -> bytes:
    """What owner m sent as this chunk of its masked table."""
    place = pack_place(pair, chunk)
    return next(
        wire.bytes_of(reply.up)
        for client, ask, reply in asked(made.post, wire.SEND)
        if client == m and wire.bytes_of(ask.down) == place
    )


# Pairs: 0 is (bank, shop), 1 is (bank, map), 2 is (shop, map). Bank and map have tables of the same size.
CARRIED = {
    "a chunk of another pair": (1, pack_place(0, 0), lambda made: sent(made, 2, 2, 0)),
    "another chunk of the same table": (1, pack_place(0, 1), lambda made: sent(made, 0, 0, 0)[:]),
    "its own chunk, sent back": (0, pack_place(1, 0), lambda made: sent(made, 0, 1, 0)),
    "the chunk for another owner": (2, pack_place(1, 0), lambda made: sent(made, 0, 0, 0)),
    "the signature of another pair": (1, pack_place(0, SIGNED), lambda made: sent(made, 2, 2, SIGNED)),
    "its own signature, sent back": (0, pack_place(0, SIGNED), lambda made: sent(made, 0, 0, SIGNED)),
    "a chunk as W_2": (1, pack_place(0, FROM_DEALER), lambda made: sent(made, 0, 0, 0)),
    "a changed bit": (1, pack_place(0, 0), lambda made: flipped(sent(made, 0, 0, 0))),
    "a shorter chunk": (1, pack_place(0, 0), lambda made: sent(made, 0, 0, 0)[:-16]),
}


def flipped(box: bytes) -> bytes:
    return bytes([box[0] ^ 1]) + box[1:]


@pytest.mark.parametrize("what", CARRIED)
def test_another_box_is_not_taken(three: Attempted, what: str) -> None:
    m, place, box = CARRIED[what]
    refused = three.asks(m, wire.TAKE, place + box(three))
    assert refused.code == wire.BAD_ASK, refused
    assert charged(three.files[m]) == 0


def test_seeds_reach_the_dealer_they_were_sealed_for(three: Attempted) -> None:
    """Seeds of another pair, or the two of a pair exchanged, would make a W_2 that fits other masks."""
    deals = {m: wire.bytes_of(three.last(wire.DEAL, m).down) for m in range(3)}  # 2 deals to (0, 1), 1 to (0, 2)
    other = deals[2][:8] + deals[1][8:]
    exchanged = deals[2][:8] + deals[2][8:][len(deals[2][8:]) // 2 :] + deals[2][8:][: len(deals[2][8:]) // 2]
    for content in (other, exchanged, deals[2][:-1]):
        assert three.answer(2, replace(three.last(wire.DEAL, 2), down=wire.of_bytes(content))).code == wire.BAD_ASK


def again(made: Attempted, m: int, name: str = "1") -> tuple[Ask, Reply]:
    """Owner m begins another attempt."""
    ask = made.last(wire.BEGIN, m)
    terms = json.loads(wire.bytes_of(ask.down))
    other = json.dumps([name * 64, *terms[1:]]).encode()
    ask = replace(ask, down=wire.of_bytes(other))
    return ask, made.answer(m, ask)


def test_two_attempts_are_not_mixed(tmp_path: Path) -> None:
    """One owner is still in the first attempt, the other in the second: nothing of one is read in the other."""
    made = Attempted(tmp_path, 2)
    old = {what: made.last(what, 0) for what in (wire.AGREE, wire.SEND, wire.TAKE)}
    _, said = again(made, 0)
    new = wire.bytes_of(said.up)
    assert made.answer(0, old[wire.SEND]).code == wire.SET_UP
    assert made.answer(0, old[wire.TAKE]).code == wire.SET_UP
    assert made.answer(0, made.round_ask(0)).code == wire.SET_UP
    everyone = wire.bytes_of(old[wire.AGREE].down)
    for announced in (everyone, new + everyone[len(new) :]):  # its own of the first attempt; the other's of it
        refused = made.answer(0, replace(old[wire.AGREE], down=wire.of_bytes(announced)))
        assert (refused.code, "signed by the key" in refused.why) == (wire.BAD_ASK, True)
    assert charged(made.files[0]) == 0


def test_an_attempt_of_the_same_name_has_other_secrets(tmp_path: Path) -> None:
    """First one, then another, then the first name again: what was announced under it before is void."""
    made = Attempted(tmp_path, 2)
    begin, agree = made.last(wire.BEGIN, 0), made.last(wire.AGREE, 0)
    again(made, 0)
    assert not made.answer(0, begin).code
    refused = made.answer(0, agree)
    assert (refused.code, "announced something else" in refused.why) == (wire.SET_UP, True)


def test_owners_who_are_told_different_things_cannot_read_each_other(tmp_path: Path) -> None:
    """Another order of the owners, another dealer, another task: an announcement is for all of it."""
    made = Attempted(tmp_path, 3)
    others = []
    for m in (0, 1):
        ask = made.last(wire.BEGIN, m)
        _, names, dealers = json.loads(wire.bytes_of(ask.down))
        names = [names[0], names[1], names[2]] if m else [names[0], "other", names[2]]
        others.append(replace(ask, down=wire.of_bytes(json.dumps(["2" * 64, names, dealers]).encode())))
    text = made.files[0].read_text()
    made.files[0].write_text(text + f'other = "{"ab" * 32}"\n')
    said = [wire.bytes_of(made.answer(m, ask).up) for m, ask in enumerate(others)]
    third = replace(others[1], client=2, task=made.last(wire.BEGIN, 2).task)
    said.append(wire.bytes_of(made.answer(2, third).up))
    agree = replace(made.last(wire.AGREE, 1), down=wire.of_bytes(b"".join(said)))
    refused = made.answer(1, agree)
    assert (refused.code, "signed by the key" in refused.why) == (wire.BAD_ASK, True)


@pytest.mark.parametrize("missing", [pack_place(0, 0), pack_place(0, SIGNED), pack_place(0, FROM_DEALER)])
def test_a_table_that_is_not_whole_is_not_answered(tmp_path: Path, missing: bytes) -> None:
    made = Attempted(tmp_path, 2)
    chunk = int.from_bytes(missing[4:], "big")
    next((made.files[1].parent / "node" / "products").rglob(f"box-0-{chunk}")).unlink()
    refused = made.answer(1, made.round_ask(1))
    assert (refused.code, "is not complete" in refused.why) == (wire.SET_UP, True)
    assert charged(made.files[1]) == 0


def test_there_is_one_round(tmp_path: Path) -> None:
    """The same share with other noise, as another round, would be a second answer to one masked table."""
    made = Attempted(tmp_path, 2)
    task: Any = made.round_ask(0).task.replace("rounds = 1", "rounds = 5")
    second = replace(made.round_ask(0), k=2)
    for ask in (second, replace(second, task=task)):
        assert made.answer(0, ask).code == wire.BAD_ASK
    assert not made.answer(0, made.round_ask(0)).code
    assert made.answer(0, second).code == wire.BAD_ASK
    assert charged(made.files[0]) == 1


def test_forgetting_begins_nothing_anew(tmp_path: Path) -> None:
    """A server that says too early that it has its result, or says so twice, gets no second attempt by it."""
    made = Attempted(tmp_path, 2)
    assert not made.asks(0, wire.FORGET, b"").code
    assert not made.answer(0, made.round_ask(0)).code, "before the share is made, nothing is forgotten"
    before = Node(made.files[0]).answer(made.round_ask(0))
    for _ in range(2):
        assert not made.asks(0, wire.FORGET, b"").code
    assert made.answer(0, made.round_ask(0)) == before
    assert again(made, 0)[1].code == wire.ANSWERED
    assert made.answer(0, made.last(wire.BEGIN, 0)).code == wire.ANSWERED
    assert made.answer(0, made.last(wire.SEND, 0)).code == wire.SET_UP
    assert charged(made.files[0]) == 1
