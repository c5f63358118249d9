"""A client's one process: asks its server for questions, and answers them by what is installed here.

No code of a server is ever fetched, unpacked or run, no port is opened, and no process is started. Rows, door, state
and compiled kernels stay in memory from one question to the next.

    for ever:
        let itself in (activate), and tell now and then that it is here (heartbeats, in a thread)
        until the server no longer knows it: fetch a question, answer it, send the answer

Whatever goes wrong on the way is said in one line, once, and tried again: at once, then ever more slowly, for ever.
A question that was lost is asked again by the server, and an answer that was lost is given again from this disk.
"""

import ctypes
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message as Head
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node as NodeId
from flwr.supercore.inflatable import inflatable_object as objects
from flwr.supercore.inflatable import inflatable_protobuf_utils as requests
from flwr.supercore.inflatable import inflatable_utils as transfer

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.flower.line import Got, Line, Request, Trouble
from sottovoce.deploy.flower.records import reply_to

_BEAT = 0.6 * HEARTBEAT_DEFAULT_INTERVAL  # seconds; the server waits for two intervals
_POLL = 0.2, 3.0  # seconds between two looks for a question, at least and at most
_PART = 0.2  # of the time since the last question, after which to look again: few looks, and none is much too late
_FIRST = 0.6, 6.0  # of the shorter of the last two pauses between questions, after which to look; seconds at most
_PAUSE = 0.5, 30.0  # seconds before the next try: the first, and the longest
_REMIND = 600.0  # seconds after which the same trouble is told again
_FETCH = 300.0  # seconds for all pieces of a question
_PIECES = 600  # of a question, at most
_HELD = 2**22  # bytes of questions after which memory is tidied up
_BESIDE = 2 * wire.LONGEST_TEXT  # bytes of a question beside its arrays


class Answering(Protocol):
    """A client that answers: `CurrentNode` in this process, or `GateClient` behind a socket."""

    @property
    def most(self) -> int: ...
    def reply_to(self, question: wire.Question) -> wire.Response: ...


class Stop(threading.Event):
    """Set when the process is asked to end. It ends at once, unless an answer is being made: that is finished first."""

    answering = False

    def ask(self, number: int = 0, frame: object = None) -> None:
        """Handles SIGINT and SIGTERM."""
        again, _ = self.is_set(), self.set()
        if again or not self.answering:
            raise KeyboardInterrupt


def run(line: Line, client: Answering, say: Callable[[str], None], stop: Stop) -> None:
    """Answer until `stop` is set. `say` is told what is waited for, and when it is over."""
    _return_memory()
    reporter = _Reporter(say, stop)
    while not stop.is_set():
        try:
            with _admitted(line, reporter) as session:
                reporter.well(f"connected to {line.address}; waiting for questions")
                session.serve(client, reporter)
        except Trouble as trouble:
            reporter.trouble(trouble)


