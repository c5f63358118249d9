"""A client's own folder: closed to others, one answer in it at a time, and its log."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Refused

_PATIENCE = 60.0  # seconds to wait for another answer of this client to be finished
_LARGEST_LOG, _LONGEST_LINE = 2**24, 2000


class Home:
    """Where a client keeps its ledger, its answers and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        """Make it on first use, and see it closed to others: states, flips and the log in it are no noisy answers."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        rule, hint = "nobody but its owner may look into it", f"Close it with: chmod 700 {self.folder}"
        check.require(mode & 0o077 == 0, str(self.folder), rule, f"mode {mode:o}", hint)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One answer at a time; the lock falls with the process that holds it."""
        with (self.folder / "lock").open("w") as file:
            until = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise Refused(wire.BUSY, "it is busy with another answer") from None
                    time.sleep(0.05)
            yield

    def note(self, *lines: str) -> None:
        """Write to the owner's log, without control characters; a log that cannot be written stops nothing."""
        with suppress(OSError):
            path = self.folder / "node.log"
            if path.exists() and path.stat().st_size > _LARGEST_LOG:
                os.replace(path, path.with_suffix(".log.1"))
            with path.open("a", encoding="utf-8") as file:
                for line in lines:
                    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    file.write(f"{at} {wire.printable(line, _LONGEST_LINE)}\n")
