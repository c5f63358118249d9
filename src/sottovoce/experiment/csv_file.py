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
        _all_given(columns[column], path, column, lines)
    features = [name for name in header if name not in apart]
    check.require(bool(features), path.name, "needs at least one column besides label and owner")
    X = np.column_stack([_numbers(columns[name], path, name, lines) for name in features])
    if ranges:
        check.all_of(path.name, "column with a range", ranges, features)
        X = scaled_to_ranges(X, stated_ranges(path.name, ranges, len(features), features))
    return np.ascontiguousarray(X), list(columns[label]) if label else [], np.array(columns[owner]) if owner else None


def _all_given(column: Sequence[str], path: Path, name: str, lines: Sequence[int]) -> None:
    """Refuse empty entries: a gap is neither a class nor an owner."""
    gaps = [place for place, text in enumerate(column) if text.lower().lstrip("+-") in ("", "nan")]
    if gaps:
        where = f"{path.name}, line {lines[gaps[0]]}, column {name!r}"
        raise check.InvalidInput(
            f"{where}: must have a value in every row ({len(gaps)} such entries). Fill it in, or drop these rows"
        )


def _numbers(column: Sequence[str], path: Path, name: str, lines: Sequence[int]) -> np.ndarray:
    numbers = np.array([number_or_nan(text) for text in column])
    good = np.isfinite(numbers)
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        where = f"{path.name}, line {lines[first]}, column {name!r}"
        other = "Make numbers of it, leave it out, or name it in label = or owner = if it holds labels or names owners"
        hint = FILL_IN if good.any() else other
        raise check.InvalidInput(f"{where}: must be a finite number ({int((~good).sum())} such entries). {hint}")
    return numbers


def coded(texts: Sequence[str], order: Sequence[str], loss: Loss, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as the loss wants them, and which text stands for -1, +1 (or 0, 1, ...); () where nothing was mapped."""
    numbers = np.array([number_or_nan(text) for text in texts])
    numeric = bool(np.isfinite(numbers).all())
    if not loss.classification:
        if not numeric:
            bad = np.flatnonzero(~np.isfinite(numbers)).tolist()
            rule = f"must hold finite numbers for this loss, and {_first(bad)} holds none"
            raise check.InvalidInput(f"{where}: {rule}. {FILL_IN}")
        return numbers, ()
    names = [label_text(number) for number in numbers.tolist()] if numeric else list(texts)
    classes = sorted(set(names), key=float) if numeric else sorted(set(names))
    if order:
        unknown = [row for row, name in enumerate(names) if name not in order]
        if unknown:
            raise check.InvalidInput(
                f"{where}: must hold the labels {list(order)}, and {_first(unknown)} has another. Name it in labels "
                "too, or drop these rows"
            )
        classes = list(order)
    check.require(len(classes) > 1, where, "holds one class only; two are needed")
    two = loss.outputs == 1
    check.require(
        len(classes) == 2 if two else len(classes) <= loss.outputs,
        where,
        f"must hold {'two' if two else f'at most {loss.outputs}'} classes for the {loss.name} loss",
        len(classes),
        f"Use loss = 'softmax' with classes = {len(classes)}",
    )
    return class_codes(names, classes, loss), tuple(classes)


def class_codes(labels: Sequence[str], classes: Sequence[str], loss: Loss) -> np.ndarray:
    """Labels of these classes as the loss has them."""
    number = {name: place for place, name in enumerate(classes)}
    return class_labels(loss, np.array([number[label] for label in labels]))


def _first(rows: Sequence[int]) -> str:
    return f"row {rows[0] + 1} below the header ({len(rows)} such rows)"


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
