"""Real processes on loopback: a SuperLink and three SuperNodes with TLS and keys, and what may befall them.

One set of processes serves all tests of this file, in order. Every wait is bounded, and every process of a machine is
known by the home folder in its environment, and killed at the end.
"""

import base64
import contextlib
import datetime
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
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.algorithms import ADMMSharing
from sottovoce.deploy import keys as certificates
from sottovoce.deploy import wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.flower import app as flower
from sottovoce.deploy.flower import superlink
from sottovoce.deploy.flower.app import _to_records
from sottovoce.deploy.flower.app_folder import write
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment import run_file, saved, store, whole_files
from sottovoce.experiment.tables import to_toml
from sottovoce.ledger.file import FileLedger
from tests.deploy.test_node_server import implied
from tests.deployments import (
    COLUMNS,
    NAMES,
    SECURE,
    SECURE_COLUMNS,
    SEEDED,
    charged,
    column_deployment,
    deployment,
    simulated,
    write_nodes,
    write_parties,
)

SOTTOVOCE = [str(Path(sys.executable).with_name("sottovoce"))]
LONG = 600.0  # seconds after which something hangs, on a busy machine too


class Wire:
    """A cable to the SuperLink that can be cut: what goes through it breaks, and new connections are refused.

    Refused rather than swallowed: a SuperNode whose line breaks inside a TLS handshake gives up for good. What is sent
    to the SuperLink is written down, for someone to send it again.
    """

    def __init__(self, target: int) -> None:
        self._target, self._cut = target, threading.Event()
        self.sent: list[bytearray] = []
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
            other, sent = {near: far, far: near}, bytearray()
            self.sent.append(sent)
            while not self._cut.is_set():
                for end in select.select([near, far], [], [], 0.1)[0]:
                    data = end.recv(2**16)
                    if not data:
                        return
                    other[end].sendall(data)
                    sent += data if end is near else b""


class Machines:
    """A server and three clients, each a process group with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, write_nodes(folder / "clients")
        self.parties = write_parties(folder / "parties")
        (folder / "nodes").mkdir()
        self.have(self.rows)
        self.control, self.port, *self.ports = free_ports(5)  # the operator's, the nodes'
        self.cable = Wire(self.port)
        certificates.make(folder / "keys", ["server.example"], [*NAMES, "stranger"], days=1)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        tables = ['[superlink]\ndefault = "tls"\n']
        for name, port in (("tls", self.control), ("outside", self.port)):
            connection = {"address": f"127.0.0.1:{port}", "root-certificates": str(folder / "keys" / "ca.crt")}
            tables.append(to_toml({"x": connection}).replace("[x]", f"[superlink.{name}]"))
        (self.home("desk") / "config.toml").write_text("\n".join(tables))

    def have(self, files: list[Path]) -> None:
        """From now on a client's own file is this one: its owner put another in its place."""
        self.files = files
        for name, file in zip(NAMES, files, strict=True):
            (self.folder / "nodes" / "new").symlink_to(file)
            os.replace(self.folder / "nodes" / "new", self.folder / "nodes" / f"{name}.toml")

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
            *("superlink", "--port", str(self.control), "--fleet", f"127.0.0.1:{self.port}"),
            *("--database", str(self.folder / "state.db")),
            *("--ssl-ca-certfile", self.keys("ca.crt"), "--ssl-certfile", self.keys("server.pem")),
            *("--ssl-keyfile", self.keys("server.key"), "--enable-supernode-auth"),
        )
        wait(lambda: answers(self.port) and answers(self.control), "the SuperLink listens")
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
            *("--node-config", f'sottovoce="{self.folder / "nodes" / name}.toml"'),
            *(more or secure),
        )

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

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)
        self.signal("desk", signal.SIGKILL)
        self.cable.close()


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

    def end(self) -> str:
        """All that it said."""
        self._process.wait(LONG)
        while self._again():
            self._process.wait(LONG)
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
    return saved.load_result(machines.folder / "runs" / name)


def receipts(machines: Machines) -> list[int]:
    return [charged(file) for file in machines.files]


