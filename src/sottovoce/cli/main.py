"""The command line: which commands there are. Each has its own file; what they share is in `terminal.py`."""

import sys
from collections.abc import Callable
from importlib import import_module, resources
from io import TextIOWrapper
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables

_COMMANDS = (  # modules of this package, in the order of the help
    *("demo", "run", "report", "verify", "show", "predict", "export", "schema", "compare", "plan", "catalogue", "data"),
    *("account", "audit", "app", "certificates", "node", "flower", "reproduce"),
)
_TEXTS = resources.files("sottovoce.cli")
_EXAMPLES, _EXIT_CODES = (_TEXTS.joinpath(f"{name}.txt").read_text("utf-8") for name in ("examples", "exit_codes"))

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # `terminal.exit_codes` decides what an error looks like
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one model over data that stays with its owners, with privacy guarantees that are true.",
    epilog="\n\n".join(["Exit codes:", *_EXIT_CODES.splitlines()]),  # Typer ends a line where a paragraph ends
)


def _add(command: Callable[..., None]) -> None:
    name = command.__name__.rstrip("_")
    examples = [line for line in _EXAMPLES.splitlines() if f"sottovoce {name} " in f"{line} "]
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}
    app.command(
        name,
        epilog="\n\n".join(["Examples:" if len(examples) > 1 else "Example:", *examples]),
        context_settings=passed_on if name == "flower" else None,
    )(terminal.exit_codes()(command))


for _name in _COMMANDS:
    _add(getattr(import_module(f"sottovoce.cli.{_name}"), "list_" if _name == "catalogue" else _name))


def main() -> None:
    """The console entry."""
    import warnings

    warnings.showwarning = lambda message, *_: tables.complain(f"warning: {message}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot print ε must not end a run
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        tables.complain("Interrupted.")
        sys.exit(terminal.INTERRUPTED)


def _version(wanted: bool) -> None:
    if wanted:
        import sottovoce

        typer.echo(f"sottovoce {sottovoce.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself; the text is in `app`."""
