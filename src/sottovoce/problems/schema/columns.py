"""The kinds of columns a schema knows, and how an entry of each becomes numbers.

Every kind turns the entries of its own column into a block of numbers, entry by entry:

- a number is clipped to its range and brought to [-1, 1], after log1p if asked;
- `waves` = k adds cosines of 2, 3, ..., k + 1 half waves on the range, the shorter the lighter: with them a model can
  bend, and smooth shapes are learnt before wiggly ones;
- `knots` = k adds k hat functions on the range (piecewise linear, they add up to 1), less 1/k, times 1/2: for effects
  that jump or peak in one place;
- a category with k levels becomes k columns, 1 in the column of its level and 0 in the others, less 1/k. A level that
  is not in the list becomes zeros;
- a missing number becomes the middle of the range, and has a column of its own (+1 where missing, else -1) if `missing`
  is stated; a missing category is a level of its own if `missing` is stated, and zeros if not.

Why waves weigh 1.4/j^1.5. Noise is as large in all directions, so weights are a prior: what weighs more is learnt
first. Compared with 8 hat functions of weight 1/2 at ε = 1 and 3 (noisy-gd, server sees all messages), in points of
accuracy: Adult, three splits +0.14 and +0.14; made-up rows with effects of all kinds +0.55, +0.33, steps +0.52, +0.02,
straight lines +0.02, +0.05, kinks +0.47, +0.26. Hat functions of weight 0.7 and 1, 5 and 12 of them, weights 1/j,
1/j^1.5 and 0.7/j^0.5, and mixtures of both were no better on all of these. On rows that nothing was chosen on: two more
splits of Adult +0.06, +0.15; smooth steps +0.11, +0.11; spikes +0.14, +0.09; parabolas +0.34, +0.31; 3000 rows +0.23,
+0.36; 300 columns −0.04, −0.04; heart disease, 555 rows −0.1, −0.2 (and −0.7 at ε = 0.3); 3 % positive with a spike
−0.01, −0.04 (its AUC −0.9, −0.5: a spike is what waves are worst at).
"""

import datetime
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.problems.schema import encoding, values
from sottovoce.problems.schema.encoding import EPOCH, canonical, day_of

Missing = bool | Sequence[str | float]
MOST_LEVELS, MOST_SHAPES = 10_000, 1000
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Column(ABC):
    """One column of a schema."""

    missing: Missing
    key: ClassVar[str]  # of a TOML table that describes a column of this kind

    @abstractmethod
    def read(self, who: str, arrays: Sequence["values.Array"], marks: frozenset[str]) -> np.ndarray:
        """The entries as float64 numbers or as codes of levels, NaN (or a code of its own) where one is missing."""

    @abstractmethod
    def encode(self, entries: np.ndarray) -> np.ndarray:
        """The block of numbers, (rows, columns), that belongs to the entries that `read` gave."""

    @abstractmethod
    def feature_names(self, name: str) -> list[str]:
        """A name for each column of the block."""

    @abstractmethod
    def to_table(self) -> Json:
        """The column as a TOML table."""

    def sources(self, name: str) -> tuple[str, ...]:
        """The columns of the user's table that are read."""
        return (name,)

    def marks(self) -> tuple[str, ...]:
        """The values that stand for a missing one in this column alone."""
        return () if isinstance(self.missing, bool) else tuple(map(canonical, self.missing))

    def _options(self, *names: str) -> Json:
        """`missing` and the options of these names, as TOML values, where they are not at their defaults."""
        missing = self.missing if isinstance(self.missing, bool) else list(self.missing)
        options = {"missing": missing} | {name: getattr(self, name) for name in names}
        return {name: value for name, value in options.items() if value}


def as_missing(who: str, missing: object) -> Missing:
    """`missing` checked: True, False, or the values that stand for a missing one."""
    if isinstance(missing, bool):
        return missing
    marks = list(missing) if isinstance(missing, list | tuple) else []
    listed = bool(marks) and all(isinstance(mark, str | int | float) for mark in marks)
    rule = "missing must be true, false, or a list of the values that stand for a missing one"
    check.require(listed, who, f"{rule}, got {check.shown(missing)}")
    return tuple(dict.fromkeys(map(canonical, marks)))


