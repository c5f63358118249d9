"""Each attack of the table, with and without the rules that close it.

An attack returns what it learnt: a client's own numbers, or a sum that must not be seen. With the rules it learns
nothing. Without them it succeeds, so it is a true attack; and where several rules close it, each does so alone.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import client, masks, messages, rules, server, state
from sottovoce.deploy.aggregation.client import Client
from sottovoce.deploy.aggregation.messages import Announcement
from sottovoce.deploy.limits import Refused
from tests.deploy.aggregation.group import ATTEMPT, QUESTION, Dictionary, Group, plan_for, signing_key
from tests.deploy.aggregation.lying_server import LyingServer

VICTIM = 0


def group_of(n: int, least: int, colluders: int, rounds: int = 1) -> Group:
    group = Group(plan_for(n, least, colluders, rounds))
    group.set_up()
    return group


# --------------------------------------------------------------------------------------------------------- the attacks


def alive_and_dead() -> Words | None:
    """The victim is missing, so its pair secret is opened; then it is there, so its own mask is."""
    group = group_of(4, 3, 0)
    lying = LyingServer(group)
    for i in range(4):
        lying.upload(i, 1)
    others = [1, 2, 3]
    signatures = {i: lying.stand_for(i, 1, others) for i in others}
    for i in others:
        lying.reveal(i, 1, others, signatures)
    for i in range(4):
        lying.tried(lying.stand_for, i, 1, range(4))
    return _if_right(lying.visible(1).get(frozenset({VICTIM})), group, 1)


def dead_and_alive() -> Words | None:
    """The other way round: first the whole roster, whose own masks are opened, then the victim is missing."""
    group = group_of(4, 3, 0)
    lying = LyingServer(group)
    for i in range(4):
        lying.upload(i, 1)
    for i in range(4):
        lying.stand_for(i, 1, range(4))
    others, signatures = [1, 2, 3], {}
    for i in others:
        answer = lying.tried(lying.stand_for, i, 1, others)
        signatures |= {i: answer} if isinstance(answer, bytes) else {}
    for i in others:
        lying.tried(lying.reveal, i, 1, others, signatures)
    return _if_right(lying.visible(1).get(frozenset({VICTIM})), group, 1)


# Honest clients 0 to 4, colluders 5 and 6. Every set has four members, and only the victim is in most of them.
SETS = {i: frozenset({VICTIM, 5, 6, other}) for i, other in {0: 1, 1: 1, 2: 2, 3: 3, 4: 4}.items()}


def different_sets() -> Words | None:
    """Each client is told another set of four. One secret of each client has a quorum: b of the victim, p of others."""
    group = group_of(7, 4, 2)
    lying = LyingServer(group, (5, 6))
    return _told_different_sets(lying, {i: {} for i in range(5)})


def _told_different_sets(lying: LyingServer, known: dict[int, dict[int, bytes]]) -> Words | None:
    """`known`: signatures that the server shows to each client, beside those of colluders and of the client itself."""
    k = lying.plan.rounds
    for i in lying.honest:
        lying.upload(i, k)
    for i in lying.honest:
        own = lying.tried(lying.stand_for, i, k, SETS[i])
        signed = known[i] or lying.signed_by_colluders(k, SETS[i]) | ({i: own} if isinstance(own, bytes) else {})
        lying.tried(lying.reveal, i, k, SETS[i], signed)
    return _if_right(lying.visible(k).get(frozenset({VICTIM})), lying.group, k)


def signatures_of_other_rounds() -> Words | None:
    """In each of four rounds another set is signed by all, as it should be; in the fifth all of them are shown."""
    group = group_of(7, 4, 2, rounds=6)
    lying = LyingServer(group, (5, 6))
    known: dict[int, dict[int, bytes]] = {}
    for k, i in enumerate(lying.honest, 1):
        for j in lying.honest:
            lying.upload(j, k)
        known[i] = {j: lying.stand_for(j, k, SETS[i]) for j in lying.honest} | lying.signed_by_colluders(k, SETS[i])
    return _told_different_sets(lying, known)


def signatures_of_other_runs() -> Words | None:
    """The same with signatures of the same round of other set-ups."""
    group, known = group_of(7, 4, 2), {}
    for i in range(5):
        lying = LyingServer(group, (5, 6))
        for j in lying.honest:
            lying.upload(j, 1)
        known[i] = {j: lying.stand_for(j, 1, SETS[i]) for j in lying.honest} | lying.signed_by_colluders(1, SETS[i])
        group.set_up()
    return _told_different_sets(LyingServer(group, (5, 6)), known)


def a_set_of_one() -> Words | None:
    group = group_of(4, 3, 0)
    lying = LyingServer(group)
    for i in range(4):
        lying.upload(i, 1)
    answers = {i: lying.tried(lying.stand_for, i, 1, [VICTIM]) for i in range(4)}
    signatures = {i: answer for i, answer in answers.items() if isinstance(answer, bytes)}
    for i in range(4):
        lying.tried(lying.reveal, i, 1, [VICTIM], signatures)
    return _if_right(lying.visible(1).get(frozenset({VICTIM})), group, 1)


def a_round_again() -> Words | None:
    """Two uploads under the same masks: their difference is that of two noisy answers of one client."""
    group = group_of(3, 3, 0, rounds=2)
    lying = LyingServer(group)
    one, before = lying.upload(VICTIM, 1), group.values[VICTIM, 1]
    lying.upload(VICTIM, 2)
    try:
        other = lying.upload(VICTIM, 1, b"another question".ljust(32))
    except Refused:
        return None
    assert np.array_equal(one - other, before - group.values[VICTIM, 1])
    return one - other


def an_old_round_opened_late() -> Words | None:
    """The victim counts as missing in round 1, and its own mask of round 1 is asked for while round 2 is on."""
    group = group_of(4, 3, 0, rounds=2)
    lying = LyingServer(group)
    for i in range(4):
        lying.upload(i, 1)
    others = [1, 2, 3]
    signatures = {i: lying.stand_for(i, 1, others) for i in others}
    for i in others:
        lying.reveal(i, 1, others, signatures)
    for i in range(4):
        lying.upload(i, 2)
    for i in range(4):
        lying.tried(lying.stand_for, i, 1, range(4))
    return _if_right(lying.visible(1).get(frozenset({VICTIM})), group, 1)


class Impostor(Client):
    """Has the number of another client, and a key of its own."""

    def __init__(self, plan, i: int) -> None:
        self.plan, self.i, self._key, self._store = plan, i, signing_key(100 + i), Dictionary()


def swapped_keys() -> Words | None:
    """The server is in the middle: to the victim it is all the others. It gets all shares of the victim's secrets."""
    group = Group(plan_for(3, 3, 0))
    fakes = {i: Impostor(group.plan, i) for i in (1, 2)}
    announced = b"".join([group.client(VICTIM).announce(ATTEMPT), *(fake.announce(ATTEMPT) for fake in fakes.values())])
    try:
        boxes = {VICTIM: group.client(VICTIM).share(announced)}
    except Refused:
        return None
    boxes |= {i: fake.share(announced) for i, fake in fakes.items()}
    group.server = server.Server(group.plan, dict(enumerate(messages.pieces("", announced, 3, len(announced) // 3))))
    for i, box in group.server.deliver(boxes).items():
        (group.client(VICTIM) if i == VICTIM else fakes[i]).receive(group.run, box)
    for i, fake in fakes.items():
        group.stores[i] = fake._store
    lying = LyingServer(group, fakes)
    lying.upload(VICTIM, 1)
    return _if_right(lying.visible(1)[frozenset({VICTIM})], group, 1)


def one_announcement_for_two_runs() -> Words | None:
    """Shares of the same secrets go out in two runs: the victim's own mask is opened in one, its pairs in the other."""
    group = Group(plan_for(3, 2, 0))
    announced = group.announced()
    group.server = server.Server(group.plan, announced)
    boxes = {i: group.client(i).share(group.server.announcements) for i in range(3)}
    for i, box in group.server.deliver(boxes).items():
        group.client(i).receive(group.run, box)
    first = LyingServer(group)
    for i in range(3):
        first.upload(i, 1)
    for i in range(3):
        first.stand_for(i, 1, range(3))
    group.server = server.Server(group.plan, announced | {i: group.client(i).announce(ATTEMPT) for i in (1, 2)})
    boxes = {i: group.client(i).share(group.server.announcements) for i in (1, 2)}
    try:
        boxes[VICTIM] = group.client(VICTIM).share(group.server.announcements)
    except Refused:
        return None
    for i, box in group.server.deliver(boxes).items():
        group.client(i).receive(group.run, box)
    second = LyingServer(group)
    for i in range(3):
        second.upload(i, 1)
    signatures = {i: second.stand_for(i, 1, [1, 2]) for i in (1, 2)}
    for i in (1, 2):
        second.reveal(i, 1, [1, 2], signatures)
    second.shares["b", 1, VICTIM] = first.shares["b", 1, VICTIM]
    return _if_right(second.visible(1)[frozenset({VICTIM})], group, 1)


def a_stolen_disk() -> Words | None:
    """After the run all disks are stolen, and the server has recorded everything."""
    group = group_of(3, 3, 0)
    lying = LyingServer(group)
    for i in range(3):
        lying.upload(i, 1)
    for i in range(3):
        lying.stand_for(i, 1, range(3))
    content = group.stores[VICTIM].files.get(state.secrets_of(1))
    if content is None:
        return None
    b, p = messages.read_shares("", content[:64], 2)
    pair = masks.pair_key(group.plan, 1, VICTIM, p)
    left = lying.uploads[VICTIM, 1] - masks.own_mask(group.run, 1, VICTIM, b, 3)
    for j in (1, 2):
        assert group.server is not None
        left -= masks.pair_mask(group.run, 1, VICTIM, j, pair, group.server.peers[j].keys[0], 3)
    return _if_right(left, group, 1)


def _if_right(found: Words | None, group: Group, k: int) -> Words | None:
    """What was found, if it is what the victim uploaded, to the last bit; secrets of another round give garbage."""
    return found if found is not None and np.array_equal(found, group.values[VICTIM, k]) else None


# ----------------------------------------------------------------------------------------------------------- the rules


def _nothing(*_: object) -> None:
    """A rule that never refuses."""


def _without(rule: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(rules, rule, _nothing)


def _never_delete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(client, "sweep", _nothing)


def _any_stage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "must_be_at", lambda state, stage: state)


def _any_signature(patch: pytest.MonkeyPatch) -> None:
    for module in (messages, rules):
        patch.setattr(module, "is_signed", lambda *_: True)


def _place_left_out(round_too: bool) -> Callable[[pytest.MonkeyPatch], None]:
    """Signatures that do not say for which round (of which run) they are."""

    def switch(patch: pytest.MonkeyPatch) -> None:
        signed = messages.about_set
        for module in (messages, rules):
            patch.setattr(
                module,
                "about_set",
                lambda plan, run, k, named: signed(plan, run if round_too else bytes(32), 0 if round_too else k, named),
            )

    return switch


def _shares_of_the_round_asked_for(patch: pytest.MonkeyPatch) -> None:
    """A client that gives shares of whatever round it is asked about, not of the one that is open by its own count."""
    give, signs = Client._give, Client.stand_for

    def stand_for(self: Client, run: bytes, k: int, named: frozenset[int]) -> bytes:
        now = self._may_open(run, k, named)
        if named != self.plan.everyone:
            return signs(self, run, k, named)
        return give(self, replace(now, k=k), named)

    patch.setattr(Client, "stand_for", stand_for)


OPENED_ONCE = {
    "given once": lambda patch: patch.setattr(rules, "is_given", lambda state: False),
    "one set": _without("must_be_the_set_it_signed"),
    "shares are deleted": _never_delete,
}
# attack: the rules that close it, each by itself
ATTACKS: dict[Callable[[], Words | None], dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    alive_and_dead: OPENED_ONCE,
    dead_and_alive: OPENED_ONCE,
    different_sets: {"quorum": _without("must_have_a_quorum")},
    signatures_of_other_rounds: {"round in signatures": _place_left_out(True)},
    signatures_of_other_runs: {"run in signatures": _place_left_out(False)},
    a_set_of_one: {"least": _without("must_be_large")},
    a_round_again: {"counter": _without("must_be_a_new_round"), "secrets are deleted": _never_delete},
    swapped_keys: {"pinned keys": _any_signature},
    one_announcement_for_two_runs: {"each step once": _any_stage, "secrets are deleted": _never_delete},
    a_stolen_disk: {"secrets are deleted": _never_delete},
}


@pytest.mark.parametrize("attack", [*ATTACKS, an_old_round_opened_late], ids=lambda a: a.__name__)
def test_an_attack_learns_nothing(attack: Callable[[], Words | None]) -> None:
    assert attack() is None


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_without_its_rules_it_learns_the_numbers_of_one_client(
    attack: Callable[[], Words | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for switch_off in ATTACKS[attack].values():
        switch_off(monkeypatch)
    assert attack() is not None


@pytest.mark.parametrize(
    ("attack", "kept"),
    [(attack, kept) for attack, closing in ATTACKS.items() for kept in closing if len(closing) > 1],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_each_of_several_rules_closes_it_alone(
    attack: Callable[[], Words | None], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, switch_off in ATTACKS[attack].items():
        if name != kept:
            switch_off(monkeypatch)
    assert attack() is None


def test_an_old_round_can_be_opened_without_three_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is checked, the shares given are of the client's own count, and those of old rounds are deleted."""
    rules_ = (_without("must_be_open"), _shares_of_the_round_asked_for, _never_delete)
    for off in combinations(rules_, 2):
        with monkeypatch.context() as patch:
            for switch_off in off:
                switch_off(patch)
            assert an_old_round_opened_late() is None
    for switch_off in rules_:
        switch_off(monkeypatch)
    assert an_old_round_opened_late() is not None


def test_each_set_of_the_attack_is_one_that_a_client_would_sign() -> None:
    plan = plan_for(7, 4, 2)
    assert all(len(named) >= plan.least for named in SETS.values())


# ------------------------------------------------------------------------------------------------- single wrong answers


def test_garbage_shares_end_the_set_up() -> None:
    group = Group(plan_for(3, 3, 0))
    announced = server.Server(group.plan, group.announced())
    boxes = {i: group.client(i).share(announced.announcements) for i in range(3)}
    group.server = announced
    good = announced.deliver(boxes)[VICTIM]
    for wrong in (good[:-1] + bytes([good[-1] ^ 1]), bytes(len(good)), good[len(good) // 2 :] + good[: len(good) // 2]):
        saved = dict(group.stores[VICTIM].files)
        with pytest.raises(Refused, match="set up again"):
            group.client(VICTIM).receive(announced.run, wrong)
        assert group.stores[VICTIM].files == {}
        with pytest.raises(Refused, match="set up again"):
            group.client(VICTIM).receive(announced.run, good)
        with pytest.raises(Refused, match="set up again"):
            group.upload(VICTIM, 1)
        group.stores[VICTIM].files = saved


def test_a_box_for_another_client_or_run_is_garbage() -> None:
    group = group_of(3, 3, 0)
    boxes, runs = [], []
    for _ in range(2):
        announced = server.Server(group.plan, group.announced())
        boxes.append(announced.deliver({i: group.client(i).share(announced.announcements) for i in range(3)}))
        runs.append(announced.run)
    for wrong in (boxes[0][VICTIM], boxes[1][1]):
        saved = dict(group.stores[VICTIM].files)
        with pytest.raises(Refused, match="not for this client in this run"):
            group.client(VICTIM).receive(runs[1], wrong)
        group.stores[VICTIM].files = saved
    with pytest.raises(Refused, match="not the run that it set up"):
        group.client(VICTIM).receive(runs[0], boxes[0][VICTIM])
    group.client(VICTIM).receive(runs[1], boxes[1][VICTIM])


@pytest.mark.parametrize("what", ["plan", "number", "own"])
def test_an_announcement_for_another_plan_or_number_or_not_its_own_is_refused(what: str) -> None:
    group = Group(plan_for(3, 3, 0))
    announced = list(group.announced().values())
    if what == "plan":  # client 1 was shown that two are enough
        announced[1] = Client(plan_for(3, 2, 0), signing_key(1), Dictionary()).announce(ATTEMPT)
    elif what == "number":
        own = Announcement.read(group.plan, 1, announced[1])
        announced[1] = replace(own, i=2).signed(group.plan, signing_key(1))
    else:
        announced[VICTIM] = Client(group.plan, signing_key(VICTIM), Dictionary()).announce(ATTEMPT)
    with pytest.raises(Refused, match={"plan": "plan that", "number": "its place", "own": "its own"}[what]):
        group.client(VICTIM).share(b"".join(announced))


@pytest.mark.parametrize("where", ["box", "pair"])
def test_a_key_of_small_order_is_refused_before_anything_is_charged(where: str) -> None:
    group = Group(plan_for(3, 3, 0))
    announced = list(group.announced().values())
    own = Announcement.read(group.plan, 1, announced[1])
    false: dict = {"box": bytes(32)} if where == "box" else {"keys": (bytes(32),)}
    announced[1] = replace(own, **false).signed(group.plan, signing_key(1))
    if where == "box":
        with pytest.raises(Refused, match="client 1 is no key"):
            group.client(VICTIM).share(b"".join(announced))
        return
    group.stores[1].files["announced"] = (
        group.stores[1].files["announced"][:32] + announced[1] + (group.stores[1].files["announced"][-64:])
    )
    group.server = server.Server(group.plan, dict(enumerate(announced)))
    boxes = {i: group.client(i).share(group.server.announcements) for i in range(3)}
    for i, box in group.server.deliver(boxes).items():
        group.client(i).receive(group.run, box)
    with pytest.raises(Refused, match="client 1 for round 1 is no key"):
        group.client(VICTIM).upload(group.run, 1, QUESTION, 3, lambda: pytest.fail("charged"))


def test_signatures_count_once_and_only_of_the_roster() -> None:
    group = group_of(5, 3, 1)  # Q is 4
    lying = LyingServer(group, (4,))
    for i in range(5):
        group.upload(i, 1)
    named = [0, 1, 2]
    signed = {i: lying.stand_for(i, 1, named) for i in (0, 1, 2)}
    with pytest.raises(Refused, match="3 signatures are there, and 4 must be"):
        lying.reveal(VICTIM, 1, named, signed)
    with pytest.raises(Refused, match="not of this set"):
        lying.reveal(VICTIM, 1, named, signed | {3: signed[2]})
    with pytest.raises(Refused, match="not of this set"):
        lying.reveal(VICTIM, 1, named, signed | {3: lying.stand_for(3, 1, [0, 1, 3])})
    lying.reveal(VICTIM, 1, named, signed | lying.signed_by_colluders(1, named))


@pytest.mark.parametrize("first", [{0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}], ids=len)
@pytest.mark.parametrize("then", [{0, 1, 3}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}], ids=len)
def test_a_client_stands_for_one_set_in_a_round(first: set[int], then: set[int]) -> None:
    """Also in this order: a smaller set is signed, then the whole roster is named."""
    group = group_of(5, 3, 1, rounds=2)
    lying = LyingServer(group, (4,))
    for i in lying.honest:
        group.upload(i, 1)
    answer = lying.stand_for(VICTIM, 1, first)
    if first != then:
        with pytest.raises(Refused):
            lying.stand_for(VICTIM, 1, then)
        with pytest.raises(Refused):
            lying.reveal(VICTIM, 1, then, lying.signed_by_colluders(1, then))
    else:
        assert lying.stand_for(VICTIM, 1, then) == answer  # the same bytes again
    group.upload(VICTIM, 2)
    lying.stand_for(VICTIM, 2, then)  # in the next round it is free again


def test_a_set_that_is_one_short_is_refused_whoever_is_in_it() -> None:
    group = group_of(5, 4, 2)
    lying = LyingServer(group, (3, 4))
    group.upload(VICTIM, 1)
    for named in ([0, 1, 2], [0, 3, 4], [1, 2, 3], []):
        with pytest.raises(Refused, match=f"{len(named)} clients are named, and at least 4 must be"):
            lying.stand_for(VICTIM, 1, named)
        with pytest.raises(Refused, match="at least 4"):
            lying.reveal(VICTIM, 1, named, lying.signed_by_colluders(1, named))


def test_only_the_round_of_the_last_upload_is_open() -> None:
    group = group_of(3, 2, 0, rounds=3)
    lying = LyingServer(group)
    for k in (0, 1, 3):
        with pytest.raises(Refused, match="not open"):
            lying.stand_for(VICTIM, k, range(3))
    group.upload(VICTIM, 2)
    for k in (0, 1, 3):
        with pytest.raises(Refused, match="not open"):
            lying.stand_for(VICTIM, k, range(3))
    lying.stand_for(VICTIM, 2, range(3))
