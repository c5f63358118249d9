"""Methods with several kinds of question: audits, charges and `verify` take each kind by itself."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import ALGORITHMS, MomentsThenGradients
from sottovoce.auditing.audit import audit, worst_case
from sottovoce.auditing.finding import Check
from sottovoce.auditing.paths import examine, paths_of
from sottovoce.auditing.promise import gaussian_mu, promised
from sottovoce.auditing.verify import BROKEN, verify
from sottovoce.core.contract import Algorithm, Array, Asks, Hub, Part, Site
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import calibration
from sottovoce.privacy.doors.proven import ProvenDoor
from sottovoce.privacy.modes import Proven
from tests.run_folders import cover_up, edit, trained

PROMISE = Proven(1.0, 1e-5, 1.0)


@dataclass(frozen=True)
class Message:
    w: Array


@dataclass(frozen=True)
class Nothing:
    """A client remembers nothing."""


@dataclass(frozen=True)
class WarmStart(Algorithm[Message, Nothing, Message, Message]):
    """Each client's own minimiser in the first round, gradient steps afterwards."""

    rho: float = 1.0
    step: float = 0.1
    share: float = 0.1

    name: ClassVar[str] = "warm-start"
    summary: ClassVar[str] = "arg-mins, then gradients"
    down: ClassVar[type] = Message
    up: ClassVar[type] = Message

    def asks(self) -> Asks:
        return Asks((Part("argmin", last=1, share=self.share), Part("gradient", first=2, share=1 - self.share)))

    def init_server(self, hub: Hub) -> Message:
        return Message(hub.zeros.copy())

    def init_client(self, site: Site) -> Nothing:
        return Nothing()

    def broadcast(self, server: Message, hub: Hub) -> Message:
        return server

    def client(self, state: Nothing, down: Message, site: Site) -> tuple[Nothing, Message]:
        new = site.f.argmin(down.w, self.rho) if site.k == 1 else down.w - self.step * site.f.grad(down.w)
        return state, Message(site.release(new, centre=down.w))

    def server(self, server: Message, up: Message, hub: Hub) -> Message:
        return Message(hub.if_any(hub.mean(up.w), server.w))

    def model(self, server: Message) -> Array:
        return server.w


