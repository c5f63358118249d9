"""One figure: how a run, or several, got where they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.round import History

# Okabe and Ito's colours, told apart by colour-blind readers too; every method also has its own dashes.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_PANELS = {
    "objective": "objective (training rows, not released)",
    "test_loss": "loss (test rows)",
    "test_accuracy": "test accuracy",
}


def convergence(
    histories: Mapping[str, History],
    path: str | Path | IO[bytes],
    references: Mapping[str, float] | None = None,
    reference_name: str = "optimum",
    title: str = "",
) -> None:
    """Draw objective (or test loss) and test accuracy against rounds into a PNG file.

    Several runs of a method are drawn as their mean inside a band from the least to the largest. `references` gives
    the level of a dotted line per panel, by column name.
    """
    # Not pyplot: that keeps figures alive and looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    panels = _columns(histories)
    check.require(bool(panels), "convergence", "needs a history with an objective, a test loss or a test accuracy")
    figure = Figure(figsize=(5.2 * len(panels), 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for place, column in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for number, (name, history) in enumerate(histories.items()):
            if column in history.columns:
                _line(axes, history, column, name, number)
        if references is not None and column in references:
            axes.axhline(references[column], color="0.35", linewidth=1.2, linestyle=":", label=reference_name)
        axes.set_xlabel("rounds")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.set_ylabel(_PANELS[column])
        axes.grid(True, color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
        if column == "test_accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        axes.legend(frameon=False)
    if title:
        figure.suptitle(title)
    figure.savefig(path, format="png", metadata={"Software": None})


def _columns(histories: Mapping[str, History]) -> list[str]:
    """What there is to draw: one loss, and the accuracy."""
    recorded = {column for history in histories.values() for column in history.columns}
    loss = next((column for column in ("objective", "test_loss") if column in recorded), None)
    return [column for column in (loss, "test_accuracy") if column in recorded]


def _line(axes: Any, history: History, column: str, name: str, number: int) -> None:
    rounds = np.unique(history["round"])
    runs = len(np.unique(history["run"]))
    values = history[column].reshape(len(rounds), runs)
    colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    axes.plot(rounds, values.mean(axis=1), color=colour, linestyle=dashes, linewidth=1.8, label=name)
    if runs > 1:
        axes.fill_between(rounds, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0)
