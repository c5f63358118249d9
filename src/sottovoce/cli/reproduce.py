"""`sottovoce reproduce`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...|all", help="Which; see --list.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to keep data and figures. Default: runs/reproduce, or -quick.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few trials, rounds and settings: minutes, not an hour.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Run what is done already, too.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes at once. Default: one per core.")] = 0,
    list_: Annotated[bool, typer.Option("--list", help="Name the experiments, and stop.")] = False,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Make the papers' tables and figures again: data, figures, and a page of what holds. Ctrl-C keeps what is done."""
    with terminal.exit_codes():
        from sottovoce.reproduce.registry import EXPERIMENTS

        if list_:
            _list(EXPERIMENTS, as_json, quiet)
            return
        chosen = _chosen(names or [], EXPERIMENTS, quick)
        folder = out or Path("runs") / ("reproduce-quick" if quick else "reproduce")
        rows, left_out, written = _run(chosen, folder, quick, again, jobs or os.cpu_count() or 1, quiet)
        if as_json:
            from dataclasses import asdict

            show.print_json({"page": str(written), "claims": [asdict(row) for row in rows], "left_out": left_out})
            return
        for row in rows:
            if quiet:
                typer.echo(f"{row.experiment}: {row.word()}: {row.says}")
            else:
                show.note(f"{row.word():>12}  {row.experiment}: {row.says}")
                show.note(f"              paper {row.paper}; here {row.measured}" + (f". {row.why}" if row.why else ""))
        for name, reason in left_out.items():
            show.complain(f"left out {name}: {reason}")
        if not quiet:
            show.note(f"Page: {written}; data and figures: {folder}")


def _chosen(names: list[str], known: Any, quick: bool) -> list[Any]:
    from sottovoce.core import check

    if names == ["all"] or (not names and quick):
        return list(known.values())
    check.require(bool(names), "reproduce", "needs the name of an experiment, or all (--list names them)")
    return [known[check.one_of("reproduce", "experiment", name, known)] for name in names]


def _run(
    chosen: list[Any], folder: Path, quick: bool, again: bool, jobs: int, quiet: bool
) -> tuple[list[Any], dict[str, str], Path]:
    from sottovoce.core.check import MissingData
    from sottovoce.reproduce import figure, page, runner
    from sottovoce.reproduce.registry import EXPERIMENTS

    rows, left_out, written = [], {}, page.path(folder)
    with terminal.progress(quiet) as progress, _interruptible(), runner.workers(jobs) as pool:
        for experiment in chosen:
            try:
                table = runner.run(experiment, folder, quick=quick, again=again, pool=pool, progress=progress)
            except MissingData as error:
                if len(chosen) == 1:
                    raise
                left_out[experiment.name] = str(error)
                continue
            figure.draw(experiment, table, folder)
            rows += page.verdicts(experiment, table, robust_only=quick)
            written = page.write(EXPERIMENTS, folder)
    return rows, left_out, written


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        said = "Interrupted. Finished settings are kept: the same command goes on from there"
        raise terminal.Interrupted(said) from None


def _list(known: Any, as_json: bool, quiet: bool) -> None:
    entries = [
        {"name": one.name, "paper": one.paper, "shows": one.shows, "needs": list(one.needs)} for one in known.values()
    ]
    if as_json:
        show.print_json({"experiments": entries})
        return
    for entry in entries:
        typer.echo(entry["name"] if quiet else f"{entry['name']:22s} {entry['paper']}: {entry['shows']}")
