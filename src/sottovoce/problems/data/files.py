"""Real data sets under one roof: the same name is always the same numbers.

Adult and heart disease travel with the package. The others are read from the folder named by the environment variable
SOTTOVOCE_DATA, else fetched from OpenML. What was read is checked against the published digests, counts and sums, so
that a cut or altered copy is refused and not trained on.
"""

import gzip
import hashlib
import inspect
import math
import os
import socket
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.core import check

FOLDER_VARIABLE = "SOTTOVOCE_DATA"
ENCODINGS = ("one-hot", "ranks", "classes")
_LARGEST_FILE = 64 * 2**20  # bytes after decompression; the largest known file has 4 MB
_NETWORK_PATIENCE = 30.0  # seconds without an answer

Matrix = Any  # float64 ndarray, 2-D and C-contiguous; a scipy.sparse CSR array when asked for


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows, labels and where they come from.

    `y` holds -1.0 / +1.0, or whole class numbers 0, 1 where `notes` says so. `test` is the official test part (X, y) of
    sets that have one, `groups` the natural owner of each row, and `row_bound` an l2 norm that no row exceeds, whatever
    the data: a public constant, to be relied on for sensitivity.
    """

    name: str
    X: Matrix = field(repr=False)
    y: np.ndarray = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    source: str
    notes: str
    test: tuple[Matrix, np.ndarray] | None = field(default=None, repr=False)
    groups: np.ndarray | None = field(default=None, repr=False)
    row_bound: float | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """What can be said of a data set without reading it. `status` is "bundled", "found" or "missing"."""

    name: str
    status: str
    where: str
    rows: int
    test_rows: int
    features: int
    task: str
    how_to_get: str


@dataclass(frozen=True)
class _Part:
    """Published facts about the training or the test part, by which a copy is recognised."""

    rows: int
    positives: int
    total: int  # sum of all entries of X


@dataclass(frozen=True)
class _Source:
    citation: str
    origin: str
    files: tuple[str, ...]
    features: int
    parts: tuple[_Part, ...]
    bundled: bool = False  # else OpenML has it under our name, as version 1, training rows first


_SOURCES = {
    "adult": _Source(
        "Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, doi:10.24432/C5XW20, CC BY 4.0",
        "comes with the package",
        ("adult.data", "adult.test", "adult.names"),
        104,
        (_Part(45222, 11208, 0),),
        bundled=True,
    ),
    "a9a": _Source(
        "Platt (1998), a9a, LIBSVM Data; no licence stated, prepared from UCI Adult (doi:10.24432/C5XW20, CC BY 4.0)",
        "LIBSVM Data, binary classification, a9a",
        ("a9a", "a9a.t"),
        123,
        (_Part(32561, 7841, 451592), _Part(16281, 3846, 225731)),
    ),
    "heart": _Source(
        "Janosi, Steinbrunn, Pfisterer and Detrano (1989), Heart Disease, UCI Machine Learning Repository, "
        "doi:10.24432/C52P4X, CC BY 4.0",
        "comes with the package",
        tuple(f"heart/processed.{hospital}.data" for hospital in ("cleveland", "hungarian", "switzerland", "va")),
        10,
        (_Part(740, 383, 0),),
        bundled=True,
    ),
    "madelon": _Source(
        "Guyon (2004), Madelon, UCI Machine Learning Repository, doi:10.24432/C5602H, CC BY 4.0",
        "UCI Madelon, doi:10.24432/C5602H",
        tuple(f"extra/madelon_{part}" for part in ("train.data", "train.labels", "valid.data", "valid.labels")),
        500,
        (_Part(2000, 1000, 488083511), _Part(600, 300, 146395833)),
    ),
    "arcene": _Source(
        "Guyon, Gunn, Ben-Hur and Dror (2004), Arcene, UCI Machine Learning Repository, doi:10.24432/C58P55, CC BY 4.0",
        "UCI Arcene, doi:10.24432/C58P55",
        tuple(f"extra/arcene_{part}" for part in ("train.data", "train.labels", "valid.data", "valid.labels")),
        10000,
        (_Part(100, 44, 70726744), _Part(100, 44, 71410108)),
    ),
}


# ------------------------------------------------------------------------------------------------------ the front door


def load(name: str, **options: Any) -> Dataset:
    """The data set called `name`; options are those of the function of that name in this module.

    Examples
    --------
    >>> from sottovoce.problems import data
    >>> heart = data.load("heart")
    >>> heart.X.shape, sorted(set(heart.groups.tolist()))
    ((740, 10), ['cleveland', 'hungarian', 'switzerland', 'va'])
    """
    loader = _LOADERS[check.one_of("datasets", "data set", name, _LOADERS)]
    known = list(inspect.signature(loader).parameters)
    for option in options:
        check.require(bool(known), name, f"takes no option {option!r}")
        check.one_of(name, "option", option, known)
    return loader(**options)


def available() -> list[DatasetInfo]:
    """Every data set this library knows and whether it is here; looks for files, reads none."""
    return [_info(name, source) for name, source in _SOURCES.items()]


def split(X: Matrix, y: np.ndarray, test: int | float, seed: int) -> tuple[Matrix, np.ndarray, Matrix, np.ndarray]:
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


def split_rows(rows: int, test: int | float, seed: int) -> tuple[np.ndarray, np.ndarray]:
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


# --------------------------------------------------------------------------------------------------------------- Adult

_ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
)
_ADULT_NUMERIC = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
_SHA256 = {  # of bundled files, uncompressed
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "adult.names": "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a",
    "heart/processed.cleveland.data": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "heart/processed.hungarian.data": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "heart/processed.switzerland.data": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "heart/processed.va.data": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
_ADULT_NOTES = {
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
}


def adult(encoding: str = "one-hot") -> Dataset:
    """Adult (census income), 45 222 complete rows: does a person earn more than 50 000 dollars a year?

    `encoding` is "one-hot" (104 columns, DP-ADMM), "ranks" (14 columns, FedEPM) or "classes" (104 columns and labels 0,
    1, FedSPD-DP); the `notes` of the result say exactly what was done.
    """
    check.one_of("adult", "encoding", encoding, ENCODINGS)
    files = ("adult.test", "adult.data") if encoding == "ranks" else ("adult.data", "adult.test")
    *columns, incomes = zip(*(row for file in files for row in _adult_rows(file)), strict=True)
    rich = np.array([income.startswith(">") for income in incomes])
    if encoding == "ranks":
        X, names = _adult_ranks(columns), tuple(_ADULT_COLUMNS)
    else:
        X, names = _adult_one_hot(columns)
    return Dataset(
        name="adult",
        X=X,
        y=rich.astype(np.int64) if encoding == "classes" else np.where(rich, 1.0, -1.0),
        feature_names=names,
        source=_SOURCES["adult"].citation,
        notes=_ADULT_NOTES[encoding],
        row_bound=None if encoding == "ranks" else 1.0,
    )


def _adult_rows(file: str) -> list[list[str]]:
    """Complete rows. The digest of the file is known, so its lines need no further check."""
    lines = _bundled(file).split("\n")
    return [line.split(", ") for line in lines if line and line[0] != "|" and "?" not in line]


def _adult_one_hot(columns: list[tuple[str, ...]]) -> tuple[np.ndarray, tuple[str, ...]]:
    blocks, names = [], []
    for name, column in zip(_ADULT_COLUMNS, columns, strict=True):
        if name in _ADULT_NUMERIC:
            numbers = np.array(column, dtype=np.float64)
            blocks.append((numbers / numbers.max())[:, None])
            names.append(name)
        else:
            levels, ranks = _ranked(column)
            blocks.append(np.eye(len(levels))[ranks])
            names.extend(f"{name}={level}" for level in levels)
    X = np.hstack(blocks)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    slack = 1 + 8 * np.finfo(np.float64).eps  # rounding must not lift a row above the bound we promise
    return np.ascontiguousarray(X / np.maximum(1.0, lengths * slack)), tuple(names)


def _adult_ranks(columns: list[tuple[str, ...]]) -> np.ndarray:
    numbers = [
        np.array(column, dtype=np.float64) if name in _ADULT_NUMERIC else _ranked(column)[1].astype(np.float64)
        for name, column in zip(_ADULT_COLUMNS, columns, strict=True)
    ]
    return np.ascontiguousarray(np.column_stack([column / np.linalg.norm(column) for column in numbers]))


def _ranked(column: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    levels = sorted(set(column))
    rank = {level: k for k, level in enumerate(levels)}
    return levels, np.array([rank[level] for level in column])


# ------------------------------------------------------------------------------------------------------- heart disease

_HEART_COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
_HEART_KEPT = 10  # slope, ca and thal are mostly missing outside Cleveland


def heart() -> Dataset:
    """Heart disease in four hospitals, 740 complete rows of 10 attributes; `groups` names the hospital."""
    rows, labels, hospitals = [], [], []
    for file in _SOURCES["heart"].files:
        for line in _bundled(file).split():  # its digest is known, as Adult's is
            fields = line.split(",")
            kept = fields[:_HEART_KEPT]
            if "?" not in kept:
                rows.append([float(value) for value in kept])
                labels.append(1.0 if int(fields[-1]) > 0 else -1.0)
                hospitals.append(file.split(".")[1])
    return Dataset(
        name="heart",
        X=np.array(rows),
        y=np.array(labels),
        feature_names=tuple(_HEART_COLUMNS[:_HEART_KEPT]),
        source=_SOURCES["heart"].citation,
        notes=(
            "slope, ca and thal dropped, then rows with '?'. Labels +1 where num > 0, else -1. Raw units, and codes of "
            "cp and restecg as they are: scale by public ranges before training. Cholesterol 0 means unknown (all of "
            "Switzerland)."
        ),
        groups=np.array(hospitals),
    )


# ----------------------------------------------------------------------------------------- the sets that do not travel


_A9A_MOST_ONES = 14  # one feature at most for each attribute of Adult


def a9a(dense: bool = True, download: bool = True) -> Dataset:
    """a9a: Adult in 123 binary features, 32 561 rows and 16 281 to test; `dense=False` gives CSR arrays."""

    def read(folder: Path) -> list[tuple[Matrix, np.ndarray]]:
        return [_read_indicators(folder, file, _SOURCES["a9a"].features) for file in _SOURCES["a9a"].files]

    parts = _parts("a9a", read, download)
    for X, _ in parts:  # the row bound rests on it
        indicators = bool(((X == 0) | (X == 1)).all() and X.sum(axis=1).max() <= _A9A_MOST_ONES)
        check.require(indicators, "a9a", f"rows must hold zeros and at most {_A9A_MOST_ONES} ones")
    if not dense:
        from scipy.sparse import csr_array

        parts = [(csr_array(X), y) for X, y in parts]
    notes = "Labels -1, +1. Rows are those of adult.data and adult.test, in order, '?' included (as no feature)."
    return _with_test_part("a9a", parts, notes, row_bound=math.sqrt(_A9A_MOST_ONES))


def madelon(download: bool = True) -> Dataset:
    """Madelon: artificial, 500 features of which 20 carry signal; 2000 rows and 600 to test (the validation part)."""
    return _feature_selection_challenge("madelon", download)


def arcene(download: bool = True) -> Dataset:
    """Arcene: mass spectra, cancer or not, 10 000 features; 100 rows and 100 to test (the validation part)."""
    return _feature_selection_challenge("arcene", download)


def _feature_selection_challenge(name: str, download: bool) -> Dataset:
    source = _SOURCES[name]

    def read(folder: Path) -> list[tuple[Matrix, np.ndarray]]:
        train, train_labels, valid, valid_labels = source.files
        return [
            (_read_numbers(folder, train, source.features), _read_labels(folder, train_labels)),
            (_read_numbers(folder, valid, source.features), _read_labels(folder, valid_labels)),
        ]

    notes = "Labels -1, +1. Raw whole numbers: scale before training. The test part is the challenge's validation part."
    return _with_test_part(name, _parts(name, read, download), notes)


def _with_test_part(name: str, parts: list, notes: str, row_bound: float | None = None) -> Dataset:
    (X, y), test = parts
    names = tuple(f"f{k}" for k in range(1, X.shape[1] + 1))
    return Dataset(name, X, y, names, _SOURCES[name].citation, notes, test=test, row_bound=row_bound)


def _parts(name: str, read: Any, download: bool) -> list[tuple[Matrix, np.ndarray]]:
    """Training and test part from the folder, else from OpenML, recognised by their published facts."""
    folder = _folder(name)
    if folder is not None:
        parts = read(folder)
        _recognise(name, parts)
        return parts
    if not download:
        raise _missing(name)
    try:
        parts = _from_openml(name)
        _recognise(name, parts)
    except check.SottovoceError as error:
        raise _missing(name, f"the copy on OpenML is another one: {error}") from None
    except Exception as error:  # whatever goes wrong between here and OpenML, the user needs the same advice
        raise _missing(name, f"OpenML (name {name}, version 1) gave no answer: {type(error).__name__}") from error
    return parts


def _recognise(name: str, parts: list[tuple[Matrix, np.ndarray]]) -> None:
    for which, (X, y), part in zip(("training", "test"), parts, _SOURCES[name].parts, strict=True):
        for what, got, expected in (
            ("rows", X.shape[0], part.rows),
            ("labels", len(y), part.rows),
            ("positive labels", int((y > 0).sum()), part.positives),
            ("as the sum of all entries", float(X.sum()), part.total),
        ):
            rule = f"the {which} part must have {expected} {what}"
            if what == "rows":
                check.require(got == expected, name, rule, got)
            check.require(got == expected, name, f"{rule}, and has not")  # not what it has: it may be anything's rows


# --------------------------------------------------------------------------------------------------- files and network


def _read_numbers(folder: Path, file: str, features: int) -> np.ndarray:
    rows = []
    for number, line in _lines(folder, file):
        fields = line.split()
        where = f"{file}, line {number}"
        check.require(len(fields) == features, where, f"must have {features} fields separated by spaces", len(fields))
        rows.append(np.array(_numbers(where, fields)))
    return np.array(rows).reshape(-1, features)


def _read_labels(folder: Path, file: str) -> np.ndarray:
    return np.array([_sign(f"{file}, line {number}", line) for number, line in _lines(folder, file)])


def _read_indicators(folder: Path, file: str, features: int) -> tuple[np.ndarray, np.ndarray]:
    """An svmlight file whose stored values are all 1."""
    labels, columns, lengths = [], [], []
    for number, line in _lines(folder, file):
        where = f"{file}, line {number}"
        label, *pairs = line.split()
        labels.append(_sign(where, label))
        try:
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


def _sign(where: str, label: str) -> float:
    check.require(label in ("1", "+1", "-1"), where, "label must be -1 or +1")
    return float(label)


def _numbers(where: str, fields: list[str]) -> list[float]:
    """Which field is wrong is told, not what stands there: the folder may hold other data than it should."""
    numbers = []
    for place, text in enumerate(fields, start=1):
        try:
            numbers.append(float(text))
        except ValueError:
            numbers.append(math.nan)
        check.require(math.isfinite(numbers[-1]), where, f"must hold finite numbers, and field {place} is none")
    return numbers


def _lines(folder: Path, file: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    path = _path(folder, file)
    if path is None:
        raise check.MissingData(f"{file} is no longer in the folder named by {FOLDER_VARIABLE}")
    text = _text(file, path, compressed=path.name.endswith(".gz"))
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip():
            yield number, stripped


def _bundled(file: str) -> str:
    resource = resources.files("sottovoce.problems") / "data" / f"{file}.gz"
    if not resource.is_file():
        raise check.MissingData(f"{file}: the file that comes with the package is missing; install sottovoce again")
    text = _text(file, resource, compressed=True)
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    way_out = "The file is damaged: install sottovoce again"
    check.require(digest == _SHA256[file], file, f"SHA-256 must be {_SHA256[file]}", digest, way_out)
    return text


def _text(file: str, path: Traversable, compressed: bool) -> str:
    try:
        with path.open("rb") as raw:
            content = (gzip.GzipFile(fileobj=raw) if compressed else raw).read(_LARGEST_FILE + 1)
        limit = _LARGEST_FILE // 2**20
        check.require(len(content) <= _LARGEST_FILE, file, f"must have at most {limit} MiB after decompression")
        return content.decode("ascii")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise check.InvalidInput(f"{file}: must be a whole gzip file; fetch it again") from None
    except OSError as error:  # BadGzipFile is one too, and was caught above
        raise check.MissingData(f"{file}: cannot be read ({type(error).__name__})") from error
    except UnicodeDecodeError as error:
        raise check.InvalidInput(f"{file}: must be plain ASCII text, and byte {error.start} is not") from None


def _from_openml(name: str) -> list[tuple[Matrix, np.ndarray]]:
    from sklearn.datasets import fetch_openml

    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(patience or _NETWORK_PATIENCE)  # else a silent firewall would hold us for minutes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its retries; a failure is reported below in our own words
            answer: Any = fetch_openml(
                name, version=1, as_frame=False, return_X_y=True, parser="liac-arff", n_retries=1, delay=0.5
            )
    finally:
        socket.setdefaulttimeout(patience)
    X, target = answer
    if not isinstance(X, np.ndarray):
        X = X.toarray()
    codes = np.asarray(target, dtype=np.float64)  # -1, 1 or, after OpenML's renaming, 1, 2
    y = np.where(codes == codes.max(), 1.0, -1.0)
    source = _SOURCES[name]
    check.require(X.shape[1] == source.features, name, f"must have {source.features} features", X.shape[1])
    X, first = np.ascontiguousarray(X, dtype=np.float64), source.parts[0].rows
    return [(X[:first], y[:first]), (X[first:], y[first:])]


def _folder(name: str) -> Path | None:
    """The folder named by the environment if it holds every file of `name`."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    folder = Path(named).expanduser()
    return folder if named and all(_path(folder, file) for file in _SOURCES[name].files) else None


