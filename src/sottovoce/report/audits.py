"""What audits look like: tables on a terminal, the page `docs/audit.md` with its figure, and a membership curve."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Json
from sottovoce.report import style
from sottovoce.report.tables import emphasised, print_table

if TYPE_CHECKING:
    from rich.text import Text

    from sottovoce.auditing.finding import Check
    from sottovoce.auditing.one_run import Curve
    from sottovoce.auditing.papers import Row

_HOW = {
    "exact": "the law of what is seen is known: computed, no sampling error",
    "computed": "the power of the best linear score, computed: no sampling error",
    "ratio": "true likelihood ratios of sampled runs, 95 % confidence",
    "score": "a learnt score of sampled runs, 95 % confidence",
}


def print_rows(rows: Sequence["Row"]) -> None:
    """The table of `sottovoce audit --papers`."""
    cells = ([row.method, row.claim, f"{row.claimed:.4g}", row.shown, _verdict(row.verdict)] for row in rows)
    print_table(["method", "claim", "claimed ε", "found ε", "verdict"], cells, {"method", "claim", "verdict"})


def print_checks(checks: Sequence["Check"]) -> None:
    """What was looked at besides ε."""
    headings = ["path", "check", "seen", "promised", "verdict"]
    cells = ([one.path, one.name, one.seen, one.promised, _verdict(one.verdict)] for one in checks)
    print_table(headings, cells, headings)


def _verdict(verdict: str) -> "str | Text":
    return verdict if verdict == "not refuted" else emphasised(verdict, alarming=True)


def markdown(rows: Sequence["Row"]) -> str:
    """The page `docs/audit.md`."""
    lines = "".join(
        f"| {row.method} | {row.claim} | {row.claimed:.4g} | {row.shown} | {row.how} | "
        f"{'**refuted**' if row.refuted else row.verdict} |\n"
        for row in rows
    )
    how = "\n".join(f"* **{name}**: {words}." for name, words in _HOW.items())
    return packaged_text("report", "audit.md").format(rows=lines, how=how)


def figure(rows: Sequence["Row"]) -> bytes:
    """Found against claimed ε, one line per row, as PNG. Colours tell verdicts here, not methods."""
    fine, refuted = style.ON_WHITE[:2]
    wall = 4 * max((row.found for row in rows if math.isfinite(row.found)), default=1.0)
    with style.new_figure(9.0, 1.2 + 0.27 * len(rows)) as drawn:
        axes = drawn.add_subplot()
        for place, row in enumerate(reversed(rows)):
            epsilon = max(min(row.found, wall), 0.02)
            colour = refuted if row.refuted else fine
            axes.plot([row.claimed, epsilon], [place, place], color=colour, linewidth=1.4, zorder=1)
            axes.plot(row.claimed, place, "|", color="black", markersize=11, markeredgewidth=2, zorder=3)
            axes.plot(epsilon, place, "o" if math.isfinite(row.found) else ">", color=colour, markersize=6, zorder=2)
        axes.set_yticks(range(len(rows)), [f"{row.method}: {row.claim}" for row in reversed(rows)], fontsize=7)
        axes.set(xscale="log", xlabel="ε   ( | claimed;  ● found: at least, or exactly;  ▶ infinite )")
        axes.set_title("Refuted claims in orange, others in blue", loc="left", fontsize=9)
        axes.grid(visible=False, axis="y")
        return style.image(drawn)


def membership_figure(curve: "Curve", summary: Json) -> bytes:
    """The curve on logarithmic axes, with the diagonal and what (ε, δ) allows, as PNG."""
    method = summary["method"]
    with style.new_figure(4.6, 4.4) as drawn:
        axes = drawn.add_subplot()
        least = 1 / max(summary["members"], summary["others"])
        false, true = (np.maximum(part, least) for part in (curve.false_positives, curve.true_positives))
        (look,) = style.styles([method])
        axes.plot(false, true, color=look.on_white, label=f"{method}, area {curve.area:.3f}")
        rates = np.geomspace(least, 1, 200)
        axes.plot(rates, rates, label="guessing", **style.REFERENCE)
        if summary["epsilon"] is not None:
            allowed = np.minimum(1, np.exp(min(summary["epsilon"], 50)) * rates + summary["delta"])
            label = f"most that ε = {summary['epsilon']:.3g} allows"
            axes.plot(rates, allowed, color="0.35", linestyle="--", label=label)
        axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        axes.legend(loc="lower right", fontsize=8)
        return style.image(drawn)
