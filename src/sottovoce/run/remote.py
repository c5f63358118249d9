"""The server's half of a deployment: the one loop of `core/round.py` over clients on other machines.

What carries the messages is a `Post` (`flower.py`); here is what must hold whatever carries them. An answer counts if
it came in time, is the first, and has the shape and the finite numbers it must have; all else is silence with a reason.
A checkpoint is on disk after every round, so a stopped server goes on where it was: it asks the same question again,
and a client that answered it sends the same answer.

    [clients]  names (their order is their number), columns, row_bound; deadline and wait in seconds; least = answers a
               round needs; test = a public CSV file with label and labels, to measure on
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core import round as loop
from sottovoce.core.algorithm import Algorithm
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.round import Checkpoint, Exchange
from sottovoce.core.streams import Streams
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import state_guarantee
from sottovoce.privacy.ledger import Budget, MemoryLedger, pack_event
from sottovoce.privacy.modes import Proven
from sottovoce.privacy.proven import plan
from sottovoce.problems.federation import Federation
from sottovoce.run import experiment, node, store, wire
from sottovoce.run.csv_rows import coded, label_text, read_csv
from sottovoce.run.describe import Tables, describe, plain_fields, to_toml
from sottovoce.run.experiment import Task
from sottovoce.run.simulate import Result, Simulator
from sottovoce.run.wire import Ask, Reply, Status

log = logging.getLogger("sottovoce")
_TOLD = ("objective", "algorithm", "privacy", "participation")


class TooFewAnswers(SottovoceError):
    """A round did not get the answers it needs; the checkpoint of the round before it is kept."""


class Post(Protocol):
    """Carries questions and brings back what came before the deadline; whoever is missing in it was silent."""

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> Mapping[int, Reply]: ...
    def statuses(self, wait: float) -> Mapping[int, Status]: ...


@dataclass(frozen=True)
class Clients:
    """[clients]: who takes part, and how long the server waits for them."""

    names: tuple[str, ...]
    columns: int
    row_bound: float | None = None
    deadline: float = 300.0
    wait: float = 600.0
    least: int = 1
    test: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.require(len(self.names) > 0, "clients", "names must name somebody")
        check.require(len(set(self.names)) == len(self.names), "clients", "names must be distinct", list(self.names))
        check.whole("clients", columns=self.columns, least=self.least)
        fits = self.least <= len(self.names)
        check.require(fits, "clients", f"least must be at most the number of clients ({len(self.names)})", self.least)
        check.positive("clients", deadline=self.deadline, wait=self.wait)
        if self.row_bound is not None:
            check.positive("clients", row_bound=self.row_bound)
        check.require(bool(self.test) == bool(self.label), "clients", "label = a column goes with test = a CSV file")


@dataclass(frozen=True)
class Deployment:
    """All that the server needs to know before it meets the clients."""

    clients: Clients
    task: Task
    tables: Tables  # of the task, every default written out
    test: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @classmethod
    def build(cls, tables: Tables, file: str, folder: Path = Path()) -> "Deployment":
        """From the tables of a run file; noise is secure unless it says otherwise."""
        check.require("clients" in tables, file, "needs a table [clients]")
        given = dict(tables["clients"])
        if isinstance(given.get("labels"), list):
            given["labels"] = [label_text(label) for label in given["labels"]]
        if isinstance(given.get("test"), str) and given["test"]:
            given["test"] = str((folder / Path(given["test"]).expanduser()).resolve())
        clients = experiment.from_table(Clients, given, f"{file}, [clients]")
        privacy = {"noise": "secure"} if tables.get("privacy", {}).get("mode") == "proven" else {}
        tables = tables | {"privacy": privacy | tables.get("privacy", {})}
        task = experiment.build_task(tables, file)
        one_run = task.settings.runs == 0 and not task.settings.ledgers
        check.require(one_run, f"{file}, [run]", "runs and ledgers are for simulations: leave them out")
        mode, algorithm = task.privacy.mode, task.algorithm
        node.refuse_columns(algorithm)
        check.require(
            mode in algorithm.modes, file, f"{algorithm.name} has no {mode!r} variant; it has", sorted(algorithm.modes)
        )
        algorithm.check(task.objective.penalty)
        described = describe(
            algorithm, _blank(clients), task.objective, task.privacy, task.participation, task.settings.engine
        )
        told = {name: described[name] for name in _TOLD} | {"run": plain_fields(task.settings)}
        made = cls(clients, task, {"clients": plain_fields(clients), **told}, _test_set(clients, task))
        made.stand_in(made.event(np.full(len(clients.names), 2)))
        return made

    def event(self, sizes: np.ndarray) -> Event | None:
        """What an answer is, with the least noise the budget allows."""
        task = self.task
        if not isinstance(task.privacy, Proven):
            return None
        return plan(task.privacy, task.algorithm.asks(), task.participation.most(task.settings.rounds), sizes)

    def stand_in(self, event: Event | None) -> Simulator:
        """A client without data behind its real door: errors that every client would meet are met here."""
        task, privacy = self.task, self.task.privacy
        ledger = MemoryLedger(Budget(privacy.epsilon, privacy.delta), (1,)) if isinstance(privacy, Proven) else None
        X, y = np.zeros((2, self.clients.columns)), node.blank_labels(task.objective.loss)
        place = node.alone(task, event, X, y, 0, self.clients.row_bound, ledger, engine="numpy")
        place.start(task.algorithm)
        place.ledger, place.test = None, self.test
        return place


class Remote:
    """Transport: clients on other machines.

    Parameters
    ----------
    deployment
        What is trained, and with whom.
    name
        Of the experiment: 32 hex digits.
    post
        Carries the messages.
    sizes
        How many records each client has (public).
    """

    def __init__(self, deployment: Deployment, name: str, post: Post, sizes: np.ndarray) -> None:
        self.n, self._deployment, self._name, self._post = len(deployment.clients.names), deployment, name, post
        self.event = deployment.event(sizes)
        self._blank = deployment.stand_in(self.event)
        self._likes = node.rehearse(deployment.task, deployment.clients.columns, deployment.clients.row_bound)
        self.dim = self._blank.dim
        self._spent = np.zeros(self.n, dtype=bool)
        told = {table: columns for table, columns in deployment.tables.items() if table != "clients"}
        self._task, self._event = to_toml(told), "" if self.event is None else json.dumps(pack_event(self.event))

    def start(self, algorithm: Algorithm) -> None:
        """Nothing to do: a client starts by itself when it is first asked."""

    def exchange(self, algorithm: Algorithm, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        asked = np.flatnonzero(active & ~self._spent)
        asks = {int(client): self._ask(int(client), codec.rows(down, np.array([client])), k) for client in asked}
        replies = self._post.ask(asks, self._deployment.clients.deadline) if asks else {}
        looks = wire.shapes(codec.rows(down, np.zeros(1, dtype=np.intp)))
        like = next(answer for broadcast, answer in self._likes if wire.shapes(broadcast) == looks)
        up, answered, silent = codec.empty_rows(like, self.n), np.zeros(self.n, dtype=bool), {}
        for client in asks:
            reply = replies.get(client, Reply(wire.TIMEOUT, "it did not answer in time"))
            try:
                if not reply.code:
                    self._put(up, client, wire.unpack(reply.up, like))
                    answered[client] = True
            except InvalidInput as error:
                reply = Reply(wire.BAD_ANSWER, str(error)[:300])
            if reply.code:
                self._spent[client] |= reply.code == wire.BUDGET
                silent[client] = f"{self._deployment.clients.names[client]}: {reply.told()}"
        for line in silent.values():
            log.warning("round %d: %s", k, line)
        if self._spent.all():
            return None
        needed = min(self._deployment.clients.least, int((active & ~self._spent).sum()))
        if answered.sum() < needed:
            raise TooFewAnswers(
                f"round {k}: {int(answered.sum())} of {len(asks)} clients answered and at least {needed} must. "
                f"Run the app again to go on from round {k}. Silent: {'; '.join(silent.values())}"
            )
        return Exchange(up if answered.any() else None, answered)

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Loss and accuracy on the public test set; nothing of private rows."""
        return self._blank.measure(model)

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"spent": self._spent.astype(np.float64)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._spent = np.asarray(arrays["spent"]) > 0

    def _ask(self, client: int, down: Any, k: int) -> Ask:
        bound = self._deployment.clients.row_bound or 0.0
        return Ask(self._name, client, k, self._task, self._event, bound, wire.pack(down))

    @staticmethod
    def _put(up: Any, client: int, answer: Any) -> None:
        for name, array in codec.to_arrays(answer).items():
            getattr(up, name)[..., client, :] = array[..., 0, :]


