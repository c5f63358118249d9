"""Run folders: all or nothing, and a resumed run that is the run."""

import errno
import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import sottovoce as sv
from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.check import InvalidInput, MissingData, SottovoceError
from sottovoce.core.round import Checkpoint, History
from sottovoce.experiment import store, whole_files
from sottovoce.experiment.result import Result
from sottovoce.experiment.run_file import Experiment, load
from sottovoce.experiment.saved import load_checkpoint, load_result
from sottovoce.experiment.store import Checkpoints, save
from sottovoce.experiment.tables import to_toml
from sottovoce.experiment.whole_files import StoreError
from tests.cases import goal, small
from tests.experiment.test_experiment import RECORD, ROWS, SPLIT, write_csv, write_toml

FILES = {
    *(store.CONFIG, store.HISTORY, store.MODEL, store.GUARANTEE, store.GUARANTEE_TEXT),
    *(store.SUMMARY, store.VERSIONS, store.CHARGES, store.MANIFEST, store.METRICS),
}


@pytest.fixture
def todo(tmp_path: Path) -> Experiment:
    return an_experiment(tmp_path)


def an_experiment(tmp_path: Path, **changes: Any) -> Experiment:
    folder = tmp_path / "input"
    folder.mkdir(exist_ok=True)
    write_csv(folder)
    return load(write_toml(folder, **changes))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Stop(Exception):
    """Somebody pressed Ctrl-C."""


class Crash(BaseException):
    """The machine goes off."""


def crash_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """The `call`-th step that reaches the disk is the last one, and nobody cleans up."""
    seen = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == call:
                raise Crash
            return real(*args, **kwargs)

        return wrapper

    for name in ("fsync", "replace", "rename", "unlink"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(whole_files, "_discard", lambda path: None)


# -------------------------------------------------------------------------------------------------------- finished runs


@pytest.mark.parametrize("runs", [0, 2])
def test_a_saved_run_is_read_back_as_it_was(tmp_path: Path, runs: int) -> None:
    todo = an_experiment(tmp_path, run={"rounds": 3, "seed": 1, "engine": "numpy", "runs": runs})
    result = todo.train()
    path = result.save(tmp_path / "deep" / "run")
    assert names(path) == FILES
    assert names(path.parent) == {"run"}
    again = load_result(path)
    np.testing.assert_array_equal(again.model, result.model)
    assert again.model.shape == ((2, 2) if runs else (2,))
    for name in ("config", "guarantee", "rounds", "stopped", "objective", "history", "metrics"):
        assert getattr(again, name) == getattr(result, name), name
    np.testing.assert_array_equal(again.predict([[1.0, 0.0]]), result.predict([[1.0, 0.0]]))


def test_every_file_says_what_it_should(tmp_path: Path, todo: Experiment) -> None:
    result = todo.train()
    path = save(result, tmp_path / "run", {"more.txt": b"more"})
    assert (path / "more.txt").read_bytes() == b"more"
    assert "more.txt" in json.loads((path / store.MANIFEST).read_text())["files"]
    assert (path / store.GUARANTEE_TEXT).read_text() == f"{result.guarantee}\n"
    assert json.loads((path / store.GUARANTEE).read_text())["epsilon"] == result.guarantee.epsilon
    versions = json.loads((path / store.VERSIONS).read_text())
    assert versions["numpy"] == np.__version__
    assert set(versions) >= {"python", "sottovoce", "scipy", "numba", "system", "machine"}
    table = pyarrow.parquet.read_table(path / store.HISTORY)
    assert table.column("round").to_pylist() == [1, 2, 3, 4, 5, 6]
    assert {"objective", "test_loss", "test_accuracy", "epsilon", "bytes_up", "bytes_down"} <= set(table.column_names)
    assert load(path / store.CONFIG).settings.seed == 1  # the config is a run file itself
    summary = json.loads((path / store.SUMMARY).read_text())
    assert summary["test_loss"] == result.history["test_loss"][-1]
    assert (summary["rounds"], summary["bytes_up"]) == (6, 6 * 3 * 2 * 8)


def test_a_run_that_went_to_infinity_is_still_json(tmp_path: Path, todo: Experiment) -> None:
    result = todo.train()
    result.history.columns["objective"][-1] = float("inf")
    path = save(result, tmp_path / "run")
    assert json.loads((path / store.SUMMARY).read_text(), parse_constant=pytest.fail)["objective"] is None


def test_the_summary_of_several_runs_is_their_mean(tmp_path: Path) -> None:
    todo = an_experiment(tmp_path, run={"rounds": 2, "seed": 1, "engine": "numpy", "runs": 3})
    result = todo.train()
    last, summary = result.history["objective"][-3:], store.summary(result)
    assert summary["objective"] == pytest.approx(last.mean())
    assert summary["objective_std"] == pytest.approx(last.std(ddof=1))
    assert "bytes_up_std" not in summary


def test_a_folder_that_holds_something_is_refused(tmp_path: Path, todo: Experiment) -> None:
    result, path = todo.train(), tmp_path / "run"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    for refuse in (lambda: save(result, path), lambda: whole_files.reserved(path).__enter__()):
        with pytest.raises(InvalidInput, match="exists and is not an empty folder; choose another one"):
            refuse()
    assert (path / "notes.txt").read_text() == "mine"
    assert names(tmp_path) == {"input", "run"}
    with pytest.raises(InvalidInput, match="not an empty folder"):
        save(result, path / "notes.txt")


def test_an_empty_folder_is_taken(tmp_path: Path, todo: Experiment) -> None:
    (tmp_path / "run").mkdir()
    assert names(save(todo.train(), tmp_path / "run")) == FILES


@pytest.mark.parametrize("call", range(1, 16))
def test_a_crash_while_saving_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, result: Result
) -> None:
    path = tmp_path / "run"
    with monkeypatch.context() as patched:
        crash_at(patched, call)
        crashed = False
        try:
            save(result, path)
        except Crash:
            crashed = True
    # 10 files, the folder, the rename, the folder above: what comes later is not a crash any more
    assert crashed == (call <= 13)
    assert path.exists() == (call > 12)
    if path.exists():
        np.testing.assert_array_equal(load_result(path).model, result.model)
    else:  # what a crash left behind does not stand in the way
        save(result, path)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return an_experiment(tmp_path_factory.mktemp("module")).train()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EDQUOT])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: Result, code: int
) -> None:
    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(
            StoreError, match=r"run: cannot be written \(.*\); nothing was left half written"
        ) as refused:
            save(result, tmp_path / "run")
    assert os.strerror(code).lower() in str(refused.value)
    assert isinstance(refused.value, SottovoceError)
    assert names(tmp_path) == set()


