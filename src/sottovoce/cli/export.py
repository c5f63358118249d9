"""`sottovoce export`."""

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sottovoce.cli import terminal


def export(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of a finished run.")],
    to: Annotated[str, Option(help="json, python (a file that needs NumPy only) or card (Markdown).")],
    out: Annotated[Path | None, Option(help="Write a file instead of printing it.")] = None,
    purpose: Annotated[str, Option(help="For a card: what the model is for.")] = "",
) -> None:
    """Take a model elsewhere: as JSON, as one Python file that predicts raw CSV rows, or as a model card.

    Python files and JSON need a run with a schema.
    """
    from sottovoce.core import check
    from sottovoce.experiment.saved import load_result
    from sottovoce.report import export as exporting

    card = partial(exporting.model_card, purpose=purpose)
    forms = {"json": exporting.to_json, "python": exporting.to_python, "card": card}
    check.one_of("export", "form", to, forms)
    check.require(to == "card" or not purpose, "export", "--purpose goes with --to card")
    terminal.print_or_write(forms[to](load_result(folder)), out)
