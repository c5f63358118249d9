"""A client's own folder: closed to others, one answer in it at a time, its log, and what it remembers."""

import fcntl
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.round import State
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Refused
from sottovoce.experiment import whole_files

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
                path.replace(path.with_suffix(".log.1"))
            with path.open("a", encoding="utf-8") as file:
                for line in lines:
                    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                    file.write(f"{at} {wire.printable(line, _LONGEST_LINE)}\n")


KEPT = 2  # answers that are kept, the last ones
SPLIT = "held-out"  # the file with the digest of the key by which an experiment held out records


class Memory:
    """What a client remembers of one experiment: a file of question, answer and state for the last rounds."""

    def __init__(self, folder: Path, identity: str, known: int | None = None) -> None:
        """`known`: the round that was last read or written by this process, whose file need not be read again."""
        self._folder, self._identity = folder, identity
        self._made: list[Path] = []
        self.new = not folder.exists()
        self._rounds = {int(file.stem) for file in folder.glob("*.npz") if file.stem.isdigit()}
        self.last = max(self._rounds, default=None)  # the round of its last answer
        if self.last not in (None, known) and self.state()["identity"].item() != identity:
            raise Refused(wire.ANSWERED, "this experiment began with other settings; start another one")

    def state(self) -> dict[str, np.ndarray]:
        """What was kept after its last answer."""
        assert self.last is not None
        return self._read(self.last)

    def answer(self, ask: wire.Ask) -> wire.Packed | None:
        """The answer that the same question got before; None if its round is still to come."""
        if ask.k in self._rounds:
            stored = self._read(ask.k)
            if stored["question"].item() != ask.digest():
                raise Refused(wire.ANSWERED, f"round {ask.k} was answered before, about something else")
            up = codec.under("up.", stored)
            return {name: (array.shape, array.astype("<f8").tobytes()) for name, array in up.items()}
        if self.last is not None and ask.k < self.last:
            raise Refused(wire.LATE, f"round {ask.k} is over for this client, which answered round {self.last}")
        return None

    def beside(self, what: str) -> "Memory":
        """Where a party's model for prediction, or counts of held-out records, are kept: once for an experiment."""
        return Memory(self._folder / what, self._identity)

    def begin(self, split: str = "") -> None:
        """Make the folder before the first charge, so that a lost first answer is not taken for a lost memory.

        `split`: the digest of the key by which records are held out, if any are. It is kept there too.
        """
        self._made = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        self._folder.mkdir(parents=True, exist_ok=True)
        if split and not (self._folder / SPLIT).exists():
            whole_files.replace_file(self._folder / SPLIT, split.encode())
            self._made.insert(0, self._folder / SPLIT)

    def forget(self) -> None:
        """Remove what `begin` made: the question was refused, and nothing was charged."""
        for made in self._made:
            made.rmdir() if made.is_dir() else made.unlink()

    def keep(self, ask: wire.Ask, up: State | None, states: dict[str, np.ndarray]) -> None:
        """Answer and state, as one file: both or neither. Answers of finished rounds are removed.

        A server asks about a round once it has those before it on its own disk. It may have lost the last of them.
        None: an answer that must be on no disk, since it leaves under masks (`summing.py`).
        """
        arrays = {} if up is None else {f"up.{name}": array for name, array in codec.to_arrays(up).items()}
        arrays |= states | {"identity": np.asarray(self._identity), "question": np.asarray(ask.digest())}
        whole_files.replace_arrays(self._path(ask.k), arrays)
        for finished in sorted(self._rounds | {ask.k})[:-KEPT]:
            with suppress(OSError):
                self._path(finished).unlink(missing_ok=True)

    def _read(self, k: int) -> dict[str, np.ndarray]:
        return whole_files.read_arrays(self._path(k))

    def _path(self, k: int) -> Path:
        return self._folder / f"{k:06d}.npz"
