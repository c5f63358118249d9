"""Transport: Flower. The only file that knows flwr, and it only carries: what is said is in `wire.py`, what is made of
it in `node.py` and `remote.py`.

The app that `sottovoce app` writes calls `server_app` and `client_app`. A client finds its own file by `sottovoce =
"/path/node.toml"` (or "unix:/path/socket", a gate of it) in the node's configuration, which the server cannot set; in
Flower's simulation by the folder SOTTOVOCE_NODES, in which client i has i/node.toml.

Nothing is asked of Flower that it does not promise: its `Context.state` is not used (it is lost with a node), replies
are matched by the message they reply to, and what a client raises is answered by a code before Flower could send it on.
"""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from sottovoce.core import check
from sottovoce.core.round import Checkpoint
from sottovoce.deploy import wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.gate import GateClient
from sottovoce.deploy.node import Node
from sottovoce.deploy.progress import Progress
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment import tables
from sottovoce.experiment.run_file import TABLES

log = logging.getLogger("sottovoce")
NODES = "SOTTOVOCE_NODES"
GATE = "unix:"
_SAID, _ARRAYS, _KIND = "said", "arrays", "sottovoce.float64"
_POLL = 0.25  # seconds between two looks for replies
_KNOCK = 10.0  # seconds after which one that was behind is knocked at
_PATIENCE, _TRIES = 60.0, 3  # seconds of a round for a newcomer to say who it is, and how often it is asked in vain


# ----------------------------------------------------------------------------------------------------------- the client


def client_app() -> ClientApp:
    """Flower's client half: finds this machine's `Node` and passes on what it says."""
    app = ClientApp()

    @app.query()
    def status(message: Message, context: Context) -> Message:
        return _reply(message, lambda: _node(context).status())

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        return _reply(message, lambda: _node(context).answer(_to_ask(message.content)))

    return app


def _node(context: Context) -> Node | GateClient:
    path = context.node_config.get("sottovoce")
    if path is None and NODES in os.environ:
        path = Path(os.environ[NODES]) / str(int(context.node_config["partition-id"])) / "node.toml"
    check.require(path is not None, "node", '--node-config must say sottovoce="/path/node.toml"')
    return GateClient(str(path).removeprefix(GATE)) if str(path).startswith(GATE) else Node(str(path))


def _reply(message: Message, work: Callable[[], Status | Reply]) -> Message:
    try:
        reply = work()
    except Exception as error:
        readable = isinstance(error, check.SottovoceError)
        words = str(error) if readable else "not told, for it may quote rows"  # only ours are known not to
        log.error("%s: %s", type(error).__name__, wire.printable(words, 1000))
        reply = Reply(wire.FAILED, "its own file or the question cannot be read" if readable else "it could not answer")
    return Message(_to_records(reply), reply_to=message)


# ----------------------------------------------------------------------------------------------------------- the server


