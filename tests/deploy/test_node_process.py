"""A client's one process against a server of our own making: what it says, what it reads, and what it never does."""

import contextlib
import datetime
import http.server
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from cryptography.x509 import load_pem_x509_certificate
from flwr.app import Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.deploy import keys as certificates
from sottovoce.deploy import wire
from sottovoce.deploy.flower import line as lines
from sottovoce.deploy.flower import node_process
from sottovoce.deploy.flower.line import Line, Trouble, wrong_clock
from sottovoce.deploy.flower.records import KIND, replied, to_records
from sottovoce.deploy.flower.superlink import KEY_IN_USE, UNKNOWN_KEY
from sottovoce.deploy.gate import CurrentNode
from sottovoce.deploy.keys import read_private
from sottovoce.deploy.lines import Connection
from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import Hello
from tests.command_line import invoke
from tests.deploy.hostile import hostile_messages
from tests.deploy.test_node import asks
from tests.deployments import SECURE, charged, write_nodes
from tests.machines import wait

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    certificates.make(folder, ["server.example"], ["north", "south"], days=1)
    certificates.make(folder / "other", ["server.example"], [], days=1)
    return folder


class Server:
    """A server that answers what it is told to, and counts."""

    def __init__(self, keys: Path, answer: Callable[[str, bytes], Answer], tls: bool = True) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked.append(self.path)
                body = self.rfile.read(int(self.headers["content-length"]))
                status, headers, said = answer(self.path, body)
                self.send_response_only(status)
                for name, value in ({"content-length": str(len(said))} | headers).items():
                    if value:
                        self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keys / "server.pem", keys / "server.key")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def serving(keys: Path, answer: Callable[[str, bytes], Answer] | Answer, tls: bool = True) -> Iterator[Server]:
    server = Server(keys, answer if callable(answer) else lambda *_: answer, tls)
    try:
        yield server
    finally:
        server.close()


def line_to(port: int, keys: Path, authority: str = "ca.crt") -> Line:
    return Line(Connection(f"127.0.0.1:{port}", str(keys / authority), str(keys / "north.key")))


def trouble(port: int, keys: Path, authority: str = "ca.crt") -> Trouble:
    """What is said of one request."""
    line = line_to(port, keys, authority)
    with contextlib.closing(line), pytest.raises(Trouble) as found:
        line.call(line.fleet.ActivateNode, node_process.ActivateNodeRequest(public_key=line.public_key))
    return found.value


def refusal(extra: str) -> bytes:
    return b'{"code": 2004, "detail": "Failed", "extra": "%s"}' % extra.encode()


def dated(answer: Answer) -> Answer:
    """The answer, with the time of a server's clock that is behind by so many minutes."""
    status, headers, said = answer
    if headers.get("date", "").endswith("minutes"):
        ago = datetime.timedelta(minutes=float(headers["date"].split()[0]))
        at = datetime.datetime.now(datetime.UTC) - ago
        headers = {"date": at.strftime("%a, %d %b %Y %H:%M:%S GMT")}
    return status, headers, said


