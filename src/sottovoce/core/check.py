"""Checks of what comes from outside, and the errors they raise.

Every message names the class or function, the rule, the value and how to fix it, in one sentence. The command line
prints it as it is, and a caller can catch one class.

Messages are seen by more people than the data: they end up in logs, bug reports and the output of worker processes.
So a message contains a value only if the value is a setting (`shown`). About data it tells the type, the shape and
the position, never an entry. An entry must not hide in the previous error (`__context__`) either: NumPy's error is
dropped before ours is raised.
"""

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Sequence, Sized
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeGuard, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from sottovoce.core.arrays import AnyArray, Floats


class SottovoceError(Exception):
    """Anything that this library refuses to do, with a sentence that says how to fix it."""


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


ROW_BOUND = (  # all places where one can be stated
    "Federation.from_arrays(..., row_bound=...), prepare=PublicScaler(...) or row_bound=... of an estimator, [data] "
    "row_bound in a file"
)
Choice = TypeVar("Choice")
_NOTHING = object()
_SCALARS: tuple[type, ...] = (np.bool_, np.number, np.str_)
_LONGEST_TEXT = 80  # characters of a setting that a message contains


def shown(value: object) -> str:
    """`value` as a message may contain it: a setting as it is; anything that may hold data by its type and size.

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
    if isinstance(value, _SCALARS):
        return shown(cast(np.generic, value).item())
    if value is None or isinstance(value, bool | int | float | complex):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]!r}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if dataclasses.is_dataclass(value) and kind.__module__.startswith("sottovoce."):
        settings = (
            f"{each.name}={shown(getattr(value, each.name))}" for each in dataclasses.fields(value) if each.repr
        )
        return f"{kind.__name__}({', '.join(settings)})"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{kind.__name__} of shape {shape}"
    if isinstance(value, Sized):
        return f"{kind.__name__} of length {len(value)}"
    return f"an object of class {kind.__name__}"


def require(
    holds: bool, who: str, rule: str, got: object = _NOTHING, hint: str = "", error: type[SottovoceError] = InvalidInput
) -> None:
    """Raise ``error("<who>: <rule>, got <got>. <hint>")`` unless `holds`.

    `got` is written as `shown` does it, except that a tuple of whole numbers is taken for a shape and written in full.
    A value of unknown type may be a row of whole numbers: for such values use `of_kind`, or `shown` itself.
    """
    if not holds:
        value = "" if got is _NOTHING else f", got {got if _is_shape(got) else shown(got)}"
        raise error(f"{who}: {rule}{value}" + (f". {hint}" if hint else ""))


def given(
    value: Choice | None, who: str, rule: str, hint: str = "", error: type[SottovoceError] = InvalidInput
) -> Choice:
    """`value`, which must not be None: else an error that says the rule."""
    require(value is not None, who, rule, hint=hint, error=error)
    return cast(Choice, value)


def of_kind(who: str, name: str, value: object, kind: type | UnionType, example: str) -> None:
    """`value` must be a `kind`. Anything else, which may be data, is named by its type and size only."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{who}: {name} must be an object such as {example}, got {shown(value)}")


# ------------------------------------------------------------------------------------------------------ single numbers


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """A rule for one number: `low` < value < `high`, or <= where an end is in `closed` ("low", "high" or both).

    Infinity and NaN are in no interval. `whole`: a whole number >= `low`. `each`: one number, or several of which each
    must be in the interval.
    """

    low: float
    high: float = math.inf
    closed: tuple[Literal["low", "high"], ...] = ()
    whole: bool = False
    each: bool = False

    def check(self, who: str, name: str, value: object) -> None:
        """Raise an error that names the rule and the value unless the number is in the interval."""
        if not self.holds(value):
            raise InvalidInput(f"{who}: {name} must {self._rule(self.each or is_number(value))}, got {shown(value)}")

    def holds(self, value: object) -> bool:
        if self.each:
            alone = dataclasses.replace(self, each=False)
            return all(map(alone.holds, np.ravel(cast(ArrayLike, value)).tolist()))
        if self.whole:
            return is_whole(value, int(self.low))
        if not is_number(value):
            return False
        above = value >= self.low if "low" in self.closed else value > self.low
        return bool(above and (value <= self.high if "high" in self.closed else value < self.high))

    def _rule(self, number: bool) -> str:
        if self.whole:
            return f"be a whole number >= {self.low}"
        if self.high == math.inf:
            return f"be {'' if number else 'a number '}{'>=' if 'low' in self.closed else '>'} {self.low:g}"
        ends = "[" if "low" in self.closed else "(", "]" if "high" in self.closed else ")"
        return f"{'' if number else 'be a number and '}lie in {ends[0]}{self.low:g}, {self.high:g}{ends[1]}"