def test_a_place_where_nothing_can_be_written(tmp_path: Path, result: Result) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        save(result, tmp_path / "file" / "run")
    with pytest.raises(StoreError, match="cannot be written"), whole_files.reserved(tmp_path / "file" / "run"):
        pytest.fail("was entered")


def test_what_is_no_run_folder(tmp_path: Path, result: Result) -> None:
    with pytest.raises(MissingData, match="no such run folder"):
        load_result(tmp_path / "none")
    (tmp_path / "notes").mkdir()
    with pytest.raises(MissingData, match=r"notes: holds no run: there is no config\.toml"):
        load_result(tmp_path / "notes")
    path = save(result, tmp_path / "run")
    for name, content, words in (
        (store.MODEL, b"", "must be a whole .npz file"),
        (store.HISTORY, b"PAR1", "must be a Parquet file"),
        (store.GUARANTEE, b"{", "must be JSON"),
        (store.GUARANTEE, b'{"mode": "none", "eps": 1}', "was altered"),
        (store.CONFIG, b"[data]", "needs loss = one of"),
    ):
        before = (path / name).read_bytes()
        (path / name).write_bytes(content)
        with pytest.raises(InvalidInput, match=words):
            load_result(path)
        (path / name).write_bytes(before)
    load_result(path)
    (path / store.HISTORY).unlink()
    with pytest.raises(MissingData, match="no such file"):
        load_result(path)


# ------------------------------------------------------------------------------------------------------- reserved names


def fail_in(path: Path, leave: str = "") -> None:
    with whole_files.reserved(path) as held:
        assert held == path
        assert path.is_dir()
        if leave:
            (path / leave).write_text("")
        raise Stop


