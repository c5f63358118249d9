"""`sottovoce report`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sottovoce.cli import terminal
from sottovoce.report import tables


def report(
    folders: Annotated[list[Path], Argument(metavar="DIR...", help="Run folders, or folders that hold run folders.")],
    out: Annotated[
        Path | None, Option(help="The page. Default: report.html in DIR, or here if there are several.")
    ] = None,
    title: Annotated[str, Option(help="Replaces the heading made from the names of the runs.")] = "",
    released_only: Annotated[
        bool, Option("--released-only", help="Leave out what a simulation read off private rows.")
    ] = False,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Show finished runs on one HTML page that needs no network. Runs that differ only in their seed share a line."""
    path = out or (folders[0] / "report.html" if len(folders) == 1 else Path("report.html"))
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.report import page

        page.write(folders, path, title, released_only, progress)
    size = path.stat().st_size
    plain = {"page": str(path), "bytes": size, "runs": [str(folder) for folder in page.run_folders(folders)]}
    note = f"Saved {path} ({size / 1e6:.1f} MB, with all it needs). Open it in a browser."
    terminal.show(as_json, quiet, plain, [str(path)], lambda: tables.note(note))
