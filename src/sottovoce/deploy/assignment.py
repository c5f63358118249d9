"""One experiment at a client: what its server asks, parsed and checked, and what is kept in memory between questions.

Nothing of it is executed: algorithm, loss and privacy are names in this library's registries with checked numbers.
"""

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import State
from sottovoce.core.shapes import declared
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Limits, Refused, bad_ask
from sottovoce.deploy.own_data import Own, OwnRows
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import Apart, whole_table
from sottovoce.experiment.run_file import Settings, build_task
from sottovoce.experiment.tables import fit_value, from_table
from sottovoce.experiment.task import Task
from sottovoce.privacy.events import Event, event_class

if TYPE_CHECKING:
    from sottovoce.deploy.multiplying import Multiplying

LONGEST_TASK = 1 << 16
_DEEP = re.compile(r"(?:\s*\.\s*[\w\"'-]+){9}")
_MOST_PARTS = 16
_OTHER_KIND = "this is for columns that are split, or needs labels that this client has not"


@dataclass(frozen=True)
class Assignment:
    """One experiment, as its server describes it to a client."""

    task: Task
    settings: Settings
    events: tuple[Event, ...]
    row_bound: float | None
    schema: str = ""  # the digest of the schema by which rows are prepared, if there is one

    @classmethod
    def read(cls, ask: wire.Ask) -> "Assignment":
        """Read a question. Errors are about what the server wrote, so they may be sent back."""
        kinds = check.SottovoceError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError
        with bad_ask("the question cannot be read: ", *kinds):
            deep = len(ask.task) > LONGEST_TASK or _DEEP.search(ask.task)  # reading such keys takes time without bound
            check.require(not deep, "task", f"must have at most {LONGEST_TASK} characters, and keys of few parts")
            tables = tomllib.loads(ask.task)
            check.require(all(isinstance(table, dict) for table in tables.values()), "task", "must hold tables only")
            check.require("seed" in tables.get("run", {}), "task, [run]", "needs seed = ...")
            task, settings = build_task(tables, "task")
            check.require(settings.runs == 0, "task, [run]", "runs must be 0: a client answers for one run")
            task.check_method()
            schema = fit_value("task, [schema]", "digest", tables.get("schema", {}).get("digest", ""), str)
            return cls(task, settings, _events(ask.events, task), ask.row_bound or None, schema)

    @property
    def split_columns(self) -> bool:
        """Whether columns are split between parties, not rows between clients."""
        return self.task.algorithm.layout == "columns"

    @property
    def coins(self) -> Streams:
        """Random numbers that everyone may see."""
        assert self.settings.seed is not None
        return Streams(self.settings.seed)

    @property
    def noise(self) -> Streams:
        """What noise is drawn from. With secure noise nothing may follow from a seed that the server knows."""
        return Streams.unpredictable() if self.task.privacy.secret_noise else self.coins

    # ----------------------------------------------------------------------- whether this client may be asked about it

    def check_events(self, size: int, columns: int) -> None:
        """Refuse events that are not what this client's door makes of an answer: a server chooses the noise alone."""
        shape = self.task.shape(columns, size)
        size = int(self.task.training_sizes(np.array([size]))[0])
        for part, event in zip(self.task.asks().parts, self.events, strict=False):
            if not self.task.privacy.is_answer(event, part, size, self.row_bound, shape):
                raise Refused(wire.BAD_ASK, "the event is not what an answer in this experiment is")

    def check_layout(self, limits: Limits, data: Own, rows: OwnRows, number: int) -> None:
        """Refuse the other kind of federation, and experiments that show more of the labels than allowed.

        `number`: of this client.
        """
        split, labelled = self.split_columns, bool(rows.labels)
        why = "its file does not say how its samples are in order with the other parties' (id or same_order)"
        limits.allow(not split or data.columns, why)
        if not split and not labelled:
            raise Refused(wire.BAD_ASK, _OTHER_KIND)
        if self.task.split is not None:
            self._check_products(limits, data, rows, number)
        elif split and labelled:
            limits.check_labels(self.task)

    def _check_products(self, limits: Limits, data: Own, rows: OwnRows, number: int) -> None:
        """Refuse products of other tables than this owner has, or of samples in an order that tells of them."""
        why = "products need samples in the order of their salted ids (id and salt): the order of a file can tell dates"
        limits.allow(bool(data.id and data.salt), why)
        algorithm = self.task.masked_moments
        split, (samples, columns) = algorithm.split, rows.X.shape
        fits = number < split.owners and split.widths[number] == columns and algorithm.samples == samples
        if not fits or split.outputs != self.task.objective.loss.outputs:
            why = "products: its columns, its samples or the loss are others than the server says"
            raise Refused(wire.BAD_ASK, why)
        if number == split.holder and not rows.labels:
            raise Refused(wire.BAD_ASK, "this client holds no labels")

    def check_kind(self, ask: wire.Ask, labelled: bool) -> None:
        """Refuse a kind of question that does not belong to this experiment. `Node` refuses where it took no part."""
        rounds, multiplied = self.task.rounds, self.task.split is not None
        if rounds < ask.k and ask.what != wire.HISTOGRAM:
            raise Refused(wire.BAD_ASK, f"round {ask.k} is beyond the {rounds} of this experiment")
        if self.task.privacy.sums != (ask.what in wire.SUMS):  # such an answer has a share of the noise only
            raise Refused(wire.BAD_ASK, "where the server sees sums only, answers leave under masks, and nowhere else")
        if ask.what != wire.ROUND and multiplied != (ask.what in (*wire.PRODUCTS, *wire.SCORING)):
            raise Refused(wire.BAD_ASK, "where products are asked for, nothing else is; and nowhere else are they")
        if multiplied and ask.k != 1:
            raise Refused(wire.BAD_ASK, "products are asked for in round 1, and once")
        if ask.what == wire.HISTOGRAM:
            if self.task.evaluate is None:
                raise Refused(wire.BAD_ASK, "no records were held out in this experiment")
            if ask.k != rounds + 1:
                raise Refused(wire.BAD_ASK, f"held-out records are counted after round {rounds}, not {ask.k - 1}")
        elif not self.split_columns and ask.what not in (wire.ROUND, *wire.SUMS):
            raise Refused(wire.BAD_ASK, _OTHER_KIND)
        if ask.what in (wire.PROX, wire.SLOPE) and not labelled:
            raise Refused(wire.BAD_ASK, "this client holds no labels")

    def broadcast(self, ask: wire.Ask, limits: Limits, rows: OwnRows) -> State:
        """The broadcast, which must look like one that this algorithm makes."""
        algorithm, (samples, columns) = self.task.algorithm, rows.X.shape
        dim = samples if self.split_columns else columns * self.task.objective.loss.outputs
        with bad_ask("the broadcast does not fit: "):
            down = wire.unpack(ask.down, algorithm.down, declared(algorithm, algorithm.down, dim))
        limits.check_broadcast(codec.to_arrays(down))
        return down


