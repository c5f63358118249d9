"""Rows set aside at random for a test."""

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Integers, Matrix


def split(X: Matrix, y: AnyArray, test: int | float, seed: int) -> tuple[Matrix, AnyArray, Matrix, AnyArray]:
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
