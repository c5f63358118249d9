"""Neighbouring data sets to be told apart: worst-case canaries for linear models, or records of one's own."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.derived import derived
from sottovoce.core.vouched import vouch
from sottovoce.privacy.modes import ProvenColumns
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Loss
from sottovoce.problems.vertical import VerticalFederation

FAR = 1e6  # label of a canary: so far from any margin that most losses are a straight line there
LONG = 1e6  # row of a canary whose every step is to be too long
Relation = Literal["replace-one", "add-remove"]


@vouch
@dataclass(frozen=True)
class Linear(Loss):
    """The loss of canaries: -width * margin for labels above 0, width * margin for those below.

    It has no curvature, so every bound on it is true: `bend` is the one that is stated, where a paper's constants are
    for another loss.
    """

    width: check.Positive = 1.0
    bend: check.Positive = 1.0
    name = "linear"
    code = 5
    classification = False

    @derived
    def parameter(self) -> float:
        return float(self.width)

    @derived
    def curvature(self) -> float:
        return float(self.bend)

    @derived
    def lipschitz(self) -> float:
        return float(self.width)

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.slope(margin, y) * margin

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -self.width * np.sign(y) * np.ones_like(margin)

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.zeros_like(margin)

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        return v - self.slope(v, y) / rho


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets that differ in one record of `client` (or in all of it), and how: `row` is the record's row,
    None where columns are split.

    `alone`: all other records are blank, and the record is its client's first. `worst`: made so that what is given
    away is all that a promise allows, or nearly.
    """

    first: Federation | VerticalFederation
    second: Federation | VerticalFederation
    client: int
    row: np.ndarray | None
    words: str
    alone: bool = False
    worst: bool = False


def canary(
    clients: int = 10,
    records: int = 10,
    features: int = 5,
    relation: Relation = "replace-one",
    whole_client: bool = False,
    length: float = 1.0,
) -> Neighbours:
    """One record with a constant gradient among empty ones; its neighbour has the opposite gradient, or none.

    The row is long in every norm at once: all its entries are equal. To be used with the loss `Linear`.
    """
    check.whole("audit", clients=clients, records=records, features=features)
    X, y = np.zeros((clients * records, features)), np.zeros(clients * records)
    changed = slice(0, records if whole_client else 1)
    row = np.full(features, length / np.sqrt(features))
    X[changed], y[changed] = row, FAR * max(1.0, length) ** 2
    other_X, other_y = X.copy(), y.copy()
    if relation == "add-remove":
        other_X[changed], other_y[changed] = 0.0, 0.0
    else:
        other_y[changed] = -y[changed]
    offsets = np.arange(clients + 1) * records
    names = tuple(str(i) for i in range(clients))
    bound = length * (1 + 1e-12)
    what = "all records of a client" if whole_client else "one record"
    how = "left blank" if relation == "add-remove" else "turned into the opposite"
    return Neighbours(
        Federation(X, y, offsets, names, bound), Federation(other_X, other_y, offsets, names, bound), 0, row,
        f"worst-case canary: {what} of {clients} x {records}, {how}, {features} features",
        alone=not whole_client, worst=True,
    )  # fmt: skip


def columns(entries: int = 5) -> Neighbours:
    """Two parties; one entry of one column of the first differs, rows having norm 1 in both data sets."""
    low, high = np.radians(5), np.radians(-35)
    D = np.eye(entries + 1, entries, -1)
    D[:3, :2] = [[np.cos(low), np.sin(low)], [np.cos(high), np.sin(high)], [np.sqrt(0.75), 0.5]]
    other = D.copy()
    other[2, 1] = -0.5
    y = np.where(np.arange(len(D)) % 2 == 0, 1.0, -1.0)
    first, second = (VerticalFederation.from_arrays([part, np.ones((len(D), 1))], y) for part in (D, other))
    return Neighbours(first, second, 0, None, "two parties, one entry of one column of the first changed")


def worst_columns(privacy: ProvenColumns, mu: float) -> Neighbours:
    """One party whose scores move as far as a promise allows for, or nearly, in every round but the first: its target
    is 0, whatever the data.

    `mu`: the weight of the ridge penalty, divided by rho. Labels are so far away that targets have their direction
    whatever the noise was. To be used with squared loss.
    """
    if privacy.variant == "clip":  # scores and model, once clipped, are nearly the opposite of the neighbour's
        D, y, what = np.array([[0.01], [1.0]]), np.array([1.0, 0.0]), "columns nearly across the target, to either side"
        other = D * [[-1.0], [1.0]]
    elif privacy.unit == "record":  # all others' model is as long as it can be; one score is at its one end or other
        assert privacy.row_bound is not None
        samples = 1 + round(mu / privacy.row_bound**2)
        D, y = np.full((samples, 1), privacy.row_bound), np.ones(samples)
        other, what = D.copy(), f"one of {samples} equal records turned into the opposite"
        other[0] *= -1.0
    else:  # the target itself, or nothing
        D = np.array([[LONG if privacy.column_bound is None else privacy.column_bound]])
        other, y, what = np.zeros((1, 1)), np.ones(1), "a column along the target, or none"
    first, second = (VerticalFederation.from_arrays([part], FAR**2 * y) for part in (D, other))
    return Neighbours(first, second, 0, None, f"worst-case canary: one party, {what}", worst=True)


def own_record(federation: Federation, loss: Loss, relation: Relation = "replace-one") -> Neighbours:
    """The longest of one's own records, and the same data with its label changed to the opposite, or left blank."""
    place = int(np.argmax(np.linalg.norm(federation.X, axis=1)))
    client = int(np.searchsorted(federation.offsets, place, side="right")) - 1
    X, y = federation.X, loss.check_labels(federation.y)
    row = X[place].copy()
    if relation == "add-remove":
        X = X.copy()
        X[place] = 0.0
        how = "left blank"
    else:
        y = y.copy()
        y[place] = (y[place] + 1) % loss.outputs if loss.outputs > 1 else -y[place]
        how = "with another label"
    other = replace(federation, X=X, y=y)
    words = f"record {place - int(federation.offsets[client])} of client {federation.names[client]!r}, {how}"
    return Neighbours(federation, other, client, row, words)
