"""The clients that live in this process: all of them in a simulation, one on a node."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import everyone, unwritable
from sottovoce.core.contract import LabelOracle, Layout
from sottovoce.core.plain import Json
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Outcome
from sottovoce.experiment import held_out
from sottovoce.experiment.evaluation import PrivateEvaluation, evaluations_of
from sottovoce.experiment.finished import finished_run
from sottovoce.experiment.public_test import Pair, PublicTest
from sottovoce.experiment.result import Result
from sottovoce.experiment.rounds import ClientRounds, Ledgers
from sottovoce.experiment.task import Task
from sottovoce.ledger.histories import History
from sottovoce.privacy.doors import open_door
from sottovoce.privacy.doors.releases import quietly
from sottovoce.privacy.events import Event
from sottovoce.privacy.noise_key import rows_digests
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.objective import Objective

Events = tuple[Event, ...]  # what an answer to each kind of question is


class Apart(NamedTuple):
    """An owner of columns whose products with others are computed between machines."""

    shares: Callable[[], np.ndarray]  # its contribution to all products, (1, size) of 64 bits
    labels: tuple[int, np.ndarray] | None  # (0, labels) at their holder: what its noise is bound to


@dataclass(kw_only=True)
class LocalClients(ClientRounds):
    """The clients that live in this process: all of them in a simulation, one on a node.

    Parameters
    ----------
    test
        Public rows to measure on.
    measure_training
        Whether numbers are read off the private rows: a simulation may look.
    labels, label_charges
        Where columns are split: what the server may ask of the labels, and what was charged for them.
    """

    test: PublicTest | None = None
    measure_training: bool = True
    labels: LabelOracle | None = None
    label_charges: History | None = None

    layout: ClassVar[Layout] = "rows"

    @classmethod
    def of(
        cls,
        task: Task,
        federation: FederatedData,
        ledger: Ledgers | None,
        streams: Streams,
        events: Events,
        clients: np.ndarray | None = None,
        noise: Streams | None = None,
        test: Pair | None = None,
        measure_training: bool = True,
        split: held_out.Split | None = None,
        apart: Apart | None = None,
    ) -> "LocalClients":
        """Clients behind their door.

        `clients`: their numbers, if not 0, 1, ...; `noise`: if not drawn like coins; `split`: what decides which
        records are held out, if not the seed; `apart`: for parties alone.
        """
        who = everyone(federation.n) if clients is None else unwritable(np.asarray(clients, np.int64))
        if task.evaluate is not None:
            split = split or held_out.Split.simulated(None, streams, who.tolist())
        federation, exact, more = cls._exact(task, federation, noise or streams, events, split, apart)
        door = open_door(task.privacy, events, ledger, exact, task.asks(), clients=who, **more)
        labels = cls.labels_of(federation, task.objective)
        rows = None if test is None else PublicTest.of(task, federation, test)
        return cls(
            task=task, federation=federation, exact=exact, door=door, streams=streams, ledger=ledger, split=split,
            test=rows, measure_training=measure_training, labels=labels,
        )  # fmt: skip

    @classmethod
    def _exact(
        cls, task: Task, federation: FederatedData, noise: Streams, events: Events, split: held_out.Split | None,
        apart: Apart | None,
    ) -> tuple[FederatedData, object, Json]:  # fmt: skip
        """The data that are trained on, exact answers about them, and what else their door needs."""
        whole, held = federation.as_rows("train", "is for rows here, and columns are split"), None
        rows = whole
        if split is not None:
            rows, held = held_out.set_aside(task, whole, split)
        exact = task.objective.oracle(rows.X, task.objective.loss.check_labels(rows.y), rows.offsets, task.engine)
        digests = rows_digests(exact.X, exact.y, exact.offsets)
        if held is not None:
            digests = rows_digests(whole.X, task.objective.loss.check_labels(whole.y), whole.offsets)
        key = task.key(noise, digests, events, exact.arithmetic, rows.row_bound)
        return rows, exact, {"key": key, "row_bound": rows.row_bound, "held": held}

    @classmethod
    def planned(cls, task: Task, federation: FederatedData, ledger: Ledgers | None, lasting: bool) -> Events:
        """What each answer is; noise makes up for what open ledgers, not `lasting` ones, were charged before."""
        spent = {} if ledger is None or lasting else ledger.spent_here(0)
        return task.plan(federation.sizes, max(federation.widths), spent, federation.row_bound)

    def randomise_labels(self, ledgers: Path | None) -> None:
        """Flip labels before training, where columns are split and the promise says so."""

    @staticmethod
    def labels_of(federation: FederatedData, objective: Objective) -> LabelOracle | None:
        """What the server may ask of the labels, where columns are split."""
        return None

    def evaluate(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Noisy counts of held-out records at a model (runs?, 1, dim), charged; and who answered. None: nobody can."""
        k = self.task.rounds + 1
        active = self.door.able(self._everyone, k)
        asked = np.flatnonzero(active if active.ndim == 1 else active.any(axis=0))
        if len(asked) == 0:
            return None
        oracle, _ = self.door.open(asked, active[..., asked], k)
        of_asked = oracle.histogram(model)
        counts = np.zeros((*self.streams.shape(self.n), of_asked.shape[-1]))
        counts[..., asked, :] = of_asked
        return counts, active

    def measure(self, model: np.ndarray) -> Mapping[str, ArrayLike]:
        """Objective on the private rows (a simulation may look), loss and accuracy on the public test set."""
        w = model[..., 0, :]
        numbers: dict[str, ArrayLike] = {}
        if self.measure_training:
            numbers["objective"] = self._value(model) + self.task.objective.penalty.value(w)
        if self.test is not None:
            numbers |= self.test.measured(w)
        if self.ledger is not None:
            most, median, least = self.ledger.spread()
            numbers |= {"epsilon": most, "epsilon_median": median, "epsilon_least": least}
        return numbers

    def _value(self, model: np.ndarray) -> np.ndarray:
        """The data term on the private rows. Where there is a guarantee, no error about them: NaN takes its place."""
        if self.ledger is None:
            return self.exact.value(model).mean(axis=-1)
        with quietly(), suppress(Exception):
            return self.exact.value(model).mean(axis=-1)
        return np.full(model.shape[:-2], np.nan)

    def models(self, k: int) -> np.ndarray:
        """The parties' models for prediction after round k, where columns are split; else there are none."""
        return np.zeros(0)

    def result(self, outcome: Outcome, config: Json, lasting: bool) -> Result:
        """The finished run. Held-out records are counted, and charged, here."""
        evaluations: tuple[PrivateEvaluation, ...] = ()
        if self.task.evaluate is not None and outcome.rounds > 0:
            counted, events = self.evaluate(outcome.model), getattr(self.door, "events", ())
            if counted is not None:
                held, bound = self.door.held.sizes, self.federation.row_bound
                evaluations = evaluations_of(self.task, outcome.model[..., 0, :], *counted, held, events, bound)
        result = finished_run(self, outcome, config, lasting, outcome.model[..., 0, :])
        return replace(result, evaluations=evaluations)
