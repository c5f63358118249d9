"""A trained linear model by itself: reads raw rows from a CSV file, prints the label and the probability of each.

    python THIS_FILE new.csv > predicted.csv

It needs Python and NumPy, and nothing else. Every row is encoded by itself, as it was for training: what lies outside a
range is clipped, an unknown level becomes zeros, and the encoded row is divided by its own length.
"""

import csv
import json
import math
import sys
from typing import Any

import numpy as np

from sottovoce.problems.schema.encoding import (
    ALWAYS_MISSING,
    as_number,
    canonical,
    centred_one_hot,
    chosen_block,
    date_block,
    day_of,
    scaled_block,
)

MODEL: dict[str, Any] = json.loads("{}")

Rows = dict[str, list[str]]


def numbers(texts: list[str], marks: frozenset[str]) -> np.ndarray:
    values = np.array([as_number(text) for text in texts], dtype=np.float64)
    for mark in {as_number(text) for text in marks}:
        values[values == mark] = np.nan
    return values


def encode(name: str, column: dict[str, Any], rows: Rows) -> np.ndarray:
    """The block of numbers of one column."""
    missing, bends = column.get("missing", False), (column.get("waves", 0), column.get("knots", 0))
    marks = ALWAYS_MISSING | set(MODEL["missing_values"])
    marks |= set() if isinstance(missing, bool) else {canonical(mark) for mark in missing}
    if "one_hot" in column:
        choices = [np.nan_to_num(np.clip(numbers(rows[source], marks), 0.0, 1.0)) for source in column["one_hot"]]
        return chosen_block(np.column_stack(choices))
    if "levels" in column:
        code = {level: place for place, level in enumerate(column["levels"])}
        gap = len(code) if missing else -1
        texts = [canonical(text) for text in rows[name]]
        codes = [gap if text in marks else code.get(text, -1) for text in texts]
        return centred_one_hot(np.array(codes), len(code) + bool(missing))
    if "range" in column:
        low, high = map(float, column["range"])
        entries = np.clip(numbers(rows[name], marks), low, high)
        if column.get("log"):
            entries, low, high = np.log1p(entries), float(np.log1p(low)), float(np.log1p(high))
        return scaled_block(entries, low, high, *bends, bool(missing))
    low, high = (day_of(end) for end in column["dates"])
    days = [math.nan if text in marks else day_of(text, column.get("form", "")) for text in rows[name]]
    calendar = column.get("weekday", False), column.get("month", False)
    return date_block(np.array(days, dtype=np.float64), low, high, *bends, bool(missing), *calendar)


def shortened(block: np.ndarray) -> np.ndarray:
    """Each row divided by its length; one shorter than 1 stays as it is."""
    room = max(2.0**-40, (block.shape[1] + 16) * 2.0**-52)  # for rounding errors, as in training
    top = np.abs(block).max(axis=1, keepdims=True)
    relative = block / np.where(top > 0.0, top, 1.0)
    factor = 1.0 / np.maximum(np.sqrt(np.square(relative).sum(axis=1, keepdims=True)), 1.0) * (1.0 - room)
    return np.where(top <= factor, block, relative * factor)


def scores(rows: Rows) -> np.ndarray:
    """(rows, outputs); `rows` holds the columns of a table as text. Where columns were split it has several parts."""
    total, start = 0.0, 0
    count = len(next(iter(rows.values())))
    weights = np.array(MODEL["weights"], dtype=np.float64)
    for part in MODEL["parts"]:
        blocks = [encode(name, MODEL["columns"][name], rows) for name in part["columns"]]
        X = shortened(np.hstack([*blocks, *([np.ones((count, 1))] if part["bias"] else [])]))
        total = total + X @ weights[:, start : start + X.shape[1]].T
        start += X.shape[1]
    return np.asarray(total)


def predict(rows: Rows) -> dict[str, list[object]]:
    """The label of each row and, where the loss has them, the probabilities of the classes."""
    margins, classes = MODEL["calibration"] * scores(rows), MODEL["classes"]  # calibrated for the noise in the weights
    if not classes:
        low, high = MODEL["range"]
        return {"prediction": (low + (margins[:, 0] + 1.0) * ((high - low) / 2.0)).tolist()}
    if margins.shape[1] == 1:
        place = (margins[:, 0] >= MODEL["cut"]).astype(int)
        sure = 1.0 / (1.0 + np.exp(-np.abs(margins)))
        unsure = np.exp(-np.abs(margins)) * sure
        chances = np.where(margins >= 0, np.hstack([unsure, sure]), np.hstack([sure, unsure]))
    else:
        place = margins.argmax(axis=1)
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        chances = powers / powers.sum(axis=1, keepdims=True)
    columns: dict[str, list[object]] = {"prediction": [classes[each] for each in place]}
    if MODEL["probabilities"]:
        columns |= {f"probability of {name}": chances[:, k].tolist() for k, name in enumerate(classes)}
    return columns


def read(path: str) -> Rows:
    """The columns of a CSV file, as text."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [[field.strip() for field in row] for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SystemExit(f"{path}: must be a CSV file in UTF-8 ({type(error).__name__})") from None
    if len(lines) < 2:
        raise SystemExit(f"{path}: must have a line that names the columns, and rows")
    header, *rows = lines
    if len(set(header)) < len(header):
        raise SystemExit("column names must be distinct")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise SystemExit(f"row {number}: must have {len(header)} fields, got {len(row)}")
    needed = [each for name, column in MODEL["columns"].items() for each in column.get("one_hot", [name])]
    lacking = [name for name in needed if name not in header]
    if lacking:
        raise SystemExit(f"the first line must name the columns, {lacking[0]!r} among them")
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(f"use: python {sys.argv[0]} new.csv > predicted.csv")
    columns = predict(read(sys.argv[1]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))


if __name__ == "__main__":
    main()
