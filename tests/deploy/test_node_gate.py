"""A client behind a socket answers as it would by itself, and only through the socket."""

import contextlib
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.deploy import gate, wire
from sottovoce.deploy.gate import GateClient
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Hello, Reply, Status
from tests.deploy.test_node import asks
from tests.deployments import NAME, SECURE, SEEDED, LocalPost, charged, deployment, simulated, write_nodes


def said_to(gate: GateClient, question: Ask | Hello) -> Any:
    return gate.reply_to(question)


class GatePost(LocalPost):
    """Every message through a gate."""

    def __init__(self, gates: list[GateClient]) -> None:
        self.gates = gates

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        return {client: said_to(self.gates[client], ask) for client, ask in asks.items()}

    def statuses(self, wait: float) -> dict[int, Status]:
        said = {client: said_to(gate, Hello()) for client, gate in enumerate(self.gates)}
        return {client: status for client, status in said.items() if isinstance(status, Status)}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_nodes(tmp_path)


@pytest.fixture
def gates(files: list[Path], tmp_path: Path) -> list[Path]:
    sockets = [tmp_path / f"{number}.sock" for number in range(3)]
    for file, path in zip(files, sockets, strict=True):
        opened = threading.Event()
        threading.Thread(target=gate.serve, args=(Node(file), path, 0o660, opened.set), daemon=True).start()
        assert opened.wait(60)
    return sockets


def test_a_gate_gives_the_simulators_numbers(gates: list[Path], files: list[Path], tmp_path: Path) -> None:
    made = deployment("dp-admm", SEEDED, 2)
    result = serve(made, NAME, GatePost([GateClient(path) for path in gates]), tmp_path / "run")
    assert np.array_equal(result.model, simulated(made).model)
    assert [charged(file) for file in files] == [2, 2, 2]
    assert stat.S_IMODE(os.stat(gates[0]).st_mode) == 0o660


def test_garbage_costs_nothing_and_the_gate_stays_open(gates: list[Path], files: list[Path]) -> None:
    large = b'{"kind": "ask", "row_bound": 1' + b"0" * 400 + b"}"
    strange = [
        b'{"kind": "ask", "layout": 5}',
        b'{"kind": null}',
        b"[]",
        b'{"kind": "reply"}',
        b'{"kind": ["ask"]}',
        large,
    ]
    framed = [struct.pack("<Q", len(words)) + words + bytes(8) for words in (b"{}", *strange)]
    for words in (b"", b"\0" * 7, os.urandom(4096), struct.pack("<Q", 2**60), *framed):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(gates[0]))
            line.settimeout(60)
            line.sendall(words)
            line.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):  # it may hang up before all was said
                while line.recv(2**16):
                    pass
    ask = asks("dp-admm", SECURE)[0]
    first = said_to(GateClient(gates[0]), ask)
    assert first.code == ""
    assert said_to(GateClient(gates[0]), ask) == first
    assert charged(files[0]) == 1


def test_a_message_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    file = write_nodes(tmp_path, message_bytes=8)[0]
    opened = threading.Event()
    threading.Thread(target=gate.serve, args=(Node(file), tmp_path / "s", 0o600, opened.set), daemon=True).start()
    assert opened.wait(60)
    reply = said_to(GateClient(tmp_path / "s"), asks()[0])
    assert reply.code in (wire.BAD_ASK, wire.FAILED)
    assert reply.up == {}


def test_nobody_behind_the_socket(tmp_path: Path) -> None:
    assert said_to(GateClient(tmp_path / "nothing"), asks()[0]).code == wire.FAILED


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to act as another account")
def test_another_account_gets_answers_and_no_rows() -> None:
    """Whoever runs the server's app can ask the client, and cannot read its data."""
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        file, path = write_nodes(Path(open_to_all))[0], Path(open_to_all) / "socket"
        os.chmod(file.parent, 0o700)
        opened = threading.Event()
        threading.Thread(target=gate.serve, args=(Node(file), path, 0o666, opened.set), daemon=True).start()
        assert opened.wait(60)
        code = (
            f"import socket, struct, sys\ntry:\n    open({str(file.parent / 'rows.npz')!r})\n    sys.exit(3)\n"
            f"except PermissionError:\n    pass\nline = socket.socket(socket.AF_UNIX); line.connect({str(path)!r})\n"
            'text = b\'{"kind": "hello", "format": 3}\'\n'
            "line.sendall(struct.pack('<Q', len(text)) + text + struct.pack('<Q', 0))\n"
            "size, = struct.unpack('<Q', line.recv(8)); print(line.recv(size).decode())\n"
        )
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        said = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd="/", timeout=300, **nobody)
        assert '"name": "north"' in said.stdout, said


