"""`sottovoce compare`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="A.toml B.toml...", help="What to run; the first is the yardstick.")
    ],
    seeds: Annotated[int, typer.Option(help="How many seeds each file is run with.")] = 20,
    seed: Annotated[int, typer.Option(help="The seed they all come from, in place of the files' own.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where to save it. Default: runs/compare-<time>.")] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Run several files over the same seeds: means, 95 % intervals, and differences to the first, paired by seed."""
    with terminal.exit_codes():
        from sottovoce.experiment import whole_files
        from sottovoce.report import compare as comparison

        place = (
            whole_files.reserved(out)
            if out
            else whole_files.reserved(Path("runs") / f"compare-{terminal.now()}", numbered=True)
        )
        with place as path, terminal.progress(quiet) as progress:
            said = comparison.run(files, path, seeds, seed, progress)
        if as_json:
            show.print_json({"folder": str(path), **said})
        elif quiet:
            typer.echo(str(path))
        else:
            show.print_comparison(said)
            show.note(
                f"Saved in {path}; curves are in {path / comparison.PAGE}, a picture in {path / comparison.FIGURE}"
            )
