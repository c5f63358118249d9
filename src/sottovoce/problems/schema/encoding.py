"""How single entries become numbers: one spelling, one number or one day for each text, and blocks of numbers.

Nothing here needs more than NumPy: an exported model (`report/export.py`) carries this file along as it is, and so
encodes new rows as training did, to the last bit.
"""

import datetime
import math

import numpy as np

EPOCH = datetime.date(1970, 1, 1).toordinal()
ALWAYS_MISSING = frozenset(("", "nan", "NaN", "NAN"))
_WEIGHT_OF_HATS = 0.5


def canonical(value: object) -> str:
    """One spelling for equal values: 1, 1.0 and "1.0" are "1"; True and "TRUE" are "true"; spaces around are cut.

    Examples
    --------
    >>> from sottovoce.problems.schema.encoding import canonical
    >>> canonical(1.0), canonical(" 1.50"), canonical(True), canonical("No")
    ('1', '1.5', 'true', 'No')
    """
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    number = as_number(text)
    if not math.isfinite(number) or abs(number) >= 2.0**53:  # longer codes would fall together
        return text
    return str(int(number)) if number == int(number) else repr(number)


def as_number(text: str) -> float:
    """The number that a text stands for; NaN if it is none."""
    if "_" in text:  # Python reads 1_000 as a number, and nobody else does
        return math.nan
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return float(text)
    except ValueError:
        return math.nan


def day_of(text: str, form: str = "") -> float:
    """The day that a text stands for: in the given format, or as ISO 8601 (a time behind it is ignored); else NaN."""
    if form:
        try:
            return float(datetime.datetime.strptime(text, form).toordinal() - EPOCH)
        except ValueError:
            pass
    try:
        if len(text) > 10 and text[10] not in "T ":
            return math.nan
        return float(datetime.date.fromisoformat(text[:10]).toordinal() - EPOCH)
    except ValueError:
        return math.nan


def centred_one_hot(codes: np.ndarray, count: int) -> np.ndarray:
    """1 in the column of the code and 0 in the others, less 1/count; zeros for the code -1."""
    table = np.vstack([np.eye(count) - 1.0 / count, np.zeros(count)])  # the last row serves the code -1
    return table[codes]


def shapes(scaled: np.ndarray, waves: int, knots: int) -> np.ndarray:
    """What lets a model bend over [-1, 1]: cosines, then hat functions, (rows, waves + knots).

    Cosines have 2, 3, ... half waves; one of j half waves weighs 1.4/j^1.5, so that smooth shapes are learnt before
    wiggly ones. Hat functions are piecewise linear, add up to 1, have their mean taken off and weigh one half.
    """
    halves = np.arange(2, waves + 2)
    cosines = np.cos(np.pi / 2 * (scaled[:, None] + 1.0) * halves) * (1.4 / halves**1.5)
    place = (scaled + 1.0) * ((knots - 1) / 2.0)
    hats = np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(knots)))
    return np.hstack([cosines, (hats - 1.0 / max(1, knots)) * _WEIGHT_OF_HATS])


def scaled_block(entries: np.ndarray, low: float, high: float, waves: int, knots: int, missing: bool) -> np.ndarray:
    """Entries within [low, high] brought to [-1, 1]; `shapes`; whether one is missing."""
    gaps = np.isnan(entries)
    scaled = np.clip((entries - low) / (high - low) * 2.0 - 1.0, -1.0, 1.0)
    scaled = np.where(gaps, 0.0, scaled)
    blocks = [scaled[:, None], shapes(scaled, waves, knots)]
    if missing:
        blocks.append(np.where(gaps, 1.0, -1.0)[:, None])
    return np.hstack(blocks)


def date_block(
    days: np.ndarray, low: float, high: float, waves: int, knots: int, missing: bool, weekday: bool, month: bool
) -> np.ndarray:
    """Days since 1970-01-01 as `scaled_block` has them, and their day of the week and month if asked."""
    blocks, known = [scaled_block(np.clip(days, low, high), low, high, waves, knots, missing)], np.isfinite(days)
    dates = np.where(known, days, 0.0).astype(np.int64).astype("datetime64[D]")
    if weekday:
        day = (dates.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
        blocks.append(centred_one_hot(np.where(known, day, -1), 7))
    if month:
        place = dates.astype("datetime64[M]").astype(np.int64) % 12
        blocks.append(centred_one_hot(np.where(known, place, -1), 12))
    return np.hstack(blocks)


def chosen_block(entries: np.ndarray) -> np.ndarray:
    """Columns of zeros and ones that name a level together, less 1/count; zeros for a row without any."""
    return np.where(entries.max(axis=1, keepdims=True) > 0, entries - 1.0 / entries.shape[1], 0.0)
