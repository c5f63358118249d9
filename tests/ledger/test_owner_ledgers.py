"""Ledger files behind a training run: budgets that outlive it."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.participation import KOfN
from sottovoce.core.round import Checkpoint
from sottovoce.ledger.budget import Budget, LedgerError
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.kept_answers import KeptAnswers
from sottovoce.problems.rows import Rows
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


def test_a_run_that_is_started_again_pays_again(tmp_path: Path) -> None:
    """Free is only a resend of stored answers. A new run looks at the data anew, be it with the same settings."""
    train(tmp_path)
    room(tmp_path, 50.0)
    half = sv.Proven(0.5, 1e-4, 1.0)
    for changes in (
        {},
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
    assert not list((tmp_path / "b").glob("answers*"))  # kept while they may be asked for again


def test_answers_are_resent_without_a_look_at_the_data(tmp_path: Path) -> None:
    """Between checkpoint and crash two rounds were answered: a resumed run gets these very bytes, for free."""
    kept: list[Checkpoint] = []
    looked: list[int] = []

    def stop(checkpoint: Checkpoint) -> None:
        kept.append(checkpoint)
        if checkpoint.k == 3:
            raise KeyboardInterrupt

    secure = sv.Proven(10.0, 1e-4, 1.0, noise="secure")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, privacy=secure, after_round=stop)
    again: list[Checkpoint] = []
    original = Rows.clipped_examples
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "clipped_examples", lambda *a: looked.append(1) or original(*a))
        resumed = train(tmp_path, privacy=secure, resume=kept[0], after_round=again.append)
    assert np.array_equal(again[0].server.w, kept[1].server.w)
    assert np.array_equal(again[1].server.w, kept[2].server.w)
    assert len(looked) == 6  # round 4 alone
    assert resumed.rounds == 4
    assert counts(tmp_path) == [4] * 6


def test_an_answer_that_was_charged_and_lost_is_paid_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def put(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(KeptAnswers, "put", put)
        with pytest.raises(OSError, match="disk is full"):
            train(tmp_path)
    assert counts(tmp_path) == [1] * 6
    assert train(tmp_path).rounds == 3  # of four: the ledger holds four answers, and one was lost
    assert counts(tmp_path) == [4] * 6


def test_a_run_that_goes_on_without_its_answers_pays_for_them_again(tmp_path: Path) -> None:
    """Rounds 2 and 3 were charged, and their answers are gone: new ones have other noise, and are not free."""
    kept: list[Checkpoint] = []

    def stop(checkpoint: Checkpoint) -> None:
        kept.append(checkpoint)
        if checkpoint.k == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, after_round=stop)
    assert counts(tmp_path) == [3] * 6
    shutil.rmtree(tmp_path / "answers")
    assert train(tmp_path, resume=kept[0]).rounds == 2  # the ledger holds four answers
    assert counts(tmp_path) == [4] * 6


def test_refusals(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(LedgerError, match="another data set"):
        train(tmp_path, federation=small(seed=4))
    with pytest.raises(InvalidInput, match=r"keeps its budget at delta = 0\.0001, got 1e-05"):
        train(tmp_path, privacy=sv.Proven(1.0, 1e-5, 1.0))
    with pytest.raises(InvalidInput, match="NoPrivacy has no budget"):
        train(tmp_path / "none", privacy=sv.NoPrivacy())
    with pytest.raises(InvalidInput, match="one run at a time"):
        train(tmp_path / "many", runs=3)
    assert not (tmp_path / "none").exists()


def room(folder: Path, epsilon: float) -> None:
    for path in folder.glob("*.ledger"):
        with FileLedger.open(path) as ledger:
            ledger.change_budget(Budget(epsilon, 1e-4), "room for more")


def test_a_finished_run_cannot_be_resumed_beyond_its_budget(tmp_path: Path) -> None:
    """Its kept answers are gone, so a question asked again is a second look; its own budget has no room for that."""
    secure = sv.Proven(10.0, 1e-4, 1.0, noise="secure")
    kept: list[Checkpoint] = []
    train(tmp_path, privacy=secure, rounds=2, after_round=kept.append)
    room(tmp_path, 100.0)
    resumed = train(tmp_path, privacy=secure, rounds=2, resume=kept[0])
    assert "every client's budget is spent" in resumed.stopped
    assert counts(tmp_path) == [2] * 6


def test_a_run_keeps_to_its_own_budget_in_a_roomy_ledger(tmp_path: Path) -> None:
    train(tmp_path)
    room(tmp_path, 50.0)
    before = counts(tmp_path)
    again = train(tmp_path, seed=7, rounds=12, privacy=sv.Proven(1.0, 1e-4, 1.0, participations=3))
    assert again.rounds == 3
    assert [b - a for a, b in zip(before, counts(tmp_path), strict=True)] == [3] * 6


def test_other_settings_other_noise() -> None:
    """Two runs under one seed that differ in anything: the noise in their first answers is not the same up to scale."""

    def first_upload(privacy: sv.Proven = PROVEN, **changes: Any) -> np.ndarray:
        kept: list[Any] = []
        options: dict[str, Any] = {"rounds": 2, "seed": 0, "engine": "numpy", "after_round": kept.append} | changes
        sv.train(options.pop("algorithm", sv.DPADMM()), small(), goal(), privacy=privacy, **options)
        return kept[0].server.v.ravel()

    quiet = first_upload(sv.Proven(1e9, 1e-4, 1.0))
    noises = [
        first_upload(privacy, **changes) - quiet
        for privacy, changes in (
            (PROVEN, {}),
            (sv.Proven(0.5, 1e-4, 1.0), {}),
            (PROVEN, {"rounds": 3}),
            (PROVEN, {"algorithm": sv.DPADMM(c_w=11.0)}),
        )
    ]
    for i, a in enumerate(noises):
        for b in noises[:i]:
            assert abs(np.corrcoef(a, b)[0, 1]) < 0.75
    assert np.array_equal(first_upload(), first_upload())


def test_what_memory_forgets_cannot_be_resumed() -> None:
    options: dict[str, Any] = {"rounds": 4, "engine": "numpy"}
    kept: list[Checkpoint] = []
    whole = sv.train(DPSGD(), small(), goal(), privacy=PROVEN, seed=3, after_round=kept.append, **options)
    assert np.array_equal(
        sv.train(DPSGD(), small(), goal(), privacy=PROVEN, resume=kept[1], **options).model, whole.model
    )
    with pytest.raises(InvalidInput, match="resume needs the seed of the run"):
        sv.train(DPSGD(), small(), goal(), privacy=PROVEN, resume=kept[1], seed=5, **options)
    secure = sv.Proven(10.0, 1e-4, 1.0, noise="secure")
    forgotten = dataclasses.replace(kept[1], seed=None)
    for privacy, checkpoint in ((secure, kept[1]), (PROVEN, forgotten)):
        with pytest.raises(NoGuarantee, match="cannot be resumed from memory"):
            sv.train(DPSGD(), small(), goal(), privacy=privacy, resume=checkpoint, **options)