def as_range(who: str, low: object, high: object) -> tuple[float, float]:
    """`low` and `high` checked: the ends of a range."""
    got = f"got {check.shown(low)}, {check.shown(high)}"
    if not (check.is_number(low) and check.is_number(high)):
        raise check.InvalidInput(f"{who}: needs a range (low, high) of two numbers, {got}")
    try:
        width = float(high) - float(low)
    except OverflowError:
        width, got = np.inf, "got a number beyond 1e308"
    check.require(0 < width < np.inf, who, f"low must be < high, both finite, {got}")
    return float(low), float(high)


def short(number: float) -> int | float:
    """17 in place of 17.0."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


class Ranged(Column):
    """A column of numbers on a range, with waves and knots on it."""

    waves: int
    knots: int

    def _check_options(self) -> None:
        """Check `waves`, `knots` and `missing`, and keep them in one form."""
        who = type(self).__name__
        fits = check.is_whole(self.waves, 0) and self.waves <= MOST_SHAPES
        rule = f"waves must be a whole number from 0 (none) to {MOST_SHAPES}"
        check.require(fits, who, f"{rule}, got {check.shown(self.waves)}")
        fits = check.is_whole(self.knots, 0) and (self.knots == 0 or 3 <= self.knots <= MOST_SHAPES)
        rule = f"knots must be 0 (none) or a whole number from 3 to {MOST_SHAPES}"
        check.require(fits, who, f"{rule}, got {check.shown(self.knots)}")
        kept = {"waves": int(self.waves), "knots": int(self.knots), "missing": as_missing(who, self.missing)}
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def feature_names(self, name: str) -> list[str]:
        bends = [*(f"wave {halves}" for halves in range(2, self.waves + 2)), *self._near(self.knots)]
        return [name, *(f"{name} {bend}" for bend in bends), *([f"{name} missing"] if self.missing else [])]

    def places(self) -> list[str]:
        """Names of as many places on the range as there are waves or knots, from end to end."""
        return self._near(max(self.waves, self.knots))

    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The range as it is scaled: after log1p if that is asked, or in days."""

    @abstractmethod
    def _near(self, count: int) -> list[str]:
        """Names of `count` places on the range, from end to end."""


@dataclass(frozen=True)
class Number(Ranged):
    """A number that is known to lie between `low` and `high`; others are clipped to that range.

    Parameters
    ----------
    low, high
        The range, from a code book, a law of nature or a form's limits: never from private rows.
    log
        Take log1p first: for amounts with a heavy tail, such as money. The range must lie above -1.
    waves
        So many cosines beside the straight line, of 2, 3, ... half waves on the range: for a number of which more is
        not always more, such as age. 8 suits most. 0: none.
    knots
        So many hat functions beside the straight line, equally spaced on the range: the same, for an effect that is
        sharp in one place. 0: none.
    missing
        Whether values can be missing: True, or a list of the values that stand for a missing one, such as [0, -9].

    Examples
    --------
    >>> import sottovoce as sv
    >>> schema = sv.Schema(age=sv.Number(0, 100, missing=True))
    >>> (2 * schema.transform({"age": [100, 25, None]})).round(2)  # scaled, whether missing, bias
    array([[ 1.15, -1.15,  1.15],
           [-0.67, -1.33,  1.33],
           [ 0.  ,  1.41,  1.41]])
    """

    low: float
    high: float
    log: bool = False
    knots: int = 0
    missing: Missing = False
    waves: int = 0
    key: ClassVar[str] = "range"

    def __post_init__(self) -> None:
        for name, end in zip(("low", "high"), as_range("Number", self.low, self.high), strict=True):
            object.__setattr__(self, name, end)
        check.of_kind("Number", "log", self.log, bool, "True")
        above = not self.log or self.low > -1
        check.require(above, "Number", "log needs a range above -1, since log1p(-1) is not finite", self.low)
        self._check_options()

    def read(self, who: str, arrays: Sequence["values.Array"], marks: frozenset[str]) -> np.ndarray:
        return values.numbers(who, arrays[0], marks)

    def encode(self, entries: np.ndarray) -> np.ndarray:
        clipped = np.clip(entries, self.low, self.high)
        clipped = np.log1p(clipped) if self.log else clipped
        return encoding.scaled_block(clipped, *self.ends(), self.waves, self.knots, bool(self.missing))

    def _near(self, count: int) -> list[str]:
        places = np.linspace(*self.ends(), count)
        return [f"near {place:.4g}" for place in (np.expm1(places) if self.log else places)]

    def to_table(self) -> Json:
        return {"range": [short(self.low), short(self.high)], **self._options("log", "waves", "knots")}

    @property
    def unit(self) -> str:
        """What a coefficient of this column is per."""
        return "per unit of log(1 + value)" if self.log else "per unit"

    def ends(self) -> tuple[float, float]:
        return (float(np.log1p(self.low)), float(np.log1p(self.high))) if self.log else (self.low, self.high)


