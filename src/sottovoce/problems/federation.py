"""Data of several owners, and what is the same about them whether rows or columns are split."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Integers, Sparse, SparseLike, aligned, is_sparse
from sottovoce.core.contract import Layout
from sottovoce.core.plain import Json
from sottovoce.problems.losses import Loss

Dense = TypeVar("Dense")
Rows = TypeVar("Rows", bound=AnyArray | Sparse)
_AT_ONCE = 1 << 16  # rows that are rounded together
MOST_DENSE = 2**28  # entries of sparse rows that become dense: 2 GiB
LARGEST = 1e100  # beyond, squares and products overflow, and bounds that hold on paper do not hold in floating point


class FederatedData(ABC):
    """Data of several owners, split by rows (`Federation`) or by columns (`VerticalFederation`).

    Attributes
    ----------
    layout
        What is split between the owners: "rows", or "columns", so that all owners have the same samples.
    names
        One per owner.
    y
        All labels.
    row_bound
        A public bound on the Euclidean length of all rows, or None.
    bias
        Whether the last column (where columns are split: of the party with the labels) is there for the intercept.
    """

    layout: ClassVar[Layout]
    names: tuple[str, ...]
    y: AnyArray
    row_bound: float | None = None
    bias: bool = False

    @property
    def n(self) -> int:
        """Number of owners."""
        return len(self.names)

    @property
    @abstractmethod
    def sizes(self) -> Integers:
        """Number of rows that each owner has."""

    @property
    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Number of columns that each owner has."""

    @abstractmethod
    def message_size(self, loss: Loss) -> int:
        """How many numbers a message has: one per parameter of the model, or one per sample if columns are split."""

    @abstractmethod
    def rows_like_these(self, who: str, X: Any) -> Any:
        """New rows, checked: numbers in as many columns as these have."""

    @abstractmethod
    def with_ones(self, X: Any) -> Any:
        """Rows like these, with one more column of ones."""

    @abstractmethod
    def with_bias(self, blanks: bool = False) -> "FederatedData":
        """The same with one more column of ones for the intercept, if there is none yet.

        `blanks`: a row of zeros stands for a record that is not there, and stays a row of zeros.
        """

    @property
    def record_weight(self) -> float | Literal["mean"]:
        """What one record's loss counts for in its owner's f_i if all records weigh the same (`Objective`)."""
        return float(self.n / self.sizes.sum())

    @abstractmethod
    def data(self) -> list[tuple[AnyArray, AnyArray]]:
        """What each owner has, as plain arrays (X, y): its ledger is bound to them."""

    @abstractmethod
    def dense_data(self) -> list[tuple[Floats, AnyArray]]:
        """What each owner has, as dense float64 arrays (X, y), to be written to a file; y is empty without labels."""

    @abstractmethod
    def fingerprint_arrays(self) -> list[AnyArray]:
        """Everything that a fingerprint of all the data must depend on."""

    @abstractmethod
    def to_table(self) -> Json:
        """What is public about it, for the [data] table of a saved run."""

    def model_parts(self) -> Json:
        """How a model is divided between the owners; empty if it is not."""
        return {}

    @abstractmethod
    def clients_table(self) -> Json:
        """[clients] of a deployment over these owners: what a server has to know about them."""

    @abstractmethod
    def node_table(self) -> Json:
        """What [data] of a node says about its rows besides where they are."""

    def as_rows(self, who: str, rule: str) -> "Federation":
        """This, if rows are split; else an error that says the rule."""
        check.require(isinstance(self, Federation), who, rule)
        return cast(Federation, self)