def _return_memory() -> None:
    """Let glibc give large arrays back when they are freed: by itself it keeps what a process once needed for good."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(-3, 2**20)  # M_MMAP_THRESHOLD, bytes


class _Reporter:
    """What was said last, and how long to wait before the next try."""

    def __init__(self, say: Callable[[str], None], stop: Stop) -> None:
        self._say, self.stop = say, stop
        self._last, self._at, self._tries = "", 0.0, 0

    def well(self, words: str) -> None:
        if self._last != words:
            self._say(words)
        self._last, self._tries = words, 0

    def trouble(self, trouble: Trouble) -> None:
        """Say it, unless it was said before, and wait until the next try."""
        words = f"{trouble}. Trying again until it works"
        if words != self._last or time.monotonic() - self._at > _REMIND:
            self._say(words)
            self._at = time.monotonic()
        self._last, self._tries = words, self._tries + 1
        first, longest = _PAUSE
        self.stop.wait(min(longest, first * 2 ** min(self._tries, 10)) * random.uniform(0.7, 1.0))


@contextmanager
def _admitted(line: Line, reporter: _Reporter) -> Iterator["_Session"]:
    """Be let in by the server, and stay so; on leaving tell it, so that this client may come back at once."""
    request = ActivateNodeRequest(public_key=line.public_key, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
    session = _Session(line, NodeId(node_id=line.call(line.fleet.ActivateNode, request).node_id), reporter.stop)
    threading.Thread(target=session.beat, daemon=True).start()
    try:
        yield session
    finally:
        session.over.set()
        line.leave(DeactivateNodeRequest(node_id=session.node.node_id))


class _Session:
    """What a client does while a server knows it under one id."""

    def __init__(self, line: Line, node: NodeId, stop: Stop) -> None:
        self._line, self.node, self._stop = line, node, stop
        self.over, self._lost, self._held = threading.Event(), "", 0

    def beat(self) -> None:
        """Heartbeats, until the session is over; whatever happens, this thread raises nothing."""
        request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        pause = _BEAT
        while not self.over.wait(pause * random.uniform(0.8, 1.0)):
            try:
                known = self._line.call(self._line.fleet.SendNodeHeartbeat, request).success
                self._lost, pause = "" if known else "the server has forgotten this client", _BEAT
            except Trouble as trouble:
                self._lost, pause = "" if trouble.passing else str(trouble), 3.0
            except Exception as error:
                self._lost = f"heartbeats ended ({type(error).__name__})"

    def serve(self, client: Answering, reporter: _Reporter) -> None:
        """Answer questions until there is trouble that another try of the same request would not mend."""
        last, pauses, answered = time.monotonic(), (0.0, 0.0), False
        while not self._stop.is_set():
            if self._lost:
                raise Trouble(self._lost)
            try:
                pulled = self._line.call(self._line.fleet.PullMessages, PullMessagesRequest(node=self.node))
                reporter.well(f"connected to {self._line.address}; waiting for questions")
                answered = bool(pulled.messages_list)
                if answered:
                    now = time.monotonic()
                    last, pauses = now, (pauses[1], now - last)
                    self._answer(client, pulled.messages_list[0], pulled.message_object_trees[0])
            except Trouble as trouble:
                if not trouble.passing:
                    raise
                reporter.trouble(trouble)
                continue
            (short, long), (part, longest), since = _POLL, _FIRST, time.monotonic() - last
            wait = min(longest, part * min(pauses)) - since if answered else min(long, _PART * since)
            self._stop.wait(max(short, wait))

    def _answer(self, client: Answering, head: Head, tree: ObjectTree) -> None:
        begun = time.monotonic()
        run_id = message_from_proto(head).metadata.run_id
        try:
            message = self._fetched(run_id, tree, client.most + _BESIDE)
        except (transfer.ObjectPullError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Trouble(f"a question could not be fetched ({type(error).__name__})", passing=True) from None
        self._stop.answering = True
        try:
            self._send(reply_to(message, client.reply_to), run_id, time.monotonic() - begun)
        finally:
            self._stop.answering = False
            del message
            if self._held > _HELD:
                self._held = 0
                gc.collect()  # Flower's objects of a message point at each other, and hold its bytes until then

    def _fetched(self, run_id: int, tree: ObjectTree, most: int) -> Message:
        """The whole question, whose pieces are what their names, which are digests, say."""
        pieces, size = [piece.object_id for piece in objects.iterate_object_tree(tree)], 0
        check.require(len(pieces) <= _PIECES, "message", f"must have at most {_PIECES} pieces", len(pieces))
        pull = requests.make_pull_object_fn_protobuf(self._patiently(self._line.fleet.PullObject), self.node, run_id)

        def pulled(name: str) -> bytes:
            nonlocal size
            content = pull(name)
            size += len(content)
            self._held += len(content)
            check.require(size <= most, "message", f"must have at most {most} bytes", size)
            check.require(objects.get_object_id(content) == name, "message", "must come as it was sent")
            return content

        confirm = self._patiently(self._line.fleet.ConfirmMessageReceived)
        message = transfer.pull_and_inflate_object_from_tree(
            tree,
            pulled,
            requests.make_confirm_message_received_fn_protobuf(confirm, self.node, run_id),
            return_type=Message,
            max_time=_FETCH,
            initial_backoff=0.05,
            backoff_cap=2.0,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower's own node does
        return message

    def _send(self, reply: Message, run_id: int, seconds: float) -> None:
        """Send a reply; if its run is over meanwhile nobody wants it any more, and that is no trouble."""
        with objects.no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[objects.get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            pieces = objects.get_all_nested_objects(reply)
            try:
                wanted = self._patiently(self._line.fleet.PushMessages)(request)
                push_one = self._patiently(self._line.fleet.PushObject)
                push = requests.make_push_object_fn_protobuf(push_one, self.node, run_id, wanted.session_id)
                transfer.push_objects(pieces, push, object_ids_to_push=set(wanted.objects_to_push))
            except transfer.ObjectPushError:
                raise Trouble("the server could not store an answer, and will ask for it again", passing=True) from None

    def _patiently(self, request: Callable[Request, Got]) -> Callable[Request, Got]:
        """The request, tried again for a while where it may go through."""

        def tried(*args: Request.args, **options: Request.kwargs) -> Got:
            until, pause = time.monotonic() + 60.0, 0.2
            while True:
                try:
                    return self._line.call(request, *args, **options)
                except Trouble as trouble:
                    if not trouble.passing or time.monotonic() > until or self._stop.wait(pause):
                        raise
                    pause = min(5.0, 2 * pause)

        return tried