@dataclass(frozen=True, init=False)
class Category(Column):
    """One of the levels that are listed. Others count as unknown.

    Parameters
    ----------
    levels
        All the values that there can be, as texts or numbers.
    missing
        Whether values can be missing (which is then a level of its own): True, or a list of the values that stand for
        a missing one.

    Examples
    --------
    >>> import sottovoce as sv
    >>> schema = sv.Schema(sex=sv.Category("f", "m"))
    >>> schema.transform({"sex": ["f", "m", "unknown"]}).round(2)
    array([[ 0.41, -0.41,  0.82],
           [-0.41,  0.41,  0.82],
           [ 0.  ,  0.  ,  1.  ]])
    """

    levels: tuple[str, ...]
    missing: Missing
    key: ClassVar[str] = "levels"

    def __init__(self, *levels: object, missing: object = False) -> None:
        who, simple = "Category", all(isinstance(level, str | int | float | np.generic) for level in levels)
        check.require(simple, who, "levels must be texts or numbers, listed one by one")
        spelt = tuple(map(canonical, levels))
        check.require(len(spelt) >= 2, who, "needs at least 2 levels", len(spelt))
        check.require(len(spelt) <= MOST_LEVELS, who, f"takes at most {MOST_LEVELS} levels", len(spelt))
        check.require("" not in spelt, who, "levels must not be empty. Say missing=True if values are missing")
        twice = ", ".join(sorted(repr(level) for level, times in Counter(spelt).items() if times > 1))
        check.require(not twice, who, f"levels must be distinct, and {twice} is named twice")
        object.__setattr__(self, "levels", spelt)
        object.__setattr__(self, "missing", as_missing("Category", missing))
        both = sorted(set(self.levels) & set(self.marks()))
        check.require(not both, "Category", f"{both} cannot be both a level and a missing value")

    def read(self, who: str, arrays: Sequence["values.Array"], marks: frozenset[str]) -> np.ndarray:
        """0, 1, ... for the levels, their number for a missing value, and -1 for any other."""
        code = {level: place for place, level in enumerate(self.levels)}
        gap = len(self.levels) if self.missing else -1
        return values.codes(who, arrays[0], lambda text: gap if text in marks else code.get(text, -1), gap)

    def encode(self, entries: np.ndarray) -> np.ndarray:
        return encoding.centred_one_hot(entries, len(self.levels) + bool(self.missing))

    def feature_names(self, name: str) -> list[str]:
        return [*(f"{name}={level}" for level in self.levels), *([f"{name} missing"] if self.missing else [])]

    def to_table(self) -> Json:
        return {"levels": list(self.levels), **self._options()}


