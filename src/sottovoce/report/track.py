"""`sottovoce run --track mlflow`: settings, numbers of every round and the run's files, to an MLflow store.

A tracking server is another machine. What was read off private rows is not sent to it, nor are the names of folders,
users and machines: only what `publishable.released` leaves. Where it goes is up to MLflow (MLFLOW_TRACKING_URI, ...).
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import sottovoce
from sottovoce.core import check
from sottovoce.experiment import store, whole_files
from sottovoce.experiment.publishable import released
from sottovoce.experiment.result import Result
from sottovoce.report import figures
from sottovoce.report.runs import flat_settings

TRACKERS = ("mlflow",)
EXPERIMENT = "sottovoce"  # unless MLFLOW_EXPERIMENT_NAME says otherwise
_LONGEST = 500  # characters of a setting; config.toml has all of it
_AT_ONCE = 1000  # numbers in one call, which is the most MLflow takes


class Tracker:
    """An experiment in an MLflow store. It is looked up before training begins, so that a mistake costs no training."""

    def __init__(self, name: str) -> None:
        check.one_of("run", "tracker", name, TRACKERS)
        if find_spec("mlflow") is None:
            raise check.MissingData("run: --track mlflow needs MLflow. Get it with: pip install 'sottovoce[mlflow]'")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no data to a third machine that nobody asked for
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        with _mlflow_errors("Nothing was run"):
            from mlflow import MlflowClient

            self._client: MlflowClient = MlflowClient()
            wanted = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            existing = self._client.get_experiment_by_name(wanted)
            self._experiment = existing.experiment_id if existing else self._client.create_experiment(wanted)
        self.where = str(self._client.tracking_uri)

    def log(self, result: Result, folder: Path) -> str:
        """Send a finished run that is saved in `folder`; returns the number MLflow gave it."""
        public = released(result)
        with _mlflow_errors(f"The run itself is saved in {folder}"):
            client, promise = self._client, public.guarantee
            about = {"privacy": promise.short, "mlflow.note.content": promise.text[:5000]}
            tags = {"sottovoce": sottovoce.__version__, **about}
            run = client.create_run(self._experiment, run_name=folder.resolve().name, tags=tags).info.run_id
            try:
                self._send(run, public)
            except BaseException:
                client.set_terminated(run, "FAILED")
                raise
            client.set_terminated(run)
        return run

    def _send(self, run: str, public: Result) -> None:
        from mlflow.entities import Metric, Param

        client, now = self._client, int(1000 * time.time())
        client.log_batch(run, params=[Param(name, value) for name, value in settings(public).items()])
        metrics = [Metric(name, value, now, step) for name, value, step in numbers(public)]
        for start in range(0, len(metrics), _AT_ONCE):
            client.log_batch(run, metrics=metrics[start : start + _AT_ONCE])
        with tempfile.TemporaryDirectory() as place:
            folder = store.save(public, Path(place) / "run", figures.of_run(public))
            client.log_artifacts(run, str(folder), "run")


def settings(result: Result) -> dict[str, str]:
    """Every setting as text that is not too long for MLflow."""
    texts = {name: str(value) for name, value in flat_settings(result.config).items()}
    return {name: text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for name, text in texts.items()}


def numbers(result: Result) -> Iterator[tuple[str, float, int]]:
    """(name, value, round): means over runs, with standard deviations if there are several; only finite ones.

    Of the epsilon spent the largest is sent: no guarantee is about a mean over runs.
    """
    history, runs = result.history, result.runs
    rounds = history.columns.get("round", [])[::runs]
    for name in history.columns:
        if name in ("run", "round"):
            continue
        values = history[name].reshape(-1, runs)
        spent = name.startswith("epsilon")
        columns = {name: values.max(axis=1) if spent else values.mean(axis=1)}
        with np.errstate(invalid="ignore"):
            if runs > 1 and not spent and np.ptp(values, axis=1).any():
                columns[f"{name}_std"] = values.std(axis=1, ddof=1)
        for column, numbers_of_rounds in columns.items():
            pairs = zip(numbers_of_rounds.tolist(), rounds, strict=True)
            yield from ((column, value, int(step)) for value, step in pairs if np.isfinite(value))
    ends = {name: float(np.mean(values)) for name, values in result.metrics.items() if name != "test_confusion"}
    for evaluation in result.evaluations[:1]:
        ends |= {f"private_{name}": float(each.value) for name, each in evaluation.estimates.items()}
    yield from ((name, value, result.rounds) for name, value in ends.items() if np.isfinite(value))


@contextmanager
def _mlflow_errors(consequence: str) -> Iterator[None]:
    """Turn an error of MLflow into one sentence, which ends with what follows from it."""
    try:
        yield
    except Exception as error:
        if not (type(error).__module__.startswith("mlflow") or isinstance(error, OSError | ImportError)):
            raise
        why = " ".join(str(error).split())[:1000]
        raise whole_files.StoreError(f"mlflow: cannot be used ({why}). {consequence}") from None