@pytest.mark.parametrize(
    ("answer", "words", "passing"),
    [
        ((401, {"date": "10 minutes"}, b""), "this machine's clock is 10 minutes ahead of the server's", False),
        ((401, {"date": "-10 minutes"}, b""), "this machine's clock is 10 minutes behind the server's", False),
        ((401, {"date": "0 minutes"}, b""), "does not accept this client's key", False),
        ((401, {"date": "yesterday"}, b""), "does not accept this client's key", False),
        ((400, {}, refusal(UNKNOWN_KEY)), "does not know this client's key. On the server:", False),
        ((400, {}, refusal(KEY_IN_USE)), "another node is connected by this client's key", False),
        ((400, {}, b'{"code": 2004, "detail": "x"}'), "not registered there, or another node", False),
        ((503, {}, b""), "refuses (HTTP 503)", True),
        ((500, {}, b'{"code": 1, "detail": "database\\u001b[2J is locked"}'), "HTTP 500: database?[2J is locked", True),
        ((302, {"location": "https://127.0.0.1:1/"}, b""), "elsewhere (a redirect)", False),
        ((307, {"location": "https://127.0.0.1:1/"}, b""), "elsewhere (a redirect)", False),
        ((200, {"content-length": str(10**10)}, b"x"), "a response of 10000000000 bytes", False),
        ((200, {"content-length": ""}, b"x"), "a response of unknown bytes", False),
        ((200, {"content-encoding": "gzip"}, b"x"), "or a coded one", False),
        ((200, {}, b"\xff" * 99), "answers what no SuperLink does", True),
        ((200, {"content-length": "99"}, b"x"), "cannot be reached", True),
    ],
)
def test_every_trouble_is_said_in_words(keys: Path, answer: Answer, words: str, passing: bool) -> None:
    """No redirect is followed, nothing large is read, and what may pass is told from what may not."""
    with serving(keys, lambda *_: dated(answer)) as server:
        said = trouble(server.port, keys)
    assert words in str(said)
    assert str(said).isprintable()
    assert said.passing == passing
    assert server.asked == ["/v1/fleet/activate-node"]


def test_insecure_lines_and_strange_certificates_are_said_in_words(keys: Path) -> None:
    with serving(keys, (200, {}, b""), tls=False) as server:
        assert "without TLS there, and over an insecure line nothing is said" in str(trouble(server.port, keys))
        assert server.asked == []
    with serving(keys, (200, {}, b"")) as server:
        assert "not signed by the authority" in str(trouble(server.port, keys, "other/ca.crt"))
        assert server.asked == []
    assert "cannot be reached: " in str(trouble(server.port, keys))  # it is gone
    for words, said in (("certificate is not yet valid", "not valid yet"), ("certificate has expired", "has expired")):
        reason = lines._reason(ssl.SSLError(f"CERTIFICATE_VERIFY_FAILED: {words}"))
        assert said in reason
        assert not re.search(r"\d:\d", reason), "words that change with the time are told again at every try"


def test_certificates_are_valid_where_clocks_are_hours_behind(keys: Path) -> None:
    """Such a clock is then named with its error: of a certificate that is not valid yet nobody sees which is wrong."""
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    for file in ("ca.crt", "server.pem"):
        made = load_pem_x509_certificate((keys / file).read_bytes())
        assert made.not_valid_before_utc < now - 14 * hour  # the farthest time zone
        assert now + 23 * hour < made.not_valid_after_utc <= now + 24 * hour  # days=1


