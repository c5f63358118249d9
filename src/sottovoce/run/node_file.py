"""What a client's owner says in its own file: who it is, where its rows are, and what may be answered about them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.check import SottovoceError
from sottovoce.privacy.events import Event
from sottovoce.privacy.ledger import Budget
from sottovoce.privacy.modes import Proven
from sottovoce.problems.losses import LOSSES
from sottovoce.run import store, wire
from sottovoce.run.csv_rows import label_text, read_csv
from sottovoce.run.experiment import MODES, Task


class Refused(SottovoceError):
    """Why a client does not answer, in words that may leave it."""

    def __init__(self, code: str, why: str) -> None:
        self.code = code
        super().__init__(why)


@dataclass(frozen=True)
class Limits:
    """What its owner lets a client answer, whatever a server asks for.

    Parameters
    ----------
    epsilon, delta
        The most that all answers about these rows may ever give away, over all experiments.
    algorithms, losses
        Names of `sottovoce list`.
    least_clip, least_noise
        The smallest clip norm and the smallest noise multiplier that are accepted.
    modes
        "proven"; whoever adds "published" or "none" lets data leave with no guarantee.
    relations
        For what neighbours the budget is counted: "replace-one", "add-remove". A ledger counts for one of them.
    seeded
        Whether noise that the server can predict is accepted: for tests, where nothing has to be protected.
    message_bytes
        The largest broadcast that is read.
    """

    epsilon: float
    delta: float
    algorithms: tuple[str, ...]
    losses: tuple[str, ...]
    least_clip: float = 0.0
    least_noise: float = 0.0
    modes: tuple[str, ...] = ("proven",)
    relations: tuple[str, ...] = ("replace-one",)
    seeded: bool = False
    message_bytes: int = 2**26

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        check.non_negative("limits", least_clip=self.least_clip, least_noise=self.least_noise)
        check.whole("limits", message_bytes=self.message_bytes)
        for what, names, known in (
            ("algorithm", self.algorithms, ALGORITHMS),
            ("loss", self.losses, LOSSES),
            ("mode", self.modes, MODES),
            ("relation", self.relations, ("replace-one", "add-remove")),
        ):
            for name in names:
                check.one_of("limits", what, name, known)

    def hold(self, task: Task, event: Event | None) -> None:
        """Refuse what the owner does not allow."""
        privacy, algorithm, loss = task.privacy, task.algorithm.name, task.objective.loss.name
        self._allow(algorithm in self.algorithms, f"algorithm {algorithm!r} is not among {list(self.algorithms)}")
        self._allow(loss in self.losses, f"loss {loss!r} is not among {list(self.losses)}")
        self._allow(privacy.mode in self.modes, f"privacy mode {privacy.mode!r} is not among {list(self.modes)}")
        if not isinstance(privacy, Proven):
            return
        assert event is not None
        self._allow(privacy.noise == "secure" or self.seeded, "seeded noise is not accepted, noise must be 'secure'")
        fits = privacy.relation in self.relations
        self._allow(fits, f"relation {privacy.relation!r} is not among {list(self.relations)}")
        self._allow(privacy.epsilon <= self.epsilon, f"epsilon {privacy.epsilon:g} is above {self.epsilon:g}")
        self._allow(privacy.delta == self.delta, f"delta must be {self.delta:g}, at which this client counts")
        self._allow(privacy.clip >= self.least_clip, f"clip {privacy.clip:g} is below {self.least_clip:g}")
        noise = event.noise_multiplier
        self._allow(noise >= self.least_noise, f"noise multiplier {noise:.4g} is below {self.least_noise:g}")

    @staticmethod
    def _allow(fits: bool, why: str) -> None:
        if not fits:
            raise Refused(wire.LIMITS, f"this client's limits: {why}")


@dataclass(frozen=True)
class Own:
    """[data]: the client's own rows. `labels` says which label is -1 and which +1 (or 0, 1, ...), alike everywhere."""

    csv: str = ""
    npz: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    row_bound: float | None = None
    shorten: bool = False

    def __post_init__(self) -> None:
        check.require(bool(self.csv) != bool(self.npz), "data", "give either csv = a file or npz = a file")
        check.require(bool(self.csv) == bool(self.label), "data", "label = a column goes with csv, and csv needs it")
        check.require(not self.shorten or self.row_bound is not None, "data", "shorten needs row_bound = a length")

    def read(self, folder: Path) -> tuple[np.ndarray, list[str]]:
        """Features, and labels as text: what a loss makes of them comes later."""
        if self.csv:
            X, texts, _ = read_csv(folder / Path(self.csv).expanduser(), self.label, "")
            return X, texts
        path = folder / Path(self.npz).expanduser()
        arrays = store.read_arrays(path)
        check.require({"X", "y"} <= arrays.keys(), str(path), "must hold arrays X and y", sorted(arrays))
        return arrays["X"], [label_text(label) for label in arrays["y"].tolist()]


@dataclass(frozen=True)
class Identity:
    """[node]."""

    name: str
    folder: str = "node"

    def __post_init__(self) -> None:
        good = 0 < len(self.name) <= 200 and self.name.isprintable()
        check.require(good, "node", "name must be one line of text", self.name)
