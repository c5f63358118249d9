"""Real processes on loopback: a SuperLink with TLS and keys, and nodes of ours beside it; and what may befall them.

    with started(folder, ("north", "south")) as machines:       # files by name, or those of `tests/deployments.py`
        machines.run(machines.app("study", deployment(...))).end()

Every wait is bounded. Every process of a machine is known by the home folder in its environment, and killed at the end.
"""

import base64
import contextlib
import datetime
import os
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sottovoce.deploy import keys as certificates
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.flower.app_folder import write
from sottovoce.experiment import saved, store, whole_files
from sottovoce.experiment.tables import to_toml
from tests.deployments import NAMES, charged

SOTTOVOCE = [str(Path(sys.executable).with_name("sottovoce"))]
LONG = 600.0  # seconds after which something hangs, on a busy machine too


class Wire:
    """A cable to the SuperLink, or to whoever has the port `target`. It can be cut: what goes through breaks, and new
    connections are refused; or what comes through it is late by `delay` seconds, or has wrong bytes while `garbled`.

    What is sent to the SuperLink is written down, for someone to send it again.
    """

    def __init__(self, target: int) -> None:
        self.target, self._cut = target, threading.Event()
        self.delay, self.garbled = 0.0, False
        self.sent: list[bytearray] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self, cut: bool = True) -> None:
        if cut and not self._cut.is_set():
            self.close()
            self._threads = self._threads[:1]
        elif not cut and self._cut.is_set():
            self._server = socket.create_server(("127.0.0.1", self.port))
            self._cut.clear()
            self._threads[0] = threading.Thread(target=self._accept, daemon=True)
            self._threads[0].start()

    def close(self) -> None:
        self._cut.set()
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        with self._server as server:
            server.settimeout(0.2)
            while not self._cut.is_set():
                with contextlib.suppress(TimeoutError):
                    near, _ = server.accept()
                    self._threads.append(threading.Thread(target=self._carry, args=(near,), daemon=True))
                    self._threads[-1].start()

    def _carry(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.target)) as far:
            other, sent = {near: far, far: near}, bytearray()
            self.sent.append(sent)
            while not self._cut.is_set():
                for end in select.select([near, far], [], [], 0.1)[0]:
                    data = end.recv(2**16)
                    if not data:
                        return
                    time.sleep(self.delay)
                    other[end].sendall(bytes(255 - byte for byte in data) if self.garbled else data)
                    sent += data if end is near else b""


