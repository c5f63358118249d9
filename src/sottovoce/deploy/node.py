"""The client's half of a deployment: its rows, its limits, its ledger and its memory, all on its own disk.

It is installed where the data is. A server sends what to ask (`wire.Ask`) and nothing of it is executed: algorithm,
loss and privacy are names in this library's registries with checked numbers, held against the owner's limits.

    [node]    name, folder (its ledger and its memory; made on first use)
    [data]    csv = "rows.csv" with label = a column, or npz = "rows.npz" with arrays X, y; labels, row_bound, shorten;
              where columns are split: id (and salt), or same_order; label with the label holder alone
    [limits]  epsilon, delta, algorithms, losses, and what `Limits` names

One answer, under a lock: check the question and whether the budget holds it; compute; charge the ledger (on disk);
add noise; write answer and new state as one file, synced and renamed; only then reply. So, wherever it is killed:

* before the charge: nothing happened, and the question may come again;
* between charge and file: the charge stands and the answer is lost. That round stays silent ("lost"): a second draw
  would be a second answer;
* after the file: the question gets the same answer again, to the bit, for free. Another question for the same round of
  the same experiment is refused.

What is sent back is the answer, or a code and a sentence that do not depend on data. Details go to `node.log`.
What is different where columns are split is in `party.py`.
"""

import fcntl
import json
import os
import re
import stat
import time
import tomllib
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.check import BudgetSpent, InvalidInput, SottovoceError
from sottovoce.core.contract import Hub
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.deploy import label_holder as party
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Identity, Limits, Own, Refused
from sottovoce.deploy.memory import Memory
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment import experiment, store
from sottovoce.experiment.csv_file import coded, label_text
from sottovoce.experiment.experiment import Task
from sottovoce.experiment.label_flips import LabelFlips, open_ledger
from sottovoce.experiment.local import Simulator, row_key
from sottovoce.ledger.budget import Budget, LedgerError
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.ledger.shown_rows import pack_rows
from sottovoce.privacy.doors.party import MODEL, OutOfRange
from sottovoce.privacy.doors.record import bound_in_force, kind_of_answer, open_door
from sottovoce.privacy.events import Event, event_class, pack_event
from sottovoce.privacy.modes import NoPrivacy, Proven, ProvenColumns
from sottovoce.problems.federation import Federation
from sottovoce.problems.rows import Rows

_PATIENCE = 60.0  # seconds to wait for another answer of this client to be finished
_LARGEST_LOG, _LONGEST_LINE = 2**24, 2000
_SENTENCES = {
    wire.LEDGER: "its ledger cannot be read, written or trusted; its owner has to look at it",
    wire.DISK: "its disk is full or cannot be written; nothing was answered",
    wire.FAILED: "it could not answer; its own log says why",
}


LONGEST_TASK = 1 << 16
_DEEP = re.compile(r"(?:\s*\.\s*[\w\"'-]+){9}")


class _Rows(NamedTuple):
    X: np.ndarray
    labels: list[str]  # as text
    order: str  # names the order of the samples, where it follows from ids
    fingerprint: str


