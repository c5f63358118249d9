"""Two figures: how a run, or several, got where they are; and where several ended, with how sure that is."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.round import History
from sottovoce.experiment import store

if TYPE_CHECKING:
    from sottovoce.experiment.repetitions import Interval, Repetitions
    from sottovoce.experiment.result import Result

# Okabe and Ito's colours, told apart by colour-blind readers too; every method also has its own dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_PANELS = {
    "objective": "objective (training rows, not released)",
    "test_loss": "loss (test rows)",
    "test_accuracy": "test accuracy",
}


def of_run(result: "Result") -> dict[str, bytes]:
    """The figure that a run folder keeps, by its name; none where nothing was recorded."""
    if not len(result.history):
        return {}
    drawn = io.BytesIO()
    convergence({result.config["algorithm"]["name"]: result.history}, drawn)
    return {store.FIGURE: drawn.getvalue()}


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


def differences(
    groups: "Sequence[Repetitions]", measures: Sequence[tuple[str, str, str]], path: str | Path | IO[bytes]
) -> None:
    """Draw where runs ended (mean and 95 % interval) and their differences to the first, paired by seed, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from sottovoce.experiment.publishable import private_columns
    from sottovoce.experiment.repetitions import interval, paired

    figure = Figure(figsize=(9.6, len(measures) * (0.9 + 0.32 * len(groups))), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for row, (column, words, _) in enumerate(measures):
        scale = 100.0 if column == "test_accuracy" else 1.0
        ends = [interval(scale * group.last(column)) for group in groups]
        apart = [paired(groups[0], group, column) for group in groups[1:]]
        private = any(column in private_columns(group.first) for group in groups)
        unit = f"{words}{', %' if scale > 1 else ''}{' (not released)' if private else ''}"
        left, right = (figure.add_subplot(len(measures), 2, 2 * row + side) for side in (1, 2))
        _whiskers(left, ends, [group.name for group in groups], 1.0, first=0)
        left.set_xlabel(unit)
        _whiskers(right, apart, [group.name for group in groups[1:]], scale, first=1)
        right.axvline(0.0, color="0.35", linewidth=1.2, linestyle=":")
        right.set_xlabel(f"difference to {groups[0].name}{', points' if scale > 1 else ''}")
    figure.savefig(path, format="png", metadata={"Software": None})


def plan(said: Mapping[str, Any], path: str | Path | IO[bytes]) -> None:
    """Draw what a plan expects to lose to privacy, by budget, and what each method reached, by rounds, as a PNG.

    `said` is what `plan_words.to_dict` gives.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(10.4, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = (figure.add_subplot(1, 2, place) for place in (1, 2))
    budgets = [point["epsilon"] for point in said["curve"]]
    losses = [100 * (said["without_privacy"] - point["expected"]) for point in said["curve"]]
    left.plot(budgets, losses, color=COLOURS[0], linewidth=1.8, marker="o", label="the chosen setting")
    here = [said["privacy"]["epsilon"]]
    left.plot(here, [100 * said["expected_loss"]], "o", color=COLOURS[1], label="your budget")
    others = [100 * loss for loss in said["losses_in_other_worlds"]]
    left.plot(here * len(others), others, "x", color=COLOURS[1], label="in other made-up worlds")
    if said["target"] is not None:
        allowed = 100 * (said["without_privacy"] - said["target"])
        left.axhline(allowed, color="0.35", linewidth=1.2, linestyle=":", label="the target")
    left.set_xscale("log")
    left.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    left.set_ylim(bottom=min(0.0, *losses))
    left.set_xlabel("total ε")
    left.set_ylabel(f"expected loss of {said['measure']}, points")
    names = sorted({trial["algorithm"]["name"] for trial in said["tried"]})
    for number, name in enumerate(names):
        own = [trial for trial in said["tried"] if trial["algorithm"]["name"] == name]
        rounds = sorted({trial["rounds"] for trial in own})
        best = [max(trial["mean"] for trial in own if trial["rounds"] == k) for k in rounds]
        style: Any = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}
        right.plot(rounds, best, linewidth=1.8, marker="o", label=name, **style)
    right.axhline(said["without_privacy"], color="0.35", linewidth=1.2, linestyle=":", label="without privacy")
    right.set_xscale("log")
    ticks = sorted({trial["rounds"] for trial in said["tried"]})
    right.set_xticks(ticks, [str(tick) for tick in ticks])
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    right.set_xlabel("rounds (best step and clip of those tried)")
    right.set_ylabel(f"expected {said['measure']} at ε = {said['privacy']['epsilon']:g}")
    for axes in (left, right):
        axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # lines may be anywhere
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(True, color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("On made-up rows of this shape: a forecast, not a promise")
    figure.savefig(path, format="png", metadata={"Software": None})


def _whiskers(axes: Any, over: "Sequence[Interval | None]", names: Sequence[str], scale: float, first: int) -> None:
    for place, one in enumerate(over):
        if one is not None and np.isfinite([one.low, one.high]).all():
            colour = COLOURS[(place + first) % len(COLOURS)]
            reach = [[scale * (one.mean - one.low)], [scale * (one.high - one.mean)]]
            axes.errorbar([scale * one.mean], [-place], xerr=reach, color=colour, fmt="o", capsize=4, linewidth=1.8)
    axes.set_yticks([-place for place in range(len(names))], names)
    axes.set_ylim(-len(names) + 0.4, 0.6)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.grid(True, axis="x", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _columns(histories: Mapping[str, History]) -> list[str]:
    """What there is to draw: one loss, and the accuracy."""
    recorded = {column for history in histories.values() for column in history.columns}
    loss = next((column for column in ("objective", "test_loss") if column in recorded), None)
    return [column for column in (loss, "test_accuracy") if column in recorded]


def _line(axes: Any, history: History, column: str, name: str, number: int) -> None:
    rounds = np.unique(history["round"])
    runs = len(np.unique(history["run"]))
    values = history[column].reshape(len(rounds), runs)
    colour, dashes = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    axes.plot(rounds, values.mean(axis=1), color=colour, linestyle=dashes, linewidth=1.8, label=name)
    if runs > 1:
        axes.fill_between(rounds, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0)
