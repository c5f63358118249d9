"""Blocks of numbers that columns of a schema consist of, and checks of what they need."""

from typing import Any

import numpy as np

from sottovoce.core import check

MOST_KNOTS = 1000
_WEIGHT_OF_HATS = 0.5


def centred_one_hot(codes: np.ndarray, count: int) -> np.ndarray:
    """1 in the column of the code and 0 in the others, less 1/count; zeros for the code -1."""
    table = np.vstack([np.eye(count) - 1.0 / count, np.zeros(count)])  # the last row serves the code -1
    return table[codes]


def scaled_block(entries: np.ndarray, low: float, high: float, knots: int, missing: bool) -> np.ndarray:
    """Entries within [low, high] brought to [-1, 1]; hat functions; whether one is missing."""
    gaps = np.isnan(entries)
    scaled = np.clip((entries - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
    scaled = np.where(gaps, 0.0, scaled)
    blocks = [scaled[:, None]]
    if knots:
        place = (scaled + 1.0) * ((knots - 1) / 2.0)
        hats = np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(knots)))
        blocks.append((hats - 1.0 / knots) * _WEIGHT_OF_HATS)
    if missing:
        blocks.append(np.where(gaps, 1.0, -1.0)[:, None])
    return np.hstack(blocks)


def check_range(who: str, low: Any, high: Any) -> None:
    """`low` and `high` must be the ends of a range."""
    got = f"got {check.shown(low)}, {check.shown(high)}"
    numbers = all(isinstance(end, int | float | np.number) and not isinstance(end, bool) for end in (low, high))
    check.require(numbers, who, f"needs a range (low, high) of two numbers, {got}")
    try:
        width = float(high) - float(low)
    except OverflowError:
        width, got = np.inf, "got a number beyond 1e308"
    check.require(0 < width < np.inf, who, f"low must be < high, both finite, {got}")


def check_knots(who: str, knots: Any) -> None:
    """`knots` must be a number of hat functions."""
    fits = check.is_whole(knots, 0) and (knots == 0 or 3 <= knots <= MOST_KNOTS)
    rule = f"knots must be 0 (none) or a whole number from 3 to {MOST_KNOTS}"
    check.require(fits, who, f"{rule}, got {check.shown(knots)}")


def short(number: float) -> int | float:
    """17 in place of 17.0."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
