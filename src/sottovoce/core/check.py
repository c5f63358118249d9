"""Checks at the border, and the errors they raise.

Every message names the thing, the rule, the value and how to fix it, in one sentence: the command line prints it
as it is and a caller can catch one class.

Messages travel further than rows do: into logs, bug reports, the output of worker processes. So a value is only told
where it is a setting (`shown`). Of data a message tells the kind, the shape and the place, never an entry. Nor may an
entry hide in the error that came before (`__context__`): what NumPy says is dropped before ours is raised.
"""

import difflib
import math
from collections.abc import Iterable, Sized
from dataclasses import fields, is_dataclass
from types import UnionType

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
_LONGEST_TEXT = 80  # characters of a setting that are told


def shown(value: object) -> str:
    """`value` as a message may tell it: a setting as it is, anything that may hold data by its kind and size.

    Settings are single numbers, short text, None, and this library's own objects made of these.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L2
    >>> from sottovoce.core.check import shown
    >>> shown(0.5), shown("dp-admm"), shown(L2(0.1))
    ('0.5', "'dp-admm'", 'L2(lam=0.1)')
    >>> shown(np.eye(2)), shown([70, 81, 93])
    ('ndarray of shape (2, 2)', 'list of length 3')
    """
    kind = type(value)
    if isinstance(value, np.bool_ | np.number | np.str_):
        return shown(value.item())
    if value is None or isinstance(value, bool | int | float | complex):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]!r}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if is_dataclass(value) and kind.__module__.startswith("sottovoce."):
        own = (f"{each.name}={shown(getattr(value, each.name))}" for each in fields(value) if each.repr)
        return f"{kind.__name__}({', '.join(own)})"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{kind.__name__} of shape {shape}"
    if isinstance(value, Sized):
        return f"{kind.__name__} of length {len(value)}"
    return f"an object of class {kind.__name__}"


def require(holds: bool, who: str, rule: str, got: object = _NOTHING, hint: str = "") -> None:
    """Raise ``InvalidInput("<who>: <rule>, got <got>. <hint>")`` unless `holds`.

    `got` is told as `shown` does, but for a tuple of whole numbers, which is taken for a shape and told as it is. A
    value of whatever kind from outside may be a row of whole numbers: for these there is `of_kind`, or `shown` itself.
    """
    if not holds:
        said = str(got) if _is_shape(got) else shown(got)
        value = "" if got is _NOTHING else f", got {said}"
        raise InvalidInput(f"{who}: {rule}{value}" + (f". {hint}" if hint else ""))


def of_kind(who: str, name: str, value: object, kind: type | UnionType, example: str) -> None:
    """`value` must be a `kind`. Whatever else was given, rows perhaps, is told by its own kind and size alone."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{who}: {name} must be an object such as {example}, got {shown(value)}")


def positive(who: str, **values: float) -> None:
    """Each value must be a finite number > 0."""
    for name, value in values.items():
        _number(is_positive(value), who, _rule(name, "> 0", value), value)


def non_negative(who: str, **values: float) -> None:
    """Each value must be a finite number >= 0."""
    for name, value in values.items():
        _number(_is_number(value) and math.isfinite(value) and value >= 0, who, _rule(name, ">= 0", value), value)


def between(who: str, low: float, high: float, **values: float) -> None:
    """Each value must lie strictly between `low` and `high`."""
    for name, value in values.items():
        inside = _is_number(value) and low < value < high
        also = "" if _is_number(value) else "be a number and "
        _number(inside, who, f"{name} must {also}lie in ({low:g}, {high:g})", value)


def whole(who: str, at_least: int = 1, **values: int) -> None:
    """Each value must be a whole number >= `at_least`."""
    for name, value in values.items():
        _number(is_whole(value, at_least), who, f"{name} must be a whole number >= {at_least}", value)


def is_positive(value: object) -> bool:
    return _is_number(value) and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]


def is_whole(value: object, at_least: int = 1) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)


def one_of(who: str, what: str, value: str, known: Iterable[str]) -> str:
    """`value` if it is one of `known`; else an error that names the nearest known one."""
    names = list(known)
    single = isinstance(value, str) or not hasattr(value, "__len__")  # comparing an array would compare its entries
    if single and value in names:
        return value
    near = difflib.get_close_matches(value, names, n=1, cutoff=0.5) if isinstance(value, str) else []
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(map(str, names))}"
    raise InvalidInput(f"{who}: unknown {what} {shown(value)}. {hint}")


def utf8(who: str, content: bytes, what: str) -> str:
    """`content` as text. Python's error holds all of it, so ours is raised after it, not in its context."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = error.start
    raise InvalidInput(f"{who}: must be {what} in UTF-8, and byte {bad} is not")


def any_array(who: str, name: str, value: ArrayLike | None) -> np.ndarray:
    """`value` as an array, whatever it holds; rows of unequal length are none."""
    try:
        return np.asarray(value)
    except ValueError:
        pass
    raise InvalidInput(f"{who}: {name} must be an array, and its rows are of unequal length")


def finite_array(who: str, name: str, value: ArrayLike, ndim: int, dtype: type = np.float64) -> np.ndarray:
    """`value` as an array of `ndim` axes with finite entries; the error says where the first bad one is."""
    array = _as_numbers(value, dtype)
    if array is None:
        kind = "real numbers, got complex ones" if _is_complex(value) else f"numbers{_first_other(value)}"
        raise InvalidInput(f"{who}: {name} must be {kind}")
    require(array.ndim == ndim, who, f"{name} must have {ndim} axes", array.shape)
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        count = int(array.size - finite.sum())
        raise InvalidInput(
            f"{who}: {name} must be finite, and the entry at {where} is not ({count} such entries). Drop these rows, "
            "or fill in numbers that are known without looking at them"
        )
    return array


def _as_numbers(value: ArrayLike, dtype: type) -> np.ndarray | None:
    """None if it cannot be. The caller raises: NumPy's error quotes an entry, and would stay in the context of ours."""
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
            return None if _is_complex(value) else np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError):  # whole numbers without bound overflow
        return None


def _is_complex(value: ArrayLike) -> bool:
    try:
        return np.iscomplexobj(value)
    except ValueError:  # rows of unequal length
        return False


def _number(holds: bool, who: str, rule: str, value: object) -> None:
    if not holds:
        raise InvalidInput(f"{who}: {rule}, got {shown(value)}")


def _is_shape(value: object) -> bool:
    """Whether it is the shape of an array, or several: sizes are public."""
    if not isinstance(value, tuple):
        return False
    return all(type(each) is int or _is_shape(each) for each in value)


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
        except (TypeError, ValueError, OverflowError):
            if isinstance(entry, list | tuple | np.ndarray):
                return " in rows of equal length"
            return f", and there is {type(entry).__name__} at {where}. Drop such rows, or make numbers of them"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