_POSITIVE, _NON_NEGATIVE = Interval(0), Interval(0, closed=("low",))
_interval = functools.lru_cache(maxsize=64, typed=True)(Interval)  # a round checks the same few again and again


def positive(who: str, **values: object) -> None:
    """Each value must be a finite number > 0."""
    for name, value in values.items():
        _POSITIVE.check(who, name, value)


def non_negative(who: str, **values: object) -> None:
    """Each value must be a finite number >= 0."""
    for name, value in values.items():
        _NON_NEGATIVE.check(who, name, value)


def between(who: str, low: float, high: float, **values: object) -> None:
    """Each value must lie strictly between `low` and `high`."""
    for name, value in values.items():
        _interval(low, high).check(who, name, value)


def whole(who: str, at_least: int = 1, **values: object) -> None:
    """Each value must be a whole number >= `at_least`."""
    for name, value in values.items():
        _interval(at_least, whole=True).check(who, name, value)


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_whole(value: object, at_least: int = 1) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)


def one_of(who: str, what: str, value: Choice, known: Iterable[Choice]) -> Choice:
    """`value` if it is one of `known`; else an error that names the known value that is spelt most like it."""
    names = list(known)
    single = isinstance(value, str) or not hasattr(value, "__len__")  # comparing an array would compare its entries
    if single and value in names:
        return value
    near = difflib.get_close_matches(value, map(str, names), n=1, cutoff=0.5) if isinstance(value, str) else []
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(map(str, names))}"
    raise InvalidInput(f"{who}: unknown {what} {shown(value)}. {hint}")


def all_of(who: str, what: str, values: Iterable[Choice], known: Iterable[Choice]) -> None:
    """Each of `values` must be one of `known`."""
    names = dict.fromkeys(known)  # each once, in its order
    for value in values:
        one_of(who, what, value, names)


# -------------------------------------------------------------------------------------------------- fields of a class

Positive = Annotated[float, _POSITIVE]
NonNegative = Annotated[float, _NON_NEGATIVE]
Fraction = Annotated[float, Interval(0, 1)]  # strictly between 0 and 1
Whole = Annotated[int, Interval(1, whole=True)]
WholeOrZero = Annotated[int, Interval(0, whole=True)]


@dataclasses.dataclass(frozen=True)
class Example:
    """How an object of a field's class is written, for the error: ``loss: Annotated[Loss, Example("Logistic()")]``."""

    text: str


def fields(instance: object, who: str = "") -> None:
    """Check the fields of a dataclass by their annotations; to be called in its `__post_init__`.

    Errors begin with the name of its class, or with `who`.

    An `Interval` in an annotation checks a number (`Positive`, `Whole` and the others above are such annotations), a
    `Literal` the choices, an `Example` the class of an object. ``... | None`` allows None as well, and with
    ``Literal["auto"] | Positive`` text must be one of the choices and anything else a positive number. Fields with
    another annotation are not checked.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from typing import Literal
    >>> from sottovoce.core import check
    >>> @dataclass(frozen=True)
    ... class Method:
    ...     rho: check.Positive = 1.0
    ...     horizon: check.Whole | None = None
    ...     solver: Literal["gradient", "newton"] = "gradient"
    ...
    ...     def __post_init__(self):
    ...         check.fields(self)
    >>> Method(rho=-1.0)
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: Method: rho must be > 0, got -1.0
    >>> Method(solver="newtn")
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: Method: unknown solver 'newtn'. Did you mean 'newton'?
    """
    for name, rule in _rules(instance.__class__):
        rule(who or instance.__class__.__name__, name, getattr(instance, name))


