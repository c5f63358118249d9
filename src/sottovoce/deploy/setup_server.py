"""A server's folder: what `sottovoce server init` writes, and who may join.

server.toml   where it listens
line          what it tells its clients (`lines.py`)
keys/         its certificate and key, and the authority's certificate
nodes/        NAME.pub for each client that may join; a running server sees a new one within seconds
flower/       Flower's own settings; state.db is Flower's memory
apps/, runs/  what was started, and what came out
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from sottovoce.core import check
from sottovoce.deploy import keys, services
from sottovoce.deploy.lines import NodeLine, ServerLine
from sottovoce.experiment import whole_files
from sottovoce.experiment.tables import from_table, read_tables, to_toml

FILE, LINE, NODES, KEYS, STATE, RUNS, APPS = "server.toml", "line", "nodes", "keys", "state.db", "runs", "apps"
FLOWER = "flower"  # FLWR_HOME
CONNECTION = "server"  # the name of this server in its own flower/config.toml
_MEMORY = "8G"


@dataclass(frozen=True)
class ServerSettings:
    """[server] of server.toml."""

    hosts: tuple[str, ...]
    listen: str
    port: int
    operator_port: int

    def __post_init__(self) -> None:
        for name, port in {"port": self.port, "operator_port": self.operator_port}.items():
            check.require(0 < port < 2**16, "server", f"{name} must be from 1 to 65535", port)
        apart = self.port != self.operator_port
        check.require(apart, "server", "nodes and the operator must have different ports", self.port)

    @property
    def address(self) -> str:
        """Where nodes find it."""
        host = self.hosts[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def make(
    folder: Path, hosts: Sequence[str], port: int, operator_port: int, days: int, schema: str, compose: bool
) -> ServerLine:
    """Write a server's folder, all of it or nothing; `schema` is the digest of the study's schema, or "".

    Without `hosts` it serves this machine alone.
    """
    reached = bool(hosts) or not compose
    check.require(reached, "server", "--compose needs --host: a container is reached from elsewhere alone")
    listen = "127.0.0.1" if not hosts else "::" if ":" in hosts[0] else "0.0.0.0"
    settings = ServerSettings(tuple(hosts) or ("127.0.0.1",), listen, port, operator_port)
    _must_be_free(listen, port, "--port")
    _must_be_free("127.0.0.1", operator_port, "--operator-port")
    with whole_files.new_folder(folder) as made:
        made.chmod(0o700)
        keys.make(made / KEYS, hosts, [], days)
        authority = x509.load_pem_x509_certificate((made / KEYS / keys.AUTHORITY).read_bytes())
        line = ServerLine(settings.address, authority.public_bytes(Encoding.DER), schema)
        for name, text in _files(folder.absolute(), settings, line, compose).items():
            (made / name).parent.mkdir(exist_ok=True)
            whole_files.write_content(made / name, text.encode())
        for name in (NODES, RUNS, APPS):
            (made / name).mkdir()
    return line


def _files(home: Path, settings: ServerSettings, line: ServerLine, compose: bool) -> dict[str, str]:
    words, name = ("server", "start", str(home)), f"sottovoce-server-{home.name}"
    ports = [f"{settings.port}:{settings.port}"] if compose else None
    return {
        FILE: "# Nodes come in by `port`; `operator_port` stays on this machine.\n"
        + to_toml({"server": {**vars(settings), "hosts": list(settings.hosts)}}),
        LINE: f"{line}\n",
        f"{FLOWER}/config.toml": flower_settings(home, settings),
        **services.files(name, words, home, _MEMORY, {home: True}, ports),
    }


def flower_settings(home: Path, settings: ServerSettings) -> str:
    """What Flower's own commands need to find this server."""
    there = {"address": f"127.0.0.1:{settings.operator_port}", "root-certificates": str(home / KEYS / keys.AUTHORITY)}
    table = to_toml({"x": there}).replace("[x]", f"[superlink.{CONNECTION}]")
    return f'[superlink]\ndefault = "{CONNECTION}"\n\n{table}'


def read(folder: Path) -> ServerSettings:
    """The settings of a server's folder."""
    if not (folder / FILE).is_file():
        raise check.MissingData(f"{folder}: is no server's folder. Make one with: sottovoce server init {folder}")
    tables = read_tables(folder / FILE, ("server",))
    check.require("server" in tables, FILE, "needs a table [server]")
    return from_table(ServerSettings, tables["server"], f"{FILE}, [server]")


def known_nodes(folder: Path) -> dict[str, NodeLine]:
    """The clients that may join, by name."""
    keys_of_nodes = sorted((folder / NODES).glob("*.pub"))
    return {path.stem: NodeLine.of(path.stem, whole_files.read_text(path).encode()) for path in keys_of_nodes}


def add(folder: Path, texts: Sequence[str]) -> list[NodeLine]:
    """Let clients join, all of them or none; the lines of those that are new."""
    read(folder)
    known, new = known_nodes(folder), dict[str, NodeLine]()
    check.require(len(texts) > 0, "server add", "needs the line of a node, or a file that holds it")
    for text in texts:
        line = NodeLine.read(text)
        before = known.get(line.name)
        hint = f"If that node has a new key, remove {folder / NODES / line.name}.pub first"
        check.require(before in (None, line), "server add", f"there is another node named {line.name!r}", hint=hint)
        twice = next((name for name, other in known.items() if other.key == line.key and name != line.name), "")
        check.require(not twice, "server add", f"the key of {line.name!r} is that of {twice!r}: make another key")
        known[line.name] = line
        if before is None:
            new[line.name] = line
    for name, line in new.items():
        whole_files.replace_file(folder / NODES / f"{name}.pub", line.openssh() + b"\n")
    return list(new.values())


def arguments(folder: Path, settings: ServerSettings) -> list[str]:
    """What Flower's SuperLink is started with."""
    home = folder.absolute()
    listen = f"[{settings.listen}]" if ":" in settings.listen else settings.listen
    return [
        *("--port", str(settings.operator_port), "--fleet", f"{listen}:{settings.port}", "--nodes", str(home / NODES)),
        *("--database", str(home / STATE), "--enable-supernode-auth"),
        *("--ssl-ca-certfile", str(home / KEYS / keys.AUTHORITY), "--ssl-certfile", str(home / KEYS / keys.SERVER)),
        *("--ssl-keyfile", str(home / KEYS / keys.SERVER_KEY)),
    ]


def listens(port: int) -> bool:
    """Whether something on this machine's loopback answers at a port."""
    with socket.socket() as line:
        line.settimeout(2)
        return line.connect_ex(("127.0.0.1", port)) == 0


def _must_be_free(host: str, port: int, option: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else "not known here"
        raise check.InvalidInput(f"server: port {port} cannot be used ({why}). Choose another with {option}") from None
