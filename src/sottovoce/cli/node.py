"""`sottovoce node`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables


def node(
    file: Annotated[Path, typer.Argument(metavar="NODE.toml", help="The client's own file.")],
    gate: Annotated[
        Path | None, typer.Option(metavar="SOCKET", help="Answer at this Unix socket until interrupted.")
    ] = None,
    as_json: terminal.Json = False,
) -> None:
    """Check a client's own file and show what its ledger has spent; with --gate, answer for it from this account.

    With a gate the account of the SuperNode, which runs what the server sends, need not be able to read the data: give
    it --node-config 'sottovoce="unix:SOCKET"' and let the two accounts share a group.
    """
    from dataclasses import asdict

    from sottovoce.deploy import gate as gates
    from sottovoce.deploy.node import Node

    client = Node(file)
    status = client.inspect()

    def text() -> None:
        tables.note(
            f"{status.name}: {status.size} rows, {status.columns} columns; epsilon {status.epsilon:.4g} of "
            f"{status.limit:g} is spent (delta {status.delta:g})."
        )
        if status.order:
            tables.note(f"Samples are in the order of their ids. All parties must read here: {status.order[:16]}")

    plain = {name: value for name, value in asdict(status).items() if name != "charges"}
    terminal.show(as_json, False, plain, [], text)
    if gate is not None:
        gates.serve(client, gate, ready=lambda: tables.complain(f"answering at {gate}; Ctrl-C ends it"))
