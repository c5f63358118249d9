"""What a data set is, how a public schema encodes one, and how rows are set aside for a test."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Integers, Sparse
from sottovoce.problems.schema import Schema

Rows = TypeVar("Rows", AnyArray, Sparse)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows, labels and where they come from.

    `y` holds -1.0 / +1.0, or whole class numbers 0, 1 where `notes` says so. `test` is the official test part (X, y) of
    sets that have one, `groups` the natural owner of each row, and `row_bound` an l2 norm that no row exceeds, whatever
    the data: a public constant, to be relied on for sensitivity. `schema` is the public schema that encoded the rows,
    by which new rows of the same table can be encoded; None if something else prepared them.
    """

    name: str
    X: Any = field(repr=False)  # an array, or a CSR array if that was asked for
    y: AnyArray = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    source: str
    notes: str
    test: tuple[Any, AnyArray] | None = field(default=None, repr=False)
    groups: AnyArray | None = field(default=None, repr=False)
    row_bound: float | None = None
    schema: Schema | None = field(default=None, repr=False)


@dataclass(frozen=True)
class DatasetInfo:
    """What can be said about a data set without reading it. `status` is "bundled", "found" or "missing"."""

    name: str
    status: str
    where: str
    rows: int
    test_rows: int
    features: int
    task: str
    how_to_get: str


def split(X: Rows, y: AnyArray, test: int | float, seed: int) -> tuple[Rows, AnyArray, Rows, AnyArray]:
    """X_train, y_train, X_test, y_test: `test` rows (a whole number, or a fraction of all) set aside at random.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems import data
    >>> X_train, y_train, X_test, y_test = data.split(np.eye(10), np.arange(10), test=0.2, seed=0)
    >>> len(y_train), len(y_test)
    (8, 2)
    """
    check.require(X.shape[0] == len(y), "split", f"y must have one value per row of X ({X.shape[0]})", len(y))
    train_rows, test_rows = split_rows(len(y), test, seed)
    return X[train_rows], y[train_rows], X[test_rows], y[test_rows]


def split_rows(rows: int, test: int | float, seed: int) -> tuple[Integers, Integers]:
    """Row numbers of the training and of the test part, each in increasing order, for arrays that go along with X."""
    check.whole("split", at_least=2, rows=rows)
    check.whole("split", at_least=0, seed=seed)
    if isinstance(test, float | np.floating):
        check.between("split", 0, 1, test=test)
    else:
        check.whole("split", test=test)
    aside = round(test * rows) if test < 1 else int(test)
    check.require(1 <= aside < rows, "split", f"test must leave at least one of {rows} rows on either side", test)
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[aside:]), np.sort(order[:aside])


def encoded(name: str, table: object) -> tuple[Floats, tuple[str, ...], Schema]:
    """The rows of a table, each of length 1, the names of their columns, and the schema that encoded them."""
    schema = Schema.bundled(name)
    rows = schema.encode(table, owners=False, labels=False).X
    return rows, tuple(schema.get_feature_names_out().tolist()), schema
