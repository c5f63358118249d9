"""Sizes of floating-point numbers in exact arithmetic, quickly."""

from fractions import Fraction

import numpy as np


def exact_size(vector: np.ndarray, norm: int) -> Fraction:
    """The norm (1), or the square of the norm (2), of these floating-point numbers as they are: a sum of integers."""
    assert np.isfinite(vector).all()
    parts, exponents = np.frexp(np.abs(np.asarray(vector, dtype=np.float64)))
    lowest = int(exponents.min())
    whole = np.ldexp(parts, 53).astype(np.int64).tolist()  # a number is whole * 2 ** (exponent - 53)
    shifts = (norm * (exponents.astype(np.int64) - lowest)).tolist()
    total = sum(number**norm << shift for number, shift in zip(whole, shifts, strict=True))
    return total * Fraction(2) ** (norm * (lowest - 53))
