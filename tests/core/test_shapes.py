"""Declared message shapes: what fits, what is refused, and in which words."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import FDML, LED, FedLin
from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.shapes import declared, empty, fitting_widths


def test_a_field_has_dim_coordinates_unless_it_says_otherwise() -> None:
    assert declared(LED(), LED.down, 104) == {"x": (104,), "met": (0, 104)}
    assert declared(FedLin(), FedLin.down, 3) == {"x": (3,), "g": (0, 3), "phase": (1,)}


def test_a_hyper_parameter_bounds_a_width_and_dim_bounds_it_too() -> None:
    assert declared(FDML(batch=20), FDML.up, 40) == {"r": (20,)}
    assert declared(FDML(batch=64), FDML.up, 40) == {"r": (40,)}


@dataclass(frozen=True)
class Wrong:
    shapes: dict[str, Any]
    says: str


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong({"x": (1, 104), "met": (1, 7)}, r"^Down\.met must have 0 or 104 coordinates, got 7$"),
        Wrong({"x": (1, 0), "met": (1, 0)}, r"^Down\.x must have 104 coordinates, got 0$"),
        Wrong({"x": (2, 104), "met": (1, 0)}, r"^Down\.x must be one row, \(1, coordinates\), got shape \(2, 104\)$"),
        Wrong({"x": (104,), "met": (1, 0)}, r"^Down\.x must be one row, \(1, coordinates\), got shape \(104,\)$"),
        Wrong({"x": (1, 104)}, r"^Down: needs exactly the fields \['met', 'x'\]$"),
        Wrong({"x": (1, 104), "met": (1, 0), "more": (1, 1)}, r"^Down: needs exactly the fields \['met', 'x'\]$"),
    ],
    ids=lambda wrong: wrong.says,
)
def test_what_was_not_declared_is_refused(wrong: Wrong) -> None:
    with pytest.raises(InvalidInput, match=wrong.says):
        fitting_widths(LED.down, declared(LED(), LED.down, 104), wrong.shapes)


@pytest.mark.parametrize("met", [0, 104])
def test_widths_that_fit_make_an_empty_message(met: int) -> None:
    widths = fitting_widths(LED.down, declared(LED(), LED.down, 104), {"met": (1, met), "x": (1, 104)})
    message = empty(LED.down, widths, n=3)
    assert type(message) is LED.down
    shapes = {name: array.shape for name, array in codec.to_arrays(message).items()}
    assert shapes == {"x": (3, 104), "met": (3, met)}
    assert not any(np.any(array) for array in codec.to_arrays(message).values())
