"""What audits look like: tables on a terminal, the page `docs/audit.md` with its figure, and a membership curve."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core.toml import Json
from sottovoce.report import style
from sottovoce.report.style import ON_WHITE, REFERENCE, styles
from sottovoce.report.tables import emphasised, print_table

if TYPE_CHECKING:
    from rich.text import Text

    from sottovoce.auditing.finding import Check
    from sottovoce.auditing.membership import Curve
    from sottovoce.auditing.papers import Row

_HOW = {
    "exact": "the law of what is seen is known: computed, no sampling error",
    "computed": "the power of the best linear score, computed: no sampling error",
    "ratio": "true likelihood ratios of sampled runs, 95 % confidence",
    "score": "a learnt score of sampled runs, 95 % confidence",
}

_PAGE = """\
# What messages give away

An accountant says *at most*; an audit says *at least*. Where *at least* exceeds a claimed ε, the claim is
false. Every row was found by this library's own algorithm files, on two neighbouring data sets (linear
worst-case canaries: what differential privacy promises for), by `sottovoce audit --papers`.

![Found against claimed ε](audit.png)

| method | claim | claimed ε | found ε | how | verdict |
|---|---|---:|---:|---|---|
{rows}
{how}

*Refuted* settles a claim: a pair of data sets was found that messages tell apart better than it allows. It
says nothing about the damage on typical data. *Not refuted* proves nothing: what holds is what is proven.
In `proven` rows the observer sees every noisy answer, which is more than the server does; an ε that is met
exactly means that no noise is wasted.

## What else is checked

An ε that is met says little if noise is used twice or an answer is not charged. So `sottovoce audit METHOD` also runs
the true code with its own noise, listens at the oracle, and compares what it hears with its own numbers: sensitivities
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
| low bits of secure answers reveal nothing | they lie on a public grid; the last 8 bits are fair coins |

`--path NAME` takes another way through the code, `--all-paths` every one that the method has: `variants`, `float32`,
`kernel`, `secure`, `client`, `add-remove`, `laplace`, `fixed-size` and `poisson` (secret batches), `columns`,
`ledgers`, `resume`, `seeds`. Some tests depend on chance; all of them together accuse an honest library in fewer than
one of a million audits.

Do these checks catch anything? [Planted bugs](mutants.md) lists a hundred one-line privacy bugs, and what catches each.

The verdict is one of three, and the exit code says which: *not refuted* (0); *refuted* (7), also for a paper's claim
that this page says is false; *suspicious* (8): nothing breaks the claim, but an honest mechanism looks different, for
example an exact ε below half of the claim on a data set made to show all of it, or more noise than the promise needs.

What this cannot see: what an answer depends on besides its question (the game above sees that); noise that a published
method adds inside its local steps; a generator that is weak in ways these tests do not look for.
"""


def print_rows(rows: Sequence["Row"]) -> None:
    """The table of `sottovoce audit --papers`."""
    cells = (
        [row.method, row.claim, f"{row.claimed:.4g}", row.shown, _verdict(row.verdict, row.refuted)] for row in rows
    )
    print_table(["method", "claim", "claimed ε", "found ε", "verdict"], cells, {"method", "claim", "verdict"})


def print_checks(checks: Sequence["Check"]) -> None:
    """What was looked at besides ε."""
    headings = ["path", "check", "seen", "promised", "verdict"]
    cells = (
        [one.path, one.name, one.seen, one.promised, _verdict(one.verdict, one.verdict != "not refuted")]
        for one in checks
    )
    print_table(headings, cells, headings)


def _verdict(verdict: str, alarming: bool) -> "str | Text":
    return emphasised(verdict, alarming=True) if alarming else verdict


def markdown(rows: Sequence["Row"]) -> str:
    """The page `docs/audit.md`."""
    lines = "".join(
        f"| {row.method} | {row.claim} | {row.claimed:.4g} | {row.shown} | {row.how} | "
        f"{'**refuted**' if row.refuted else row.verdict} |\n"
        for row in rows
    )
    return _PAGE.format(rows=lines, how="\n".join(f"* **{name}**: {words}." for name, words in _HOW.items()))


def figure(rows: Sequence["Row"]) -> bytes:
    """Found against claimed ε, one line per row, as PNG. Colours tell verdicts here, not methods."""
    fine, refuted = ON_WHITE[:2]
    wall = 4 * max((row.found for row in rows if math.isfinite(row.found)), default=1.0)
    with style.new_figure(9.0, 1.2 + 0.27 * len(rows)) as drawn:
        axes = drawn.add_subplot()
        for place, row in enumerate(reversed(rows)):
            found = max(min(row.found, wall), 0.02)
            colour = refuted if row.refuted else fine
            axes.plot([row.claimed, found], [place, place], color=colour, linewidth=1.4, zorder=1)
            axes.plot(row.claimed, place, "|", color="black", markersize=11, markeredgewidth=2, zorder=3)
            axes.plot(found, place, "o" if math.isfinite(row.found) else ">", color=colour, markersize=6, zorder=2)
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
        (look,) = styles([method])
        axes.plot(false, true, color=look.on_white, label=f"{method}, area {curve.area:.3f}")
        rates = np.geomspace(least, 1, 200)
        axes.plot(rates, rates, label="guessing", **REFERENCE)
        if summary["epsilon"] is not None:
            allowed = np.minimum(1, np.exp(min(summary["epsilon"], 50)) * rates + summary["delta"])
            axes.plot(
                rates, allowed, color="0.35", linestyle="--", label=f"most that ε = {summary['epsilon']:.3g} allows"
            )
        axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        axes.legend(loc="lower right", fontsize=8)
        return style.image(drawn)
