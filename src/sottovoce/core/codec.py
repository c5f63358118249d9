"""Messages and states as named arrays, and back: for a network, a checkpoint, or a count of bytes.

A message or a state is a frozen dataclass whose fields are float64 arrays with a client axis (the last but one).
Nothing else can be encoded, and decoding executes nothing.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TypeVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Booleans, Floats, Integers
from sottovoce.core.contract import Arrays

Message = TypeVar("Message", bound=Arrays)  # of arrays


@functools.cache
def _names(kind: type[Arrays]) -> tuple[str, ...]:
    """The fields of a message; asked for several times in a round."""
    return tuple(field.name for field in fields(kind))


def to_arrays(message: Arrays) -> dict[str, Floats]:
    """The fields of a message by name; refuses a field that is not an array with a client axis."""
    arrays: dict[str, Floats] = {name: getattr(message, name) for name in _names(type(message))}
    for name, array in arrays.items():
        is_array = isinstance(array, np.ndarray)  # pyright: ignore[reportUnnecessaryIsInstance] (what others wrote)
        if not (is_array and array.ndim >= 2 and array.dtype == np.float64):
            kind = f"{array.dtype} array of shape {array.shape}" if is_array else type(array).__name__
            who = type(message).__name__
            raise check.InvalidInput(f"{who}.{name} must be a float64 array (..., clients, coordinates), got {kind}")
    return arrays


def from_arrays(kind: type[Message], arrays: dict[str, AnyArray], like: Message | None = None) -> Message:
    """Build a message from named arrays that came from outside, refusing what does not fit.

    With `like`, every array must also have the shape of `like`'s field. Entries must be finite.
    """
    who = kind.__name__
    wanted = list(_names(kind))
    names = ", ".join(sorted(arrays))
    check.require(sorted(arrays) == sorted(wanted), who, f"needs exactly the fields {wanted}", names)
    for name, array in arrays.items():
        check.require(array.dtype == np.float64, who, f"{name} must be float64", str(array.dtype))
        check.require(bool(np.isfinite(array).all()), who, f"{name} must be finite")
        if like is not None:
            shape = getattr(like, name).shape
            check.require(array.shape == shape, who, f"{name} must have shape {shape}", array.shape)
    return kind(**{name: arrays[name] for name in wanted})


def rows(message: Message, clients: Integers) -> Message:
    """The rows of some clients; arrays that all clients share (client axis of length one) stay as they are."""
    arrays = to_arrays(message)
    return _made(message, lambda name: x if (x := arrays[name]).shape[-2] == 1 else x[..., clients, :])


def merge(old: Message, new: Message, clients: Integers, takes: Booleans) -> Message:
    """`old` with the rows `clients` replaced by `new`, where `takes` (..., clients, 1) says so. Nothing is mutated."""

    def put(name: str) -> Floats:
        whole = getattr(old, name).copy()
        whole[..., clients, :] = np.where(takes, getattr(new, name), whole[..., clients, :])
        return whole

    return _made(old, put)


def stacked(messages: Sequence[Message]) -> Message:
    """The messages of several clients as one, in their order."""
    return _made(messages[0], lambda name: np.concatenate([getattr(one, name) for one in messages], axis=-2))


def empty_rows(message: Message, n: int, fill: float = 0.0) -> Message:
    """A message of the same kind for `n` clients, all its numbers `fill`."""

    def filled(name: str) -> Floats:
        x = getattr(message, name)
        return np.full((*x.shape[:-2], n, x.shape[-1]), fill, dtype=x.dtype)

    return _made(message, filled)


def under(prefix: str, arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """The arrays whose names start with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def bytes_per_client(message: Arrays) -> int:
    """The bytes that one client's share of this message takes: 8 for each number, without names and framing."""
    return sum(8 * getattr(message, name).shape[-1] for name in _names(type(message)))


def _made(like: Message, array: Callable[[str], Floats]) -> Message:
    """A message of the same class, with the array that belongs to each of its fields."""
    return type(like)(**{name: array(name) for name in _names(type(like))})
