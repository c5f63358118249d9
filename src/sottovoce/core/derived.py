"""Constants of a class that follow from its fields."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Value = TypeVar("Value")


def derived(compute: Callable[[Any], Value]) -> Value:
    """A property in the place of a class attribute.

    A base class states a constant as an attribute (``curvature: float = inf``), and most of its subclasses replace it
    by another number. For one whose number follows from its fields, `derived` makes a property that type checkers
    accept as that attribute.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from sottovoce.core.derived import derived
    >>> class Loss:
    ...     curvature: float = 1.0
    >>> @dataclass(frozen=True)
    ... class Scaled(Loss):
    ...     width: float
    ...
    ...     @derived
    ...     def curvature(self) -> float:
    ...         return 1.0 / self.width
    >>> Scaled(2.0).curvature
    0.5
    """
    return cast(Value, property(compute))
