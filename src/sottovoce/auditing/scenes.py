"""Data that an audit looks at noise, clipping and batches with: rows far too long for a bound, and rows one by one."""

from dataclasses import replace
from typing import Any

import numpy as np

from sottovoce.auditing.game import Game
from sottovoce.auditing.neighbours import FAR, LONG, Linear, Neighbours
from sottovoce.privacy.modes import ProvenColumns, Published
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation

HUGE = 1e20  # a row so long that its square is no number in single precision
ONE_BY_ONE = 10  # records of a client whose batches are looked at


def crowd_of(game: Game, dtype: Any = np.float64, clients: int = 4, records: int = 6) -> Game:
    """The same promise on rows of very different lengths, one of which differs as much as the relation allows.

    Labels are so far away that gradients are the same everywhere, so that every answer has a closed form. The last two
    clients have the same rows, so that nothing but their numbers tells them apart.
    """
    if isinstance(game.privacy, ProvenColumns):
        return replace(game, neighbours=_columns(game.privacy), objective=_ridge())
    if isinstance(game.neighbours.first, VerticalFederation):
        return game
    length = _longest(game)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((clients * records, game.neighbours.first.X.shape[1]))
    wanted = np.resize([length, 1.0, 0.3, length**0.5, 0.0, 0.8], len(X))
    X *= (wanted / np.linalg.norm(X, axis=1))[:, None]
    y = FAR * max(1.0, length) ** 2 * np.where(rng.random(len(X)) < 0.5, -1.0, 1.0)
    X[-records:], y[-records:] = X[-2 * records : -records], y[-2 * records : -records]
    other_X, other_y = X.copy(), y.copy()
    changed = slice(0, records if getattr(game.privacy, "unit", "record") == "client" else 1)
    if getattr(game.privacy, "relation", "replace-one") == "add-remove":
        other_X[changed] = 0.0
    else:
        other_y[changed] *= -1.0
    offsets, names = np.arange(clients + 1) * records, tuple(str(i) for i in range(clients))
    bound = length * (1 + 1e-6)  # rows are rounded where they are stored in single precision
    first, second = (
        Federation(rows.astype(dtype), labels, offsets, names, bound) for rows, labels in ((X, y), (other_X, other_y))
    )
    words = f"rows up to {length:g} long"
    objective = Objective(Linear(bend=1 / bound**2), L2(0.1))
    return replace(game, neighbours=Neighbours(first, second, 0, None, words), objective=objective)


def _longest(game: Game) -> float:
    kind = game.algorithm.asks().only.kind
    if isinstance(game.privacy, Published) or kind == "descent":
        return 1.0  # bounded by a promise, not by clipping
    if getattr(game.privacy, "unit", "record") == "client":
        return LONG
    return 10.0 if kind == "argmin" else HUGE  # a solver compares values of the loss


def one_by_one(game: Game, clients: int = 3) -> Game:
    """The same promise on records that have a coordinate of their own: an exact gradient shows who is in a batch."""
    X = np.tile(np.eye(ONE_BY_ONE), (clients, 1))
    offsets, names = np.arange(clients + 1) * ONE_BY_ONE, tuple(str(i) for i in range(clients))
    rows = Federation(X, np.full(len(X), FAR), offsets, names, 1.0 + 1e-12)
    words = "records with a coordinate each"
    return replace(game, neighbours=Neighbours(rows, rows, 0, None, words), objective=Objective(Linear(), L2(0.1)))


def _ridge() -> Objective:
    return Objective(Squared(), L2(2.0), scale="sum")


def _columns(privacy: ProvenColumns, samples: int = 12) -> Neighbours:
    """Two parties, with rows and columns longer than the promised bounds; of the first, what the unit says differs."""
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((samples, width)) for width in (3, 2)]
    other = parts[0].copy()
    if privacy.unit == "record":
        other[0] = -3 * other[0]
    elif privacy.unit == "column":
        other[:, 0] = rng.standard_normal(samples)
    else:
        other = rng.standard_normal((samples, 3))
    y = 3.0 * rng.standard_normal(samples)
    first, second = (VerticalFederation.from_arrays([part, parts[1]], y) for part in (parts[0], other))
    return Neighbours(first, second, 0, None, "two parties with random columns")
