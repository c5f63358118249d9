"""Draws an experiment's panels into one PNG and one SVG file, the same bytes for the same data."""

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.experiment import whole_files
from sottovoce.report import figures as plot
from sottovoce.reproduce.experiment import Experiment, Panel, Table

MANY = 8  # lines: from here on bands are faint


def draw(experiment: Experiment, table: Table, out: Path) -> None:
    """Write `out/NAME.png` and `out/NAME.svg`."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = experiment.panels
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.5 * rows), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, place)
        _panel(axes, panel, table.where(**panel.where), panel.references(table))
    _free_the_view(figure, columns)
    figure.suptitle(_title(f"{experiment.paper}: {experiment.shows}", 55 * columns), fontsize="medium")
    with rc_context({"svg.hashsalt": experiment.name}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            sink = io.BytesIO()
            figure.savefig(sink, format=kind, metadata=metadata)
            whole_files.replace_file(out / f"{experiment.name}.{kind}", sink.getvalue())


def _title(text: str, width: int) -> str:
    """In as few lines as fit, about equally long."""
    lines = -(-len(text) // width)
    return textwrap.fill(text, min(width, len(text) // lines + 8))


def _panel(axes: Any, panel: Panel, table: Table, references: Mapping[str, float]) -> None:
    if panel.draw is not None:
        table = table.averaged(panel.y, panel.x, *panel.lines, draw=panel.draw(table))
    groups = list(table.each(*panel.lines))
    for number, (key, rows) in enumerate(groups):
        label = ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in key)
        colour = plot.COLOURS[number % len(plot.COLOURS)]
        (_boxes if panel.kind == "box" else _line)(axes, panel, rows, label, colour, number, len(groups))
    if panel.paper:
        axes.plot(list(panel.paper), list(panel.paper.values()), "x", color="black", label="paper")
    for name, level in references.items():
        axes.axhline(level, color="0.35", linewidth=1.2, linestyle=":", label=name)
    if "x" in panel.log:
        axes.set_xscale("log")
        _few_ticks(axes.xaxis)
    if "y" in panel.log:
        axes.set_yscale("log")
    axes.set_xlabel(panel.xlabel or panel.x.replace("_", " "))
    axes.set_ylabel(panel.ylabel or panel.y.replace("_", " "))
    axes.set_title(panel.title, fontsize="small")
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        named = ", ".join(panel.lines) if panel.lines != ("method",) else None
        axes.legend(frameon=False, fontsize="x-small", title=named, title_fontsize="x-small")


def _free_the_view(figure: Any, columns: int) -> None:
    """Where a legend covers data even in its best place, all go beside their plots, and the figure grows by them."""
    figure.draw_without_rendering()
    legends = {axes: axes.get_legend() for axes in figure.axes if axes.get_legend()}
    if any(_covers(legend, axes) for axes, legend in legends.items()):
        for legend in legends.values():
            legend.set_loc("center left")
            legend.set_bbox_to_anchor((1.0, 0.5))
        width = max(legend.get_window_extent().width for legend in legends.values()) / figure.dpi
        figure.set_size_inches(figure.get_figwidth() + columns * width, figure.get_figheight())


def _covers(legend: Any, axes: Any) -> bool:
    """Whether it stands on a line, a box or a band."""
    box = legend.get_window_extent()
    lines = [(thing.get_path(), thing.get_transform(), False) for thing in (*axes.lines, *axes.patches)]
    bands = [(path, band.get_transform(), True) for band in axes.collections for path in band.get_paths()]
    return any(path.transformed(to).intersects_bbox(box, filled) for path, to, filled in lines + bands if len(path))


def _few_ticks(axis: Any) -> None:
    """Over less than two decades: 1, 2 and 5 of each, where labels of all would overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_data_interval()
    if 0 < high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _line(axes: Any, panel: Panel, rows: Table, label: str, colour: str, number: int, of: int) -> None:
    """The mean over trials, in a band of two standard errors."""
    at = np.unique(rows[panel.x])
    values = [np.asarray(rows.where(**{panel.x: x})[panel.y], dtype=np.float64) for x in at.tolist()]
    middle = np.array([v.mean() for v in values])
    error = np.array([v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else 0.0 for v in values])
    dashes = plot.DASHES[number % len(plot.DASHES)]
    few = len(at) <= 15
    axes.plot(at, middle, color=colour, linestyle=dashes, marker="." if few else "", linewidth=1.5, label=label)
    if (error > 0).any():
        alpha = 0.2 if of <= MANY else 0.07
        axes.fill_between(at, middle - 2 * error, middle + 2 * error, color=colour, alpha=alpha, linewidth=0)


def _boxes(axes: Any, panel: Panel, rows: Table, label: str, colour: str, number: int, of: int) -> None:
    """Quartiles over trials, as the papers draw them."""
    at = np.unique(rows[panel.x])
    gap = float(np.diff(at).min()) if len(at) > 1 else 1.0
    width = 0.8 * gap / of
    values = [np.asarray(rows.where(**{panel.x: x})[panel.y], dtype=np.float64) for x in at.tolist()]
    axes.boxplot(
        values,
        positions=at + (number - (of - 1) / 2) * width,
        widths=0.8 * width,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": colour, "alpha": 0.6},
        medianprops={"color": "black"},
        flierprops={"marker": "x", "markersize": 3},
    )
    axes.plot([], [], color=colour, label=label)
    axes.set_xticks(at)
