"""Where a client keeps what it must remember between two messages: a few small files, each written whole."""

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sottovoce.core import check
from sottovoce.experiment import whole_files

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def start_of_machine() -> str:
    """Another one whenever the machine is started; the same one always where the system does not tell (not Linux)."""
    with suppress(OSError):
        return hashlib.sha256(_BOOT.read_bytes()).hexdigest()[:32]
    return "unknown"


class Store(Protocol):
    """Named bytes. What `write` was given is on disk when it returns: all of it, or what was there before."""

    def names(self) -> Iterable[str]: ...
    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, content: bytes) -> None: ...
    def write_all(self, contents: Mapping[str, bytes]) -> None: ...
    def delete(self, name: str) -> None: ...


class Folder:
    """A store on disk: a folder with nothing else in it.

    What was written before the machine was last started counts as lost, and is deleted: a disk that was put back to an
    earlier state is one that was started since. (Only a machine that goes on from a copy of its memory is not told.)
    """

    _NAME = re.compile(r"[a-z0-9.-]*[a-z0-9]")

    def __init__(self, path: Path) -> None:
        self._path = path / start_of_machine()
        with whole_files.disk(path):
            for old in path.iterdir() if path.exists() else ():
                if old != self._path:
                    shutil.rmtree(old)

    def names(self) -> list[str]:
        """All files, also those that a crash left half written: they too hold secrets, and have to be deleted."""
        return [file.name for file in self._path.iterdir()] if self._path.exists() else []

    def read(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return self._file(name).read_bytes()
        return None

    def write(self, name: str, content: bytes) -> None:
        whole_files.replace_file(self._file(name), content)

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        whole_files.replace_files({self._file(name): content for name, content in contents.items()})

    def delete(self, name: str) -> None:
        """Not synced: after a loss of power the file may be back, and is deleted when the store is next opened."""
        with whole_files.disk(self._path):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        check.require(self._NAME.fullmatch(name) is not None, str(self._path), "no such name", name)
        return self._path / name
