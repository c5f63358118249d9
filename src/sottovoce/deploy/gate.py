"""A client behind a socket: the one who holds the data answers from a process and an account of its own.

The account that speaks with a server then need not be able to read the data: `sottovoce node gate` runs under another
one, and the first only passes bytes through a Unix socket.

A change of the client's own file counts from the next question on; one that cannot be read stops all answers until it
can be. The rows are read again with it, and at no other time.

A frame is a length (8 bytes), a JSON header, a length, and the arrays' bytes end to end in the header's order.
"""

import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.deploy import wire
from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import Ask, Reply, Status

_HEADER = 2 * wire.LONGEST_TEXT
_PATIENCE = 600.0  # seconds for one answer
_FRAME = 60.0  # seconds for a caller to say all it has to: others wait


class GateClient:
    """A `Node` as seen through its socket."""

    def __init__(self, path: str | Path, most: int = wire.MOST_BYTES) -> None:
        self._path, self._most = str(path), most

    def answer(self, ask: Ask) -> Reply:
        reply = self._call({"ask": _without(ask, "down")}, ask.down)
        return reply if isinstance(reply, Reply) else Reply(wire.FAILED, "its gate answered something else")

    def status(self) -> Status | Reply:
        return self._call({"status": {}}, {})

    def _call(self, header: Json, arrays: wire.Packed) -> Status | Reply:
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(_PATIENCE)
                line.connect(self._path)
                _send(line, header, arrays)
                return _said(*_receive(line, self._most, _PATIENCE))
        except OSError:
            return Reply(wire.FAILED, "its gate does not answer")


def serve(node: Node, path: Path, mode: int = 0o660, ready: Callable[[], None] = lambda: None) -> None:
    """Answer at a new socket, one caller at a time, until interrupted. The socket's `mode` says who may call."""
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
                    node = _answer(node, line)
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
        try:
            line.settimeout(_PATIENCE)
            line.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise check.InvalidInput(
                f"{path}: exists already, and whether a gate is open there is not known ({error})"
            ) from None
    raise check.InvalidInput(f"{path}: exists already, and another gate is open there")


def _answer(node: Node, line: socket.socket) -> Node:
    """Answer one question, and return the client as its file describes it by now."""
    try:
        header, arrays = _receive(line, node.limits.message_bytes, _FRAME)
        ask = replace(wire.read(Ask, header["ask"]), down=arrays) if "ask" in header else None
        node, current = _renewed(node)
        if not current:
            reply = Reply(wire.FAILED, "its own file cannot be read")
        else:
            reply = node.status() if ask is None else node.answer(ask)
    except check.SottovoceError as error:  # about the caller's own words
        reply = Reply(wire.BAD_ASK, str(error)[:300])
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        reply = Reply(wire.BAD_ASK, "the question cannot be read")
    if isinstance(reply, Status):
        _send(line, {"status": asdict(reply)}, {})
    else:
        _send(line, {"reply": _without(reply, "up")}, reply.up)
    return node


def _renewed(node: Node) -> tuple[Node, bool]:
    """The client as its file describes it now, and whether that can be read: if not, nothing is answered."""
    try:
        return node.renewed(), True
    except check.SottovoceError as error:
        node.note(f"no question is answered: {error}")
        return node, False


def _said(header: Json, arrays: wire.Packed) -> Status | Reply:
    if "status" in header:
        return wire.read(Status, header["status"])
    return replace(wire.read(Reply, header.get("reply", {})), up=arrays)


def _without(message: Ask | Reply, arrays: str) -> Json:
    return {name: value for name, value in vars(message).items() if name != arrays}


def _send(line: socket.socket, header: Json, arrays: wire.Packed) -> None:
    shapes = [[name, list(shape), len(data)] for name, (shape, data) in arrays.items()]
    text, body = json.dumps(header | {"arrays": shapes}).encode(), b"".join(data for _, data in arrays.values())
    line.sendall(struct.pack("<Q", len(text)) + text + struct.pack("<Q", len(body)) + body)


def _receive(line: socket.socket, most: int, seconds: float) -> tuple[Json, wire.Packed]:
    """A frame, all of which must come in so many seconds."""
    until = time.monotonic() + seconds
    try:
        header = json.loads(_part(line, _HEADER, until))
        body = memoryview(_part(line, most, until))
        arrays, start = {}, 0
        for name, shape, length in header.pop("arrays")[: wire.MOST_ARRAYS]:
            arrays[str(name)] = (tuple(int(each) for each in shape), bytes(body[start : start + int(length)]))
            start += int(length)
        return header, arrays
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise check.InvalidInput(f"gate: a frame cannot be read ({error})") from None


def _part(line: socket.socket, most: int, until: float) -> bytes:
    (length,) = struct.unpack("<Q", _exactly(line, 8, until))
    check.require(length <= most, "gate", f"a part of a frame must have at most {most} bytes", length)
    return _exactly(line, length, until)


def _exactly(line: socket.socket, count: int, until: float) -> bytes:
    parts, left, usual = [], count, line.gettimeout()
    while left:
        line.settimeout(max(until - time.monotonic(), 1e-3))  # 0 would mean: do not wait at all
        part = line.recv(min(left, 2**20))
        if not part:
            raise check.InvalidInput("gate: the frame ended early")
        parts.append(part)
        left -= len(part)
    line.settimeout(usual)
    return b"".join(parts)
