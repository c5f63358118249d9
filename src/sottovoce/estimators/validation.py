"""Tables as users of scikit-learn bring them, checked.

An error here names the column and the row, never what stands there: messages travel further than rows do (into logs,
bug reports, the output of worker processes), and whoever may see the row can look it up.
"""

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.problems.federation import one_kind, rows_without

_TEXT = (str, bytes)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_PUBLIC = (  # of scikit-learn's errors those that tell names of columns, kinds and sizes, and no entry
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


def validated(estimator: BaseEstimator, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """scikit-learn's `validate_data`, with other words where a table does not hold finite numbers.

    Its own quote an entry, or recommend imputers: one that learns from private rows is a leak.
    """
    who = type(estimator).__name__
    if isinstance(y, str) and y != "no_validation":
        hint = "Give the column itself, such as frame['label'], and leave it out of X"
        check.require(False, who, "y must hold the label of each row, got text", hint=hint)
    labels = check.any_array(who, "y", None if isinstance(y, str) else y)
    _refuse_words(who, X)
    if labels.ndim == 1:
        _refuse_labels(who, labels, numbers=options.get("y_numeric", False))
    checked, error = _validate(estimator, X, y, options)
    if error is None:
        return checked
    said = str(error)
    what = next((word for word in ("NaN", "infinity") if f"Input X contains {word}" in said), "")
    if what:
        rows, column = _places(X, np.isnan if what == "NaN" else np.isinf)
        raise InvalidInput(
            f"{who}: column {column!r} of X contains {what}, first in row {rows[0]} ({len(rows)} such rows). Drop "
            "these rows, or fill them with a number known without looking: an imputer that learns from private rows is "
            "a leak"
        )
    raise (TypeError if isinstance(error, TypeError) else InvalidInput)(_in_our_words(who, X, said))


def _validate(estimator: BaseEstimator, X: Any, y: Any, options: dict[str, Any]) -> tuple[Any, Exception | None]:
    """What scikit-learn makes of a table, or its error: raised here, it would stay in the context of ours."""
    try:
        with np.errstate(invalid="ignore"):  # infinities of both signs are summed up there
            return validate_data(estimator, X, y, **options), None
    except (TypeError, ValueError) as error:
        return None, error


def _in_our_words(who: str, X: Any, said: str) -> str:
    """scikit-learn's error as it is where it tells names, kinds and sizes alone. Others quote entries."""
    if any(words in said for words in _PUBLIC):
        return said
    if "Complex data not supported" in said:  # the words that scikit-learn's own tests look for
        return f"{who}: Complex data not supported. X and y must hold real numbers"
    if "Expected 2D" in said:
        how = "Reshape your data: X.reshape(-1, 1) is one column, X.reshape(1, -1) one row"  # words they look for, too
        return f"{who}: X must have 2 axes, got {np.shape(X)}. {how}"
    return f"{who}: X must be a table of numbers, and some entries are not. Make numbers of them"


def _columns(X: Any) -> Iterator[tuple[Any, np.ndarray]]:
    """Names (or numbers) and entries of the columns that may hold other things than numbers."""
    names = _names(X)
    if names:
        yield from ((name, np.asarray(X[name])) for name in names)
        return
    if isinstance(X, list | tuple):
        try:
            X = np.asarray(X, dtype=object)
        except ValueError:  # rows of unequal length, of which scikit-learn says enough
            return
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OSUTmM":
        yield from enumerate(X.T)


def _names(X: Any) -> list[Any]:
    return list(getattr(X, "column_names", getattr(X, "columns", ())))  # pyarrow's, and everybody else's


def _refuse_words(who: str, X: Any) -> None:
    for name, column in _columns(X):
        text, times = _rows_of(column, _TEXT), _rows_of(column, _TIMES)
        if not (text or times):
            continue
        rows, what = (text, "text") if text else (times, "a date or a time")
        way_out = "a 0/1 column of each value that you know there can be" if text else "days since a day that you name"
        raise InvalidInput(
            f"{who}: column {name!r} of X must hold numbers, and row {rows[0]} holds {what} ({len(rows)} such "
            f"entries). Drop such rows, leave the column out, or make numbers of it, such as {way_out}"
        )


def _refuse_labels(who: str, y: np.ndarray, numbers: bool) -> None:
    endless = np.flatnonzero(np.isinf(y)).tolist() if y.dtype.kind == "f" else []
    for rows, what in ((rows_without(y), "NaN or nothing"), (endless, "infinity")):
        if rows:
            where = f"first in row {rows[0]} ({len(rows)} such rows)"
            raise InvalidInput(f"{who}: y contains {what}, {where}. Drop these rows")
    check.require(numbers or one_kind(y), who, "labels must be all text or all numbers, and y holds both")
    text = _rows_of(y, _TEXT) if numbers else []
    if text:
        raise InvalidInput(
            f"{who}: y must hold numbers, and row {text[0]} holds text ({len(text)} such rows). Make numbers of it, or "
            "use FederatedClassifier for classes"
        )


def _rows_of(column: np.ndarray, kinds: Any) -> list[int]:
    """The rows of `column` that hold one of these kinds."""
    if column.dtype.kind in "biufc":
        return []
    if column.dtype.kind in "mM":
        return list(range(len(column))) if kinds is _TIMES else []
    return [row for row, entry in enumerate(column.tolist()) if isinstance(entry, kinds)]


def _places(X: Any, wrong: Any) -> tuple[list[int], Any]:
    """The rows with a wrong entry in the first column that has any, and that column's name or number."""
    names = _names(X)
    array: Any = check_array(X, dtype="float64", accept_sparse=True, ensure_all_finite=False)
    if hasattr(array, "tocoo"):
        found = array.tocoo()
        there = wrong(found.data)
        rows, columns = found.row[there], found.col[there]
    else:
        rows, columns = np.nonzero(wrong(array))
    column = int(columns.min())
    return sorted(rows[columns == column].tolist()), names[column] if names else column
