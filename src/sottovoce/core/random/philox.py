"""Philox 4x32-10 (Salmon et al., 2011): random bits as a function of a key and a counter.

It is not a cryptographic generator: whoever knows the key knows the bits.
"""

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import Words

M0, M1 = 0xD2511F53, 0xCD9E8D57  # multipliers
W0, W1 = 0x9E3779B9, 0xBB67AE85  # what the key grows by in each round
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_M0, _M1 = np.uint64(M0), np.uint64(M1)
_GROWN = [(np.uint64(k * W0 & 0xFFFFFFFF), np.uint64(k * W1 & 0xFFFFFFFF)) for k in range(10)]  # by round k


def philox(counter: tuple[ArrayLike, ...], key: tuple[ArrayLike, ...]) -> tuple[Words, Words, Words, Words]:
    """Four words of 32 bits (held as uint64) for arrays of such words that broadcast against each other."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = (np.asarray(word, dtype=np.uint64) for word in key)
    for grown0, grown1 in _GROWN:
        round0, round1 = (k0 + grown0) & LOW, (k1 + grown1) & LOW
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ round0, p1 & LOW, (p0 >> HALF) ^ c3 ^ round1, p0 & LOW
    return c0, c1, c2, c3


def joined(high: Words, low: Words) -> Words:
    """Two words of 32 bits as one of 64."""
    return (high << HALF) | low
