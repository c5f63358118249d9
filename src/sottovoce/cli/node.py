"""`sottovoce node`: what the owner of rows does on its own machine."""

import os
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, Typer, prompt

from sottovoce.cli import terminal
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.deploy.node import Node

node = Typer(help="A client on its own machine: set it up, check it, answer a server, hold its rows behind a gate.")


def _file_in(path: Path) -> Path:
    """The client's own file, of which the folder that `node init` made may be named instead."""
    return path / "node.toml" if path.is_dir() else path


def _must_be_there(file: Path) -> None:
    from sottovoce.core.check import MissingData

    if not file.exists():
        raise MissingData(f"{file}: there is no such file. A node is set up by: sottovoce node init DIR")


File = Annotated[Path, Argument(metavar="NODE.toml", callback=_file_in, help="The client's own file, or its folder.")]
_Classes = Annotated[str, Option(metavar="A,B", help="Its classes, in the order agreed on. Left out: it is a number.")]
_Algorithms = Annotated[
    list[str] | None, Option(help="One that may be asked for; repeatable. Default: all with a proof.")
]
_Losses = Annotated[
    list[str] | None, Option(help="One that may be asked for; repeatable. Default: those for the label.")
]


@node.command("init")
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where to write it. Must not exist.")],
    server: Annotated[str, Option(metavar="LINE", help="The server's line, or a file that holds it.")] = "",
    csv: Annotated[str, Option(metavar="FILE", help="The rows.")] = "",
    schema: Annotated[str, Option(metavar="FILE", help="The study's schema, if it has one.")] = "",
    label: Annotated[str, Option(help="Without a schema: the column to be predicted.")] = "",
    labels: _Classes = "",
    row_bound: Annotated[float | None, Option(help="Without a schema: what no row is longer than.")] = None,
    name: Annotated[str, Option(help="As the run file calls this node. Default: the name of DIR.")] = "",
    epsilon: Annotated[float | None, Option(help="The budget for life, over all experiments. Default: 2.")] = None,
    delta: Annotated[float, Option(help="The same as in the run file.")] = 1e-5,
    epsilon_per_day: Annotated[float, Option(help="The most of it in a day. Default: half.")] = 0.0,
    questions_per_hour: Annotated[int, Option(help="The most new questions in an hour.")] = 1000,
    algorithm: _Algorithms = None,
    loss: _Losses = None,
    compose: Annotated[bool, Option("--compose", help="Also write a file for Docker Compose.")] = False,
    start: Annotated[bool, Option("--start", help="Then start the node, and stay until interrupted.")] = False,
    as_json: terminal.Json = False,
) -> None:
    """Set up a node: its own file, a key pair, limits, a systemd unit; prints the line of text that the server needs.

    What is not given is asked for, where somebody is there to answer. Rows and labels are read and checked first, and
    if anything is wrong nothing is written.
    """
    from sottovoce.deploy import setup_node

    server = server or _ask("The server's line (or a file that holds it)", "--server")
    csv = csv or _ask("The file with the rows (CSV)", "--csv")
    if not schema and not label:
        schema, label, labels = _what_to_predict(labels)
    if epsilon is None:
        epsilon = float(prompt("Epsilon for life", default=2.0, type=float)) if _asks() else 2.0
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
    with terminal.progress(False, as_json) as progress:
        progress("reading rows", 0, 0)
        line = setup_node.make(folder, choices, compose)
    file = folder / setup_node.FILE
    after = () if start else (f"sottovoce node check {file}", f"sottovoce node start {file}")
    terminal.show_line(as_json, folder, line, "the server", setup_node.LINE, "Next:", *after)
    if start:
        sys.stdout.flush()  # before the node says anything
        start_node(file)


def _what_to_predict(labels: str) -> tuple[str, str, str]:
    """Ask for the schema, or for the label's column and its classes."""
    if _asks():
        schema = prompt("The study's schema file (empty: there is none)", default="", show_default=False)
        if schema:
            return schema, "", labels
    label = _ask("The column to be predicted", "--label, or --schema")
    classes = "Its classes, in the order agreed on, with commas (empty: a number)"
    return "", label, labels or prompt(classes, default="")


def _asks() -> bool:
    """Whether somebody is there to answer: at a terminal, and not of a command in its background."""
    return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _ask(what: str, option: str) -> str:
    from sottovoce.core import check

    check.require(_asks(), "node init", f"needs {option}", hint="In a terminal it asks for what is not given")
    return prompt(what)


