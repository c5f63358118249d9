"""`sottovoce verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit

from sottovoce.cli import terminal
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.auditing.verify import Verdict


def verify(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of a finished run.")],
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Check a run folder without trusting the run: its files, its charges, and the epsilon it prints, computed anew.

    Says what was verified, what does not hold, and what rests on somebody's word. Exit code 9: something does not hold.
    """
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.auditing.verify import verify as check_folder

        progress("checking", 0, 0)
        verdict = check_folder(folder)
    line = "holds" if verdict.holds else "does not hold"
    terminal.show(as_json, quiet, verdict.to_dict(), [line], lambda: _print(verdict))
    if not verdict.holds:
        raise Exit(terminal.DOES_NOT_HOLD)


def _print(verdict: "Verdict") -> None:
    """Every check, by how sure it is."""
    from sottovoce.auditing.verify import BROKEN, VERIFIED, WORD

    for status, heading in ((BROKEN, "Does not hold:"), (VERIFIED, "Verified:"), (WORD, "Rests on somebody's word:")):
        checks = [one for one in verdict.checks if one.status == status]
        if checks:
            tables.note(heading)
        for one in checks:
            tables.note(f"  {one.about}: {one.words}")
    if not verdict.holds:
        tables.note(f"{verdict.folder} does NOT hold. Do not rely on its guarantee.")
    elif verdict.guaranteed:
        tables.note(f"{verdict.folder} holds, as far as files can show.")
    else:
        tables.note(f"{verdict.folder} states no guarantee; its files are whole.")
    tables.note(f"Digest of the folder: {verdict.digest}. Keep it elsewhere: it shows if the folder was rewritten.")
