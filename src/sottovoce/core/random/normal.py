"""Standard normal numbers from random bits. `compiled.py` makes the same numbers in one pass."""

import numpy as np

from sottovoce.core.arrays import Floats, Words
from sottovoce.core.random.quantiles import FAR, far_quantile, middle_quantile, tail_quantile, tail_root, to_unit


def normal(bits: Words) -> Floats:
    """One standard normal number from each 64 bits: the normal quantile of a uniform number."""
    q = to_unit(bits) - 0.5
    tails = np.abs(q) > 0.425
    numbers, q = middle_quantile(q), q[tails]
    root = tail_root(q)
    outer, far = tail_quantile(q, root), root > FAR
    outer[far] = far_quantile(q[far], root[far])
    numbers[tails] = outer
    return numbers
