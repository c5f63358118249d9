"""The clients that live in this process: all of them in a simulation, one on a node."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.contract import Algorithm, ColumnOracle, LabelOracle, Layout, Oracle, Site
from sottovoce.core.plain import Columns, Json
from sottovoce.core.random.streams import Draw, Streams
from sottovoce.core.round import Exchange, Outcome, State
from sottovoce.experiment import held_out, sums
from sottovoce.experiment.errors import standard_errors
from sottovoce.experiment.evaluation import PrivateEvaluation, evaluations_of
from sottovoce.experiment.held_out import Split
from sottovoce.experiment.result import Result, VerticalResult
from sottovoce.experiment.source import TestRows
from sottovoce.experiment.task import Task, warn_about_delta
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.doors import open_door
from sottovoce.privacy.doors.releases import Sealed, Visit, quietly
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import Statement, state_guarantee
from sottovoce.privacy.noise_key import rows_digests, stable_text
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.metrics import metrics
from sottovoce.problems.objective import Objective

if TYPE_CHECKING:
    from sottovoce.experiment.parties import Apart

Ledgers = MemoryLedger | OwnerLedgers
Events = tuple[Event, ...]  # what an answer to each kind of question is
Test = tuple[TestRows, np.ndarray]  # public rows to measure on, and their labels
RESULTS: dict[Layout, type[Result]] = {"rows": Result, "columns": VerticalResult}


@dataclass
class LocalClients:
    """The clients that live in this process: all of them in a simulation, one on a node.

    Parameters
    ----------
    task
        What is asked for.
    federation
        The data of these clients.
    exact, door
        Exact answers about the data, and the only way to them.
    streams
        Random numbers of the clients, noise apart.
    ledger
        What their answers are charged to; None where nothing is counted.
    test
        Public rows and labels to measure on.
    measure_training
        Whether numbers are read off the private rows: a simulation may look.
    labels
        What the server may ask of the labels, where columns are split.
    split
        What decides which records are held out; None where none are.
    """

    task: Task
    federation: FederatedData
    exact: Any  # `Rows`, or `Columns`
    door: Any  # the `Door` that keeps the promise of the task
    streams: Streams
    ledger: Ledgers | None
    test: Test | None = None
    measure_training: bool = True
    labels: LabelOracle | None = None
    split: Split | None = None

    layout: ClassVar[Layout] = "rows"
    _zeros: Sealed | None = None  # those that the last round had

    def __post_init__(self) -> None:
        self.n, self.dim = self.federation.n, self.exact.dim
        self._everyone = np.arange(self.n)
        self._states: State = None
        self._algorithm = self.task.algorithm
        self._k = 0  # the last round

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
        test: Test | None = None,
        measure_training: bool = True,
        split: Split | None = None,
        apart: "Apart | None" = None,
    ) -> "LocalClients":
        """Clients behind their door.

        `clients`: their numbers, if not 0, 1, ...; `noise`: if not drawn like coins; `split`: what decides which
        records are held out, if not the seed; `apart`: for parties alone.
        """
        who = np.arange(federation.n) if clients is None else clients
        if task.evaluate is not None:
            split = split or Split.simulated(None, streams, who.tolist())
        federation, exact, more = cls._exact(task, federation, noise or streams, events, split, apart)
        door = open_door(task.privacy, events, ledger, exact, task.asks(), clients=who, **more)
        labels = cls.labels_of(federation, task.objective)
        return cls(task, federation, exact, door, streams, ledger, test, measure_training, labels, split)

    @classmethod
    def _exact(
        cls, task: Task, federation: FederatedData, noise: Streams, events: Events, split: Split | None,
        apart: "Apart | None",
    ) -> tuple[FederatedData, object, Json]:  # fmt: skip
        """The data that are trained on, exact answers about them, and what else their door needs."""
        whole, held = federation.as_rows("train", "is for rows here, and columns are split"), None
        rows = whole
        if split is not None:
            rows, held = held_out.set_aside(task, whole, split)
        y = task.objective.loss.check_labels(rows.y)
        exact = task.objective.oracle(rows.X, y, rows.offsets, task.engine)
        digests = rows_digests(exact.X, exact.y, exact.offsets)
        if held is not None:
            digests = rows_digests(whole.X, task.objective.loss.check_labels(whole.y), whole.offsets)
        key = task.key(noise, digests, events, exact.arithmetic, rows.row_bound)
        return rows, exact, {"key": key, "row_bound": rows.row_bound, "held": held}

    @classmethod
    def simulated(
        cls, task: Task, federation: FederatedData, ledger: Ledgers | None, streams: Streams, test: object,
        ledgers: Path | None, kept_split: str = "",
    ) -> "LocalClients":  # fmt: skip
        """All clients of a federation. `ledgers`: the folder of its ledgers, if there is one; `kept_split`: what a
        checkpoint kept of which records are held out."""
        task.objective.loss.check_both_classes(task.objective.loss.check_labels(federation.y))
        warn_about_delta(task.privacy, federation)
        events, split = cls._planned(task, federation, ledger, ledgers is not None), None
        if task.evaluate is not None:
            split = Split.simulated(ledger, streams, range(federation.n), kept_split)
        test_set = cls.test_set(task, federation, test)
        made = cls.of(task, federation, ledger, streams, events, test=test_set, split=split)
        made._randomise_labels(ledgers)
        return made

    @classmethod
    def _planned(cls, task: Task, federation: FederatedData, ledger: Ledgers | None, lasting: bool) -> Events:
        """What each answer is; noise makes up for what open ledgers, not `lasting` ones, were charged before."""
        spent = {} if ledger is None or lasting else ledger.spent_here(0)
        return task.plan(federation.sizes, max(federation.widths), spent, federation.row_bound)

    def _randomise_labels(self, ledgers: Path | None) -> None:
        """Flip labels before training, where columns are split and the promise says so."""

    @staticmethod
    def labels_of(federation: FederatedData, objective: Objective) -> LabelOracle | None:
        """What the server may ask of the labels, where columns are split."""
        return None

    @staticmethod
    def test_set(task: Task, federation: FederatedData, test: object) -> Test | None:
        """The public test rows, checked."""
        if test is None:
            return None
        if not isinstance(test, tuple) or len(test) != 2:
            rule = "test must be a pair (X, y); where columns are split X is a list with the rows of each party"
            raise check.InvalidInput(f"train: {rule}, got {check.shown(type(test).__name__)}")
        X, labels = federation.rows_like_these("test", test[0]), task.objective.loss.check_labels(test[1])
        rows = X[0].shape[0] if isinstance(X, list) else len(X)
        check.require(len(labels) == rows, "test", f"y must have one entry per row of X ({rows})", len(labels))
        return X, labels

    def start(self, algorithm: Algorithm) -> None:
        """Initialise the clients' states. Their oracles are closed: a start that reads data would be a leak."""
        self._algorithm, self._states = algorithm, self._first_states(algorithm, self._everyone)
        codec.to_arrays(self._states)

    def _first_states(self, algorithm: Algorithm, local: np.ndarray) -> State:
        return algorithm.init_client(self.site(local, np.ones(self._shape(len(local)), dtype=bool), k=0))

    def site(self, local: np.ndarray, active: np.ndarray, k: int) -> Site:
        """What these clients have in round k, before they are told anything; in round 0 their oracles are closed."""
        return self._site(local, k, *self.door.open(local, active, k, [self._sealed_zeros(len(local))]))

    def exchange(self, algorithm: Algorithm, down: State, active: np.ndarray, k: int) -> Exchange | None:
        self._k = k
        sent = self.take_part(algorithm, down, active, k)
        return sent if sent is None or not self.door.summed else sums.only_the_sum(self, down, k, sent)

    def take_part(self, algorithm: Algorithm, down: State, active: np.ndarray, k: int) -> Exchange | None:
        """What each client sends in round k; None if nobody can afford it."""
        able = self.door.able(self._everyone, k)
        if not able.any():
            return None
        active = active & able
        # With several runs at once a client works if any run asks it; runs that did not ask keep their old state.
        asked = np.flatnonzero(active if active.ndim == 1 else active.any(axis=0))
        if len(asked) == 0:
            return Exchange(None, active)
        everyone = len(asked) == self.n
        takes = active if everyone else active[..., asked]
        before, broadcast = (x if everyone else codec.rows(x, asked) for x in (self._states, down))
        after, up = self.door.take_part(self.visit(algorithm, before, broadcast, asked, takes, k))
        if everyone and takes.all():
            self._states = after
            return Exchange(up, active)
        self._states = codec.merge(self._states, after, asked, takes[..., None])
        return Exchange(codec.merge(codec.empty_rows(up, self.n), up, asked, takes[..., None]), active)

    def evaluate(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Noisy counts of held-out records at a model (runs?, 1, dim), charged; and who answered. None: nobody can."""
        k = self.task.rounds + 1
        active = self.door.able(self._everyone, k)
        asked = np.flatnonzero(active if active.ndim == 1 else active.any(axis=0))
        if len(asked) == 0:
            return None
        oracle, _ = self.door.open(asked, active[..., asked], k)
        of_asked = oracle.histogram(model)
        counts = np.zeros((*self._shape(self.n), of_asked.shape[-1]))
        counts[..., asked, :] = of_asked
        return counts, active

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Objective on the private rows (a simulation may look), loss and accuracy on the public test set."""
        w = model[..., 0, :]
        numbers: dict[str, np.ndarray] = {}
        if self.measure_training:
            numbers["objective"] = self._value(model) + self.task.objective.penalty.value(w)
        if self.test is not None:
            numbers |= self.tested(self.test_scores(w))
        if self.ledger is not None:
            of_clients = np.sort(self.ledger.epsilons(roughly=True), axis=-1)
            numbers["epsilon"] = of_clients[..., -1]  # of the client that spent most
            numbers["epsilon_median"] = (of_clients[..., (self.n - 1) // 2] + of_clients[..., self.n // 2]) / 2
            numbers["epsilon_least"] = of_clients[..., 0]
        return numbers

    def tested(self, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Loss and accuracy of scores of the public test rows."""
        assert self.test is not None
        loss, y = self.task.objective.loss, self.test[1]
        numbers = {"test_loss": loss.value(scores, y).mean(axis=-1)}
        if loss.classification:
            numbers["test_accuracy"] = (loss.predict(scores) == y).mean(axis=-1)
        return numbers

    def _value(self, model: np.ndarray) -> np.ndarray:
        """The data term on the private rows. Where there is a guarantee, no error about them: NaN takes its place."""
        if self.ledger is None:
            return self.exact.value(model).mean(axis=-1)
        with quietly(), suppress(Exception):
            return self.exact.value(model).mean(axis=-1)
        return np.full(model.shape[:-2], np.nan)

    def spent(self) -> tuple[np.ndarray | None, str]:
        """The epsilon of every client (of the worst run), and which accountant says so."""
        if self.ledger is None:
            return None, ""
        from sottovoce.privacy import accounting

        epsilons = self.ledger.epsilons().reshape(-1, self.n).max(axis=0)
        return epsilons, accounting.accountant_name(self.ledger.spent(int(np.argmax(epsilons))), self.delta)

    def models(self, k: int) -> np.ndarray:
        """The parties' models for prediction after round k, where columns are split; else there are none."""
        return np.zeros(0)

    def charges(self, rounds: int) -> Charges | None:
        """What the ledgers were charged; None where there are none."""
        if self.ledger is None:
            return None
        labels = getattr(self, "label_charges", None)
        return Charges(self.door.events, rounds, *self.ledger.histories(), self.ledger.run, labels)

    def result(self, outcome: Outcome, config: Json, lasting: bool) -> Result:
        """The finished run. Held-out records are counted, and charged, here."""
        evaluations: tuple[PrivateEvaluation, ...] = ()
        if self.task.evaluate is not None and outcome.rounds > 0:
            counted, events = self.evaluate(outcome.model), getattr(self.door, "events", ())
            if counted is not None:
                held, bound = self.door.held.sizes, self.federation.row_bound
                evaluations = evaluations_of(self.task, outcome.model[..., 0, :], *counted, held, events, bound)
        result = self.finished_run(outcome, config, lasting, outcome.model[..., 0, :])
        return replace(result, evaluations=evaluations)

    def finished_run(self, outcome: Outcome, config: Json, lasting: bool, model: np.ndarray, **facts: object) -> Result:
        """The result with its guarantee, from what the ledgers say."""
        task, charges = self.task, self.charges(outcome.rounds)
        known = self._statement(charges, lasting, forgotten="seed" not in config["run"])
        terms = task.claim_terms(self.federation.sizes, self.federation.row_bound, outcome.rounds)
        guarantee = state_guarantee(task.privacy, task.algorithm.name, outcome.rounds, known, terms, **facts)
        parts = (model, outcome.history, guarantee, outcome.rounds, outcome.stopped, task.objective, config, charges)
        result = RESULTS[self.layout](*parts, self.metrics(model), **self.federation.model_parts())
        if task.privacy.budget is None or (self.layout == "columns" and task.split is None):
            return result
        where = self.federation.sizes, self.door.events, outcome.server, outcome.rounds, self.federation.row_bound
        return replace(result, standard_errors=standard_errors(task, *where))

    def metrics(self, model: np.ndarray) -> Columns:
        """How good the finished model is on the public test rows, one entry for each run."""
        if self.test is None or model.shape[-1] == 0:
            return {}
        scores = self.task.calibration * self.test_scores(model)
        measured = metrics(self.task.objective.loss, scores, self.test[1])
        return {f"test_{name}": list(values.reshape(-1, *values.shape[model.ndim - 1 :]).tolist())
                for name, values in measured.items() if name != "accuracy"}  # fmt: skip

    def test_scores(self, model: np.ndarray) -> np.ndarray:
        """Scores of the public test rows."""
        assert self.test is not None
        return self.task.objective.loss.scores(cast(np.ndarray, self.test[0]), model)

    def _statement(self, charges: Charges | None, lasting: bool, forgotten: bool) -> Statement | None:
        """What is known of a finished run with a budget."""
        epsilons, accountant = self.spent()
        if epsilons is None or charges is None:
            return None
        of_all = None
        if charges.repetitions > 1:
            from sottovoce.privacy import accounting

            of_all = accounting.epsilon(charges.of_all_repetitions(), self.delta or 0.0)
        kinds = self.task.asks().kinds
        return Statement(epsilons, accountant, charges, kinds, lasting, forgotten=forgotten, of_all=of_all)

    @cached_property
    def digest(self) -> str:
        """Changes with anything that answers depend on: task, noise, engine, rows, and which of them are held out."""
        task, bound = replace(self.task, engine="auto"), self.federation.row_bound
        parts = (task, getattr(self.door, "events", ()), getattr(self.exact, "engine", ""), bound)
        split = "" if self.split is None else self.split.digest
        return hashlib.sha256(stable_text(parts).encode() + self.door.key.rows.tobytes() + split.encode()).hexdigest()

    @property
    def delta(self) -> float | None:
        """Of the budget; None where there is none."""
        budget = self.task.privacy.budget
        return None if budget is None else budget[1]

    def close(self) -> None:
        """Let go of ledger files."""
        if self.ledger is not None:
            self.ledger.close()

    def snapshot(self) -> dict[str, np.ndarray]:
        states = {f"client.{name}": array for name, array in codec.to_arrays(self._states).items()}
        states["task"] = np.asarray(self.digest)
        if self.split is not None and self.split.drawn:
            states["split"] = np.asarray(self.split.drawn)
        if self.ledger is not None:
            states |= {f"ledger.{name}": array for name, array in self.ledger.state().items()}
        return states

    def restore(self, algorithm: Algorithm, arrays: dict[str, np.ndarray]) -> None:
        """Take up a snapshot of this same task; `algorithm` says what a client's state looks like."""
        same = str(arrays.get("task", self.digest)) == self.digest
        rule = "a checkpoint belongs to another task, engine, rows or held-out records: answers would be given twice"
        check.require(same, "train", rule, hint="Go on with what it began with, or start anew")
        self.start(algorithm)
        self._states = codec.from_arrays(type(self._states), codec.under("client.", arrays), like=self._states)
        if self.ledger is not None:
            self.ledger.restore(codec.under("ledger.", arrays))

    def visit(
        self, algorithm: Algorithm, before: State, broadcast: State, local: np.ndarray, active: np.ndarray, k: int
    ) -> Visit:
        """One round of some clients. They must not change the broadcast, so it is sealed."""
        zeros, arrays = self._sealed_zeros(len(local)), codec.to_arrays(broadcast)
        sealed = {name: Sealed(array) for name, array in arrays.items()}
        broadcast = type(broadcast)(**{name: part.given for name, part in sealed.items()})
        oracle, releases = self.door.open(local, active, k, [zeros, *sealed.values()])
        return Visit(
            before=before,
            clients=len(local),
            start=lambda: self._first_states(algorithm, local),
            oracle=oracle,
            releases=releases,
            zeros=zeros.given,
            play=lambda states, f, release: algorithm.client(states, broadcast, self._site(local, k, f, release)),
            alone=lambda place: self.visit(
                algorithm,
                codec.rows(before, np.array([place])),
                codec.rows(broadcast, np.array([place])),
                local[place : place + 1],
                active[..., place : place + 1],
                k,
            ),
        )

    def _site(
        self, local: np.ndarray, k: int, oracle: Oracle | ColumnOracle, release: Callable[..., np.ndarray]
    ) -> Site:
        who = self.door.clients[local]
        return Site(
            f=oracle,
            penalty=self.task.objective.penalty,
            # A plain function: an attribute of the site must not lead back to the rows.
            release=lambda u, noise=None, centre=None: release(u, noise, centre),
            rng=Draw(self.streams, who, k),
            k=k,
            who=who,
            claim=self.task.privacy.claim,
            zeros=self._sealed_zeros(len(local)).given,
        )

    def _sealed_zeros(self, clients: int) -> Sealed:
        shape = (*self._shape(clients), self.dim)
        if self._zeros is None or self._zeros.given.shape != shape:
            self._zeros = Sealed(np.zeros(shape))
        return self._zeros

    def _shape(self, clients: int) -> tuple[int, ...]:
        return (clients,) if self.streams.runs is None else (self.streams.runs, clients)
