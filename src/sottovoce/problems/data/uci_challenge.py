"""Madelon and Arcene of the feature selection challenge (NIPS 2003), UCI Machine Learning Repository.

Numbers and labels are in separate files.
"""

from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats
from sottovoce.core.files import number_or_nan
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.sources import Rows, Source, lines, parts_of, sign, with_test_part

MADELON, ARCENE = Source.named("madelon"), Source.named("arcene")


def madelon(download: bool = True) -> Dataset:
    """Madelon: artificial, 500 features of which 20 carry signal; 2000 rows and 600 to test (the validation part)."""
    return _load(MADELON, download)


def arcene(download: bool = True) -> Dataset:
    """Arcene: mass spectra, cancer or not, 10 000 features; 100 rows and 100 to test (the validation part)."""
    return _load(ARCENE, download)


def _load(source: Source, download: bool) -> Dataset:
    def read(folder: Path) -> list[Rows]:
        pairs = zip(source.files[::2], source.files[1::2], strict=True)
        return [(_read_numbers(folder, rows, source.features), _read_labels(folder, y)) for rows, y in pairs]

    return with_test_part(source, parts_of(source, read, download), "raw")


def _read_numbers(folder: Path, file: str, features: int) -> Floats:
    rows: list[Floats] = []
    for number, line in lines(folder, file):
        fields = line.split()
        where = f"{file}, line {number}"
        check.require(len(fields) == features, where, f"must have {features} fields separated by spaces", len(fields))
        numbers = np.array([number_or_nan(text) for text in fields])
        wrong = np.flatnonzero(~np.isfinite(numbers)).tolist()
        # The error names the field, not what it holds: the folder may contain other data than it should.
        check.require(not wrong, where, f"must hold finite numbers, and field {1 + min(wrong, default=0)} is none")
        rows.append(numbers)
    return np.array(rows).reshape(-1, features)


def _read_labels(folder: Path, file: str) -> Floats:
    return np.array([sign(f"{file}, line {number}", line) for number, line in lines(folder, file)])