def serve(
    deployment: Deployment,
    name: str,
    post: Post,
    folder: Path,
    after_round: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Result:
    """Train over the clients behind `post`, from the start or from the checkpoint in `folder`, and save the run."""
    clients, task = deployment.clients, deployment.task
    blank = _blank(clients)
    config = deployment.tables | {"clients": deployment.tables["clients"] | {"experiment": name}}
    resume = None
    if folder.is_dir() and any(folder.iterdir()):
        resume = store.load_checkpoint(folder, task.algorithm, blank, task.objective, config)
    batches = bool(task.algorithm.asks().batch)
    met = post.statuses(clients.wait)
    _must_fit(deployment, met, len(clients.names) if batches else clients.least)
    # Without batches noise does not depend on sizes: a client that is late for the first round is no hindrance.
    sizes = np.array([met[i].size if batches else 1 for i in range(len(clients.names))])
    remote = Remote(deployment, name, post, sizes)
    keep = store.Checkpoints(folder, config, blank, last=resume)
    if resume is not None:
        log.info("going on after round %d", resume.k)
        remote.restore(resume.clients)

    def kept(checkpoint: Checkpoint) -> None:
        keep.last = checkpoint
        keep.write()
        after_round(checkpoint)

    assert task.settings.seed is not None
    outcome = loop.train(
        task.algorithm,
        remote,
        rounds=task.settings.rounds,
        penalty=task.objective.penalty,
        participation=task.participation,
        streams=Streams(task.settings.seed),
        resume=resume,
        record_every=task.settings.record_every,
        after_round=kept,
    )
    check.require(outcome.rounds > 0, "app", f"no round could be done, {outcome.stopped}")
    last = dict(met) | dict(post.statuses(wait=0))
    guarantee = _guarantee(deployment, outcome.rounds, last, remote.event)
    result = Result(
        outcome.model[..., 0, :], outcome.history, guarantee, outcome.rounds, outcome.stopped, task.objective, config
    )
    store.save(result, folder)
    return result


def _guarantee(deployment: Deployment, rounds: int, last: Mapping[int, Status], event: Event | None) -> Any:
    """The statement, from what the clients' own ledgers say; of a client that says nothing, from its limit."""
    task, clients = deployment.task, deployment.clients
    epsilons, accountant = None, ""
    if event is not None and isinstance(task.privacy, Proven):
        from sottovoce.privacy import accounting

        worst = max((status.limit for status in last.values()), default=task.privacy.epsilon)
        epsilons = np.array([last[i].epsilon if i in last else worst for i in range(len(clients.names))])
        accountant = accounting.accountant_name({event: rounds}, task.privacy.delta)
    kind = task.algorithm.asks().kind
    sizes = np.array([last[i].size if i in last else 1 for i in range(len(clients.names))])
    return state_guarantee(
        task.privacy,
        task.algorithm.name,
        rounds,
        epsilons,
        accountant,
        lasting=True,
        row_bound=clients.row_bound if kind in ("prox-steps", "descent") else None,
        claim_terms=task.algorithm.claim_terms(sizes, rounds),
    )


def _must_fit(deployment: Deployment, met: Mapping[int, Status], least: int) -> None:
    if len(met) < least:
        missing = [name for client, name in enumerate(deployment.clients.names) if client not in met]
        why = "; batches are drawn, so the noise depends on everyone's size" if least > deployment.clients.least else ""
        raise TooFewAnswers(
            f"app: {len(met)} clients are there and {least} must be{why}. Missing: {', '.join(missing)}"
        )
    for client, status in met.items():
        name, columns = deployment.clients.names[client], deployment.clients.columns
        check.require(status.columns == columns, f"client {name!r}", f"must have {columns} columns", status.columns)


def _blank(clients: Clients) -> Federation:
    """A row of zeros for each client: stands for the federation where only its shape matters."""
    n = len(clients.names)
    return Federation(np.zeros((n, clients.columns)), np.zeros(n), np.arange(n + 1), clients.names, clients.row_bound)


def _test_set(clients: Clients, task: Task) -> tuple[np.ndarray, np.ndarray] | None:
    if not clients.test:
        return None
    X, texts, _ = read_csv(Path(clients.test), clients.label, "")
    fits = X.shape[1] == clients.columns
    check.require(fits, Path(clients.test).name, f"must have {clients.columns} columns besides the label", X.shape[1])
    loss = task.objective.loss
    y, _ = coded(texts, clients.labels, loss, f"{Path(clients.test).name}, column {clients.label!r}")
    return X, loss.check_labels(y)
