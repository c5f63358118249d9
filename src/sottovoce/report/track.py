"""`sottovoce run --track mlflow`: settings, numbers of every round and the run's files, to an MLflow store.

A tracking server is another machine. What was read off private rows stays here, and so do the names of folders, users
and machines: only what `released` leaves is sent. Where it goes is MLflow's own business (MLFLOW_TRACKING_URI, ...).
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce
from sottovoce.core import check
from sottovoce.core.check import MissingData
from sottovoce.experiment import store, whole_files
from sottovoce.experiment.publishable import released
from sottovoce.experiment.result import Result
from sottovoce.report import figures

TRACKERS = ("mlflow",)
EXPERIMENT = "sottovoce"  # unless MLFLOW_EXPERIMENT_NAME says otherwise
_LONGEST = 500  # characters of a setting; config.toml has all of it
_AT_ONCE = 1000  # numbers in one call, which is the most MLflow takes
_PICTURED = ("test_loss", "test_accuracy")


class Tracker:
    """A place in an MLflow store, found before training begins: an hour later is late to learn that there is none."""

    def __init__(self, name: str) -> None:
        check.one_of("run", "tracker", name, TRACKERS)
        if find_spec("mlflow") is None:
            raise MissingData("run: --track mlflow needs MLflow. Get it with: pip install 'sottovoce[mlflow]'")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nobody asked for a third machine to be told
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        with _said("Nothing was run"):
            from mlflow import MlflowClient

            self._client: Any = MlflowClient()
            wanted = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            found = self._client.get_experiment_by_name(wanted)
            self._experiment = self._client.create_experiment(wanted) if found is None else found.experiment_id
        self.where = str(self._client.tracking_uri)

    def log(self, result: Result, folder: Path) -> str:
        """Send a finished run that is saved in `folder`; the number MLflow gave it."""
        shown = released(result)
        with _said(f"The run itself is saved in {folder}"):
            client, tags = self._client, _tags(shown)
            run = client.create_run(self._experiment, run_name=folder.resolve().name, tags=tags).info.run_id
            try:
                self._send(run, shown)
            except BaseException:
                client.set_terminated(run, "FAILED")
                raise
            client.set_terminated(run)
        return run

    def _send(self, run: str, shown: Result) -> None:
        from mlflow.entities import Metric, Param

        client, now = self._client, int(1000 * time.time())
        client.log_batch(run, params=[Param(name, value) for name, value in settings(shown).items()])
        metrics = [Metric(name, value, now, step) for name, value, step in numbers(shown)]
        for start in range(0, len(metrics), _AT_ONCE):
            client.log_batch(run, metrics=metrics[start : start + _AT_ONCE])
        with tempfile.TemporaryDirectory() as place:
            picture = any(name in shown.history.columns for name in _PICTURED)
            more = figures.of_run(shown) if picture else {}
            client.log_artifacts(run, str(store.save(shown, Path(place) / "run", more)), "run")


def settings(result: Result) -> dict[str, str]:
    """Every setting under the name "table.key"."""
    flat = {f"{table}.{key}": str(value) for table, keys in result.config.items() for key, value in keys.items()}
    return {name: text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for name, text in flat.items()}


def numbers(result: Result) -> Iterator[tuple[str, float, int]]:
    """(name, value, round): means over runs, with standard deviations if there are several; only finite ones.

    Of what was spent, the most: a mean over runs is nobody's guarantee.
    """
    history = result.history
    runs = 1 + int(max(history["run"]))
    rounds = history["round"][::runs].tolist()
    for name in history.columns:
        if name in ("run", "round"):
            continue
        values = history[name].reshape(-1, runs)
        spent = name.startswith("epsilon")
        columns = {name: values.max(axis=1) if spent else values.mean(axis=1)}
        with np.errstate(invalid="ignore"):
            if runs > 1 and not spent and np.ptp(values, axis=1).any():
                columns[f"{name}_std"] = values.std(axis=1, ddof=1)
        for column, told in columns.items():
            yield from (
                (column, value, int(at)) for value, at in zip(told.tolist(), rounds, strict=True) if np.isfinite(value)
            )


def _tags(result: Result) -> dict[str, str]:
    guarantee = result.guarantee
    return {
        "sottovoce": sottovoce.__version__,
        "privacy": guarantee.short,
        "mlflow.note.content": guarantee.text[:5000],
    }


@contextmanager
def _said(then: str) -> Iterator[None]:
    """MLflow's refusals in one sentence."""
    try:
        yield
    except Exception as error:
        if not (type(error).__module__.startswith("mlflow") or isinstance(error, OSError | ImportError)):
            raise
        why = " ".join(str(error).split())[:1000]
        raise whole_files.StoreError(f"mlflow: cannot be used ({why}). {then}") from None
