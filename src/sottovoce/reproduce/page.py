"""The page of results: every claim of every experiment, what the paper says, what we measure, and the verdict.

Made from the experiments' Parquet files alone, so the same files give the same text. The README has its first table.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from sottovoce.core.check import InvalidInput
from sottovoce.core.files import packaged_text
from sottovoce.experiment import whole_files
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce import facts, runner
from sottovoce.reproduce.experiment import Claim, Experiment, Kind, Table

KINDS: Mapping[Kind, str] = {
    "measured": "measured claims",
    "stand-in": "measured, on other data",
    "formula": "formulas",
    "conjecture": "in a reading chosen to fit",
    "theorem": "theorems",
    "ours": "our own questions",
}
UNCLEAR = "right order, not clear"
LONG = 80  # signs of a reason that is not printed twice in a table


@dataclass(frozen=True)
class Verdict:
    """One row of a table."""

    experiment: str
    kind: Kind
    says: str
    paper: str
    measured: str
    same: bool | None
    loose: str
    why: str
    in_order: bool = False  # and no more than that

    def word(self) -> str:
        if self.same is None:
            return "one run, not judged"
        if self.kind == "theorem":
            return ("holds" + (f", loose by {self.loose}" if self.loose else "")) if self.same else "fails"
        return "same" if self.same else UNCLEAR if self.in_order else "not the same"


def verdicts(experiment: Experiment, table: Table, robust_only: bool = False, out: Path | None = None) -> list[Verdict]:
    """`out` has the data from which numbers in reasons are read."""
    rows = [_verdict(experiment, claim, table) for claim in experiment.claims if claim.robust or not robust_only]
    read = None if out is None else _reader(out)
    return rows if read is None else [replace(row, why=facts.filled(row.why, read)) for row in rows]


def _reader(out: Path) -> Callable[[str], Table | None]:
    def read(name: str) -> Table | None:
        path = out / f"{name}.parquet"
        return runner.read(path)[0] if path.exists() else None

    return lru_cache(read)


def _verdict(experiment: Experiment, claim: Claim, table: Table) -> Verdict:
    found = claim.measure(table)
    same = None if found.same is None else bool(found.same)  # NumPy's truth is not Python's
    why = claim.why if same is False else ""
    paper, loose, measured = claim.paper, found.loose, _in_full(found.measured)
    return Verdict(experiment.name, claim.kind, claim.says, paper, measured, same, loose, why, found.in_order)


def _in_full(measured: str) -> str:
    """Large errors as they are read: ± 20, not ± 2e+01."""
    return re.sub(r"± \de\+\d+", lambda found: f"± {float(found[0][2:]):.0f}", measured)


def path(out: Path) -> Path:
    """The page stands next to the folder `out` that has the data: `docs/results` gives `docs/results.md`."""
    return out.with_name(f"{out.name}.md")


def write(experiments: Mapping[str, Experiment], out: Path) -> Path:
    whole_files.replace_file(path(out), text(experiments, out).encode())
    return path(out)


def write_readme(experiments: Mapping[str, Experiment], out: Path, readme: Path) -> None:
    """Put the first table of the page where the README has it."""
    lines = readme.read_text(encoding="utf-8").split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("| paper |"))
    last = next(number for number in range(first, len(lines)) if not lines[number].startswith("|"))
    text_ = "\n".join([*lines[:first], summary(experiments, out), *lines[last:]])
    whole_files.replace_file(readme, text_.encode())


@dataclass(frozen=True)
class Done:
    """An experiment that was run."""

    experiment: Experiment
    quick: bool
    seconds: float  # of CPU time; NaN: not known
    rows: Sequence[Verdict]
    more: str  # numbers besides the claims


def text(experiments: Mapping[str, Experiment], out: Path) -> str:
    done = _done(experiments, out)
    sections = []
    for paper, group in _by_paper(experiments).items():
        bodies = [
            _section(done[one.name], out.name)
            if one.name in done
            else f"### {one.shows}\n\nNot run. `sottovoce reproduce {one.name}` runs it.\n"
            for one in group
        ]
        sections.append(f"## {paper}\n\n" + "\n".join(bodies))
    page = packaged_text("reproduce", "results.md").removesuffix("\n")
    page = page.format(
        summary=_summary(experiments, done),
        misses=_listed(done, in_order=False),
        unclear=_listed(done, in_order=True),
        times=_times(done),
        sections="\n".join(sections),
    )
    return facts.filled(page, _reader(out))


def summary(experiments: Mapping[str, Experiment], out: Path) -> str:
    """The table of how many claims of each paper came out: "same of judged (not clear)", by kind."""
    return _summary(experiments, _done(experiments, out))


def _done(experiments: Mapping[str, Experiment], out: Path) -> dict[str, Done]:
    found = {}
    for name, experiment in experiments.items():
        data = out / f"{name}.parquet"
        if not data.exists():
            continue
        table, quick = runner.read(data)
        try:
            rows = verdicts(experiment, table, robust_only=quick, out=out)  # before a table changes its signs
            more = experiment.summary(table) if experiment.summary is not None else ""
        except InvalidInput as error:
            if not str(error).startswith(("Table: ", "mean: ")):
                raise
            continue  # it was run before the experiment was changed, and lacks columns or rows that are asked for now
        found[name] = Done(experiment, quick, runner.cpu_seconds(data), rows, more)
    return found


def _by_paper(experiments: Mapping[str, Experiment]) -> dict[str, list[Experiment]]:
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments.values():
        groups.setdefault(experiment.paper, []).append(experiment)
    return groups


def _summary(experiments: Mapping[str, Experiment], done: Mapping[str, Done]) -> str:
    rows = []
    for paper, group in _by_paper(experiments).items():
        run = [done[one.name] for one in group if one.name in done]
        decided = [row for one in run for row in one.rows]
        counts = [_count([row for row in decided if row.kind == kind]) for kind in KINDS]
        rows.append(
            [paper, f"{len(run)} of {len(group)}", *counts, str(sum(row.same is None for row in decided) or "–")]
        )
    return markdown_table(["paper", "experiments run", *KINDS.values(), "not judged"], rows)


def _count(rows: Sequence[Verdict]) -> str:
    judged = [row for row in rows if row.same is not None]
    unclear = sum(row.in_order for row in judged)
    counts = f"{sum(bool(row.same) for row in judged)} of {len(judged)}" if judged else "–"
    return counts + (f" ({unclear} unclear)" if unclear else "")


def _listed(done: Mapping[str, Done], in_order: bool) -> str:
    """What did not come out, in a line each: only because it is not clear, or not even in that order."""
    lines = [
        f"* {one.experiment.paper}, {one.experiment.shows.split(':')[0]}: {row.says}: {row.word()}"
        for one in done.values()
        for row in one.rows
        if row.same is False and row.in_order is in_order
    ]
    return "\n".join(lines) or "* nothing"


def _times(done: Mapping[str, Done]) -> str:
    known = {one.experiment.name: one.seconds for one in done.values() if not math.isnan(one.seconds)}
    papers = sum(seconds for name, seconds in known.items() if not done[name].experiment.apart)
    longest = sorted(known, key=lambda name: -known[name])[:3]
    most = ", ".join(f"{name} {known[name] / 60:.1f}" for name in longest)
    return f"The papers' experiments took {papers / 60:.0f} minutes of CPU time; the longest: {most}." if known else ""


def _section(one: Done, folder: str) -> str:
    experiment = one.experiment
    lines = [f"### {experiment.shows}", ""]
    if one.quick:
        lines += ["*Quick sizes: few trials and rounds.*", ""]
    if experiment.notes:
        lines += [" ".join(experiment.notes.split()), ""]
    lines += [f"![{experiment.shows}]({folder}/{experiment.name}.png)", ""]
    if one.more:
        lines += [one.more]
    for kind in KINDS:
        rows = [row for row in one.rows if row.kind == kind]
        if rows:
            lines += [_table(kind, rows), ""]
    return "\n".join(lines)


def _table(kind: Kind, rows: Sequence[Verdict]) -> str:
    says, bound = {
        "theorem": ("the theorem says", "its bound"),
        "ours": ("we ask", "what the paper would have"),
        "stand-in": ("the paper says (of other data)", "its number or order"),
        "conjecture": ("the paper says (reading chosen to fit: a conjecture)", "its number or order"),
        "formula": ("the paper says (a formula)", "its number or order"),
    }.get(kind, ("the paper says", "its number or order"))
    cells, told = [], dict[str, str]()  # reasons that stand above, by the claims that have them
    for row in rows:
        first = told.setdefault(row.why, row.says) if len(row.why) > LONG else row.says
        why = row.why if first == row.says else f'as for "{first}"'
        cells.append([row.says, row.paper, row.measured, f"**{row.word()}**" + (f": {why}" if why else "")])
    return markdown_table([says, bound, "we measure", "verdict"], cells)


if __name__ == "__main__":  # from the repository: page and README from the results that are there, nothing is run
    from sottovoce.reproduce.registry import EXPERIMENTS

    write(EXPERIMENTS, Path("docs/results"))
    write_readme(EXPERIMENTS, Path("docs/results"), Path("README.md"))