@dataclass(frozen=True)
class Federation(FederatedData):
    """Rows of many owners, end to end: client i holds rows offsets[i] to offsets[i+1]. Unequal sizes are normal.

    Parameters
    ----------
    X, y
        Features (rows, columns) and labels, sorted by owner.
    offsets
        Where the rows of each client start, and where the last ones end.
    names
        One per client.
    row_bound
        A public promise, known without looking at the data, that no row is longer (Euclidean) than this. It is
        checked. In `Proven` mode, where the data must not be used for it, step sizes that need a curvature take it
        from here.
    bias
        Whether the last column is there for the intercept. Rows that a `Schema` encoded have such a column.

    Examples
    --------
    >>> from sottovoce import Federation
    >>> fed = Federation.from_arrays([[0.1], [0.2], [0.3]], [1, -1, 1], groups=["north", "south", "north"])
    >>> fed
    Federation(2 clients, 3 rows, 1 columns)
    >>> fed.names, fed.sizes
    (('north', 'south'), array([2, 1]))
    """

    X: AnyArray
    y: AnyArray
    offsets: Integers
    names: tuple[str, ...]
    row_bound: check.Positive | None = None
    bias: bool = False
    layout = "rows"

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
        table = check.finite_array("Federation", "X", dense("Federation", X), ndim=2)
        y = check.any_array("Federation", "y", y)
        column = next(iter(getattr(groups, "columns", ["owner"])))
        groups = check.any_array("Federation", "groups", groups)
        hint = f"Give frame[{column!r}]" if groups.ndim == 2 else ""
        check.require(groups.ndim == 1, "Federation", "groups must have one axis", groups.shape, hint)
        fix = "Fill it in, or drop these rows"
        check.every_row("Federation", "every row must have an owner", rows_without(groups), "has none", fix)
        check.require(table.shape[1] > 0, "Federation", "X must have at least one column", table.shape)
        check.require(y.ndim == 1, "Federation", "y must have one axis", y.shape)
        if y.dtype.kind not in "biuf":  # here, where row i is still the caller's own
            y = check.finite_array("Federation", "y", y, ndim=1)
        for name, column in (("y", y), ("groups", groups)):
            rule = f"{name} must have one entry per row of X ({len(table)})"
            check.require(column.shape[:1] == table.shape[:1], "Federation", rule, len(column))
        check.require(one_kind(groups), "Federation", "groups must be all text or all numbers", hint="Use str(...)")
        present, owner = np.unique(groups, return_inverse=True)
        if owners is not None:
            owner = _renumber(present, owner, list(owners))
            present = np.asarray(owners)
        check.require(len(present) > 0, "Federation", "needs at least one row")
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner, minlength=len(present))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = aligned(table.shape, table.dtype)
        np.take(table, order, axis=0, out=rows, mode="clip")  # which never happens, but writes into `rows` at once
        return cls(rows, y[order], offsets, tuple(str(name) for name in present), row_bound)

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[Sequence[ArrayLike]],
        *,
        names: Sequence[object] | None = None,
        row_bound: float | None = None,
    ) -> "Federation":
        """One (X, y) pair per client."""
        check.require(len(clients) > 0, "Federation", "needs at least one client")
        names = list(range(len(clients))) if names is None else list(names)
        rule = f"needs one name per client ({len(clients)})"
        check.require(len(names) == len(clients), "Federation", rule, len(names))
        pairs: list[tuple[AnyArray, AnyArray]] = []
        for name, pair in zip(names, clients, strict=True):
            who = f"client {check.shown(name)}"
            fits = isinstance(pair, tuple | list) and len(pair) == 2
            check.require(fits, "Federation", f"{who} must be a pair (X, y)")
            X, y = check.any_array("Federation", "X", pair[0]), check.any_array("Federation", "y", pair[1])
            pairs.append((X, y))
            check.require(X.ndim == 2 and y.ndim == 1, who, "X must have 2 axes and y one", (X.shape, y.shape))
            check.require(len(X) > 0, "Federation", f"{who} has no rows", hint="Leave it out")
            check.require(len(X) == len(y), "Federation", f"{who}: X and y must be equally long", (len(X), len(y)))
            rule = f"{who} must have the first one's columns {pairs[0][0].shape[1:]}"
            check.require(X.shape[1:] == pairs[0][0].shape[1:], "Federation", rule, X.shape[1:])
        groups = np.repeat(np.arange(len(pairs)), [len(X) for X, _ in pairs])
        tables, labels = zip(*pairs, strict=True)
        federation = cls.from_arrays(np.concatenate(tables), np.concatenate(labels), groups, row_bound=row_bound)
        return cls(federation.X, federation.y, federation.offsets, tuple(str(name) for name in names), row_bound)

    @property
    def sizes(self) -> Integers:
        return np.diff(self.offsets)

    @property
    def widths(self) -> tuple[int, ...]:
        return (int(self.X.shape[1]),) * self.n

    def message_size(self, loss: Loss) -> int:
        return loss.model_size(int(self.X.shape[1]))

    def rows_like_these(self, who: str, X: ArrayLike) -> AnyArray:
        rows, columns = check.finite_array(who, "X", X, ndim=2), int(self.X.shape[1])
        check.require(rows.shape[1] == columns, who, f"X must have the federation's {columns} columns", rows.shape[1])
        return rows

    def with_ones(self, X: AnyArray) -> AnyArray:
        return with_ones(X)

    def with_bias(self, blanks: bool = False) -> "Federation":
        if self.bias:
            return self
        bound, rows = None if self.row_bound is None else float(np.hypot(self.row_bound, 1.0)), with_ones(self.X)
        if blanks:
            rows[:, -1] = self.X.any(axis=1)
        return replace(self, X=rows, row_bound=bound, bias=True)

    def in_float32(self) -> "Federation":
        """The same rows in half the memory, with seven digits: reading them takes about half as long.

        Entries are rounded towards zero, so that no row gets longer and a promised bound still holds.
        """
        exact, most = self.X, float(np.finfo(np.float32).max)
        small = _largest(exact) <= most
        hint = "Scale them by ranges that are known, or stay with float64"
        check.require(small, "Federation", f"entries must be at most {most:.3g} to fit in float32", hint=hint)
        X = aligned(exact.shape, np.float32)
        for low in range(0, len(X), _AT_ONCE):
            rounded, unrounded = X[low : low + _AT_ONCE], exact[low : low + _AT_ONCE]
            rounded[:] = unrounded
            outwards = np.abs(rounded) > np.abs(unrounded)
            rounded[outwards] = np.nextafter(rounded[outwards], np.float32(0.0))
        return replace(self, X=X)

    def data(self) -> list[tuple[AnyArray, AnyArray]]:
        return [(self.X[a:b], self.y[a:b]) for a, b in itertools.pairwise(self.offsets.tolist())]

    def dense_data(self) -> list[tuple[Floats, AnyArray]]:
        return [(np.asarray(X, dtype=np.float64), y) for X, y in self.data()]

    def fingerprint_arrays(self) -> list[AnyArray]:
        return [self.X, self.y, self.offsets]

    def to_table(self) -> Json:
        rows, columns = self.X.shape
        table = {
            "source": "arrays",
            "clients": self.n,
            "rows": int(rows),
            "columns": int(columns),
            "smallest_client": int(self.sizes.min()),
            "largest_client": int(self.sizes.max()),
        }
        return table | ({"stored": "float32"} if self.X.dtype == np.float32 else {}) | self.node_table()

    def clients_table(self) -> Json:
        return {"names": list(self.names), "columns": int(self.X.shape[1])} | self.node_table()

    def node_table(self) -> Json:
        return {} if self.row_bound is None else {"row_bound": float(self.row_bound)}

    def __repr__(self) -> str:  # the default would print rows
        rows, columns = self.X.shape
        return f"Federation({self.n} clients, {rows} rows, {columns} columns)"

    def __post_init__(self) -> None:
        check.fields(self)
        clients = len(self.offsets) - 1
        check.require(self.n == clients, "Federation", f"needs one name per client ({clients})", self.n)
        check_names("Federation", self.names)
        refuse_huge("Federation", self.X)
        if self.row_bound is None:
            return
        longest = float(np.sqrt(np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64).max()))
        rule = f"row_bound promises that no row is longer than {self.row_bound:g}, but the longest is longer"
        hint = "Scale the longer rows down (RowClipper; in a file: [data] shorten = true), or promise a larger bound"
        check.require(longest <= self.row_bound * (1 + 1e-12), "Federation", rule, hint=hint)


