"""What a server asks a client to take part in: parsed, and nothing of it executed.

Algorithm, loss and privacy are names in this library's registries with checked numbers.
"""

import json
import re
import tomllib
from dataclasses import dataclass

import numpy as np

from sottovoce.core import check
from sottovoce.core.random.streams import Streams
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Refused
from sottovoce.deploy.refusals import bad_ask
from sottovoce.experiment.run_file import Settings, build_task
from sottovoce.experiment.tables import fit_value, from_table
from sottovoce.experiment.task import Task
from sottovoce.privacy.events import Event, event_class

LONGEST_TASK = 1 << 16
_DEEP = re.compile(r"(?:\s*\.\s*[\w\"'-]+){9}")
_MOST_PARTS = 16


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
            good = all(isinstance(table, dict) for table in tables.values())
            check.require(good, "task", "must hold tables only")
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

    def hold_events(self, size: int, columns: int) -> None:
        """Refuse events that are not what this client's door makes of an answer: a server chooses the noise alone."""
        shape = self.task.shape(columns, size)
        size = int(self.task.training_sizes(np.array([size]))[0])
        for part, event in zip(self.task.asks().parts, self.events, strict=False):
            if not self.task.privacy.is_answer(event, part, size, self.row_bound, shape):
                raise Refused(wire.BAD_ASK, "the event is not what an answer in this experiment is")


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
