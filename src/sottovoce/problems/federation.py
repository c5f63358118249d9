"""Who holds which rows."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Layout

_AT_ONCE = 1 << 16  # rows that are rounded together
LARGEST = 1e100  # beyond, squares and products overflow, and bounds that hold on paper do not hold in floating point


@dataclass(frozen=True)
class Federation:
    """Rows of many owners, end to end: client i holds rows offsets[i] to offsets[i+1]. Unequal sizes are normal.

    Parameters
    ----------
    X, y
        Features (rows, columns) and labels, sorted by owner.
    offsets
        Where each client's rows start, and the end.
    names
        One per client.
    row_bound
        A public promise, known without looking at the data, that no row is longer (Euclidean) than this. It is
        checked. Step sizes that need a curvature take it from here in `Proven` mode, where data must not be asked.

    Examples
    --------
    >>> from sottovoce import Federation
    >>> fed = Federation.from_arrays([[0.1], [0.2], [0.3]], [1, -1, 1], groups=["north", "south", "north"])
    >>> fed
    Federation(2 clients, 3 rows, 1 columns)
    >>> fed.names, fed.sizes
    (('north', 'south'), array([2, 1]))
    """

    X: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    names: tuple[str, ...]
    row_bound: float | None = None
    layout: ClassVar[Layout] = "rows"

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike,
        *,
        owners: Sequence[object] | None = None,
        row_bound: float | None = None,
    ) -> "Federation":
        """Sort rows by owner. `groups` says who owns each row; `owners` fixes the clients and their order."""
        if hasattr(X, "tocsr"):
            raise InvalidInput("Federation: X must be a dense array, got a sparse one. Use X.toarray()")
        X, y = check.finite_array("Federation", "X", X, ndim=2), check.any_array("Federation", "y", y)
        column = next(iter(getattr(groups, "columns", ["owner"])))
        groups = check.any_array("Federation", "groups", groups)
        hint = f"Give frame[{column!r}]" if groups.ndim == 2 else ""
        check.require(groups.ndim == 1, "Federation", "groups must have one axis", groups.shape, hint)
        missing = rows_without(groups)
        if missing:
            where = f"row {missing[0]} has none ({len(missing)} such rows)"
            raise InvalidInput(f"Federation: every row must have an owner; {where}. Fill it in, or drop these rows")
        check.require(X.shape[1] > 0, "Federation", "X must have at least one column", X.shape)
        check.require(y.ndim == 1, "Federation", "y must have one axis", y.shape)
        if y.dtype.kind not in "biuf":  # here, where row i is still the caller's own
            y = check.finite_array("Federation", "y", y, ndim=1)
        for name, column in (("y", y), ("groups", groups)):
            check.require(
                column.shape[:1] == X.shape[:1],
                "Federation",
                f"{name} must have one entry per row of X ({len(X)})",
                len(column),
            )
        check.require(one_kind(groups), "Federation", "groups must be all text or all numbers", hint="Use str(...)")
        present, owner = np.unique(groups, return_inverse=True)
        if owners is not None:
            owner = _renumber(present, owner, list(owners))
            present = np.asarray(owners)
        check.require(len(present) > 0, "Federation", "needs at least one row")
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner, minlength=len(present))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(X[order], y[order], offsets, tuple(str(name) for name in present), row_bound)

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[tuple[ArrayLike, ArrayLike]],
        *,
        names: Sequence[object] | None = None,
        row_bound: float | None = None,
    ) -> "Federation":
        """One (X, y) pair per client."""
        check.require(len(clients) > 0, "Federation", "needs at least one client")
        names = list(range(len(clients))) if names is None else list(names)
        check.require(
            len(names) == len(clients), "Federation", f"needs one name per client ({len(clients)})", len(names)
        )
        for name, pair in zip(names, clients, strict=True):
            fits = isinstance(pair, tuple | list) and len(pair) == 2
            check.require(fits, "Federation", f"client {check.shown(name)} must be a pair (X, y)")
        pairs = [(check.any_array("Federation", "X", X), check.any_array("Federation", "y", y)) for X, y in clients]
        for name, (X, y) in zip(names, pairs, strict=True):
            who = f"client {check.shown(name)}"
            check.require(X.ndim == 2 and y.ndim == 1, who, "X must have 2 axes and y one", (X.shape, y.shape))
            check.require(len(X) > 0, "Federation", f"{who} has no rows", hint="Leave it out")
            check.require(len(X) == len(y), "Federation", f"{who}: X and y must be equally long", (len(X), len(y)))
            columns = pairs[0][0].shape[1:]
            check.require(
                X.shape[1:] == columns, "Federation", f"{who} must have the first one's columns {columns}", X.shape[1:]
            )
        groups = np.repeat(np.arange(len(pairs)), [len(X) for X, _ in pairs])
        X, y = np.concatenate([X for X, _ in pairs]), np.concatenate([y for _, y in pairs])
        federation = cls.from_arrays(X, y, groups, row_bound=row_bound)
        return cls(federation.X, federation.y, federation.offsets, tuple(str(name) for name in names), row_bound)

    @property
    def n(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of rows of each client."""
        return np.diff(self.offsets)

    def in_float32(self) -> "Federation":
        """The same rows in half the memory, to seven digits: a pass over them takes about half as long.

        Entries are rounded towards zero, so that no row gets longer and a promised bound still holds.
        """
        exact, most = self.X, float(np.finfo(np.float32).max)
        small = _largest(exact) <= most
        hint = "Scale them by ranges that are known, or stay with float64"
        check.require(small, "Federation", f"entries must be at most {most:.3g} to fit in float32", hint=hint)
        X = exact.astype(np.float32)
        for low in range(0, len(X), _AT_ONCE):
            rounded, given = X[low : low + _AT_ONCE], exact[low : low + _AT_ONCE]
            outwards = np.abs(rounded) > np.abs(given)
            rounded[outwards] = np.nextafter(rounded[outwards], np.float32(0.0))
        return replace(self, X=X)

    def data(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each client's own (X, y)."""
        starts = self.offsets.tolist()
        return [(self.X[a:b], self.y[a:b]) for a, b in itertools.pairwise(starts)]

    def described(self) -> dict[str, Any]:
        """What is public of it, for the [data] table of a saved run."""
        rows, columns = self.X.shape
        data = {
            "source": "arrays",
            "clients": self.n,
            "rows": int(rows),
            "columns": int(columns),
            "smallest_client": int(self.sizes.min()),
            "largest_client": int(self.sizes.max()),
        }
        if self.X.dtype == np.float32:
            data["stored"] = "float32"
        return data if self.row_bound is None else data | {"row_bound": float(self.row_bound)}

    def model_parts(self) -> dict[str, Any]:
        """How a model is shared out between owners: not at all."""
        return {}

    def arrays(self) -> list[np.ndarray]:
        """Everything that a fingerprint of all rows must depend on."""
        return [self.X, self.y, self.offsets]

    def __repr__(self) -> str:  # the default would print rows
        rows, columns = self.X.shape
        return f"Federation({self.n} clients, {rows} rows, {columns} columns)"

    def __post_init__(self) -> None:
        refuse_huge("Federation", self.X)
        if self.row_bound is None:
            return
        check.positive("Federation", row_bound=self.row_bound)
        longest = float(np.sqrt(np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64).max()))
        check.require(
            longest <= self.row_bound * (1 + 1e-12),
            "Federation",
            f"row_bound promises that no row is longer than {self.row_bound:g}, but the longest is longer",
            hint="Scale the longer rows down (RowClipper; in a file: [data] shorten = true), or promise a larger bound",
        )


