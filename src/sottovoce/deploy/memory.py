"""What a client remembers of an experiment, on its own disk."""

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from sottovoce.core import codec
from sottovoce.core.round import State
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Refused
from sottovoce.experiment import whole_files

KEPT = 2  # answers that are kept, the last ones
SPLIT = "held-out"  # the file with the digest of the key by which an experiment held out records


class Memory:
    """What a client remembers of one experiment: a file of question, answer and state for the last rounds."""

    def __init__(self, folder: Path, identity: str, known: int | None = None) -> None:
        """`known`: the round that was last read or written by this process, whose file need not be read again."""
        self._folder, self._identity = folder, identity
        self._made: list[Path] = []
        self.new = not folder.exists()
        names = [] if self.new else os.listdir(folder)
        rounds = [name.removesuffix(".npz") for name in names if name.endswith(".npz")]
        self._rounds = {int(number) for number in rounds if number.isdigit()}
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