def server_app(run_file: str | Path) -> ServerApp:
    """Flower's server half: trains what `run_file` describes, or goes on with it."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _speak()
        path, config = Path(run_file), context.run_config
        deployment = Deployment.build(tables.read_tables(path, TABLES), path.name)
        name, folder, told = str(config["experiment"]), Path(str(config["folder"])), str(config.get("progress", ""))
        names, rounds = deployment.clients.names, deployment.settings.rounds
        post = FlowerPost(grid, names, deployment.clients.deadline)
        progress = Progress(Path(told) if told else None, post, names, rounds, folder)

        def after_round(done: Checkpoint) -> None:
            log.info("round %d of %d done (%.1f s in all)", done.k, rounds, done.seconds)
            progress.after_round(done.k)

        try:
            result = serve(deployment, name, progress, folder, after_round)
        except check.SottovoceError as error:
            log.error("stopped: %s", error)
            progress.ended(str(error), done=False)
            raise
        progress.ended(result.stopped)
        log.info(
            "saved in %s. %s", folder, f"Stopped early, {result.stopped}." if result.stopped else "All rounds done."
        )
        log.info("Privacy: %s", result.guarantee)

    return app


def _speak() -> None:
    """Print this library's log, and nothing else, where Flower collects a server's output."""
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stdout))


class FlowerPost:
    """Carries questions over a Flower grid. Nodes tell which client they are by their names."""

    def __init__(self, grid: Grid, names: tuple[str, ...], deadline: float) -> None:
        self._grid, self._names, self._patience = grid, names, min(deadline, _PATIENCE)
        self._node_of: dict[int, int] = {}
        self._refused: set[int] = set()
        self._silent: Counter[int] = Counter()
        self._behind: set[int] = set()

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        here = self._look_for_newcomers()
        until = time.monotonic() + deadline
        replies = {i: Reply(wire.ABSENT, "its node is not connected") for i in asks if self._node_of.get(i) not in here}
        contents = {self._node_of[i]: _to_records(ask) for i, ask in asks.items() if i not in replies}
        client_of = {node: client for client, node in self._node_of.items()}
        for node, message in self._exchange(contents, "train", until).items():
            replies[client_of[node]] = _to_reply(message)
        return replies

    def statuses(self, wait: float) -> dict[int, Status]:
        """What each client says of itself; those that are not there yet are waited for."""
        until, met = time.monotonic() + wait, {}
        while True:
            here = set(self._grid.get_node_ids())
            new = [node for node in here - self._refused if node not in {self._node_of.get(i) for i in met}]
            met |= self._meet(new, max(self._patience, wait / _TRIES))
            if len(met) == len(self._names) or time.monotonic() >= until:
                return met
            time.sleep(0.5)

    def _look_for_newcomers(self) -> set[int]:
        """The connected nodes. New ones, and those that came back under another id, are asked for their names."""
        here = set(self._grid.get_node_ids())
        self._meet(here - self._refused - set(self._node_of.values()), self._patience)
        return here

    def _meet(self, nodes: Iterable[int], patience: float) -> dict[int, Status]:
        met: dict[int, Status] = {}
        asked = {node: RecordDict() for node in nodes}
        replies = self._exchange(asked, "query", time.monotonic() + patience)
        self._silent.update(node for node in asked if node not in replies)
        self._refused |= {node for node, times in self._silent.items() if times >= _TRIES}  # it shall not delay others
        for node, message in replies.items():
            try:
                status = _to_status(message)
                client = self._names.index(check.one_of("app", "client", status.name, self._names))
                other = self._node_of.get(client)
                alone = other in (None, node) or other not in set(self._grid.get_node_ids())
                check.require(alone, "app", "two nodes have the same name", status.name)
            except check.SottovoceError as error:
                log.warning("a node was left out: %s", wire.printable(str(error), 300))
                self._silent[node] += 1 if isinstance(error, _Silent) else _TRIES
                continue
            self._node_of[client], met[client] = node, status
        return met

    def _exchange(self, contents: Mapping[int, RecordDict], kind: str, until: float) -> dict[int, Message]:
        """Send one message to each node, and return the replies that came in time. Late and repeated ones are ignored.

        A node of Flower 1.41 takes one message and gives one reply, in turns. Once it was suspended or cut off it may
        be one reply behind, for good: it holds each until the next message, and all of them come too late. So it
        is sent one more question, whose answer is ignored, while there is still time.
        """
        begun = time.monotonic()
        half = max(1.0, until - begun) / 2
        waiting = self._push(contents, kind, 2 * half)
        replies: dict[int, Message] = {}
        knocked: set[int] = set()
        while waiting and (now := time.monotonic()) < until:
            for message in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id, None)
                if node is not None:
                    replies[node] = message
            still = set(waiting.values()) - knocked
            late = {node for node in still if now - begun > (min(half, _KNOCK) if node in self._behind else half)}
            self._push({node: RecordDict() for node in late}, "query", half)
            knocked |= late
            if waiting:
                time.sleep(_POLL)
        self._behind = (self._behind - replies.keys()) | knocked
        return replies

    def _push(self, contents: Mapping[int, RecordDict], kind: str, ttl: float) -> dict[str, int]:
        """Send one message to each node: {id of the message: node}. Flower drops what is older than `ttl`."""
        nodes = list(contents)
        messages = [Message(contents[node], dst_node_id=node, message_type=kind, ttl=ttl) for node in nodes]
        ids = list(self._grid.push_messages(messages)) if messages else []
        return {name: node for name, node in zip(ids, nodes, strict=False) if name}


class _Silent(check.SottovoceError):
    """A node that did not say who it is; it may do so another time."""


# --------------------------------------------------------------------------------------------------- values <-> records


def _to_records(message: Ask | Reply | Status) -> RecordDict:
    values = asdict(message)
    arrays = values.pop("down", None) or values.pop("up", None) or {}
    records = RecordDict({_SAID: ConfigRecord(values)})
    if arrays:
        packed = {name: Array("float64", tuple(shape), _KIND, data) for name, (shape, data) in arrays.items()}
        records[_ARRAYS] = ArrayRecord(packed)
    return records


def _to_ask(records: RecordDict) -> Ask:
    return _build(Ask, records, down=_packed(records))


def _to_reply(message: Message) -> Reply:
    if not message.has_content():
        return Reply(wire.UNREACHABLE, f"Flower's error {message.error.code}")
    try:
        return _build(Reply, message.content, up=_packed(message.content))
    except check.SottovoceError as error:
        return Reply(wire.BAD_ANSWER, str(error)[:300])


def _to_status(message: Message) -> Status:
    if not message.has_content():
        raise _Silent(f"it is not reachable (Flower's error {message.error.code})")
    record = message.content.get(_SAID)
    if isinstance(record, ConfigRecord) and record.get("code"):
        raise _Silent(f"{str(record['code'])[:40]}: {str(record.get('why'))[:200]}")
    return _build(Status, message.content)


def _build(kind: type[wire.Message], records: RecordDict, **more: wire.Packed) -> wire.Message:
    """`kind` from the values in `records`, each of the type it declares."""
    record = records.get(_SAID)
    check.require(isinstance(record, ConfigRecord), kind.__name__, f"needs a record {_SAID!r} of values")
    values = {str(name): value for name, value in dict(record).items() if name not in more}  # type: ignore[arg-type]
    length = sum(len(value) for value in values.values() if isinstance(value, str | bytes | list))
    check.require(length <= wire.LONGEST_TEXT, kind.__name__, "holds texts that are too long")
    return replace(wire.read(kind, values), **more)


def _packed(records: RecordDict) -> wire.Packed:
    """Arrays as they came, not decoded: shapes and bytes."""
    arrays = records[_ARRAYS] if _ARRAYS in records else ArrayRecord()
    good = isinstance(arrays, ArrayRecord) and len(arrays) <= wire.MOST_ARRAYS
    check.require(good, "message", f"{_ARRAYS!r} must be at most {wire.MOST_ARRAYS} arrays")
    for name, array in arrays.items():
        known = isinstance(array, Array) and (array.stype, array.dtype) == (_KIND, "float64")
        check.require(known, "message", f"array {str(name)[:40]!r} must be float64 as this library sends it")
    packed: Any = {str(name): (tuple(array.shape), array.data) for name, array in arrays.items()}  # type: ignore[union-attr]
    size = wire.weight(packed)
    check.require(size <= wire.MOST_BYTES, "message", f"must have at most {wire.MOST_BYTES} bytes of arrays", size)
    return packed