def refuse_huge(who: str, entries: AnyArray) -> None:
    """Refuse entries so large that products overflow. The error does not tell the entry, which is private."""
    small = _largest(entries) <= LARGEST
    hint = "Is one of them a mark for a missing value? Drop such rows, or scale columns by ranges that are known"
    check.require(small, who, f"entries of X must be at most {LARGEST:g} in size", hint=hint)


def _largest(entries: AnyArray) -> float:
    """The largest size of an entry; NaN if one is NaN. No copy is made: the data may fill the memory."""
    return max(float(entries.max(initial=0.0)), -float(entries.min(initial=0.0)))


def check_names(who: str, names: Sequence[str]) -> None:
    """Owners' names go into files, messages and certificates: one line of text each. An error names none of them."""
    wrong = [place for place, name in enumerate(names) if not name.isprintable()]
    rule = f"an owner's name must be one line of text without control characters, and owner {wrong[:1]}'s is not"
    check.require(not wrong, who, rule)


def dense(who: str, X: Dense | SparseLike) -> Dense | Floats:
    """A sparse matrix as a dense array, within a limit; anything else as it is. Gradients need dense rows."""
    if not isinstance(X, SparseLike):
        return X
    sparse = cast(Sparse, X)
    rows, columns = sparse.shape
    hint = "Take fewer rows or columns. Where columns are split (VerticalFederation) sparse parts stay sparse"
    rule = f"sparse rows are trained on as dense ones, of at most {MOST_DENSE:,} entries in all"
    check.require(rows * columns <= MOST_DENSE, who, rule, rows * columns, hint)
    return sparse.toarray()