def _path(folder: Path, file: str) -> Path | None:
    return next((path for path in (folder / f"{file}.gz", folder / file) if path.is_file()), None)


def _missing(name: str, also: str = "") -> check.MissingData:
    named = os.environ.get(FOLDER_VARIABLE, "")
    folder = f"not all files are in {named}, the folder of {FOLDER_VARIABLE}"
    looked = folder if named else f"{FOLDER_VARIABLE} is not set"
    reason = f"{looked}, and {also}" if also else looked
    return check.MissingData(f"{name}: not found ({reason}). {_how_to_get(name)}")


def _how_to_get(name: str) -> str:
    source = _SOURCES[name]
    files = ", ".join(source.files)
    return f"Put {files} (plain or .gz) from {source.origin} into a folder and set {FOLDER_VARIABLE} to it"


def _info(name: str, source: _Source) -> DatasetInfo:
    folder, bundled = _folder(name), source.bundled
    advice = _how_to_get(name) + f", or let load({name!r}) ask OpenML"
    return DatasetInfo(
        name=name,
        status="bundled" if bundled else "missing" if folder is None else "found",
        where="in the package" if bundled else "" if folder is None else str(folder),
        rows=source.parts[0].rows,
        test_rows=sum(part.rows for part in source.parts[1:]),
        features=source.features,
        task="binary classification",
        how_to_get=source.origin if bundled else advice,
    )


_LOADERS = {"adult": adult, "a9a": a9a, "heart": heart, "madelon": madelon, "arcene": arcene}
