"""Which clients a question is for, and their rows in blocks that fit in the cache."""

import itertools
import threading
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import AnyArray, Booleans, Floats, Integers
from sottovoce.core.check import require

if TYPE_CHECKING:
    from sottovoce.problems.kernels import Plan

_lock = threading.Lock()  # of the matrices that are used again with other entries


@dataclass(frozen=True)
class Block:
    """Clients low:high of those asked, and their rows."""

    low: int
    high: int
    rows: slice | Integers  # their positions in X
    first: int  # how many rows of those asked come before
    bounds: Integers  # client low+j owns rows bounds[j]:bounds[j+1] of the block

    @cached_property
    def _owners(self) -> Any:
        """The sparse (clients, rows) matrix that says which client owns which row."""
        rows = np.arange(int(self.bounds[-1]))
        shape = (self.high - self.low, len(rows))
        return import_module("scipy.sparse").csr_array((np.ones(len(rows)), rows, self.bounds), shape=shape)

    def sum(self, slope: Floats, X: Floats) -> Floats:
        """Each client's sum of slope x row. A sparse product adds row after row, so other clients change nothing."""
        with _lock:
            self._owners.data = slope
            return self._owners @ X


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
        lows: list[int] = np.unique(self.bounds[:-1] // self.rows_per_block, return_index=True)[1].tolist()
        blocks: list[Block] = []
        for low, high in itertools.pairwise([*lows, len(self.sizes)]):
            first, end = int(self.bounds[low]), int(self.bounds[high])
            rows: slice | Integers = slice(first, end)
            if not self.contiguous:
                jumps = self.starts[low:high] - self.bounds[low:high]
                rows = np.repeat(jumps, self.sizes[low:high]) + np.arange(first, end)
            blocks.append(Block(low, high, rows, first, self.bounds[low : high + 1] - first))
        return blocks


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
