"""`sottovoce compare`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables


def compare(
    files: Annotated[
        list[Path], Argument(metavar="A.toml B.toml...", help="What to run; all are compared with the first.")
    ],
    seeds: Annotated[int, Option(help="How many seeds each file is run with.")] = 20,
    seed: Annotated[int, Option(help="The seed they all come from; replaces that of the files.")] = 0,
    out: Annotated[Path | None, Option(help="Where to save it. Default: runs/compare-<time>.")] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Run several files over the same seeds: means, 95 % intervals, and differences to the first, paired by seed."""
    with terminal.output_folder(out, "compare") as path, terminal.progress(quiet, as_json) as progress:
        from sottovoce.report import compare as comparison

        compared = comparison.run(files, path, seeds, seed, progress)
    terminal.show(as_json, quiet, {"folder": str(path), **compared}, [str(path)], lambda: _print(compared, path))


def _print(compared: Json, path: Path) -> None:
    """One table per measure: mean, interval, and the difference to the first run, paired by seed."""
    from sottovoce.report.compare import FIGURE, PAGE
    from sottovoce.report.numbers import MEASURES, quality
    from sottovoce.report.words import PRIVATE

    runs = compared["runs"]
    for measure in MEASURES:
        measured = [run["measures"].get(measure.column) for run in runs]
        if any(measured):
            private = any(one is not None and not one["released"] for one in measured)
            rows = [
                [run["name"], *measure.texts(one), *measure.texts(one and one["difference"], sign=True)]
                for run, one in zip(runs, measured, strict=True)
            ]
            headings = ["run", "mean", "95 %\ninterval", "difference", "95 %\ninterval"]
            tables.print_table(headings, rows, {"run"}, f"{measure.words}{f' ({PRIVATE})' if private else ''}")
    for run in runs:
        tables.note(f"{run['name']}: {run['method']}, {run['rounds']} rounds, ε: {run['privacy']}")
        if run["metrics"]:
            tables.note(f"  at the end: {quality(run['metrics'])}")
    for setting, values in compared["differ_in"].items():
        listed = ", ".join("not there" if value is None else str(value) for value in values)
        tables.note(f"They differ in {setting}: {listed}")
    tables.note(
        f"{compared['seeds']} seeds; differences are to {compared['paired_with']}, paired by seed. ε is of one run "
        f"alone, not of all of them.\nSaved in {path}; curves are in {path / PAGE}, a picture in {path / FIGURE}"
    )
