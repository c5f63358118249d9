"""Real processes on loopback: a SuperLink and three SuperNodes with TLS and keys, and what may befall them.

One set of processes serves all tests of this file, in order. Every wait is bounded, and every process of a machine is
known by the home folder in its environment, and killed at the end.
"""

import contextlib
import os
import re
import resource
import secrets
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.run import certificates, experiment, store
from sottovoce.run.commands.app import write
from sottovoce.run.describe import to_toml
from sottovoce.run.remote import Deployment
from tests.deployments import NAMES, SECURE, SEEDED, charged, deployment, simulated, write_nodes
from tests.test_node_server import implied

pytestmark = pytest.mark.xdist_group("flower")  # one worker: the processes are shared
SOTTOVOCE = [str(Path(sys.executable).with_name("sottovoce"))]
LONG = 600.0  # seconds after which something hangs, on a busy machine too


class Wire:
    """A cable to the SuperLink that can be cut: what goes through it breaks, and new connections are refused.

    Refused rather than swallowed: a SuperNode whose line breaks inside a TLS handshake gives up for good.
    """

    def __init__(self, target: int) -> None:
        self._target, self._cut = target, threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self, cut: bool = True) -> None:
        if cut and not self._cut.is_set():
            self._cut.set()
            self._threads[0].join(30)
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
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as far:
            other = {near: far, far: near}
            while not self._cut.is_set():
                for end in select.select([near, far], [], [], 0.1)[0]:
                    data = end.recv(2**16)
                    if not data:
                        return
                    other[end].sendall(data)


class Machines:
    """A server and three clients, each a process group with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, write_nodes(folder / "clients")
        self.port, *self.ports = free_ports(4)
        self.cable = Wire(self.port)
        certificates.make(folder / "keys", ["localhost", "127.0.0.1"], [*NAMES, "stranger"], days=1)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        connection = {"address": f"127.0.0.1:{self.port}", "root-certificates": str(folder / "keys" / "ca.crt")}
        table = to_toml({"x": connection}).replace("[x]", "[superlink.tls]")
        (self.home("desk") / "config.toml").write_text(f'[superlink]\ndefault = "tls"\n{table}')

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

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [*SOTTOVOCE, "flower", *arguments],
                env=self.environment(name),
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
            *(
                "superlink",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--database",
                str(self.folder / "state.db"),
            ),
            *("--ssl-ca-certfile", self.keys("ca.crt"), "--ssl-certfile", self.keys("server.pem")),
            *("--ssl-keyfile", self.keys("server.key"), "--enable-supernode-auth"),
        )
        wait(lambda: answers(self.port), "the SuperLink listens")
        self.cable.cut(False)

    def start_client(self, name: str, key: str | None = None, *more: str) -> subprocess.Popen[bytes]:
        client = NAMES.index(name)
        target = self.cable.port if name == "west" else self.port
        secure = [
            "--root-certificates",
            self.keys("ca.crt"),
            "--auth-supernode-private-key",
            self.keys(f"{key or name}.key"),
        ]
        return self.start(
            key or name,
            *("supernode", "--superlink", f"127.0.0.1:{target}", "--host", "127.0.0.1"),
            *("--port", str(self.ports[client] if key is None else free_ports(1)[0])),
            *("--node-config", f'sottovoce="{self.files[client]}"'),
            *(more or secure),
        )

    def processes(self, name: str) -> list[int]:
        """All of this machine: Flower starts some in sessions of their own."""
        mark, found = f"FLWR_HOME={self.home(name)}".encode(), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def signal(self, name: str, what: signal.Signals) -> None:
        for process in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, what)

    def kill(self, name: str) -> None:
        while self.processes(name):
            self.signal(name, signal.SIGKILL)
            self.running[name].poll()  # the first of them is our child
            time.sleep(0.05)
        self.running.pop(name).wait(60)

    def limit_files(self, name: str, size: int) -> None:
        """Nothing of this machine may write a file longer than `size`: what a full disk does, and it can be undone."""
        for process in self.processes(name):
            with contextlib.suppress(OSError):
                resource.prlimit(process, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def app(self, name: str, made: Deployment) -> Path:
        self.experiment = write(self.folder / name, to_toml(made.tables), self.folder / "runs" / name)
        return self.folder / name

    def run(self, app: Path) -> "Run":
        """The app, under way."""
        return Run(self, app)

    def done(self, name: str, k: int, answers: int = 0) -> bool:
        """Whether round k of an app is on the server's disk, or a later one in which so many answered."""
        folder = self.folder / "runs" / name
        if (folder / store.MODEL).exists():
            return True
        with contextlib.suppress(Exception):
            kept = store.read_arrays(folder / store.CHECKPOINT)
            return bool(kept["k"] >= k and kept["history.answered"][-1] >= answers)
        return False

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)
        self.signal("desk", signal.SIGKILL)
        self.cable.close()


