"""Adult (census income) of the UCI Machine Learning Repository. It comes with the package."""

from typing import Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Integers
from sottovoce.core.clipping import shorten_rows
from sottovoce.problems.data.dataset import Dataset, encoded
from sottovoce.problems.data.sources import Source, bundled
from sottovoce.problems.schema import Schema
from sottovoce.problems.schema.frames import columns_of_text

ENCODINGS = ("schema", "one-hot", "ranks", "classes")
SOURCE = Source.named("adult")
COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
)
TRAINING = 32561  # rows of adult.data
NUMERIC = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}


def adult(encoding: str = "schema") -> Dataset:
    """Adult (census income), 45 222 complete rows: does a person earn more than 50 000 dollars a year?

    `encoding` is "schema" (148 columns, by a public schema), or the preparation of a paper, which reads numbers off
    the rows: "one-hot" (104 columns, DP-ADMM), "ranks" (14 columns, FedEPM) or "classes" (81 columns of all 48 842
    rows with their gaps filled, labels 0, 1, FedSPD-DP). The `notes` of the result say what was done.
    """
    check.one_of("adult", "encoding", encoding, ENCODINGS)
    files = ("adult.test", "adult.data") if encoding == "ranks" else ("adult.data", "adult.test")
    lines = (line for file in files for line in _lines(file) if encoding == "classes" or "?" not in line)
    *columns, incomes = columns_of_text("\n".join(lines).replace(", ", ","), (*COLUMNS, "income"))
    rich = np.array([income.startswith(">") for income in incomes.to_pylist()])
    X, names, schema = _encoded(encoding, columns)
    y = rich.astype(np.int64) if encoding == "classes" else np.where(rich, 1.0, -1.0)
    bound = None if encoding in ("ranks", "classes") else 1.0
    return SOURCE.dataset(X, y, names, encoding, row_bound=bound, schema=schema)


def _encoded(encoding: str, texts: list[Any]) -> tuple[Floats, tuple[str, ...], Schema | None]:
    if encoding == "schema":
        return encoded("adult", dict(zip(COLUMNS, texts, strict=True)))
    columns: list[list[str]] = [column.to_pylist() for column in texts]
    if encoding == "ranks":
        return _ranks(columns), COLUMNS, None
    return *(_standardised(columns) if encoding == "classes" else _one_hot(columns)), None


def _lines(file: str) -> list[str]:
    """The digest of the file is known, so its lines need no further check."""
    return [line for line in bundled(SOURCE, file).split("\n") if line and line[0] != "|"]


def complete_rows(file: str) -> list[list[str]]:
    """Rows without '?'."""
    return [line.split(", ") for line in _lines(file) if "?" not in line]


def _one_hot(columns: list[list[str]]) -> tuple[Floats, tuple[str, ...]]:
    X, names = _numbers_and_levels(dict(zip(COLUMNS, columns, strict=True)))
    return np.ascontiguousarray(shorten_rows(X / X.max(axis=0), 1.0)), names


def _standardised(columns: list[list[str]]) -> tuple[Floats, tuple[str, ...]]:
    """Without `fnlwgt` and `education`; '?' is the most frequent level; the first level of an attribute has no column.
    Mean and deviation of a column are those of the training rows."""
    kept = dict(zip(COLUMNS, columns, strict=True))
    del kept["fnlwgt"], kept["education"]
    for name, column in kept.items():
        if "?" in column:
            usual = max(sorted(set(column)), key=column[:TRAINING].count)
            kept[name] = [usual if entry == "?" else entry for entry in column]
    X, names = _numbers_and_levels(kept, first=1)
    return np.ascontiguousarray((X - X[:TRAINING].mean(axis=0)) / X[:TRAINING].std(axis=0)), names


def _numbers_and_levels(columns: dict[str, list[str]], first: int = 0) -> tuple[Floats, tuple[str, ...]]:
    """A column for each number, and one of zeros and ones for each level of an attribute from the `first` on."""
    blocks: list[Floats] = []
    names: list[str] = []
    for name, column in columns.items():
        if name in NUMERIC:
            blocks.append(_parsed(column)[:, None])
            names.append(name)
        else:
            levels, ranks = _ranked(column)
            blocks.append(np.eye(len(levels))[ranks][:, first:])
            names.extend(f"{name}={level}" for level in levels[first:])
    return np.hstack(blocks), tuple(names)


def _ranks(columns: list[list[str]]) -> Floats:
    numbers = [
        _parsed(column) if name in NUMERIC else _ranked(column)[1].astype(np.float64)
        for name, column in zip(COLUMNS, columns, strict=True)
    ]
    return np.ascontiguousarray(np.column_stack([column / np.linalg.norm(column) for column in numbers]))


def _parsed(column: list[str]) -> Floats:
    return np.fromiter(map(float, column), np.float64, len(column))  # an array of texts would be made first


def _ranked(column: list[str]) -> tuple[list[str], Integers]:
    levels = sorted(set(column))
    rank = {level: k for k, level in enumerate(levels)}
    return levels, np.fromiter(map(rank.__getitem__, column), np.int64, len(column))
