"""A data set's training and test part: from the user's folder or from OpenML, recognised by published facts."""

import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Matrix
from sottovoce.problems.data.dataset import Dataset, Source
from sottovoce.problems.data.files import folder_of, missing

_NETWORK_PATIENCE = 30.0  # seconds without an answer

Rows = tuple[Matrix, Floats]  # X, y


def parts_of(source: Source, read: Callable[[Path], list[Rows]], download: bool) -> list[Rows]:
    """Training and test part, read from the folder by `read`, else downloaded."""
    folder = folder_of(source)
    if folder is not None:
        parts = read(folder)
        _recognise(source, parts)
        return parts
    if not download:
        raise missing(source)
    try:
        parts = _from_openml(source)
        _recognise(source, parts)
    except check.SottovoceError as error:
        raise missing(source, f"the copy on OpenML is another one: {error}") from None
    except Exception as error:  # whatever goes wrong between here and OpenML, the user needs the same advice
        reason = f"OpenML (name {source.name}, version 1) gave no answer: {type(error).__name__}"
        raise missing(source, reason) from error
    return parts


def with_test_part(source: Source, parts: list[Rows], notes: str, row_bound: float | None = None) -> Dataset:
    (X, y), test = parts
    names = tuple(f"f{k}" for k in range(1, X.shape[1] + 1))
    return Dataset(source.name, X, y, names, source.citation, notes, test=test, row_bound=row_bound)


def _recognise(source: Source, parts: list[Rows]) -> None:
    for which, (X, y), part in zip(("training", "test"), parts, source.parts, strict=True):
        for what, got, expected in (
            ("rows", X.shape[0], part.rows),
            ("labels", len(y), part.rows),
            ("positive labels", int((y > 0).sum()), part.positives),
            ("as the sum of all entries", float(X.sum()), part.total),
        ):
            rule = f"the {which} part must have {expected} {what}"
            if what == "rows":
                check.require(got == expected, source.name, rule, got)
            check.require(got == expected, source.name, f"{rule}, and has not")  # not what it has: it may be private


def _from_openml(source: Source) -> list[Rows]:
    from sklearn.datasets import fetch_openml

    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(patience or _NETWORK_PATIENCE)  # else a silent firewall would hold us for minutes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about retries; our own error reports a failure
            answer: Any = fetch_openml(
                source.name, version=1, as_frame=False, return_X_y=True, parser="liac-arff", n_retries=1, delay=0.5
            )
    finally:
        socket.setdefaulttimeout(patience)
    X, target = answer
    if not isinstance(X, np.ndarray):
        X = X.toarray()
    codes = np.asarray(target, dtype=np.float64)  # -1, 1 or, after OpenML's renaming, 1, 2
    y = np.where(codes == codes.max(), 1.0, -1.0)
    check.require(X.shape[1] == source.features, source.name, f"must have {source.features} features", X.shape[1])
    X, first = np.ascontiguousarray(X, dtype=np.float64), source.parts[0].rows
    return [(X[:first], y[:first]), (X[first:], y[first:])]
