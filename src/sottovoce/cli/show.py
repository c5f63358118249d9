"""`sottovoce show`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, echo

from sottovoce.cli import terminal
from sottovoce.report import tables


def show(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of a finished run.")],
    as_json: terminal.Json = False,
) -> None:
    """Print how good the model of a run is, and the model by column and level: how much each changes a class's score.

    Coefficients are per unit of the table, levels next to the mean of all levels of their column. They belong to a row
    before it is divided by its length, and are as noisy as the model.
    """
    from sottovoce.experiment import saved, store
    from sottovoce.report.numbers import quality

    result = saved.load_result(folder)
    known = bool(result.metrics or result.evaluations)
    effects = {} if known and result.schema is None else result.effects()
    if as_json:
        measured = {"metrics": dict(result.metrics), "evaluations": [each.to_dict() for each in result.evaluations]}
        columns = {name: [each._asdict() for each in listed] for name, listed in effects.items()}
        tables.print_json(columns | (measured if known else {}))
        return
    if result.metrics:
        echo(f"On test rows: {quality(store.summary(result))}")
    for evaluation in result.evaluations:
        echo(f"{evaluation}")
    if not effects:
        echo("This run keeps no schema, so its coefficients have no names")
    for name, listed in effects.items():
        echo(f"Score of {name}, before a row is divided by its length")
        wide, long = max(len(each.column) for each in listed), max(len(each.what) for each in listed)
        for each in listed:
            echo(f"  {each.column:<{wide}}  {each.what:<{long}}  {each.change:+.4g}")