def test_a_taken_place_is_not_taken_over(gates: list[Path], files: list[Path]) -> None:
    with pytest.raises(ValueError, match="exists already"):
        gate.serve(Node(files[1]), gates[0])
    assert isinstance(said_to(GateClient(gates[0]), Hello()), Status)


def test_limits_that_change_count_from_the_next_question(gates: list[Path], files: list[Path]) -> None:
    """And a file that cannot be read allows nothing, until it can be."""
    ask, text, client = asks("dp-admm", SECURE)[0], files[0].read_text(), GateClient(gates[0])
    files[0].write_text(text.replace("least_noise = 0.0", "").replace("[limits]", "[limits]\nleast_noise = 50.0"))
    assert "is below 50" in said_to(client, ask).why
    files[0].write_text(text.replace("epsilon = 100.0", "epsilon = 1e2.3"))
    for said in (said_to(client, ask), said_to(client, Hello())):
        assert said == Reply(wire.FAILED, "its own file cannot be read")
    assert "no question is answered" in (files[0].parent / "node" / "node.log").read_text()
    files[0].unlink()
    assert said_to(client, ask).code == wire.FAILED
    assert not (files[0].parent / "node" / "ledger").exists()
    files[0].write_text(text.replace("epsilon = 100.0", "epsilon = 30.0"))
    assert said_to(client, ask).code == ""
    assert said_to(client, Hello()).limit == 30.0


def test_a_gate_that_was_killed_leaves_no_hindrance(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "gate"
    command = [str(Path(sys.executable).with_name("sottovoce")), "node", "gate", str(files[0]), str(path)]
    for _ in range(2):
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            assert process.stderr is not None
            assert any(b"answering at" in line for line in process.stderr)
            assert isinstance(said_to(GateClient(path), Hello()), Status)
            process.kill()
    assert path.is_socket()  # left behind; the second gate found the first one's


def test_what_is_no_socket_stays_where_it_is(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("letters")
    with pytest.raises(ValueError, match="exists already, and is no socket"):
        gate.serve(Node(files[0]), tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "letters"


def test_a_caller_that_never_ends_is_not_waited_for(gates: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not hold the gate: all of a question has one time to come in."""
    monkeypatch.setattr(gate, "_FRAME", 0.5)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(gates[0]))
        slow.settimeout(0.05)
        hung_up, heard = False, b"-"
        for _ in range(2**12):  # bytes of a header that has more of them
            with contextlib.suppress(TimeoutError):
                try:
                    slow.sendall(b"\x01")
                    heard = slow.recv(1)
                except (BrokenPipeError, ConnectionResetError):
                    heard = b""
                if heard == b"":
                    hung_up = True
                    break
        assert hung_up
    assert isinstance(said_to(GateClient(gates[0]), Hello()), Status)


def test_a_gate_that_is_about_to_open_keeps_its_place(files: list[Path], tmp_path: Path) -> None:
    """Two of them find one stale socket: the one with the lock puts its own there, the other leaves it alone."""
    path = tmp_path / "gate"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with gate._only_gate(path), pytest.raises(ValueError, match="another gate is open there"):
        gate.serve(Node(files[0]), path)
    assert path.is_socket()


def test_a_lock_is_not_looked_for_elsewhere(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "gate.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="no lock can be made there"):
        gate.serve(Node(files[0]), tmp_path / "gate")
    assert not (tmp_path / "elsewhere").exists()


def test_a_socket_is_made_with_its_mode(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is followed a second time to change it."""
    monkeypatch.setattr(os, "chmod", None)
    for mode in (0o600, 0o660, 0o666):
        opened, path = threading.Event(), tmp_path / f"{mode}"
        threading.Thread(target=gate.serve, args=(Node(files[0]), path, mode, opened.set), daemon=True).start()
        assert opened.wait(60)
        assert stat.S_IMODE(path.stat().st_mode) == mode
