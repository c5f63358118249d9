"""Where data sets come from: the package, the user's folder or OpenML. Every copy is recognised by published facts."""

import gzip
import hashlib
import os
import socket
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Matrix, is_sparse
from sottovoce.core.toml import packaged_toml
from sottovoce.problems.data.dataset import Dataset, DatasetInfo

FOLDER_VARIABLE = "SOTTOVOCE_DATA"
_LARGEST_FILE = 64 * 2**20  # bytes after decompression; the largest known file has 4 MB
_NETWORK_PATIENCE = 30.0  # seconds without an answer

Rows = tuple[Floats, Floats]  # X, y


@dataclass(frozen=True)
class Part:
    """Published facts about the training or the test part, by which a copy is recognised."""

    rows: int
    positives: int
    total: int  # sum of all entries of X


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and how a copy is recognised.

    A set whose files have digests comes with the package. OpenML has the others under our name, as version 1, training
    rows first.
    """

    name: str
    citation: str
    origin: str
    files: tuple[str, ...]
    features: int
    parts: tuple[Part, ...]
    notes: Mapping[str, str]  # by encoding: how the rows were prepared
    sha256: Mapping[str, str] = field(default_factory=dict[str, str])  # of the files, uncompressed

    @classmethod
    def named(cls, name: str) -> "Source":
        """The source that `sources.toml` describes under this name."""
        table = packaged_toml("problems.data", "sources.toml")[name]
        parts, files = (Part(*part) for part in table.pop("parts")), table.pop("files", table.get("sha256", ()))
        return cls(name, files=tuple(files), parts=tuple(parts), **table)

    def dataset(self, X: Matrix, y: AnyArray, feature_names: tuple[str, ...], encoding: str, **more: object) -> Dataset:
        """The data set that was read from it, encoded in this way."""
        return replace(Dataset(self.name, X, y, feature_names, self.citation, self.notes[encoding]), **more)


# ---------------------------------------------------------------------------------------------- training and test part


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


def with_test_part(
    source: Source, parts: Sequence[tuple[Matrix, Floats]], encoding: str, row_bound: float | None = None
) -> Dataset:
    (X, y), test = parts
    names = tuple(f"f{k}" for k in range(1, X.shape[1] + 1))
    return source.dataset(X, y, names, encoding, test=test, row_bound=row_bound)


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
    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(patience or _NETWORK_PATIENCE)  # else a silent firewall would hold us for minutes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about retries; our own error reports a failure
            table, target = import_module("sklearn.datasets").fetch_openml(
                source.name, version=1, as_frame=False, return_X_y=True, parser="liac-arff", n_retries=1, delay=0.5
            )
    finally:
        socket.setdefaulttimeout(patience)
    dense = table.toarray() if is_sparse(table) else table
    codes = np.asarray(target, dtype=np.float64)  # -1, 1 or, after OpenML's renaming, 1, 2
    y = np.where(codes == codes.max(), 1.0, -1.0)
    X, first = np.ascontiguousarray(dense, dtype=np.float64), source.parts[0].rows
    check.require(X.shape[1] == source.features, source.name, f"must have {source.features} features", X.shape[1])
    return [(X[:first], y[:first]), (X[first:], y[first:])]


# --------------------------------------------------------------------------------------------------------------- files


def bundled(source: Source, file: str) -> str:
    """The text of a file that comes with the package."""
    resource = resources.files("sottovoce.problems") / "data" / f"{file}.gz"
    if not resource.is_file():
        raise check.MissingData(f"{file}: the file that comes with the package is missing; install sottovoce again")
    text = _text(file, resource, compressed=True)
    digest, expected = hashlib.sha256(text.encode("ascii")).hexdigest(), source.sha256[file]
    fix = "The file is damaged: install sottovoce again"
    check.require(digest == expected, file, f"SHA-256 must be {expected}", digest, fix)
    return text


def lines(folder: Path, file: str) -> Iterator[tuple[int, str]]:
    """Lines of a file in the user's folder that are not blank, with their numbers."""
    path = _path(folder, file)
    if path is None:
        raise check.MissingData(f"{file} is no longer in the folder named by {FOLDER_VARIABLE}")
    text = _text(file, path, compressed=path.name.endswith(".gz"))
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip():
            yield number, stripped


def sign(where: str, label: str) -> float:
    """A label that is written as -1, 1 or +1."""
    check.require(label in ("1", "+1", "-1"), where, "label must be -1 or +1")
    return float(label)


def folder_of(source: Source) -> Path | None:
    """The folder named by the environment, if it holds every file of this data set."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    folder = Path(named).expanduser()
    return folder if named and all(_path(folder, file) for file in source.files) else None


def missing(source: Source, also: str = "") -> check.MissingData:
    """The error for a data set that is not here: where it was looked for, and how to get it."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    folder = f"not all files are in {named}, the folder of {FOLDER_VARIABLE}"
    looked = folder if named else f"{FOLDER_VARIABLE} is not set"
    reason = f"{looked}, and {also}" if also else looked
    return check.MissingData(f"{source.name}: not found ({reason}). {_how_to_get(source)}")


def info(source: Source) -> DatasetInfo:
    """What can be said about a data set without reading it."""
    folder, in_package = folder_of(source), bool(source.sha256)
    advice = f"{_how_to_get(source)}, or let load({source.name!r}) ask OpenML"
    return DatasetInfo(
        name=source.name,
        status="bundled" if in_package else "missing" if folder is None else "found",
        where="in the package" if in_package else "" if folder is None else str(folder),
        rows=source.parts[0].rows,
        test_rows=sum(part.rows for part in source.parts[1:]),
        features=source.features,
        task="binary classification",
        how_to_get=source.origin if in_package else advice,
    )


def _how_to_get(source: Source) -> str:
    files = ", ".join(source.files)
    return f"Put {files} (plain or .gz) from {source.origin} into a folder and set {FOLDER_VARIABLE} to it"


def _path(folder: Path, file: str) -> Path | None:
    return next((path for path in (folder / f"{file}.gz", folder / file) if path.is_file()), None)


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
