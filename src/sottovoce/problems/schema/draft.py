"""A first version of a schema, for the user to complete.

From a table's header alone, with a blank for every column; from a header and a Frictionless Table Schema; or from the
rows, if the user says that the rows are public. Ranges and levels that are read off private rows would be a leak.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.toml import toml_key, toml_value
from sottovoce.problems.schema import values
from sottovoce.problems.schema.columns import Category, Column, Date, Number
from sottovoce.problems.schema.frames import Table, csv_header, read_table
from sottovoce.problems.schema.label import Label
from sottovoce.problems.schema.schema import Schema

_BLANK = "{}"
_HELP = """\
# Complete this schema with what is known without looking at the rows: a code book, a form, a law of nature.
# For each column write one of these in place of {}:
#   {range = [0, 100]}                      a number; more: log = true, waves = 8, knots = 8, missing = true
#   {levels = ["no", "yes"]}                a category; more: missing = true
#   {dates = ["2015-01-01", "2025-12-31"]}  a date; more: weekday = true, month = true, missing = true
# or delete its line and name it in drop = [...].
"""
_MOST_LEVELS = 50  # of a public column that is taken for a category


def draft(source: str | Path, label: str = "", owner: str = "", drop: Sequence[str] = ()) -> str:
    """The text of a schema with a blank for every column of a CSV file. Only the first line of the file is read."""
    header = csv_header(Path(source))
    for what, name in (("label", label), ("owner", owner), *(("drop", each) for each in drop)):
        if name:
            check.one_of(Path(source).name, f"column for {what}", name, header)
    lines = [_HELP, "[schema]"]
    lines += [f"owner = {toml_value(owner)}"] if owner else []
    lines += [f"drop = {toml_value(list(drop))}", ""]
    lines += ["[schema.label]", f"column = {toml_value(label)}", "classes = []  # in order; or range = [low, high]", ""]
    blanks = [name for name in header if name not in (label, owner, *drop)]
    return "\n".join([*lines, "[schema.columns]", *(f"{toml_key(name)} = {_BLANK}" for name in blanks), ""])


def draft_of_public_rows(
    data: object, label: str, owner: str = "", drop: Sequence[str] = (), *, rows_are_public: bool = False
) -> Schema:
    """A schema read off rows that everybody may see: levels as they occur, ranges in round numbers."""
    rule = "reads ranges and levels off the rows, so the rows must be public"
    hint = "Say rows_are_public=True if they are; else complete the draft of the header by hand"
    check.require(rows_are_public is True, "draft", rule, hint=hint)
    table = read_table("draft", data, ())
    check.all_of(table.who, "column", (label, *([owner] if owner else []), *drop), table.names)
    features = [name for name in table.names if name not in (label, owner, *drop)]
    guesses = {name: _guess(table, name) for name in features}
    useless = [name for name, column in guesses.items() if column is None]
    columns = {name: column for name, column in guesses.items() if column is not None}
    guess, classes = _guess(table, label), _distinct(table, label)
    if not isinstance(guess, Category | Number):
        raise check.InvalidInput(f"{table.who}: no classes and no range can be read off column {label!r}")
    if isinstance(guess, Number) and len(classes) > 10:
        target = Label(label, range=(guess.low, guess.high))
    else:
        target = Label(label, classes)
    return Schema(columns, label=target, owner=owner, drop=[*drop, *useless])


def _guess(table: Table, name: str) -> Column | None:
    """What a column seems to be; None if it holds one value only, or too many different texts."""
    array = table.column(name)
    texts = [values.canonical(entry) for entry in array.to_pylist() if entry is not None]
    texts = [text for text in texts if text not in ("", "nan", "NaN")]
    gaps = len(texts) < len(array)
    levels = sorted(set(texts))
    if len(levels) < 2:
        return None
    numbers = np.array([values.as_number(text) for text in levels])
    if np.isfinite(numbers).all() and len(levels) > 2:
        return Number(*round_range(float(numbers.min()), float(numbers.max())), missing=gaps)
    days = np.array([values.day_of(text) for text in levels])
    if np.isfinite(days).all():
        ordered = sorted(text[:10] for text in levels)
        return Date(ordered[0], ordered[-1], missing=gaps) if ordered[0] < ordered[-1] else None
    return Category(*levels, missing=gaps) if len(levels) <= _MOST_LEVELS else None


def _distinct(table: Table, name: str) -> list[str | int | float]:
    labels = dict.fromkeys(entry for entry in table.column(name).to_pylist() if entry is not None and entry != "")
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def round_range(low: float, high: float) -> tuple[float, float]:
    """The range widened to one or two digits.

    Examples
    --------
    >>> from sottovoce.problems.schema.draft import round_range
    >>> round_range(17, 90), round_range(0, 4356), round_range(0.13, 0.77)
    ((10.0, 90.0), (0.0, 5000.0), (0.1, 0.8))
    """
    step = 10.0 ** math.floor(math.log10(high - low))
    return round(math.floor(low / step) * step, 12), round(math.ceil(high / step) * step, 12)
