"""`sottovoce verify`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a finished run.")],
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Check a run folder without trusting the run: its files, its charges, and the epsilon it prints, computed anew.

    Says what was verified, what does not hold, and what rests on somebody's word. Exit code 9: something does not hold.
    """
    with terminal.exit_codes():
        from sottovoce.auditing.verify import verify as look

        found = look(folder)
        if as_json:
            show.print_json(found.to_dict())
        elif quiet:
            typer.echo("holds" if found.holds else "does not hold")
        else:
            _print(found)
        if not found.holds:
            raise typer.Exit(terminal.DOES_NOT_HOLD)


def _print(found: Any) -> None:
    """Everything, by how sure it is."""
    from sottovoce.auditing.verify import BROKEN, VERIFIED, WORD

    for status, heading in ((BROKEN, "Does not hold:"), (VERIFIED, "Verified:"), (WORD, "Rests on somebody's word:")):
        checks = [one for one in found.checks if one.status == status]
        if checks:
            show.note(heading)
        for one in checks:
            show.note(f"  {one.about}: {one.words}")
    if not found.holds:
        show.note(f"{found.folder} does NOT hold. Do not rely on its guarantee.")
    elif found.guaranteed:
        show.note(f"{found.folder} holds, as far as files can show.")
    else:
        show.note(f"{found.folder} states no guarantee; its files are whole.")
    show.note(f"Digest of the folder: {found.digest}. Kept elsewhere, it shows whether the folder was ever rewritten.")