METHODS = [WarmStart(), MomentsThenGradients()]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run file can name the method of these tests."""
    monkeypatch.setitem(ALGORITHMS, WarmStart.name, WarmStart)


def failed(checks: list[Check]) -> set[str]:
    return {one.name for one in checks if one.verdict != "not refuted"}


def test_each_part_is_promised_noise_for_its_share() -> None:
    first, second = promised(PROMISE, WarmStart().asks(), 10)
    assert (first.answers, second.answers) == (1, 9)
    mu = gaussian_mu(1.0, 1e-5)
    assert first.multiplier == pytest.approx(np.sqrt(1 / 0.1) / mu)
    assert second.multiplier == pytest.approx(np.sqrt(9 / 0.9) / mu)
    (uploads,) = promised(replace(PROMISE, unit="client"), WarmStart().asks(), 10)
    assert uploads.answers == 10


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_whole_run_reveals_what_is_promised_and_no_more(method: Any) -> None:
    finding = audit(worst_case(method, PROMISE, 5, 1, 5, 2))
    assert finding.statistic == "exact"
    assert finding.worst.lower == pytest.approx(1.0, rel=1e-6)
    assert finding.verdict == "not refuted"


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_honest_method_passes_on_every_path(method: Any) -> None:
    game = worst_case(method, PROMISE, 4, 2, 5, 2)
    paths = paths_of(game)
    assert set(paths) >= {"plain", "float32", "kernel", "client", "add-remove", "ledgers", "resume", "seeds"}
    checks = examine(game, paths)
    assert not failed(checks)
    assert {"plain, argmin", "plain, moments"} & {one.path for one in checks}
    assert "plain, gradient" in {one.path for one in checks}


# What is planted: each bug is in one of the two parts alone.


def charged_as_the_other_kind() -> Any:
    """The event with more noise is charged for all answers: that would cost less."""
    plain = MemoryLedger.charge

    def broken(self: Any, event: Any, *rest: Any) -> None:
        self.cheapest = max(event, getattr(self, "cheapest", event), key=lambda one: one.noise_multiplier)
        plain(self, self.cheapest, *rest)

    return broken


def equal_shares() -> Any:
    plain = calibration.shared_out

    def broken(budget: Any, kinds: Any, counts: Any, shares: Any, spent: Any) -> Any:
        return plain(budget, kinds, counts, [1 / len(shares)] * len(shares), spent)

    return broken


def noise_of_the_last_part() -> Any:
    return lambda self, part: self.events[-1]


BUGS: dict[str, tuple[Any, str, Any, str]] = {
    "charged as the other kind": (MemoryLedger, "charge", charged_as_the_other_kind(), "answers charged"),
    "shares not kept": (calibration, "shared_out", equal_shares(), "noise that the code states"),
    "one noise for all parts": (ProvenDoor, "event_of", noise_of_the_last_part(), "noise that the code states"),
}


@pytest.mark.parametrize("name", BUGS)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_planted_bug_is_refuted(name: str, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken, check = BUGS[name]
    monkeypatch.setattr(owner, attribute, broken)
    assert check in failed(examine(worst_case(method, PROMISE, 4, 2, 5, 2), ["plain"]))


# Saved runs.


@pytest.mark.parametrize("how", ["in memory", "on ledgers", "repeated", "whole clients"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_saved_run_is_verified(how: str, method: Any, tmp_path: Path) -> None:
    more: dict[str, Any] = {"on ledgers": {"ledgers": tmp_path / "ledgers"}, "repeated": {"runs": 2}}.get(how, {})
    privacy = sv.Proven(1.0, 1e-3, 1.0, unit="client" if how == "whole clients" else "record")
    result = trained(method, privacy, rounds=5, **more)
    verdict = verify(result.save(tmp_path / "run"))
    assert [one.words for one in verdict.checks if one.status == BROKEN] == []
    if how == "whole clients":
        return
    theorem = result.guarantee.theorem
    first = "noisy minimisers of strongly convex functions" if method.name == "warm-start" else "moments"
    assert first in theorem
    assert "noisy clipped gradients" in theorem
    assert theorem in result.guarantee.text
    assert len(result.guarantee.constants["noise_multiplier"]) == 2
    assert result.guarantee.epsilon == pytest.approx(1.0, rel=4e-9)


def in_events(change: Callable[[list[Any]], None]) -> Callable[[Any], None]:
    """A change of the planned events, and of those that were charged."""

    def changed(said: Any) -> None:
        charges = said["charges"]
        change(charges["events"])
        change([one["event"] for one in charges["histories"][0]["charges"]])

    return changed


def louder_gradients(events: list[Any]) -> None:
    events[1]["noise_multiplier"] *= 1.2


def other_shares(events: list[Any]) -> None:
    """Noise of 1 and 4 answers such that the sum of n/z² stays, but not what each part has of it."""
    total = 1 / events[0]["noise_multiplier"] ** 2 + 4 / events[1]["noise_multiplier"] ** 2
    events[0]["noise_multiplier"] = (0.5 * total) ** -0.5
    events[1]["noise_multiplier"] = (0.5 * total / 4) ** -0.5


TAMPERED: dict[str, Callable[[Any], None]] = {
    "more noise in one part": in_events(louder_gradients),
    "other shares of the budget": in_events(other_shares),
    "one part left out": lambda said: said["charges"]["events"].pop(),
    "parts in another order": lambda said: said["charges"]["events"].reverse(),
    "a gradient less": lambda said: said["charges"]["histories"][0]["charges"][1].update(count=3),
    "an arg-min more": lambda said: said["charges"]["histories"][0]["charges"][0].update(count=2),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_was_tampered_with_is_noticed(how: str, tmp_path: Path) -> None:
    folder = trained(WarmStart(), rounds=5).save(tmp_path / "run")
    assert verify(folder).holds
    charges = json.loads((folder / "charges.json").read_text())["charges"]
    assert Charges.from_dict(charges).to_dict() == charges
    edit(folder, "charges.json", TAMPERED[how])
    cover_up(folder)
    assert not verify(folder).holds


def test_one_kind_is_kept_in_the_old_form(tmp_path: Path) -> None:
    folder = trained().save(tmp_path / "run")
    charges = json.loads((folder / "charges.json").read_text())["charges"]
    assert "event" in charges
    assert "events" not in charges
    shutil.rmtree(folder)
