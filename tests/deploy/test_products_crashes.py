"""Owners of split columns that are killed before and after every write: no mask is used twice, no answer is free."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.deploy import wire
from sottovoce.deploy.aggregation import store
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.experiment import whole_files
from sottovoce.privacy.masked_products import Side
from tests.deployments import NAME, LocalPost, charged
from tests.multiplied import deployment_of, simulated, write_owners


class Killed(BaseException):
    """The owner's process ended here."""


class Watch:
    """All masked tables and shares that were ever made, by the secrets that hide them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tables: dict[Any, set[bytes]] = defaultdict(set)  # by seed and row: the rows that it hid
        self.attempts: dict[bytes, set[bytes]] = defaultdict(set)  # by seed: what it was used for
        self.shares: dict[Any, set[bytes]] = defaultdict(set)  # by what R follows from: what it hid
        masked, reply = Side.masked, Side.reply

        def seen_masked(side: Side, start: int, rows: int) -> Any:
            self.tables[side.seed, start].add(side.table[start : start + rows].tobytes())
            self.attempts[side.seed].add(side.attempt.context(side.role))
            return masked(side, start, rows)

        def seen_reply(side: Side, *given: Any) -> Any:
            share = reply(side, *given)
            self.shares[side.key.secret, side.attempt.context(side.role)].add(share.tobytes())
            return share

        monkeypatch.setattr(Side, "masked", seen_masked)
        monkeypatch.setattr(Side, "reply", seen_reply)

    def holds(self) -> None:
        assert self.tables
        for used in (self.tables, self.attempts, self.shares):
            assert all(len(hidden) == 1 for hidden in used.values())


class Deadly(LocalPost):
    """An owner's process is killed at its `at`-th write, `late` just after it: it answers nothing, and comes back."""

    def __init__(self, files: list[Path], monkeypatch: pytest.MonkeyPatch, at: int, late: bool) -> None:
        super().__init__(files)
        self.writes, self.at, self.late, self.answering = 0, at, late, False
        monkeypatch.setattr(whole_files, "replace_content", self._deadly(whole_files.replace_content))

    def _deadly(self, write: Any) -> Any:
        def deadly(*given: Any, **more: Any) -> None:
            dies = self.answering and self.writes == self.at
            self.writes += self.answering
            if dies and not self.late:
                raise Killed
            write(*given, **more)
            if dies:
                raise Killed

        return deadly

    def ask(self, asks: Any, deadline: float) -> Any:
        replies = {}
        for client, ask in asks.items():
            self.answering = True
            try:
                replies |= super().ask({client: ask}, deadline)
            except Killed:
                pass
            finally:
                self.answering = False
        return replies


def finished(files: list[Path], folder: Path, right: np.ndarray) -> Iterator[str]:
    """Run it again until it ends with the right model; or in another experiment, if an answer was charged and lost."""
    made = deployment_of(len(files))
    for name in (NAME, NAME[::-1]):
        for _ in range(2):
            try:
                got = serve(made, name, LocalPost(files), folder / name)
            except TooFewAnswers as error:
                yield str(error)
            else:
                assert np.array_equal(got.model, right)
                return
    raise AssertionError("it never ended")


@pytest.mark.parametrize(("n", "late", "step"), [(2, False, 1), (2, True, 1), (3, False, 5), (3, True, 7)])
def test_killed_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, late: bool, step: int) -> None:
    """Of two owners at each of them, before it and after it; of three at every fifth and every seventh."""
    watch, at, lost = Watch(monkeypatch), 0, 0
    right = simulated(deployment_of(n), write_owners(tmp_path / "simulated", n)).model
    while True:
        folder = tmp_path / str(at)
        files = write_owners(folder, n)
        with monkeypatch.context() as patches:
            post = Deadly(files, patches, at, late)
            with contextlib.suppress(TooFewAnswers):
                serve(deployment_of(n), NAME, post, folder / NAME)
        if post.writes <= at:
            break
        told = list(finished(files, folder, right))
        again = any("was charged and its answer lost" in why for why in told)
        lost += again
        assert [charged(file) for file in files].count(1) >= (0 if again else n)
        assert all(charged(file) <= (2 if again else 1) for file in files)
        watch.holds()
        at += step
    assert at > (8 if n == 2 else 20), "every step that keeps something was killed in"
    assert n == 3 or lost == (0 if late else 2), "killed between charge and answer, once at each owner"


def test_a_machine_that_starts_again_begins_another_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it kept counts as lost: a disk that was put back is one that was started since."""
    watch, files, made = Watch(monkeypatch), write_owners(tmp_path, 3), deployment_of(3)
    sent = 0

    class Restarted(LocalPost):
        def ask(self, asks: Any, deadline: float) -> Any:
            nonlocal sent
            before, sent = sent, sent + sum(ask.what == wire.SEND for ask in asks.values())
            if before < 4 <= sent:
                monkeypatch.setattr(store, "start_of_machine", lambda: "another")
            return super().ask(asks, deadline)

    post = Restarted(files)
    got = serve(made, NAME, post, tmp_path / "run")
    assert np.array_equal(got.model, simulated(made, files).model)
    assert len({wire.bytes_of(ask.down) for _, ask, _ in post.asked if ask.what == wire.BEGIN}) == 2
    assert [charged(file) for file in files] == [1, 1, 1]
    watch.holds()
