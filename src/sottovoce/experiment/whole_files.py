"""Files that are written whole or not at all, and read with bounds on their size."""

import errno
import io
import json
import math
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import read_bytes, sync_folder, utf8
from sottovoce.core.plain import Json

_LARGEST = 8 * 2**30  # bytes of arrays that are read from one file


class StoreError(check.SottovoceError):
    """Something could not be written or read; what was there before is as it was."""


@contextmanager
def reserved(path: Path, numbered: bool = False) -> Iterator[Path]:
    """Hold a folder's name while a run is under way: made now, and gone again if the run leaves nothing in it.

    An existing folder must be empty; with `numbered`, a taken name gets a number instead, so that runs started at
    the same moment do not meet. To find out here that nothing can be written is better than after an hour.
    """
    with disk(path):
        made = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        stem, number = path.name, 1
        while True:
            try:
                path.mkdir()
                made.insert(0, path)
                break
            except FileExistsError:
                if not numbered:
                    _must_be_free(path)
                    break
                number += 1
                path = path.with_name(f"{stem}-{number}")
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # the first that is not empty ends it
            for folder in made:
                folder.rmdir()
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name `path` when it is complete and never otherwise."""
    with disk(path):
        _must_be_free(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.part"
        folder.mkdir()
        try:
            yield folder
            for inside, _, _ in os.walk(folder):
                sync_folder(Path(inside))
            os.rename(folder, path)  # onto an empty folder at most: another run's files cannot be lost
            sync_folder(path.parent)
        except BaseException:
            _discard(folder)
            raise


def _must_be_free(path: Path) -> None:
    free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    check.require(free, str(path), "exists and is not an empty folder; choose another one")


def write_folder(path: Path, contents: Mapping[str, bytes]) -> None:
    """A new folder with these files: all of it, or nothing."""
    with new_folder(path) as folder:
        write_files(folder, contents)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Files inside a `new_folder`."""
    for name, content in contents.items():
        write_content(folder / name, content)


def replace_file(path: Path, content: bytes) -> None:
    """A file in an existing or new folder: all of it, or what was there before."""
    replace_files({path: content})


def replace_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """The same for an .npz file."""
    replace_file(path, npz_bytes(arrays))


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """The same for several files. All are on disk when it returns; before, any of them may be."""
    for path, content in contents.items():
        with disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_content(path, content)
    for folder in {path.parent for path in contents}:
        with disk(folder):
            sync_folder(folder)


def replace_content(path: Path, content: bytes) -> None:
    """Write a file next to `path`, then put it in its place; that is durable once the folder is synced."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        write_content(part, content)
        os.replace(part, path)
    except BaseException:
        _discard(part)
        raise


def write_content(path: Path, content: bytes, mode: int = 0o666) -> None:
    """A new file, on disk when it returns; `mode` says who may read it, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _discard(path: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, check.SottovoceError):
            raise
        full, taken = error.errno in (errno.ENOSPC, errno.EDQUOT), error.errno in (errno.ENOTEMPTY, errno.EEXIST)
        where = "another folder" if full or taken else "a folder you may write to"
        advice = f"free some space, or choose {where}" if full else f"choose {where}"
        what = f"cannot be written ({(error.strerror or str(error)).lower()}); nothing was left half written"
        raise StoreError(f"{path}: {what}. Try: {advice}") from None


# -------------------------------------------------------------------------------------------------- what files contain


def json_bytes(value: Json) -> bytes:
    return (json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def finite(value: object) -> object:
    """Infinite and undefined numbers as null: JSON cannot express them."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def read_json(path: Path) -> Json:
    """The object in a JSON file."""
    try:
        value = json.loads(read_text(path))
    except ValueError as error:
        raise check.InvalidInput(f"{path}: must be JSON ({error})") from None
    check.require(isinstance(value, dict), str(path), "must hold an object")
    return value


def read_text(path: Path) -> str:
    return utf8(str(path), read_bytes(path), "text")


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file. Nothing in it is executed, and no array is larger than the file itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            rule = f"must hold at most {_LARGEST} bytes, not compressed"
            check.require(stored and total <= _LARGEST, str(path), rule)
            arrays = {}
            for member in members:
                with archive.open(member) as file:
                    where = f"{path}, {member.filename}"
                    arrays[member.filename.removesuffix(".npy")] = _read_array(file, member.file_size, where)
            return arrays
    except FileNotFoundError:
        raise check.MissingData(f"{path}: there is no such file") from None
    except check.InvalidInput:
        raise
    except (OSError, ValueError, TypeError, OverflowError, EOFError, zipfile.BadZipFile):
        pass  # what they say may quote the file's content, and would stay in the context of an error raised here
    raise check.InvalidInput(f"{path}: must be a whole .npz file of plain arrays")


def _read_array(file: IO[bytes], size: int, where: str) -> np.ndarray:
    """An array whose header promises as much as the file holds: memory is reserved by what it says."""
    version = np.lib.format.read_magic(file)
    check.require(version in ((1, 0), (2, 0)), where, "must be an array of format 1.0 or 2.0", version)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    check.require(not dtype.hasobject, where, "must be plain numbers or text", str(dtype))
    fills = file.tell() + math.prod(shape) * dtype.itemsize == size
    check.require(fills, where, f"must fill its {size} bytes exactly", shape)
    content = file.read()  # to its end, where its checksum is compared
    return np.ndarray(shape, dtype, content, order="F" if by_columns else "C").copy(order="K")