def test_dp_admm_bit_for_bit_while_strangers_knock(machines: Machines) -> None:
    """Five rounds give the simulator's numbers to the bit. Garbage, strangers and plain connections are refused."""
    made = deployment("dp-admm", SEEDED, 5, deadline=120)
    under_way = machines.run(machines.app("admm", made))
    for port in (machines.port, machines.control, machines.ports[0]):
        garbage(port)
    with pytest.raises(ssl.SSLError):  # a certificate that nobody known signed
        talk(machines.port, ssl.create_default_context())
    strangers = [machines.start_client("north", "stranger")]  # a key that is not registered
    for name, secure in (("plain", ["--insecure", "--max-retries", "1"]),
                         ("keyless", ["--root-certificates", machines.keys("ca.crt")])):  # fmt: skip
        where = ("--superlink", f"127.0.0.1:{machines.port}", "--host", "127.0.0.1", "--port", str(free_ports(1)[0]))
        strangers.append(machines.start(name, "supernode", *where, *secure))
    for process in strangers:
        assert process.wait(LONG) != 0
    under_way.reaches(1)
    replayed(machines)
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
        send(port, words)


def send(port: int, words: bytes) -> bytes:
    """What comes back, until the other side closes the line. It must: an open line is one that was believed."""
    heard = b""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), 60) as line:
        line.settimeout(60)
        line.sendall(words)
        line.shutdown(socket.SHUT_WR)
        while data := line.recv(2**16):
            heard += data
    return heard


def talk(port: int, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), 30) as line,
        context.wrap_socket(line, server_hostname="localhost"),
    ):
        pass


def replayed(machines: Machines) -> None:
    """Bytes a client has sent, sent again, get no further than a handshake; a signature is good for minutes only."""
    longest = max(machines.cable.sent, key=len)
    assert len(longest) > 1000
    assert len(send(machines.port, bytes(longest))) < 10_000  # keys, certificate, and an alert
    assert machines.signed("north", "north", minutes=0) != 401
    assert machines.signed("north", "north", minutes=-10) == 401  # an old one
    assert machines.signed("north", "north", minutes=+10) == 401  # made ahead
    assert machines.signed("north", "south", minutes=0) == 401  # by someone else
    assert machines.signed("stranger", "stranger", minutes=0) != 200


def test_who_comes_in_where_nodes_do_is_answered_as_a_node_alone(machines: Machines) -> None:
    """Starting, stopping and listing runs, registering nodes, tasks of app processes: on the server's loopback only."""
    for path in ("/v1/control/list-runs", "/v1/control/list-nodes", "/v1/runtime/acquire-task"):
        assert machines.post(machines.control, path) == 200
        for way in (path, f"/v1/fleet/..{path[3:]}", f"/{path}", path.replace("/v1", "/v1/fleet/%2e%2e")):
            assert machines.post(machines.port, way) == 404
    for path in ("/v1/control/start-run", "/v1/control/stop-run", "/v1/control/register-node", "/docs", "/health"):
        assert machines.post(machines.port, path) == 404
    assert machines.command("desk", "ls", "tls").returncode == 0
    refused = machines.command("desk", "supernode", "register", machines.keys("stranger.pub"), "outside")
    assert refused.returncode != 0, refused
    assert machines.signed("stranger", "stranger", minutes=0) != 200
    assert machines.post(machines.port, "/v1/fleet/pull-messages") == 401  # a node, and who is it?
    assert machines.post(machines.port, "/v1/fleet/push-object", bytes(superlink.LARGEST_PIECE)) == 400  # it was read
    announced = {"content-length": str(superlink.LARGEST_PIECE + 1)}
    assert machines.post(machines.port, "/v1/fleet/push-object", b"", announced) == 413
    assert machines.post(machines.port, "/v1/fleet/push-object", iter([b"no", b"end"])) == 411


