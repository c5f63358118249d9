"""What all commands share: options, exit codes, progress, and the three forms of output.

What a program may want to read goes to stdout, everything else to stderr.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.core.plain import Progress, silent
from sottovoce.report import tables

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from sottovoce.deploy.lines import NodeLine, ServerLine

DONE, INTERNAL, BAD_INPUT, MISSING, NO_PRIVACY, NOT_WRITTEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
NOT_ENDED = 6  # a run between machines
REFUTED, SUSPICIOUS = 7, 8  # what an audit found
DOES_NOT_HOLD = 9  # what `verify` looked at
LOG_LOOKS, LOG_AGAIN = 0.5, 5.0  # seconds: how often a log looks for something new, and until it tells the same again
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes: results only, one per line.")]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence on how to go on."""


@contextmanager
def exit_codes() -> Iterator[None]:
    """Print every refusal as one sentence on stderr, and end with a number that says which kind it was."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # BrokenPipeError: nobody reads our output any more
        raise
    except KeyboardInterrupt as error:
        tables.complain(str(error) or "Interrupted. Nothing was saved.")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        code = _code(error)
        if code == INTERNAL and os.environ.get("SOTTOVOCE_DEBUG") == "1":
            raise
        # The texts of unexpected errors are never printed: they may contain rows, and people send error reports around.
        internal = f"{type(error).__name__}, an error of the program: please report it; SOTTOVOCE_DEBUG=1 shows where"
        tables.complain(f"error: {internal if code == INTERNAL else error}")
        raise typer.Exit(code) from None


def _code(error: Exception) -> int:
    from sottovoce.core.check import BudgetSpent, InvalidInput, MissingData, NoGuarantee, SottovoceError

    kinds = (
        (MissingData, MISSING),
        (InvalidInput, BAD_INPUT),
        (NoGuarantee | BudgetSpent, NO_PRIVACY),
        (SottovoceError, NOT_WRITTEN),  # what is left: a folder or a ledger
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), INTERNAL)


def show(
    as_json: bool, quiet: bool, plain: Mapping[str, object], lines: Iterable[str], text: Callable[[], None]
) -> None:
    """Print a result in the form that was asked for: as JSON, as a few lines for a script, or as text to read."""
    if as_json:
        tables.print_json(plain)
    elif quiet:
        for line in lines:
            typer.echo(line)
    else:
        text()


def print_or_write(text: str, out: Path | None, what: str = "") -> None:
    """Text on stdout, or as a new file, and then a note of what was written."""
    from sottovoce.experiment.predict import write_new

    if out is None:
        typer.echo(text, nl=False)
    else:
        write_new(out, text)
        tables.note(f"Wrote {what}{out}.")


def show_files(as_json: bool, folder: Path, names: list[str]) -> None:
    """Say which files were written to a new folder."""
    plain = {"folder": str(folder), "files": names}
    show(as_json, False, plain, [], lambda: tables.note(f"Wrote {', '.join(names)} to {folder}."))


def show_line(
    as_json: bool, folder: Path, line: "NodeLine | ServerLine", whom: str, file: str, after: str, *words: str
) -> None:
    """Say which line of text the other side needs, how it is made sure of, and by which commands it goes on."""

    def text() -> None:
        tables.note(f"Wrote {folder}. Send {whom} this line; it is also in {folder / file}:")
        typer.echo(f"\n{line}\n")
        tables.note(f"They can make sure of it by telephone: {line.fingerprint}")
        if words:
            tables.commands(after, *words)

    show(as_json, False, {"folder": str(folder), "line": str(line), "fingerprint": line.fingerprint}, [], text)


def output_folder(out: Path | None, name: str) -> AbstractContextManager[Path]:
    """Reserve the folder of a result: `out`, or a new one in runs/ that carries `name` and the time."""
    from sottovoce.experiment import whole_files

    return whole_files.reserved(out) if out else whole_files.reserved(Path("runs") / f"{name}-{now()}", numbered=True)


@contextmanager
def ended_like_ctrl_c() -> Iterator[Callable[[], bool]]:
    """A request to end (SIGTERM) is treated as Ctrl-C is: the last round is kept, and no empty folder is left.

    Gives a function that says whether there was one: Python drops what is raised inside some callbacks, such as those
    of its import system.
    """
    import signal
    import threading

    asked = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        asked.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread may listen to signals
        yield asked.is_set
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


@contextmanager
def progress(quiet: bool, as_json: bool = False) -> Iterator[Progress]:
    """Say on stderr what goes on, from the first moment: progress(what, done, of how many), 0 for "not known".

    A bar if someone is looking. Else, in a log, a line now and then; none beside JSON, which a program may read.
    """
    from sottovoce.core import compiling

    screen, last = tables.console(stderr=True), ("starting", 0, 0)
    if quiet or (as_json and not screen.is_terminal):
        yield silent
        return
    with _bar(screen) if screen.is_terminal else _log() as show:

        def progress(what: str, done: int, of: int) -> None:
            nonlocal last
            last = what, done, of
            show(*last)

        progress(*last)
        with compiling.watched(lambda begins: show("compiling", 0, 0) if begins else show(*last)):
            yield progress


@contextmanager
def _bar(screen: "Console") -> Iterator[Progress]:
    """A bar that moves by itself between two reports. It is gone at the end."""
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description:<12}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left:"),
        bars.TimeRemainingColumn(),
    )
    # What is printed meanwhile goes above the bar, unless it goes to a file.
    with bars.Progress(*columns, console=screen, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=of or None, visible=False)
            for task in bar.tasks:
                if task.visible != (task.id == tasks[what]):
                    bar.update(task.id, visible=not task.visible)
            bar.update(tasks[what], completed=done, total=of or None)

        yield show


class Log:
    """What a log is told: a line when something else has begun, and another every few seconds while it goes on."""

    def __init__(self) -> None:
        self._now, self._told, self._at = ("starting", 0, 0), "", 0.0

    def show(self, what: str, done: int, of: int) -> None:
        self._now = what, done, of

    def line(self, seconds: float) -> str:
        """The line that is due so many seconds after the beginning; "" if there is none."""
        what, done, of = self._now
        if what == self._told and seconds < self._at + LOG_AGAIN:
            return ""
        self._told, self._at = what, seconds
        return f"{what}{f', {done} of {of}' if of else ''}, after {seconds:.0f} s"


@contextmanager
def _log() -> Iterator[Progress]:
    """Lines from a thread of their own, so that they come while nothing is reported. What is quick leaves no line."""
    from threading import Event, Thread
    from time import monotonic

    log, ended, begun = Log(), Event(), monotonic()

    def write() -> None:
        while not ended.wait(LOG_LOOKS):
            line = log.line(monotonic() - begun)
            if line:
                with suppress(OSError):  # nobody reads our output any more
                    tables.complain(line)

    thread = Thread(target=write, daemon=True)
    thread.start()
    try:
        yield log.show
    finally:
        ended.set()
        thread.join()
