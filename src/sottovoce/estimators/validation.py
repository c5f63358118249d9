"""Checks of tables and labels that users pass to an estimator.

An error names the column and the row, never the entry: messages travel further than rows (into logs, bug reports, the
output of worker processes), and whoever may see the row can look it up.
"""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from sottovoce.core import check
from sottovoce.core.arrays import Matrix
from sottovoce.core.arrays import MatrixLike as Table
from sottovoce.problems.federation import one_kind, rows_without

_TEXT = (str, bytes)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_PUBLIC = (  # beginnings of scikit-learn's messages that contain names of columns, types and sizes, but no entry
    "Found array with",
    "Found input variables with inconsistent numbers",
    "X has ",
    "The feature names should match",
    "Feature names are only supported",
    "y should be a 1d array",
    "requires y to be passed",
    "Sparse data was passed",
    "Input y contains",
    "argument must be a string or a real number",
)


def validated(estimator: BaseEstimator, X: Table, y: ArrayLike | None, y_numeric: bool) -> tuple[Matrix, np.ndarray]:
    """The rows as finite float64 numbers and their labels, as scikit-learn's `validate_data` returns them.

    Its messages are replaced where they quote an entry, or recommend imputers: one that learns from private rows is a
    leak.
    """
    who = type(estimator).__name__
    hint = "Give the column itself, such as frame['label'], and leave it out of X"
    check.require(not isinstance(y, str), who, "y must hold the label of each row, got text", hint=hint)
    labels = check.any_array(who, "y", y)
    _refuse_text_and_dates(who, X)
    if labels.ndim == 1:
        _refuse_labels(who, labels, numbers=y_numeric)
    return _validate(estimator, X, y=y, y_numeric=y_numeric, accept_sparse="csr")


def validated_rows(estimator: BaseEstimator, X: Table, *, reset: bool = False, sparse: bool = False) -> Any:
    """The rows as finite float64 numbers, in an array; with `sparse` a sparse matrix stays one.

    `reset`: remember their columns, otherwise they must be the known ones.
    """
    _refuse_text_and_dates(type(estimator).__name__, X)
    return _validate(estimator, X, reset=reset, accept_sparse="csr" if sparse else False)


def _validate(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn adds up infinities of both signs
            return validate_data(estimator, X, dtype=np.float64, **options)
    except (TypeError, ValueError) as raised:
        kind, message = TypeError if isinstance(raised, TypeError) else check.InvalidInput, str(raised)
    # Raised here, after the `except`, so that the context of our error does not hold scikit-learn's.
    who = type(estimator).__name__
    missing = next((word for word in ("NaN", "infinity") if f"Input X contains {word}" in message), "")
    if missing:
        rows, column = _places(X, np.isnan if missing == "NaN" else np.isinf)
        learnt = "an imputer that learns from private rows is a leak"
        fix = f"Drop these rows, or fill them with a number known without looking: {learnt}"
        check.every_row(who, f"column {column!r} of X must hold finite numbers", rows, f"contains {missing}", fix)
    raise kind(_without_entries(who, X, message))


def _without_entries(who: str, X: Any, message: str) -> str:
    """scikit-learn's message if it contains no entry, otherwise one of ours."""
    if any(words in message for words in _PUBLIC):
        return message
    if "Complex data not supported" in message:  # the words that scikit-learn's own tests look for
        return f"{who}: Complex data not supported. X and y must hold real numbers"
    if "Expected 2D" in message:  # again words that they look for
        fix = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row"
        return f"{who}: X must have 2 axes, got {np.shape(X)}. {fix}"
    return f"{who}: X must be a table of numbers, and some entries are not. Convert them to numbers"


def _columns(X: Any) -> Iterator[tuple[object, np.ndarray]]:
    """Names (or numbers) and entries of the columns that may hold something other than numbers."""
    names = _names(X)
    if names:
        yield from ((name, np.asarray(X[name])) for name in names)
        return
    if isinstance(X, list | tuple):
        try:
            X = np.asarray(X, dtype=object)
        except ValueError:  # rows of unequal length: scikit-learn's message is good
            return
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OSUTmM":
        yield from enumerate(X.T)


def _names(X: object) -> list[object]:
    return list(getattr(X, "column_names", getattr(X, "columns", ())))  # pyarrow's attribute, and everybody else's


def _refuse_text_and_dates(who: str, X: Table) -> None:
    for name, column in _columns(X):
        text, times = _rows_of(column, _TEXT), _rows_of(column, _TIMES)
        if not (text or times):
            continue
        rows, what = (text, "text") if text else (times, "a date or a time")
        such = "a 0/1 column of each value that you know there can be" if text else "days since a day that you choose"
        fix = f"drop such rows, leave the column out, or convert it to numbers, such as {such}"
        rule = f"column {name!r} of X must hold numbers"
        check.every_row(who, rule, rows, f"holds {what}", f"Give prepare=Schema(...), {fix}")


def _refuse_labels(who: str, y: np.ndarray, numbers: bool) -> None:
    infinite = np.flatnonzero(np.isinf(y)).tolist() if y.dtype.kind == "f" else []
    for rows, what in ((rows_without(y), "NaN or nothing"), (infinite, "infinity")):
        if rows:
            where = f"first in row {rows[0]} ({len(rows)} such rows)"
            raise check.InvalidInput(f"{who}: y contains {what}, {where}. Drop these rows")
    check.require(numbers or one_kind(y), who, "labels must be all text or all numbers, and y holds both")
    fix = "Convert it to numbers, or use FederatedClassifier for classes"
    check.every_row(who, "y must hold numbers", _rows_of(y, _TEXT) if numbers else [], "holds text", fix)


def _rows_of(column: np.ndarray, kinds: tuple[type, ...]) -> list[int]:
    """The rows of `column` that hold one of these types."""
    if column.dtype.kind in "biufc":
        return []
    if column.dtype.kind in "mM":
        return list(range(len(column))) if kinds is _TIMES else []
    return [row for row, entry in enumerate(column.tolist()) if isinstance(entry, kinds)]


def _places(X: Table, is_wrong: Callable[[np.ndarray], np.ndarray]) -> tuple[list[int], object]:
    """The rows with a wrong entry in the first column that has any, and the name or number of that column."""
    names = _names(X)
    table = check_array(X, dtype="float64", accept_sparse=True, ensure_all_finite=False)
    if hasattr(table, "tocoo"):
        stored = table.tocoo()
        wrong = is_wrong(stored.data)
        rows, columns = stored.row[wrong], stored.col[wrong]
    else:
        rows, columns = np.nonzero(is_wrong(table))
    column = int(columns.min())
    return sorted(rows[columns == column].tolist()), names[column] if names else column


def public_range(who: str, y_range: tuple[float, float] | None) -> tuple[float, float]:
    """The stated range of y; without one [-1, 1]."""
    if y_range is None:
        return -1.0, 1.0
    pair = check.finite_array(who, "y_range", y_range, ndim=1)
    check.require(pair.shape == (2,) and pair[0] < pair[1], who, "y_range must be (low, high), low < high")
    return float(pair[0]), float(pair[1])
