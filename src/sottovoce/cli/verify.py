"""`sottovoce verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.auditing.verify import Verdict


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a finished run.")],
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Check a run folder without trusting the run: its files, its charges, and the epsilon it prints, computed anew.

    Says what was verified, what does not hold, and what rests on somebody's word. Exit code 9: something does not hold.
    """
    from sottovoce.auditing.verify import verify as check_folder

    found = check_folder(folder)
    line = "holds" if found.holds else "does not hold"
    terminal.show(as_json, quiet, found.to_dict(), [line], lambda: _print(found))
    if not found.holds:
        raise typer.Exit(terminal.DOES_NOT_HOLD)


def _print(found: "Verdict") -> None:
    """Every check, by how sure it is."""
    from sottovoce.auditing.verify import BROKEN, VERIFIED, WORD

    for status, heading in ((BROKEN, "Does not hold:"), (VERIFIED, "Verified:"), (WORD, "Rests on somebody's word:")):
        checks = [one for one in found.checks if one.status == status]
        if checks:
            tables.note(heading)
        for one in checks:
            tables.note(f"  {one.about}: {one.words}")
    if not found.holds:
        tables.note(f"{found.folder} does NOT hold. Do not rely on its guarantee.")
    elif found.guaranteed:
        tables.note(f"{found.folder} holds, as far as files can show.")
    else:
        tables.note(f"{found.folder} states no guarantee; its files are whole.")
    tables.note(f"Digest of the folder: {found.digest}. Keep it elsewhere: it shows whether the folder was rewritten.")