def test_a_name_is_held_and_given_back_when_nothing_came_of_it(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a"
    with pytest.raises(Stop):
        fail_in(path)
    assert names(tmp_path) == set()
    with pytest.raises(Stop):
        fail_in(path, leave="kept")
    assert names(path) == {"kept"}


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir()
    with pytest.raises(Stop):
        fail_in(path)
    assert path.is_dir()


def test_runs_of_the_same_second_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with whole_files.reserved(path, numbered=True) as first, whole_files.reserved(path, numbered=True) as second:
        assert [first.name, second.name] == ["a", "a-2"]


# ---------------------------------------------------------------------------------------------------------- checkpoints


def interrupted(todo: Experiment, path: Path, at: int) -> Checkpoints:
    """Train until round `at`, and write that."""
    keep = Checkpoints(path, todo.described(), todo.data().federation, seconds=1000)

    def after_round(checkpoint: Checkpoint) -> None:
        keep(checkpoint)
        if checkpoint.k == at:
            raise Stop

    with pytest.raises(Stop):
        todo.train(after_round)
    assert keep.write()
    return keep


def checkpoint_of(todo: Experiment, path: Path) -> Checkpoint:
    return load_checkpoint(path, todo.task, todo.data().federation, todo.described())


def resumed(path: Path) -> Result:
    """As another process would: from the folder alone."""
    todo = load(path / store.CONFIG)
    return todo.train(resume=checkpoint_of(todo, path))


def assert_same(one: Result, other: Result) -> None:
    np.testing.assert_array_equal(one.model, other.model)
    assert {name: column for name, column in one.history.columns.items() if name != "seconds"} == {
        name: column for name, column in other.history.columns.items() if name != "seconds"
    }
    assert one.guarantee == other.guarantee
    assert one.config == other.config
    assert (one.rounds, one.stopped) == (other.rounds, other.stopped)


PROVEN = {"mode": "proven", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0}
PUBLISHED = {"mode": "published", "epsilon": 0.5, "delta": 1e-4}


@pytest.mark.parametrize("runs", [0, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_resumed_equals_uninterrupted(tmp_path: Path, name: str, runs: int) -> None:
    modes = ALGORITHMS[name].modes
    proven, where, k = (PROVEN, {}, 2) if name in ROWS else (RECORD, {"data": SPLIT}, 1)
    if name == "masked-moments":  # it has no bounds, and needs everyone
        proven, k = {key: RECORD[key] for key in ("mode", "epsilon", "delta", "unit")}, 2
    noisy = [privacy for privacy in (proven, PUBLISHED) if privacy["mode"] in modes]
    for privacy in noisy or [{"mode": "none"}]:
        todo = an_experiment(
            tmp_path,
            **where,
            algorithm={"name": name},
            privacy=privacy,
            participation={"name": "k-of-n", "k": k},
            run={"rounds": 5, "seed": 1, "engine": "numpy", "runs": runs, "record_every": 2},
        )
        whole = todo.train()
        rounds = (2,) if runs else (1, 5)  # many runs at once differ in the states of a method alone
        for at in (at for at in rounds if at <= whole.rounds):  # a method of one round has no second
            path = tmp_path / f"{privacy['mode']}-{at}"
            interrupted(todo, path, at)
            assert names(path) == {store.CONFIG, store.CHECKPOINT}
            assert_same(resumed(path), whole)


def test_a_budget_is_not_refreshed_by_resuming(tmp_path: Path) -> None:
    todo = an_experiment(
        tmp_path,
        privacy=PROVEN | {"participations": 3},
        run={"rounds": 6, "seed": 1, "engine": "numpy"},
    )
    whole = todo.train()
    assert whole.rounds == 3
    assert "budget" in whole.stopped
    interrupted(todo, tmp_path / "run", 2)
    again = resumed(tmp_path / "run")
    assert_same(again, whole)
    assert again.guarantee.epsilon == pytest.approx(1.0)


def test_interrupted_twice(tmp_path: Path, todo: Experiment) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 2)
    done = checkpoint_of(todo, path)
    keep = Checkpoints(path, todo.described(), todo.data().federation, 1000, done)
    assert keep.write()  # before another round is done, what there was
    assert_same(resumed(path), todo.train())


def test_a_checkpoint_folder_is_completed_in_place(tmp_path: Path, todo: Experiment) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    with pytest.raises(InvalidInput, match=r"not finished\. Go on with: sottovoce run --resume"):
        load_result(path)
    result = resumed(path)
    save(result, path)
    assert names(path) == FILES
    assert_same(load_result(path), result)
    with pytest.raises(InvalidInput, match="is finished, there is nothing to resume"):
        checkpoint_of(todo, path)


def test_a_checkpoint_folder_of_another_run_is_not_overwritten(tmp_path: Path, todo: Experiment) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    other = an_experiment(tmp_path, run={"rounds": 6, "seed": 2, "engine": "numpy"}).train()
    with pytest.raises(InvalidInput, match="unfinished run with another config"):
        save(other, path)
    assert names(path) == {store.CONFIG, store.CHECKPOINT}


@pytest.mark.parametrize("call", [*range(1, 20, 3), *range(20, 26)])
def test_a_crash_while_completing_leaves_a_run_to_resume_or_a_finished_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todo: Experiment, call: int
) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    result = resumed(path)
    with monkeypatch.context() as patched:
        crash_at(patched, call)
        try:
            save(result, path)
        except Crash:
            assert call <= 23  # 10 files of two steps each, their folder, the checkpoint, the folder again
    if call <= 22:
        assert_same(resumed(path), result)
        save(result, path)
    assert_same(load_result(path), result)


@pytest.mark.parametrize("call", range(1, 5))
def test_a_crash_while_checkpointing_leaves_the_last_one_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todo: Experiment, call: int
) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 2)
    later = interrupted(todo, tmp_path / "other", 4)
    later.path = path
    with monkeypatch.context() as patched:
        crash_at(patched, call)
        try:
            later.write()
        except Crash:
            assert call <= 3
    assert checkpoint_of(todo, path).k == (2 if call <= 2 else 4)
    assert_same(resumed(path), todo.train())


