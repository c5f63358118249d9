"""Ledger files behind a training run: budgets that outlive it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import KOfN
from sottovoce.core.round import Checkpoint
from sottovoce.privacy.ledger import Budget, LedgerError
from sottovoce.privacy.ledger_file import FileLedger
from tests.cases import goal, small

PROVEN = sv.Proven(1.0, 1e-4, 1.0)


def train(folder: Path, **changes: Any) -> sv.Result:
    options: dict[str, Any] = {"rounds": 4, "privacy": PROVEN, "seed": 0, "engine": "numpy", "ledgers": folder}
    algorithm, federation = changes.pop("algorithm", DPSGD()), changes.pop("federation", small())
    return sv.train(algorithm, federation, goal(), **(options | changes))


def counts(folder: Path) -> list[int]:
    found = []
    for path in sorted(folder.glob("*.ledger")):
        with FileLedger.open(path) as ledger:
            found.append(sum(ledger.spent().values()))
    return found


def test_files_and_memory_agree(tmp_path: Path) -> None:
    for participation in (sv.Everyone(), KOfN(3)):
        folder = tmp_path / participation.name
        on_disk = train(folder, participation=participation)
        in_memory = train(folder, participation=participation, ledgers=None)
        assert np.array_equal(on_disk.model, in_memory.model)
        assert on_disk.guarantee.epsilon_of_client == pytest.approx(in_memory.guarantee.epsilon_of_client)
    assert counts(tmp_path / "everyone") == [4] * 6
    assert "this and all earlier runs" in str(on_disk.guarantee)


def test_a_budget_is_spent_once_and_for_all(tmp_path: Path) -> None:
    assert train(tmp_path).stopped == ""
    again = train(tmp_path, seed=1)
    assert again.rounds == 0
    assert "every client's budget is spent" in again.stopped
    assert again.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    with FileLedger.open(tmp_path / "0002.ledger") as ledger:
        ledger.change_budget(Budget(2.0, 1e-4), "the board agreed to a second study")
    third = train(tmp_path, seed=1)
    assert third.rounds == 4
    assert third.history["answered"].tolist() == [1] * 4
    assert 1.0 < third.guarantee.epsilon_of_client[2] <= 2.0
    assert third.guarantee.epsilon_of_client[1] == pytest.approx(1.0, rel=1e-6)


def test_the_same_run_again_is_the_same_answers_and_costs_nothing(tmp_path: Path) -> None:
    first, second = train(tmp_path), train(tmp_path)
    assert np.array_equal(first.model, second.model)
    assert counts(tmp_path) == [4] * 6


def test_another_question_under_the_same_seed_is_charged(tmp_path: Path) -> None:
    """Anything that changes an answer changes the name of the run: else seeded noise would be used twice."""
    train(tmp_path)
    for path in tmp_path.glob("*.ledger"):
        with FileLedger.open(path) as ledger:
            ledger.change_budget(Budget(50.0, 1e-4), "room for more")
    half = sv.Proven(0.5, 1e-4, 1.0)
    for changes in (
        {"algorithm": DPSGD(step=0.2)},
        {"privacy": half},
        {"rounds": 3, "privacy": half},
        {"seed": 9, "privacy": half},
    ):
        before = counts(tmp_path)
        train(tmp_path, **changes)
        assert all(after > b for after, b in zip(counts(tmp_path), before, strict=True)), changes


def test_a_run_cut_off_after_the_charge_resumes_to_the_same_result(tmp_path: Path) -> None:
    """Cut off between charge and checkpoint, in the budget's last round: asking again is free and changes nothing."""
    whole = train(tmp_path / "a")
    kept: list[Checkpoint] = []

    def stop_late(checkpoint: Checkpoint) -> None:
        if checkpoint.k == 4:
            raise KeyboardInterrupt  # round 4 was charged, its checkpoint is lost
        kept.append(checkpoint)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", after_round=stop_late)
    assert counts(tmp_path / "b") == [4] * 6
    resumed = train(tmp_path / "b", resume=kept[-1])
    assert np.array_equal(resumed.model, whole.model)
    assert counts(tmp_path / "b") == [4] * 6


def test_refusals(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(LedgerError, match="another data set"):
        train(tmp_path, federation=small(seed=4))
    with pytest.raises(InvalidInput, match=r"keeps its budget at delta = 0\.0001, got 1e-05"):
        train(tmp_path, privacy=sv.Proven(1.0, 1e-5, 1.0))
    with pytest.raises(InvalidInput, match="privacy=NoPrivacy has no budget"):
        train(tmp_path / "none", privacy=sv.NoPrivacy())
    with pytest.raises(InvalidInput, match="one run at a time"):
        train(tmp_path / "many", runs=3)
    assert not (tmp_path / "none").exists()


def test_secure_noise_is_never_drawn_twice_for_one_question(tmp_path: Path) -> None:
    """A repeat would be a second look with fresh noise. With secure noise nothing is free: the whole is refused."""
    from sottovoce.privacy.ledger import AlreadyCharged

    secure = sv.Proven(10.0, 1e-4, 1.0, noise="secure")
    kept: list[Checkpoint] = []
    train(tmp_path, privacy=secure, rounds=2, after_round=kept.append)
    with FileLedger.open(tmp_path / "0000.ledger") as ledger:
        ledger.change_budget(Budget(100.0, 1e-4), "room for another look")
    with pytest.raises(AlreadyCharged):
        train(tmp_path, privacy=secure, rounds=2, resume=kept[0])