class Run:
    """`flwr run`, with its output in a file. On a very busy machine too few may answer in time: it is started again."""

    def __init__(self, machines: Machines, app: Path, tries: int = 6) -> None:
        self._machines, self._app, self._name, self._tries = machines, app, app.name, tries
        self._log = machines.log(f"run-{app.name}-{time.monotonic_ns()}")
        self._process = self._start()

    def reaches(self, k: int, answers: int = 0) -> None:
        """Wait until round k is on the server's disk, or a later one in which so many answered."""
        until = time.monotonic() + LONG
        while not self._machines.done(self._name, k, answers):
            assert self._process.poll() is None or self._again(), self.said()
            assert time.monotonic() < until, f"round {k} was waited for in vain: {self.said()}"
            time.sleep(0.1)

    def end(self) -> str:
        """All that it said."""
        self._process.wait(LONG)
        while self._again():
            self._process.wait(LONG)
        return self.said()

    def said(self) -> str:
        return self._log.read_text()

    def _again(self) -> bool:
        stopped = re.findall(r"^(stopped: round|round \d+ of|going on)", self.said(), re.MULTILINE)
        if self._tries <= 1 or stopped[-1:] != ["stopped: round"]:
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


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait(holds: Callable[[], bool], what: str, seconds: float = LONG) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"waited in vain until {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for ten minutes or more: ask for it with `make test MACHINES=1`")
    made = Machines(tmp_path_factory.mktemp("machines"))
    try:
        made.start_server()
        for name in NAMES:
            said = made.command("desk", "supernode", "register", made.keys(f"{name}.pub"), "tls")
            assert "registered" in said.stdout, said
        for name in NAMES:
            made.start_client(name)
        yield made
    finally:
        made.close()


def result(machines: Machines, name: str) -> Any:
    return store.load_result(machines.folder / "runs" / name)


def receipts(machines: Machines) -> list[int]:
    return [charged(file) for file in machines.files]


def test_dp_admm_bit_for_bit_while_strangers_knock(machines: Machines) -> None:
    """Five rounds give the simulator's numbers to the bit. Garbage, strangers and plain connections are refused."""
    made = deployment("dp-admm", SEEDED, 5)
    under_way = machines.run(machines.app("admm", made))
    for port in (machines.port, machines.ports[0]):
        garbage(port)
    with pytest.raises(ssl.SSLError):  # a certificate that nobody known signed
        talk(machines.port, ssl.create_default_context())
    old = ssl.create_default_context(cafile=machines.keys("ca.crt"))
    old.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.raises((ssl.SSLError, OSError)):
        talk(machines.port, old)
    stranger = machines.start_client("north", "stranger")
    plain = machines.start("plain", *("supernode", "--insecure", "--superlink", f"127.0.0.1:{machines.port}", "--host",
                                      "127.0.0.1", "--port", str(free_ports(1)[0]), "--max-retries", "1"))  # fmt: skip
    keyless = machines.start("keyless", *("supernode", "--root-certificates", machines.keys("ca.crt"), "--superlink",
                                          f"127.0.0.1:{machines.port}", "--host", "127.0.0.1", "--port",
                                          str(free_ports(1)[0])))  # fmt: skip
    for process in (stranger, plain, keyless):
        assert process.wait(LONG) != 0
    said = under_way.end()
    assert "round 5 of 5 done" in said, said
    expected = simulated(made)
    got = result(machines, "admm")
    assert np.array_equal(got.model, expected.model)
    assert got.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert got.history["answered"].tolist() == [3] * 5
    assert receipts(machines) == [5, 5, 5]


def garbage(port: int) -> None:
    for words in (
        secrets.token_bytes(2**16),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(2**16),
    ):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as line:
            line.settimeout(10)
            line.sendall(words)
            line.shutdown(socket.SHUT_WR)
            while line.recv(2**16):
                pass


def talk(port: int, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), 30) as line,
        context.wrap_socket(line, server_hostname="localhost"),
    ):
        pass


def test_fed_plt_bit_for_bit_though_the_server_is_killed(machines: Machines) -> None:
    """kill -9 of the whole server after two rounds; a new server goes on, and no client answers or pays twice."""
    before, made = receipts(machines), deployment("fed-plt", SEEDED, 5)
    app = machines.app("plt", made)
    under_way = machines.run(app)
    under_way.reaches(2)
    machines.cable.cut()  # a cable to a dead server is dead
    machines.kill("server")
    under_way.end()
    assert machines.done("plt", 2)
    assert not machines.done("plt", 5)
    machines.start_server()
    said = machines.run(app).end()
    assert "going on after round" in said, said
    expected = simulated(made)
    got = result(machines, "plt")
    assert np.array_equal(got.model, expected.model)
    answers = made.task.algorithm.asks().answers
    assert receipts(machines) == [count + 5 * answers for count in before]