def refuse_huge(who: str, entries: np.ndarray) -> None:
    """Without saying what the entry is: it is private, and messages travel further than rows do."""
    small = _largest(entries) <= LARGEST
    hint = "Is one of them a mark for a missing value? Drop such rows, or scale columns by ranges that are known"
    check.require(small, who, f"entries of X must be at most {LARGEST:g} in size", hint=hint)


def _largest(entries: np.ndarray) -> float:
    """In size; NaN if one is. No copy is made, for there may be as much data as memory."""
    return max(float(entries.max(initial=0.0)), -float(entries.min(initial=0.0)))


def rows_without(column: np.ndarray) -> list[int]:
    """The rows that have nothing in `column`: None, NaN, or the like of another library."""
    if column.dtype.kind in "biuSU":  # the kinds that cannot hold nothing
        return []
    if column.dtype.kind == "f":
        return np.flatnonzero(np.isnan(column)).tolist()
    return [row for row, entry in enumerate(column.tolist()) if entry is None or not _is_itself(entry)]


def one_kind(column: np.ndarray) -> bool:
    """Whether entries can be sorted: text and numbers side by side cannot."""
    return column.dtype.kind != "O" or len({isinstance(entry, str) for entry in column.tolist()}) <= 1


def _is_itself(entry: object) -> bool:
    """NaN does not equal itself, and whether pandas' NA does is neither true nor false."""
    same = entry == entry
    return bool(same) if isinstance(same, bool | np.bool_) else False


def _renumber(present: np.ndarray, owner: np.ndarray, owners: list[object]) -> np.ndarray:
    """Owners' numbers in the order of `owners`; every owner must have rows and every row a known owner."""
    place = {name: number for number, name in enumerate(owners)}
    check.require(len(place) == len(owners), "Federation", "owners must be distinct", owners)
    unknown = np.flatnonzero(np.array([name not in place for name in present.tolist()])[owner])
    if len(unknown):  # not what it holds: it may be a column of features that was given by mistake
        raise InvalidInput(
            f"Federation: groups must name one of the {len(owners)} owners in every row, and row {unknown[0]} names "
            f"another ({len(unknown)} such rows). Add it to owners, or drop these rows"
        )
    idle = [name for name in owners if name not in set(present.tolist())]
    if idle:
        raise InvalidInput(
            f"Federation: client {check.shown(idle[0])} has no rows ({len(idle)} such clients). Leave it out of owners"
        )
    return np.array([place[name] for name in present.tolist()])[owner]
