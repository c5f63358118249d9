"""Rows from a user's own CSV file, and its labels as a loss wants them.

What is wrong is said by its place, never by what stands there: see `tables.py`.
"""

import csv
import difflib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import InvalidInput, MissingData
from sottovoce.problems.losses import Loss
from sottovoce.problems.public_ranges import scaled_to_ranges, stated_ranges

FILL_IN = "Encode it, drop these rows, or fill in a number that is known without looking at them"


def read_csv(
    path: Path, label: str, owner: str, ranges: Mapping[str, tuple[float, ...]] | None = None
) -> tuple[np.ndarray, list[str], np.ndarray | None]:
    """Features, labels as text (none without a label's column), and owners as text (None without an owner's).

    With `ranges` of all features these are brought to [-1, 1].
    """
    header, rows, lines = _csv_rows(path)
    for column in (label, owner):
        if column:
            _must_be_there(column, header, path)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    for column in (label, owner):
        if column:
            _all_given(columns[column], path, column, lines)
    features = [name for name in header if name not in (label, owner)]
    check.require(bool(features), path.name, "needs at least one column besides label and owner")
    X = np.column_stack([_numbers(columns[name], path, name, lines) for name in features])
    if ranges:
        for name in ranges:
            check.one_of(path.name, "column with a range", name, features)
        X = scaled_to_ranges(X, stated_ranges(path.name, ranges, len(features), features))
    return np.ascontiguousarray(X), list(columns[label]) if label else [], np.array(columns[owner]) if owner else None


def _csv_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """The header, the rows and the line each row ends on."""
    rows, lines = [], []
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MissingData(
            f"{path}: there is no such file; paths start from the folder of the file that names them"
        ) from None
    except OSError as error:
        raise MissingData(f"{path}: cannot be read ({error.strerror})") from None
    text = check.utf8(str(path), content, "a CSV file").removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        commas = len(header) != 1 or not any(mark in header[0] for mark in ";\t|")
        check.require(commas, path.name, "fields must be separated by commas; the first line has none")
        for row in reader:
            if row:
                rule = f"must have {len(header)} fields, like the header"
                check.require(len(row) == len(header), f"{path.name}, line {reader.line_num}", rule, len(row))
                rows.append([field.strip() for field in row])
                lines.append(reader.line_num)
    except csv.Error as error:  # it names marks and limits, never a field
        raise InvalidInput(f"{path}, line {reader.line_num}: must be a CSV file in UTF-8 ({error})") from None
    check.require(len(rows) > 0, path.name, "needs a header and at least one row")
    check.require(len(set(header)) == len(header), path.name, "column names must be distinct")
    return header, rows, lines


def _must_be_there(column: str, header: Sequence[str], path: Path) -> None:
    """Of a file without a header the first line is a record: none of it is told but a name that is nearly the asked."""
    if column in header:
        return
    near = difflib.get_close_matches(column.lower(), [name.lower() for name in header], n=1, cutoff=0.8)
    there = next((name for name in header if near and name.lower() == near[0]), "")
    if there:
        raise InvalidInput(f"{path.name}: unknown column {column!r}. Did you mean {there!r}?")
    raise InvalidInput(
        f"{path.name}: the first line must name the columns, {column!r} among them, and none of its {len(header)} "
        "names is nearly that. Put the columns' names there, or give the name that is there"
    )


def _all_given(column: Sequence[str], path: Path, name: str, lines: Sequence[int]) -> None:
    """A gap is not a class or an owner of its own."""
    gaps = [place for place, text in enumerate(column) if text.lower().lstrip("+-") in ("", "nan")]
    if gaps:
        where = f"{path.name}, line {lines[gaps[0]]}, column {name!r}"
        raise InvalidInput(
            f"{where}: must have a value in every row ({len(gaps)} such entries). Fill it in, or drop these rows"
        )


def _numbers(column: Sequence[str], path: Path, name: str, lines: Sequence[int]) -> np.ndarray:
    try:
        numbers = np.array(column, dtype=np.float64)
    except ValueError:
        numbers = np.array([_float(text) for text in column])
    good = np.isfinite(numbers)
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        where = f"{path.name}, line {lines[first]}, column {name!r}"
        other = "Make numbers of it, leave it out, or name it in label = or owner = if it holds labels or names owners"
        way_out = FILL_IN if good.any() else other
        raise InvalidInput(f"{where}: must be a finite number ({int((~good).sum())} such entries). {way_out}")
    return numbers


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def coded(texts: Sequence[str], order: Sequence[str], loss: Loss, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as the loss wants them, and which text stands for -1, +1 (or 0, 1, ...); () where nothing was mapped."""
    numbers = np.array([_float(text) for text in texts])
    numeric = bool(np.isfinite(numbers).all())
    if not loss.classification:
        if not numeric:
            bad = np.flatnonzero(~np.isfinite(numbers)).tolist()
            rule = f"must hold finite numbers for this loss, and {_first(bad)} holds none"
            raise InvalidInput(f"{where}: {rule}. {FILL_IN}")
        return numbers, ()
    names = [label_text(number) for number in numbers.tolist()] if numeric else list(texts)
    found = sorted(set(names), key=float) if numeric else sorted(set(names))
    if order:
        unknown = [row for row, name in enumerate(names) if name not in order]
        if unknown:
            raise InvalidInput(
                f"{where}: must hold the labels {list(order)}, and {_first(unknown)} has another. Name it in labels "
                "too, or drop these rows"
            )
        found = list(order)
    check.require(len(found) > 1, where, "holds one class only; two are needed")
    two = loss.outputs == 1
    check.require(
        len(found) == 2 if two else len(found) <= loss.outputs,
        where,
        f"must hold {'two' if two else f'at most {loss.outputs}'} classes for the {loss.name} loss",
        len(found),
        f"Use loss = 'softmax' with classes = {len(found)}",
    )
    code = {name: 2.0 * place - 1.0 if two else float(place) for place, name in enumerate(found)}
    return np.array([code[name] for name in names]), tuple(found)


def _first(rows: Sequence[int]) -> str:
    return f"row {rows[0] + 1} below the header ({len(rows)} such rows)"


def label_text(label: object) -> str:
    """One spelling for equal numbers: 1, 1.0 and "1.0" are the label "1"."""
    number = _float(str(label))
    if not np.isfinite(number) or isinstance(label, bool):
        return str(label)
    return str(int(number)) if number == int(number) else repr(number)
