"""The label of a table: its classes, or the range of a number."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.problems.schema import values
from sottovoce.problems.schema.columns import MOST_LEVELS, as_range, short

Name = str | int | float  # of a class


@dataclass(frozen=True, init=False)
class Label:
    """What is to be predicted, and which values it can have.

    Parameters
    ----------
    column
        The name of its column.
    classes
        The classes in order; the first is coded as -1, the second as +1 (or 0, 1, ... for several). A class with
        several spellings: {"healthy": [0], "ill": [1, 2, 3, 4]}.
    range
        (low, high) of a number, in place of classes. Values are clipped to it and brought to [-1, 1] for training, so
        that no label is larger than 1; predictions are in the user's own units again.

    Examples
    --------
    >>> import sottovoce as sv
    >>> schema = sv.Schema(age=sv.Number(0, 100), label=sv.Label("num", {"healthy": [0], "ill": [1, 2, 3, 4]}))
    >>> schema.encode({"age": [50, 60], "num": [3, 0]}).y.tolist()
    [1, 0]
    """

    column: str
    classes: tuple[Name, ...]  # as the user wrote them
    spellings: tuple[tuple[Name, ...], ...]  # of each class
    range: tuple[float, float] | None

    def __init__(self, column: str, classes: Collection[object] = (), range: object = None) -> None:
        named = isinstance(column, str) and bool(column)
        check.require(named, "Label", f"column must be the name of a column, got {check.shown(column)}")
        listed = isinstance(classes, list | tuple | Mapping)
        check.require(listed, "Label", f"classes must be a list such as ['no', 'yes'], got {check.shown(classes)}")
        either = (range is None) != (len(classes) == 0)
        check.require(either, "Label", "needs either classes = [...] or range = (low, high)")
        ends = None if range is None else _ends(range)
        names, spellings = _classes(classes) if ends is None else ((), ())
        for field, value in (("column", column), ("classes", names), ("spellings", spellings), ("range", ends)):
            object.__setattr__(self, field, value)

    def read(self, who: str, array: "values.Array", marks: frozenset[str]) -> np.ndarray:
        """The number of each row's class, 0, 1, ...; or the label as a number in [-1, 1]."""
        if self.range is not None:
            low, high = self.range
            scaled = (np.clip(values.numbers(who, array, marks), low, high) - low) / (high - low) * 2.0 - 1.0
            _in_every_row(who, f"must hold a number from {short(low)} to {short(high)}", np.isnan(scaled))
            return np.clip(scaled, -1.0, 1.0)
        code = {values.canonical(text): place for place, group in enumerate(self.spellings) for text in group}
        codes = values.codes(who, array, lambda text: code.get(text, -1), -1)
        _in_every_row(who, f"must hold one of the classes {', '.join(map(repr, code))}", codes < 0)
        return codes

    def from_unit(self, scaled: np.ndarray) -> np.ndarray:
        """Predictions of a number, from [-1, 1] back to the user's own units."""
        assert self.range is not None
        low, high = self.range
        return low + (scaled + 1.0) * ((high - low) / 2.0)

    def to_table(self) -> Json:
        """The label as a TOML table."""
        if self.range is not None:
            return {"column": self.column, "range": [short(end) for end in self.range]}
        if all(group == (name,) for name, group in zip(self.classes, self.spellings, strict=True)):
            return {"column": self.column, "classes": list(self.classes)}
        grouped = {str(name): list(group) for name, group in zip(self.classes, self.spellings, strict=True)}
        return {"column": self.column, "classes": grouped}


def _ends(range: object) -> tuple[float, float]:
    if not (isinstance(range, list | tuple) and len(range) == 2):
        raise check.InvalidInput(f"Label: range must be (low, high), got {check.shown(range)}")
    return as_range("Label", *range)


def _classes(classes: Collection[object]) -> tuple[tuple[Name, ...], tuple[tuple[Name, ...], ...]]:
    """The classes and the spellings of each, checked."""
    names = tuple(_simple(name) for name in classes)
    spellings = tuple((name,) for name in names)
    if isinstance(classes, Mapping):
        listed = all(isinstance(group, list | tuple) and group for group in classes.values())
        check.require(listed, "Label", "each class must have a list of its spellings, such as {'ill': [1, 2]}")
        names = tuple(map(str, names))
        spellings = tuple(tuple(map(_simple, group)) for group in classes.values())
    check.require(2 <= len(names) <= MOST_LEVELS, "Label", f"needs from 2 to {MOST_LEVELS} classes", len(names))
    kinds = {isinstance(name, str) for name in names}
    check.require(len(kinds) == 1, "Label", "classes must be all text or all numbers")
    spelt = [values.canonical(text) for group in spellings for text in group]
    check.require("" not in spelt, "Label", "a class must not be empty")
    distinct = len(set(spelt)) == len(spelt) and len(set(names)) == len(names)
    check.require(distinct, "Label", "classes must be distinct, and one is named twice")
    return names, spellings


def _simple(value: object) -> Name:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | int | float) and value == value:
        return value
    raise check.InvalidInput(f"Label: a class must be text or a number, got {check.shown(value)}")


def _in_every_row(who: str, rule: str, bad: np.ndarray) -> None:
    """A label cannot be guessed. The error tells the first place, counted from 1, never what stands there."""
    wrong = (np.flatnonzero(bad) + 1).tolist()
    check.every_row(who, f"{rule} in every row", wrong, "does not", "Correct the schema, or drop such rows")