@pytest.mark.parametrize("call", range(1, 6))
def test_a_crash_at_the_first_checkpoint_leaves_it_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todo: Experiment, call: int
) -> None:
    first = interrupted(todo, tmp_path / "other", 4)
    first.path = tmp_path / "run"
    with monkeypatch.context() as patched:
        crash_at(patched, call)
        try:
            first.write()
        except Crash:
            assert call <= 5
    assert first.path.exists() == (call > 4)  # two files, their folder, the rename
    if first.path.exists():
        assert checkpoint_of(todo, first.path).k == 4


def test_a_full_disk_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todo: Experiment
) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 2)
    later = interrupted(todo, tmp_path / "other", 4)
    later.path = path

    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(StoreError, match="no space left on device"):
            later.write()
    assert names(path) == {store.CONFIG, store.CHECKPOINT}
    assert checkpoint_of(todo, path).k == 2


def test_checkpoints_are_written_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todo: Experiment
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    path, seen = tmp_path / "run", []
    keep = Checkpoints(path, todo.described(), todo.data().federation, seconds=2.0)

    def after_round(checkpoint: Checkpoint) -> None:
        clock[0] += 0.8
        keep(checkpoint)
        seen.append(checkpoint_of(todo, path).k if path.exists() else 0)

    todo.train(after_round)
    assert seen == [0, 0, 3, 3, 3, 6]
    assert keep.last is not None
    assert keep.last.k == 6


def test_before_the_first_round_there_is_nothing_to_write(tmp_path: Path, todo: Experiment) -> None:
    keep = Checkpoints(tmp_path / "run", todo.described(), todo.data().federation)
    assert not keep.write()
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------- checkpoints from elsewhere


