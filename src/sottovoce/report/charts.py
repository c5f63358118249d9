"""What the charts of a report show, as plain numbers: lines, some with bands around them, which `page.js` draws."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from sottovoce.experiment.publishable import private_columns
from sottovoce.experiment.repetitions import Repetitions, interval
from sottovoce.report.numbers import LARGER, MEASURES, Measure
from sottovoce.report.style import Style, styles

_MOST_POINTS = 300  # of one line
_TABLE_ROWS = 8
Numbers = list[float | None]  # None: not finite, for which JSON has no word


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    style: dict[str, str]
    x: list[float]
    y: Numbers
    low: Numbers | None = None  # of a band around the line
    high: Numbers | None = None


@dataclass(frozen=True)
class Chart:
    """A chart of a report."""

    id: str
    title: str
    y: str
    lines: Sequence[Line]
    x: str = "rounds"
    percent: bool = False
    private: bool = False  # read off private rows
    zero: bool = False  # whether the axis begins at zero
    levels: Sequence[dict[str, float | str]] = field(default_factory=list)  # dotted lines: y and name


def styles_of(groups: Sequence[Repetitions]) -> list[Style]:
    """How each group is drawn: as the method that it ran. A second run of a method has another colour."""
    methods = [group.first.config["algorithm"]["name"] for group in groups]
    return styles([f"{name} {place}" if name in methods[:place] else name for place, name in enumerate(methods)])


def _drawn(groups: Sequence[Repetitions], column: str) -> list[tuple[Repetitions, Style]]:
    """The groups that recorded a column, and how each is drawn."""
    return [(group, look) for group, look in zip(groups, styles_of(groups), strict=True) if group.has(column)]


def progress_charts(groups: Sequence[Repetitions]) -> Iterator[Chart]:
    """Accuracy, loss and objective over rounds."""
    for measure in MEASURES:
        lines = [_mean_line(group, measure.column, look) for group, look in _drawn(groups, measure.column)]
        title = f"{measure.words[0].upper()}{measure.words[1:]} over rounds"
        private = any(measure.column in private_columns(group.first) for group in groups)
        levels = _larger_class(groups) if measure is MEASURES[0] else []
        shown = {"percent": measure.percent, "private": private, "levels": levels}
        yield Chart(measure.column, title, measure.words, lines, **shown)


def _larger_class(groups: Sequence[Repetitions]) -> list[dict[str, float | str]]:
    """What predicting the larger class always would reach, where that is the same for all."""
    shares = {float(share) for group in groups if group.has(LARGER.column) for share in group.last(LARGER.column)}
    return [{"y": share, "name": LARGER.words} for share in shares if len(shares) == 1]


def spending_charts(groups: Sequence[Repetitions]) -> list[Chart]:
    """The epsilon spent so far, over rounds; and that of every client at the end."""
    return [_spending_chart(groups), _clients_chart(groups)]


def _spending_chart(groups: Sequence[Repetitions]) -> Chart:
    """The epsilon spent so far, by the client that spent most, the median one and the one that spent least.

    Of several repetitions, the largest of each.
    """
    lines: list[Line] = []
    for group, look in _drawn(groups, "epsilon"):
        columns = {"most": "epsilon", "median": "epsilon_median", "least": "epsilon_least"}
        spent = {who: group.values(column).max(axis=1) for who, column in columns.items() if group.has(column)}
        if "least" not in spent:
            spent = {"the client that spent most": spent["most"]}
        elif np.allclose(spent["most"], spent["least"], rtol=1e-9, atol=0):
            spent = {"every client": spent["most"]}
        for dashes, (who, values) in enumerate(spent.items()):
            name = f"{group.name}: {who}" if len(groups) > 1 else who
            varied = look if len(spent) == 1 else Style(look.colour, dashes, look.marker)
            lines.append(_line(name, varied, group.rounds, values))
    budgets = {group.first.config["privacy"].get("epsilon") for group in groups if group.has("epsilon")}
    levels = [{"y": float(each), "name": f"budget {each:g}"} for each in budgets if isinstance(each, int | float)]
    return Chart("epsilon", "Privacy spent over rounds (ε of a client)", "ε spent", lines, levels=levels)


def _clients_chart(groups: Sequence[Repetitions]) -> Chart:
    """The epsilon of every client at the end, from the most to the least, where clients differ."""
    lines = []
    for group, look in zip(groups, styles_of(groups), strict=True):
        spent = np.sort(np.array(group.guarantee.epsilon_of_client))[::-1]
        if len(spent) and np.ptp(spent) > 1e-12:
            lines.append(_line(group.name, look, np.arange(1, len(spent) + 1), spent))
    title, x = "Privacy spent at the end, client by client", "clients, those that spent most first"
    return Chart("clients", title, "ε spent", lines, x=x, zero=True)


def bytes_charts(groups: Sequence[Repetitions]) -> Iterator[Chart]:
    """Megabytes sent since the start, by all clients together and to them."""
    for column, words in (("bytes_up", "Sent by the clients"), ("bytes_down", "Sent to the clients")):
        lines = [
            _line(group.name, look, group.rounds, group.values(column).mean(axis=1) / 1e6)
            for group, look in _drawn(groups, column)
        ]
        yield Chart(column, f"{words}, all together", "megabytes so far", lines, zero=True)


def rows_of(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """A chart as a small table: headings, rows."""
    measure = Measure(chart.id, chart.y, chart.percent)
    recorded = sorted({x for line in chart.lines for x in line.x})
    chosen = [recorded[place] for place in _spread(len(recorded), _TABLE_ROWS)]
    rows = [[f"{x:g}", *(_cell(line, x, measure) for line in chart.lines)] for x in chosen]
    return [chart.x.split(",")[0], *(line.name for line in chart.lines)], rows


def _cell(line: Line, x: float, measure: Measure) -> str:
    def text(values: Numbers) -> str:
        value = values[place]
        return measure.text(np.nan if value is None else value)

    if x not in line.x:
        return measure.text(None)
    place = line.x.index(x)
    band = "" if line.low is None or line.high is None else f"\n({text(line.low)} to {text(line.high)})"
    return text(line.y) + band


def _mean_line(group: Repetitions, column: str, look: Style) -> Line:
    over = interval(group.values(column))
    band = (over.low, over.high) if len(group.keys) > 1 else (None, None)
    return _line(group.name, look, group.rounds, over.mean, *band)


def _line(
    name: str, look: Style, x: np.ndarray, y: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None
) -> Line:
    kept = _spread(len(x), _MOST_POINTS)
    band = (None if values is None else _plain(values[kept]) for values in (low, high))
    return Line(name, look.html(), x[kept].tolist(), _plain(y[kept]), *band)


def _spread(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` places, evenly spread, the ends among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _plain(values: np.ndarray) -> Numbers:
    """Rounded to six digits."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