class Machines:
    """A server and clients, each a process with a home of its own.

    Parameters
    ----------
    folder
        For all files; new or empty.
    files
        The clients' own files, by name; their table [server] is added here.
    behind
        Who is connected by the cable.
    """

    def __init__(self, folder: Path, files: Mapping[str, Path], behind: tuple[str, ...] = ()) -> None:
        self.folder, self._behind = folder, behind
        folder.mkdir(parents=True, exist_ok=True)
        self.control, self.port = free_ports(2)  # the operator's, the nodes'
        self.cable = Wire(self.port)
        certificates.make(folder / "keys", ["server.example"], [*files, "stranger"], days=1)
        (folder / "nodes").mkdir()
        self.have(files)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        tables = ['[superlink]\ndefault = "tls"\n']
        for name, port in (("tls", self.control), ("outside", self.port)):
            connection = {"address": f"127.0.0.1:{port}", "root-certificates": str(folder / "keys" / "ca.crt")}
            tables.append(to_toml({"x": connection}).replace("[x]", f"[superlink.{name}]"))
        (self.home("desk") / "config.toml").write_text("\n".join(tables))

    def have(self, files: Mapping[str, Path]) -> None:
        """From now on a client's own file is this one: its owner put another in its place."""
        self.files = dict(files)
        for name, file in files.items():
            if "[server]" not in file.read_text():
                file.write_text(f"{file.read_text()}\n{self.connection(name)}")
            (self.folder / "nodes" / "new").symlink_to(file)
            os.replace(self.folder / "nodes" / "new", self.folder / "nodes" / f"{name}.toml")

    def connection(self, name: str, key: str = "", port: int = 0) -> str:
        """The table [server] of a client's file."""
        port = port or (self.cable.port if name in self._behind else self.port)
        keys = {"certificate": self.keys("ca.crt"), "key": self.keys(f"{key or name}.key")}
        return to_toml({"server": {"address": f"127.0.0.1:{port}"} | keys})

    def home(self, name: str) -> Path:
        (self.folder / "homes" / name).mkdir(parents=True, exist_ok=True)
        return self.folder / "homes" / name

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of Flower's that ends by itself."""
        return subprocess.run(
            [*SOTTOVOCE, "flower", *arguments],
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=LONG,
            cwd=self.folder,
        )

    def environment(self, name: str) -> dict[str, str]:
        return {**os.environ, "FLWR_HOME": str(self.home(name)), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": ""}

    def start(self, name: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        return self.start_program(name, [*SOTTOVOCE, *words], **more)

    def start_program(self, name: str, command: list[str], **more: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                env=self.environment(name) | more,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self.running[name] = process
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def keys(self, name: str) -> str:
        return str(self.folder / "keys" / name)

    def start_server(self) -> None:
        self.start(
            "server",
            *("flower", "superlink", "--port", str(self.control), "--fleet", f"127.0.0.1:{self.port}"),
            *("--database", str(self.folder / "state.db")),
            *("--ssl-ca-certfile", self.keys("ca.crt"), "--ssl-certfile", self.keys("server.pem")),
            *("--ssl-keyfile", self.keys("server.key"), "--enable-supernode-auth"),
        )
        wait(lambda: answers(self.port) and answers(self.control), "the SuperLink listens")
        self.cable.cut(False)

    def register(self, name: str) -> None:
        said = self.command("desk", "supernode", "register", self.keys(f"{name}.pub"), "tls")
        assert "registered" in said.stdout, said

    def start_node(self, name: str, *words: str, **more: str) -> subprocess.Popen[bytes]:
        """`sottovoce node start`, of a client's own file."""
        return self.start(name, "node", "start", str(self.folder / "nodes" / f"{name}.toml"), *words, **more)

    def says(self, name: str, words: str, after: int = 0, seconds: float = LONG) -> None:
        """Wait until the log of this machine has these words, after so many bytes."""
        wait(lambda: words in self.log(name).read_text()[after:], f"{name} says {words!r}", seconds)

    def signed(self, owner: str, signer: str, minutes: float) -> int:
        """How the SuperLink answers a node that says it is `owner` with what `signer` signed so long ago."""
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.common.constant import TIMESTAMP_HEADER
        from flwr.proto.fleet_pb2 import ActivateNodeRequest
        from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

        files = [Path(self.keys(f"{name}.key")) for name in (owner, signer)]
        keys: Any = [load_ssh_private_key(file.read_bytes(), None) for file in files]
        public = public_key_to_bytes(keys[0].public_key())
        at = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)).isoformat()
        body = ActivateNodeRequest(public_key=public, heartbeat_interval=30.0).SerializeToString()
        signature = sign_message(keys[1], at.encode())
        headers = {
            TIMESTAMP_HEADER: at,
            FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public).decode(),
            FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode(),
        }
        return self.post(self.port, "/v1/fleet/activate-node", body, headers)

    def post(self, port: int, path: str, body: Any = b"", headers: dict[str, str] | None = None) -> int:
        """How this port answers a request, as an HTTP status. A body that is no bytes is sent without its length."""
        kind = {"content-type": "application/protobuf"} | (headers or {})
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", body, kind)
        trusted = ssl.create_default_context(cafile=self.keys("ca.crt"))
        try:
            with urllib.request.urlopen(request, timeout=60, context=trusted) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def processes(self, name: str) -> list[int]:
        return processes_of(self.home(name))

    def signal(self, name: str, what: signal.Signals) -> None:
        for process in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, what)

    def kill(self, name: str) -> None:
        end_all(self.home(name), self.running.pop(name))

    def limit_files(self, name: str, size: int) -> None:
        """Nothing of this machine may write a file longer than `size`: what a full disk does, and it can be undone."""
        for process in self.processes(name):
            with contextlib.suppress(OSError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def app(self, name: str, made: Deployment) -> Path:
        self.experiment = write(self.folder / name, to_toml(made.tables), self.folder / "runs" / name)
        return self.folder / name

    def run(self, app: Path, tries: int = 6) -> "Run":
        """The app, under way."""
        return Run(self, app, tries)

    def done(self, name: str, k: int, answers: int = 0) -> int:
        """The last round on the server's disk, if it is k or later and so many answered in it; else 0."""
        folder = self.folder / "runs" / name
        with contextlib.suppress(Exception):
            if (folder / store.MODEL).exists():
                return saved.load_result(folder).rounds
            kept = whole_files.read_arrays(folder / store.CHECKPOINT)
            return int(kept["k"]) if kept["k"] >= k and kept["history.answered"][-1] >= answers else 0
        return 0

    def result(self, name: str) -> Any:
        return saved.load_result(self.folder / "runs" / name)

    def receipts(self) -> list[int]:
        """How many answers each client's ledger counts."""
        return [charged(file) for file in self.files.values()]

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)
        self.signal("desk", signal.SIGKILL)
        self.cable.close()


