"""The client's half of a deployment: its rows, its limits, its ledger and its memory, all on its own disk.

It is installed where the data is. A server sends what to ask (`wire.Ask`) and nothing of it is executed: algorithm,
loss and privacy are names in this library's registries with checked numbers, held against the owner's limits.

    [node]    name, folder (its ledger and its memory; made on first use)
    [data]    csv = "rows.csv" with label = a column, or npz = "rows.npz" with arrays X, y; labels, row_bound, shorten
    [limits]  epsilon, delta, algorithms, losses, and what `Limits` names

One answer, under a lock: check the question; charge the ledger (on disk before anything is computed); compute; write
answer and new state as one file, synced and renamed; only then reply. So, wherever it is killed:

* before the charge: nothing happened, and the question may come again;
* between charge and file: the charge stands and the answer is lost. With secure noise that round stays silent ("lost"):
  a second draw would be a second answer. With seeded noise (simulation) the same answer is made again, for free;
* after the file: the question gets the same answer again, to the bit, for free. Another question for the same round of
  the same experiment is refused.

What is sent back is the answer, or a code and a sentence that do not depend on data. Details go to `node.log`.
"""

import fcntl
import hashlib
import json
import os
import time
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.algorithm import Algorithm, Hub, VerticalAlgorithm
from sottovoce.core.check import BudgetSpent, InvalidInput, SottovoceError
from sottovoce.core.streams import SERVER, Draw, Streams
from sottovoce.privacy.events import Event
from sottovoce.privacy.ledger import Budget, LedgerError, MemoryLedger, fingerprint
from sottovoce.privacy.ledger_file import FileLedger
from sottovoce.privacy.modes import NoPrivacy, Proven
from sottovoce.privacy.owners import OwnerLedgers
from sottovoce.privacy.proven import kind_of_answer, open_door
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Loss
from sottovoce.problems.rows import Rows
from sottovoce.run import experiment, store, wire
from sottovoce.run.csv_rows import coded, label_text
from sottovoce.run.describe import noise_settings
from sottovoce.run.experiment import Task
from sottovoce.run.node_file import Identity, Limits, Own, Refused
from sottovoce.run.node_memory import Memory
from sottovoce.run.simulate import Simulator
from sottovoce.run.wire import Ask, Reply, Status

_PATIENCE = 60.0  # seconds to wait for another answer of this client to be finished
_LARGEST_LOG = 2**24
_SENTENCES = {
    wire.LEDGER: "its ledger cannot be read, written or trusted; its owner has to look at it",
    wire.DISK: "its disk is full or cannot be written; nothing was answered",
    wire.FAILED: "it could not answer; its own log says why",
}


