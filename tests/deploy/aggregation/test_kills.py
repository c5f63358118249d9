"""A client that is killed before or after any of its writes: the same bytes again, or nothing."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress

import pytest

from sottovoce.deploy.aggregation.server import Server
from sottovoce.deploy.limits import Refused
from tests.deploy.aggregation.group import QUESTION, Dictionary, Group, Killed, plan_for

VICTIM, N, ROUNDS = 0, 3, 2
WRITES = 13  # of a client in set-up and two rounds, as counted below


def run_through(group: Group, store: Dictionary, sent: dict[tuple[bytes, int, str], set[bytes]]) -> None:
    """Set up (again until it works) and two rounds; every question to the victim is asked twice.

    Between the two it is a fresh process. What it sent is collected by (run, round, step).
    """
    for _ in range(2):
        if _set_up(group):
            break
    for k in (1, 2):
        for i in range(1, N):
            group.upload(i, k)
        for _ in range(2):
            _asked(sent, (group.run, k, "R1"), lambda k=k: group.upload(VICTIM, k).tobytes())
        for _ in range(2):
            stand = lambda k=k: group.client(VICTIM).stand_for(group.run, k, group.plan.everyone)  # noqa: E731
            _asked(sent, (group.run, k, "R2"), stand)


def _set_up(group: Group) -> bool:
    try:
        group.server = Server(group.plan, group.announced())
        boxes = {i: group.client(i).share(group.server.announcements) for i in range(N)}
        for i, box in group.server.deliver(boxes).items():
            group.client(i).receive(group.run, box)
    except Killed:
        return False
    return True


def _asked(sent: dict[tuple[bytes, int, str], set[bytes]], where: tuple[bytes, int, str], question: Callable) -> None:
    answers = sent[where]
    with suppress(Killed, Refused):
        answers.add(question())


@pytest.mark.parametrize("late", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("kill_at", range(WRITES))
def test_never_two_different_answers(kill_at: int, late: bool) -> None:
    group = Group(plan_for(N, N, 0, ROUNDS))
    group.stores[VICTIM] = Dictionary(kill_at=kill_at, late=late)
    sent: dict[tuple[bytes, int, str], set[bytes]] = defaultdict(set)
    run_through(group, group.stores[VICTIM], sent)
    assert all(len(answers) <= 1 for answers in sent.values())
    assert all(sent.values()), "it does not recover"
    assert not [name for name in group.stores[VICTIM].files if name.startswith(("secrets", "shares", "shared", "ann"))]


def test_all_its_writes_are_killed_above() -> None:
    group = Group(plan_for(N, N, 0, ROUNDS))
    run_through(group, group.stores[VICTIM], defaultdict(set))
    assert group.stores[VICTIM].writes == WRITES


def test_a_state_that_is_lost_is_set_up_again() -> None:
    group = Group(plan_for(N, N, 0, ROUNDS))
    group.set_up()
    group.upload(VICTIM, 1)
    kept = dict(group.stores[VICTIM].files)
    for name in kept:
        group.stores[VICTIM].files = {other: content for other, content in kept.items() if other != name}
        for k, step in [(1, "upload"), (2, "upload"), (1, "stand_for")]:
            needed = {"state", {1: "state", 2: "secrets-000002"}[k] if step == "upload" else "shares-000001"}
            if name in needed:
                with pytest.raises(Refused) as refused:
                    _take(group, step, k)
                assert refused.value.code == "set-up"


def _take(group: Group, step: str, k: int) -> bytes:
    client = group.client(VICTIM)
    if step == "upload":
        return client.upload(group.run, k, QUESTION, 3, lambda: pytest.fail("charged"))
    return client.stand_for(group.run, k, group.plan.everyone)