@dataclass(frozen=True)
class Date(Ranged):
    """A date between `first` and `last`, as a number of days; earlier and later ones are clipped.

    Parameters
    ----------
    first, last
        Dates, or texts such as "2024-12-31".
    weekday, month
        Whether the day of the week, or the month, is a category beside it.
    form
        How dates are written, such as "%d.%m.%Y". "": 2024-12-31, with or without a time behind it.
    waves, knots, missing
        As for `Number`.

    Examples
    --------
    >>> import sottovoce as sv
    >>> schema = sv.Schema(admitted=sv.Date("2020-01-01", "2029-12-31", weekday=True))
    >>> schema.get_feature_names_out().tolist()[:3]
    ['admitted', 'admitted weekday=Mon', 'admitted weekday=Tue']
    """

    first: str | datetime.date
    last: str | datetime.date
    weekday: bool = False
    month: bool = False
    form: str = ""
    knots: int = 0
    missing: Missing = False
    waves: int = 0
    key: ClassVar[str] = "dates"
    unit: ClassVar[str] = "per year"

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            date = getattr(self, name)
            text = date.isoformat()[:10] if isinstance(date, datetime.date) else date
            fits = isinstance(text, str) and len(text) == 10 and np.isfinite(day_of(text))
            check.require(fits, "Date", f"{name} must be a date such as '2024-12-31', got {check.shown(date)}")
            object.__setattr__(self, name, text)
        low, high = self.ends()
        check.require(low < high, "Date", f"first must be before last, got {self.first} and {self.last}")
        for name in ("weekday", "month"):
            check.of_kind("Date", name, getattr(self, name), bool, "True")
        check.of_kind("Date", "form", self.form, str, "'%d.%m.%Y'")
        example = datetime.date(2024, 12, 31)
        day = day_of(example.strftime(self.form) if self.form else str(example), self.form)
        readable = day == example.toordinal() - EPOCH
        check.require(readable, "Date", "form must say day, month and year, such as '%d.%m.%Y'", self.form)
        self._check_options()

    def read(self, who: str, arrays: Sequence["values.Array"], marks: frozenset[str]) -> np.ndarray:
        return values.days(who, arrays[0], self.form, marks)

    def encode(self, entries: np.ndarray) -> np.ndarray:
        options = self.waves, self.knots, bool(self.missing), self.weekday, self.month
        return encoding.date_block(entries, *self.ends(), *options)

    def feature_names(self, name: str) -> list[str]:
        names = super().feature_names(name)
        names += [f"{name} weekday={day}" for day in _WEEKDAYS] if self.weekday else []
        return names + ([f"{name} month={month}" for month in _MONTHS] if self.month else [])

    def _near(self, count: int) -> list[str]:
        days = np.linspace(*self.ends(), count).round().astype(np.int64)
        return [f"near {datetime.date.fromordinal(int(day) + EPOCH)}" for day in days]

    def to_table(self) -> Json:
        return {"dates": [self.first, self.last], **self._options("weekday", "month", "form", "waves", "knots")}

    def ends(self) -> tuple[float, float]:
        return day_of(str(self.first)), day_of(str(self.last))


@dataclass(frozen=True, init=False)
class OneHot(Column):
    """A category that the table already holds as several columns of zeros and ones, one for each level.

    A row without a one has an unknown level. Values are clipped to [0, 1].

    Examples
    --------
    >>> import sottovoce as sv
    >>> sv.Schema(colour=sv.OneHot("red", "green")).transform({"red": [1, 0], "green": [0, 0]}).round(2)
    array([[ 0.41, -0.41,  0.82],
           [ 0.  ,  0.  ,  1.  ]])
    """

    columns: tuple[str, ...]
    missing: Missing
    key: ClassVar[str] = "one_hot"

    def __init__(self, *columns: object) -> None:
        texts = all(isinstance(column, str) for column in columns)
        check.require(texts, "OneHot", "columns must be names, listed one by one")
        distinct = len(columns) >= 2 and len(set(columns)) == len(columns)
        check.require(distinct, "OneHot", "needs the names of at least two columns, all different", len(columns))
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "missing", False)

    def read(self, who: str, arrays: Sequence["values.Array"], marks: frozenset[str]) -> np.ndarray:
        read = [np.nan_to_num(np.clip(values.numbers(who, array, marks), 0.0, 1.0)) for array in arrays]
        return np.column_stack(read)

    def encode(self, entries: np.ndarray) -> np.ndarray:
        return encoding.chosen_block(entries)

    def feature_names(self, name: str) -> list[str]:
        return [f"{name}={column}" for column in self.columns]

    def to_table(self) -> Json:
        return {"one_hot": list(self.columns)}

    def sources(self, name: str) -> tuple[str, ...]:
        return self.columns
