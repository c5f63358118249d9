"""What an experiment is: cells to run, a figure to draw, and claims of a paper to hold against what was measured.

A *cell* is one setting with all its trials: a function of this package and its options, so it is known by its text
and need not be run twice. A *claim* is what a paper says, with a function that measures it and says whether it is
the same.
"""

import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import sottovoce
from sottovoce.core import check
from sottovoce.run.describe import stable_text

Columns = Mapping[str, Any]  # name -> one value per row; a single value stands for all rows


class Table:
    """Columns of equal length."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self.columns = dict(columns)

    @classmethod
    def of(cls, columns: Columns) -> "Table":
        rows = max((len(value) for value in columns.values() if np.ndim(value)), default=1)
        return cls({name: np.broadcast_to(np.asarray(value), (rows,)) for name, value in columns.items()})

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[check.one_of("Table", "column", name, self.columns)]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self, which: np.ndarray) -> "Table":
        return Table({name: column[which] for name, column in self.columns.items()})

    def where(self, **wanted: Any) -> "Table":
        """Rows in which every named column has the wanted value, or one of several."""
        keep = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            keep &= np.isin(self[name], list(value) if isinstance(value, list | tuple) else [value])
        return self.rows(keep)

    def at_end(self, of: str = "round") -> "Table":
        """Rows of the last round."""
        return self.rows(self[of] == self[of].max()) if len(self) else self

    def each(self, *names: str) -> Iterator[tuple[tuple[Any, ...], "Table"]]:
        """The rows of every combination of the named columns' values, in the order they came."""
        keys = list(zip(*(self[name].tolist() for name in names), strict=True))
        for key in dict.fromkeys(keys):
            yield key, self.rows(np.array([other == key for other in keys]))

    def averaged(self, y: str, *names: str, draw: np.ndarray) -> "Table":
        """One row with the mean of `y` for each of the named columns' values and each draw of the data: runs on the
        same draw are not independent."""
        groups = list(Table({**self.columns, "draw": draw}).each(*names, "draw"))
        columns: dict[str, list[Any]] = {name: [key[at] for key, _ in groups] for at, name in enumerate(names)}
        return Table.of({**columns, y: [np.mean(rows[y]) for _, rows in groups]})


@dataclass(frozen=True)
class Cell:
    """One setting with all its trials. `labels` become columns; `work(**options)` makes the others."""

    labels: Mapping[str, str | int | float]
    work: Callable[..., Columns]
    options: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False  # it is timed: nothing else may run meanwhile

    def run(self) -> Table:
        return Table.of({**self.labels, **self.work(**self.options)})

    def digest(self) -> str:
        """The same for the same settings and the same function, in every process."""
        settings = stable_text([sorted(self.labels.items()), sorted(self.options.items())])
        text = "\n".join([sottovoce.__version__, inspect.getsource(self.work), settings])
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Finding:
    measured: str
    same: bool


@dataclass(frozen=True)
class Claim:
    """One thing a paper says.

    Parameters
    ----------
    says
        What, in our words.
    paper
        Its number or order.
    measure
        From the experiment's table to what we measure, and whether that is the same.
    why
        Where the two differ: why they do. Printed only then.
    robust
        Whether quick sizes are enough to tell.
    """

    says: str
    paper: str
    measure: Callable[[Table], Finding]
    why: str = ""
    robust: bool = False


@dataclass(frozen=True)
class Panel:
    """One plot: the mean of `y` over trials against `x`, one line for every combination of the `lines` columns."""

    y: str
    x: str = "round"
    lines: Sequence[str] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    kind: Literal["line", "box"] = "line"
    references: Callable[[Table], Mapping[str, float]] = lambda table: {}  # the whole table -> levels to draw
    draw: Callable[[Table], np.ndarray] | None = None  # whose rows are averaged first, see `Table.averaged`
    paper: Mapping[float, float] = field(default_factory=dict)  # x -> y, where it prints numbers


@dataclass(frozen=True)
class Experiment:
    """One table or figure, or a pair that share their data.

    Parameters
    ----------
    name
        On the command line, and of the files.
    paper, shows
        Which paper (a key of `PAPERS`), which table or figure and what is in it.
    cells
        From "is it quick?" to what to run.
    claims, panels
        What to hold against it, and what to draw.
    notes
        What is ours: trials, what the paper does not give, what was cut.
    needs
        Data sets that do not travel with the package.
    summary
        More numbers for the page, as Markdown.
    """

    name: str
    paper: str
    shows: str
    cells: Callable[[bool], Sequence[Cell]]
    claims: Sequence[Claim]
    panels: Sequence[Panel]
    notes: str = ""
    needs: Sequence[str] = ()
    summary: Callable[[Table], str] | None = None


# What claims are measured with. A mean over trials is known up to its standard error; the rules below speak in those.


@dataclass(frozen=True)
class Mean:
    value: float
    error: float  # standard error

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ± {self.error:.1g}" if self.error else "")

    def beyond(self, other: "Mean") -> float:
        """How many standard errors of the difference this mean lies above the other."""
        difference, error = self.value - other.value, float(np.hypot(self.error, other.error))
        return difference / error if error > 0 else float(np.sign(difference)) * np.inf if difference else 0.0


def mean(table: Table, y: str) -> Mean:
    """Over all rows, which are trials."""
    values = np.asarray(table[y], dtype=np.float64)
    check.require(len(values) > 0, "mean", f"there is no row with {y!r}")
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Mean(float(values.mean()), spread / np.sqrt(len(values)))


def means(table: Table, y: str, by: str) -> dict[Any, Mean]:
    return {key[0]: mean(rows, y) for key, rows in table.each(by)}


def listed(found: Mapping[Any, Mean]) -> str:
    return ", ".join(
        f"{key:g}: {value}" if isinstance(key, float) else f"{key}: {value}" for key, value in found.items()
    )


def rises(y: str, by: str, where: Mapping[str, Any] | None = None, falls: bool = False) -> Callable[[Table], Finding]:
    """Whether the mean of `y` in the last round rises with `by`.

    The ends must be more than three standard errors apart, and no two neighbours more than two the wrong way round:
    with k neighbours that share one mean the chance of a wrong "yes" is that of a 3-sigma event.
    """

    def measure(table: Table) -> Finding:
        table = table.where(**(where or {}))
        found = dict(sorted(means(table.at_end() if "round" in table.columns else table, y, by).items()))
        inside = list(found.values())[:: -1 if falls else 1]
        apart = inside[-1].beyond(inside[0]) > 3
        steady = all(high.beyond(low) > -2 for low, high in itertools.pairwise(inside))
        return Finding(listed(found), apart and steady)

    return measure


def falls(y: str, by: str, where: Mapping[str, Any] | None = None) -> Callable[[Table], Finding]:
    return rises(y, by, where, falls=True)


def lowest(y: str, by: str, winner: Any, where: Mapping[str, Any] | None = None, highest: bool = False):
    """Whether `winner` has the lowest mean of `y` in the last round, by more than three standard errors."""

    def measure(table: Table) -> Finding:
        table = table.where(**(where or {}))
        found = means(table.at_end() if "round" in table.columns else table, y, by)
        sign = -1 if highest else 1
        same = all(sign * other.beyond(found[winner]) > 3 for key, other in found.items() if key != winner)
        return Finding(listed(found), same)

    return measure


def highest(y: str, by: str, winner: Any, where: Mapping[str, Any] | None = None):
    return lowest(y, by, winner, where, highest=True)