def with_ones(X: Rows) -> Rows:
    """Rows with one more column, of ones: dense, or sparse as they were."""
    if not is_sparse(X):
        rows = aligned((len(X), X.shape[1] + 1), X.dtype)
        rows[:, :-1], rows[:, -1] = X, 1.0
        return cast(Rows, rows)
    sparse = import_module("scipy.sparse")
    return sparse.hstack([X, sparse.csr_array(np.ones((X.shape[0], 1)))], format="csr")


def rows_without(column: AnyArray) -> list[int]:
    """The rows whose entry in `column` is missing: None, NaN, or another library's mark for it."""
    if column.dtype.kind in "biuSU":  # types in which nothing can be missing
        return []
    if column.dtype.kind == "f":
        return np.flatnonzero(np.isnan(column)).tolist()
    return [row for row, entry in enumerate(column.tolist()) if entry is None or not _is_itself(entry)]


def one_kind(column: AnyArray) -> bool:
    """Whether the entries can be sorted: text and numbers in one column cannot."""
    return column.dtype.kind != "O" or len({isinstance(entry, str) for entry in column.tolist()}) <= 1


def _is_itself(entry: object) -> bool:
    """NaN does not equal itself, and comparing pandas' NA with itself gives neither True nor False."""
    same = cast(object, entry == entry)
    return isinstance(same, bool | np.bool_) and bool(cast(bool, same))


def _renumber(present: AnyArray, owner: AnyArray, owners: list[object]) -> AnyArray:
    """Owners' numbers in the order of `owners`; every owner must have rows and every row a known owner."""
    place = {name: number for number, name in enumerate(owners)}
    check.require(len(place) == len(owners), "Federation", "owners must be distinct", owners)
    unknown = np.flatnonzero(np.array([name not in place for name in present.tolist()])[owner]).tolist()
    # Not what it holds: it may be a column of features that was given by mistake.
    rule = f"groups must name one of the {len(owners)} owners in every row"
    check.every_row("Federation", rule, unknown, "names another", "Add it to owners, or drop these rows")
    idle = [name for name in owners if name not in set(present.tolist())]
    rule = f"client {check.shown(idle[0]) if idle else ''} has no rows ({len(idle)} such clients)"
    check.require(not idle, "Federation", rule, hint="Leave it out of owners")
    return np.array([place[name] for name in present.tolist()])[owner]