class Node:
    """One client on its own machine, as its file describes it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().resolve()
        tables = experiment.read_tables(self.path, known=("node", "data", "limits"))
        kinds = {"node": Identity, "data": Own, "limits": Limits}
        for name in kinds:
            check.require(name in tables, self.path.name, f"needs a table [{name}]")
        labels = tables["data"].get("labels")
        if isinstance(labels, list):
            tables["data"]["labels"] = [label_text(label) for label in labels]
        parts: dict[str, Any] = {
            name: experiment.from_table(kind, tables[name], f"{self.path.name}, [{name}]")
            for name, kind in kinds.items()
        }
        self.name: str = parts["node"].name
        self.limits: Limits = parts["limits"]
        self._own: Own = parts["data"]
        self.folder = self.path.parent / Path(parts["node"].folder).expanduser()

    # ------------------------------------------------------------------------------------------------ what it is asked

    def answer(self, ask: Ask) -> Reply:
        """The answer to one round's question, the same one if it is asked again; or why there is none."""
        reply = self._guarded(f"experiment {ask.experiment} round {ask.k}", lambda: self._answer(ask))
        return reply if isinstance(reply, Reply) else Reply(up=reply)

    def status(self) -> Status | Reply:
        """Its public numbers, and what its ledger says."""
        return self._guarded("status", self._status)

    def inspect(self) -> Status:
        """The same for its owner's eyes: what is wrong is raised as it is."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            return self._status()

    def _status(self) -> Status:
        with self._ledger() as ledger:
            spent, budget = ledger.epsilon(), ledger.budget
        size, columns = self._rows[0].shape
        return Status(self.name, size, columns, spent, budget.epsilon, budget.delta)

    def _guarded(self, what: str, work: Any) -> Any:
        """Do it under the lock. Of an error nothing leaves but a code and a fixed sentence."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked():
                done = work()
            self._log(f"{what}: answered")
            return done
        except Exception as error:
            code, why = _said(error)
            self._log(f"{what}: {code}: {error}")
            if code == wire.FAILED:
                self._log(traceback.format_exc())
            return Reply(code, why)

    def _answer(self, ask: Ask) -> wire.Packed:
        size, most = wire.weight(ask.down), self.limits.message_bytes
        if size > most:
            raise Refused(wire.LIMITS, f"this client's limits: a message of {size} bytes is above {most}")
        task, event = _read_task(ask)
        self.limits.hold(task, event)
        if task.settings.rounds < ask.k:
            raise Refused(wire.BAD_ASK, f"round {ask.k} is beyond the {task.settings.rounds} of this experiment")
        memory = Memory(self.folder / "experiments" / ask.experiment, ask.identity())
        before = memory.answer(ask)
        if before is not None:
            return before
        with self._ledger() as ledger:
            place = self._place(ask, task, event, memory, ledger)
            memory.begin()
            if memory.state is None:
                place.start(task.algorithm)
            else:
                place.restore(task.algorithm, memory.state)
            if isinstance(place.ledger, OwnerLedgers):
                place.ledger.recall(ask.k)
            down = _down(ask, task, self._rows[0].shape[1])
            exchange = place.exchange(task.algorithm, down, np.ones(1, dtype=bool), ask.k)
            if exchange is None:
                raise BudgetSpent("")
            up = wire.pack(exchange.up)
            memory.keep(ask, exchange.up, place.snapshot())
        return up

    def _place(self, ask: Ask, task: Task, event: Event | None, memory: Memory, ledger: FileLedger) -> Simulator:
        """This client behind its door."""
        bound, own = ask.row_bound or None, self._own.row_bound
        if bound is not None and (own is None or own > bound):
            said = "nothing" if own is None else f"{own:g}"
            raise Refused(
                wire.LIMITS, f"this client's limits: rows no longer than {bound:g} are asked, it promises {said}"
            )
        X, texts = self._rows
        y, _ = coded(texts, self._own.labels, task.objective.loss, "data")
        owners = None
        if isinstance(task.privacy, Proven):
            assert event is not None
            _refuse_another_kind(task, event, len(X))
            settings = _noise_settings(task, event)
            secure = task.privacy.noise == "secure"
            # Seeded noise is named by what it follows from; fresh noise by the experiment it is drawn for.
            named = hashlib.sha256(f"{task.settings.seed} {settings}".encode()).hexdigest()[:32]
            run = ask.experiment if secure else named
            if secure:
                paid = {receipt.round for receipt in ledger.receipts() if receipt.run == run}
                if ask.k in paid:
                    raise Refused(wire.LOST, f"round {ask.k} was charged and its answer lost; it stays silent in it")
                if paid and memory.new:
                    raise Refused(wire.STATE, "it has answered in this experiment before, but its memory is gone")
            owners = OwnerLedgers([ledger], Budget(task.privacy.epsilon, task.privacy.delta), run, not secure)
        return alone(task, event, X, y, ask.client, bound, owners)

    @contextmanager
    def _ledger(self) -> Iterator[FileLedger]:
        """The ledger of these rows; made on first use. A budget that its owner changed is changed in it."""
        X, texts = self._rows
        path, budget = self.folder / "ledger", Budget(self.limits.epsilon, self.limits.delta)
        print_ = fingerprint(X, np.array(texts))
        known = path.exists() or path.with_name("ledger.head").exists()
        ledger = (
            FileLedger.open(path, owner=self.name, dataset=print_)
            if known
            else FileLedger.create(path, self.name, print_, budget)
        )
        with ledger:
            if ledger.budget != budget:
                ledger.change_budget(budget, "limits of the node's file")
            yield ledger

    @cached_property
    def _rows(self) -> tuple[np.ndarray, list[str]]:
        """Features and labels, read once. What no row is longer than is its owner's word, checked here alone."""
        X, texts = self._own.read(self.path.parent)
        if self._own.shorten:
            assert self._own.row_bound is not None
            X = experiment.shortened(X, self._own.row_bound)
        Federation(X, np.zeros(len(X)), np.array([0, len(X)]), (self.name,), self._own.row_bound)  # checks the promise
        return X, texts

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One answer at a time; the lock falls with the process that holds it."""
        with (self.folder / "lock").open("w") as file:
            until = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise Refused(wire.BUSY, "it is busy with another answer") from None
                    time.sleep(0.05)
            yield

    def _log(self, text: str) -> None:
        """For the owner's eyes; a log that cannot be written stops nothing."""
        with suppress(OSError):
            path = self.folder / "node.log"
            if path.exists() and path.stat().st_size > _LARGEST_LOG:
                os.replace(path, path.with_suffix(".log.1"))
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")


