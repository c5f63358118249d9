"""`sottovoce report`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders that hold run folders.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page. Default: report.html in DIR, or here if there are several.")
    ] = None,
    title: Annotated[str, typer.Option(help="In place of a heading made from the names of the runs.")] = "",
    released_only: Annotated[
        bool, typer.Option("--released-only", help="Leave out what a simulation read off private rows.")
    ] = False,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Show finished runs on one HTML page that needs no network. Runs that differ only in their seed share a line."""
    with terminal.exit_codes():
        from sottovoce.report import page as pages

        path = out or (folders[0] / "report.html" if len(folders) == 1 else Path("report.html"))
        with terminal.progress(quiet) as progress:
            pages.write(folders, path, title, released_only, progress)
        if as_json:
            found = [str(folder) for folder in pages.run_folders(folders)]
            show.print_json({"page": str(path), "bytes": path.stat().st_size, "runs": found})
        elif quiet:
            typer.echo(str(path))
        else:
            show.note(f"Saved {path} ({path.stat().st_size / 1e6:.1f} MB, with all it needs). Open it in a browser.")
