"""Neighbouring data sets that an audit runs on.

The game is played on worst-case canaries for linear models, or on a record of one's own. Noise, clipping and batches
are checked on rows that are far too long for a bound, and on records with a coordinate each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.vouched import derived, vouch
from sottovoce.privacy.modes import ProvenColumns
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Loss, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation

FAR = 1e6  # label of a canary: so far from any margin that most losses are a straight line there
LONG = 1e6  # length of a canary's row, if every step is to be too long
RIDGE = Objective(Squared(), L2(2.0), scale="sum")  # for split columns: rho = 2 by its rule, so lam/rho = 1
Relation = Literal["replace-one", "add-remove"]


@vouch
class Linear(Loss):
    """The loss of canaries: -width * margin for labels above 0, width * margin for labels below.

    It has no curvature, so every bound on its curvature is true. `bend` is the bound that is stated: the constants of
    some papers are for another loss.
    """

    width: check.Positive = 1.0
    bend: check.Positive = 1.0
    name = "linear"
    code = 5
    classification = False
    parameter = lipschitz = derived(lambda self: float(self.width))
    curvature = derived(lambda self: float(self.bend))

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
    """Two data sets that differ in one record of `client`, or in all its records.

    Parameters
    ----------
    first, second, client
        The two data sets, and whose data differ.
    row
        The row of the record that differs; None where columns are split, or several records differ.
    words
        What differs, for a reader.
    alone
        Whether all other records are blank, and the record is the first one of its client.
    worst
        Whether everything that a promise allows to be revealed, or nearly, is revealed.
    """

    first: Federation | VerticalFederation
    second: Federation | VerticalFederation
    client: int
    row: np.ndarray | None
    words: str
    alone: bool = False
    worst: bool = False

    def side(self, number: int) -> Federation | VerticalFederation:
        return self.second if number else self.first


# --------------------------------------------------------------------------------------------------- for the game


def canary(
    clients: int = 10,
    records: int = 10,
    features: int = 5,
    relation: Relation = "replace-one",
    whole_client: bool = False,
    length: float = 1.0,
) -> Neighbours:
    """One record with a constant gradient among empty ones; its neighbour has the opposite gradient, or none.

    All entries of the row are equal, so that it is long in every norm. To be used with the loss `Linear`.
    """
    check.whole("audit", clients=clients, records=records, features=features)
    X, y = np.zeros((clients * records, features)), np.zeros(clients * records)
    changed = slice(0, records if whole_client else 1)
    row = np.full(features, length / np.sqrt(features))
    X[changed], y[changed] = row, FAR * max(1.0, length) ** 2
    first, second = _pair(X, y, clients, changed, relation, length * (1 + 1e-12))
    what = "all records of a client" if whole_client else "one record"
    how = "left blank" if relation == "add-remove" else "turned into the opposite"
    words = f"worst-case canary: {what} of {clients} x {records}, {how}, {features} features"
    return Neighbours(first, second, 0, row, words, alone=not whole_client, worst=True)


def columns(entries: int = 5) -> Neighbours:
    """Two parties; one entry of one column of the first differs, and rows have norm 1 in both data sets."""
    low, high = np.radians(5), np.radians(-35)
    D = np.eye(entries + 1, entries, -1)
    D[:3, :2] = [[np.cos(low), np.sin(low)], [np.cos(high), np.sin(high)], [np.sqrt(0.75), 0.5]]
    other = D.copy()
    other[2, 1] = -0.5
    y = np.where(np.arange(len(D)) % 2 == 0, 1.0, -1.0)
    words = "two parties, one entry of one column of the first changed"
    return _parties((D, other), [np.ones((len(D), 1))], y, words)


def worst_columns(privacy: ProvenColumns, mu: float) -> Neighbours:
    """One party whose scores move as far as a promise allows, or nearly, in every round but the first (there the target
    is 0, whatever the data).

    `mu`: the weight of the ridge penalty, divided by rho. Labels are so far away that targets point in their direction
    whatever the noise was. To be used with squared loss.
    """
    if privacy.variant == "clip":  # once clipped, scores and model are nearly the opposite of the neighbour's
        D, y, what = np.array([[0.01], [1.0]]), np.array([1.0, 0.0]), "columns nearly across the target, to either side"
        other = D * [[-1.0], [1.0]]
    elif privacy.unit == "record":  # the model of all others is as long as it can be; one score is at one end or other
        assert privacy.row_bound is not None
        samples = 1 + round(mu / privacy.row_bound**2)
        D, y = np.full((samples, 1), privacy.row_bound), np.ones(samples)
        other, what = D.copy(), f"one of {samples} equal records turned into the opposite"
        other[0] *= -1.0
    else:  # the target itself, or nothing
        D = np.array([[LONG if privacy.column_bound is None else privacy.column_bound]])
        other, y, what = np.zeros((1, 1)), np.ones(1), "a column along the target, or none"
    return _parties((D, other), [], FAR**2 * y, f"worst-case canary: one party, {what}", worst=True)


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
    words = f"record {place - int(federation.offsets[client])} of client {federation.names[client]!r}, {how}"
    return Neighbours(federation, replace(federation, X=X, y=y), client, row, words)


# ------------------------------------------------------------------------------------------------------ for checks


def crowd(
    length: float, bound: float, features: int, relation: Relation, whole_client: bool, dtype: type
) -> Neighbours:
    """Rows of very different lengths, up to `length`; one record, or client, differs as much as the relation allows.

    Labels are so far away that gradients are the same everywhere, so every answer has a closed form. The last two
    clients have the same rows: only their numbers tell them apart.
    """
    rng, clients, records = np.random.default_rng(0), 4, 6
    X = rng.standard_normal((clients * records, features))
    wanted = np.resize([length, 1.0, 0.3, length**0.5, 0.0, 0.8], len(X))
    X *= (wanted / np.linalg.norm(X, axis=1))[:, None]
    y = FAR * max(1.0, length) ** 2 * np.where(rng.random(len(X)) < 0.5, -1.0, 1.0)
    X[-records:], y[-records:] = X[-2 * records : -records], y[-2 * records : -records]
    first, second = _pair(X.astype(dtype), y, clients, slice(0, records if whole_client else 1), relation, bound)
    return Neighbours(first, second, 0, None, f"rows up to {length:g} long")


def one_by_one() -> Neighbours:
    """Records with a coordinate each: an exact gradient shows which of them are in a batch. Nothing differs."""
    clients, records = 3, 10
    rows = equal_clients(np.tile(np.eye(records), (clients, 1)), np.full(clients * records, FAR), clients, 1.0 + 1e-12)
    return Neighbours(rows, rows, 0, None, "records with a coordinate each")


def random_columns(unit: str) -> Neighbours:
    """Two parties with rows and columns longer than the promised bounds; one `unit` of the first party differs."""
    rng, samples = np.random.default_rng(0), 12
    parts = [rng.standard_normal((samples, width)) for width in (3, 2)]
    other = parts[0].copy()
    if unit == "record":
        other[0] = -3 * other[0]
    elif unit == "column":
        other[:, 0] = rng.standard_normal(samples)
    else:
        other = rng.standard_normal((samples, 3))
    return _parties((parts[0], other), parts[1:], 3.0 * rng.standard_normal(samples), "two parties with random columns")


# ---------------------------------------------------------------------------------------------------------- making them


def _pair(
    X: np.ndarray, y: np.ndarray, clients: int, changed: slice, relation: Relation, bound: float
) -> tuple[Federation, Federation]:
    """These rows, and the same with the changed ones blank or of the opposite label."""
    other_X, other_y = X.copy(), y.copy()
    if relation == "add-remove":
        other_X[changed] = 0.0
    else:
        other_y[changed] *= -1.0
    return equal_clients(X, y, clients, bound), equal_clients(other_X, other_y, clients, bound)


def equal_clients(X: np.ndarray, y: np.ndarray, clients: int, bound: float) -> Federation:
    """Clients with equally many of these rows, one client after the other."""
    offsets = np.arange(clients + 1) * (len(X) // clients)
    return Federation(X, y, offsets, tuple(str(client) for client in range(clients)), bound)


def _parties(
    sides: tuple[np.ndarray, np.ndarray], others: Sequence[np.ndarray], y: np.ndarray, words: str, worst: bool = False
) -> Neighbours:
    """Data sets that differ in the columns of the first party."""
    first, second = (VerticalFederation.from_arrays([part, *others], y) for part in sides)
    return Neighbours(first, second, 0, None, words, worst=worst)
