"""The constants that losses and penalties state; those of this library are tested, and may be relied on.

The noise of a proven door rests on such constants (the largest slope of a loss, its curvature, a prox that increases no
distance). A subclass may state others, and nothing checks them. So only the exact types count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, dataclass_transform

_TYPES: set[type] = set()
Kind = TypeVar("Kind", bound=type)
Value = TypeVar("Value")


@dataclass_transform(frozen_default=True)
def vouch(kind: Kind) -> Kind:
    """Make a frozen dataclass of one of this library's own losses or penalties, whose constants are relied on.

    Tests compare them with brute force.
    """
    dataclass(frozen=True)(kind)
    _TYPES.add(kind)
    return kind


def vouched(thing: object) -> bool:
    """Whether its constants may be relied on: its type is one of ours, and no attribute of its own hides the type's.

    A type may name fields in `rests_on` that its constants follow from: these must be vouched for too.
    """
    kind = type(thing)
    fields: dict[str, object] = getattr(kind, "__dataclass_fields__", {})
    ours = kind in _TYPES and not any(name not in fields and hasattr(kind, name) for name in vars(thing))
    parts: tuple[str, ...] = getattr(kind, "rests_on", ())
    return ours and all(vouched(getattr(thing, part)) for part in parts)


def derived(compute: Callable[[Any], Value]) -> Value:
    """A property in the place of a class attribute.

    A base class states a constant as an attribute (``curvature: float = inf``), and most of its subclasses replace it
    by another number. For one whose number follows from its fields, `derived` makes a property that type checkers
    accept as that attribute.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from sottovoce.core.vouched import derived
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
