"""`sottovoce show`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables


def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a finished run with a schema.")],
    as_json: terminal.Json = False,
) -> None:
    """Print the model of a run by column and level: by how much each changes the score of a class.

    Numbers are per unit of the table, levels next to the mean of all levels of their column. They belong to a row
    before it is divided by its length, and are as noisy as the model.
    """
    from sottovoce.experiment.saved import load_result

    effects = load_result(folder).effects()
    if as_json:
        tables.print_json({name: [each._asdict() for each in own] for name, own in effects.items()})
        return
    for name, own in effects.items():
        typer.echo(f"Score of {name}, before a row is divided by its length")
        wide, long = max(len(each.column) for each in own), max(len(each.what) for each in own)
        for each in own:
            typer.echo(f"  {each.column:<{wide}}  {each.what:<{long}}  {each.change:+.4g}")
