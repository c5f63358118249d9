"""One experiment at a client, as it is kept in memory between two questions."""

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.deploy.assignment import Assignment
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import Apart, whole_table

if TYPE_CHECKING:
    from sottovoce.deploy.multiplying import Multiplying


class Run:
    """What is asked in it, the client's labels, and the client behind its door. `number`: of the client."""

    def __init__(self, assignment: Assignment, X: np.ndarray, y: np.ndarray, number: int) -> None:
        self.assignment, self._X, self.y, self.number = assignment, X, y, number
        self.clients: LocalClients | None = None
        self.after: int | None = None  # the round after which the client's state in memory stands
        self.multiplying: Multiplying | None = None  # how the round under way is answered, where products are asked for

    @cached_property
    def table(self) -> np.ndarray:
        """What is multiplied, where products are asked for."""
        task, y = self.assignment.task, self.y if self._multiplies_labels else None
        return whole_table(task.masked_moments, task.objective.loss, self.number, self._X, y)

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
        return Apart(self._made_shares, (0, self.y) if self._multiplies_labels else None)

    def _made_shares(self) -> np.ndarray:
        assert self.multiplying is not None
        return self.multiplying.shares()

    @property
    def _multiplies_labels(self) -> bool:
        split = self.assignment.task.split
        return split is not None and split.holder == self.number
