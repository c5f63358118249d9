"""The client's half of a deployment: its rows, its limits, its ledger and its memory, all on its own disk.

It is installed where the data is. A server sends what to ask (`wire.Ask`) and nothing of it is executed: algorithm,
loss and privacy are names in this library's registries with checked numbers, held against the owner's limits.

    [node]    name, folder (its ledger and its memory; made on first use)
    [server]  where its server is, and by which key it is let in there (`lines.py`)
    [data]    csv = "rows.csv" with label = a column, or npz = "rows.npz" with arrays X, y; labels, row_bound, shorten;
              where columns are split: id (and salt), or same_order; label with the label holder alone
    [schema]  what is known of the columns of the csv, the same at all clients; or file = "schema.toml"; or, where rows
              are prepared already, digest = that of the schema they were prepared by
    [limits]  epsilon, delta, algorithms, losses, and what `Limits` names
    [sums]    its key and those of the other owners, where a server may see sums only (`summing.py`)
    [products]  the same, where split columns are multiplied (`multiplying.py`)
    [predict]   csv or npz, and id: new samples that it may then be asked about (`scoring.py`)

One answer, under a lock: check the question (`limits.py`, `assignment.py`), the pace (`pace.py`) and
whether the budget holds it; compute; charge the ledger (on disk); add noise; write answer and new state as one file,
synced and renamed; only then reply. So, wherever it is killed:

* before the charge: nothing happened, and the question may come again;
* between charge and file: the charge stands, the answer is lost, and that round stays silent ("lost");
* after the file: the question gets the same answer again, to the bit, for free. Another question for the same round of
  the same experiment is refused.

What is sent back is the answer, or a code and a sentence that do not depend on data. Details go to `node.log`. Task,
rows and door are built once for an experiment and kept. How labels are answered about is in `beside_rounds.py`.
"""

import json
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.round import State
from sottovoce.deploy import beside_rounds, scoring, wire
from sottovoce.deploy.announcing import Products
from sottovoce.deploy.assignment import Assignment, Run
from sottovoce.deploy.home import Home, Memory
from sottovoce.deploy.limits import Limits, Refused, sentence_for
from sottovoce.deploy.lines import TABLES
from sottovoce.deploy.multiplying import Multiplying
from sottovoce.deploy.own_data import Identity, Own, OwnRows, with_schema
from sottovoce.deploy.pace import PacedLedgers, Recent, at_fixed_times, check_hour
from sottovoce.deploy.summing import Summing, Sums
from sottovoce.experiment import sums
from sottovoce.experiment.label_flips import LabelFlips, open_ledger
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import mixes_kinds
from sottovoce.experiment.tables import Built, from_table, read_tables
from sottovoce.experiment.train import CLIENTS
from sottovoce.ledger.budget import Budget, LedgerError
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.histories import pack_rows
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.doors.party import MODEL
from sottovoce.privacy.events import pack_event
from sottovoce.problems.federation import FederatedData, Federation
from sottovoce.problems.vertical import VerticalFederation

_KEPT_RUNS = 4  # experiments that are kept in memory; others are read from disk again
Done = TypeVar("Done")


