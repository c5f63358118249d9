"""`sottovoce node`: what the owner of rows does on its own machine."""

from contextlib import closing, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import node_init, terminal
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.deploy.node import Node

node = typer.Typer(
    help="A client on its own machine: set it up, check it, answer a server, hold its rows behind a gate."
)


def _file_in(path: Path) -> Path:
    """The client's own file, of which the folder that `node init` made may be named instead."""
    return path / "node.toml" if path.is_dir() else path


def _must_be_there(file: Path) -> None:
    from sottovoce.core.check import MissingData

    if not file.exists():
        raise MissingData(f"{file}: there is no such file. A node is set up by: sottovoce node init DIR")


File = Annotated[
    Path, typer.Argument(metavar="NODE.toml", callback=_file_in, help="The client's own file, or its folder.")
]


@node.command("init")
@wraps(node_init.init)
def init(folder: Path, start: bool, **options: Any) -> None:
    node_init.init(folder, start=start, **options)
    if start:
        start_node(folder / "node.toml")


@node.command("check")
def check_file(
    file: File,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the server.")] = False,
    as_json: terminal.Json = False,
) -> None:
    """Look at everything before joining: rows, labels, rights, budget, clock, whether the server knows the key."""
    from sottovoce.deploy import node_check

    _must_be_there(file)
    found = []
    for item in node_check.items(file, not offline):
        found.append(item)
        if not as_json:
            mark = {"good": "✓", "look": "!", "bad": "✗"}[item.state]
            tables.note(f"{mark} {item.name}: {item.text}")
    ready = all(item.state != "bad" for item in found)
    if as_json:
        tables.print_json({"ready": ready, "items": [item._asdict() for item in found]})
    if not ready:
        raise typer.Exit(terminal.BAD_INPUT)


@node.command("start")
def start_node(
    file: File,
    gate: Annotated[
        Path | None, typer.Option(metavar="SOCKET", help="Pass questions to the gate at this Unix socket.")
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
    from sottovoce.deploy.connection import Connection
    from sottovoce.deploy.current_node import CurrentNode
    from sottovoce.deploy.gate import GateClient

    try:
        from sottovoce.deploy.flower.line import Line
        from sottovoce.deploy.flower.node_process import Stop, run
    except ModuleNotFoundError as error:
        raise MissingData("Flower is not installed. Install it with: pip install 'sottovoce[flower]'") from error
    _must_be_there(file)
    with closing(Line(Connection.read(file))) as line:
        client = GateClient(gate) if gate is not None else CurrentNode(_checked(file))
        stop = Stop()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop.ask)
        run(line, client, tables.complain, stop)


def _checked(file: Path) -> "Node":
    """The client that this file describes, whose rows and ledger are read."""
    from sottovoce.deploy.node import Node

    _must_be_there(file)
    client = Node(file)
    client.inspect()
    return client


@node.command("gate")
def open_gate(
    file: File, socket: Annotated[Path, typer.Argument(metavar="SOCKET", help="The Unix socket to answer at.")]
) -> None:
    """Answer for this client at a Unix socket, from this account, until interrupted.

    The account that speaks with the server then need not be able to read the rows. The two accounts share a group.
    """
    from sottovoce.deploy import gate

    gate.serve(_checked(file), socket, ready=lambda: tables.complain(f"answering at {socket}; Ctrl-C ends it"))


@node.command("rows")
def audit_rows(
    file: File,
    record: Annotated[Path, typer.Argument(metavar="RECORD", help="others.json, of another owner's records.")],
    key: Annotated[str, typer.Option(help="The client's public key. Default: as the other owner has it.")] = "",
    as_json: terminal.Json = False,
) -> None:
    """For an auditor: were the rows of split columns that this client multiplied those it signed, and short enough?

    Each owner keeps what the others signed of their masked tables, in records/ of its folder. The client itself keeps
    the seeds of its masks there. Run this where its rows and that folder are, or on copies of them.
    """
    from sottovoce.deploy.row_audit import audited

    found = audited(file, record, key)
    terminal.show(as_json, False, {"held": found}, [], lambda: tables.note("\n".join(f"✓ {text}" for text in found)))


@node.command("key")
def make_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it. Must not exist.")],
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
