"""What all commands share: options, exit codes, progress.

What a program may want to read goes to stdout, everything else to stderr.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from sottovoce.report import tables as show

DONE, INTERNAL, BAD_INPUT, MISSING, NO_PRIVACY, NOT_WRITTEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
REFUTED, SUSPICIOUS = 7, 8  # what an audit found
DOES_NOT_HOLD = 9  # what `verify` looked at
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes: results only, one per line.")]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence on how to go on."""


@contextmanager
def exit_codes() -> Iterator[None]:
    """Every refusal is one sentence on stderr and a number that says which kind it was."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # the reader of our output is gone: nothing to say
        raise
    except KeyboardInterrupt as error:
        show.complain(str(error) or "Interrupted. Nothing was saved.")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        code = _code(error)
        if code == INTERNAL and os.environ.get("SOTTOVOCE_DEBUG") == "1":
            raise
        # Of an error that is not ours the kind is told, not its text: it may quote rows, and reports travel.
        internal = f"{type(error).__name__}, an error of the program: please report it; SOTTOVOCE_DEBUG=1 shows where"
        show.complain(f"error: {internal if code == INTERNAL else error}")
        raise typer.Exit(code) from None


def _code(error: Exception) -> int:
    from sottovoce.core.check import BudgetSpent, InvalidInput, MissingData, NoGuarantee, SottovoceError

    kinds = (
        (MissingData, MISSING),
        (InvalidInput, BAD_INPUT),
        (NoGuarantee, NO_PRIVACY),
        (BudgetSpent, NO_PRIVACY),
        (SottovoceError, NOT_WRITTEN),  # what is left: a folder or a ledger
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), INTERNAL)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, if someone is looking: progress(what, done, of how many), 0 for "not known"."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    screen = show.console(stderr=True)
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[what] = bar.add_task(what, total=of or None)
            bar.update(tasks[what], completed=done)

        yield progress


def now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