def test_a_body_without_end_is_not_waited_for(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SECONDS", 0.3)
    over = threading.Event()
    with serving(keys, (200, {"content-length": "100"}, b"")) as server:
        handler: Any = server._server.RequestHandlerClass
        usual = handler.end_headers

        def dripping(self: Any) -> None:
            usual(self)
            for _ in range(50):
                with contextlib.suppress(OSError):
                    self.wfile.write(b"x")
                if over.wait(0.05):
                    return

        handler.end_headers = dripping
        assert "takes too long" in str(trouble(server.port, keys))
        over.set()


def test_clocks_may_differ_a_little() -> None:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    header = "Fri, 02 Jan 2026 03:04:05 GMT"
    for seconds, words in ((5, ""), (-5, ""), (30, "30 seconds ahead of"), (-400, "7 minutes behind"),
                           (2 * 86400, "2880 minutes ahead of")):  # fmt: skip
        assert words in wrong_clock(header, now + datetime.timedelta(seconds=seconds))
    assert wrong_clock("", now) == ""


class Link:
    """As much of a SuperLink as a node asks for: hands out messages and takes replies. `meddle` sees each request."""

    def __init__(self, *contents: RecordDict, meddle: Callable[[str, Any], Answer | None] = lambda *_: None) -> None:
        self._meddle, self.stop = meddle, node_process.Stop()
        self.replies: list[Message] = []
        self._objects: dict[str, bytes] = {}
        self._waiting: list[PullMessagesResponse] = []
        self._wanted, self._expected = set[str](), len(contents)
        for content in contents:
            self.put(content)

    def put(self, content: RecordDict) -> None:
        at = time.time()
        told = Metadata(5, "", 1, 7, "", "", at, 600.0, KIND, src_task_id=1, dst_task_id=None)
        message = make_message(told, content)
        message.metadata.__dict__["_message_id"] = message.object_id
        self._objects |= {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
        head = message_to_proto(remove_content_from_message(message))
        self._waiting.append(
            PullMessagesResponse(messages_list=[head], message_object_trees=[get_object_tree(message)])
        )

    def __call__(self, path: str, body: bytes) -> Answer:
        kind = path.rpartition("/")[2]
        request = REQUESTS[kind].FromString(body)
        meddled = self._meddle(kind, request)
        if meddled is not None:
            return meddled
        return 200, {}, getattr(self, kind.replace("-", "_"))(request).SerializeToString()

    def activate_node(self, request: Any) -> Any:
        return ActivateNodeResponse(node_id=7)

    def deactivate_node(self, request: Any) -> Any:
        return DeactivateNodeResponse()

    def pull_messages(self, request: Any) -> Any:
        if len(self.replies) == self._expected:
            self.stop.set()
        return self._waiting.pop(0) if self._waiting and not self.stop.is_set() else PullMessagesResponse()

    def pull_object(self, request: Any) -> Any:
        content = self._objects.get(request.object_id)
        found = content is not None
        return PullObjectResponse(object_found=found, object_available=found, object_content=content or b"")

    def send_node_heartbeat(self, request: Any) -> Any:
        return SendNodeHeartbeatResponse(success=True)

    def confirm_message_received(self, request: Any) -> Any:
        return ConfirmMessageReceivedResponse()

    def push_messages(self, request: Any) -> Any:
        self._tree = request.message_object_trees[0]
        self._wanted = {each.object_id for each in iterate_object_tree(self._tree)}
        return PushMessagesResponse(objects_to_push=list(self._wanted), session_id="session")

    def push_object(self, request: Any) -> Any:
        self._objects[request.object_id] = request.object_content
        self._wanted.discard(request.object_id)
        if not self._wanted:
            parts = {each.object_id: self._objects[each.object_id] for each in iterate_object_tree(self._tree)}
            self.replies.append(cast(Message, inflate_object_from_contents(self._tree.object_id, parts)))
        return PushObjectResponse(stored=True)


REQUESTS: dict[str, Any] = {
    "activate-node": ActivateNodeRequest,
    "deactivate-node": DeactivateNodeRequest,
    "send-node-heartbeat": SendNodeHeartbeatRequest,
    "pull-messages": PullMessagesRequest,
    "push-messages": PushMessagesRequest,
    "pull-object": PullObjectRequest,
    "push-object": PushObjectRequest,
    "confirm-message-received": ConfirmMessageReceivedRequest,
}  # and no others: a node that asks for more is answered nothing


def answered(keys: Path, link: Link, client: Any) -> tuple[list[Any], list[str], list[str]]:
    """What a node says to all that this link hands out: its replies, its lines for its owner, what it asked for."""
    said: list[str] = []
    with serving(keys, link) as server, contextlib.closing(line_to(server.port, keys)) as line:
        thread = threading.Thread(target=node_process.run, args=(line, client, said.append, link.stop), daemon=True)
        thread.start()
        thread.join(120)
        assert not thread.is_alive(), said
    return [replied(message) for message in link.replies], said, server.asked


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_process, "_PAUSE", (0.001, 0.01))
    monkeypatch.setattr(node_process, "_POLL", (0.001, 0.01))


def children() -> set[int]:
    return {int(word) for task in Path("/proc/self/task").iterdir() for word in (task / "children").read_text().split()}


def test_no_code_of_a_server_runs(keys: Path, tmp_path: Path) -> None:
    """Messages that ask for code, files or a shell: a refusal for each, no process, no file, no charge."""
    file, loot = write_nodes(tmp_path)[0], tmp_path / "loot"
    before, had = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}, children()
    replies, said, asked = answered(keys, Link(*hostile_messages(loot, file)), CurrentNode(Node(file)))
    assert len(replies) == len(hostile_messages(loot, file)) >= 20
    assert {reply.code for reply in replies} <= {wire.FAILED, wire.BAD_ASK, wire.LIMITS}
    assert not loot.exists()
    assert children() == had
    changed = {path for path in tmp_path.rglob("*") if before.get(path) != path.stat().st_mtime_ns}
    assert {path.name for path in changed if path.is_file()} <= {"lock", "node.log", "ledger", "ledger.head"}
    assert charged(file) == 0
    assert len(said) == 1
    assert {path.rpartition("/")[2] for path in asked} <= REQUESTS.keys()


