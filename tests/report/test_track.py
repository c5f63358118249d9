"""Tracking: what MLflow's file store holds afterwards, and what must not be in it."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.cli import terminal
from sottovoce.core.round import NOT_RELEASED, History
from sottovoce.experiment import saved, store
from sottovoce.report import track
from tests.cli.test_cli import assert_refused, call
from tests.experiment.test_experiment import tiny_tables, write_csv, write_toml

RUN = tiny_tables()["run"]
PUBLIC = {"name": "heart", "test": 0.25}  # a data set that everybody has


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_csv(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "tracked").as_uri())
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_LOGGING_LEVEL"):
        monkeypatch.setenv(name, {"MLFLOW_LOGGING_LEVEL": "WARNING"}.get(name, "1"))
    return tmp_path


def tracked(here: Path, **changes: Any) -> tuple[Any, Any, Path]:
    """(client, MLflow's run, where its files are) after `run --track mlflow`."""
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    outcome = call("run", write_toml(here, **changes), "--out", "saved", "--track", "mlflow", "--json")
    assert outcome.exit_code == 0, outcome.stderr
    told = json.loads(outcome.stdout)["tracked"]
    client = MlflowClient(told["where"])
    run = client.get_run(told["run"])
    return client, run, here / "tracked" / run.info.experiment_id / run.info.run_id


def test_settings_numbers_and_files_arrive(here: Path) -> None:
    client, run, folder = tracked(here, data=PUBLIC)
    result = saved.load_result(here / "saved")
    assert client.get_experiment(run.info.experiment_id).name == track.EXPERIMENT
    assert (run.info.run_name, run.info.status) == ("saved", "FINISHED")
    assert (run.data.params["algorithm.name"], run.data.params["algorithm.rho"]) == ("dp-admm", "0.1")
    assert run.data.params["run.seed"] == "1"
    told = client.get_metric_history(run.info.run_id, "test_loss")
    assert [metric.step for metric in told] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal([metric.value for metric in told], result.history["test_loss"])
    assert run.data.metrics["epsilon"] == pytest.approx(1.0)
    assert run.data.tags["privacy"] == result.guarantee.short
    files = {path.name for path in (folder / "artifacts" / "run").iterdir()}
    assert {store.CONFIG, store.HISTORY, store.MODEL, store.GUARANTEE, store.VERSIONS, store.FIGURE} <= files
    again = saved.load_result(folder / "artifacts" / "run")
    assert again.guarantee == result.guarantee
    np.testing.assert_array_equal(again.model, result.model)


@pytest.mark.parametrize("runs", [0, 3])
def test_nothing_private_and_no_folder_leaves(here: Path, runs: int) -> None:
    _, run, folder = tracked(here, run=RUN | {"runs": runs})
    result = saved.load_result(here / "saved")
    assert set(NOT_RELEASED) <= set(result.history.columns)  # there was something to keep
    assert not [name for name in run.data.metrics if name.startswith(NOT_RELEASED)]
    again = saved.load_result(folder / "artifacts" / "run")
    assert not set(NOT_RELEASED) & set(again.history.columns)
    assert "objective" not in json.loads((folder / "artifacts" / "run" / store.SUMMARY).read_text())
    sent = [path for path in folder.rglob("*") if path.is_file() and path.name != "meta.yaml"]
    assert len(sent) > 20
    for path in sent:
        content = path.read_bytes()
        assert str(here).encode() not in content, path
        for value in result.history["objective"].tolist():
            assert repr(value).encode() not in content, path
            assert np.float64(value).tobytes() not in content, path
    assert set(run.data.tags) == {
        "mlflow.runName",
        "mlflow.note.content",
        "privacy",
        "sottovoce",
    }  # no user, no machine


def test_several_runs_are_told_by_mean_and_spread(here: Path) -> None:
    client, run, _ = tracked(here, data=PUBLIC, run=RUN | {"runs": 3}, participation={"name": "k-of-n", "k": 2})
    result = saved.load_result(here / "saved")
    values = result.history["test_loss"].reshape(-1, 3)
    told = client.get_metric_history(run.info.run_id, "test_loss_std")
    np.testing.assert_allclose([metric.value for metric in told], values.std(axis=1, ddof=1))
    assert run.data.metrics["test_loss"] == pytest.approx(values[-1].mean())
    assert run.data.metrics["epsilon"] == pytest.approx(result.guarantee.epsilon)  # the most, not the mean


@pytest.mark.parametrize("aside", [False, True])
def test_without_public_test_rows_there_is_no_picture(here: Path, aside: bool) -> None:
    table = {name: value for name, value in tiny_tables()["data"].items() if name != "test" or aside}
    _, run, folder = tracked(here, data=table)
    assert ("test_loss" in saved.load_result(here / "saved").history.columns) == aside
    assert not (folder / "artifacts" / "run" / store.FIGURE).exists()
    assert not [name for name in run.data.metrics if name.startswith("test")]
    assert set(run.data.metrics) >= {"bytes_up", "epsilon"}


def test_numbers_that_are_not_finite_stay_out(here: Path) -> None:
    from sottovoce.experiment.run_file import load

    result = load(write_toml(here)).train()
    result.history.columns["test_loss"][2] = float("inf")
    assert [step for name, _, step in track.numbers(result) if name == "test_loss"] == [1, 2, 4, 5, 6]
    nothing = replace(result, history=History(), rounds=0)  # its budget was spent before the first round
    assert {step for _, _, step in track.numbers(nothing)} == {0}


def test_refused_before_anything_is_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_toml(here)
    assert_refused(call("run", path, "--track", "mlfow"), terminal.BAD_INPUT, "Did you mean 'mlflow'?")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://there")
    assert_refused(call("run", path, "--track", "mlflow"), terminal.NOT_WRITTEN, "mlflow: ", "Nothing was run")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setattr(track, "find_spec", lambda name: None)
    assert_refused(call("run", path, "--track", "mlflow"), terminal.MISSING, "pip install 'sottovoce[mlflow]'")
    assert not (here / "runs").exists()


def test_a_store_that_fails_afterwards_does_not_cost_the_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(track.Tracker, "_send", full)
    outcome = call("run", write_toml(here), "--out", "saved", "--track", "mlflow")
    assert_refused(outcome, terminal.NOT_WRITTEN, "no space left", "The run itself is saved in saved")
    assert saved.load_result(here / "saved").rounds == 6
