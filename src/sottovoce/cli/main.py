"""The command line: which commands there are. Each has its own file; what they share is in `terminal.py`."""

import re
import sys
from collections.abc import Callable
from importlib import import_module, resources
from inspect import getdoc, signature
from io import TextIOWrapper
from typing import Annotated

import typer
from typer import Option

from sottovoce.cli import terminal
from sottovoce.report import tables

_COMMANDS = (  # modules of this package, in the order of the help
    *("demo", "run", "report", "verify", "show", "predict", "export", "schema", "compare", "plan", "catalogue", "data"),
    *("account", "audit", "server", "node", "status", "app", "certificates", "flower", "reproduce", "examples"),
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


def _add(group: typer.Typer, command: Callable[..., None], words: str) -> None:
    """Add a command, known by `words`, with its lines of `examples.txt`."""
    examples = [line for line in _EXAMPLES.splitlines() if f"sottovoce {words} " in f"{line} "]
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}
    for parameter in signature(command).parameters.values():
        for option in getattr(parameter.annotation, "__metadata__", ()):
            option.help = _as_it_is(option.help or "")
    group.command(
        words.split()[-1],
        help=_as_it_is(getdoc(command) or ""),
        epilog="\n\n".join(["Examples:" if len(examples) > 1 else "Example:", *examples]),
        context_settings=passed_on if words == "flower" else None,
    )(terminal.exit_codes()(command))


def _as_it_is(text: str) -> str:
    """Help with lines as long as the screen; the name of a table, such as [data], stays, which to Rich is a style.

    To do this twice changes nothing: some options belong to several commands.
    """
    paragraphs = re.sub(r"(?<!\n)\n(?=[^\n ])", " ", text)
    return re.sub(r"(?<!\\)\[(?=[a-z])", r"\\[", paragraphs)


def _add_module(name: str) -> None:
    """The command of a module of this package, or its group of commands."""
    command = getattr(import_module(f"sottovoce.cli.{name}"), "list_" if name == "catalogue" else name)
    if not isinstance(command, typer.Typer):
        _add(app, command, command.__name__.rstrip("_"))
        return
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help=command.info.help)
    for inner in command.registered_commands:
        assert inner.callback is not None
        _add(group, inner.callback, f"{name} {inner.name}")
    app.add_typer(group, name=name)


for _name in _COMMANDS:
    _add_module(_name)


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
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options of the program itself; the text is in `app`."""