class Node:
    """One client on its own machine, as its file describes it."""

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).expanduser().absolute()
        self._text = _content(self._file)  # before its tables are read: a change in between is seen by `renewed`
        self.path = self._file.resolve()
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

    def renewed(self) -> "Node":
        """Itself; or, if its owner has changed its file since it was read, the client that file describes now."""
        return self if _content(self._file) == self._text else Node(self._file)

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
        self._home()
        with self._locked():
            return self._status()

    def _status(self) -> Status:
        rows = self._rows
        with self._ledger() as ledger:
            epsilon, budget = ledger.epsilon(), ledger.budget
            spent = json.dumps([[pack_event(event), count] for event, count in ledger.spent().items()])
            charges = pack_rows(ledger.rows())
        size, columns = rows.X.shape
        labels = bool(rows.labels)
        return Status(
            self.name, size, columns, epsilon, budget.epsilon, budget.delta, spent, labels, rows.order, charges
        )

    def _home(self) -> None:
        """Its folder, made on first use, and closed to others: states, flips and the log in it are no noisy answers."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        rule, hint = "nobody but its owner may look into it", f"Close it with: chmod 700 {self.folder}"
        check.require(mode & 0o077 == 0, str(self.folder), rule, f"mode {mode:o}", hint)

    def _guarded(self, what: str, work: Any) -> Any:
        """Do it under the lock. Of an error nothing leaves but a code and a fixed sentence."""
        try:
            self._home()
            with self._locked():
                done = work()
            self.note(f"{what}: answered")
            return done
        except Exception as error:
            code, why = _said(error)
            own = isinstance(error, SottovoceError | OSError)
            self.note(f"{what}: {code}: {error if own else type(error).__name__}")
            if not own:  # its text may quote rows: the log says where it came from, and that is all
                self.note(*(line for entry in traceback.format_tb(error.__traceback__) for line in entry.splitlines()))
            return Reply(code, why)

    def _answer(self, ask: Ask) -> wire.Packed:
        size, most = wire.weight(ask.down), self.limits.message_bytes
        if size > most:
            raise Refused(wire.LIMITS, f"this client's limits: a message of {size} bytes is above {most}")
        task, event = _read_task(ask)
        self.limits.hold(task, event)
        if task.settings.rounds < ask.k:
            raise Refused(wire.BAD_ASK, f"round {ask.k} is beyond the {task.settings.rounds} of this experiment")
        self._hold_columns(ask, task)
        if ask.what in (wire.PROX, wire.SLOPE):
            return wire.pack(party.answer_about_labels(ask, task, self._labels(task, event)))
        memory = Memory(self.folder / "experiments" / ask.experiment, ask.identity())
        answers = memory if ask.what == wire.ROUND else memory.of_the_model()
        before = answers.answer(ask)
        if before is not None:
            return before
        if ask.what == wire.MODEL and answers.state is not None:
            raise Refused(wire.ANSWERED, "its model was made before, after another round")
        with self._ledger() as ledger:
            place = self._place(ask, task, event, memory, ledger)
            spent = ledger.spent()
            answers.begin()
            try:
                if memory.state is None:
                    place.start(task.algorithm)
                else:
                    place.restore(task.algorithm, memory.state)
                up = self._model(ask, memory, place) if ask.what == wire.MODEL else self._round(ask, task, place)
            except Exception:
                if ledger.spent() == spent:
                    answers.forget()
                raise
            answers.keep(ask, up, place.snapshot())
        return wire.pack(up)

    def _round(self, ask: Ask, task: Task, place: Simulator) -> Any:
        down = _down(ask, task, self._rows.X.shape[0 if party.is_vertical(task) else 1])
        self.limits.hold_numbers(task, codec.to_arrays(down))
        exchange = place.exchange(task.algorithm, down, np.ones(1, dtype=bool), ask.k)
        if exchange is None:
            raise BudgetSpent("")
        return exchange.up

    def _model(self, ask: Ask, memory: Memory, place: Any) -> party.Values:
        """A party's model for prediction: one more answer, given once."""
        if memory.state is None:
            raise Refused(wire.STATE, "it took no part in this experiment, so it has no model")
        model = place.models(ask.k)
        if len(model) == 0:
            raise BudgetSpent("")
        return party.Values(model[None])

    def _hold_columns(self, ask: Ask, task: Task) -> None:
        """Refuse questions of the other kind of federation, and labels that would be shown more than they may be."""
        vertical, labelled = party.is_vertical(task), bool(self._rows.labels)
        if vertical and not self._own.columns:
            raise Refused(wire.LIMITS, "this client's limits: its file does not say how its samples are in order with "
                          "the other parties' (id or same_order)")  # fmt: skip
        if not vertical and (ask.what != wire.ROUND or not labelled):
            raise Refused(wire.BAD_ASK, "this is for columns that are split, or needs labels that this client has not")
        if vertical and labelled:
            self.limits.hold_labels(task)
        elif ask.what in (wire.PROX, wire.SLOPE):
            raise Refused(wire.BAD_ASK, "this client holds no labels")

    def _labels(self, task: Task, event: Event | None) -> np.ndarray:
        """The labels as they may be asked about."""
        y = self._coded(task)
        of = f"{self._rows.fingerprint} {self._rows.order}"  # flips belong to samples in one order
        seed = party.flip_key(task, event, y, self._rows.X, _noise_streams(task))
        return party.usable_labels(y, task, self._flips(of), seed)

    def _flips(self, of: str) -> LabelFlips:
        return LabelFlips(self.folder / "labels.npz", self.folder / "labels.ledger", self.name, of)

    def _coded(self, task: Task) -> np.ndarray:
        return coded(self._rows.labels, self._own.labels, task.objective.loss, "data")[0]

    def _place(self, ask: Ask, task: Task, event: Event | None, memory: Memory, ledger: FileLedger) -> Simulator:
        """This client behind its door."""
        bound, own = ask.row_bound or None, self._own.row_bound
        if bound is not None and (own is None or own > bound):
            said = "nothing" if own is None else f"{own:g}"
            raise Refused(
                wire.LIMITS, f"this client's limits: rows no longer than {bound:g} are asked, it promises {said}"
            )
        X, y = self._rows.X, np.zeros(0) if party.is_vertical(task) else self._coded(task)
        owners = None
        if isinstance(task.privacy, Proven | ProvenColumns):
            assert event is not None
            _refuse_another_kind(task, event, len(X), bound)
            paid = {receipt.round for receipt in ledger.receipts() if receipt.run == ask.experiment}
            if _paid_as(ask) in paid:
                raise Refused(wire.LOST, f"{ask.what} {ask.k} was charged and its answer lost; it stays silent in it")
            if paid and memory.new:
                raise Refused(wire.STATE, "it has answered in this experiment before, but its memory is gone")
            owners = OwnerLedgers([ledger], Budget(task.privacy.epsilon, task.privacy.delta), ask.experiment)
        return alone(task, event, X, y, ask.client, bound, owners)

    @contextmanager
    def _ledger(self) -> Iterator[FileLedger]:
        """The ledger of these rows; made on first use. A budget that its owner changed is changed in it."""
        path, budget = self.folder / "ledger", Budget(self.limits.epsilon, self.limits.delta)
        print_ = self._rows.fingerprint
        known = path.exists() or path.with_name("ledger.head").exists()
        if not known and (self.folder / "experiments").exists():
            raise LedgerError(f"{path}: is gone, and answers were given. Put it back: without it nothing may be asked")
        with open_ledger(path, self.name, print_, budget) as ledger:
            if ledger.budget != budget:
                ledger.change_budget(budget, "limits of the node's file")
            yield ledger

    @cached_property
    def _rows(self) -> "_Rows":
        """Read once. What no row is longer than is its owner's word, checked here alone."""
        X, texts, ids = self._own.read(self.path.parent)
        if self._own.shorten:
            assert self._own.row_bound is not None
            X = experiment.shortened(X, self._own.row_bound)
        Federation(X, np.zeros(len(X)), np.array([0, len(X)]), (self.name,), self._own.row_bound)  # checks the promise
        print_ = fingerprint(X, np.array(texts))  # whatever order they are used in
        if ids is None:
            return _Rows(X, texts, "", print_)
        rows, order = self._own.in_order(ids)
        return _Rows(X[rows], [texts[row] for row in rows if texts], order, print_)

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

    def note(self, *lines: str) -> None:
        """For the owner's eyes, who may look at it in a terminal; a log that cannot be written stops nothing."""
        with suppress(OSError):
            path = self.folder / "node.log"
            if path.exists() and path.stat().st_size > _LARGEST_LOG:
                os.replace(path, path.with_suffix(".log.1"))
            with path.open("a", encoding="utf-8") as file:
                for line in lines:
                    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    file.write(f"{at} {wire.printable(line, _LONGEST_LINE)}\n")


