"""What a client's owner says in its own file: who it is, where its rows are, and what may be answered about them."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.check import SottovoceError
from sottovoce.deploy import wire
from sottovoce.experiment import store
from sottovoce.experiment.csv_file import label_text, read_csv
from sottovoce.experiment.experiment import MODES, Task
from sottovoce.ledger.budget import Budget
from sottovoce.privacy.doors.party import RELATIONS
from sottovoce.privacy.events import Event, Relation
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.vertical import hashed


class Refused(SottovoceError):
    """Why a client does not answer, in words that may leave it."""

    def __init__(self, code: str, why: str) -> None:
        self.code = code
        super().__init__(why)


def relation_of(privacy: Proven | ProvenColumns) -> str:
    """What a budget of this kind counts."""
    if isinstance(privacy, ProvenColumns):
        return RELATIONS[privacy.unit]
    return "replace-client" if privacy.unit == "client" else privacy.relation


MOST_NOISE = 2.0**20  # beyond it an answer is nothing but noise
SMALLEST, LARGEST = 1e-12, 1e12  # of every number that a server may choose, zero apart: products of a few are finite


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
        The smallest clip norm (where columns are split: `bound`) and the smallest noise multiplier that are accepted.
    modes
        "proven"; whoever adds "published" or "none" lets data leave with no guarantee.
    relations
        For what neighbours the budget is counted: "replace-one", "add-remove"; where columns are split also
        "replace-column" and "replace-client" (a whole party). A ledger counts for one of them.
    seeded
        Whether noise that the server can predict is accepted: for tests, where nothing has to be protected.
    message_bytes
        The largest broadcast that is read.
    smallest_number, largest_number
        Bounds on the size of every number that the server chooses: hyper-parameters (which may also be 0), and the
        entries of a broadcast.
    label_epsilon, open_labels
        Of a label holder where columns are split: the epsilon with which its labels are randomised, once for life; or
        that they may be used as they are, which shows every one of them to the server and to all parties.
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
    smallest_number: float = SMALLEST
    largest_number: float = LARGEST
    label_epsilon: float | None = None
    open_labels: bool = False

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        check.non_negative("limits", least_clip=self.least_clip, least_noise=self.least_noise)
        check.whole("limits", message_bytes=self.message_bytes)
        check.positive("limits", smallest_number=self.smallest_number, largest_number=self.largest_number)
        most = self.smallest_number >= 1e-60 and self.largest_number <= 1e60
        check.require(most, "limits", "numbers must stay within 1e-60 and 1e60, so that their products are finite")
        if self.label_epsilon is not None:
            check.positive("limits", label_epsilon=self.label_epsilon)
        for what, names, known in (
            ("algorithm", self.algorithms, ALGORITHMS),
            ("loss", self.losses, LOSSES),
            ("mode", self.modes, MODES),
            ("relation", self.relations, get_args(Relation)),
        ):
            for name in names:
                check.one_of("limits", what, name, known)

    def hold(self, task: Task, event: Event | None) -> None:
        """Refuse what the owner does not allow."""
        privacy: Any = task.privacy
        algorithm, loss = task.algorithm.name, task.objective.loss.name
        self._allow(algorithm in self.algorithms, f"algorithm {algorithm!r} is not among {list(self.algorithms)}")
        self._allow(loss in self.losses, f"loss {loss!r} is not among {list(self.losses)}")
        self._allow(privacy.mode in self.modes, f"privacy mode {privacy.mode!r} is not among {list(self.modes)}")
        if not isinstance(privacy, Proven | ProvenColumns):
            return
        assert event is not None
        columns = isinstance(privacy, ProvenColumns)
        relation = relation_of(privacy)
        clip, named = (privacy.bound, "bound") if columns else (privacy.clip, "clip")
        self._allow(privacy.noise == "secure" or self.seeded, "seeded noise is not accepted, noise must be 'secure'")
        self._allow(relation in self.relations, f"relation {relation!r} is not among {list(self.relations)}")
        self._allow(privacy.epsilon <= self.epsilon, f"epsilon {privacy.epsilon:g} is above {self.epsilon:g}")
        self._allow(privacy.delta == self.delta, f"delta must be {self.delta:g}, at which this client counts")
        self._allow(clip >= self.least_clip, f"{named} {clip:g} is below {self.least_clip:g}")
        noise = event.noise_multiplier
        self._allow(noise >= self.least_noise, f"noise multiplier {noise:.4g} is below {self.least_noise:g}")
        self._allow(noise <= MOST_NOISE, f"noise multiplier {noise:.4g} is above {MOST_NOISE:g}")

    def hold_numbers(self, task: Task, down: Mapping[str, np.ndarray]) -> None:
        """Refuse numbers of the server's with which an answer would overflow: bounds that look at no data."""
        parts = {"algorithm": task.algorithm, "loss": task.objective.loss, "penalty": task.objective.penalty}
        for name, part in parts.items():
            for field, value in _numbers(part):
                fits = value == 0 or self.smallest_number <= abs(value) <= self.largest_number
                self._allow(fits, f"{name}, {field} = {value:g} is not from {self.smallest_number:g} to "
                            f"{self.largest_number:g} in size")  # fmt: skip
        for name, array in down.items():
            fits = bool((np.abs(array) <= self.largest_number).all())  # False for NaN
            self._allow(fits, f"the broadcast's {name} has a number above {self.largest_number:g} in size")

    def hold_labels(self, task: Task) -> None:
        """Refuse to hold labels for an experiment that would show more of them than the owner allows."""
        asked = getattr(task.privacy, "label_epsilon", None)
        own = "is not given" if self.label_epsilon is None else f"is {self.label_epsilon:g}"
        if asked is None:
            self._allow(self.open_labels, f"labels would be shown: open_labels is false, its label_epsilon {own}")
        else:
            self._allow(asked == self.label_epsilon, f"label_epsilon {asked:g} is asked for, and its own {own}")

    @staticmethod
    def _allow(fits: bool, why: str) -> None:
        if not fits:
            raise Refused(wire.LIMITS, f"this client's limits: {why}")