Rule = Callable[[str, str, object], object]  # (class name, field name, value), raises an error


@functools.cache  # frozen dataclasses are made in every round
def _rules(kind: type) -> tuple[tuple[str, Rule], ...]:
    annotations = get_type_hints(kind, include_extras=True)
    rules = ((field.name, _rule_of(annotations[field.name])) for field in dataclasses.fields(kind))
    return tuple((name, rule) for name, rule in rules if rule is not None)


def _rule_of(annotation: object) -> Rule | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        texts = [each for each in arguments if get_origin(each) is Literal]
        others = [each for each in arguments if each is not NoneType and each not in texts]
        of_text = _choice(tuple(choice for each in texts for choice in get_args(each))) if texts else None
        of_other = _rule_of(others[0]) if len(others) == 1 else None if others else of_text
        return functools.partial(_either, NoneType in arguments, of_text or of_other, of_other)
    if origin is Literal:
        return _choice(arguments)
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(note, Interval):
            return note.check
        if isinstance(note, Example):
            return lambda who, name, value: of_kind(who, name, value, arguments[0], note.text)
    return None


def _choice(known: tuple[object, ...]) -> Rule:
    return lambda who, name, value: one_of(who, name, value, known)


def _either(optional: bool, of_text: Rule | None, of_other: Rule | None, who: str, name: str, value: object) -> None:
    rule = of_text if isinstance(value, str) else of_other
    if rule is not None and not (optional and value is None):
        rule(who, name, value)


# -------------------------------------------------------------------------------------------------------------- arrays


def options(who: str, names: Iterable[str], known: list[str]) -> None:
    """Refuse the name of an option that is not one of `known`."""
    for name in names:
        require(bool(known), who, f"takes no option {name!r}")
        one_of(who, "option", name, known)


def any_array(who: str, name: str, value: ArrayLike | None) -> AnyArray:
    """`value` as an array of any type; rows of unequal length are refused."""
    try:
        return np.asarray(value)
    except ValueError:
        pass
    raise InvalidInput(f"{who}: {name} must be an array, and its rows are of unequal length")


def finite_array(who: str, name: str, value: ArrayLike, ndim: int, dtype: DTypeLike = np.float64) -> AnyArray:
    """`value` as an array of `ndim` axes with finite entries; the error names the position of the first bad entry."""
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


def every_row(who: str, rule: str, wrong: Sequence[int], what: str, fix: str) -> None:
    """Refuse the rows with these numbers. The error tells the first one, `what` is wrong with it, and how many."""
    if len(wrong):
        raise InvalidInput(f"{who}: {rule}, and row {wrong[0]} {what} ({len(wrong)} such rows). {fix}")


def positive_array(who: str, name: str, value: ArrayLike) -> Floats:
    """`value`, public step sizes or weights, as an array of finite numbers > 0."""
    array = np.asarray(value, dtype=np.float64)
    good = (array > 0.0) & np.isfinite(array)
    if not good.all():
        require(False, who, f"{name} must be finite and > 0", float(array[~good][0]))
    return array


def _as_numbers(value: ArrayLike, dtype: DTypeLike) -> AnyArray | None:
    """None if it cannot be. The caller raises: NumPy's error quotes an entry, and would stay in the context of ours."""
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
            return None if _is_complex(value) else np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError):  # a Python int may be too large for a float
        return None


def _is_complex(value: ArrayLike) -> bool:
    try:
        return np.iscomplexobj(value)
    except ValueError:  # rows of unequal length
        return False


def _is_shape(value: object) -> bool:
    """Whether it is the shape of an array, or several shapes: sizes are public."""
    if not isinstance(value, tuple):
        return False
    return all(type(each) is int or _is_shape(each) for each in cast(tuple[object, ...], value))


def _first_other(value: ArrayLike) -> str:
    """Where the first entry is that is not a number. What it is may be private."""
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
