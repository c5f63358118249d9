"""The two ways in which a process asks a client: the client is in it, or behind a Unix socket in another one.

Neither decides anything: what is answered is decided in `node.py`. Behind a socket, the account that speaks with a
server need not be able to read the data: `sottovoce node gate` runs under another one, and the first only passes bytes.

Wherever it is, a client follows its own file: a change counts from the next question on. While the file cannot be read
nothing is answered. The rows are read again with it, and at no other time.

A frame is a length (8 bytes), a message's values as JSON, a length, and the bytes of its arrays (`wire.taken_apart`).
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.deploy import wire
from sottovoce.deploy.node import Node

_HEADER = 2 * wire.LONGEST_TEXT
_PATIENCE = 600.0  # seconds for one answer
_FRAME = 60.0  # seconds for a caller to say all it has to: others wait


class CurrentNode:
    """A `Node` that stays in memory, and is replaced by the one that its file describes now."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def most(self) -> int:
        """Bytes of arrays that a question may have."""
        return self._node.limits.message_bytes

    def reply_to(self, question: wire.Question) -> wire.Response:
        try:
            self._node = self._node.renewed()
        except check.SottovoceError as error:
            self._node.home.note(f"no question is answered: {error}")
            return wire.Reply(wire.FAILED, "its own file cannot be read")
        return self._node.reply_to(question)


class GateClient:
    """A `Node` as seen through its socket."""

    def __init__(self, path: str | Path, most: int = wire.MOST_BYTES) -> None:
        self._path, self.most = str(path), most

    def reply_to(self, question: wire.Question) -> wire.Response:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_PATIENCE)
            line.connect(self._path)
            _send(line, question)
            return wire.put_together(*_receive(line, self.most, _PATIENCE), *wire.REPLIES)
        return wire.Reply(wire.FAILED, "its gate does not answer")


def serve(node: Node, path: Path, mode: int = 0o660, ready: Callable[[], None] = lambda: None) -> None:
    """Answer at a new socket, one caller at a time, until interrupted. The socket's `mode` says who may call."""
    current = CurrentNode(node)
    with _only_gate(path), socket.socket(socket.AF_UNIX) as door:
        _make_room(path)
        mask = os.umask(0o777 & ~mode)  # it is made with its mode: a name may lead elsewhere by the time of a chmod
        try:
            door.bind(str(path))
        except OSError as error:
            raise check.InvalidInput(f"{path}: no socket can be made there ({error})") from None
        finally:
            os.umask(mask)
        try:
            door.listen()
            ready()
            while True:
                line, _ = door.accept()
                with line, suppress(OSError):
                    line.settimeout(_PATIENCE)
                    _answer(current, line)
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _only_gate(path: Path) -> Iterator[None]:
    """Hold the lock of this gate, so that nobody else opens one there. It ends with the process; its file stays."""
    beside = path.with_name(f"{path.name}.lock")
    try:
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise check.InvalidInput(f"{beside}: no lock can be made there ({error})") from None
    with os.fdopen(lock):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise check.InvalidInput(f"{path}: exists already, and another gate is open there") from None
        yield


def _make_room(path: Path) -> None:
    """Remove a socket at which nobody answers: a gate that was killed leaves one behind."""
    if not path.is_socket():
        check.require(not path.exists(), str(path), "exists already, and is no socket")
        return
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_PATIENCE)
        error = line.connect_ex(str(path))
    if error == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
        return
    unknown = f"whether a gate is open there is not known ([Errno {error}] {os.strerror(error)})"
    raise check.InvalidInput(f"{path}: exists already, and {unknown if error else 'another gate is open there'}")


def _answer(node: CurrentNode, line: socket.socket) -> None:
    """Answer one question."""
    try:
        reply = node.reply_to(wire.put_together(*_receive(line, node.most, _FRAME), *wire.QUESTIONS))
    except check.SottovoceError as error:  # about the caller's own words
        reply = wire.Reply(wire.BAD_ASK, str(error)[:300])
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        reply = wire.Reply(wire.BAD_ASK, "the question cannot be read")
    _send(line, reply)


def _send(line: socket.socket, message: wire.Message) -> None:
    values, body = wire.taken_apart(message)
    text = json.dumps(values).encode()
    line.sendall(b"".join(len(part).to_bytes(8, "little") + part for part in (text, body)))


def _receive(line: socket.socket, most: int, seconds: float) -> tuple[Json, bytes]:
    """The values and the bytes of a frame, all of which must come in so many seconds."""
    until = time.monotonic() + seconds
    try:
        values = json.loads(_part(line, _HEADER, until))
    except (ValueError, RecursionError) as error:
        raise check.InvalidInput(f"gate: a frame cannot be read ({error})") from None
    check.require(isinstance(values, dict), "gate", "a frame must hold a message's values")
    return values, _part(line, most, until)


def _part(line: socket.socket, most: int, until: float) -> bytes:
    length = int.from_bytes(_exactly(line, 8, until), "little")
    check.require(length <= most, "gate", f"a part of a frame must have at most {most} bytes", length)
    return _exactly(line, length, until)


def _exactly(line: socket.socket, count: int, until: float) -> bytes:
    parts, left, usual = [], count, line.gettimeout()
    while left:
        line.settimeout(max(until - time.monotonic(), 1e-3))  # 0 would mean: do not wait at all
        part = line.recv(min(left, 2**20))
        check.require(part != b"", "gate", "the frame ended early")
        parts.append(part)
        left -= len(part)
    line.settimeout(usual)
    return b"".join(parts)