def test_fed_plt_bit_for_bit_though_server_and_client_are_killed(machines: Machines) -> None:
    """kill -9 of a client in mid-round and of the whole server; both come back, and no client answers or pays twice."""
    before, made = receipts(machines), deployment("fed-plt", SEEDED, 5, deadline=120)
    app = machines.app("plt", made)
    under_way = machines.run(app)
    under_way.reaches(2)
    machines.kill("south")  # in mid-round: one is always under way
    machines.cable.cut()  # a cable to a dead server is dead
    machines.kill("server")
    under_way.end()
    assert machines.done("plt", 2)
    assert not machines.done("plt", 5)
    machines.start_server()
    restart(machines, "south")
    said = machines.run(app).end()
    assert "going on after round" in said, said
    expected = simulated(made)
    got = result(machines, "plt")
    assert np.array_equal(got.model, expected.model)
    assert got.history["answered"].tolist() == [3] * 5
    answers = made.task.algorithm.asks().only.answers
    assert receipts(machines) == [count + 5 * answers for count in before]


def restart(machines: Machines, name: str) -> None:
    """A killed client is let in again by Flower once the old one's heart has stopped for a minute."""

    def back() -> bool:
        said = machines.log(name).stat().st_size
        process = machines.start_client(name)
        inside = lambda: b"SuperNode ID" in machines.log(name).read_bytes()[said:]  # noqa: E731
        wait(lambda: process.poll() is not None or inside(), "it is let in or not")
        return process.poll() is None

    wait(back, "the killed client is let in again")


def test_admm_sharing_bit_for_bit(machines: Machines) -> None:
    """Columns split between three machines, the labels with one of them: the simulator's numbers to the bit."""
    machines.have(machines.parties)
    made = column_deployment("admm-sharing", COLUMNS, 5, deadline=120)
    said = machines.run(machines.app("sharing", made)).end()
    assert "round 5 of 5 done" in said, said
    got, expected = result(machines, "sharing"), simulated(made)
    assert np.array_equal(got.model, expected.model)
    assert got.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert receipts(machines) == [6, 6, 6]  # five rounds, and a model


def test_the_label_holder_is_killed_in_mid_round(machines: Machines) -> None:
    """kill -9 between its scores and its word on labels: the run stops, says why, and ends as if nothing had been."""
    machines.have(machines.parties)
    before, made = receipts(machines), column_deployment(ADMMSharing(rho=3.0), COLUMNS, 4, deadline=60)
    app = machines.app("holder", made)
    under_way = machines.run(app, tries=1)
    scores = machines.parties[1].parent / "node" / "experiments" / machines.experiment / "000002.npz"
    wait(scores.exists, "the label holder has answered in round 2")
    machines.kill("south")
    said = under_way.end()
    reason = r"stopped: round 2: (nothing was heard of the labels|2 of 3 clients answered).*Silent: south: "
    assert re.search(reason, said), said
    assert machines.done("holder", 1) == 1
    restart(machines, "south")
    said = machines.run(app).end()
    assert "going on after round 1" in said, said
    got, expected = result(machines, "holder"), simulated(made)
    assert np.array_equal(got.model, expected.model)
    assert got.history["answered"].tolist() == [3] * 4
    assert receipts(machines) == [count + 5 for count in before]  # four rounds and a model, none twice


def spent(machines: Machines, run: str) -> list[Counter[Any]]:
    """What each client's ledger says of one experiment."""
    counts = []
    for file in machines.files:
        with FileLedger.open(file.parent / "node" / "ledger") as ledger:
            counts.append(Counter(receipt.event for receipt in ledger.receipts() if receipt.run == run))
    return counts


def test_secure_noise_spends_what_the_simulator_spends(machines: Machines) -> None:
    """Noise of the operating system: no number can be compared, but what was charged can."""
    runs, made = {}, {}
    for name, files, privacy in (("dp-admm", machines.rows, SECURE), ("fed-plt", machines.rows, SECURE),
                                 ("admm-sharing", machines.parties, SECURE_COLUMNS)):  # fmt: skip
        machines.have(files)
        build = deployment if files == machines.rows else column_deployment
        made[name] = build(name, privacy, 2, deadline=120)
        said = machines.run(machines.app(f"secure-{name}", made[name])).end()
        assert "round 2 of 2 done" in said, said
        runs[name] = spent(machines, machines.experiment)
    for name, counts in runs.items():
        (event,) = made[name].plan(np.ones(3))
        models = name == "admm-sharing"
        expected = 2 * made[name].task.algorithm.asks().only.answers + models
        assert counts == [Counter({event: expected})] * 3
        whole = simulated(made[name]).guarantee  # of a ledger that holds nothing else
        assert {ledger_epsilon(count, whole.delta) for count in counts} == {whole.epsilon}


