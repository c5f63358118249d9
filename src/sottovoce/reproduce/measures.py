"""What is judged in place of the last round: the mean over all rounds, which is speed, and the rounds to a level."""

from collections.abc import Callable, Sequence

import numpy as np

from sottovoce.reproduce.experiment import Table

Measure = Callable[[Table], Table]


def over_rounds(y: str, *keys: str) -> Measure:
    """One row for each run of each combination of `keys`: the mean of `y` over the recorded rounds. A curve that gets
    to the same end sooner has the better mean."""
    return _each_run(y, keys, lambda rows: float(np.mean(rows[y])))


def rounds_until(y: str, level: Callable[[Table], float], *keys: str) -> Measure:
    """One row for each run of each combination of `keys`: the first recorded round in which `y` is at least `level` of
    the whole table; twice the last round where none is."""

    def measure(table: Table) -> Table:
        enough = level(table)

        def first(rows: Table) -> float:
            reached = rows["round"][rows[y] >= enough]
            return float(reached.min() if len(reached) else 2 * rows["round"].max())

        return _each_run("rounds", keys, first)(table)

    return measure


def _each_run(name: str, keys: Sequence[str], value: Callable[[Table], float]) -> Measure:
    def measure(table: Table) -> Table:
        runs = list(table.each(*keys, "run"))
        columns = {key: [found[place] for found, _ in runs] for place, key in enumerate((*keys, "run"))}
        return Table.of({**columns, name: [value(rows) for _, rows in runs]})

    return measure
