"""Files of data sets: those that come with the package, and those in the user's folder."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from sottovoce.core import check
from sottovoce.problems.data.dataset import DatasetInfo, Source

FOLDER_VARIABLE = "SOTTOVOCE_DATA"
_LARGEST_FILE = 64 * 2**20  # bytes after decompression; the largest known file has 4 MB


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
    folder = folder_of(source)
    advice = f"{_how_to_get(source)}, or let load({source.name!r}) ask OpenML"
    return DatasetInfo(
        name=source.name,
        status="bundled" if source.bundled else "missing" if folder is None else "found",
        where="in the package" if source.bundled else "" if folder is None else str(folder),
        rows=source.parts[0].rows,
        test_rows=sum(part.rows for part in source.parts[1:]),
        features=source.features,
        task="binary classification",
        how_to_get=source.origin if source.bundled else advice,
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
