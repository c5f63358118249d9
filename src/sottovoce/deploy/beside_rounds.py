"""Questions beside those of a round: about labels, and about held-out records.

**Labels**, where columns are split. One of the parties holds them. Where an algorithm's server asks `hub.labels`, the
server on its machine has that question carried to the label holder: labels stay there. An answer follows from the
question and from labels that are fixed once and for all (open, or randomised once), so it costs nothing and is the same
whenever it is asked.

**Held-out records** are counted at a client, as the last question of a run (`core/histogram.py`). Which records a
client holds out follows from a key in its own folder, made at the first such question and kept: so they are the same
ones in every run, and nobody else knows which.
"""

from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Arrays, LabelOracle
from sottovoce.deploy import wire
from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.home import SPLIT
from sottovoce.deploy.limits import Limits, Refused, bad_ask
from sottovoce.experiment.held_out import Split
from sottovoce.experiment.label_flips import LabelFlips, OtherFlips
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import column_key, label_weight
from sottovoce.ledger.split_key import KEY, split_key
from sottovoce.privacy.labels import label_key, label_oracle
from sottovoce.problems.losses import Loss


class Prox(Arrays):
    """argmin_z l(z) + rho/2 |z − v|² ?"""

    v: np.ndarray
    rho: np.ndarray


class Slope(Arrays):
    """∇l at these scores of all samples?"""

    scores: np.ndarray


class SlopeAt(Arrays):
    """The same for the scores of some samples, those numbered `rows`."""

    scores: np.ndarray
    rows: np.ndarray


class Values(Arrays):
    """An answer: of the label holder one number a sample, of a party the coordinates of its model."""

    values: np.ndarray


def answer_about_labels(ask: wire.Ask, run: Assignment, y: np.ndarray) -> Values:
    """What the label holder says; `y` are the labels as they may be asked about."""
    objective = run.task.objective
    oracle = label_oracle(objective.loss, y, label_weight(objective, len(y)))
    with bad_ask("the question about labels does not fit: "):
        question = _read(ask, oracle)
    if isinstance(question, Prox):
        return Values(oracle.prox(question.v, question.rho))
    return Values(oracle.slope(question.scores, getattr(question, "rows", None)))


def _read(ask: wire.Ask, labels: LabelOracle) -> Prox | Slope | SlopeAt:
    """The question, which must be one that can be answered."""
    every = (labels.samples,)
    some = (min(labels.samples, wire.weight(ask.down) // 16),)  # 8 bytes for a score, 8 for its row
    if ask.what == wire.PROX:
        asked = wire.unpack(ask.down, Prox, {"v": every, "rho": (1,)})
        least = max(-labels.strong, 0.0)
        check.require(float(asked.rho[0, 0]) > least, "Prox", f"rho must exceed {least:g}", float(asked.rho[0, 0]))
        return asked
    if "rows" not in ask.down:
        return wire.unpack(ask.down, Slope, {"scores": every})
    asked = wire.unpack(ask.down, SlopeAt, {"scores": some, "rows": some})
    numbers = (asked.rows == np.floor(asked.rows)) & (asked.rows >= 0) & (asked.rows < labels.samples)
    check.require(bool(numbers.all()), "SlopeAt", f"rows must be numbers of samples, 0..{labels.samples - 1}")
    return asked


def usable_labels(y: np.ndarray, X: np.ndarray, run: Assignment, flips: LabelFlips) -> np.ndarray:
    """The labels that may be asked about: as they are, or randomised once for life."""
    epsilon = getattr(run.task.privacy, "label_epsilon", None)
    if epsilon is None:
        return y
    if not np.isin(y, (-1.0, 1.0)).all():
        raise Refused(wire.BAD_ASK, "randomised response is for labels -1 and +1")
    # Seeded flips are bound to what they are bound to in a simulation.
    seeded = not run.task.privacy.secret_noise
    key = label_key(column_key(run.task, [X], run.noise, run.events), y) if seeded else None
    try:
        return y * flips.drawn(y, epsilon, key)[0]
    except OtherFlips:
        why = "its labels were randomised before, for other rows or with another label_epsilon"
        raise Refused(wire.STATE, why) from None


def blank_labels(loss: Loss, count: int) -> np.ndarray:
    """Labels that fit the loss, for a stand-in without data."""
    return np.resize([-1.0, 1.0], count) if loss.classification and loss.outputs == 1 else np.zeros(count)


# --------------------------------------------------------------------------------------------------- held-out records


class Finished(Arrays):
    """How many of your held-out records does this model get right?"""

    w: np.ndarray


def split_by(assignment: Assignment, home: Path) -> Split | None:
    """What decides which records are held out; None where none are.

    Each experiment that held out records has kept the digest of the key.
    """
    if assignment.task.evaluate is None:
        return None
    used = {file.read_text() for file in (home / "experiments").glob(f"*/{SPLIT}")}
    return Split((split_key(home / KEY, used),))


def counted(ask: wire.Ask, clients: LocalClients, limits: Limits) -> Values:
    """Noisy counts of held-out records, charged."""
    with bad_ask("the model does not fit: "):
        w = wire.unpack(ask.down, Finished, {"w": (clients.dim,)}).w
    limits.check_broadcast({"w": w})
    counts = clients.evaluate(w)
    if counts is None:
        raise check.BudgetSpent("")
    return Values(counts[0])
