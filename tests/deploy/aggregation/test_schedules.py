"""Random schedules of drops, kills and lies: the right sum of one admissible set, or nothing.

A server asks honest clients whatever it likes in whatever order, with colluders beside it; what it can then compute is
found exactly (`LyingServer.visible`) and must be at most one sum per round, over H∩U for a U of at least `least`.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import numpy as np
import pytest

from sottovoce.deploy.aggregation import client, rules
from sottovoce.deploy.limits import Refused
from tests.deploy.aggregation.group import Dictionary, Group, Killed, plan_for
from tests.deploy.aggregation.lying_server import LyingServer

SCHEDULES = 200


@cache
def set_up(n: int, least: int, t: int) -> Group:
    group = Group(plan_for(n, least, t, rounds=2))
    group.set_up()
    return group


def copied(group: Group, seed: int) -> Group:
    """The same set-up, with disks of its own."""
    copy = Group(group.plan, seed)
    copy.server, copy.stores = group.server, [Dictionary(dict(store.files)) for store in group.stores]
    return copy


class Schedule:
    """One run: a plan, colluders, and a server that chooses at random, at times as it should and at times not."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        n = int(self.rng.integers(3, 8))
        t = int(self.rng.integers(0, n - 1)) if self.rng.random() < 0.5 else 0
        least = int(self.rng.integers(max(2, t + 1), n + 1))
        self.group = copied(set_up(n, least, t), seed)
        self.plan = self.group.plan
        self.lying = LyingServer(self.group, self.rng.permutation(n)[:t].tolist())
        self.sent: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.signed: dict[tuple[int, frozenset[int]], dict[int, bytes]] = defaultdict(dict)
        self.named: dict[int, set[frozenset[int]]] = defaultdict(set)

    def play(self) -> None:
        favourites = [self._some_set() for _ in range(3)]
        told = {i: self._around_one() if self.rng.random() < 0.9 else favourites[0] for i in self.lying.honest}
        apart = self.rng.random() < 0.3  # another set to each client
        rate = self.rng.choice([0.0, 0.15])
        self.away = {(i, k) for i in range(self.plan.n) for k in (1, 2) if self.rng.random() < rate}
        for k in (1, 2):
            for i in self.lying.honest:
                self._attempt(self._upload, i, k)
            for _ in range(int(self.rng.integers(10, 60))):
                i = int(self.rng.choice(self.lying.honest))
                round_ = k if self.rng.random() < 0.9 else int(self.rng.integers(0, 4))
                named = told[i] if apart else favourites[int(self.rng.choice(3, p=[0.6, 0.25, 0.15]))]
                step = self.rng.choice(["R1", "R2", "R3", "R3"])
                self._attempt({"R1": self._upload, "R2": self._stand_for, "R3": self._reveal}[step], i, round_, named)

    def _some_set(self) -> frozenset[int]:
        if self.rng.random() < 0.3:
            return self.plan.everyone
        size = int(self.rng.integers(max(1, self.plan.least - 1), self.plan.n + 1))
        return frozenset(self.rng.permutation(self.plan.n)[:size].tolist())

    def _around_one(self) -> frozenset[int]:
        """The colluders, one honest client that is in all of these sets, and as few others as must be."""
        first, *others = self.lying.honest
        room = self.plan.least - len(self.lying.colluders) - 1
        return self.lying.colluders | {first, *self.rng.permutation(others)[:room].tolist()}

    def _attempt(self, step: Callable[..., None], i: int, k: int, named: frozenset[int] = frozenset()) -> None:
        """The client may be away, be killed before or after a write, or refuse."""
        if (i, k) in self.away:
            return
        store = self.group.stores[i]
        if self.rng.random() < 0.05:
            store.kill_at, store.late = store.writes, bool(self.rng.random() < 0.5)
        with suppress(Refused, Killed):
            step(i, k, named)
        store.kill_at = None

    def _upload(self, i: int, k: int, _: frozenset[int]) -> None:
        before = self.group.values.get((i, k))
        question = b"q" * 32 if self.rng.random() < 0.9 else b"o" * 32
        try:
            self.sent[i, k].add(self.lying.upload(i, k, question).tobytes())
        except Refused:
            if before is not None:
                self.group.values[i, k] = before  # what it drew last was not sent
            raise

    def _stand_for(self, i: int, k: int, named: frozenset[int]) -> None:
        answer = self.lying.stand_for(i, k, named)
        self.named[k].add(named)
        if named != self.plan.everyone:
            self.signed[k, named][i] = answer

    def _reveal(self, i: int, k: int, named: frozenset[int]) -> None:
        known = self.signed[k, named] | self.lying.signed_by_colluders(k, named)
        self.lying.reveal(i, k, named, known)
        self.named[k].add(named)

    def wrong(self) -> str:
        """What was seen and must not be; "" if nothing was."""
        if any(len(answers) > 1 for answers in self.sent.values()):
            return "two uploads in one round"
        for k in (1, 2):
            seen = self.lying.visible(k)
            if len(seen) > 1:
                return "two sums of one round"
            for part, total in seen.items():
                if len(part) < self.plan.least - self.plan.colluders:
                    return "a sum of too few"
                if part not in {named - self.lying.colluders for named in self.named[k]}:
                    return "a sum over no set that was named"
                if not np.array_equal(total, self.group.sum_of(part, k)):
                    return "not the right sum"
        return ""

    @property
    def opened(self) -> int:
        return sum(len(self.lying.visible(k)) for k in (1, 2))


def played(seed: int) -> Schedule:
    schedule = Schedule(seed)
    schedule.play()
    return schedule


def test_one_right_sum_of_an_admissible_set_or_nothing() -> None:
    schedules = [played(seed) for seed in range(SCHEDULES)]
    assert {schedule.wrong() for schedule in schedules} == {""}
    opened = sum(schedule.opened for schedule in schedules)
    assert SCHEDULES // 5 < opened < 2 * SCHEDULES, "hardly ever, or always, is a sum opened: the schedules test little"


@pytest.mark.parametrize(
    ("off", "seen", "first"),
    [
        (("must_be_large",), "a sum of too few", 38),
        (("must_have_a_quorum",), "a sum of too few", 136),
        (("is_given", "must_be_the_set_it_signed", "sweep"), "two sums of one round", 26),
        (("must_be_a_new_round", "sweep"), "two uploads in one round", 0),
    ],
    ids=["least", "quorum", "given once", "counter"],
)
def test_without_a_rule_the_schedules_find_it(
    off: tuple[str, ...], seen: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Today `first` is the first that does; so it is looked at first."""
    for rule in off:
        monkeypatch.setattr(client if rule == "sweep" else rules, rule, lambda *_: None)
    assert any(played(seed).wrong() == seen for seed in (*range(first, SCHEDULES), *range(first)))
