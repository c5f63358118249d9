"""Parties in this process: the clients of data whose columns are split, and what is different about them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

import numpy as np

from sottovoce.algorithms import MaskedMoments
from sottovoce.core import check, contract, plain, products
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Outcome
from sottovoce.experiment.finished import charges_of, finished_run
from sottovoce.experiment.held_out import Split
from sottovoce.experiment.local import Apart, Events, LocalClients
from sottovoce.experiment.result import Result
from sottovoce.experiment.rounds import Ledgers
from sottovoce.experiment.task import Task
from sottovoce.experiment.vertical_result import VerticalResult, opened_sums
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.ledger.histories import Counted, Kept
from sottovoce.privacy import accounting
from sottovoce.privacy.doors.party import bounded
from sottovoce.privacy.events import Event
from sottovoce.privacy.labels import label_event, label_key, label_oracle, randomised_labels
from sottovoce.privacy.noise_key import NoiseKey, parts_digests
from sottovoce.problems.columns import Columns
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import Loss
from sottovoce.problems.metrics import ALONE
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import Matrix, VerticalFederation, summed_scores

_NOT_ASKED = (
    "its one round was not asked for: noise is chosen for the whole epsilon, and the ledgers hold answers of earlier "
    "runs. Use ledgers of their own, and add the epsilons up"
)


@dataclass(kw_only=True)
class LocalParties(LocalClients):
    """The parties that live in this process, and the labels.

    Parameters
    ----------
    label_epsilon
        The epsilon of the labels, where ledgers count it over several runs.
    """

    label_epsilon: float | None = None
    layout: ClassVar[contract.Layout] = "columns"

    @classmethod
    def _exact(
        cls, task: Task, federation: FederatedData, noise: Streams, events: Events, split: Split | None,
        apart: Apart | None,
    ) -> tuple[FederatedData, object, plain.Json]:  # fmt: skip
        """`apart`: where products are asked for and the other owners are on other machines."""
        parties, columns = cast(VerticalFederation, federation), task.split
        shares = labels = None
        if apart is not None:
            shares, labels = apart
        elif columns is not None:
            rule = "all owners must be in one place, or say how they compute with each other"
            check.require(columns.owners == parties.n, "masked-moments", rule, parties.n)
            shares = lambda: products.halves(columns, whole_tables(task, parties))  # noqa: E731 (read once)
            labels = (parties.holder, parties.y)  # products are about labels too
        exact = Columns(bounded(parties.parts, task.privacy), task.objective.penalty, shares)
        return parties, exact, {"key": column_key(task, parties.parts, noise, events, labels), "split": columns}

    @classmethod
    def planned(cls, task: Task, federation: FederatedData, ledger: Ledgers | None, lasting: bool) -> Events:
        events = task.plan(federation.sizes, max(federation.widths))
        if ledger is not None and lasting:
            _must_hold_one_kind(ledger, federation.n, task)
        return events

    def randomise_labels(self, ledgers: Path | None) -> None:
        """Flip labels before training: once for this run, or, with a folder of ledgers, once for life."""
        objective, epsilon = self.task.objective, getattr(self.task.privacy, "label_epsilon", None)
        if epsilon is None:
            return
        y = objective.loss.check_labels(self.federation.y)
        key = None if self.task.privacy.secret_noise else label_key(self.door.key, y)
        if ledgers is None:
            y, self.label_charges = randomised_labels(y, epsilon, key), Counted.of({label_event(epsilon): 1})
        else:
            from sottovoce.experiment.label_flips import LabelFlips  # its lock needs fcntl

            home, data = ledgers / "labels", self.parties
            of, owner = fingerprint(data.y, data.y[:0]), f"{data.names[data.holder]}, labels"
            flipped, rows = LabelFlips(home / "flips.npz", home / "0000.ledger", owner, of).drawn(y, epsilon, key)
            y, self.label_charges, self.label_epsilon = y * flipped, Kept.of(rows), epsilon
        self.labels = label_oracle(objective.loss, y, label_weight(objective, len(y)))

    @property
    def parties(self) -> VerticalFederation:
        """Their columns."""
        return cast(VerticalFederation, self.federation)

    @staticmethod
    def labels_of(federation: FederatedData, objective: Objective) -> contract.LabelOracle:
        """What the server may ask of the labels as they are."""
        y = objective.loss.check_labels(federation.y)
        return label_oracle(objective.loss, y, label_weight(objective, len(y)))

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Objective of the parties' exact models (a simulation may look), test loss of what a release would hold."""
        numbers: dict[str, np.ndarray] = {}
        loss = self.task.objective.loss
        if self.measure_training:
            x, scores = self._looked_at(model)
            data_term = loss.value(scores, loss.check_labels(self.federation.y)).sum(axis=-1)
            weight = label_weight(self.task.objective, self.dim)
            numbers["objective"] = weight * data_term + self.task.objective.penalty.value(x)
        if self.test is not None and (self.measure_training or self.task.privacy.budget is None):
            x = self._would_be(model)
            if x is not None:
                numbers |= self.test.measured(x)
        if self.ledger is not None:
            numbers["epsilon"] = self.ledger.epsilons(roughly=True).max(axis=-1)
        return numbers

    def _looked_at(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The parties' exact models end to end, and the training samples' scores by them."""
        kept, outputs = self._kept(), self.task.objective.loss.outputs
        if kept is None:  # the server has the model
            model = model[..., 0, :]
            return model, summed_scores(self.parties.parts, model, self.parties.widths, outputs)
        x = self.door.looked_at(kept, self._everyone)
        return self.flat(x), self.exact.predict(x, self._everyone).sum(axis=-2)

    def _kept(self) -> contract.Kept | None:
        """What the parties keep of their models; None if the server has them."""
        return cast(contract.VerticalAlgorithm, self._algorithm).kept(self._states)

    def _would_be(self, model: np.ndarray) -> np.ndarray | None:
        """The models that would be released now, end to end."""
        kept = self._kept()
        if kept is None:
            return model[..., 0, :]
        x = self.door.would_be(kept, self._everyone, self._k)
        return None if x is None else self.flat(x)

    def flat(self, x: np.ndarray) -> np.ndarray:
        """The parties' models end to end, without padding: (runs?, columns of all)."""
        return np.concatenate([x[..., m, :width] for m, width in enumerate(self.federation.widths)], axis=-1)

    def models(self, k: int, model: np.ndarray | None = None) -> np.ndarray:
        """The models for prediction, end to end, made after round k and charged; of length 0 where there are none.

        `model`: the server's, which is all of them if parties keep none.
        """
        nothing = self.flat(np.zeros((*self.streams.shape(self.n), self.exact.widest)))[..., :0]
        if k == 0 or not self.door.affords_models(self._everyone):
            return nothing
        kept = self._kept()
        if kept is None:
            return nothing if model is None else model[..., 0, :]
        x = self.door.models(kept, self._everyone, k)
        return nothing if x is None else self.flat(x)

    def result(self, outcome: Outcome, config: plain.Json, lasting: bool) -> Result:
        """The finished run. The models for prediction are made, and charged, here."""
        model, together = self.models(outcome.rounds, outcome.model), None
        charges = charges_of(self, outcome.rounds)
        one_release = self.task.split is not None  # of all parties: a record that changes at every one costs it once
        if charges is not None and self.door.privacy.unit == "record" and not one_release:
            # of all parties' answers, in the worst run
            together = max(accounting.epsilon(spent, self.door.privacy.delta) for spent in charges.of_all_owners())
        facts = {"together": together, "predicts": model.shape[-1] > 0, "on_labels": self.label_epsilon}
        if one_release:
            facts = {"names": self.parties.names}
            data = config["data"] | {"names": list(self.parties.names)}  # for whoever verifies the guarantee
            config = config | {"data": data}
        result = cast(VerticalResult, finished_run(self, outcome, config, lasting, model, **facts))
        if not one_release:
            return result
        if outcome.rounds == 0:
            return replace(result, stopped=_NOT_ASKED) if lasting else result
        result = replace(result, sums=opened_sums(outcome))
        return replace(result, metrics=result.metrics | self._metrics_alone(result))

    def _metrics_alone(self, result: VerticalResult) -> plain.Columns:
        """How good each party's columns alone would be, from the same sums and at no cost."""
        if self.test is None or self.n == 1:
            return {}
        what = "accuracy" if self.task.objective.loss.classification else "r2"
        return {
            f"test_{what}_{name}{ALONE}": self.test.metric(what, result.alone(m).model)
            for m, name in enumerate(self.parties.names)
        }


def _must_hold_one_kind(ledger: Ledgers, parties: int, task: Task) -> None:
    """Refuse ledgers with answers of the other kind: their costs do not add up to one number.

    Products cost a record once, whatever number of parties it is at, and its label with it. Fits cost it at each party,
    and labels apart.
    """
    if mixes_kinds((event for party in range(parties) for event in ledger.spent(party)), task):
        raise check.NoGuarantee(
            "train: these ledgers hold answers about single parties (admm-sharing) and would get products of all "
            "parties' columns (masked-moments), or the other way round, and the costs of the two do not add up to a "
            "number for one record. Use ledgers of their own, and count the epsilons together yourself"
        )


def mixes_kinds(charged: Iterable[Event], task: Task) -> bool:
    """Whether a ledger with these charges has answers of the other kind than this task asks for."""
    return any(products.is_products_event(event) != (task.split is not None) for event in charged)


def label_weight(objective: Objective, samples: int) -> float:
    """What one sample's loss counts for."""
    return 1.0 / samples if objective.scale == "mean" else 1.0


def whole_tables(task: Task, federation: VerticalFederation) -> list[np.ndarray]:
    """Each party's own table of whole numbers, the labels' slopes at their holder: what products are made of."""
    method, holder, loss = task.masked_moments, federation.holder, task.objective.loss
    y = loss.check_labels(federation.y)
    return [whole_table(method, loss, m, part, y if m == holder else None) for m, part in enumerate(federation.parts)]


def whole_table(method: MaskedMoments, loss: Loss, m: int, part: Matrix, y: np.ndarray | None) -> np.ndarray:
    """The table of party m; `y`: the labels, if it has them."""
    rows = products.whole_rows(part, method.split.longest(m), method.row_bounds[m])
    if y is None:
        return rows
    outputs = loss.outputs
    slopes = -loss.slope(np.zeros((len(y), outputs) if outputs > 1 else len(y)), y).reshape(len(y), outputs)
    return np.hstack([rows, products.whole_slopes(slopes, method.bound)])


def column_key(
    task: Task, parts: Sequence[Matrix], streams: Streams, events: Events, labels: tuple[int, np.ndarray] | None = None
) -> NoiseKey:
    """What noise is bound to where columns are split: everything that decides a party's answers.

    `labels`: the place of their holder here and the labels, if answers are about them.
    """
    digests = parts_digests(parts)
    if labels is not None and len(labels[1]):
        digests[labels[0]] ^= parts_digests([labels[1]])[0]
    return task.key(streams, digests, events)
