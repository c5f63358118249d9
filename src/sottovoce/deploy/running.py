"""One experiment at a client, as it is kept in memory between two questions."""

import hashlib

import numpy as np

from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.multiplying import Multiplying
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import Apart, whole_table


class Run:
    """What is asked in it, the client's labels, and the client behind its door. `number`: of the client."""

    def __init__(self, assignment: Assignment, y: np.ndarray, number: int) -> None:
        self.assignment, self.y, self.number = assignment, y, number
        self.clients: LocalClients | None = None
        self.after: int | None = None  # the round after which the client's state in memory stands
        self.multiplying: Multiplying | None = None  # of the round under way, where products are asked for
        self._table: np.ndarray | None = None
        self._digest = ""

    def table(self, X: np.ndarray) -> np.ndarray:
        """What is multiplied, where products are asked for: made once."""
        if self._table is None:
            task = self.assignment.task
            y = self.y if self._multiplies_labels else None
            self._table = whole_table(task.masked_moments, task.objective.loss, self.number, X, y)
        return self._table

    def table_digest(self, X: np.ndarray) -> str:
        """SHA-256 of that table: made once too, since chunks of it are asked for many times."""
        if not self._digest:
            table = np.ascontiguousarray(self.table(X), dtype="<i4")
            self._digest = hashlib.sha256(f"{table.shape} ".encode() + table.tobytes()).hexdigest()
        return self._digest

    @property
    def apart(self) -> Apart | None:
        """How it multiplies with other owners, where that is asked for."""
        if self.assignment.task.split is None:
            return None
        return Apart(self._shares, (0, self.y) if self._multiplies_labels else None)

    def _shares(self) -> np.ndarray:
        assert self.multiplying is not None
        return self.multiplying.shares()

    @property
    def _multiplies_labels(self) -> bool:
        split = self.assignment.task.split
        return split is not None and split.holder == self.number
