"""Rounds that go as they should: with everybody, with drop-outs, with too few; what is on disk, and what no more."""

import hashlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.deploy.aggregation import messages, shamir
from sottovoce.deploy.aggregation.client import Client
from sottovoce.deploy.aggregation.plan import Plan
from sottovoce.deploy.aggregation.server import Server, Unopened
from sottovoce.deploy.aggregation.store import Folder, start_of_machine
from sottovoce.deploy.limits import Refused
from tests.deploy.aggregation.group import ATTEMPT, QUESTION, Group, plan_for, signing_key


@pytest.mark.parametrize(("n", "least", "colluders"), [(2, 2, 0), (3, 2, 1), (5, 3, 1), (10, 10, 4)])
def test_the_whole_roster_opens_the_sum_in_two_exchanges(n: int, least: int, colluders: int) -> None:
    group = Group(plan_for(n, least, colluders, rounds=2), width=7)
    group.set_up()
    for k in (1, 2):
        assert np.array_equal(group.opened(k), group.sum_of(range(n), k))


@pytest.mark.parametrize("away", [away for count in (1, 2) for away in combinations(range(5), count)])
def test_the_sum_of_those_who_are_left_opens_in_three(away: tuple[int, ...]) -> None:
    group = Group(plan_for(5, 3, 0))
    group.set_up()
    assert np.array_equal(group.opened(1, absent=away), group.sum_of(set(range(5)) - set(away), 1))


@pytest.mark.parametrize(("absent", "gone"), [((), (0, 1)), ((4,), (2,))])
def test_a_quorum_is_enough_to_open_what_others_uploaded(absent: tuple[int, ...], gone: tuple[int, ...]) -> None:
    group = Group(plan_for(5, 3, 0))
    group.set_up()
    assert np.array_equal(group.opened(1, absent, gone), group.sum_of(set(range(5)) - set(absent), 1))


@pytest.mark.parametrize(("absent", "gone"), [((0, 1, 2), ()), ((), (0, 1, 2)), ((0,), (1, 2))])
def test_too_few_open_nothing_and_the_next_round_is_as_good_as_new(
    absent: tuple[int, ...], gone: tuple[int, ...]
) -> None:
    group = Group(plan_for(5, 3, 0, rounds=2))
    group.set_up()
    with pytest.raises(Unopened, match="nothing is opened"):
        group.opened(1, absent, gone)
    before = {i: group.values.get((i, 1)) for i in range(5)}
    assert np.array_equal(group.opened(2), group.sum_of(range(5), 2))
    assert all(u is None or not np.array_equal(u, group.values[i, 2]) for i, u in before.items())


def test_a_client_that_was_away_comes_back() -> None:
    group = Group(plan_for(4, 3, 0, rounds=3))
    group.set_up()
    group.opened(1, absent=[2])
    group.opened(2, absent=[2])
    assert np.array_equal(group.opened(3), group.sum_of(range(4), 3))


def test_numbers_are_added_modulo_2_to_the_64_from_negative_ones_too() -> None:
    group = Group(plan_for(3, 3, 0), width=2)
    group.set_up()
    exact = {0: [-5, 2**63 - 1], 1: [3, 2**63 - 1], 2: [-(2**63), 7]}
    group.numbers = lambda i, k: np.array([u % 2**64 for u in exact[i]], dtype=np.uint64)
    total = group.opened(1)
    assert [int(u) for u in total] == [sum(u[c] for u in exact.values()) % 2**64 for c in range(2)]


# -------------------------------------------------------------------------------------------------- what is kept, where


