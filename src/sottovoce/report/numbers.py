"""How numbers are printed, in tables, pages and figures alike."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sottovoce.problems.metrics import ALONE

MISSING = "–"


@dataclass(frozen=True)
class Measure:
    """A column of a history that says how good a model is, its name in words, and how its values are printed."""

    column: str
    words: str
    percent: bool = False

    def text(self, value: float | None, sign: bool = False) -> str:
        """One value; with `sign` also a plus."""
        if value is None or not math.isfinite(value):
            return MISSING if value is None else "not finite"
        return f"{value:{'+' if sign else ''}{'.2%' if self.percent else '.4g'}}"

    def texts(self, interval: Mapping[str, float] | None, sign: bool = False) -> tuple[str, str]:
        """A mean and its interval; `interval` is what `Interval.plain` gives."""
        if interval is None:
            return MISSING, MISSING
        low, high = interval["low"], interval["high"]
        known = math.isfinite(interval["mean"]) and math.isfinite(low)
        limits = f"{self.text(low, sign)} to {self.text(high, sign)}" if known else MISSING
        return self.text(interval["mean"], sign), limits


MEASURES = (
    Measure("test_accuracy", "test accuracy", percent=True),
    Measure("test_loss", "test loss"),
    Measure("objective", "training objective"),
)

LARGER = Measure("test_larger_class", "larger class", percent=True)  # what every accuracy is shown beside
METRICS = (  # of the finished model, on test rows
    LARGER,
    Measure("test_balanced_accuracy", "balanced accuracy", percent=True),
    Measure("test_auc", "AUC"),
    Measure("test_log_loss", "log loss"),
    Measure("test_calibration_error", "calibration error"),
    Measure("test_r2", "R²"),
    Measure("test_mae", "mean absolute error"),
)


def quality(ends: Mapping[str, float | None]) -> str:
    """How good a finished model is, in one line; "" where nothing was measured. `ends` is a run's summary."""
    known = [(each, ends.get(each.column)) for each in (MEASURES[0], *METRICS, *of_parties_alone(ends))]
    there = ((each, value) for each, value in known if value is not None and math.isfinite(value))
    return ", ".join(f"{each.words} {each.text(value)}" for each, value in there)


def of_parties_alone(columns: Iterable[str]) -> list[Measure]:
    """What each party's columns alone would give, where columns are split and a run measured that."""
    wanted = (("test_accuracy_", True), ("test_r2_", False))
    return [
        Measure(column, f"columns of {column.removeprefix(first).removesuffix(ALONE)} alone", percent)
        for column in columns
        for first, percent in wanted
        if column.startswith(first) and column.endswith(ALONE)
    ]


def count(number: int) -> str:
    """45 222"""
    return f"{number:,}".replace(",", " ")


def size(number_of_bytes: float | None) -> str:
    """8.3 MB"""
    from rich.filesize import decimal

    return MISSING if number_of_bytes is None else decimal(int(number_of_bytes)).replace("bytes", "B")


def rounded_up(value: float, digits: int) -> str:
    """A bound that is rounded to the nearest number may no longer be one."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"
