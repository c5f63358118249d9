"""This library's own losses and penalties: their stated constants are tested, and may be relied on.

The noise of a proven door rests on such constants (the largest slope of a loss, its curvature, a prox that increases no
distance). A subclass may state others, and nothing checks them. So only the exact types count.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

_TYPES: set[type] = set()
Kind = TypeVar("Kind", bound=type)


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
