"""Three figures, each as a PNG file in memory: how runs went, where they ended, and what a plan expects."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.core.round import History
from sottovoce.experiment import store
from sottovoce.experiment.publishable import private_columns
from sottovoce.experiment.repetitions import Interval, Repetitions, interval, paired
from sottovoce.experiment.result import Result
from sottovoce.report import style
from sottovoce.report.charts import styles_of
from sottovoce.report.numbers import LARGER, MEASURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {
    "objective": "objective (training rows, not released)",
    "test_loss": "loss (test rows)",
    "test_accuracy": "test accuracy",
}


def convergence(
    histories: Mapping[str, History],
    references: Mapping[str, float] | None = None,
    reference_name: str = "optimum",
    title: str = "",
) -> bytes:
    """Objective (or test loss) and test accuracy against rounds, one line for each method.

    Several runs of a method are drawn as their mean inside a band from the least to the largest. `references` gives
    the level of a dotted line per panel, by column name.
    """
    from matplotlib.ticker import MaxNLocator

    recorded = {column for history in histories.values() for column in history.columns}
    loss = next((column for column in ("objective", "test_loss") if column in recorded), None)
    panels = [column for column in (loss, "test_accuracy") if column in recorded]
    check.require(bool(panels), "convergence", "needs a history with an objective, a test loss or a test accuracy")
    with style.new_figure(5.2 * len(panels), 4.0) as figure:
        for place, column in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), place)
            for (name, history), look in zip(histories.items(), style.styles(list(histories)), strict=True):
                if column in history.columns:
                    _mean_and_band(axes, history, column, name, look)
            if references is not None and column in references:
                axes.axhline(references[column], label=reference_name, **style.REFERENCE)
            axes.set(xlabel="rounds", ylabel=_LABELS[column])
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
            axes.margins(x=0.01)
            if column == "test_accuracy":
                style.percent(axes.yaxis)
            axes.legend()
        figure.suptitle(title)
        return style.image(figure)


def of_run(result: Result) -> dict[str, bytes]:
    """The figure of a run folder under its file name, for `store.save`; nothing where there is nothing to draw."""
    if not _LABELS.keys() & result.history.columns.keys():
        return {}
    known = result.metrics.get(LARGER.column)
    levels = {"test_accuracy": known[0]} if known else {}
    return {store.FIGURE: convergence({result.config["algorithm"]["name"]: result.history}, levels, LARGER.words)}


def _mean_and_band(axes: "Axes", history: History, column: str, name: str, look: style.Style) -> None:
    rounds = np.unique(history["round"])
    values = history[column].reshape(len(rounds), -1)
    axes.plot(rounds, values.mean(axis=1), label=name, markevery=max(1, len(rounds) // 10), **look.line())
    if values.shape[1] > 1:
        low, high = values.min(axis=1), values.max(axis=1)
        axes.fill_between(rounds, low, high, color=look.on_white, alpha=0.2, linewidth=0)


def differences(groups: Sequence[Repetitions]) -> bytes | None:
    """Where runs ended (mean and 95 % interval), and their differences to the first, paired by seed.

    None if there is nothing that all of them recorded.
    """
    measures = [measure for measure in MEASURES if all(group.has(measure.column) for group in groups)]
    if not measures:
        return None
    names, looks = [group.name for group in groups], styles_of(groups)
    with style.new_figure(9.6, len(measures) * (0.9 + 0.32 * len(groups))) as figure:
        for row, measure in enumerate(measures):
            scale, column = (100.0 if measure.percent else 1.0), measure.column
            private = any(column in private_columns(group.first) for group in groups)
            left, right = (figure.add_subplot(len(measures), 2, 2 * row + side) for side in (1, 2))
            _whiskers(left, [interval(group.last(column)) for group in groups], names, looks, scale)
            left.set_xlabel(f"{measure.words}{', %' if measure.percent else ''}{' (not released)' if private else ''}")
            apart = [paired(groups[0], group, column) for group in groups[1:]]
            _whiskers(right, apart, names[1:], looks[1:], scale)
            right.axvline(0.0, **style.REFERENCE)
            right.set_xlabel(f"difference to {names[0]}{', points' if measure.percent else ''}")
        return style.image(figure)


def _whiskers(
    axes: "Axes", intervals: Sequence[Interval | None], names: Sequence[str], looks: Sequence[style.Style], scale: float
) -> None:
    for place, (one, look) in enumerate(zip(intervals, looks, strict=True)):
        if one is not None and np.isfinite([one.low, one.high]).all():
            reach = [[scale * (one.mean - one.low)], [scale * (one.high - one.mean)]]
            marker = style.MARKERS[look.marker]
            axes.errorbar([scale * one.mean], [-place], xerr=reach, color=look.on_white, fmt=marker, capsize=4)
    axes.set_yticks([-place for place in range(len(names))], names)
    axes.set_ylim(-len(names) + 0.4, 0.6)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.grid(visible=False, axis="y")


_SHOWN_METHODS = 6  # of a plan: the chosen one and the best others


def plan(numbers: Json) -> bytes:
    """What a plan expects to lose to privacy, by budget, and what each method reached, by rounds.

    `numbers` is what `planning.words.to_dict` gives.
    """
    with style.new_figure(10.4, 4.0) as figure:
        left, right = (figure.add_subplot(1, 2, place) for place in (1, 2))
        _by_budget(left, numbers)
        _by_rounds(right, numbers)
        for axes in (left, right):
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # lines may be anywhere
            axes.minorticks_off()
        figure.suptitle("On synthetic rows of this shape: a forecast, not a promise")
        return style.image(figure)


def _by_budget(axes: "Axes", numbers: Json) -> None:
    (look,), best = style.styles([numbers["algorithm"]["name"]]), numbers["without_privacy"]
    budgets = [point["epsilon"] for point in numbers["curve"]]
    losses = [100 * (best - point["expected"]) for point in numbers["curve"]]
    axes.plot(budgets, losses, label="the chosen setting", **look.line())
    yours, others = [numbers["privacy"]["epsilon"]], [100 * loss for loss in numbers["losses_in_other_worlds"]]
    axes.plot(yours, [100 * numbers["expected_loss"]], "o", color="black", label="your budget")
    axes.plot(yours * len(others), others, "x", color="black", label="on other synthetic rows")
    if numbers["target"] is not None:
        axes.axhline(100 * (best - numbers["target"]), label="the target", **style.REFERENCE)
    axes.set_xscale("log")
    axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
    axes.set_ylim(bottom=min(0.0, *losses))
    axes.set(xlabel="total ε", ylabel=f"expected loss of {numbers['measure']}, points")


def _by_rounds(axes: "Axes", numbers: Json) -> None:
    tried = numbers["tried"][:_SHOWN_METHODS]
    methods = [trial["algorithm"]["name"] for trial in tried]
    for trial, look in zip(tried, style.styles(methods), strict=True):
        axes.plot([trial["rounds"]], [trial["mean"]], label=trial["algorithm"]["name"], **look.line())
    axes.axhline(numbers["without_privacy"], label="without privacy", **style.REFERENCE)
    axes.axhline(numbers["constant"], label="a constant prediction", **style.REFERENCE)
    axes.set_xscale("log")
    ticks = sorted({trial["rounds"] for trial in tried})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    style.percent(axes.yaxis)
    axes.set(xlabel="rounds (constants by rule)")
    axes.set_ylabel(f"expected {numbers['measure']} at ε = {numbers['privacy']['epsilon']:g}")