def _content(file: Path) -> bytes:
    """Nothing if it cannot be read: what is wrong with it is said by who reads its tables."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


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
    """One client of a federation on a machine of its own: its rows (or columns), its ledger, its number."""
    objective, settings = task.objective, task.settings
    assert settings.seed is not None
    streams = Streams(settings.seed)
    if party.is_vertical(task):
        return party.alone(task, event, X, client, ledger, streams, _noise_streams(task))
    federation = Federation.from_clients([(X, y)], row_bound=row_bound)
    rows = Rows(
        federation.X, federation.y, federation.offsets, objective.loss, objective.scale, engine or settings.engine
    )
    told = (task.algorithm, objective, task.privacy, task.participation, settings.rounds, event)
    door = open_door(
        task.privacy,
        event,
        ledger,
        rows,
        task.algorithm.asks(),
        key=row_key(_noise_streams(task), rows, row_bound, *told),
        clients=np.array([client]),
        row_bound=row_bound,
    )
    return Simulator(federation, objective, rows, door, streams, ledger, None, measure_training=False)


def _noise_streams(task: Task) -> Streams:
    """What noise is drawn from. With secure noise nothing may follow from a seed that the server knows."""
    if getattr(task.privacy, "noise", "") == "secure":
        return Streams.unpredictable()
    assert task.settings.seed is not None
    return Streams(task.settings.seed)


def _paid_as(ask: Ask) -> int:
    """The round under which a ledger keeps the answer."""
    return MODEL if ask.what == wire.MODEL else ask.k


def _read_task(ask: Ask) -> tuple[Task, Event | None]:
    """What the server asks for. Its errors are about the server's own words, so they may be told."""
    try:
        deep = len(ask.task) > LONGEST_TASK or _DEEP.search(ask.task)  # reading such keys takes time without bound
        check.require(not deep, "task", f"must have at most {LONGEST_TASK} characters, and keys of few parts")
        tables = tomllib.loads(ask.task)
        good = all(isinstance(table, dict) for table in tables.values())
        check.require(good, "task", "must hold tables only")
        check.require("seed" in tables.get("run", {}), "task, [run]", "needs seed = ...")
        task = experiment.build_task(tables, "task")
        check.require(task.settings.runs == 0, "task, [run]", "runs must be 0: a client answers for one run")
        proven = isinstance(task.privacy, Proven | ProvenColumns)
        check.require(bool(ask.event) == proven, "task", "an event goes with privacy mode 'proven', and it needs one")
        table = json.loads(ask.event) if proven else {}
        event = experiment.from_table(event_class(table), table, "event") if proven else None
        if task.privacy.mode not in task.algorithm.modes:
            raise InvalidInput(f"{task.algorithm.name}: has no {task.privacy.mode!r} variant")
        task.algorithm.check(task.objective.penalty)
    except (SottovoceError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Refused(wire.BAD_ASK, f"the question cannot be read: {str(error)[:300]}") from None
    return task, event


def _refuse_another_kind(task: Task, event: Event, size: int, bound: float | None) -> None:
    """What the server says an answer is, must be what this client's door makes it; the noise alone is the server's."""
    if isinstance(task.privacy, ProvenColumns):
        party.refuse_another_kind(task.privacy, event)
        return
    assert isinstance(task.privacy, Proven)
    own = kind_of_answer(task.privacy, task.algorithm.asks(), np.array([size]))
    # Whether batches are drawn also depends on the other clients' sizes: to be charged for a full one costs more.
    drawn = "poisson" if task.privacy.relation == "add-remove" else "fixed-size"
    batches = (
        bool(task.algorithm.asks().batch) and task.algorithm.asks().kind == "gradient" and task.privacy.unit == "record"
    )
    rests_on = bound_in_force(task.privacy, task.algorithm.asks(), bound)
    fits = (event.mechanism, event.relation, event.row_bound) == (own["mechanism"], own["relation"], rests_on)
    if not fits or event.sampling not in ({"full", drawn} if batches else {"full"}):
        raise Refused(wire.BAD_ASK, "the event is not what an answer in this experiment is")


def rehearse(task: Task, length: int, row_bound: float | None = None) -> list[tuple[Any, Any]]:
    """A broadcast and an answer of each kind this algorithm has, from a client with made-up rows: what they look like.

    `length`: how many columns there are; where they are split, how many samples. Nothing of a mode's noise changes what
    messages look like, so there is none. A round may have two phases, hence two rounds.
    """
    algorithm = task.algorithm
    place = party.rehearsing(task, length) if party.is_vertical(task) else _rehearsing(task, length, row_bound)
    place.start(algorithm)
    draw = Draw(Streams(0), np.array([SERVER], dtype=np.uint64), 0)
    labels = getattr(place, "labels", None)
    hub = Hub(1, task.objective.penalty, draw, 0, np.ones((1, 1), dtype=bool), np.zeros((1, place.dim)), labels)
    server, seen = algorithm.init_server(hub), []
    for k in (1, 2):
        down = algorithm.broadcast(server, replace(hub, k=k))
        exchange = place.exchange(algorithm, down, np.ones(1, dtype=bool), k)
        assert exchange is not None
        seen.append((down, exchange.up))
        server = algorithm.server(server, exchange.up, replace(hub, k=k))
    return seen


def _rehearsing(task: Task, columns: int, row_bound: float | None) -> Simulator:
    X, labels = np.zeros((2, columns)), party.blank_labels(task.objective.loss, 2)
    X[:, 0] = min(1.0, row_bound or 1.0)
    return alone(replace(task, privacy=NoPrivacy()), None, X, labels, 0, row_bound, None, engine="numpy")


def _down(ask: Ask, task: Task, length: int) -> Any:
    """The broadcast, which must look like one that this algorithm makes."""
    shapes = {name: tuple(shape) for name, (shape, _) in ask.down.items()}
    likes = [down for down, _ in rehearse(task, length, ask.row_bound or None)]
    try:
        return wire.unpack(ask.down, next((down for down in likes if wire.shapes(down) == shapes), likes[0]))
    except InvalidInput as error:
        raise Refused(wire.BAD_ASK, f"the broadcast does not fit: {str(error)[:300]}") from None


def _said(error: Exception) -> tuple[str, str]:
    """A code and a sentence for the server: of an error from outside `Refused` no word of its own."""
    if isinstance(error, Refused):
        return error.code, str(error)
    if isinstance(error, OutOfRange):  # about the server's own numbers
        return wire.BAD_ASK, str(error)
    if isinstance(error, BudgetSpent):
        return wire.BUDGET, "its privacy budget is spent"
    if isinstance(error, LedgerError):
        return wire.LEDGER, _SENTENCES[wire.LEDGER]
    if isinstance(error, store.StoreError) or (isinstance(error, OSError) and not isinstance(error, SottovoceError)):
        return wire.DISK, _SENTENCES[wire.DISK]
    return wire.FAILED, _SENTENCES[wire.FAILED]
