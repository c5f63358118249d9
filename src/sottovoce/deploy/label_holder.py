"""What a deployment does differently where columns are split: one party on its own machine, and the labels' holder.

The label holder is one of the parties. Where an algorithm's server asks `hub.labels`, the server on its machine has
that question carried to the holder: labels stay there. An answer follows from the question and from labels that are
fixed once and for all (open, or randomised once), so it costs nothing and is the same whenever it is asked.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import LabelOracle, VerticalAlgorithm
from sottovoce.core.random.streams import Streams
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Refused
from sottovoce.deploy.wire import Ask
from sottovoce.experiment.label_flips import LabelFlips, OtherFlips
from sottovoce.experiment.parties import LocalParties, column_key, label_weight
from sottovoce.experiment.task import Task
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.doors.party import RELATIONS, bounded, check_parties, open_parties
from sottovoce.privacy.events import Event
from sottovoce.privacy.labels import label_key, label_oracle
from sottovoce.privacy.modes import NoPrivacy, ProvenColumns
from sottovoce.privacy.noise_key import NoiseKey
from sottovoce.problems.columns import Columns
from sottovoce.problems.losses import Loss
from sottovoce.problems.vertical import VerticalFederation


@dataclass(frozen=True)
class Prox:
    """argmin_z l(z) + rho/2 |z − v|² ?"""

    v: np.ndarray
    rho: np.ndarray


@dataclass(frozen=True)
class Slope:
    """∇l at these scores of all samples?"""

    scores: np.ndarray


@dataclass(frozen=True)
class SlopeAt:
    """The same for the scores of some samples, those numbered `rows`."""

    scores: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Values:
    """An answer: of the label holder one number a sample, of a party the coordinates of its model."""

    values: np.ndarray


def is_vertical(task: Task) -> bool:
    return isinstance(task.algorithm, VerticalAlgorithm)


def blank_labels(loss: Loss, count: int) -> np.ndarray:
    """Labels that fit the loss, for a stand-in without data."""
    return np.resize([-1.0, 1.0], count) if loss.classification and loss.outputs == 1 else np.zeros(count)


def alone(
    task: Task,
    event: Event | None,
    X: np.ndarray,
    client: int,
    ledger: OwnerLedgers | MemoryLedger | None,
    streams: Streams,
    noise: Streams,
) -> LocalParties:
    """One party on a machine of its own: its columns, its ledger, its number. `streams` are its coins."""
    objective, asks, privacy = task.objective, task.algorithm.asks(), task.privacy
    check_parties(privacy, asks, objective.penalty)  # type: ignore[arg-type]
    y = blank_labels(objective.loss, len(X))  # it answers nothing about labels in here
    federation = VerticalFederation((X,), y, ("party",))
    exact = Columns(bounded([X], privacy), objective.penalty)  # type: ignore[arg-type]
    promise: Any = privacy
    key = _key(task, event, X, noise)
    door = open_parties(promise, event, ledger, exact, asks, key=key, clients=np.array([client]))
    labels = label_oracle(objective.loss, y, label_weight(objective, len(X)))
    return LocalParties(
        federation, objective, exact, door, streams, ledger, None, measure_training=False, labels=labels
    )


def _key(task: Task, event: Event | None, X: np.ndarray, noise: Streams) -> NoiseKey:
    privacy: Any = task.privacy
    told = (task.algorithm, task.objective, privacy, task.participation, task.settings.rounds, event)
    return column_key(noise, [X], *told)


def rehearsing(task: Task, samples: int) -> LocalParties:
    """A party with made-up columns and no noise. Of what messages look like one column is enough to tell."""
    streams = Streams(0)
    return alone(replace(task, privacy=NoPrivacy()), None, np.ones((samples, 1)), 0, None, streams, streams)


def refuse_another_kind(privacy: ProvenColumns, event: Event) -> None:
    """Refuse an event that is not what an answer here is: of it, the noise alone is the server's."""
    mechanism = "discrete-gaussian" if privacy.noise == "secure" else "gaussian"
    if (event.mechanism, event.relation, event.sampling) != (mechanism, RELATIONS[privacy.unit], "full"):
        raise Refused(wire.BAD_ASK, "the event is not what an answer in this experiment is")


# -------------------------------------------------------------------------------------------------------- label holder


def answer_about_labels(ask: Ask, task: Task, y: np.ndarray) -> Values:
    """What the label holder says; `y` are the labels as they may be asked about."""
    oracle = label_oracle(task.objective.loss, y, label_weight(task.objective, len(y)))
    try:
        question = _read(ask, oracle)
    except InvalidInput as error:
        raise Refused(wire.BAD_ASK, f"the question about labels does not fit: {str(error)[:300]}") from None
    if isinstance(question, Prox):
        return Values(oracle.prox(question.v, question.rho))
    return Values(oracle.slope(question.scores, getattr(question, "rows", None)))


def _read(ask: Ask, labels: LabelOracle) -> Prox | Slope | SlopeAt:
    """The question, which must be one that can be answered."""
    all_of_them = np.zeros((1, labels.samples))
    some = np.zeros((1, min(labels.samples, wire.weight(ask.down) // 16)))  # 8 bytes for a score, 8 for its row
    if ask.what == wire.PROX:
        asked = wire.unpack(ask.down, Prox(all_of_them, np.zeros((1, 1))))
        least = max(-labels.strong, 0.0)
        check.require(float(asked.rho[0, 0]) > least, "Prox", f"rho must exceed {least:g}", float(asked.rho[0, 0]))
        return asked
    if "rows" not in ask.down:
        return wire.unpack(ask.down, Slope(all_of_them))
    asked = wire.unpack(ask.down, SlopeAt(some, some))
    numbers = (asked.rows == np.floor(asked.rows)) & (asked.rows >= 0) & (asked.rows < labels.samples)
    check.require(bool(numbers.all()), "SlopeAt", f"rows must be numbers of samples, 0..{labels.samples - 1}")
    return asked


def usable_labels(y: np.ndarray, task: Task, flips: LabelFlips, key: NoiseKey | None) -> np.ndarray:
    """The labels that may be asked about: as they are, or randomised once for life. `key`: of seeded flips."""
    privacy = task.privacy
    if not isinstance(privacy, ProvenColumns) or privacy.label_epsilon is None:
        return y
    if not np.isin(y, (-1.0, 1.0)).all():
        raise Refused(wire.BAD_ASK, "randomised response is for labels -1 and +1")
    try:
        return y * flips.drawn(y, privacy.label_epsilon, key)[0]
    except OtherFlips:
        why = "its labels were randomised before, for other rows or with another label_epsilon"
        raise Refused(wire.STATE, why) from None


def flip_key(task: Task, event: Event | None, y: np.ndarray, X: np.ndarray, noise: Streams) -> NoiseKey | None:
    """What seeded flips are bound to, the same as in a simulation; None for secure ones."""
    secure = getattr(task.privacy, "noise", "") == "secure"
    return None if secure else label_key(_key(task, event, X, noise), y)
