"""Counting held-out records at a client: the last question of a run (`core/histogram.py`).

Which records a client holds out follows from a key in its own folder, made at the first such question and kept: so they
are the same ones in every run, and nobody else knows which.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sottovoce.core.check import BudgetSpent
from sottovoce.deploy import wire
from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.label_holder import Values
from sottovoce.deploy.limits import Limits, bad_ask
from sottovoce.deploy.memory import SPLIT
from sottovoce.experiment.held_out import Split
from sottovoce.experiment.local import LocalClients
from sottovoce.ledger.split_key import KEY, split_key


@dataclass(frozen=True)
class Finished:
    """How many of your held-out records does this model get right?"""

    w: np.ndarray


def split_by(assignment: Assignment, home: Path) -> Split | None:
    """What decides which records are held out; None where none are.

    Each experiment that held out records has kept the digest of the key.
    """
    if assignment.task.evaluate is None:
        return None
    used = {file.read_text() for file in (home / "experiments").glob(f"*/{SPLIT}")}
    return Split((split_key(home / KEY, used),))


def counted(ask: wire.Ask, clients: LocalClients, limits: Limits) -> Values:
    """Noisy counts of held-out records, charged."""
    with bad_ask("the model does not fit: "):
        w = wire.unpack(ask.down, Finished, {"w": (clients.dim,)}).w
    limits.check_broadcast({"w": w})
    counts = clients.evaluate(w)
    if counts is None:
        raise BudgetSpent("")
    return Values(counts[0])