def _events(text: str, task: Task) -> tuple[Event, ...]:
    proven = task.privacy.budget is not None
    check.require(bool(text) == proven, "task", "events go with privacy mode 'proven', and it needs them")
    if not proven:
        return ()
    listed = json.loads(text)
    needed = len(task.asks().parts) if task.privacy.promise != "client" else 1
    fits = isinstance(listed, list) and len(listed) == needed <= _MOST_PARTS
    check.require(fits, "task", f"needs one event for each kind of question ({needed})")
    return tuple(from_table(event_class(one), one, "event") for one in listed)


class Run:
    """What is asked in it, the client's labels, and the client behind its door. `number`: of the client."""

    def __init__(self, assignment: Assignment, X: np.ndarray, y: np.ndarray, number: int) -> None:
        self.assignment, self._X, self.y, self.number = assignment, X, y, number
        split = assignment.task.split
        self._multiplied_labels = y if split is not None and split.holder == number else None
        self.clients: LocalClients | None = None
        self.after: int | None = None  # the round after which the client's state in memory stands
        self.multiplying: Multiplying | None = None  # how the round under way is answered, where products are asked for

    @cached_property
    def table(self) -> np.ndarray:
        """What is multiplied, where products are asked for."""
        task, labels = self.assignment.task, self._multiplied_labels
        return whole_table(task.masked_moments, task.objective.loss, self.number, self._X, labels)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of that table: made once, since chunks of it are asked for many times."""
        table = np.ascontiguousarray(self.table, dtype="<i4")
        return hashlib.sha256(f"{table.shape} ".encode() + table.tobytes()).hexdigest()

    @property
    def apart(self) -> Apart | None:
        """How it multiplies with other owners, where that is asked for."""
        if self.assignment.task.split is None:
            return None
        labels = self._multiplied_labels
        # It is there once a round is asked for (`Node`), and no share is asked for before.
        return Apart(lambda: cast("Multiplying", self.multiplying).shares(), None if labels is None else (0, labels))
