"""Checks of ranges, waves and knots, which several kinds of columns have."""

import numpy as np

from sottovoce.core import check

MOST_SHAPES = 1000


def check_range(who: str, low: object, high: object) -> tuple[float, float]:
    """`low` and `high`, which must be the ends of a range."""
    got = f"got {check.shown(low)}, {check.shown(high)}"
    if not (check.is_number(low) and check.is_number(high)):
        raise check.InvalidInput(f"{who}: needs a range (low, high) of two numbers, {got}")
    try:
        width = float(high) - float(low)
    except OverflowError:
        width, got = np.inf, "got a number beyond 1e308"
    check.require(0 < width < np.inf, who, f"low must be < high, both finite, {got}")
    return float(low), float(high)


def check_shapes(who: str, waves: int, knots: int) -> None:
    """`waves` must be a number of cosines, `knots` one of hat functions."""
    fits = check.is_whole(waves, 0) and waves <= MOST_SHAPES
    rule = f"waves must be a whole number from 0 (none) to {MOST_SHAPES}"
    check.require(fits, who, f"{rule}, got {check.shown(waves)}")
    fits = check.is_whole(knots, 0) and (knots == 0 or 3 <= knots <= MOST_SHAPES)
    rule = f"knots must be 0 (none) or a whole number from 3 to {MOST_SHAPES}"
    check.require(fits, who, f"{rule}, got {check.shown(knots)}")


def short(number: float) -> int | float:
    """17 in place of 17.0."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