def alone(
    task: Task,
    event: Event | None,
    X: np.ndarray,
    y: np.ndarray,
    client: int,
    row_bound: float | None,
    ledger: OwnerLedgers | MemoryLedger | None,
    engine: Any = None,
) -> Simulator:
    """One client of a federation on a machine of its own: its rows, its ledger, its number."""
    objective, settings = task.objective, task.settings
    assert settings.seed is not None
    streams = Streams(settings.seed)
    federation = Federation.from_clients([(X, y)], row_bound=row_bound)
    rows = Rows(
        federation.X, federation.y, federation.offsets, objective.loss, objective.scale, engine or settings.engine
    )
    # With secure noise nothing behind the door may follow from a seed that the server knows; batches neither.
    secure = isinstance(task.privacy, Proven) and task.privacy.noise == "secure"
    behind = Streams.unpredictable() if secure else streams.derived(_noise_settings(task, event))
    door = open_door(
        task.privacy,
        event,
        ledger,
        rows,
        task.algorithm.asks(),
        streams=behind,
        clients=np.array([client]),
        row_bound=row_bound,
    )
    return Simulator(federation, objective, rows, door, streams, ledger, None, measure_training=False)


def blank_labels(loss: Loss) -> np.ndarray:
    """Two labels that fit the loss, for a stand-in without data."""
    return np.array([-1.0, 1.0]) if loss.classification and loss.outputs == 1 else np.zeros(2)


