"""What trials of several papers share: the rows of Adult and who holds them, and training that is watched."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.core.contract import Method
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.privacy.modes import Privacy
from sottovoce.problems import data as datasets
from sottovoce.problems import partition
from sottovoce.problems.rows import Rows
from sottovoce.reproduce.experiment import Columns

Split = tuple[sv.Federation, tuple[np.ndarray, np.ndarray]]  # rows for training, and for testing


@lru_cache(maxsize=2)
def encoded(encoding: str) -> datasets.Dataset:
    return datasets.adult(encoding)


@lru_cache(maxsize=4)
def federation(clients: int, encoding: str = "one-hot", kind: str = "iid", draw: int = 0, **options: float) -> Split:
    """Training rows of `clients` clients, and the test rows: draw number `draw` of both."""
    adult = encoded(encoding)
    X, y, *test = datasets.split(adult.X, adult.y, 5222, seed=draw)
    groups = partition.make(kind, y, clients, seed=draw, **options)
    return sv.Federation.from_arrays(X, y, groups, row_bound=adult.row_bound), (test[0], test[1])


class Enough(Exception):
    """Raised after a round: what was watched for has happened."""


def watch(
    algorithm: Method,
    rows: sv.Federation,
    objective: sv.Objective,
    privacy: Privacy,
    after_round: Callable[[Checkpoint], None],
    **options: Any,
) -> None:
    """Train, and leave all recording to `after_round`, which may raise `Enough`; `options` are those of `train`."""
    record: Json = {"record_every": 10**9, "measure_training": False, "after_round": after_round}
    with suppress(Enough):
        sv.train(algorithm, rows, objective, privacy=privacy, **record, **options)


class Watch:
    """More to record than the history has: told of every round, asked in those that are recorded."""

    def __init__(self, rows: Rows, objective: sv.Objective, algorithm: Method) -> None:
        self.rows, self.objective, self.algorithm = rows, objective, algorithm

    def note(self, checkpoint: Checkpoint) -> None:
        """After every round."""

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        """More columns, after recorded rounds: one value for each run."""
        return {}


def trained(
    algorithm: Method,
    objective: sv.Objective,
    privacy: Privacy,
    rounds: int,
    trials: int,
    *,
    data: Json | Split,
    every: int = 5,
    at_once: int = 10,
    watch: type[Watch] = Watch,
    columns: Sequence[str] = ("test_accuracy", "objective"),
    **options: Any,
) -> Columns:
    """Round, run and the named columns of `trials` trials on Adult, `at_once` by the runs axis.

    `data` are rows, or options of `federation`; `options` are those of `train`.
    """
    owned, test = data if isinstance(data, tuple) else federation(**data)
    rows = Rows(owned.X, objective.loss.check_labels(owned.y), owned.offsets, objective.loss, objective.scale)
    recorded: dict[str, list[np.ndarray]] = {}
    for chunk, first in enumerate(range(0, trials, at_once)):
        runs, watching = min(at_once, trials - first), watch(rows, objective, algorithm)

        def after(checkpoint: Checkpoint, watching: Watch = watching, runs: int = runs) -> None:
            watching.note(checkpoint)
            if checkpoint.k % every == 0 or checkpoint.k == rounds:
                for name, value in watching.measure(checkpoint).items():
                    recorded.setdefault(name, []).append(np.broadcast_to(value, (runs,)))

        run: Json = {
            "rounds": rounds,
            "privacy": privacy,
            "seed": chunk,
            "runs": runs,
            "test": test,
            "record_every": every,
        }
        run |= {"after_round": after, "measure_training": "objective" in columns} | options
        result = sv.train(algorithm, owned, objective, **run)
        recorded.setdefault("run", []).append(result.history["run"] + first)
        for name in ("round", *columns):
            recorded.setdefault(name, []).append(result.history[name])
    return {name: np.concatenate(values) for name, values in recorded.items()}