def ledger_epsilon(count: Any, delta: Any) -> float:
    from sottovoce.privacy import accounting

    return accounting.epsilon(count, delta)


def silent(said: str) -> dict[int, set[int]]:
    """Who did not answer in which round, as the server's log tells it. A round that was stopped is done again."""
    missing: dict[int, set[int]] = {k: set() for k in range(1, 100)}
    for line in said.splitlines():
        if found := re.match(r"round (\d+): (\w+): ", line):
            missing[int(found[1])].add(NAMES.index(found[2]))
        elif found := re.match(r"stopped: round (\d+): ", line):
            missing[int(found[1])].clear()
    return missing


def test_suspended_cut_off_full_and_killed_clients(machines: Machines) -> None:
    """Nobody waits beyond the deadline, the model is what the answers imply, and no ledger is below what was sent."""
    machines.have(machines.rows)
    rounds, deadline = 12, 60
    before, made = receipts(machines), deployment("dp-admm", SECURE, rounds, least=1, deadline=deadline, wait=300)
    under_way = machines.run(machines.app("faults", made))
    under_way.reaches(1)
    machines.signal("north", signal.SIGSTOP)
    machines.cable.cut()
    under_way.reaches(3)  # the first without the two may have had their answers already
    machines.signal("north", signal.SIGCONT)
    machines.cable.cut(False)
    k = under_way.reaches(4, answers=3)  # both are back: as soon as Flower sees them again
    machines.limit_files("west", 4096)
    k = under_way.reaches(k + 2)
    machines.limit_files("west", resource.RLIM_INFINITY)
    k = under_way.reaches(k + 1, answers=3)
    machines.kill("south")  # in mid-round: one is always under way
    said = under_way.end()
    got, missing = result(machines, "faults"), silent(said)
    answered = [{0, 1, 2} - missing[k] for k in range(1, rounds + 1)]
    assert got.rounds == rounds, said
    assert got.history["answered"].tolist() == [len(who) for who in answered]
    assert {0, 2} <= missing[3] or {0, 2} <= missing[2], said  # suspended, and cut off
    assert re.search(r"round \d+: west: (disk|ledger)", said), said  # full
    assert 1 in missing[rounds], said  # killed
    assert {0, 2} <= answered[-1], said  # and those are back
    assert np.array_equal(got.model, implied(made, machines.files, answered, machines.experiment))
    for client, (now, then) in enumerate(zip(receipts(machines), before, strict=True)):
        assert sum(client in who for who in answered) <= now - then <= rounds
    # The deadline, a minute for a newcomer's name, and work.
    assert max(np.diff(got.history["seconds"])) < deadline + 60 + 30
    # Of the one that says nothing at the end, the guarantee takes that it has spent all it ever may.
    assert got.guarantee.epsilon_of_client[1] == 100.0


