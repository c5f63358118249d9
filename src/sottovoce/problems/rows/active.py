"""Which clients a question is for, and their rows in blocks that fit in the cache."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import AnyArray, Booleans, Floats, Integers
from sottovoce.core.check import require

if TYPE_CHECKING:
    from sottovoce.problems.kernels import Plan

FEW = 32  # rows: clients with fewer are put side by side, which costs a copy; each call costs as much as some rows


@dataclass(frozen=True)
class Group:
    """Clients of a block that have equally many rows: NumPy takes them in one call, and each for itself."""

    clients: slice | Integers  # their places in the block
    rows: slice | Integers  # their rows in the block, one client after the other
    size: int  # how many rows each has

    def by_client(self, array: Floats) -> Floats:
        """What is there for each row of the block, as (clients, size, ...)."""
        return array[self.rows].reshape(-1, self.size, *array.shape[1:])


@dataclass(frozen=True)
class Block:
    """Clients low:high of those asked, and their rows."""

    low: int
    high: int
    rows: slice | Integers  # their positions in X
    first: int  # how many rows of those asked come before
    bounds: Integers  # client low+j owns rows bounds[j]:bounds[j+1] of the block

    @cached_property
    def groups(self) -> list[Group]:
        """All clients: neighbours of the same size together, and those with few rows also where others are between."""
        sizes = np.diff(self.bounds)
        many = np.flatnonzero(sizes >= FEW)
        cuts = np.flatnonzero((np.diff(many) > 1) | (np.diff(sizes[many]) != 0)) + 1
        alike = [np.flatnonzero(sizes == size) for size in np.unique(sizes[sizes < FEW])] + np.split(many, cuts)
        return [self._group(clients, int(sizes[clients[0]])) for clients in alike if len(clients)]

    def _group(self, clients: Integers, size: int) -> Group:
        first, end = int(clients[0]), int(clients[-1]) + 1
        if end - first == len(clients):  # neighbours: their rows are not copied
            return Group(slice(first, end), slice(int(self.bounds[first]), int(self.bounds[end])), size)
        return Group(clients, (self.bounds[clients][:, None] + np.arange(size)).ravel(), size)

    def margins(self, X: Floats, points: Floats) -> Floats:
        """The product of each row with its owner's point, (rows,)."""
        margins = np.empty(len(X))
        for group in self.groups:
            margins[group.rows] = np.einsum("cij,cj->ci", group.by_client(X), points[group.clients]).ravel()
        return margins

    def sum(self, slope: Floats, X: Floats) -> Floats:
        """Each client's sum of slope x row, (clients, features), in an order that its own size decides alone."""
        sums = np.empty((self.high - self.low, X.shape[1]))
        for group in self.groups:
            sums[group.clients] = np.einsum("ci,cij->cj", group.by_client(slope), group.by_client(X))
        return sums


@dataclass(frozen=True)
class ActiveClients:
    """The clients of one question, in its order."""

    clients: Integers
    starts: Integers
    sizes: Integers
    rows_per_block: int
    contiguous: bool

    @cached_property
    def bounds(self) -> Integers:
        """Client i has rows bounds[i]:bounds[i+1] of all that are asked for."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def plan(self) -> "Plan":
        from sottovoce.problems import kernels

        return kernels.plan(self.starts, self.sizes)

    @cached_property
    def blocks(self) -> list[Block]:
        """Whole clients, about `rows_per_block` rows at a time."""
        return [
            Block(
                low, high, self.rows_of(low, high), first := int(self.bounds[low]), self.bounds[low : high + 1] - first
            )
            for low, high in self.turns(self.rows_per_block)
        ]

    def turns(self, rows: int) -> Iterator[tuple[int, int]]:
        """Clients low:high in turns of about so many rows, or of one client that has more."""
        n, firsts = len(self.sizes), np.arange(0, int(self.bounds[-1]), rows)
        lows: list[int] = np.unique(np.searchsorted(self.bounds, firsts)).tolist()
        return itertools.pairwise([*(low for low in lows if low < n), n])

    def rows_of(self, low: int, high: int) -> slice | Integers:
        """Where the rows of clients low:high stand."""
        first, end = int(self.bounds[low]), int(self.bounds[high])
        if self.contiguous:
            return slice(first, end)
        rows = np.repeat(self.starts[low:high] - self.bounds[low:high], self.sizes[low:high])
        rows += np.arange(first, end)
        return rows


def checked_offsets(offsets: ArrayLike, rows: int) -> Integers:
    array = np.asarray(offsets)
    whole = array.ndim == 1 and len(array) >= 2 and np.issubdtype(array.dtype, np.integer)
    require(whole, "Rows", "offsets must be a list of at least two whole numbers", offsets)
    ends = (int(array[0]), int(array[-1]))
    require(ends == (0, rows), "Rows", f"offsets must go from 0 to the number of rows, {rows}", ends)
    empty = np.flatnonzero(np.diff(array) <= 0)
    rule = f"every client must have at least one row, and client {empty[0]} has none" if empty.size else ""
    require(not empty.size, "Rows", rule, hint="Leave it out")
    return array.astype(np.int64)


def checked_keep(keep: AnyArray | None, active: ActiveClients, runs: int) -> Booleans:
    """`keep` as (runs or 1, rows), or an empty array if all rows are kept."""
    if keep is None:
        return np.empty((0, 0), dtype=np.bool_)
    keep = np.ascontiguousarray(keep)
    require(keep.dtype == np.bool_, "Rows", "keep must be booleans", keep.dtype)
    rows = int(active.bounds[-1])
    fits = keep.ndim in (1, 2) and keep.shape[-1] == rows
    fits = fits and (keep.ndim == 1 or runs == 1 or len(keep) in (1, runs))
    require(fits, "Rows", f"keep must have shape ([runs,] {rows}) with the runs of w", keep.shape)
    return keep if keep.ndim == 2 else keep[None]