def test_secrets_are_deleted_when_the_protocol_says(tmp_path: Path) -> None:
    plan = plan_for(3, 2, 0, rounds=3)
    clients = [Client(plan, signing_key(i), Folder(tmp_path / str(i))) for i in range(3)]

    def files() -> set[str]:
        return {file.name for file in (tmp_path / "0" / start_of_machine()).iterdir()}

    def all_of(kind: str, *rounds: int) -> set[str]:
        return {f"{kind}-{k:06d}" for k in rounds}

    server = Server(plan, {i: client.announce(ATTEMPT) for i, client in enumerate(clients)})
    assert files() == {"state", "announced"}
    boxes = {i: client.share(server.announcements) for i, client in enumerate(clients)}
    assert files() == {"state", "shared"} | all_of("secrets", 1, 2, 3)
    for i, box in server.deliver(boxes).items():
        clients[i].receive(server.run, box)
    assert files() == {"state"} | all_of("secrets", 1, 2, 3) | all_of("shares", 1, 2, 3)  # e_i is gone
    for client in clients:
        client.upload(server.run, 1, QUESTION, 3, lambda: np.zeros(3, np.uint64))
    assert files() == {"state"} | all_of("secrets", 2, 3) | all_of("shares", 1, 2, 3)
    clients[0].stand_for(server.run, 1, frozenset({0, 1}))
    assert files() == {"state"} | all_of("secrets", 2, 3) | all_of("shares", 1, 2, 3)
    clients[0].upload(server.run, 2, QUESTION, 3, lambda: np.zeros(3, np.uint64))
    assert files() == {"state"} | all_of("secrets", 3) | all_of("shares", 2, 3)
    clients[0].stand_for(server.run, 2, plan.everyone)
    assert files() == {"state"} | all_of("secrets", 3) | all_of("shares", 3)
    clients[0].announce(b"b" * 32)
    assert files() == {"state", "announced"}


def test_files_that_a_crash_left_half_written_are_deleted_too(tmp_path: Path) -> None:
    client, folder = Client(plan_for(2, 2, 0), signing_key(0), Folder(tmp_path)), tmp_path / start_of_machine()
    client.announce(ATTEMPT)
    (folder / ".shares-000001.0a1b.part").write_bytes(b"half of a secret")
    client.announce(b"b" * 32)
    assert {file.name for file in folder.iterdir()} == {"state", "announced"}


