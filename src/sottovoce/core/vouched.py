"""Losses and penalties whose stated constants this library vouches for, by their exact types.

Noise of a proven door rests on such constants (the largest slope of a loss, its curvature, a prox that stretches no
distance). A subclass may state others, and nothing checks them; so a subclass is not vouched for.
"""

from typing import Any, TypeVar

_TYPES: set[type] = set()
Kind = TypeVar("Kind", bound=type)


def vouch(kind: Kind) -> Kind:
    """Class decorator, for this library's own losses and penalties: tests compare their constants with brute force."""
    _TYPES.add(kind)
    return kind


def vouched(thing: Any) -> bool:
    """Whether its constants may be relied on: its type is one of ours, and it hides nothing of it by an attribute of
    its own."""
    kind = type(thing)
    fields = getattr(kind, "__dataclass_fields__", {})
    return kind in _TYPES and not any(name not in fields and hasattr(kind, name) for name in vars(thing))
