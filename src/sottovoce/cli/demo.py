"""`sottovoce demo`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def demo(
    out: Annotated[Path | None, typer.Option(help="Where to save it. Default: runs/demo-<time>.")] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Train on the Adult data that comes with the package: 100 clients, total ε = 1, δ = 1e-5 per record."""
    with terminal.exit_codes():
        from sottovoce.cli import demo_runs as shown
        from sottovoce.experiment import whole_files

        folder = (
            whole_files.reserved(out)
            if out
            else whole_files.reserved(Path("runs") / f"demo-{terminal.now()}", numbered=True)
        )
        with folder as path, terminal.progress(quiet) as progress:
            summaries = shown.run(path, progress)
        if as_json:
            show.print_json({"folder": str(path), "methods": summaries})
        elif quiet:
            typer.echo(str(path))
        else:
            show.print_table("Adult: 40 000 rows of 100 clients, 5 222 public test rows", summaries)
            proven = [one for one in summaries if one.get("epsilon") is not None]
            for said in sorted({f"δ = {one['delta']:g}, {one['unit']}; {one['observer']}" for one in proven}):
                show.note(f"ε is the total of the whole run: {said}.")
            show.note(f"Saved in {path}; a picture is in {path / 'comparison.png'}")
