"""Standard normal numbers from random bits. `compiled.py` makes the same numbers in one pass."""

from importlib import import_module

import numpy as np

from sottovoce.core.arrays import Floats, Words
from sottovoce.core.random.quantiles import middle_quantile, tail_quantile, to_unit

FAR = 6.6  # SciPy computes numbers beyond ±6.6, which is one in 2e10


def normal(bits: Words) -> Floats:
    """One standard normal number from each 64 bits: the normal quantile of a uniform number."""
    q = to_unit(bits) - 0.5
    tails = np.abs(q) > 0.425
    numbers = middle_quantile(q)
    numbers[tails] = tail_quantile(q[tails])
    far = np.abs(numbers) > FAR
    if far.any():
        numbers[far] = import_module("scipy.special").ndtri(to_unit(bits[far]))
    return numbers