def refuse_columns(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    """Where columns are split, the label holder would have to answer too: that is not built."""
    rows = not isinstance(algorithm, VerticalAlgorithm)
    check.require(rows, "app", f"{algorithm.name} splits columns between parties, which is for the simulator so far")


def _noise_settings(task: Task, event: Event | None) -> str:
    return noise_settings(task.algorithm, task.objective, task.privacy, task.participation, task.settings.rounds, event)


def _read_task(ask: Ask) -> tuple[Task, Event | None]:
    """What the server asks for. Its errors are about the server's own words, so they may be told."""
    try:
        tables = tomllib.loads(ask.task)
        good = all(isinstance(table, dict) for table in tables.values())
        check.require(good, "task", "must hold tables only")
        check.require("seed" in tables.get("run", {}), "task, [run]", "needs seed = ...")
        task = experiment.build_task(tables, "task")
        refuse_columns(task.algorithm)
        check.require(task.settings.runs == 0, "task, [run]", "runs must be 0: a client answers for one run")
        proven = isinstance(task.privacy, Proven)
        check.require(bool(ask.event) == proven, "task", "an event goes with privacy mode 'proven', and it needs one")
        event = experiment.from_table(Event, json.loads(ask.event), "event") if proven else None
        if task.privacy.mode not in task.algorithm.modes:
            raise InvalidInput(f"{task.algorithm.name}: has no {task.privacy.mode!r} variant")
        task.algorithm.check(task.objective.penalty)
    except (SottovoceError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(wire.BAD_ASK, f"the question cannot be read: {str(error)[:300]}") from None
    return task, event


def _refuse_another_kind(task: Task, event: Event, size: int) -> None:
    """What the server says an answer is, must be what this client's door makes it; the noise alone is the server's."""
    assert isinstance(task.privacy, Proven)
    own = kind_of_answer(task.privacy, task.algorithm.asks(), np.array([size]))
    # Whether batches are drawn also depends on the other clients' sizes: to be charged for a full one costs more.
    drawn = "poisson" if task.privacy.relation == "add-remove" else "fixed-size"
    batches = (
        bool(task.algorithm.asks().batch) and task.algorithm.asks().kind == "gradient" and task.privacy.unit == "record"
    )
    fits = (event.mechanism, event.relation) == (own["mechanism"], own["relation"])
    if not fits or event.sampling not in ({"full", drawn} if batches else {"full"}):
        raise Refused(wire.BAD_ASK, "the event is not what an answer in this experiment is")


def rehearse(task: Task, columns: int, row_bound: float | None) -> list[tuple[Any, Any]]:
    """A broadcast and an answer of each kind this algorithm has, from a client with made-up rows: what they look like.

    Nothing of a mode's noise changes that, so there is none. A round may have two phases, hence two rounds.
    """
    X, algorithm = np.zeros((2, columns)), task.algorithm
    X[:, 0] = min(1.0, row_bound or 1.0)
    plain = replace(task, privacy=NoPrivacy())
    place = alone(plain, None, X, blank_labels(task.objective.loss), 0, row_bound, None, engine="numpy")
    place.start(algorithm)
    draw = Draw(Streams(0), np.array([SERVER], dtype=np.uint64), 0)
    hub = Hub(1, task.objective.penalty, draw, 0, np.ones((1, 1), dtype=bool), np.zeros((1, place.dim)))
    server, seen = algorithm.init_server(hub), []
    for k in (1, 2):
        down = algorithm.broadcast(server, replace(hub, k=k))
        exchange = place.exchange(algorithm, down, np.ones(1, dtype=bool), k)
        assert exchange is not None
        seen.append((down, exchange.up))
        server = algorithm.server(server, exchange.up, replace(hub, k=k))
    return seen


def _down(ask: Ask, task: Task, columns: int) -> Any:
    """The broadcast, which must look like one that this algorithm makes."""
    shapes = {name: tuple(shape) for name, (shape, _) in ask.down.items()}
    likes = [down for down, _ in rehearse(task, columns, ask.row_bound or None)]
    try:
        return wire.unpack(ask.down, next((down for down in likes if wire.shapes(down) == shapes), likes[0]))
    except InvalidInput as error:
        raise Refused(wire.BAD_ASK, f"the broadcast does not fit: {str(error)[:300]}") from None


def _said(error: Exception) -> tuple[str, str]:
    """A code and a sentence for the server: of an error from outside `Refused` no word of its own."""
    if isinstance(error, Refused):
        return error.code, str(error)
    if isinstance(error, BudgetSpent):
        return wire.BUDGET, "its privacy budget is spent"
    if isinstance(error, LedgerError):
        return wire.LEDGER, _SENTENCES[wire.LEDGER]
    if isinstance(error, store.StoreError) or (isinstance(error, OSError) and not isinstance(error, SottovoceError)):
        return wire.DISK, _SENTENCES[wire.DISK]
    return wire.FAILED, _SENTENCES[wire.FAILED]
