"""Names for arrays by what they hold, so that signatures can say it; and arrays that are quick to read."""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Words = NDArray[np.uint64]  # random bits, and keys
AnyArray = NDArray[Any]  # of whatever type the caller has

Numbers = float | Floats  # one for all, or an array of them


@runtime_checkable
class SparseLike(Protocol):
    """An array or a matrix of scipy.sparse, in any format."""

    def tocsr(self, copy: bool = False) -> object: ...


class Sparse(SparseLike, Protocol):
    """What is used of a scipy.sparse array in CSR format, which has no type of its own for type checkers."""

    shape: tuple[int, ...]
    data: Floats
    indices: Integers
    indptr: Integers
    T: "Sparse"

    def toarray(self) -> Floats: ...
    def __getitem__(self, place: object, /) -> "Sparse": ...
    @overload
    def __matmul__(self, other: "Sparse", /) -> "Sparse": ...
    @overload
    def __matmul__(self, other: AnyArray, /) -> Floats: ...


CACHE_LINE = 64  # bytes, of nearly all processors


def aligned(shape: tuple[int, ...], kind: DTypeLike) -> AnyArray:
    """An empty array that begins with a line of the cache: a vector that lies across two lines takes longer to load."""
    kind, count = np.dtype(kind), math.prod(shape)
    room = np.empty(count * kind.itemsize + CACHE_LINE, np.uint8)
    first = -room.ctypes.data % CACHE_LINE
    return room[first : first + count * kind.itemsize].view(kind).reshape(shape)


@lru_cache(maxsize=16)
def everyone(n: int) -> Integers:
    """The numbers of all n clients: mostly the same array, so that `is` tells it at once. Nobody can change it."""
    return unwritable(np.arange(n))


def unwritable(array: AnyArray) -> AnyArray:
    """A copy whose bytes nobody can change. NumPy's flag alone could be taken off again.

    Whoever holds the array itself can have it show other bytes (`__setstate__`). So what is given to an algorithm is a
    copy of its own, and no array that a door or a ledger reads can be reached from it (`base`).
    """
    return np.ndarray(array.shape, array.dtype, array.tobytes())


def of_clients(table: AnyArray, places: Integers) -> AnyArray:
    """The rows of some clients: the table itself if these are all of its clients, so it is not to be written to."""
    return table if places is everyone(len(table)) else table.take(places, axis=0)  # many times as fast as [places]


def sum_over_clients(x: Floats) -> Floats:
    """x.sum(axis=-2, keepdims=True), client after client: to the last bit, and in half the time for many clients."""
    if x.shape[-1] > 1 and x.flags.c_contiguous:
        return np.einsum("...ij->...j", x)[..., None, :]
    return x.sum(axis=-2, keepdims=True)


def every(mask: Booleans) -> bool:
    """mask.all(), in a third of the time for a short mask."""
    return np.count_nonzero(mask) == mask.size


def same_clients(some: AnyArray, others: AnyArray) -> bool:
    """Whether two arrays of clients' numbers are equal; quick if they are one array, as that of `everyone` is."""
    return some is others or np.array_equal(some, others)


Matrix = Floats | Sparse  # with two axes; dense ones are C-contiguous
MatrixLike = ArrayLike | SparseLike  # as users have it: arrays, data frames and sparse matrices


def is_sparse(X: Matrix) -> "TypeIs[Sparse]":
    return not isinstance(X, np.ndarray)
