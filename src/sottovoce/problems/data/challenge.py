"""How the sets of the feature selection challenge (NIPS 2003) are written: numbers and labels in separate files."""

from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats
from sottovoce.core.files import number_or_nan
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.sources import Rows, Source, lines, parts_of, sign, with_test_part


def load_challenge(source: Source, download: bool) -> Dataset:
    def read(folder: Path) -> list[Rows]:
        train, train_labels, valid, valid_labels = source.files
        return [
            (_read_numbers(folder, train, source.features), _read_labels(folder, train_labels)),
            (_read_numbers(folder, valid, source.features), _read_labels(folder, valid_labels)),
        ]

    return with_test_part(source, parts_of(source, read, download), "raw")


def _read_numbers(folder: Path, file: str, features: int) -> Floats:
    rows: list[Floats] = []
    for number, line in lines(folder, file):
        fields = line.split()
        where = f"{file}, line {number}"
        check.require(len(fields) == features, where, f"must have {features} fields separated by spaces", len(fields))
        rows.append(_numbers(where, fields))
    return np.array(rows).reshape(-1, features)


def _read_labels(folder: Path, file: str) -> Floats:
    return np.array([sign(f"{file}, line {number}", line) for number, line in lines(folder, file)])


def _numbers(where: str, fields: list[str]) -> Floats:
    """The error names the field, not what it holds: the folder may contain other data than it should."""
    numbers = np.array([number_or_nan(text) for text in fields])
    wrong = np.flatnonzero(~np.isfinite(numbers)).tolist()
    check.require(not wrong, where, f"must hold finite numbers, and field {1 + min(wrong, default=0)} is none")
    return numbers
