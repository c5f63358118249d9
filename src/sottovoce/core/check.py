"""Checks at the border, and the errors they raise.

Every message names the thing, the rule, the value and the way out, in one sentence: the command line prints it
as it is and a caller can catch one class.
"""

import difflib
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike


class SottovoceError(Exception):
    """Anything this library refuses to do, with a sentence a user can act on."""


class InvalidInput(SottovoceError, ValueError):
    """A value from outside breaks a rule."""


class MissingData(SottovoceError, FileNotFoundError):
    """A data set, a file or a run folder is not where it was looked for."""

    def __str__(self) -> str:  # FileNotFoundError would print its arguments as (errno, text)
        return str(self.args[0]) if self.args else "missing data"


class NoGuarantee(SottovoceError):
    """A privacy statement was asked for that no proof supports."""


class BudgetSpent(SottovoceError):
    """The next answer would exceed a client's privacy budget; nothing was answered."""


class PrivacyWarning(UserWarning):
    """A setting that is allowed but weakens what a guarantee means."""


ROW_BOUND = (  # the ways to promise one
    "Federation.from_arrays(..., row_bound=...), prepare=PublicScaler(...) or row_bound=... of an estimator, [data] "
    "row_bound in a file"
)
_NOTHING = object()


def require(holds: bool, who: str, rule: str, got: object = _NOTHING, hint: str = "") -> None:
    """Raise ``InvalidInput("<who>: <rule>, got <got>. <hint>")`` unless `holds`."""
    if not holds:
        value = "" if got is _NOTHING else f", got {got!r}"
        raise InvalidInput(f"{who}: {rule}{value}" + (f". {hint}" if hint else ""))


def positive(who: str, **values: float) -> None:
    """Each value must be a finite number > 0."""
    for name, value in values.items():
        require(_is_number(value) and math.isfinite(value) and value > 0, who, _rule(name, "> 0", value), value)


def non_negative(who: str, **values: float) -> None:
    """Each value must be a finite number >= 0."""
    for name, value in values.items():
        require(_is_number(value) and math.isfinite(value) and value >= 0, who, _rule(name, ">= 0", value), value)


def between(who: str, low: float, high: float, **values: float) -> None:
    """Each value must lie strictly between `low` and `high`."""
    for name, value in values.items():
        inside = _is_number(value) and low < value < high
        require(
            inside,
            who,
            f"{name} must {'' if _is_number(value) else 'be a number and '}lie in ({low:g}, {high:g})",
            value,
        )


def whole(who: str, at_least: int = 1, **values: int) -> None:
    """Each value must be a whole number >= `at_least`."""
    for name, value in values.items():
        fits = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= at_least
        require(fits, who, f"{name} must be a whole number >= {at_least}", value)


def one_of(who: str, what: str, value: str, known: Iterable[str]) -> str:
    """`value` if it is one of `known`; else an error that names the nearest known one."""
    names = list(known)
    if value in names:
        return value
    near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}"
    raise InvalidInput(f"{who}: unknown {what} {value!r}. {hint}")


def finite_array(who: str, name: str, value: ArrayLike, ndim: int, dtype: type = np.float64) -> np.ndarray:
    """`value` as an array of `ndim` axes with finite entries; the error says where the first bad one is."""
    try:
        if np.iscomplexobj(value):
            raise InvalidInput(f"{who}: {name} must be real numbers, got complex ones")
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused below
            array = np.asarray(value, dtype=dtype)
    except InvalidInput:
        raise
    except (TypeError, ValueError):
        raise InvalidInput(f"{who}: {name} must be numbers{_first_other(value)}") from None
    require(array.ndim == ndim, who, f"{name} must have {ndim} axes", array.shape)
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        count = int(array.size - finite.sum())
        raise InvalidInput(
            f"{who}: {name} must be finite, got {array[where]} at {where} ({count} such entries). "
            "Drop these rows, or fill in numbers that are known without looking at them"
        )
    return array


def _rule(name: str, rule: str, value: object) -> str:
    return f"{name} must be {rule}" if _is_number(value) else f"{name} must be a number {rule}"


def _first_other(value: ArrayLike) -> str:
    """Where the first entry is that no number can be made of. What it is may be private, and errors travel far."""
    try:
        entries = np.asarray(value, dtype=object)
    except ValueError:
        return " in rows of equal length"
    for where, entry in np.ndenumerate(entries):
        try:
            float(entry)
        except (TypeError, ValueError):
            if isinstance(entry, list | tuple | np.ndarray):
                return " in rows of equal length"
            return f", and there is {type(entry).__name__} at {where}. Drop such rows, or make numbers of them"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