def test_a_checkpoint_of_another_config_or_of_other_rows_is_refused(tmp_path: Path, todo: Experiment) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    words = "belongs to another config or to other rows"
    changed = to_toml(todo.described()).replace("rho = 0.1", "rho = 0.2")
    other = an_experiment(tmp_path, algorithm={"name": "dp-admm", "rho": 0.2})
    with pytest.raises(InvalidInput, match=words):
        checkpoint_of(other, path)
    (path / store.CONFIG).write_text(changed)
    with pytest.raises(InvalidInput, match=words):
        resumed(path)
    (path / store.CONFIG).write_text(to_toml(todo.described()))
    write_csv(tmp_path / "input", seed=4)
    with pytest.raises(InvalidInput, match=words):
        resumed(path)
    write_csv(tmp_path / "input")
    resumed(path)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, todo: Experiment) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    file = path / store.CHECKPOINT
    whole = file.read_bytes()
    place = whole.index(arrays_of(path)["server.w"].tobytes())  # another number: only the check sum can tell
    for content in (b"", whole[:-30], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"checkpoint\.npz: must be a whole \.npz file"):
            checkpoint_of(todo, path)
    file.unlink()
    with pytest.raises(MissingData, match="nothing to resume"):
        checkpoint_of(todo, path)
    with pytest.raises(MissingData, match="no such run folder"):
        checkpoint_of(todo, tmp_path / "none")


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with np.load(path / store.CHECKPOINT) as loaded:
        return {name: loaded[name] for name in loaded.files}


FAULTS: dict[str, tuple[Callable[[dict[str, np.ndarray]], dict[str, Any]], str]] = {
    "another shape": (lambda a: a | {"server.w": np.zeros((1, 3))}, r"w must have shape \(1, 2\), got \(1, 3\)"),
    "not finite": (lambda a: a | {"server.w": np.full((1, 2), np.nan)}, "w must be finite"),
    "another type": (lambda a: a | {"server.w": np.zeros((1, 2), np.float32)}, "w must be float64"),
    "a field too many": (lambda a: a | {"server.x": np.zeros((1, 2))}, "needs exactly the fields"),
    "a field too few": (lambda a: {k: v for k, v in a.items() if k != "server.v"}, "needs exactly the fields"),
    "no round": (lambda a: {k: v for k, v in a.items() if k != "k"}, "must hold a number 'k'"),
    "half a round": (lambda a: a | {"k": np.asarray(1.5)}, "k must be a whole number"),
    "an uneven history": (lambda a: a | {"history.round": np.arange(7)}, "must be equally long"),
    "an object": (lambda a: a | {"server.w": np.array([[print, 1.0]], dtype=object)}, "must be plain numbers"),
}


@pytest.mark.parametrize(("alter", "words"), FAULTS.values(), ids=FAULTS)
def test_an_altered_checkpoint_is_refused(
    tmp_path: Path, todo: Experiment, alter: Callable[[dict[str, np.ndarray]], dict[str, Any]], words: str
) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    np.savez(path / store.CHECKPOINT, **alter(arrays_of(path)))
    with pytest.raises(InvalidInput, match=words):
        checkpoint_of(todo, path)


def test_a_file_cannot_make_us_reserve_memory_it_does_not_fill(tmp_path: Path, todo: Experiment) -> None:
    path = tmp_path / "run"
    interrupted(todo, path, 3)
    np.savez_compressed(path / store.CHECKPOINT, **arrays_of(path))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not compressed"):
        checkpoint_of(todo, path)
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    with zipfile.ZipFile(path / store.CHECKPOINT, "w") as archive, archive.open("k.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
    with pytest.raises(InvalidInput, match="must fill its 128 bytes exactly"):
        checkpoint_of(todo, path)


def test_what_was_read_off_private_rows_is_marked_in_the_history(tmp_path: Path) -> None:
    from pyarrow import parquet

    result = sv.train(sv.DPADMM(), small(), goal(), rounds=2, privacy=sv.Proven(1.0, 1e-4, 1.0), seed=0)
    schema = parquet.read_schema(result.save(tmp_path / "run") / "history.parquet")
    assert b"no" in schema.field("objective").metadata[b"released"]
    assert schema.field("epsilon").metadata is None


def test_a_row_of_history_has_one_value_for_each_run() -> None:
    history = History()
    history.add(3, run=np.arange(3), round=7, loss=np.array([0.5]))
    assert history.columns == {"run": [0, 1, 2], "round": [7, 7, 7], "loss": [0.5, 0.5, 0.5]}
    with pytest.raises(ValueError, match="broadcast"):
        history.add(3, loss=np.array([0.5, 0.2]))
