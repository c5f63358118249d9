"""Draws an experiment's panels into one PNG and one SVG file, the same bytes for the same data."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.core.plain import Json
from sottovoce.experiment import whole_files
from sottovoce.report import style
from sottovoce.report.style import Style
from sottovoce.reproduce.experiment import Experiment, Panel, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

MOST = 6  # strong lines in a panel; others are thin and grey
DPI = 200
REFERENCES = (":", "--", "-.")  # dashes of levels to compare with
CUT, EARLY = "some runs cut off: at least this", "some runs ended early, as f and its gradient rose"
PAPERS: Json = {
    "linestyle": "", "marker": "s", "markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.8, "zorder": 3,
}  # fmt: skip


def draw(experiment: Experiment, table: Table, out: Path) -> None:
    """Write `out/NAME.png` and `out/NAME.svg`."""
    panels = experiment.panels
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with style.new_figure(4.6 * columns, 3.5 * rows, dpi=DPI) as figure:
        for place, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, place)
            shown = panel.of(table).where(**panel.where)
            _panel(axes, panel, shown.at_end() if panel.at_end else shown, panel.references(table), experiment.paper)
        _free_the_view(figure, columns)
        figure.suptitle(_title(f"{experiment.paper}: {experiment.shows}", 55 * columns), fontsize="medium")
        for kind in ("png", "svg"):
            whole_files.replace_file(out / f"{experiment.name}.{kind}", style.image(figure, kind))


def _title(text: str, width: int) -> str:
    """In as few lines as fit, about equally long."""
    lines = -(-len(text) // width)
    return textwrap.fill(text, min(width, len(text) // lines + 8))


@dataclass(frozen=True)
class Shade(Style):
    """One of several settings of a method: its colour, the lighter the later."""

    share: float = 0.0  # of white

    @property
    def on_white(self) -> str:
        whole = [int(super(Shade, self).on_white[place : place + 2], 16) for place in (1, 3, 5)]
        return "#" + "".join(f"{round(one + self.share * (255 - one)):02x}" for one in whole)


def _looks(labels: Sequence[str], method: str) -> dict[str, Style]:
    """Each method has its colour; where lines are settings, all have shades of that of `method`."""
    own = style.of_method(method)
    if own is None or any(style.of_method(label) for label in labels):
        return dict(zip(labels, style.styles(labels), strict=True))
    step = 0.6 / max(len(labels) - 1, 1)
    return {
        label: Shade(own.colour, place % len(style.DASHES), (own.marker + place) % len(style.MARKERS), step * place)
        for place, label in enumerate(labels)
    }


def _panel(axes: "Axes", panel: Panel, table: Table, references: Mapping[str, float], method: str = "") -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator

    if panel.draw:
        more = [name for name in (panel.cut, panel.early, panel.bound) if name]
        table = table.averaged((panel.y, *more), panel.x, *panel.lines, panel.draw)
    labelled = ((_label(key), rows) for key, rows in table.each(*panel.lines))
    groups = {panel.names.get(label, label): rows for label, rows in labelled}
    strong = [label for label in groups if label not in panel.grey][:MOST]
    looks = _looks(list(groups), panel.method or method)
    if panel.kind == "box":
        _boxes(axes, panel, groups, looks)
    else:
        for label, rows in groups.items():
            _line(axes, panel, rows, label, looks[label] if label in strong else None)
    by_line = any(isinstance(numbers, Mapping) for numbers in panel.paper.values())
    printed = {label: panel.paper[label] for label in looks if label in panel.paper} if by_line else {"": panel.paper}
    for label, numbers in printed.items() if panel.paper else ():
        drawn: Json = {"color": looks[label].on_white if by_line else "black", "label": "" if by_line else "paper"}
        axes.plot(list(numbers), list(numbers.values()), **PAPERS, **drawn)
    if by_line:
        axes.plot([], [], color="0.35", label="paper's", **PAPERS)
    for (name, level), dashes in zip(references.items(), itertools.cycle(REFERENCES)):
        looks_: Json = {**style.REFERENCE, "linestyle": dashes, "label": name}
        axes.axhline(level, **looks_)
    for axis, set_scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        if axis.axis_name in panel.log:
            set_scale("log")
            _few_ticks(axis, np.unique(table[panel.x]) if axis is axes.xaxis else np.zeros(0))
        elif axis is axes.xaxis and panel.kind == "line":
            at = np.unique(table[panel.x])
            whole = bool(np.all(at == np.round(at)))
            axis.set_major_locator(FixedLocator(at.tolist()) if len(at) <= 6 else MaxNLocator(6, integer=whole))
    axes.set(xlabel=panel.xlabel or panel.x.replace("_", " "), ylabel=panel.ylabel or panel.y.replace("_", " "))
    axes.set_title(panel.title, fontsize="small")
    if axes.get_legend_handles_labels()[0]:
        named = ", ".join(panel.lines).replace("_", " ") if panel.lines != ("method",) else None
        axes.legend(fontsize="x-small", title=panel.legend or named, title_fontsize="x-small")


def _label(key: tuple[Any, ...]) -> str:
    return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in key)


def _free_the_view(figure: "Figure", columns: int) -> None:
    """Where a legend covers data even in its best place, all go beside their plots, and the figure grows by them. Where
    all say the same, only those at the right end of a row stay."""
    figure.draw_without_rendering()
    legends = {axes: legend for axes in figure.axes if (legend := axes.get_legend())}
    if not any(_covers(legend, axes) for axes, legend in legends.items()):
        return
    width = max(legend.get_window_extent().width for legend in legends.values()) / figure.dpi
    beside = columns
    if len({tuple(text.get_text() for text in legend.get_texts()) for legend in legends.values()}) == 1:
        beside = 1
        for axes in figure.axes[:-1]:
            if (figure.axes.index(axes) + 1) % columns and (legend := legends.pop(axes, None)):
                legend.remove()
    for legend in legends.values():
        legend.set_loc("center left")
        legend.set_bbox_to_anchor((1.0, 0.5))
    figure.set_size_inches(figure.get_figwidth() + beside * width, figure.get_figheight())


def _covers(legend: "Legend", axes: "Axes") -> bool:
    """Whether it stands on a line, a box or a band."""
    box = legend.get_window_extent()
    lines = [(thing.get_path(), thing.get_transform(), False) for thing in (*axes.lines, *axes.patches)]
    bands = [(path, band.get_transform(), True) for band in axes.collections for path in band.get_paths()]
    return any(path.transformed(to).intersects_bbox(box, filled) for path, to, filled in lines + bands if len(path))


def _few_ticks(axis: "Axis", at: np.ndarray) -> None:
    """On a logarithmic axis: where something was run, if those are few; else powers of ten; over less than two decades
    1, 2 and 5 of each; over less than a factor of five as on a linear one."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    if 0 < len(at) <= 6:
        axis.set_major_locator(FixedLocator(at.tolist()))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
        return
    low, high = axis.get_data_interval()
    if not 0 < high < 100 * low:
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())
        return
    axis.set_major_locator(MaxNLocator(5) if high < 5 * low else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    if high < 5 * low:
        axis.set_minor_locator(NullLocator())


def _line(axes: "Axes", panel: Panel, rows: Table, label: str, look: Style | None) -> None:
    """The mean over trials, in a band of two standard errors; without a look of its own it is grey. Where runs were
    cut, an open triangle says that the mean is at least so much; a bound is dotted. Marks have a bar in
    place of the band."""
    at = np.unique(rows[panel.x])
    here = [rows.where(**{panel.x: x}) for x in at.tolist()]
    values = [np.asarray(one[panel.y], dtype=np.float64) for one in here]
    middle = np.array([trials.mean() for trials in values])
    error = np.array([trials.std(ddof=1) / np.sqrt(len(trials)) if len(trials) > 1 else 0.0 for trials in values])
    if look is None:
        dashes = style.DASHES[len(label) % len(style.DASHES)]
        axes.plot(at, middle, linewidth=1.2, label=label, color="0.6", linestyle=dashes, zorder=1.5)
        return
    if panel.marks:
        drawn: Json = {**look.line(), "linestyle": ""}
        axes.errorbar(at, middle, 2 * error, label=label, capsize=3, elinewidth=1, **drawn)
        return
    axes.plot(at, middle, linewidth=1.5, label=label, markevery=max(1, len(at) // 10), **look.line())
    if (error > 0).any():
        low, high = _band(middle, 2 * error, "y" in panel.log)
        axes.fill_between(at, low, high, color=look.on_white, alpha=0.2, linewidth=0)
    if panel.bound:
        bound = [float(np.mean(one[panel.bound])) for one in here]
        axes.plot(at, bound, linestyle=":", color=look.on_white, label=f"{label}, bound".removeprefix(", "))
    for column, how in ((panel.cut, CUT), (panel.early, EARLY)):
        if column:
            _mark(axes, at, middle, np.array([float(np.mean(one[column])) for one in here]), look, how)


def _band(middle: np.ndarray, away: np.ndarray, logarithmic: bool) -> tuple[np.ndarray, np.ndarray]:
    """From so much below to as much above; on a logarithmic axis as many times, so that it does not reach zero."""
    if not logarithmic:
        return middle - away, middle + away
    times = np.exp(away / np.abs(middle))
    return middle / times, middle * times


def _mark(axes: "Axes", at: np.ndarray, level: np.ndarray, share: np.ndarray, look: Style, how: str) -> None:
    """Open triangles where runs were cut, or ended early; and one entry in the legend for all of them."""
    known = how in axes.get_legend_handles_labels()[1]
    options: Json = {"linestyle": "", "marker": "^" if how == CUT else "v", "markersize": 9, "markerfacecolor": "none"}
    if (share > 0).any():
        axes.plot(at[share > 0], level[share > 0], color=look.on_white, **options)
        axes.plot([], [], color="0.35", label="" if known else how, **options)


def _boxes(axes: "Axes", panel: Panel, groups: Mapping[str, Table], looks: Mapping[str, Style]) -> None:
    """Quartiles over trials, as the papers draw them, side by side; evenly spaced, whatever the values of `x`."""
    every = sorted({x for rows in groups.values() for x in rows[panel.x].tolist()})
    width = 0.8 / len(groups)
    for place, (label, rows) in enumerate(groups.items()):
        here = [rows.where(**{panel.x: x}) for x in every]
        at = np.arange(len(every)) + (place - (len(groups) - 1) / 2) * width
        alone = max(len(one) for one in here) == 1  # one run has no box: its line has the colour
        axes.boxplot(
            [one[panel.y] for one in here],
            positions=at,
            widths=0.8 * width,
            manage_ticks=False,
            patch_artist=True,
            boxprops={"facecolor": looks[label].on_white, "alpha": 0.6},
            medianprops={"color": looks[label].on_white, "linewidth": 3} if alone else {"color": "black"},
            flierprops={"marker": "x", "markersize": 3},
        )
        axes.plot([], [], color=looks[label].on_white, label=label, linewidth=5, alpha=0.6)
        if panel.cut:
            top = np.array([float(np.max(one[panel.y])) if len(one) else np.nan for one in here])
            share = np.array([float(np.mean(one[panel.cut])) if len(one) else 0.0 for one in here])
            _mark(axes, at, top, share, looks[label], CUT)
    axes.set_xticks(range(len(every)), [f"{x:g}" if isinstance(x, float) else str(x) for x in every])
