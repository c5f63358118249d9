"""Settings that cannot be meant are refused at once, each with one clear sentence and without a value of the data."""

import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.cli import run
from sottovoce.core.check import InvalidInput
from sottovoce.core.toml import to_toml
from sottovoce.experiment.source import Source
from sottovoce.experiment.store import Checkpoints
from tests.cli.test_cli import call

X, Y = np.array([[123.456, 7.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([1, -1, 1, -1])
GOAL = sv.Objective(sv.Logistic(), sv.L2(0.1))
RUN: dict[str, Any] = {"rounds": 1, "privacy": sv.NoPrivacy(), "seed": 0}


def fed(names: Any = ("a", "a", "b", "b")) -> sv.Federation:
    return sv.Federation.from_arrays(X, Y, list(names))


WRONG: dict[str, tuple[Any, str]] = {
    "pair": (lambda: sv.train(sv.DPADMM(), (X, Y), GOAL, **RUN), "got tuple of length 2"),  # type: ignore[arg-type]
    "rows": (lambda: sv.train(sv.DPADMM(), X.tolist(), GOAL, **RUN), "got list of length 4"),
    "rounds": (lambda: sv.train(sv.DPADMM(), fed(), GOAL, **{**RUN, "rounds": 1e20}), "whole number >= 1, got 1e"),
    "rounds, whole": (lambda: sv.train(sv.DPADMM(), fed(), GOAL, **{**RUN, "rounds": 10**20}), "must be at most 1,000"),
    "columns": (lambda: sv.train(sv.ADMMSharing(), fed(), GOAL, **RUN), "admm-sharing is for columns split between"),
    "inf": (lambda: sv.Proven(float("inf"), 1e-5, clip=1.0), "epsilon = inf promises nothing.*NoPrivacy"),
    "inf, published": (lambda: sv.Published(float("inf"), 1e-5), "epsilon = inf promises nothing"),
    "inf, columns": (
        lambda: sv.ProvenColumns(float("inf"), 1e-5, unit="record", bound=1.0),
        "epsilon = inf promises nothing",
    ),
    "inf, estimator": (lambda: sv.FederatedClassifier(epsilon=float("inf")).fit(X, Y), "epsilon = inf promises"),
    "NUL": (lambda: fed(["a\0b", "a\0b", "c", "c"]), r"without control characters, and owner \[0\]'s is not"),
    "line": (lambda: fed(["a", "a", "c\nd", "c\nd"]), "one line of text"),
    "NUL of a party": (
        lambda: sv.VerticalFederation.from_columns(X, Y, [1, 1], names=["a\0", "b"]),
        "without control characters",
    ),
    "owner and clients": (lambda: Source(csv="x.csv", label="y", owner="o", clients=3), "clients follows from the own"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_refused_at_once(wrong: str) -> None:
    make, message = WRONG[wrong]
    with pytest.raises(InvalidInput, match=message) as caught:
        make()
    assert "123.4" not in str(caught.value)
    assert "\0" not in str(caught.value)


def test_the_command_line_refuses_before_it_reads() -> None:
    assert "--checkpoint-every must be > 0" in call("run", "not-there.toml", "--checkpoint-every", "-1").stderr
    assert "--jobs must be a whole number >= 0" in call("reproduce", "all", "--jobs", "-4").stderr


def test_absurd_ranges_are_told() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 100, size=(4000, 2))
    rows[::3, 1] = 9.9e11  # a mark for missing values
    with pytest.warns(UserWarning, match="column 1 .*leaves little of ordinary values"):
        sv.PrivateScaler(epsilon=2.0, random_state=0).fit(rows)
    sv.PrivateScaler(epsilon=2.0, random_state=0).fit(rows[:, :1])


def test_a_run_that_is_ended_leaves_no_empty_folder(tmp_path: Path) -> None:
    """SIGTERM while rows are read or trained on, before there is a checkpoint."""
    tables = {"data": {"name": "heart", "clients": 4}, "objective": {"loss": "logistic"},
              "algorithm": {"name": "dp-sgd"}, "privacy": {"mode": "none"},
              "run": {"rounds": 10**9, "seed": 0, "record_every": 10**6}}  # fmt: skip
    (tmp_path / "run.toml").write_text(to_toml(tables))
    command = [sys.executable, "-m", "sottovoce", "run", "run.toml", "--out", "out", "--checkpoint-every", "1e6"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, env=os.environ | {"NO_COLOR": "1"})
    for _ in range(600):  # until the name of the folder is taken: then the run is under way
        if (tmp_path / "out").exists() or process.poll() is not None:
            break
        time.sleep(0.05)
    assert (tmp_path / "out").exists()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    left = sorted(path.name for path in tmp_path.glob("out/*"))
    assert left == ["checkpoint.npz", "config.toml"] or not (tmp_path / "out").exists()


def test_a_request_to_end_that_python_drops_ends_the_run_after_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is raised in a callback of a weak reference is dropped; so is one that a signal raises there."""

    class Thing: ...

    def dropped(round_: object, *rest: object) -> None:
        thing = Thing()
        callback = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
        del thing
        assert callback() is None

    monkeypatch.setattr(Checkpoints, "__call__", dropped)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    tables = {"data": {"name": "heart", "clients": 4}, "objective": {"loss": "logistic"},
              "algorithm": {"name": "dp-sgd"}, "privacy": {"mode": "none"}, "run": {"rounds": 5}}  # fmt: skip
    (tmp_path / "run.toml").write_text(to_toml(tables))
    with pytest.raises(KeyboardInterrupt):
        run.run(tmp_path / "run.toml", out=tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
