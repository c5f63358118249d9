"""What the charts of a report show, as plain numbers: a list of lines with bands each, which `page.js` draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sottovoce.experiment.publishable import private_columns
from sottovoce.experiment.repetitions import MEASURES, Interval, Repetitions, interval

Chart = dict[str, Any]
_MOST_POINTS = 300  # of one line
_TABLE_ROWS = 8


def progress_charts(groups: Sequence[Repetitions]) -> list[Chart]:
    """Accuracy, loss and objective over rounds."""
    charts = []
    for column, words, form in MEASURES:
        lines = [_line(group, column, slot) for slot, group in enumerate(groups) if group.has(column)]
        if lines:
            chart = _chart(column, f"{words[0].upper()}{words[1:]} over rounds", words, lines, percent="%" in form)
            private = any(column in private_columns(group.first) for group in groups)
            charts.append(chart | {"private": private})
    return charts


def spending_chart(groups: Sequence[Repetitions]) -> Chart | None:
    """The epsilon spent so far, by the client that spent most, the median one and the one that spent least.

    Of several repetitions, the largest of each.
    """
    lines: list[dict[str, Any]] = []
    for slot, group in enumerate(groups):
        if not group.has("epsilon"):
            continue
        worst = group.values("epsilon").max(axis=1)
        of = f"{group.name}: " if len(groups) > 1 else ""
        if not group.has("epsilon_least"):
            lines.append(_points(group.rounds, worst, f"{of}the client that spent most", slot))
            continue
        least = group.values("epsilon_least").max(axis=1)
        if np.allclose(worst, least, rtol=1e-9, atol=0):
            lines.append(_points(group.rounds, worst, f"{of}every client", slot))
            continue
        median = group.values("epsilon_median").max(axis=1)
        for words, values, dash in (("most", worst, 0), ("median", median, 1), ("least", least, 2)):
            lines.append(_points(group.rounds, values, f"{of}{words}", slot) | {"dash": dash})
    if not lines:
        return None
    budgets = {group.first.config["privacy"].get("epsilon") for group in groups if group.has("epsilon")}
    level = [{"y": float(value), "name": f"budget {value:g}"} for value in budgets if isinstance(value, int | float)]
    return _chart("epsilon", "Privacy spent over rounds (ε of a client)", "ε spent", lines) | {"levels": level}


def clients_chart(groups: Sequence[Repetitions]) -> Chart | None:
    """The epsilon of every client at the end, from the most to the least, where clients differ."""
    lines = []
    for slot, group in enumerate(groups):
        spent = np.sort(np.array(group.guarantee.epsilon_of_client))[::-1]
        if len(spent) and np.ptp(spent) > 1e-12:
            lines.append(_points(np.arange(1, len(spent) + 1), spent, group.name, slot))
    if not lines:
        return None
    return _chart("clients", "Privacy spent at the end, client by client", "ε spent", lines) | {
        "x": "clients, those that spent most first",
        "zero": True,
    }


def bytes_charts(groups: Sequence[Repetitions]) -> list[Chart]:
    """Megabytes sent since the start, by all clients together and to them."""
    charts = []
    for column, words in (("bytes_up", "Sent by the clients"), ("bytes_down", "Sent to the clients")):
        lines = [
            _points(group.rounds, group.values(column).mean(axis=1) / 1e6, group.name, slot)
            for slot, group in enumerate(groups)
            if group.has(column)
        ]
        if lines:
            charts.append(_chart(column, f"{words}, all together", "megabytes so far", lines) | {"zero": True})
    return charts


def rows_of(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """A chart as a small table: headings, rows."""
    form = "{:.2%}" if chart["percent"] else "{:.4g}"
    at = sorted({x for line in chart["lines"] for x in line["x"]})
    chosen = [at[i] for i in _spread(len(at), _TABLE_ROWS)]
    rows = []
    for x in chosen:
        row = [f"{x:g}"]
        for line in chart["lines"]:
            told = "–"
            if x in line["x"]:
                i = line["x"].index(x)
                told = _told(line["y"][i], form)
                if line.get("low"):
                    told += f"\n({_told(line['low'][i], form)} to {_told(line['high'][i], form)})"
            row.append(told)
        rows.append(row)
    return [chart["x"].split(",")[0], *(line["name"] for line in chart["lines"])], rows


def _told(value: float | None, form: str) -> str:
    return "not finite" if value is None else form.format(value)


def _chart(name: str, title: str, y: str, lines: list[dict[str, Any]], percent: bool = False) -> Chart:
    return {"id": name, "title": title, "x": "rounds", "y": y, "percent": percent, "lines": lines, "private": False}


def _line(group: Repetitions, column: str, slot: int) -> dict[str, Any]:
    over = interval(group.values(column))
    line = _points(group.rounds, over.mean, group.name, slot)
    return line | _band(over, len(group.rounds)) if len(group.keys) > 1 else line


def _band(over: Interval, rounds: int) -> dict[str, Any]:
    at = _spread(rounds, _MOST_POINTS)
    return {"low": _plain(over.low[at]), "high": _plain(over.high[at])}


def _points(x: np.ndarray, y: np.ndarray, name: str, slot: int) -> dict[str, Any]:
    at = _spread(len(x), _MOST_POINTS)
    return {"name": name, "slot": slot, "dash": slot, "x": x[at].tolist(), "y": _plain(y[at])}


def _spread(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` places, evenly spread, the ends among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _plain(values: np.ndarray) -> list[float | None]:
    """Six digits; JSON has no word for what is not finite."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
