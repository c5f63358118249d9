"""`sottovoce node init`: asks, or takes options, and writes a node's folder."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it. Must not exist.")],
    server: Annotated[str, typer.Option(metavar="LINE", help="The server's line, or a file that holds it.")] = "",
    csv: Annotated[str, typer.Option(metavar="FILE", help="The rows.")] = "",
    schema: Annotated[str, typer.Option(metavar="FILE", help="The study's schema, if it has one.")] = "",
    label: Annotated[str, typer.Option(help="Without a schema: the column to be predicted.")] = "",
    labels: Annotated[
        str, typer.Option(metavar="A,B", help="Its classes, in the order agreed on. Left out: it is a number.")
    ] = "",
    row_bound: Annotated[float | None, typer.Option(help="Without a schema: what no row is longer than.")] = None,
    name: Annotated[str, typer.Option(help="As the run file calls this node. Default: the name of DIR.")] = "",
    epsilon: Annotated[
        float | None, typer.Option(help="The budget for life, over all experiments. Default: 2.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The same as in the run file.")] = 1e-5,
    epsilon_per_day: Annotated[float, typer.Option(help="The most of it in a day. Default: half.")] = 0.0,
    questions_per_hour: Annotated[int, typer.Option(help="The most new questions in an hour.")] = 1000,
    algorithm: Annotated[
        list[str] | None, typer.Option(help="One that may be asked for; repeatable. Default: all with a proof.")
    ] = None,
    loss: Annotated[
        list[str] | None, typer.Option(help="One that may be asked for; repeatable. Default: those for the label.")
    ] = None,
    compose: Annotated[bool, typer.Option("--compose", help="Also write a file for Docker Compose.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Then start the node, and stay until interrupted.")] = False,
    as_json: terminal.Json = False,
) -> None:
    """Set up a node: its own file, a key pair, limits, a systemd unit; prints the line of text that the server needs.

    What is not given is asked for, where somebody is there to answer. Rows and labels are read and checked first, and
    if anything is wrong nothing is written.
    """
    from sottovoce.deploy import setup_node

    server = server or _ask("The server's line (or a file that holds it)", "--server")
    csv = csv or _ask("The file with the rows (CSV)", "--csv")
    if not schema and not label and _asks():
        schema = typer.prompt("The study's schema file (empty: there is none)", default="", show_default=False)
    if not schema and not label:
        label = _ask("The column to be predicted", "--label, or --schema")
        labels = labels or typer.prompt(
            "Its classes, in the order agreed on, with commas (empty: a number)", default=""
        )
    if epsilon is None:
        epsilon = float(typer.prompt("Epsilon for life", default=2.0, type=float)) if _asks() else 2.0
    choices = setup_node.NodeChoices(
        name=name or folder.absolute().name,
        server=server,
        csv=Path(csv).expanduser(),
        schema=Path(schema).expanduser() if schema else None,
        label=label,
        labels=tuple(each.strip() for each in labels.split(",")) if labels else (),
        row_bound=row_bound,
        epsilon=epsilon,
        delta=delta,
        epsilon_per_day=epsilon_per_day,
        questions_per_hour=questions_per_hour,
        algorithms=tuple(algorithm or ()),
        losses=tuple(loss or ()),
    )
    line = setup_node.make(folder, choices, compose)
    file = folder / setup_node.FILE
    after = () if start else (f"sottovoce node check {file}", f"sottovoce node start {file}")
    terminal.show_line(as_json, folder, line, "the server", setup_node.LINE, "Next:", *after)
    sys.stdout.flush()  # before a node that is started now says anything


def _asks() -> bool:
    """Whether somebody is there to answer: at a terminal, and not of a command in its background."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _ask(what: str, option: str) -> str:
    from sottovoce.core import check

    check.require(_asks(), "node init", f"needs {option}", hint="In a terminal it asks for what is not given")
    return typer.prompt(what)
