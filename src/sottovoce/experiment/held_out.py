"""Which records are held out, in a simulation and at a client: the rows are parted here (`core/histogram.py`)."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from sottovoce.core.random.streams import Streams
from sottovoce.experiment.task import Task
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.ledger.split_key import digest_of
from sottovoce.problems.federation import Federation
from sottovoce.problems.rows.held_out import HeldOut


@dataclass(frozen=True)
class Split:
    """A key for each client: which of its records are held out follows from it.

    Parameters
    ----------
    keys
        In the order of the clients.
    drawn
        What the keys were made from, if nothing but a checkpoint can keep it.
    """

    keys: tuple[bytes, ...]
    drawn: str = ""

    @classmethod
    def simulated(
        cls, ledger: MemoryLedger | OwnerLedgers | None, streams: Streams, clients: Iterable[int], kept: str = ""
    ) -> "Split":
        """By the key in the folder of ledgers, the same in all runs on it. Without one by what a checkpoint `kept`, or
        by the seed; a seed that was drawn is kept nowhere, so a number of its own takes its place."""
        key, drawn = ledger.split_key() if isinstance(ledger, OwnerLedgers) else None, ""
        if key is not None:
            root = f"key {key.hex()}"
        elif kept or streams.drawn:
            root = drawn = kept or f"drawn {secrets.token_hex(16)}"
        else:
            root = f"seed {streams.seed}"
        return cls(tuple(f"{root}, client {client}".encode() for client in clients), drawn)

    @property
    def digest(self) -> str:
        """A digest of the keys: equal for equal keys, and for no others."""
        return digest_of(*self.keys)


def set_aside(task: Task, federation: Federation, split: Split) -> tuple[Federation, HeldOut]:
    """The records to train on, and those that are held out."""
    assert task.evaluate is not None
    chosen = [task.evaluate.positions(key, int(size)) for key, size in zip(split.keys, federation.sizes, strict=True)]
    held, loss = np.concatenate(chosen), task.objective.loss
    offsets = np.concatenate([[0], np.cumsum([len(one) - np.count_nonzero(one) for one in chosen])]).astype(np.int64)
    kept = replace(federation, X=federation.X[~held], y=federation.y[~held], offsets=offsets)
    of_rows = federation.X[held], loss.check_labels(federation.y[held]), federation.offsets - offsets, loss
    return kept, HeldOut(*of_rows, task.evaluate, federation.row_bound, task.calibration)
