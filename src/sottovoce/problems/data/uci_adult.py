"""Adult (census income) of the UCI Machine Learning Repository. It comes with the package."""

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Integers
from sottovoce.core.clipping import shorten_rows
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.encoded import encoded
from sottovoce.problems.data.sources import Part, Source, bundled

ENCODINGS = ("schema", "one-hot", "ranks", "classes")
SOURCE = Source(
    "adult",
    "Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20, CC BY 4.0",
    "comes with the package",
    ("adult.data", "adult.test", "adult.names"),
    14,
    (Part(45222, 11208, 0),),
    {
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        "adult.names": "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a",
    },
)
COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
)
NUMERIC = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
_NOTES = {
    "one-hot": (
        "The preparation of DP-ADMM: rows with '?' dropped; six numeric columns and every level of eight attributes as "
        "a 0/1 column; columns divided by their maximum; rows divided by max(1, l2 norm). Each row has eight ones "
        "before that, so all rows end with norm 1. The maxima come from all rows, test rows too, outside any privacy "
        "budget; the bound on the rows holds whatever they are. adult.data first, then adult.test. Labels -1, +1; no "
        "intercept."
    ),
    "ranks": (
        "The preparation of FedEPM: rows with '?' dropped; eight attributes replaced by the rank of their level in "
        "ASCII order, from 0, among the levels that remain; columns divided by their Euclidean length over all rows, "
        "outside any privacy budget. adult.test first, then adult.data. Labels -1, +1 (the paper writes the same loss "
        "with 0, 1); no intercept."
    ),
    "classes": (
        "As one-hot, with class numbers 0, 1 for a softmax of two classes. FedSPD-DP has 81 columns, fills '?' with "
        "the most frequent value and keeps the official split, but does not give its encoding: this stands in for it."
    ),
    "schema": (
        "By the public schema that comes with the package (Schema.bundled('adult')): ranges and levels from the "
        "documentation, no number read off any row. Rows with '?' dropped; every row is divided by its own length and "
        "ends with norm 1, the bias included. adult.data first, then adult.test. Labels -1, +1."
    ),
}


def adult(encoding: str = "schema") -> Dataset:
    """Adult (census income), 45 222 complete rows: does a person earn more than 50 000 dollars a year?

    `encoding` is "schema" (148 columns, by a public schema), or the preparation of a paper, which reads numbers off
    the rows: "one-hot" (104 columns, DP-ADMM), "ranks" (14 columns, FedEPM) or "classes" (104 columns and labels 0, 1,
    FedSPD-DP). The `notes` of the result say what was done.
    """
    check.one_of("adult", "encoding", encoding, ENCODINGS)
    files = ("adult.test", "adult.data") if encoding == "ranks" else ("adult.data", "adult.test")
    *columns, incomes = zip(*(row for file in files for row in complete_rows(file)), strict=True)
    rich = np.array([income.startswith(">") for income in incomes])
    schema = None
    if encoding == "ranks":
        X, names = _ranks(columns), COLUMNS
    elif encoding == "schema":
        X, names, schema = encoded("adult", dict(zip(COLUMNS, columns, strict=True)))
    else:
        X, names = _one_hot(columns)
    return Dataset(
        name="adult",
        X=X,
        y=rich.astype(np.int64) if encoding == "classes" else np.where(rich, 1.0, -1.0),
        feature_names=names,
        source=SOURCE.citation,
        notes=_NOTES[encoding],
        row_bound=None if encoding == "ranks" else 1.0,
        schema=schema,
    )


def complete_rows(file: str) -> list[list[str]]:
    """Rows without '?'. The digest of the file is known, so its lines need no further check."""
    lines = bundled(SOURCE, file).split("\n")
    return [line.split(", ") for line in lines if line and line[0] != "|" and "?" not in line]


def _one_hot(columns: list[tuple[str, ...]]) -> tuple[Floats, tuple[str, ...]]:
    blocks: list[Floats] = []
    names: list[str] = []
    for name, column in zip(COLUMNS, columns, strict=True):
        if name in NUMERIC:
            numbers = np.array(column, dtype=np.float64)
            blocks.append((numbers / numbers.max())[:, None])
            names.append(name)
        else:
            levels, ranks = _ranked(column)
            blocks.append(np.eye(len(levels))[ranks])
            names.extend(f"{name}={level}" for level in levels)
    return np.ascontiguousarray(shorten_rows(np.hstack(blocks), 1.0)), tuple(names)


def _ranks(columns: list[tuple[str, ...]]) -> Floats:
    numbers = [
        np.array(column, dtype=np.float64) if name in NUMERIC else _ranked(column)[1].astype(np.float64)
        for name, column in zip(COLUMNS, columns, strict=True)
    ]
    return np.ascontiguousarray(np.column_stack([column / np.linalg.norm(column) for column in numbers]))


def _ranked(column: tuple[str, ...]) -> tuple[list[str], Integers]:
    levels = sorted(set(column))
    rank = {level: k for k, level in enumerate(levels)}
    return levels, np.array([rank[level] for level in column])
