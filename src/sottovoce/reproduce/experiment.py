"""What an experiment is: cells to run, a figure to draw, and claims of a paper to compare with what was measured.

A *cell* is one setting with all its trials: a function of this package and its options, so it is known by its text
and need not be run twice. A *claim* is what a paper says, with a function that measures it and says whether it is
the same.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import sottovoce
from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.privacy.noise_key import stable_text
from sottovoce.reproduce import sources

Columns = Json  # name -> one value per row; a single value stands for all rows
Value = str | int | float
Setting = Mapping[str, Value]


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

    def where(self, **wanted: Value | Sequence[Value]) -> "Table":
        """Rows in which every named column has the wanted value, or one of several."""
        keep = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            keep &= np.isin(self[name], list(value) if isinstance(value, list | tuple) else [value])
        return self.rows(keep)

    def at_end(self) -> "Table":
        """Rows of the last round or epoch; all, if there is neither."""
        of = next((name for name in ("round", "epoch") if name in self.columns), None)
        return self if of is None or len(self) == 0 else self.rows(self[of] == self[of].max())

    def each(self, *names: str) -> "Iterator[tuple[tuple[Any, ...], Table]]":
        """The rows of every combination of the named columns' values, in the order they came; of none: all rows."""
        if not names:
            yield (), self
            return
        keys = list(zip(*(self[name].tolist() for name in names), strict=True))
        for key in dict.fromkeys(keys):
            yield key, self.rows(np.array([other == key for other in keys]))

    def averaged(self, y: str | Sequence[str], *names: str) -> "Table":
        """One row with the mean of `y` (or of several columns) for each combination of the named columns' values: one
        of them tells the draw of the data, as runs on the same draw are not independent."""
        groups, of = list(self.each(*names)), (y,) if isinstance(y, str) else y
        columns = {name: [key[at] for key, _ in groups] for at, name in enumerate(names)}
        return Table.of({**columns, **{name: [np.mean(rows[name]) for _, rows in groups] for name in of}})


@dataclass(frozen=True)
class Cell:
    """One setting with all its trials. Its values become columns; `work(**setting, **sizes)` makes the others."""

    setting: Setting
    work: Callable[..., Columns]
    sizes: Json = field(default_factory=dict)
    alone: bool = False  # it is timed: nothing else may run meanwhile

    def run(self) -> Table:
        return Table.of({**self.setting, **self.work(**self.setting, **self.sizes)})

    def digest(self) -> str:
        """The same for the same settings and the same function, with all that it names, in every process."""
        settings = stable_text([sorted(self.setting.items()), sorted(self.sizes.items())])
        text = "\n".join([sottovoce.__version__, sources.text_of(self.work), settings])
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def every(**columns: Iterable[Value]) -> list[dict[str, Value]]:
    """A setting for every combination of the columns' values; the last column changes fastest."""
    return [dict(zip(columns, values, strict=True)) for values in itertools.product(*columns.values())]


@dataclass(frozen=True)
class Sweep:
    """The cells of one function: one for each setting; with `quick` fewer settings (None: the same) and smaller sizes.

    `sizes` are what all cells have in common: trials, rounds, and options that are no columns. `quick_sizes` are those
    of them that are others in quick cells.
    """

    work: Callable[..., Columns]
    settings: Sequence[Setting]
    quick: Sequence[Setting] | None = None
    sizes: Json = field(default_factory=dict)
    quick_sizes: Json = field(default_factory=dict)
    alone: bool = False

    def __call__(self, quick: bool) -> list[Cell]:
        settings = self.quick if quick and self.quick is not None else self.settings
        sizes = self.sizes | self.quick_sizes if quick else self.sizes
        return [Cell(setting, self.work, sizes, self.alone) for setting in settings]


@dataclass(frozen=True)
class Finding:
    """What was measured, and whether it is what was said; None: it was not judged, for there is one run only."""

    measured: str
    same: bool | None
    loose: str = ""  # of a theorem that holds: by how much its bound is above what is measured
    in_order: bool = False  # it is not the same only because differences that have the paper's sign are not clear


Kind = Literal["measured", "stand-in", "formula", "conjecture", "ours", "theorem"]


@dataclass(frozen=True)
class Claim:
    """One thing a paper says.

    Parameters
    ----------
    says
        What, in our words.
    paper
        Its number or order; of a theorem: its bound.
    measure
        From the experiment's table to what we measure, and whether that is the same: mostly a rule of `verdicts.py`.
    why
        Where the two differ: why they do, as an experiment shows it. Printed only then.
    robust
        Whether quick sizes are enough to tell.
    kind
        What it is counted as: "measured" by the paper's authors; so too, but here on a "stand-in" for their data; a
        "formula" that they draw; "conjecture": measured by them, and here in a reading that was chosen because it fits;
        "ours": they do not say it; a "theorem".
    """

    says: str
    paper: str
    measure: Callable[[Table], Finding]
    why: str = ""
    robust: bool = False
    kind: Kind = "measured"


@dataclass(frozen=True)
class Panel:
    """One plot: the mean of `y` over trials against `x`, one line for every combination of the `lines` columns."""

    y: str
    x: str = "round"
    lines: Sequence[str] = ()
    where: Mapping[str, Value | Sequence[Value]] = field(default_factory=dict)
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    kind: Literal["line", "box"] = "line"
    references: Callable[[Table], Mapping[str, float]] = lambda table: {}  # the whole table -> levels to draw
    draw: str = ""  # a column: the draw of the data, whose rows are averaged first
    paper: Mapping[Any, Any] = field(default_factory=dict)  # x -> y where it prints numbers; or line -> such a mapping
    grey: Sequence[str] = ()  # labels of lines to compare others with
    cut: str = ""  # a column: 1 in runs that were stopped before their end, so that `y` is only a lower bound
    early: str = ""  # a column: 1 in runs that ended by themselves, and too early
    method: str = ""  # whose settings the lines are, if not those of the paper's own
    bound: str = ""  # a column: what a theorem says that `y` is below
    legend: str = ""  # what its entries are, if not the names of the columns
    names: Mapping[str, str] = field(default_factory=dict)  # label of a line -> what is shown in its place
    marks: bool = False  # marks with bars, and no lines between them: nothing was run there
    at_end: bool = False  # only the last round: where `x` is not the round, and all are recorded
    of: Callable[[Table], Table] = lambda table: table  # done first


@dataclass(frozen=True)
class Experiment:
    """One table or figure, or a pair that share their data.

    Parameters
    ----------
    name
        On the command line, and of the files.
    shows
        Which table or figure, and what is in it.
    cells
        From "is it quick?" to what to run: mostly a `Sweep`.
    claims, panels
        What to compare with it, and what to draw.
    notes
        What is ours: trials, what the paper does not give, what was cut.
    needs
        Data sets that do not come with the package.
    summary
        More numbers for the page, as Markdown.
    apart
        Not one of `all`: run only where it is named.
    paper
        Which paper: set by `registry.py`.
    """

    name: str
    shows: str
    cells: Callable[[bool], Sequence[Cell]]
    claims: Sequence[Claim]
    panels: Sequence[Panel]
    notes: str = ""
    needs: Sequence[str] = ()
    summary: Callable[[Table], str] | None = None
    apart: bool = False
    paper: str = ""