def silent(said: str) -> dict[int, set[int]]:
    """Who did not answer in which round, as the server's log tells it. A round that was stopped is done again."""
    missing: dict[int, set[int]] = {k: set() for k in range(1, 100)}
    for line in said.splitlines():
        if found := re.match(r"round (\d+): (\w+): ", line):
            missing[int(found[1])].add(NAMES.index(found[2]))
        elif found := re.match(r"stopped: round (\d+): ", line):
            missing[int(found[1])].clear()
    return missing


def test_suspended_cut_off_and_killed_clients(machines: Machines) -> None:
    """Nobody waits beyond the deadline, the model is what the answers imply, and no ledger is below what was sent."""
    before, made = receipts(machines), deployment("dp-admm", SECURE, 10, least=1, deadline=90)
    under_way = machines.run(machines.app("faults", made))
    under_way.reaches(1)
    machines.signal("north", signal.SIGSTOP)
    machines.cable.cut()
    under_way.reaches(3)  # the first without the two may have had their answers already
    machines.signal("north", signal.SIGCONT)
    machines.cable.cut(False)
    under_way.reaches(4, answers=3)  # both are back: as soon as Flower sees them again
    machines.kill("south")  # in mid-round: one is always under way
    said = under_way.end()
    got, missing = result(machines, "faults"), silent(said)
    answered = [{0, 1, 2} - missing[k] for k in range(1, 11)]
    assert got.rounds == 10, said
    assert [got.history["answered"].tolist()] == [[len(who) for who in answered]]
    assert {0, 2} <= missing[3] or {0, 2} <= missing[2], said  # suspended, and cut off
    assert 1 in missing[10], said  # killed
    assert {0, 2} <= answered[-1], said  # and those are back
    assert np.array_equal(got.model, implied(made, machines.files, answered, machines.experiment))
    for client, (now, then) in enumerate(zip(receipts(machines), before, strict=True)):
        assert sum(client in who for who in answered) <= now - then <= 10
    assert max(np.diff(got.history["seconds"])) < 90 + 60 + 30  # the deadline, a minute for a newcomer's name, and work


def test_restarted_and_with_a_full_disk(machines: Machines) -> None:
    """The killed client comes back with its memory. Another's disk is full for a while: it says so, and comes back."""
    before = receipts(machines)

    def back() -> bool:  # Flower lets it in again once the old one's heart has stopped for a minute
        said = machines.log("south").stat().st_size
        process = machines.start_client("south")
        inside = lambda: b"SuperNode ID" in machines.log("south").read_bytes()[said:]  # noqa: E731
        wait(lambda: process.poll() is not None or inside(), "it is let in or not")
        return process.poll() is None

    wait(back, "the killed client is let in again")
    made = deployment("dp-admm", SECURE, 5, least=2, deadline=120)
    under_way = machines.run(machines.app("disk", made))
    under_way.reaches(1)
    machines.limit_files("west", 4096)
    under_way.reaches(3)
    machines.limit_files("west", resource.RLIM_INFINITY)
    said = under_way.end()
    got, missing = result(machines, "disk"), silent(said)
    assert any(2 in missing[k] for k in (2, 3)), said
    assert re.search(r"round [23]: west: (disk|ledger)", said), said
    assert got.history["answered"].tolist()[-1] == 3, said
    answered = [{0, 1, 2} - missing[k] for k in range(1, 6)]
    assert np.array_equal(got.model, implied(made, machines.files, answered, machines.experiment))
    for client, (now, then) in enumerate(zip(receipts(machines), before, strict=True)):
        assert sum(client in who for who in answered) <= now - then <= 5


def test_one_file_knows_flower() -> None:
    home = Path(experiment.__file__).parents[1]
    users = {path.name for path in home.rglob("*.py") if re.search(r"^\s*(import|from) flwr", path.read_text(), re.M)}
    assert users == {"flower.py"}


def test_the_library_loads_without_flower() -> None:
    code = "import sys; sys.modules['flwr'] = None; import sottovoce.run.cli, sottovoce.run.node, sottovoce.run.remote"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONG)


def test_telemetry_is_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower is started with its reports home, its update check and its downloads switched off."""
    from sottovoce.run.commands import flower

    started: list[Any] = []
    monkeypatch.setattr(flower.os, "execve", lambda *a: started.append(a))
    context: Any = type("Context", (), {"args": ["supernode", "--insecure"]})
    flower.flower(context)
    path, arguments, environment = started[0]
    assert (Path(path).name, arguments) == ("flower-supernode", ["flower-supernode", "--insecure"])
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    context.args = ["supernode", "register", "key.pub"]
    flower.flower(context)
    assert started[1][1] == ["flwr", "supernode", "register", "key.pub"]
