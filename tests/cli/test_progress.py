"""What is said of work that goes on: in a terminal, in a log, and beside JSON."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from numba import types
from rich import progress
from rich.console import Console

from sottovoce.cli import terminal
from sottovoce.core import compiling
from sottovoce.core.plain import Progress, silent
from sottovoce.report import tables
from tests.command_line import invoke


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """What somebody sees who looks at a terminal."""
    file = StringIO()
    monkeypatch.setattr(tables, "console", lambda stderr: Console(file=file, force_terminal=True, width=100))
    return file


def test_a_log_has_a_line_for_what_is_new_and_another_after_some_seconds() -> None:
    log = terminal.Log()
    assert log.line(0.4) == "starting, after 0 s"
    assert log.line(5.3) == ""
    assert log.line(5.5) == "starting, after 6 s"
    log.show("dp-admm", 0, 100)
    log.show("dp-admm", 3, 100)
    assert log.line(5.6) == "dp-admm, 3 of 100, after 6 s"
    log.show("dp-admm", 9, 100)
    assert log.line(5.7) == ""
    assert log.line(10.7) == "dp-admm, 9 of 100, after 11 s"


def test_a_log_gets_its_lines_while_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    said = Event()

    def complain(text: str) -> None:
        lines.append(text)
        said.set()

    monkeypatch.setattr(terminal, "LOG_LOOKS", 0.001)
    monkeypatch.setattr(tables, "complain", complain)
    with terminal.progress(quiet=False):
        assert said.wait(60)
    assert lines[0].startswith("starting, after ")


@pytest.mark.parametrize("asked", [(True, False), (True, True), (False, True)])
def test_without_a_terminal_quiet_and_json_say_nothing(asked: tuple[bool, bool]) -> None:
    with terminal.progress(*asked) as report:
        assert report is silent


def test_quiet_says_nothing_in_a_terminal_and_json_has_a_bar(screen: StringIO) -> None:
    with terminal.progress(quiet=True) as report:
        report("reading data", 0, 0)
    assert screen.getvalue() == ""
    with terminal.progress(quiet=False, as_json=True):
        pass
    assert "starting" in screen.getvalue()


def test_the_bar_shows_what_goes_on_now_even_if_it_did_before(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[progress.Progress] = []

    class Kept(progress.Progress):
        def __init__(self, *columns: Any, **options: Any) -> None:
            super().__init__(*columns, **options)
            made.append(self)

    monkeypatch.setattr(progress, "Progress", Kept)
    with terminal.progress(quiet=False) as report:
        for what, done in (("runs", 1), ("checks", 2), ("runs", 3)):
            report(what, done, 5)
            seen = [(task.description, task.completed, task.total) for task in made[0].tasks if task.visible]
            assert seen == [(what, done, 5)]


LOOPS = """
from numba import njit

@njit
def twice(x):
    return 2 * x

def double(x):
    for i in range(len(x)):
        x[i] = twice(x[i])
"""


def test_the_word_compiling_stands_while_a_loop_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(terminal, "_log", lambda: nullcontext(lambda what, done, of: shown.append(what)))
    (tmp_path / "loops.py").write_text(LOOPS)
    monkeypatch.syspath_prepend(tmp_path)
    loops = importlib.import_module("loops")
    with terminal.progress(quiet=False) as report:
        report("dp-admm", 0, 9)
        compiling.compile_for(types.void(types.float64[::1]), loops.double)
        assert shown == ["starting", "dp-admm", "compiling", "dp-admm"]
        compiling.compile_for(types.void(types.float64[::1]), loops.double)
    compiling.compile_for(types.void(types.float32[::1]), loops.double)
    assert shown == ["starting", "dp-admm", "compiling", "dp-admm"]  # not from the disk cache, nor after the end


LONG = (  # what may take more than two seconds, refused as soon as it begins
    ["run", "none.toml"],
    ["run", "--resume", "none"],
    ["report", "none"],
    ["verify", "none"],
    ["predict", "none", "none.csv"],
    ["compare", "none.toml", "nor.toml", "--out", "out"],
    ["plan", "--clients", "0", "--rows", "1", "--features", "1", "--epsilon", "1"],
    ["audit", "none"],
    ["audit", "none.toml"],
    ["audit", "none.toml", "--membership"],
    ["account"],
    ["schema", "new", "none.csv", "--label", "ill", "--public"],
    ["app", "app", "--config", "none.toml"],
    ["node", "init", "va", "--server", "none", "--csv", "none.csv", "--label", "ill", "--epsilon", "1"],
    ["node", "check", "node.toml", "--offline"],
    ["server", "train", "none", "none.toml"],
)


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_a_command_says_something_before_it_begins(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node.toml").write_text("")
    said: list[str] = []
    monkeypatch.setattr(terminal, "_log", lambda: nullcontext(lambda what, done, of: said.append(what)))
    outcome = invoke(words)
    assert outcome.exit_code in (terminal.BAD_INPUT, terminal.MISSING), outcome.stderr
    assert said[:1] == ["starting"]


def test_a_server_is_waited_for_with_words_until_it_speaks_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sottovoce.deploy import setup_server, training

    said: list[str] = []
    setup_server.make(tmp_path / "study", [], 8700, 8701, 1, "", False)
    monkeypatch.setattr(setup_server, "listens", lambda port: False)
    monkeypatch.setattr(training, "_server", lambda folder, settings: nullcontext())
    monkeypatch.setattr(training, "_started", lambda job: "7")
    monkeypatch.setattr(training, "_flower", lambda folder, command, number: said.append(f"{command} {number}"))

    @contextmanager
    def waiting() -> Iterator[Progress]:
        yield lambda what, done, of: said.append(what)
        said.append("")

    with pytest.raises(training.RunStopped):  # there is no server, so it says nothing
        training.run(training.Job(tmp_path / "study", tmp_path, tmp_path), waiting())
    assert said == ["starting the server", "starting the run", "", "log 7"]
