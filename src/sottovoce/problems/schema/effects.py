"""What a model says about each column of a table: by how much a score changes.

Effects belong to a row before it is divided by its length: a row of length 3 has a third of them. They are exact for
the model, and as noisy as it is.
"""

from typing import NamedTuple

import numpy as np

from sottovoce.core import check
from sottovoce.problems.schema.columns import Category, Column, Date, Number, OneHot
from sottovoce.problems.schema.encoding import shapes
from sottovoce.problems.schema.schema import BIAS, Schema

_DAYS_OF_A_YEAR = 365.25


class Effect(NamedTuple):
    """By how much a score changes: for one unit of a number, or for a level next to the mean of all levels."""

    column: str
    what: str
    change: float


def effects(schema: Schema, weights: np.ndarray) -> list[Effect]:
    """The effects of all columns, for the weights of one output of a model."""
    weights = check.finite_array("effects", "weights", weights, ndim=1)
    check.require(len(weights) == schema.width, "effects", f"needs {schema.width} weights", len(weights))
    listed, start = [], 0
    for name, column in schema.columns.items():
        names = column.feature_names(name)
        of_column = weights[start : start + len(names)]
        listed += [Effect(name, what, float(change)) for what, change in _of_column(column, of_column, names, name)]
        start += len(names)
    return [*listed, *([Effect(BIAS, "every row", float(weights[-1]))] if schema.bias else [])]


def _of_column(column: Column, weights: np.ndarray, names: list[str], name: str) -> list[tuple[str, float]]:
    whats = [each.removeprefix(name)[1:] for each in names]  # "name=level", or "name what"
    if isinstance(column, Category | OneHot):
        return list(zip(whats, weights - weights.mean(), strict=True))
    assert isinstance(column, Number | Date)
    low, high = column.ends()
    unit = 2.0 / (high - low)
    line = (column.unit, weights[0] * unit * (_DAYS_OF_A_YEAR if isinstance(column, Date) else 1.0))
    waves, knots = column.waves, column.knots
    curve = shapes(np.linspace(-1.0, 1.0, max(waves, knots)), waves, knots) @ weights[1 : 1 + waves + knots]
    bends = list(zip(column.places(), curve - curve.mean() if len(curve) else curve, strict=True))
    place = 1 + waves + knots
    gap = [("missing, next to known", 2.0 * weights[place])] if column.missing else []
    place += len(gap)
    rest = []
    calendar = ((7, column.weekday), (12, column.month)) if isinstance(column, Date) else ()
    for count in (count for count, asked in calendar if asked):
        block = weights[place : place + count]
        rest += list(zip(whats[place:], block - block.mean(), strict=False))
        place += count
    return [line, *bends, *gap, *rest]
