"""Draws an experiment's panels into one PNG and one SVG file, the same bytes for the same data."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.experiment import whole_files
from sottovoce.report import style
from sottovoce.report.style import Style
from sottovoce.reproduce.experiment import Experiment, Panel, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

MANY = 8  # lines: from here on bands are faint


def draw(experiment: Experiment, table: Table, out: Path) -> None:
    """Write `out/NAME.png` and `out/NAME.svg`."""
    panels = experiment.panels
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    with style.new_figure(4.6 * columns, 3.5 * rows, dpi=100) as figure:
        for place, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, place)
            _panel(axes, panel, table.where(**panel.where), panel.references(table))
        _free_the_view(figure, columns)
        figure.suptitle(_title(f"{experiment.paper}: {experiment.shows}", 55 * columns), fontsize="medium")
        for kind in ("png", "svg"):
            whole_files.replace_file(out / f"{experiment.name}.{kind}", style.image(figure, kind))


def _title(text: str, width: int) -> str:
    """In as few lines as fit, about equally long."""
    lines = -(-len(text) // width)
    return textwrap.fill(text, min(width, len(text) // lines + 8))


def _panel(axes: "Axes", panel: Panel, table: Table, references: Mapping[str, float]) -> None:
    if panel.draw is not None:
        table = table.averaged(panel.y, panel.x, *panel.lines, draw=panel.draw(table))
    groups = {
        ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in key): rows
        for key, rows in table.each(*panel.lines)
    }
    for place, ((label, rows), look) in enumerate(zip(groups.items(), style.styles(list(groups)), strict=True)):
        at = np.unique(rows[panel.x])
        values = [np.asarray(rows.where(**{panel.x: x})[panel.y], dtype=np.float64) for x in at.tolist()]
        if panel.kind == "box":
            _boxes(axes, at, values, label, look, place, len(groups))
        else:
            _line(axes, at, values, label, None if label in panel.grey else look, faint=len(groups) > MANY)
    if panel.paper:
        axes.plot(list(panel.paper), list(panel.paper.values()), "x", color="black", label="paper")
    for name, level in references.items():
        axes.axhline(level, label=name, **style.REFERENCE)
    if "x" in panel.log:
        axes.set_xscale("log")
        _few_ticks(axes.xaxis)
    if "y" in panel.log:
        axes.set_yscale("log")
    axes.set(xlabel=panel.xlabel or panel.x.replace("_", " "), ylabel=panel.ylabel or panel.y.replace("_", " "))
    axes.set_title(panel.title, fontsize="small")
    if axes.get_legend_handles_labels()[0]:
        named = ", ".join(panel.lines) if panel.lines != ("method",) else None
        axes.legend(fontsize="x-small", title=named, title_fontsize="x-small")


def _free_the_view(figure: "Figure", columns: int) -> None:
    """Where a legend covers data even in its best place, all go beside their plots, and the figure grows by them."""
    figure.draw_without_rendering()
    legends = {axes: legend for axes in figure.axes if (legend := axes.get_legend())}
    if any(_covers(legend, axes) for axes, legend in legends.items()):
        for legend in legends.values():
            legend.set_loc("center left")
            legend.set_bbox_to_anchor((1.0, 0.5))
        width = max(legend.get_window_extent().width for legend in legends.values()) / figure.dpi
        figure.set_size_inches(figure.get_figwidth() + columns * width, figure.get_figheight())


def _covers(legend: "Legend", axes: "Axes") -> bool:
    """Whether it stands on a line, a box or a band."""
    box = legend.get_window_extent()
    lines = [(thing.get_path(), thing.get_transform(), False) for thing in (*axes.lines, *axes.patches)]
    bands = [(path, band.get_transform(), True) for band in axes.collections for path in band.get_paths()]
    return any(path.transformed(to).intersects_bbox(box, filled) for path, to, filled in lines + bands if len(path))


def _few_ticks(axis: "Axis") -> None:
    """Over less than two decades: 1, 2 and 5 of each, where labels of all would overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_data_interval()
    if 0 < high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _line(axes: "Axes", at: np.ndarray, values: list[np.ndarray], label: str, look: Style | None, faint: bool) -> None:
    """The mean over trials, in a band of two standard errors; without a look of its own it is grey."""
    middle = np.array([trials.mean() for trials in values])
    error = np.array([trials.std(ddof=1) / np.sqrt(len(trials)) if len(trials) > 1 else 0.0 for trials in values])
    if look is None:
        dashes = style.DASHES[len(label) % len(style.DASHES)]
        axes.plot(at, middle, linewidth=1.2, label=label, color="0.6", linestyle=dashes, zorder=1.5)
        return
    axes.plot(at, middle, linewidth=1.5, label=label, markevery=max(1, len(at) // 10), **look.line())
    if (error > 0).any():
        band = {"color": look.on_white, "alpha": 0.07 if faint else 0.2, "linewidth": 0}
        axes.fill_between(at, middle - 2 * error, middle + 2 * error, **band)


def _boxes(
    axes: "Axes", at: np.ndarray, values: list[np.ndarray], label: str, look: Style, place: int, of: int
) -> None:
    """Quartiles over trials, as the papers draw them."""
    width = 0.8 * (float(np.diff(at).min()) if len(at) > 1 else 1.0) / of
    axes.boxplot(
        values,
        positions=at + (place - (of - 1) / 2) * width,
        widths=0.8 * width,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": look.on_white, "alpha": 0.6},
        medianprops={"color": "black"},
        flierprops={"marker": "x", "markersize": 3},
    )
    axes.plot([], [], color=look.on_white, label=label)
    axes.set_xticks(at)
