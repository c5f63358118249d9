"""What audits look like: the table of `--papers` on a terminal and as Markdown, its figure, and a membership curve."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.report import tables as show
from sottovoce.report.figures import COLOURS

if TYPE_CHECKING:
    from sottovoce.auditing.finding import Check
    from sottovoce.auditing.membership import Curve
    from sottovoce.auditing.papers import Row

_HOW = {
    "exact": "the law of what is seen is known: computed, no sampling error",
    "computed": "the power of the best linear score, computed: no sampling error",
    "ratio": "true likelihood ratios of sampled runs, 95 % confidence",
    "score": "a learnt score of sampled runs, 95 % confidence",
}

_CHECKS = """\
## What is looked at besides

An ε that is met says little if noise is used twice or a charge is left out. So `sottovoce audit METHOD` also plays the
true code with its own noise, listens at the oracle, and holds what it hears against numbers of its own: sensitivities
from the proofs, noise from closed formulas, ε from a second accountant. Nothing is taken from the code under audit.

| what | seen in |
|---|---|
| noise has the promised size, mean and law | answer − exact answer, per client, coordinate and question |
| noise is new every time | no vectors alike; no correlation of runs, rounds, questions, clients, coordinates |
| noise does not depend on the answer | signs of noise against the exact answer |
| one record changes no more than promised | exact answers of two neighbours, with rows up to 1e20 long |
| batches are drawn as promised | exact gradients of records that have a coordinate each: rate, size, drawn anew |
| every answer is charged, as what it was | answers heard against the ledger, after asking for twice the rounds |
| noise is bound to rows, answer, settings and engine | path `seeds`: one seed, two data sets, settings or engines |
| the printed ε is not too small | the second accountant, on the noise that was seen |
| secure answers tell nothing by their low bits | they lie on a public grid, and their last 8 bits are fair coins |

`--path NAME` takes another way through the code, `--all-paths` every one that the method has: `variants`, `float32`,
`kernel`, `secure`, `client`, `add-remove`, `laplace`, `fixed-size` and `poisson` (secret batches), `columns`,
`ledgers`, `resume`, `seeds`. Chance plays a part in some tests; all of them together call an honest library a liar in
fewer than one of a million audits.

Do these checks catch anything? [Planted bugs](mutants.md) lists a hundred one-line privacy bugs, and what catches each.

The verdict is one of three, and the exit code tells which: *not refuted* (0); *refuted* (7), also for a paper's claim
that this page says is false; *suspicious* (8): nothing breaks the claim, but an honest mechanism looks otherwise, such
as an exact ε below half of the claim on a data set made to show all of it, or more noise than the promise needs.

What this cannot see: what an answer depends on besides its question (that is the game's part); noise of a published
method that joins inside its local steps; a generator that is weak in ways these tests do not look for.
"""


def print_rows(rows: Sequence["Row"]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    table.add_column("claim")
    for heading in ("claimed ε", "found ε"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        verdict = Text(row.verdict, style="bold red" if row.refuted else "")
        table.add_row(row.method, Text(row.claim), f"{row.claimed:.4g}", row.shown, verdict)
    show.console().print(table)


def print_checks(checks: Sequence["Check"]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("path", "check", "seen", "promised", "verdict"):
        table.add_column(heading)
    for one in checks:
        verdict = Text(one.verdict, style="" if one.verdict == "not refuted" else "bold red")
        table.add_row(one.path, one.name, Text(one.seen), Text(one.promised), verdict)
    show.console().print(table)


def markdown(rows: Sequence["Row"]) -> str:
    """The page `docs/audit.md`."""
    lines = [
        "# What messages give away",
        "",
        "An accountant says *at most*; an audit says *at least*. Where *at least* exceeds a claimed ε, the claim is",
        "false. Every row was found by this library's own algorithm files, on two neighbouring data sets (linear",
        "worst-case canaries: what differential privacy promises for), by `sottovoce audit --papers`.",
        "",
        "![Found against claimed ε](audit.png)",
        "",
        "| method | claim | claimed ε | found ε | how | verdict |",
        "|---|---|---:|---:|---|---|",
        *(
            f"| {row.method} | {row.claim} | {row.claimed:.4g} | {row.shown} | {row.how} | "
            f"{'**refuted**' if row.refuted else row.verdict} |"
            for row in rows
        ),
        "",
        *(f"* **{name}**: {words}." for name, words in _HOW.items()),
        "",
        "*Refuted* settles a claim: a pair of data sets was found that messages tell apart better than it allows. It",
        "says nothing about the damage on typical data. *Not refuted* proves nothing: what holds is what is proven.",
        "In `proven` rows the observer sees every noisy answer, which is more than the server does; an ε that is met",
        "exactly means that no noise is wasted.",
        "",
        _CHECKS,
    ]
    return "\n".join(lines)


def figure(rows: Sequence["Row"]) -> bytes:
    """Found against claimed ε, one line per row, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9.0, 1.2 + 0.27 * len(rows)), dpi=150, layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    finite = [row.found for row in rows if math.isfinite(row.found)]
    wall = 4 * max(finite, default=1.0)
    for place, row in enumerate(reversed(rows)):
        found = max(min(row.found, wall), 0.02)
        colour = COLOURS[1] if row.refuted else COLOURS[0]
        axes.plot([row.claimed, found], [place, place], color=colour, linewidth=1.4, zorder=1)
        axes.plot(row.claimed, place, "|", color="black", markersize=11, markeredgewidth=2, zorder=3)
        axes.plot(found, place, ">" if not math.isfinite(row.found) else "o", color=colour, markersize=6, zorder=2)
    axes.set_yticks(range(len(rows)), [f"{row.method}: {row.claim}" for row in reversed(rows)], fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("ε   ( | claimed;  ● found: at least, or exactly;  ▶ infinite )")
    axes.set_title("Refuted claims in orange, others in blue", loc="left", fontsize=9)
    axes.grid(True, axis="x", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return _png(drawn)


def membership_figure(curve: "Curve", summary: dict[str, Any]) -> bytes:
    """The curve on logarithmic axes, with the diagonal and what (ε, δ) allows, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(4.6, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    least = 1 / max(summary["members"], summary["others"])
    false, true = (np.maximum(part, least) for part in (curve.false_positives, curve.true_positives))
    axes.plot(false, true, color=COLOURS[0], label=f"{summary['method']}, area {curve.area:.3f}")
    line = np.geomspace(least, 1, 200)
    axes.plot(line, line, color="0.5", linestyle=":", label="guessing")
    if summary["epsilon"] is not None:
        allowed = np.minimum(1, np.exp(min(summary["epsilon"], 50)) * line + summary["delta"])
        axes.plot(
            line, allowed, color=COLOURS[1], linestyle="--", label=f"most that ε = {summary['epsilon']:.3g} allows"
        )
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    return _png(drawn)


def _png(drawn: Any) -> bytes:
    file = io.BytesIO()
    drawn.savefig(file, format="png", metadata={"Software": ""})
    return file.getvalue()
