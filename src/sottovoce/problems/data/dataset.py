"""What a data set is, and what is known about it before it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sottovoce.core.arrays import AnyArray, Matrix


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows, labels and where they come from.

    `y` holds -1.0 / +1.0, or whole class numbers 0, 1 where `notes` says so. `test` is the official test part (X, y) of
    sets that have one, `groups` the natural owner of each row, and `row_bound` an l2 norm that no row exceeds, whatever
    the data: a public constant, to be relied on for sensitivity.
    """

    name: str
    X: Matrix = field(repr=False)
    y: AnyArray = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    source: str
    notes: str
    test: tuple[Matrix, AnyArray] | None = field(default=None, repr=False)
    groups: AnyArray | None = field(default=None, repr=False)
    row_bound: float | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """What can be said about a data set without reading it. `status` is "bundled", "found" or "missing"."""

    name: str
    status: str
    where: str
    rows: int
    test_rows: int
    features: int
    task: str
    how_to_get: str


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
    sha256: Mapping[str, str] = field(default_factory=dict[str, str])  # of the files, uncompressed

    @property
    def bundled(self) -> bool:
        return bool(self.sha256)
