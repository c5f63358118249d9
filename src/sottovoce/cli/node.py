"""`sottovoce node`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def node(
    file: Annotated[Path, typer.Argument(metavar="NODE.toml", help="The client's own file.")],
    gate: Annotated[
        Path | None, typer.Option(metavar="SOCKET", help="Answer at this Unix socket until interrupted.")
    ] = None,
    as_json: terminal.Json = False,
) -> None:
    """Check a client's own file and say where its ledger stands; with --gate, answer for it from this account.

    With a gate the account of the SuperNode, which runs what the server sends, need not be able to read the data: give
    it --node-config 'sottovoce="unix:SOCKET"' and let the two accounts share a group.
    """
    with terminal.exit_codes():
        from dataclasses import asdict

        from sottovoce.deploy import gate as gates
        from sottovoce.deploy.node import Node

        client = Node(file)
        status = client.inspect()
        if as_json:
            show.print_json({name: value for name, value in asdict(status).items() if name != "charges"})
        else:
            show.note(
                f"{status.name}: {status.size} rows, {status.columns} columns; epsilon {status.epsilon:.4g} of "
                f"{status.limit:g} is spent (delta {status.delta:g})."
            )
            if status.order:
                show.note(f"Samples are in the order of their ids. All parties must read here: {status.order[:16]}")
        if gate is not None:
            gates.serve(client, gate, ready=lambda: show.complain(f"answering at {gate}; Ctrl-C ends it"))
