"""`sottovoce node`: what the owner of rows does on its own machine."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables

node = typer.Typer(help="A client on its own machine: check its file, or hold its rows behind a gate.")
File = Annotated[Path, typer.Argument(metavar="NODE.toml", help="The client's own file.")]


@node.command("check")
def check_file(file: File, as_json: terminal.Json = False) -> None:
    """Check a client's own file, and show what its ledger has spent."""
    from dataclasses import asdict

    from sottovoce.deploy.node import Node

    status = Node(file).inspect()

    def text() -> None:
        tables.note(
            f"{status.name}: {status.size} rows, {status.columns} columns; epsilon {status.epsilon:.4g} of "
            f"{status.limit:g} is spent (delta {status.delta:g})."
        )
        if status.order:
            tables.note(f"Samples are in the order of their ids. All parties must read here: {status.order[:16]}")

    plain = {name: value for name, value in asdict(status).items() if name != "charges"}
    terminal.show(as_json, False, plain, [], text)


@node.command("gate")
def open_gate(
    file: File, socket: Annotated[Path, typer.Argument(metavar="SOCKET", help="The Unix socket to answer at.")]
) -> None:
    """Answer for this client at a Unix socket, from this account, until interrupted.

    The account that speaks with the server then need not be able to read the rows. The two accounts share a group.
    """
    from sottovoce.deploy import gate
    from sottovoce.deploy.node import Node

    client = Node(file)
    client.inspect()
    gate.serve(client, socket, ready=lambda: tables.complain(f"answering at {socket}; Ctrl-C ends it"))
