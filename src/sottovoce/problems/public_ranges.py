"""Features scaled to [-1, 1] by ranges that are known without looking at the data: nothing is read, nothing leaks."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats
from sottovoce.core.plain import Json

_FORMS = "Give (low, high), a list with one such pair per column, or {column name: pair}"


def stated_ranges(who: str, ranges: object, columns: int, names: Sequence[str] | None = None) -> Floats:
    """The ranges as an array (columns, 2), from one pair (low, high), a list of pairs, or a mapping from names.

    Examples
    --------
    >>> from sottovoce.problems.public_ranges import stated_ranges
    >>> stated_ranges("table.csv", {"age": (0, 120), "height": (0, 3)}, 2, ["height", "age"])
    array([[  0.,   3.],
           [  0., 120.]])
    """
    check.require(ranges is not None, who, "ranges must be stated", hint=_FORMS)
    if isinstance(ranges, Mapping):
        by_name = cast(Json, ranges)
        check.require(names is not None, who, "ranges by name need named columns", hint=_FORMS)
        missing = [name for name in names or () if name not in by_name]
        rule = f"ranges must name every column; there is none for {', '.join(map(repr, missing))}"
        check.require(not missing, who, rule, hint="State one, or leave the column out of X")
        ranges = [by_name[name] for name in names or ()]
    try:
        pairs = np.asarray(ranges, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.zeros(0)
    pairs = np.tile(pairs, (columns, 1)) if pairs.shape == (2,) else pairs
    check.require(pairs.shape == (columns, 2), who, f"ranges must be {columns} pairs (low, high)", hint=_FORMS)
    wrong = np.flatnonzero(~(np.isfinite(pairs).all(axis=1) & (pairs[:, 0] < pairs[:, 1])))
    if len(wrong):
        column = int(wrong[0]) if names is None else names[wrong[0]]
        rule = f"low must be < high, both finite, in the range of column {column!r}"
        check.require(False, who, rule, hint="Ranges are stated, never the rows themselves")
    return pairs


def scaled_to_ranges(X: Floats, ranges: Floats, centre: bool = True) -> Floats:
    """Each column of X clipped to its range and brought to [-1, 1]; without `centre` it is divided only: 0 stays 0."""
    low, high = ranges.T
    middle = (low + high) / 2 if centre else np.zeros_like(low)
    reach = np.maximum(high - middle, middle - low)
    return np.clip((np.clip(X, low, high) - middle) / reach, -1.0, 1.0)