def test_what_was_written_before_the_machine_was_started_again_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was put back to an earlier state would let a client upload twice under the same masks."""
    store = Folder(tmp_path / "sums")
    store.write("state", b"x")
    assert Folder(tmp_path / "sums").read("state") == b"x"
    boot = tmp_path / "boot_id"
    boot.write_text("another start")
    monkeypatch.setattr("sottovoce.deploy.aggregation.store._BOOT", boot)
    assert Folder(tmp_path / "sums").read("state") is None
    assert not [file for file in (tmp_path / "sums").rglob("*") if file.is_file()]
    boot.unlink()
    assert start_of_machine() == "unknown"


def test_an_upload_is_asked_for_once_and_sent_again_as_it_was() -> None:
    group, drawn = Group(plan_for(3, 3, 0, rounds=2)), []
    group.set_up()

    def numbers() -> np.ndarray:
        drawn.append(group.rng.integers(0, 2**64, 3, dtype=np.uint64))
        return drawn[-1]

    first = group.client(0).upload(group.run, 1, QUESTION, 3, numbers)
    assert group.client(0).upload(group.run, 1, QUESTION, 3, numbers) == first
    assert len(drawn) == 1
    group.client(0).upload(group.run, 2, QUESTION, 3, numbers)
    with pytest.raises(Refused, match="round 1 is over"):  # the stored bytes are of round 2 now
        group.client(0).upload(group.run, 1, QUESTION, 3, numbers)
    assert len(drawn) == 2


def test_nothing_is_charged_before_all_is_checked() -> None:
    group = Group(plan_for(3, 3, 0))
    group.set_up()
    for run, k, code in [(b"x" * 32, 1, "set-up"), (group.run, 2, "set-up"), (group.run, 0, "late")]:
        with pytest.raises(Refused) as refused:
            group.client(0).upload(run, k, QUESTION, 3, lambda: pytest.fail("charged"))
        assert refused.value.code == code


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros(2, np.uint64), np.zeros((1, 3), np.uint64)])
def test_what_is_no_vector_of_words_is_not_uploaded(wrong: np.ndarray) -> None:
    group = Group(plan_for(3, 3, 0))
    group.set_up()
    with pytest.raises(InvalidInput, match="3 unsigned integers"):
        group.client(0).upload(group.run, 1, QUESTION, 3, lambda: wrong)


def test_every_question_may_come_twice() -> None:
    """Messages are lost: the second time it gets the same bytes, and nothing happens again."""
    group = Group(plan_for(4, 3, 0))

    def twice(ask: Callable[[Client], bytes | None], i: int) -> bytes:
        first, second = (ask(group.client(i)) for _ in range(2))
        assert first == second
        return first or b""

    server = Server(group.plan, {i: twice(lambda client: client.announce(ATTEMPT), i) for i in range(4)})
    group.server = server
    boxes = {i: twice(lambda client: client.share(server.announcements), i) for i in range(4)}
    with pytest.raises(Refused, match="gone on since"):
        group.client(0).announce(ATTEMPT)
    for i, box in server.deliver(boxes).items():
        twice(lambda client, box=box: client.receive(server.run, box), i)
    with pytest.raises(Refused, match="gone on since"):
        group.client(0).announce(ATTEMPT)
    uploads = {i: group.upload(i, 1) for i in range(3)}
    named = frozenset(uploads)
    signed = {i: twice(lambda client: client.stand_for(server.run, 1, named), i) for i in named}
    signatures = server.signatures(1, named, signed)
    answers = {i: twice(lambda client: client.reveal(server.run, 1, named, signatures), i) for i in named}
    assert np.array_equal(server.open(1, named, uploads, group.read(answers)), group.sum_of(named, 1))


def test_a_later_set_up_goes_on_with_later_rounds() -> None:
    group = Group(plan_for(3, 2, 0, rounds=2, first=101))
    group.set_up()
    for k in (100, 103):
        with pytest.raises(Refused, match="rounds 101 to 102"):
            group.upload(0, k)
    assert np.array_equal(group.opened(101), group.sum_of(range(3), 101))
    assert np.array_equal(group.opened(102, absent=[2]), group.sum_of(range(2), 102))


def test_uploads_may_be_of_another_width_in_every_round() -> None:
    group = Group(plan_for(3, 2, 0, rounds=2))
    group.set_up()
    for k, width in ((1, 9), (2, 1)):
        group.width = width
        assert np.array_equal(group.opened(k), group.sum_of(range(3), k))


# ------------------------------------------------------------------------------------------------------------ the plan


@pytest.mark.parametrize("n", range(2, 12))
def test_two_sets_never_both_have_a_quorum(n: int) -> None:
    """Each honest client signs one set, colluders sign all: 2 (Q − t) > n − t. And Q is the least such number."""
    for t in range(n):
        least = min(n, max(2, t + 1))
        plan = plan_for(n, least, t) if t < least else None
        if plan is not None:
            assert 2 * (plan.quorum - t) > n - t >= 2 * (plan.quorum - 1 - t)
            assert n - plan.quorum + t < plan.quorum  # so that the fast path is safe


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"least": 6}, "at most the number of clients"),
        ({"least": 1}, "least must be a whole number >= 2"),
        ({"colluders": 3}, "colluders must be below least"),
        ({"colluders": -1}, "colluders"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 101}, "at most 100"),
        ({"first": 0}, "first"),
        ({"first": 2**31}, "rounds must be <"),
        ({"settings": b""}, "settings"),
        ({"roster": (b"k" * 32,) * 2}, "one owner would count as two"),
        ({"roster": (b"k" * 32,)}, "2 to 1000 clients"),
        ({"roster": (b"k", b"l", b"m")}, "keys must have 32 bytes"),
    ],
)
def test_a_plan_that_does_not_hold_is_refused(change: dict, rule: str) -> None:
    plan = plan_for(5, 3, 1)
    given = {name: getattr(plan, name) for name in ("settings", "roster", "least", "colluders", "rounds", "first")}
    with pytest.raises(InvalidInput, match=rule):
        Plan(**given | change)


def test_every_number_of_the_plan_and_every_pinned_key_is_in_its_digest() -> None:
    plan = plan_for(5, 3, 1)
    others = [plan_for(5, 4, 1), plan_for(5, 3, 2), plan_for(5, 3, 1, rounds=2), plan_for(5, 3, 1, first=4)]
    others += [plan_for(6, 3, 1), plan_for(5, 3, 1, key=1), Plan(b"t" * 32, plan.roster, 3, 1, 1)]
    others += [Plan(plan.settings, plan.roster[::-1], 3, 1, 1)]
    assert len({each.digest for each in [plan, *others]}) == len(others) + 1
    assert hashlib.sha256(b"").digest_size == len(plan.digest)


def test_a_client_that_is_not_on_the_roster_takes_no_part() -> None:
    with pytest.raises(InvalidInput, match="on the roster"):
        Client(plan_for(3, 3, 0), signing_key(9), Group(plan_for(3, 3, 0)).stores[0])


# --------------------------------------------------------------------------------------------- messages from outside


def test_messages_of_another_length_are_refused() -> None:
    group = Group(plan_for(9, 5, 1, rounds=2))
    server = group.set_up()
    plan = group.plan
    named = frozenset({0, 1, 8})
    assert messages.read_set(plan, messages.pack_set(plan, named)) == named
    good = messages.pack_signatures(plan, named, {3: b"s" * 64, 0: b"t" * 64})
    assert messages.read_signatures(plan, good) == (named, {0: b"t" * 64, 3: b"s" * 64})
    readers = [
        (lambda content: messages.read_set(plan, content), messages.pack_set(plan, named)),
        (lambda content: messages.read_signatures(plan, content), good),
        (lambda content: messages.read_numbers(content, 3), bytes(24)),
        (lambda content: messages.read_shares("x", content, 9), bytes(9 * 32)),
        (
            lambda content: messages.Announcement.read(plan, 0, content),
            server.announcements[: messages.Announcement.length(plan)],
        ),
    ]
    for read, content in readers:
        read(content)
        for wrong in (b"", content[:-1], content + b"\0", content * 2):
            with pytest.raises(InvalidInput, match="must have"):
                read(wrong)
    with pytest.raises(InvalidInput, match="below 9"):
        messages.read_set(plan, b"\0\2")
    with pytest.raises(InvalidInput, match="numbers of the field"):
        messages.read_shares("x", shamir.to_bytes(shamir.PRIME), 1)


def test_a_set_up_without_somebody_is_none() -> None:
    group = Group(plan_for(3, 3, 0))
    announced = group.announced()
    with pytest.raises(InvalidInput, match=r"\[1\] are missing"):
        Server(group.plan, {i: announced[i] for i in (0, 2)})
    server = Server(group.plan, announced)
    boxes = {i: group.client(i).share(server.announcements) for i in range(3)}
    with pytest.raises(InvalidInput, match="those of 2 are missing"):
        server.deliver({i: boxes[i] for i in (0, 1)})


def test_the_server_says_whose_announcement_is_false() -> None:
    group = Group(plan_for(3, 3, 0))
    announced = group.announced()
    with pytest.raises(InvalidInput, match=r"S1 of client 2: must be signed by its pinned key"):
        Server(group.plan, announced | {2: announced[2][:-1] + bytes([announced[2][-1] ^ 1])})


def _false(answer: bytes, j: int) -> bytes:
    """An answer with another number in place of the share of b_j or p_j."""
    return answer[: 32 * j] + shamir.to_bytes(5) + answer[32 * j + 32 :]


@pytest.mark.parametrize("absent", [(), (5,)])
def test_who_gives_a_false_share_is_named_and_the_sum_opened_without(absent: tuple[int, ...]) -> None:
    """Q is 4 of 6: with all six there may be two liars, with five one."""
    group = Group(plan_for(6, 5, 1))
    server = group.set_up()
    assert group.plan.quorum == 4
    uploads = {i: group.upload(i, 1) for i in range(6) if i not in absent}
    named = server.name_set(uploads)
    answers = {i: group.client(i).stand_for(group.run, 1, named) for i in uploads}
    if absent:
        signatures = server.signatures(1, named, answers)
        answers = {i: group.client(i).reveal(group.run, 1, named, signatures) for i in uploads}
    for j in range(6):  # in place of b_j^1 or p_j^1
        for liars in [(0,), (2,), (4,), (1, 3), (0, 4)]:
            said = group.read(answers | {i: _false(answers[i], j) for i in liars})
            server.liars.clear()
            if len(answers) - len(liars) >= 4:
                assert np.array_equal(server.open(1, named, uploads, said), group.sum_of(named, 1))
                assert server.liars == set(liars)
            elif set(liars) & set(range(4)):
                with pytest.raises(Unopened, match=rf"secrets of \[{j}\].*false shares"):
                    server.open(1, named, uploads, said)
                assert not server.liars
    server.liars.clear()
    assert np.array_equal(server.open(1, named, uploads, group.read(answers)), group.sum_of(named, 1))
    assert not server.liars


def test_false_shares_that_a_client_dealt_end_in_no_sum_and_name_it() -> None:
    group = Group(plan_for(4, 3, 0))
    server = group.set_up()
    uploads = {i: group.upload(i, 1) for i in range(4)}
    answers = {i: group.client(i).stand_for(group.run, 1, server.plan.everyone) for i in uploads}
    with pytest.raises(Unopened, match=r"secrets of \[2\].*dealt false shares"):
        server.open(1, server.plan.everyone, uploads, group.read({i: _false(answers[i], 2) for i in answers}))
