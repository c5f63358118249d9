"""`sottovoce export`."""

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

    check.one_of("export", "form", to, ("json", "python", "card"))
    check.require(to == "card" or not purpose, "export", "--purpose goes with --to card")
    result = load_result(folder)
    if to == "card":
        text = exporting.model_card(result, purpose=purpose)
    else:
        text = exporting.to_json(result) if to == "json" else exporting.to_python(result)
    terminal.print_or_write(text, out)