class Node:
    """One client on its own machine, as its file describes it."""

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).expanduser().absolute()
        self._text = _content(self._file)  # before its tables are read: a change in between is seen by `renewed`
        self.path = self._file.resolve()
        tables = read_tables(self.path, TABLES)
        for name in ("node", "data", "limits"):
            check.require(name in tables, self.path.name, f"needs a table [{name}]")
        self._schema, self.schema_digest, tables["data"] = with_schema(tables, self.path)

        def table(kind: type[Built], name: str) -> Built:
            return from_table(kind, tables[name], f"{self.path.name}, [{name}]")

        identity, self._data, self.limits = table(Identity, "node"), table(Own, "data"), table(Limits, "limits")
        self._sums = table(Sums, "sums") if "sums" in tables else None
        self.products = table(Products, "products") if "products" in tables else None
        self._new = table(scoring.NewSamples, "predict") if "predict" in tables else None
        self.name, self.budget = identity.name, Budget(self.limits.epsilon, self.limits.delta)
        self.folder = self.path.parent / Path(identity.folder).expanduser()
        self.home = Home(self.folder)
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._open_ledger: FileLedger | None = None
        self._recent: Recent | None = None

    def renewed(self) -> "Node":
        """Itself; or, if its owner has changed its file since it was read, the client that file describes now."""
        if _content(self._file) == self._text:
            return self
        other = Node(self._file)
        self.close()
        return other

    def close(self) -> None:
        """Let go of the ledger file."""
        if self._open_ledger is not None:
            self._open_ledger.close()
            self._open_ledger = None

    def reply_to(self, question: wire.Question) -> wire.Response:
        """What it says to a message of any kind that a server may send."""
        return self.answer(question) if isinstance(question, wire.Ask) else self.status()

    def answer(self, ask: wire.Ask) -> wire.Reply:
        """The answer to one round's question, the same one if it is asked again; or why there is none."""
        what = f"experiment {ask.experiment} round {ask.k}"
        reply = at_fixed_times(self.limits.answer_after, lambda: self._guarded(what, lambda: self._answer(ask)))
        return reply if isinstance(reply, wire.Reply) else wire.Reply(up=reply)

    def status(self) -> wire.Response:
        """Its public numbers, and what its ledger says."""
        return self._guarded("status", self._status)

    def inspect(self) -> wire.Status:
        """The same for its owner: errors are raised as they are."""
        self.home.open()
        with self.home.locked():
            return self._status()

    def _status(self) -> wire.Status:
        rows, ledger = self.rows, self._ledger()
        epsilon, budget = ledger.epsilon(), ledger.budget
        spent = json.dumps([[pack_event(event), count] for event, count in ledger.spent().items()])
        public = self.name, len(rows.X), rows.X.shape[1], epsilon, budget.epsilon, budget.delta
        return wire.Status(*public, spent, bool(rows.labels), rows.order, pack_rows(ledger.rows()))

    def _guarded(self, what: str, work: Callable[[], Done]) -> Done | wire.Reply:
        """Do the work under the lock. Of an error only a code and a fixed sentence are sent."""
        try:
            self.home.open()
            with self.home.locked():
                done = work()
            self.home.note(f"{what}: answered")
            return done
        except Exception as error:
            code, why = sentence_for(error)
            readable = isinstance(error, check.SottovoceError | OSError)
            self.home.note(f"{what}: {code}: {error if readable else type(error).__name__}")
            if not readable:  # its text may quote rows: the log says where it came from, and that is all
                where = traceback.format_tb(error.__traceback__)
                self.home.note(*(line for entry in where for line in entry.splitlines()))
            return wire.Reply(code, why)

    def _answer(self, ask: wire.Ask) -> wire.Packed:
        size, most = wire.weight(ask.down), self.limits.message_bytes
        self.limits.allow(size <= most, f"a message of {size} bytes is above {most}")
        run = self._run(ask)
        run.assignment.check_kind(ask, bool(self.rows.labels))
        if ask.what in wire.SUMS:
            return wire.of_bytes(self._summed(ask, run))
        if ask.what in wire.PRODUCTS:
            return wire.of_bytes(Multiplying(self, ask, run).step())
        if ask.what in wire.SCORING:
            if self._memory(ask, run).last is None:
                raise Refused(wire.STATE, "it took no part in this experiment, so it scores nothing by its model")
            return wire.of_bytes(scoring.Scoring(self, ask, run).step())
        if ask.what in (wire.PROX, wire.SLOPE):
            of = f"{self.rows.fingerprint} {self.rows.order}"  # flips belong to samples in one order
            flips = LabelFlips(self.folder / "labels.npz", self.folder / "labels.ledger", self.name, of)
            y = beside_rounds.usable_labels(run.y, self.rows.X, run.assignment, flips)
            return wire.pack(beside_rounds.answer_about_labels(ask, run.assignment, y))
        memory = self._memory(ask, run)
        answers = memory if ask.what == wire.ROUND else memory.beside(ask.what)
        before = answers.answer(ask)
        if before is not None:
            return before
        if ask.what == wire.MODEL and answers.last is not None:
            raise Refused(wire.ANSWERED, "its model was made before, after another round")
        return self._new_answer(ask, run, memory, answers)

    def _memory(self, ask: wire.Ask, run: Run) -> Memory:
        return Memory(self.folder / "experiments" / ask.experiment, ask.identity(), run.after)

    def _new_answer(self, ask: wire.Ask, run: Run, memory: Memory, answers: Memory) -> wire.Packed:
        """Compute, charge, add noise, write to disk."""
        down = run.assignment.broadcast(ask, self.limits, self.rows) if ask.what == wire.ROUND else None
        with self._ready_to_answer(ask, run, memory, answers) as clients:
            up = self._last_answer(ask, memory, clients) if down is None else self._round(ask, down, clients)
            answers.keep(ask, up, clients.snapshot())
        run.after = ask.k if ask.what == wire.ROUND else run.after
        if run.multiplying is not None:
            run.multiplying.forget_tables()
        return wire.pack(up)

    @contextmanager
    def _ready_to_answer(self, ask: wire.Ask, run: Run, memory: Memory, answers: Memory) -> Iterator[LocalClients]:
        """This client as it was after its last answer, once all is checked that can be before a charge.

        Where an answer fails, what is in memory is forgotten: it is never newer than what is on disk. If nothing was
        charged, what was made on disk is removed too.
        """
        ledger = self._ledger()
        owners = self._affordable(ask, run.assignment, memory, ledger)
        if run.assignment.task.split is not None:
            run.multiplying = Multiplying(self, ask, run)
            run.multiplying.ready()
        clients = self._clients(ask, run, owners)
        answers.begin("" if clients.split is None else clients.split.digest)
        try:
            if memory.last is None:
                clients.start(run.assignment.task.algorithm)
            elif run.after != memory.last:
                clients.restore(run.assignment.task.algorithm, memory.state())
            yield clients
        except BaseException as error:
            self._runs.pop(ask.identity(), None)
            if isinstance(error, Exception) and _row_of(ask) not in ledger.rounds_charged(ask.experiment):
                answers.forget()
            raise

    def _summed(self, ask: wire.Ask, run: Run) -> bytes:
        """A step of the protocol by which the server sees sums only."""
        summing = Summing(self._sums, self.path.parent, self.folder / "sums" / ask.experiment, ask, run.assignment)
        if ask.what != wire.UPLOAD:
            return summing.step()
        before = summing.uploaded()
        return self._upload(ask, run, summing) if before is None else before

    def _upload(self, ask: wire.Ask, run: Run, summing: Summing) -> bytes:
        """Check, charge, compute, add noise; keep the state, mask, write to disk. Without masks it is on no disk."""
        memory = self._memory(ask, run)
        down = run.assignment.broadcast(ask, self.limits, self.rows)
        with self._ready_to_answer(ask, run, memory, memory) as clients:

            def numbers() -> np.ndarray:
                term = sums.own_term(clients, down, ask.k)
                memory.keep(ask, None, clients.snapshot())
                return term

            masked = summing.upload(sums.length(clients, down, ask.k), numbers)
        run.after = ask.k
        return masked

    def _run(self, ask: wire.Ask) -> Run:
        """The experiment that is asked about: read and held against the limits at its first question."""
        identity = ask.identity()
        if identity not in self._runs:
            assignment = Assignment.read(ask)
            self.limits.check_task(assignment.task, assignment.events)
            assignment.check_layout(self.limits, self._data, self.rows, ask.client)
            self.limits.check_row_bound(assignment.row_bound, self._data.row_bound)
            same = assignment.schema == self.schema_digest
            self.limits.allow(same, "its rows are prepared by another schema than the server names")
            if assignment.events:
                assignment.check_events(*self.rows.X.shape)
            self._runs[identity] = self._started(assignment, ask.client)
            while len(self._runs) > _KEPT_RUNS:
                self._runs.popitem(last=False)
        self._runs.move_to_end(identity)
        return self._runs[identity]

    def _started(self, assignment: Assignment, number: int) -> Run:
        return Run(assignment, self.rows.X, self._data.coded(self.rows.labels, assignment.task.objective.loss), number)

    def multiplied(self, ask: wire.Ask) -> np.ndarray:
        """The table of whole numbers that it multiplied in an experiment: for its owner, and for an auditor."""
        return self._started(Assignment.read(ask), ask.client).table

    def _affordable(
        self, ask: wire.Ask, assignment: Assignment, memory: Memory, ledger: FileLedger
    ) -> OwnerLedgers | None:
        """The ledger as a door charges it; refuses a round that was paid for and lost, and one that comes too soon."""
        budget = assignment.task.privacy.budget
        if budget is None:
            return None
        if assignment.split_columns and mixes_kinds(ledger.spent(), assignment.task):
            raise Refused(wire.LEDGER, "its ledger counts products of all owners' columns or fits of its own: not both")
        paid = ledger.rounds_charged(ask.experiment)
        if _row_of(ask) in paid:
            raise Refused(wire.LOST, f"{ask.what} {ask.k} was charged and its answer lost; it stays silent in it")
        if paid and memory.new:
            raise Refused(wire.STATE, "it has answered in this experiment before, but its memory is gone")
        if not self.limits.paced:
            return OwnerLedgers([ledger], Budget(*budget), ask.experiment)
        if self._recent is None or self._recent.ledger is not ledger:  # or it is of one that was opened before
            self._recent = Recent(ledger)
        check_hour(self.limits, self._recent)
        return PacedLedgers(self._recent, self.limits, Budget(*budget), ask.experiment)

    def _clients(self, ask: wire.Ask, run: Run, owners: OwnerLedgers | None) -> LocalClients:
        """This client behind its door: built at the first question of an experiment."""
        if run.clients is None:
            assignment, number = run.assignment, np.array([ask.client])
            if assignment.split_columns:
                blank = beside_rounds.blank_labels(assignment.task.objective.loss, len(self.rows.X))
                federation: FederatedData = VerticalFederation((self.rows.X,), blank, ("party",))
            else:
                where = np.array([0, len(self.rows.X)])  # all rows are its own: none of them is copied
                federation = Federation(self.rows.X, run.y, where, ("0",), assignment.row_bound)
            run.clients = CLIENTS[federation.layout].of(
                assignment.task, federation, owners, assignment.coins, assignment.events, number, assignment.noise,
                measure_training=False, apart=run.apart, split=beside_rounds.split_by(assignment, self.folder),
            )  # fmt: skip
        elif owners is not None:
            run.clients.ledger = run.clients.door.ledger = owners
        return run.clients

    def _round(self, ask: wire.Ask, down: State, clients: LocalClients) -> State:
        exchange = clients.exchange(clients.task.algorithm, down, np.ones(1, dtype=bool), ask.k)
        if exchange is None:
            raise check.BudgetSpent("")
        return exchange.up

    def _last_answer(self, ask: wire.Ask, memory: Memory, clients: LocalClients) -> beside_rounds.Values:
        """Counts of held-out records, or a party's model for prediction: one more answer, given once."""
        if memory.last is None:
            raise Refused(wire.STATE, "it took no part in this experiment, so it has no model, nor counts")
        if ask.what == wire.HISTOGRAM:
            return beside_rounds.counted(ask, clients, self.limits)
        model = clients.models(ask.k)
        if len(model) == 0:
            raise check.BudgetSpent("")
        return beside_rounds.Values(model[None])

    def _ledger(self) -> FileLedger:
        """The ledger of these rows, made on first use and kept open; its budget follows the owner's limits."""
        path, budget = self.folder / "ledger", self.budget
        known = path.exists() or path.with_name("ledger.head").exists()
        if not known and (self.folder / "experiments").exists():
            raise LedgerError(f"{path}: is gone, and answers were given. Put it back: without it nothing may be asked")
        if self._open_ledger is None or not known or self._open_ledger.stale():
            self.close()
            self._open_ledger = open_ledger(path, self.name, self.rows.fingerprint, budget)
        if self._open_ledger.budget != budget:
            self._open_ledger.change_budget(budget, "limits of the node's file")
        return self._open_ledger

    @cached_property
    def new_rows(self) -> dict[str, np.ndarray]:
        """Samples that it may be asked about, by id; read once."""
        return scoring.read_new(self._new, self.rows, self.path.parent, self._schema, self.limits)

    @cached_property
    def rows(self) -> OwnRows:
        """Read once. What no row is longer than, and which classes there are, is its owner's word, checked here."""
        return self._data.rows(self.path.parent, self.name, self.limits, self._schema)


def _content(file: Path) -> bytes:
    """Its bytes; none if it cannot be read: `read_tables` then says why."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


def _row_of(ask: wire.Ask) -> int:
    """The round that an answer is charged under in the ledger."""
    return MODEL if ask.what == wire.MODEL else ask.k
