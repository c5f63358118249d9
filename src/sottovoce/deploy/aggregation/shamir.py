"""Shamir's secret sharing over the field of 2^255 − 19 (Shamir 1979).

A secret s is f(0) of a polynomial of degree `threshold` − 1 whose other coefficients are drawn uniformly. Client j
holds f(j + 1). Any `threshold` shares give the secret; fewer are independent of it.
"""

import math
import secrets
from collections.abc import Sequence

PRIME = 2**255 - 19
BYTES = 32  # of a number of the field, little-endian


def draw() -> int:
    """A uniform number of the field, from the operating system."""
    return secrets.randbelow(PRIME)


def split(secret: int, threshold: int, n: int) -> list[int]:
    """The shares f(1), ..., f(n)."""
    coefficients = [secret, *(draw() for _ in range(threshold - 1))]
    shares: list[int] = []
    for x in range(1, n + 1):
        value = 0
        for coefficient in reversed(coefficients):  # Horner; x is small, so one reduction at the end is enough
            value = value * x + coefficient
        shares.append(value % PRIME)
    return shares


def weights(points: Sequence[int]) -> list[int]:
    """Lagrange: λ_x with f(0) = Σ λ_x f(x) for every polynomial of degree below the number of points."""
    factors: list[int] = []
    for x in points:  # points are small, so one reduction at the end is enough
        others = [other for other in points if other != x]
        below = math.prod(other - x for other in others)
        factors.append(math.prod(others) * pow(below, -1, PRIME) % PRIME)
    return factors


def combine(factors: Sequence[int], values: Sequence[int]) -> int:
    """Σ λ_x f(x) in the field, for many secrets that are shared at the same points."""
    return sum(factor * value for factor, value in zip(factors, values, strict=True)) % PRIME


def to_bytes(number: int) -> bytes:
    return number.to_bytes(BYTES, "little")


def from_bytes(content: bytes) -> int | None:
    """The number; None if these bytes are no number of the field."""
    number = int.from_bytes(content, "little")
    return number if number < PRIME else None
