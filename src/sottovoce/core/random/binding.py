"""What random numbers are bound to, as four words for each client: a hash of what they are for, and of its rows.

`privacy/noise_key.py` says what is bound, and why. Here is how: a multilinear hash (Lemire and Kaser 2014),
(Σ_i (f_i0 + Σ_j f_ij word_ij) mod 2^64) >> 32, twice, where i numbers the arrays and f are secret factors.
"""

from functools import partial
from typing import NamedTuple, Self

import numpy as np

from sottovoce.core.arrays import Floats, Words, unwritable
from sottovoce.core.compiling import THREADS, compiled_pays

_LAST_32 = np.uint64(32)
_EACH = 0.15  # nanoseconds for a word, about


class Factors(NamedTuple):
    """The secret factors of one array, in two sets."""

    table: Words  # (2, words + 1): all of them, for compiled loops
    first: Words  # (2,): f_0
    others: Words  # (words, 2)

    @classmethod
    def of(cls, table: Words) -> Self:
        return cls(unwritable(table), unwritable(table[:, 0]), unwritable(table[:, 1:].T))


def sums(array: Floats, factors: Factors) -> Words:
    """f_0 + Σ_j f_j word_j mod 2^64 for each row of numbers, with two sets of factors: (..., 2)."""
    words = np.ascontiguousarray(array, dtype=np.float64).view(np.uint32)
    if compiled_pays(words.size):
        from sottovoce.core.random import compiled

        table = words.reshape(-1, words.shape[-1])
        found = np.empty((len(table), 2), dtype=np.uint64)
        THREADS.share(
            partial(compiled.hashes(), table, factors.table, found), range(len(table) + 1), _EACH * table.size
        )
        return found.reshape(*words.shape[:-1], 2)
    return words.astype(np.uint64) @ factors.others + factors.first


class Bound(NamedTuple):
    """All that the numbers of an answer are bound to, but for the answer itself."""

    factors: Factors  # for the answer
    others: Words  # sums of what else is hashed, (runs?, clients or 1, 2)
    rows: Words  # digests of each client's rows, (clients, 2)

    def words(self, exact: Floats) -> Words:
        """Four words of 32 bits (held as uint64) for each client: (runs?, clients, 4)."""
        hashed = (sums(exact, self.factors) + self.others) >> _LAST_32
        words = np.empty((*np.broadcast_shapes(hashed.shape[:-1], self.rows.shape[:-1]), 4), np.uint64)
        for place, column in enumerate((hashed[..., 0], hashed[..., 1], self.rows[..., 0], self.rows[..., 1])):
            words[..., place] = column  # column by column: far fewer steps than client by client
        return words