def test_an_answer_that_cannot_be_stored_is_given_again_and_is_free(keys: Path, tmp_path: Path) -> None:
    """The server's database is locked for a while, and then for good: it asks again, and gets the same answer."""
    file, ask = write_nodes(tmp_path)[0], asks("dp-admm", SECURE)[0]
    busy = iter([(500, {}, b'{"code": 1, "detail": "database is locked"}')] * 3)

    def locked(kind: str, request: Any) -> Answer | None:
        return next(busy, None) if kind in ("push-messages", "push-object") else None

    def refused(kind: str, request: Any) -> Answer | None:
        lost = kind == "push-object" and next(once, False)
        return (200, {}, PushObjectResponse(stored=False).SerializeToString()) if lost else None

    (first,), _, asked = answered(keys, Link(to_records(ask), meddle=locked), CurrentNode(Node(file)))
    assert first.code == ""
    assert asked.count("/v1/fleet/push-messages") == 4
    once = iter([True])
    link = Link(to_records(ask), meddle=refused)
    link.put(to_records(ask))
    replies, said, _ = answered(keys, link, CurrentNode(Node(file)))
    assert any("could not store an answer, and will ask for it again" in words for words in said)
    assert replies == [first]
    assert charged(file) == 1


@pytest.mark.parametrize("what", ["another", "many", "large", "half", "deep"])
def test_pieces_of_a_question_are_checked(keys: Path, what: str, tmp_path: Path) -> None:
    """Wrong bytes, too many pieces, too many bytes, half a piece: the question is not believed, and the next one is."""
    file, spoilt = write_nodes(tmp_path)[0], iter([True])
    link = Link(to_records(Hello()))

    def spoil(kind: str, request: Any) -> Answer | None:
        if kind == "pull-object" and next(spoilt, False):
            content = link._objects[request.object_id]
            wrong = {
                "another": content[:-1] + bytes([content[-1] ^ 1]),
                "half": content[: len(content) // 2],
                "large": bytes(2**22),
            }
            told = PullObjectResponse(object_found=True, object_available=True, object_content=wrong[what])
            return 200, {}, told.SerializeToString()
        return None

    if what in ("another", "half", "large"):
        link._meddle = spoil
    elif what == "many":
        tree = link._waiting[0].message_object_trees[0]
        tree.children.extend([ObjectTree(object_id=f"{number:064d}") for number in range(node_process._PIECES)])
    else:
        inner = link._waiting[0].message_object_trees[0]
        for _ in range(90):
            inner = inner.children.add(object_id="0" * 64)
    link.put(to_records(Hello()))
    (status,), said, _ = answered(keys, link, CurrentNode(Node(file)))
    assert status.name == "north"
    assert any("a question could not be fetched" in words for words in said), said


class Clerk:
    """Takes note of what it is asked."""

    most = 2**20

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def reply_to(self, question: Any) -> Any:
        self.asked.append(question)
        raise AssertionError


def test_it_waits_for_ever_and_says_what_for_once(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, then let in, then forgotten, then let in again: one line for each, and never an end."""
    monkeypatch.setattr(node_process, "_PAUSE", (0.001, 0.005))
    monkeypatch.setattr(node_process, "_POLL", (0.001, 0.005))
    said: list[str] = []
    stop, begun = node_process.Stop(), time.monotonic()
    plan = iter(["refuse"] * 5 + ["in", "poll", "poll", "down", "down", "poll", "forget", "refuse", "in", "poll"])

    def answer(path: str, body: bytes) -> Answer:
        if path.endswith("deactivate-node"):
            return 200, {}, b""
        step = next(plan, "end")
        if step == "end":
            stop.set()
        return {
            "refuse": (400, {}, refusal(UNKNOWN_KEY)),
            "in": (200, {}, ActivateNodeResponse(node_id=7).SerializeToString()),
            "down": (503, {}, b""),
            "forget": (401, {}, b""),
        }.get(step, (200, {}, b""))

    with serving(keys, answer) as server, contextlib.closing(line_to(server.port, keys)) as line:
        thread = threading.Thread(target=node_process.run, args=(line, Clerk(), said.append, stop), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), time.monotonic() - begun
    refused, well = "does not know", "connected to"
    kinds = [refused, well, "HTTP 503", well, "does not accept", refused, well]
    assert [kind in words for kind, words in zip(kinds, said, strict=True)] == [True] * len(kinds), said
    assert not any("get-run" in path or "get-fab" in path for path in server.asked)


def test_a_node_that_is_asked_to_end_while_it_starts_does_so_in_peace(keys: Path, tmp_path: Path) -> None:
    """Its key is a pipe, at which it waits in the midst of its start."""
    file, key = tmp_path / "node.toml", tmp_path / "node.key"
    os.mkfifo(key, 0o600)
    file.write_text(f'[server]\naddress = "127.0.0.1:1"\ncertificate = "{keys / "ca.crt"}"\n')
    command = [sys.executable, "-m", "sottovoce", "node", "start", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    pipe: list[int] = []

    def reads() -> bool:
        with contextlib.suppress(OSError):  # nobody reads there yet
            pipe.append(os.open(key, os.O_WRONLY | os.O_NONBLOCK))
        return bool(pipe) or process.poll() is not None

    wait(reads, "the node reads its key")
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    for each in pipe:
        os.close(each)
    told = [line for line in said.splitlines() if not re.fullmatch(r"[a-z ]+, after \d+ s", line)]  # a slow start does
    assert (process.returncode, told) == (0, ["stopped, as asked"])


def test_a_file_without_a_server_and_keys_that_others_can_read_are_refused(keys: Path, tmp_path: Path) -> None:
    file = write_nodes(tmp_path)[0]
    with pytest.raises(InvalidInput, match=r"needs a table \[server\].*Write there"):
        Connection.read(file)
    text = file.read_text()
    for table, words in (('address = "x"', "address must be HOST:PORT"), ('address = "https://x:1"', "HOST:PORT"),
                         ('address = "x:1"\nport = 5', "port")):  # fmt: skip
        file.write_text(f"{text}\n[server]\n{table}\n")
        with pytest.raises(InvalidInput, match=words):
            Connection.read(file)
    file.write_text(f'{text}\n[server]\naddress = "x:1"\nkey = "mine.key"\n')
    told = Connection.read(file)
    assert told == Connection("x:1", str(file.parent / "ca.crt"), str(file.parent / "mine.key"))
    with pytest.raises(MissingData, match=r"mine\.key: the key cannot be read"):
        read_private(Path(told.key))
    (file.parent / "mine.key").write_bytes((keys / "north.key").read_bytes())
    os.chmod(file.parent / "mine.key", 0o640)
    with pytest.raises(InvalidInput, match=r"mode 640'?\. Close it with: chmod 600"):
        read_private(Path(told.key))
    done = invoke(["node", "start", str(file)])
    assert done.exit_code == 2
    assert Node(file).inspect().name == "north"  # the table is known there too
    assert CurrentNode(Node(file)).most == Node(file).limits.message_bytes
