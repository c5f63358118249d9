"""Standard normal numbers from random bits, compiled or not."""

import numpy as np

from sottovoce.core.arrays import Floats, Words
from sottovoce.core.compiling import THREADS, compiled_pays
from sottovoce.core.lazy import untyped
from sottovoce.core.random.quantiles import middle_quantile, tail_quantile, to_unit


def normal(bits: Words) -> Floats:
    """One standard normal number from each 64 bits: the normal quantile of a uniform number.

    SciPy computes those beyond ±6.6, which is one in 2e10.
    """
    flat = np.ascontiguousarray(bits).reshape(-1)
    numbers = np.empty(flat.size)
    if compiled_pays(flat.size):
        from sottovoce.core.random import compiled

        quantile, blocks = compiled.quantile(), -(-flat.size // compiled.BLOCK)
        THREADS.share(lambda low, high: quantile(flat, numbers, low, high), range(blocks + 1), flat.size)
    else:
        q = to_unit(flat) - 0.5
        tails = np.abs(q) > 0.425
        numbers[:] = middle_quantile(q)
        numbers[tails] = tail_quantile(q[tails])
    far = np.flatnonzero(np.abs(numbers) > 6.6)
    if len(far):
        numbers[far] = untyped("scipy.special").ndtri(to_unit(flat[far]))
    return numbers.reshape(bits.shape)
