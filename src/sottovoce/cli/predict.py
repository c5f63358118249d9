"""`sottovoce predict`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sottovoce.cli import terminal
from sottovoce.report import tables


def predict(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of a finished run with a schema.")],
    rows: Annotated[Path, Argument(metavar="CSV", help="New rows, as they are. They need no label.")],
    out: Annotated[Path | None, Option(help="Write a CSV file instead of printing one.")] = None,
    threshold: Annotated[
        float | None, Option(help="Predict the second of two classes from this probability on. Default: 0.5.")
    ] = None,
    as_json: terminal.Json = False,
) -> None:
    """Predict the labels of new rows: one line for each, with the label and the probability of every class."""
    with terminal.progress(False, as_json) as progress:
        from sottovoce.experiment import predict as predicting
        from sottovoce.experiment.saved import load_result

        progress("predicting", 0, 0)
        columns = predicting.predictions(load_result(folder), rows, threshold)
    if as_json and out is None:
        tables.print_json(columns)
    else:
        terminal.print_or_write(predicting.to_csv(columns), out, f"{len(columns['prediction'])} predictions to ")
