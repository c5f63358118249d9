"""Predictions of a saved run for new rows, as a table."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check
from sottovoce.core.plain import Columns

if TYPE_CHECKING:
    from sottovoce.experiment.result import Result


def predictions(result: "Result", data: object, threshold: float | None = None) -> Columns:
    """The label of each new row, and the probabilities of the classes where the loss has them."""
    hint = "Train with a [schema], or use load_result(FOLDER).predict(X) on rows that you have prepared yourself"
    check.given(result.schema, "predict", "this run keeps no schema to prepare rows with", hint)
    rule = "this folder holds several runs of one task, with a model each. Train with [run] runs = 0"
    check.require(result.model.ndim == 1, "predict", rule, result.model.shape[0])
    return of_scores(result, result.scores(data), threshold)


def of_scores(result: "Result", scores: np.ndarray, threshold: float | None = None) -> Columns:
    """The same for rows whose scores are known."""
    columns: Columns = {"prediction": result.labels_of(scores, threshold).tolist()}
    if result.objective.loss.probabilities:
        chances, schema = result.probabilities_of(scores), result.schema
        coded = ("-1", "1") if result.objective.loss.outputs == 1 else range(chances.shape[-1])
        names = coded if schema is None or schema.label is None else schema.label.classes
        columns |= {f"probability of {name}": chances[:, k].tolist() for k, name in enumerate(map(str, names))}
    return columns


def coefficients(result: "Result") -> Columns:
    """The model by column and level, as columns of a table: see `Result.effects`."""
    listed = [(name, *effect) for name, effects in result.effects().items() for effect in effects]
    headings = ("score of", "column", "for", "change before a row is divided by its length")
    return {heading: list(column) for heading, column in zip(headings, zip(*listed, strict=True), strict=True)}


def to_csv(columns: Columns) -> str:
    """Columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def write_new(path: Path, text: str) -> None:
    """Write a text file that must not be there yet."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise check.InvalidInput(f"{path}: there is such a file already. Choose another name") from None
    except OSError as error:
        raise check.InvalidInput(f"{path}: cannot be written ({error.strerror})") from None