@node.command("check")
def check_file(
    file: File,
    offline: Annotated[bool, Option("--offline", help="Do not ask the server.")] = False,
    as_json: terminal.Json = False,
) -> None:
    """Look at everything before joining: rows, labels, rights, budget, clock, whether the server knows the key."""
    from sottovoce.deploy import node_check

    _must_be_there(file)
    items = []
    with terminal.progress(False, as_json) as progress:
        progress("checking", 0, 0)
        for item in node_check.items(file, not offline):
            items.append(item)
            if not as_json:
                mark = {"good": "✓", "look": "!", "bad": "✗"}[item.state]
                tables.note(f"{mark} {item.name}: {item.text}")
    ready = all(item.state != "bad" for item in items)
    if as_json:
        tables.print_json({"ready": ready, "items": [item._asdict() for item in items]})
    if not ready:
        raise Exit(terminal.BAD_INPUT)


@node.command("start")
def start_node(
    file: File,
    gate: Annotated[
        Path | None, Option(metavar="SOCKET", help="Pass questions to the gate at this Unix socket.")
    ] = None,
) -> None:
    """Answer the questions of the server that the file's table [server] names, until interrupted.

    One process that runs nothing but what is installed here: no code is ever taken from a server. It waits for a server
    that is not there, tries again for ever, and says what it waits for.

    With --gate the file needs no more than the table [server]: another account holds the rows (`sottovoce node gate`).
    """
    with terminal.ended_like_ctrl_c(), suppress(KeyboardInterrupt):  # it may be asked to end while it starts
        _answer_until_asked_to_end(file, gate)
    tables.complain("stopped, as asked")


def _answer_until_asked_to_end(file: Path, gate: Path | None) -> None:
    import signal

    from sottovoce.core.check import MissingData
    from sottovoce.deploy import gate as gates
    from sottovoce.deploy import lines, services

    try:
        from sottovoce.deploy.flower.line import Line
        from sottovoce.deploy.flower.node_process import Stop, run
    except ModuleNotFoundError as error:
        raise MissingData(services.NO_FLOWER) from error
    _must_be_there(file)
    with closing(Line(lines.Connection.read(file))) as line:
        client = gates.GateClient(gate) if gate is not None else gates.CurrentNode(_checked(file))
        stop = Stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop.ask)
        run(line, client, tables.complain, stop)


def _checked(file: Path) -> "Node":
    """The client that this file describes, whose rows and ledger are read."""
    from sottovoce.deploy.node import Node

    _must_be_there(file)
    with terminal.progress(quiet=False) as progress:
        progress("reading rows", 0, 0)
        client = Node(file)
        client.inspect()
    return client


@node.command("gate")
def open_gate(
    file: File, socket: Annotated[Path, Argument(metavar="SOCKET", help="The Unix socket to answer at.")]
) -> None:
    """Answer for this client at a Unix socket, from this account, until interrupted.

    The account that speaks with the server then need not be able to read the rows. The two accounts share a group.
    """
    from sottovoce.deploy import gate

    gate.serve(_checked(file), socket, ready=lambda: tables.complain(f"answering at {socket}; Ctrl-C ends it"))


@node.command("rows")
def audit_rows(
    file: File,
    record: Annotated[Path, Argument(metavar="RECORD", help="others.json, of another owner's records.")],
    key: Annotated[str, Option(help="The client's public key. Default: as the other owner has it.")] = "",
    as_json: terminal.Json = False,
) -> None:
    """For an auditor: were the rows of split columns that this client multiplied those it signed, and short enough?

    Each owner keeps what the others signed of their masked tables, in records/ of its folder. The client itself keeps
    the seeds of its masks there. Run this where its rows and that folder are, or on copies of them.
    """
    from sottovoce.deploy.node import Node
    from sottovoce.deploy.product_records import audited

    with terminal.progress(False, as_json) as progress:
        progress("checking", 0, 0)
        held = audited(Node(file), record, key)
    terminal.show(as_json, False, {"held": held}, [], lambda: tables.note("\n".join(f"✓ {text}" for text in held)))


@node.command("key")
def make_key(
    file: Annotated[Path, Argument(metavar="FILE", help="Where to write it. Must not exist.")],
    as_json: terminal.Json = False,
) -> None:
    """Make the key by which this client signs what it tells other owners, and show its public half.

    For a server that sees sums only, and for products of split columns. The file stays on this machine, named in the
    table [sums] or [products] of the client's file. The public half goes to the other owners (and, for sums, to the
    server), by a way that you trust: whoever can change it on its way can pass for you.
    """
    from sottovoce.deploy.keys import make_signing_key

    public = make_signing_key(file)
    plain = {"file": str(file), "public": public}
    terminal.show(as_json, False, plain, [], lambda: tables.note(f"Wrote {file}. Its public half: {public}"))