@dataclass(frozen=True)
class Own:
    """[data]: the client's own rows. `labels` says which label is -1 and which +1 (or 0, 1, ...), alike everywhere.

    Where columns are split, its owner says how its samples stand in the order of the others': by `id`, a column (or an
    array) whose salted hashes put them in order, the same at every party with the same ids and `salt`; or by
    `same_order`, its word that row i is the same sample everywhere. Only the label holder then has labels.
    """

    csv: str = ""
    npz: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    row_bound: float | None = None
    shorten: bool = False
    id: str = ""
    same_order: bool = False
    salt: str = ""

    def __post_init__(self) -> None:
        check.require(bool(self.csv) != bool(self.npz), "data", "give either csv = a file or npz = a file")
        labelled = self.columns or bool(self.label)
        check.require(bool(self.csv) or not self.label, "data", "label = a column goes with csv")
        check.require(not self.csv or labelled, "data", "csv needs label = a column, unless columns are split")
        check.require(not (self.id and self.same_order), "data", "give either id = a column or same_order = true")
        check.require(bool(self.id) or not self.salt, "data", "salt goes with id = a column")
        check.require(not self.shorten or self.row_bound is not None, "data", "shorten needs row_bound = a length")

    @property
    def columns(self) -> bool:
        """Whether these are columns of samples that others have too."""
        return bool(self.id) or self.same_order

    def in_order(self, ids: list[str]) -> tuple[list[int], str]:
        """The rows in the order of their ids' salted hashes, and a digest of all of these, which names the order."""
        found = hashed("data", ids, len(ids), self.salt)
        order = sorted(found)
        return [found[digest] for digest in order], hashlib.sha256(b"".join(order)).hexdigest()

    def read(self, folder: Path) -> tuple[np.ndarray, list[str], list[str] | None]:
        """Features, labels as text (what a loss makes of them comes later), and ids where there are."""
        if self.csv:
            X, texts, ids = read_csv(folder / Path(self.csv).expanduser(), self.label, self.id)
            return X, texts, None if ids is None else ids.tolist()
        path = folder / Path(self.npz).expanduser()
        arrays = store.read_arrays(path)
        needed = {"X"} | (set() if self.columns else {"y"}) | ({self.id} if self.id else set())
        there = ", ".join(sorted(arrays))
        check.require(needed <= arrays.keys(), str(path), f"must hold arrays {sorted(needed)}", there)
        stored = np.float32 if arrays["X"].dtype == np.float32 else np.float64
        X = check.finite_array(str(path), "X", arrays["X"], ndim=2, dtype=stored)
        for name in ("y", self.id):
            if name in arrays:
                one = arrays[name].shape == (len(X),)
                check.require(one, str(path), f"{name} must have one entry per row of X ({len(X)})", arrays[name].shape)
        texts = [label_text(label) for label in arrays["y"].tolist()] if "y" in arrays else []
        return X, texts, [label_text(each) for each in arrays[self.id].tolist()] if self.id else None


@dataclass(frozen=True)
class Identity:
    """[node]."""

    name: str
    folder: str = "node"

    def __post_init__(self) -> None:
        good = 0 < len(self.name) <= 200 and self.name.isprintable()
        check.require(good, "node", "name must be one line of text", self.name)


def _numbers(part: Any) -> Iterator[tuple[str, float]]:
    """The numbers among the fields of a dataclass, those in lists too."""
    for field in fields(part):
        value = getattr(part, field.name)
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, int | float) and not isinstance(each, bool):
                yield field.name, float(each)
            elif is_dataclass(each):
                yield from _numbers(each)
