"""`sottovoce certificates`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sottovoce.cli import terminal


def certificates(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where to write them. Must not exist.")],
    host: Annotated[
        list[str] | None, Option(help="Name or address under which clients reach the server; repeatable.")
    ] = None,
    client: Annotated[list[str] | None, Option(help="A client to make a key for; repeatable.")] = None,
    days: Annotated[int, Option(help="How long the certificate is valid.")] = 365,
    as_json: terminal.Json = False,
) -> None:
    """Make a server's TLS certificate with an authority of its own, and a key pair for each client.

    ca.crt goes to everyone; server.pem and server.key stay on the server; NAME.key goes to that client alone, NAME.pub
    is registered at the server. Without --host, for this machine only (localhost, 127.0.0.1).
    """
    from sottovoce.deploy import keys

    terminal.show_files(as_json, folder, keys.make(folder, host or [], client or [], days))