class Keeper:
    """Keeps every answer that clients write to disk while it is entered: they remove those of finished rounds."""

    def __init__(self, machines: Machines) -> None:
        self._folder, self._over = machines.folder / "kept", threading.Event()
        self._from = {
            file.parent / "node" / "experiments": self._folder / name for name, file in machines.files.items()
        }
        self.files = [to / "node.toml" for to in self._from.values()]
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Keeper":
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            for folder, to in self._from.items():
                for path in folder.glob("*/*.npz"):
                    kept = to / "node" / "experiments" / path.relative_to(folder)
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    with contextlib.suppress(OSError):
                        if not kept.exists():
                            shutil.copy(path, kept.with_suffix(".new"))
                            os.replace(kept.with_suffix(".new"), kept)


class Run:
    """`flwr run`, with its output in a file. On a very busy machine too few may answer in time: it is started again."""

    def __init__(self, machines: Machines, app: Path, tries: int) -> None:
        self._machines, self._app, self._name, self._tries = machines, app, app.name, tries
        self._log = machines.log(f"run-{app.name}-{time.monotonic_ns()}")
        self._process = self._start()

    def reaches(self, k: int, answers: int = 0) -> int:
        """Wait until round k is on the server's disk, or a later one in which so many answered; which round that is."""
        until = time.monotonic() + LONG
        while not (done := self._machines.done(self._name, k, answers)):
            assert self._process.poll() is None or self._again(), self.said()
            assert time.monotonic() < until, f"round {k} was waited for in vain: {self.said()}"
            time.sleep(0.1)
        return done

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something to hold while it is under way."""
        wait(lambda: holds() or not (self._process.poll() is None or self._again()), what)
        assert holds(), self.said()

    def end(self, seconds: float = LONG) -> str:
        """All that it said."""
        self._process.wait(seconds)
        while self._again():
            self._process.wait(seconds)
        return self.said()

    def said(self) -> str:
        return self._log.read_text()

    def _again(self) -> bool:
        stopped = re.findall(
            r"^(stopped: (?:round|after round|app: \d)|round \d+ of|going on)", self.said(), re.MULTILINE
        )
        if self._tries <= 1 or not stopped or not stopped[-1].startswith("stopped"):
            return False
        self._tries -= 1
        self._process = self._start()
        return True

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*SOTTOVOCE, "flower", "run", str(self._app), "tls", "--stream"],
                env=self._machines.environment("desk"),
                stdout=log,
                stderr=log,
                cwd=self._machines.folder,
            )


def processes_of(home: Path) -> list[int]:
    """All that belong to this home: Flower starts some in sessions of their own."""
    mark, found = f"FLWR_HOME={home}".encode(), []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def end_all(home: Path, first: subprocess.Popen[Any]) -> None:
    """kill -9, of all that belong to this home; the first of them is our child."""
    while left := processes_of(home):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        first.poll()
        time.sleep(0.05)
    first.wait(60)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def talk(port: int, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), 30) as line,
        context.wrap_socket(line, server_hostname="localhost"),
    ):
        pass


def wait(holds: Callable[[], bool], what: str, seconds: float = LONG) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"waited in vain until {what}"
        time.sleep(0.1)


@contextlib.contextmanager
def started(folder: Path, files: Mapping[str, Path] | list[Path], behind: tuple[str, ...] = ()) -> Iterator[Machines]:
    """A SuperLink with TLS and registered keys, and a node for each of these files, connected."""
    made = Machines(folder, files if isinstance(files, Mapping) else dict(zip(NAMES, files, strict=True)), behind)
    try:
        made.start_server()
        for name in made.files:
            made.register(name)
        for name in made.files:
            made.start_node(name)
        for name in made.files:
            made.says(name, "connected to")
        yield made
    finally:
        made.close()
