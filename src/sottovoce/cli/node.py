"""`sottovoce node`: what the owner of rows does on its own machine."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import node_init, terminal
from sottovoce.report import tables

node = typer.Typer(help="A client on its own machine: check its file, or hold its rows behind a gate.")
File = Annotated[Path, typer.Argument(metavar="NODE.toml", help="The client's own file.")]


node.command("init")(node_init.init)


@node.command("check")
def check_file(
    file: File,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the server.")] = False,
    as_json: terminal.Json = False,
) -> None:
    """Look at everything before joining: rows, labels, rights, budget, clock, whether the server knows the key."""
    from sottovoce.deploy import node_check

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