class Behind:
    """A grid with one node, which holds each reply until it gets the next message."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._replies: list[Any] = []

    def get_node_ids(self) -> list[int]:
        return [7]

    def push_messages(self, messages: Any) -> list[str]:
        from flwr.app import Message

        for message in messages:
            name = f"{len(self.asked)}"
            message.metadata.__dict__["_message_id"] = name  # as Flower's own grid does
            self.asked.append(message.metadata.message_type)
            status = Status("north", 5, 2, 0.0, 1.0, 1e-3)
            said = _to_records(status if message.metadata.message_type == "query" else Reply("late", name))
            self._replies.append(Message(said, reply_to=message))
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids: Any) -> list[Any]:
        return [reply for reply in self._replies[:-1] if reply.metadata.reply_to_message_id in ids]


def test_a_node_that_is_one_reply_behind_is_knocked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's node keeps a reply until the next message: it gets one, whose answer nobody needs."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):  # which a process of Flower's has
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(flower, "_KNOCK", 0.2)
    grid: Any = Behind()
    post = flower.FlowerPost(grid, ("north",), deadline=2.0)
    assert post.statuses(wait=4.0)[0].size == 5
    ask = Ask("0" * 32, 0, 1, "")
    for _ in range(2):
        assert post.ask({0: ask}, deadline=2.0)[0].code == "late"
    assert grid.asked == ["query", "query", "train", "query", "train", "query"]


def message(said: Any) -> Any:
    """A reply as Flower brings it, of these records."""
    return type("Message", (), {"has_content": lambda self: True, "content": said})()


def test_a_reply_is_bounded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its arrays may be small, each of its texts short."""
    many = {f"{number}": ((100,), bytes(800)) for number in range(10)}
    assert flower._to_reply(message(_to_records(Reply(up=many)))).code == ""
    monkeypatch.setattr(wire, "MOST_BYTES", 7999)
    reply = flower._to_reply(message(_to_records(Reply(up=many))))
    assert (reply.code, reply.up) == (wire.BAD_ANSWER, {})
    assert "at most 7999 bytes of arrays, got 8000" in reply.why
    monkeypatch.setattr(wire, "LONGEST_TEXT", 100)
    assert flower._to_reply(message(_to_records(Reply("a" * 50, "b" * 51)))).code == wire.BAD_ANSWER


def test_what_a_node_says_is_fit_for_a_terminal(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """No escape sequence and no second line, however it is refused, and not without end."""
    asked = Ask("0" * 32, 0, 1, "", "\x1b[2J")
    for said in (Reply("busy\x1b[2J", f"come\nback later{'!' * 1000}"), asked, replace(asked, task="\n" * 2**19)):
        grid: Any = type("Grid", (), {"get_node_ids": lambda self: []})()
        post = flower.FlowerPost(grid, ("north",), deadline=2.0)
        monkeypatch.setattr(post, "_exchange", lambda *_, said=said: {7: message(_to_records(said))})
        assert post._meet([7], 1.0) == {}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert told[0].startswith("a node was left out: busy?[2J: come?back later!!!")
    assert all(text.isprintable() and len(text) < 400 for text in told)


def test_a_certificate_is_good_on_the_servers_own_machine(tmp_path: Path) -> None:
    """Its app processes and its operator come by loopback, whatever name the clients know it by."""
    from cryptography import x509

    certificates.make(tmp_path / "keys", ["server.example", "127.0.0.1"], [], days=1)
    made = x509.load_pem_x509_certificate((tmp_path / "keys" / "server.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example", "localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_one_folder_knows_flower() -> None:
    home = Path(run_file.__file__).parents[1]
    users = {path.parent for path in home.rglob("*.py") if re.search(r"^\s*(import|from) flwr", path.read_text(), re.M)}
    assert users == {home / "deploy" / "flower"}


def test_the_library_loads_without_flower() -> None:
    modules = "sottovoce.cli.main, sottovoce.deploy.node, sottovoce.deploy.server"
    code = f"import sys; sys.modules['flwr'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONG)


def test_telemetry_is_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower is started with its reports home, its update check and its downloads switched off."""
    from sottovoce.cli import flower

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
    # A SuperLink is started in this process, with what this process has in its environment.
    from sottovoce.deploy.flower import superlink

    for variable in ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_FLEET_API", "1")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    seen: list[Any] = []
    monkeypatch.setattr(superlink, "start", lambda arguments: seen.append((arguments, dict(os.environ))))
    context.args = ["superlink", "--insecure"]
    flower.flower(context)
    assert seen[0][0] == ["--insecure"]
    for variable in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        assert seen[0][1][variable] == "0"
    assert seen[0][1]["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert "FLWR_INTERNAL_GRPC_FLEET_API" not in seen[0][1]
