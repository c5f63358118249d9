"""No error, warning, log line, file or reply tells a private value: wrong input in which every cell is a marker.

Places (row numbers, names of columns) may be told, and sizes; so may settings and labels that were declared. Each case
must really fail, or warn; and the marker must be nowhere in what came out, however it is printed.
"""

import itertools
import logging
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.cli import main as cli
from sottovoce.cli import terminal
from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.node import Node
from sottovoce.experiment import run_file as run_files
from tests.attacks import marker_calls, marker_files
from tests.attacks.marker_files import HEADER, csv_lines, in_bytes, node_file, question, replied, run_file
from tests.attacks.markers import MARKER, NUMBER, OWNERS, ROWS, SIGNS, TAME, TEXT, WORDS, X, listen, text_files
from tests.command_line import invoke

LEAST = 200  # distinct failing inputs


def test_no_text_tells_a_private_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("SOTTOVOCE_DEBUG", raising=False)
    found, leaks, passed = set(), [], []
    in_python = (getattr(marker_calls, f"cases_of_{what}")() for what in ("rows", "labels", "owners", "settings"))
    in_files = (marker_files.cases_of_files(tmp_path), marker_files.cases_of_nodes(tmp_path))
    for what, wrong, call in itertools.chain(*in_python, *in_files):
        said = listen(call)
        leaks += [f"{what}, {wrong}: {said.leaks[:3]} in {said.last}"] if said.leaks else []
        passed += [] if said.failed else [f"{what}, {wrong}: {said.last}"]
        found.add((what, wrong, said.last))
    assert leaks == []
    assert passed == []
    assert len(found) >= LEAST
    logs = [path for path in text_files(tmp_path) if path.name == "node.log"]
    assert len(logs) >= 10
    written = "\n".join(path.read_text(errors="replace") for path in [*logs, *text_files(place)])
    assert MARKER.findall(written) == []


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """In an error, in one that came before it, in a note, a warning, a print, a log line, a file, and shortened."""

    def hidden() -> None:
        try:
            float(WORDS[0, 0])
        except ValueError:
            raise KeyError("no marker here") from None

    def noted() -> None:
        error = KeyError("no marker here")
        error.add_note(f"{NUMBER:.3g}")
        raise error

    def logged() -> None:
        logging.getLogger("sottovoce").warning("%s", X[0])

    def raised(text: object) -> None:
        raise ValueError(text)

    length = float(np.linalg.norm(X[0]))
    numbers = (
        X,
        NUMBER,
        f"{NUMBER:.3g}",
        f"{NUMBER:g}",
        f"{NUMBER:,.1f}",
        length,
        f"{length:.4g}",
        X.sum(),
        X[0].sum(),
    )
    calls = [partial(raised, text) for text in numbers] + [hidden, noted, logged, partial(print, X[0])]
    calls.append(partial(warnings.warn, WORDS[0, 0], stacklevel=1))
    assert all(listen(call).leaks for call in calls)
    (tmp_path / "node.log").write_text(repr(NUMBER))
    assert listen(lambda: None, tmp_path).leaks
    assert not listen(partial(raised, "row 3, column 'x1' of (8, 3)")).leaks


def test_an_error_of_the_program_is_not_quoted_and_no_locals_are_shown(tmp_path: Path, monkeypatch: Any) -> None:
    """Of an error that is not this library's nobody knows what its text holds."""

    def broken(*args: Any, **kwargs: Any) -> None:
        cell = X[0, 0]
        raise RuntimeError(f"{cell} {TEXT}")

    monkeypatch.delenv("SOTTOVOCE_DEBUG", raising=False)
    monkeypatch.setattr(run_files, "run_task", broken)
    file = run_file(tmp_path, in_bytes(csv_lines()), {})
    outcome = invoke(["run", str(file), "--out", str(tmp_path / "out")])
    assert outcome.exit_code == terminal.INTERNAL
    assert "RuntimeError" in outcome.output
    assert not MARKER.search(outcome.output)
    assert cli.app.pretty_exceptions_enable is False


def test_nothing_of_an_error_of_the_program_is_in_the_log_of_a_node(tmp_path: Path, monkeypatch: Any) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{X[0, 0]} {TEXT}")

    file = node_file(tmp_path / "node", {"npz": "rows.npz", "labels": ["-1", "1"]})
    np.savez(file.parent / "rows.npz", X=TAME[:, :1] * np.ones((ROWS, 4)), y=SIGNS)
    ask = question()
    monkeypatch.setattr(Assignment, "read", broken)
    said = listen(lambda: replied(Node(file).answer(ask)), tmp_path)
    assert "it could not answer" in said.last
    assert "RuntimeError" in said.everything  # in the log, with the place it came from
    assert "in broken" in said.everything
    assert said.leaks == []


def warned_of(rows: np.ndarray, folder: Path) -> list[str]:
    """What is said when all is well, in `Proven` modes."""
    folder.mkdir()
    csv = [HEADER, *([repr(float(row[0])), repr(float(row[1])), owner, label]
                     for row, (_, _, owner, label) in zip(rows, csv_lines()[1:], strict=True))]  # fmt: skip
    columns = sv.ProvenColumns(1.0, 1e-5, unit="record", bound=1.0, row_bound=1.0, score_bound=1.0)
    quick: dict[str, Any] = {"rounds": 2, "random_state": 0}
    calls: list[Callable[[], Any]] = [
        lambda: sv.FederatedClassifier(**quick).fit(rows, SIGNS, groups=OWNERS),
        lambda: sv.FederatedClassifier(**quick, prepare=sv.PublicScaler((0, 1e6))).fit(rows, SIGNS, groups=OWNERS),
        lambda: sv.FederatedRegressor(**quick).fit(rows, rows[:, 0], groups=OWNERS),
        lambda: sv.VerticalClassifier([1, 2], privacy=columns, penalty=sv.L2(1.0), **quick).fit(rows, SIGNS),
        lambda: marker_calls.trained(
            federation=sv.Federation.from_arrays(rows, SIGNS, OWNERS), privacy=sv.Proven(1.0, 1e-5, 1.0)
        ),
        lambda: run_files.load(run_file(folder, in_bytes(csv), {"row_bound": 1e9})).train(),
        lambda: run_files.load(run_file(folder, in_bytes(csv), {"ranges": {"x0": [0, 1], "x1": [0, 1]}})).train(),
    ]
    return [said.last for said in map(listen, calls)]


def test_what_is_said_in_proven_modes_does_not_depend_on_the_rows(tmp_path: Path) -> None:
    """Rows of any size, or scaled by their own means and deviations: the same warnings, in the same words."""
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    said = [warned_of(rows, tmp_path / str(place)) for place, rows in enumerate((X, TAME, scaled, np.zeros_like(X)))]
    assert any(said[0])  # some do warn, and of what is not stated
    assert said[1:] == said[:1] * 3
