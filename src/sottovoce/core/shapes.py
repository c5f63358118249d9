"""What a message looks like: how many coordinates each of its fields can have, declared where the message is.

A message holds arrays with one row per client (`contract.Arrays`). A field has `dim` coordinates, as many
as the model has, unless it declares otherwise:

    class Down(Arrays):
        x: Array                       # dim coordinates
        met: Array = widths(0, DIM)    # none, or dim
        steps: Array = widths(1)       # one

Where columns are split, `dim` is the number of samples. A server and a client know from this alone what may come in,
before they read a byte of it and whatever was sent in earlier rounds. An upload is declared independently of the
broadcast it answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, TypeVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Method

Message = TypeVar("Message")
# A number, DIM, the name of a hyper-parameter (its value, but at most dim), or a function of the algorithm and dim.
Width = int | str | Callable[[Any, int], int]

DIM = "dim"
_KEY = "widths"


def widths(*possible: Width) -> np.ndarray:
    """A field of a message that can have these numbers of coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.core.contract import Arrays
    >>> from sottovoce.core.shapes import DIM, widths
    >>> class Down(Arrays):
    ...     x: np.ndarray
    ...     met: np.ndarray = widths(0, DIM)
    """
    return field(metadata={_KEY: possible})


def declared(algorithm: Method, message: type, dim: int) -> dict[str, tuple[int, ...]]:
    """The widths that each field of `message`, which is `algorithm.down` or `algorithm.up`, can have.

    Examples
    --------
    >>> from sottovoce.algorithms import LED
    >>> from sottovoce.core.shapes import declared
    >>> declared(LED(), LED.down, dim=104)
    {'x': (104,), 'met': (0, 104)}
    """

    def number(width: Width) -> int:
        if width == DIM:
            return dim
        if callable(width):
            return width(algorithm, dim)
        return min(getattr(algorithm, width), dim) if isinstance(width, str) else width

    return {each.name: tuple(map(number, each.metadata.get(_KEY, (DIM,)))) for each in fields(message)}


def fitting_widths(
    message: type, allowed: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """The width of each field of a message that came in, one client's row of it; refuses what was not declared.

    Examples
    --------
    >>> from sottovoce.algorithms import LED
    >>> from sottovoce.core.shapes import declared, fitting_widths
    >>> allowed = declared(LED(), LED.down, 104)
    >>> fitting_widths(LED.down, allowed, {"x": (1, 104), "met": (1, 0)})
    {'x': 104, 'met': 0}
    >>> fitting_widths(LED.down, allowed, {"x": (1, 104), "met": (1, 7)})
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: Down.met must have 0 or 104 coordinates, got 7
    """
    name = message.__name__
    check.require(shapes.keys() == allowed.keys(), name, f"needs exactly the fields {sorted(allowed)}")
    for field_name, possible in allowed.items():
        shape = tuple(shapes[field_name])
        if len(shape) != 2 or shape[0] != 1:
            raise check.InvalidInput(f"{name}.{field_name} must be one row, (1, coordinates), got shape {shape}")
        if shape[1] not in possible:
            numbers = " or ".join(map(str, sorted(set(possible))))
            raise check.InvalidInput(f"{name}.{field_name} must have {numbers} coordinates, got {shape[1]}")
    return {field_name: int(shapes[field_name][1]) for field_name in allowed}


def empty(message: type[Message], widths: Mapping[str, int], n: int) -> Message:
    """A message of zeros for `n` clients, with these widths.

    Examples
    --------
    >>> from sottovoce.algorithms import LED
    >>> from sottovoce.core.shapes import empty
    >>> empty(LED.up, {"phi": 104}, n=3).phi.shape
    (3, 104)
    """
    return message(**{name: np.zeros((n, width)) for name, width in widths.items()})
