"""Rows from a user's own CSV file, and its labels as a loss wants them.

An error names the place of a wrong entry and never the entry itself: see `core/check.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import number_or_nan
from sottovoce.core.plain import Json
from sottovoce.problems.losses import Loss
from sottovoce.problems.metrics import class_labels
from sottovoce.problems.public_ranges import scaled_to_ranges, stated_ranges
from sottovoce.problems.schema.frames import csv_rows, must_be_there

FILL_IN = "Encode it, drop these rows, or fill in a number that is known without looking at them"


def read_csv(
    path: Path, label: str, owner: str, ranges: Mapping[str, tuple[float, ...]] | None = None
) -> tuple[np.ndarray, list[str], np.ndarray | None]:
    """Features, labels as text (none without a label's column), and owners as text (None without an owner's).

    With `ranges` of all features these are brought to [-1, 1].
    """
    header, rows, lines = csv_rows(path)
    apart = [column for column in (label, owner) if column]
    for column in apart:
        must_be_there(path.name, column, header)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    for column in apart:
        gaps = np.array([text.lower().lstrip("+-") in ("", "nan") for text in columns[column]])
        # A gap is neither a class nor an owner.
        _refuse(gaps, path, column, lines, "must have a value in every row", "Fill it in, or drop these rows")
    features = [name for name in header if name not in apart]
    check.require(bool(features), path.name, "needs at least one column besides label and owner")
    X = np.column_stack([_numbers(columns[name], path, name, lines) for name in features])
    if ranges:
        check.all_of(path.name, "column with a range", ranges, features)
        X = scaled_to_ranges(X, stated_ranges(path.name, ranges, len(features), features))
    return np.ascontiguousarray(X), list(columns[label]) if label else [], np.array(columns[owner]) if owner else None


def _numbers(column: Sequence[str], path: Path, name: str, lines: Sequence[int]) -> np.ndarray:
    numbers = np.array([number_or_nan(text) for text in column])
    wrong = ~np.isfinite(numbers)
    other = "Make numbers of it, leave it out, or name it in label = or owner = if it holds labels or names owners"
    _refuse(wrong, path, name, lines, "must be a finite number", other if wrong.all() else FILL_IN)
    return numbers


def _refuse(wrong: np.ndarray, path: Path, column: str, lines: Sequence[int], rule: str, fix: str) -> None:
    """Refuse entries of a column, by the line of the first one and their number."""
    if wrong.any():
        where = f"{path.name}, line {lines[int(np.argmax(wrong))]}, column {column!r}"
        raise check.InvalidInput(f"{where}: {rule} ({int(wrong.sum())} such entries). {fix}")


def coded(texts: Sequence[str], order: Sequence[str], loss: Loss, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as the loss wants them, and which text stands for -1, +1 (or 0, 1, ...); () where nothing was mapped."""
    numbers = np.array([number_or_nan(text) for text in texts])
    numeric = bool(np.isfinite(numbers).all())
    if not loss.classification:
        bad = (1 + np.flatnonzero(~np.isfinite(numbers))).tolist()
        check.every_row(where, "must hold finite numbers for this loss", bad, "below the header holds none", FILL_IN)
        return numbers, ()
    names = [label_text(number) for number in numbers.tolist()] if numeric else list(texts)
    classes = sorted(set(names), key=float) if numeric else sorted(set(names))
    if order:
        unknown = [row for row, name in enumerate(names, start=1) if name not in order]
        rule, fix = f"must hold the labels {list(order)}", "Name it in labels too, or drop these rows"
        check.every_row(where, rule, unknown, "below the header has another", fix)
        classes = list(order)
    check.require(len(classes) > 1, where, "holds one class only; two are needed")
    check_classes(where, len(classes), loss, fewer=True)
    return class_codes(names, classes, loss), tuple(classes)


def check_classes(where: str, count: int, loss: Loss, fewer: bool = False) -> None:
    """Refuse a number of classes that the loss is not for; `fewer`: not all of several classes have to be there."""
    two = loss.outputs == 1
    fits = count == (2 if two else loss.outputs) or (fewer and count < loss.outputs)
    needed = "two" if two else f"{'at most ' if fewer else ''}{loss.outputs}"
    rule = f"must hold {needed} classes for the {loss.name} loss"
    check.require(fits, where, rule, count, f"Use loss = 'softmax' with classes = {count}")


def class_codes(labels: Sequence[str], classes: Sequence[str], loss: Loss) -> np.ndarray:
    """Labels of these classes as the loss has them."""
    number = {name: place for place, name in enumerate(classes)}
    return class_labels(loss, np.array([number[label] for label in labels]))


def with_label_texts(table: Json) -> Json:
    """A table of a file whose labels, if it lists any, are text."""
    labels = table.get("labels")
    return table | ({"labels": [label_text(label) for label in labels]} if isinstance(labels, list) else {})


def label_text(label: object) -> str:
    """One spelling for equal numbers: 1, 1.0 and "1.0" are the label "1"."""
    number = number_or_nan(str(label))
    if not np.isfinite(number) or isinstance(label, bool):
        return str(label)
    return str(int(number)) if number == int(number) else repr(number)
