"""What experiments on Adult share: the rows and who holds them, and trials of one method."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

import sottovoce as sv
from sottovoce.core.contract import Algorithm
from sottovoce.core.participation import Everyone, Participation
from sottovoce.core.round import Checkpoint
from sottovoce.privacy.modes import Privacy
from sottovoce.problems import data as datasets
from sottovoce.problems import partition
from sottovoce.problems.rows import Rows
from sottovoce.reproduce.experiment import Columns

Method = Algorithm[Any, Any, Any, Any]


@lru_cache(maxsize=2)
def encoded(encoding: str) -> datasets.Dataset:
    return datasets.adult(encoding)


OFFICIAL = 30162  # complete rows of adult.data; those of adult.test come after


@lru_cache(maxsize=4)
def federation(
    clients: int, encoding: str = "one-hot", kind: str = "iid", official: bool = False, first: int = 0, **options: float
) -> tuple[sv.Federation, tuple[np.ndarray, np.ndarray]]:
    """Training rows of `clients` clients (of only the `first` of them, if given), and the test rows."""
    adult = encoded(encoding)
    if official:
        X, y, *test = adult.X[:OFFICIAL], adult.y[:OFFICIAL], adult.X[OFFICIAL:], adult.y[OFFICIAL:]
    else:
        X, y, *test = datasets.split(adult.X, adult.y, 5222, seed=0)
    groups = partition.make(kind, y, clients, seed=0, **options)
    kept = groups < (first or clients)
    return sv.Federation.from_arrays(X[kept], y[kept], groups[kept], row_bound=adult.row_bound), (test[0], test[1])


class Watch(Protocol):
    """More to record than the history has: told of every round, asked in those that are recorded."""

    def __init__(self, rows: Rows, objective: sv.Objective, algorithm: Method) -> None: ...
    def note(self, checkpoint: Checkpoint) -> None: ...
    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]: ...


def trained(
    algorithm: Method,
    objective: sv.Objective,
    privacy: Privacy,
    rounds: int,
    trials: int,
    *,
    data: dict[str, Any],
    every: int = 5,
    at_once: int = 10,
    participation: Participation = Everyone(),  # noqa: B008 (frozen)
    watch: type[Watch] | None = None,
    columns: Sequence[str] = ("test_accuracy", "objective"),
) -> Columns:
    """Round, run and the named columns of `trials` trials, `at_once` by the runs axis."""
    rows_of, test = federation(**data)
    found: dict[str, list[np.ndarray]] = {}
    for chunk, first in enumerate(range(0, trials, at_once)):
        runs = min(at_once, trials - first)
        rows = Rows(rows_of.X, objective.loss.check_labels(rows_of.y), rows_of.offsets, objective.loss, objective.scale)
        seen = None if watch is None else watch(rows, objective, algorithm)

        def after(checkpoint: Checkpoint, seen: Watch | None = seen, runs: int = runs) -> None:
            if seen is not None:
                seen.note(checkpoint)
                if checkpoint.k % every == 0 or checkpoint.k == rounds:
                    for name, value in seen.measure(checkpoint).items():
                        found.setdefault(name, []).append(np.broadcast_to(value, (runs,)))

        result = sv.train(
            algorithm,
            rows_of,
            objective,
            rounds=rounds,
            privacy=privacy,
            participation=participation,
            seed=chunk,
            runs=runs,
            test=test,
            record_every=every,
            after_round=after,
            measure_training="objective" in columns,
        )
        found.setdefault("run", []).append(result.history["run"] + first)
        for name in ("round", *columns):
            found.setdefault(name, []).append(result.history[name])
    return {name: np.concatenate(values) for name, values in found.items()}
