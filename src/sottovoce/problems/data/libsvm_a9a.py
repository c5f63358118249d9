"""a9a of LIBSVM Data: Adult as binary features."""

import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats
from sottovoce.problems.data.dataset import Dataset, encoded
from sottovoce.problems.data.sources import Source, lines, parts_of, sign, with_test_part

SOURCE = Source.named("a9a")
_MOST_ONES = 14  # at most one feature for each attribute of Adult


def a9a(dense: bool = True, download: bool = True, encoding: str = "schema") -> Dataset:
    """a9a: Adult in 123 binary features, 32 561 rows and 16 281 to test.

    `encoding` is "schema" (by the public schema that comes with the package) or "binary" (zeros and ones; with
    `dense=False` as CSR arrays).
    """
    check.one_of("a9a", "encoding", encoding, ("schema", "binary"))
    parts = parts_of(SOURCE, lambda folder: [_read(folder, file, SOURCE.features) for file in SOURCE.files], download)
    for X, _ in parts:  # the row bound rests on it
        indicators = bool(((X == 0) | (X == 1)).all() and X.sum(axis=1).max() <= _MOST_ONES)
        check.require(indicators, "a9a", f"rows must hold zeros and at most {_MOST_ONES} ones")
    if encoding == "schema":
        rule = "rows that a schema encodes are dense"
        check.require(dense, "a9a", rule, hint="Leave dense out, or give encoding='binary'")
        parts = [(encoded("a9a", X)[0], y) for X, y in parts]
        _, names, schema = encoded("a9a", np.zeros((1, SOURCE.features)))
        return replace(with_test_part(SOURCE, parts, encoding, row_bound=1.0), feature_names=names, schema=schema)
    if not dense:
        parts = [(import_module("scipy.sparse").csr_array(X), y) for X, y in parts]
    return with_test_part(SOURCE, parts, encoding, row_bound=math.sqrt(_MOST_ONES))


def _read(folder: Path, file: str, features: int) -> tuple[Floats, Floats]:
    """An svmlight file whose stored values are all 1."""
    labels: list[float] = []
    columns: list[int] = []
    lengths: list[int] = []
    for number, line in lines(folder, file):
        where = f"{file}, line {number}"
        label, *pairs = line.split()
        labels.append(sign(where, label))
        try:
            if all(pair.endswith(":1") for pair in pairs):  # as the file has it: no other pair needs taking apart
                row = [int(pair[:-2]) for pair in pairs]
            else:
                row = [int(index) for index, value in (pair.split(":") for pair in pairs) if float(value) == 1.0]
        except ValueError:
            row = []
        rising = row == sorted(set(row)) and 1 <= min(row, default=1) <= max(row, default=1) <= features
        rule = f"must be a label and pairs index:1, indices rising within 1..{features}"
        check.require(len(row) == len(pairs) and rising, where, rule)
        columns.extend(row)
        lengths.append(len(row))
    X = np.zeros((len(labels), features))
    X[np.repeat(np.arange(len(labels)), lengths), np.array(columns, dtype=np.int64) - 1] = 1.0
    return X, np.array(labels)
