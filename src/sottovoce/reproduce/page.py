"""The page of results: every claim of every experiment, what the paper says, what we measure, and the verdict.

Made from the experiments' Parquet files alone, so the same files give the same text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sottovoce.core.files import packaged_text
from sottovoce.experiment import whole_files
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce import runner
from sottovoce.reproduce.experiment import Claim, Experiment, Table


@dataclass(frozen=True)
class Verdict:
    """One row of the table."""

    experiment: str
    says: str
    paper: str
    measured: str
    same: bool
    why: str

    def word(self) -> str:
        return "same" if self.same else "not the same"


def verdicts(experiment: Experiment, table: Table, robust_only: bool = False) -> list[Verdict]:
    return [_verdict(experiment, claim, table) for claim in experiment.claims if claim.robust or not robust_only]


def _verdict(experiment: Experiment, claim: Claim, table: Table) -> Verdict:
    finding = claim.measure(table)
    return Verdict(
        experiment.name, claim.says, claim.paper, finding.measured, finding.same, "" if finding.same else claim.why
    )


def path(out: Path) -> Path:
    """The page stands next to the folder `out` that has the data: `docs/results` gives `docs/results.md`."""
    return out.with_name(f"{out.name}.md")


def write(experiments: Mapping[str, Experiment], out: Path) -> Path:
    whole_files.replace_file(path(out), text(experiments, out).encode())
    return path(out)


def text(experiments: Mapping[str, Experiment], out: Path) -> str:
    sections, summary = [], []
    by_paper: dict[str, list[Experiment]] = {}
    for experiment in experiments.values():
        by_paper.setdefault(experiment.paper, []).append(experiment)
    for paper, group in by_paper.items():
        decided: list[Verdict] = []
        body = []
        for experiment in group:
            data = out / f"{experiment.name}.parquet"
            if not data.exists():
                body.append(f"### {experiment.shows}\n\nNot run. `sottovoce reproduce {experiment.name}` runs it.\n")
                continue
            table, quick = runner.read(data)
            rows = verdicts(experiment, table, robust_only=quick)
            decided += rows
            body.append(_section(experiment, table, rows, quick, out.name))
        held = sum(row.same for row in decided)
        run = sum((out / f"{experiment.name}.parquet").exists() for experiment in group)
        summary.append(f"| {paper} | {run} of {len(group)} | {len(decided)} | {held} | {len(decided) - held} |")
        sections.append(f"## {paper}\n\n" + "\n".join(body))
    page = packaged_text("reproduce", "results.md").removesuffix("\n")
    return page.format(summary="\n".join(summary), sections="\n".join(sections))


def _section(experiment: Experiment, table: Table, rows: list[Verdict], quick: bool, folder: str) -> str:
    lines = [f"### {experiment.shows}", ""]
    if quick:
        lines += ["*Quick sizes: few trials and rounds.*", ""]
    if experiment.notes:
        lines += [" ".join(experiment.notes.split()), ""]
    lines += [f"![{experiment.shows}]({folder}/{experiment.name}.png)", ""]
    if experiment.summary is not None:
        lines += [experiment.summary(table)]
    if rows:
        cells = [
            [row.says, row.paper, row.measured, f"**{row.word()}**" + (f": {row.why}" if row.why else "")]
            for row in rows
        ]
        lines += [markdown_table(["the paper says", "its number or order", "we measure", "verdict"], cells), ""]
    return "\n".join(lines)
