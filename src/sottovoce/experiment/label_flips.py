"""Labels that are randomised once for life, wherever their holder is: in a simulation with ledgers, or at a node."""

import fcntl
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sottovoce.core.check import SottovoceError
from sottovoce.experiment import whole_files
from sottovoce.ledger.budget import Budget, LedgerError
from sottovoce.ledger.chain import Entry
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy.labels import label_event, randomised_labels
from sottovoce.privacy.noise_key import NoiseKey


class OtherFlips(SottovoceError):
    """These labels were randomised before, for other rows or with another label_epsilon."""


@dataclass(frozen=True)
class LabelFlips:
    """Which labels are flipped: flips drawn anew for another run would average out, the same flips do not.

    They are kept in a file (they say nothing of the labels) and charged to a ledger of the labels alone. File first,
    then the charge, then the use: killed in between, the same flips are found and charged the next time. A lock keeps
    two processes from drawing at the same time.

    Parameters
    ----------
    file, ledger
        Where flips and charge are kept.
    owner
        Of the ledger.
    of
        Names the samples in their order.
    """

    file: Path
    ledger: Path
    owner: str
    of: str

    def drawn(self, y: np.ndarray, epsilon: float, key: NoiseKey | None) -> tuple[np.ndarray, list[Entry]]:
        """The flips, -1 or +1 for each label, and their ledger's rows. Drawn if they never were.

        `key`: of seeded flips; None for flips of the operating system's generator.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._drawn(y, epsilon, key)

    def _drawn(self, y: np.ndarray, epsilon: float, key: NoiseKey | None) -> tuple[np.ndarray, list[Entry]]:
        identity = f"{epsilon!r} {self.of}"
        kept = whole_files.read_arrays(self.file) if self.file.exists() else None
        if kept is not None and kept["of"].item() != identity:
            raise OtherFlips(
                f"{self.owner}: the labels were randomised before, for other rows or with another label_epsilon than "
                f"{epsilon:g}. Ask with that one: flips drawn anew would give away more"
            )
        with open_ledger(self.ledger, self.owner, self.of, Budget(epsilon, 0.0)) as ledger:
            charged = bool(ledger.spent())
            if kept is None and charged:
                raise LedgerError(
                    f"{self.file}: is gone, and labels were randomised by it. Put it back. If it is lost, move "
                    f"{ledger.path.name} and {ledger.path.name}.head away too: the labels are then randomised once "
                    f"more, and both draws together give away twice label_epsilon = {epsilon:g}"
                )
            if kept is None:
                kept = {"flips": y * randomised_labels(y, epsilon, key), "of": np.asarray(identity)}
                whole_files.replace_arrays(self.file, kept)
            if not charged:
                purpose = "labels, randomised once for life"
                ledger.charge(label_event(epsilon), run="labels", round=0, question=0, purpose=purpose)
            return kept["flips"], ledger.rows()


def open_ledger(path: Path, owner: str, dataset: str, budget: Budget) -> FileLedger:
    """The ledger there, which must be this owner's of this data set; a new one if there never was one."""
    if path.exists() or path.with_name(f"{path.name}.head").exists():
        return FileLedger.open(path, owner=owner, dataset=dataset)
    return FileLedger.create(path, owner, dataset, budget)
