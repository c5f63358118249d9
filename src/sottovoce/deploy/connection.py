"""How a client finds its server: the table [server] of its own file.

    address      "server.example:8700"
    certificate  of the authority that signed the server's, in PEM: "ca.crt"
    key          the private key by which this client is known there: "cleveland.key"

Paths are seen from the file's own folder. Behind a gate the account that speaks with the server has a file of its own,
with this table alone.
"""

import stat
from dataclasses import dataclass
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.files import read_bytes
from sottovoce.deploy.lines import host_and_port
from sottovoce.experiment.tables import from_table, read_tables

TABLES = ("node", "server", "data", "schema", "limits", "sums", "products", "predict")  # of a client's own file


@dataclass(frozen=True)
class Connection:
    """Where a server is, how to know that it is the one, and the key that it knows this client by."""

    address: str
    certificate: str = "ca.crt"
    key: str = "node.key"

    def __post_init__(self) -> None:
        host_and_port(self.address, "Connection", "address must be HOST:PORT, such as server.example:8700")

    @classmethod
    def read(cls, path: Path) -> "Connection":
        """The one that a client's file names, with whole paths."""
        tables = read_tables(path, TABLES)
        hint = 'Write there: [server] address = "server.example:8700", certificate = "ca.crt", key = "cleveland.key"'
        check.require("server" in tables, path.name, "needs a table [server]", hint=hint)
        written = from_table(cls, tables["server"], f"{path.name}, [server]")
        home = path.expanduser().absolute().parent
        files = (str(home / Path(name).expanduser()) for name in (written.certificate, written.key))
        return cls(written.address, *files)

    def certificates(self) -> bytes:
        """The certificate's bytes."""
        return read_bytes(Path(self.certificate), missing="the certificate cannot be read (no such file)")

    def private_key(self) -> bytes:
        """The key's bytes. Whoever else can read them can answer in this client's name."""
        return read_private(Path(self.key))


def read_private(path: Path) -> bytes:
    """The bytes of a private key, which nobody but its owner may read."""
    content = read_bytes(path, missing="the key cannot be read (no such file)")
    mode = stat.S_IMODE(path.stat().st_mode)
    rule = "nobody but its owner may read a private key"
    check.require(mode & 0o077 == 0, str(path), rule, f"mode {mode:o}", f"Close it with: chmod 600 {path}")
    return content
