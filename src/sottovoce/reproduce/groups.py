"""Means of trials with their errors, and how far apart they are: what the rules of `verdicts.py` compare."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from scipy.special import ndtri, stdtr

from sottovoce.core import check
from sottovoce.reproduce.experiment import Table, Value

Key = Any  # a value of one column, or a tuple of values of several
# Standard errors: of a difference that counts; of one that does not; of one that has a sign, and may count with more
# trials.
CLEAR, SLIGHT, ONE = 3, 2, 1


@dataclass(frozen=True)
class Mean:
    """A mean over trials."""

    value: float
    error: float  # standard error
    trials: float = np.inf  # from which the error is known

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> "Mean":
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), spread / np.sqrt(len(values)), len(values))

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ± {self.error:.1g}" if self.error else "")

    def beyond(self, other: "Mean") -> float:
        """How many standard errors of the difference this mean lies above the other, told as for many trials.

        That is the number which a normal variable exceeds as seldom as a Student's t, with the degrees of freedom that
        the trials leave, exceeds the quotient (Welch). 3 stands for a quotient of 9.2 with 4 paired trials, of 4.1 with
        10. What is too seldom for a float is told as 37.
        """
        difference, error = self.value - other.value, float(np.hypot(self.error, other.error))
        if error == 0:
            return float(np.sign(difference)) * np.inf if difference else 0.0
        unsure = sum((one.error / error) ** 4 / (one.trials - 1) for one in (self, other) if one.error > 0)
        tail = stdtr(1 / max(unsure, 1e-9), -abs(difference) / error)
        return float(np.sign(difference)) * -float(ndtri(max(tail, 1e-300)))


def mean(table: Table, y: str) -> Mean:
    """Over all rows, which are trials."""
    check.require(len(table) > 0, "mean", f"there is no row with {y!r}")
    return Mean.of(np.asarray(table[y], dtype=np.float64))


def means(table: Table, y: str, by: str) -> dict[Key, Mean]:
    return {key: mean(rows, y) for (key,), rows in table.each(by)}


def tuned(y: str, over: str, *each: str) -> Callable[[Table], Table]:
    """Of every combination of the columns `each` only the value of `over` with the least mean of `y` at the end."""

    def best(table: Table) -> Table:
        numbered, kept = Table({**table.columns, "row": np.arange(len(table))}), []
        for _, rows in numbered.each(*each):
            qualities = means(rows.at_end(), y, over)
            kept += rows.where(**{over: min(qualities, key=lambda value: qualities[value].value)})["row"].tolist()
        return table.rows(np.array(sorted(kept), dtype=int))

    return best


class Which(TypedDict, total=False):
    """What a rule compares: `y` in the last round (or whichever `where` names), for each value of `by`."""

    of: Callable[[Table], Table]  # done first, see `tuned`
    where: Mapping[str, Value | Sequence[Value]]  # only rows that have these values
    each: Sequence[str]  # the rule must hold for every combination of these columns' values
    draw: str  # a column: rows on the same draw of the data are averaged first
    paired: str  # so too, and all are run on the same draws: differences are taken draw by draw
    exact: bool  # a formula: one number decides


class Groups:
    """`y` for each value of `by`, in one setting."""

    def __init__(self, table: Table, y: str, by: Sequence[str], which: Which) -> None:
        check.require(len(table) > 0, "Table", f"there is no row with {y!r}")
        draw = which.get("paired", which.get("draw"))
        table = table if draw is None else table.averaged(y, *by, draw)
        groups = {key if len(by) > 1 else key[0]: rows for key, rows in table.each(*by)}
        names = {key: rows[draw].tolist() if draw else range(len(rows)) for key, rows in groups.items()}
        self.draws = {key: dict(zip(names[key], rows[y].tolist(), strict=True)) for key, rows in groups.items()}
        self.paired = "paired" in which
        self.means = {key: mean(rows, y) for key, rows in groups.items()}

    def single(self) -> bool:
        """Whether something was run once only, or two of those that are paired on one draw in common only."""
        compared = itertools.combinations(self.draws.values(), 2) if self.paired else ()
        common = [len(one.keys() & other.keys()) for one, other in compared]
        return min([len(values) for values in self.draws.values()] + common) < 2

    def apart(self, high: Key, low: Key) -> float:
        """How many standard errors of the difference `high` lies above `low`."""
        if not self.paired:
            return self.means[high].beyond(self.means[low])
        pairs = [(self.draws[high][draw], value) for draw, value in self.draws[low].items() if draw in self.draws[high]]
        check.require(bool(pairs), "verdict", f"{high!r} and {low!r} have no draw of the data in common")
        return Mean.of([above - below for above, below in pairs]).beyond(Mean(0.0, 0.0))

    def level(self, key: Key, beside: Key) -> float:
        """The mean; where all are run on the same draws, over those on which `beside` was run too."""
        return float(np.mean(self.common(key, beside))) if self.paired else self.means[key].value

    def common(self, key: Key, beside: Key) -> np.ndarray:
        """The values of `key` on the draws that `beside` has too."""
        return np.array([self.draws[key][draw] for draw in sorted(self.draws[key].keys() & self.draws[beside].keys())])

    def wins(self, low: Key, high: Key) -> float:
        """If its median is lower: by how many standard errors of a coin `low` is the lower one on more than half of
        the draws (a sign test)."""
        lower, higher = self.common(low, high), self.common(high, low)
        ahead = float(np.sign(higher - lower).sum() / np.sqrt(len(lower)))
        return ahead if np.median(lower) < np.median(higher) else -np.inf

    def climbs(self, keys: Sequence[Key]) -> float:
        """By how many standard errors the last lies above the first; -inf if two neighbours are more than slightly the
        wrong way round. Where all share one mean, a wrong "clearly" is a 3-sigma event."""
        steady = all(self.apart(high, low) > -SLIGHT for low, high in itertools.pairwise(keys))
        return self.apart(keys[-1], keys[0]) if steady else -np.inf

    def least(self) -> Key:
        return min(self.means, key=lambda key: self.means[key].value)

    def values(self) -> list[float]:
        """The means; where all are run on the same draws, over those that all have."""
        if not self.paired:
            return [one.value for one in self.means.values()]
        common = set.intersection(*(set(values) for values in self.draws.values()))
        return [float(np.mean([values[draw] for draw in common])) for values in self.draws.values()]

    def listed(self) -> str:
        return ", ".join(f"{named(key)}: {value}" for key, value in self.means.items())


def named(key: Key, columns: Sequence[str] = ()) -> str:
    """A value, or several: numbers with the names of their columns, where those are given."""
    values = key if isinstance(key, tuple) else (key,)
    names = [f"{name} = " for name in columns] or [""] * len(values)
    pairs = zip(names, values, strict=True)
    return ", ".join(value if isinstance(value, str) else f"{name}{value:g}" for name, value in pairs)
