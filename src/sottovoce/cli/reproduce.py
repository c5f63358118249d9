"""`sottovoce reproduce`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sottovoce.cli import terminal
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.reproduce.experiment import Experiment
    from sottovoce.reproduce.page import Verdict


def reproduce(
    names: Annotated[
        list[str] | None,
        Argument(metavar="NAME...|all", help="Which; see --list. all: the papers', without the comparison."),
    ] = None,
    out: Annotated[
        Path | None, Option(help="Where to keep data and figures. Default: runs/reproduce, or -quick.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Few trials, rounds and settings: minutes, not an hour.")] = False,
    again: Annotated[bool, Option("--again", help="Run what is done already, too.")] = False,
    jobs: Annotated[int, Option(help="Processes at once. Default: one per core.")] = 0,
    list_: Annotated[bool, Option("--list", help="Name the experiments, and stop.")] = False,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Make the papers' tables and figures again: data, figures, and a page of what holds. Ctrl-C keeps what is done."""
    from dataclasses import asdict

    from sottovoce.core import check
    from sottovoce.reproduce.registry import EXPERIMENTS

    check.whole("reproduce", at_least=0, **{"--jobs": jobs})
    if list_:
        _list(EXPERIMENTS, as_json, quiet)
        return
    folder = out or Path("runs") / ("reproduce-quick" if quick else "reproduce")
    chosen = _chosen(names or [], EXPERIMENTS, quick)
    try:
        with terminal.progress(quiet, as_json) as progress:
            verdicts, left_out, page = _run(chosen, folder, quick, again, jobs or os.cpu_count() or 1, progress)
    except KeyboardInterrupt:
        kept = "Finished settings are kept: the same command goes on from there"
        raise terminal.Interrupted(f"Interrupted. {kept}") from None

    def text() -> None:
        for row in verdicts:
            tables.note(f"{row.word():>12}  {row.experiment}: {row.says}")
            tables.note(f"{'':12}  paper {row.paper}; here {row.measured}{f'. {row.why}' if row.why else ''}")
        tables.note(f"Page: {page}; data and figures: {folder}")

    plain = {"page": str(page), "claims": [asdict(row) for row in verdicts], "left_out": left_out}
    lines = (f"{row.experiment}: {row.word()}: {row.says}" for row in verdicts)
    terminal.show(as_json, quiet, plain, lines, text)
    if not as_json:
        for name, reason in left_out.items():
            tables.complain(f"left out {name}: {reason}")


def _chosen(names: list[str], known: "Mapping[str, Experiment]", quick: bool) -> "list[Experiment]":
    from sottovoce.core import check

    if names == ["all"] or (not names and quick):
        return [one for one in known.values() if not one.apart]
    check.require(bool(names), "reproduce", "needs the name of an experiment, or all (--list names them)")
    return [known[check.one_of("reproduce", "experiment", name, known)] for name in names]


def _run(
    chosen: "list[Experiment]", folder: Path, quick: bool, again: bool, jobs: int, progress: terminal.Progress
) -> "tuple[list[Verdict], dict[str, str], Path]":
    """The verdicts, why experiments were left out, and where the page is."""
    from sottovoce.core import check
    from sottovoce.reproduce import figure, page, runner
    from sottovoce.reproduce.registry import EXPERIMENTS

    verdicts, left_out = [], {}
    with runner.workers(jobs) as pool:
        for experiment in chosen:
            try:
                table = runner.run(experiment, folder, quick=quick, again=again, pool=pool, progress=progress)
            except check.MissingData as error:
                if len(chosen) == 1:
                    raise
                left_out[experiment.name] = str(error)
                continue
            figure.draw(experiment, table, folder)
            verdicts += page.verdicts(experiment, table, robust_only=quick, out=folder)
            page.write(EXPERIMENTS, folder)
    return verdicts, left_out, page.path(folder)


def _list(known: "Mapping[str, Experiment]", as_json: bool, quiet: bool) -> None:
    entries = [
        {"name": one.name, "paper": one.paper, "shows": one.shows, "needs": list(one.needs)} for one in known.values()
    ]

    def text() -> None:
        headings = ["name", "paper", "shows"]
        tables.print_table(headings, [[one.name, one.paper, one.shows] for one in known.values()], headings)

    terminal.show(as_json, quiet, {"experiments": entries}, list(known), text)
