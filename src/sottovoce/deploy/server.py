"""The server's half of a deployment: the one loop of `core/round.py` over clients on other machines.

What carries the messages is a `Post` (`flower.py`); here is what must hold whatever carries them. An answer counts if
it came in time, is the first, and has the shape and the finite numbers it must have; all else is silence with a reason.
A checkpoint is on disk after every round, so a stopped server goes on where it was: it asks the same question again,
and a client that answered it sends the same answer.

    [clients]  names (their order is their number), columns, row_bound; deadline and wait in seconds; least = answers a
               round needs; test = a public CSV file with label and labels, to measure on.
               Where columns are split: split = the columns of each party, samples, holder = who has the labels
"""

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core import round as loop
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.contract import Algorithm, LabelOracle
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint, Exchange
from sottovoce.deploy import label_holder as party
from sottovoce.deploy import node, wire
from sottovoce.deploy.reported_charges import charged, shown_by, together
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment import columns as vertical
from sottovoce.experiment import experiment, store
from sottovoce.experiment.csv_file import coded, label_text, read_csv
from sottovoce.experiment.experiment import Task
from sottovoce.experiment.local import Result, Simulator, claim_terms
from sottovoce.experiment.to_tables import Tables, describe, plain_fields, to_toml
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy.doors.party import plan_parties
from sottovoce.privacy.doors.record import plan
from sottovoce.privacy.events import Event, pack_event
from sottovoce.privacy.guarantee import state_columns_guarantee, state_guarantee
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.problems.federation import Federation
from sottovoce.problems.rows import engine_for
from sottovoce.problems.vertical import VerticalFederation

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
    columns: int | None = None
    row_bound: float | None = None
    deadline: float = 300.0
    wait: float = 600.0
    least: int = 1
    test: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    split: tuple[int, ...] = ()
    samples: int | None = None
    holder: str = ""

    def __post_init__(self) -> None:
        check.require(len(self.names) > 0, "clients", "names must name somebody")
        check.require(len(set(self.names)) == len(self.names), "clients", "names must be distinct", list(self.names))
        check.whole("clients", least=self.least)
        if self.split:
            self._check_split()
        else:
            check.require(self.columns is not None, "clients", "needs columns = ... (or split, where they are split)")
            check.whole("clients", columns=self.columns or 0)
            for key in ("samples", "holder"):
                check.require(not getattr(self, key), "clients", f"{key} goes with split = the columns of each party")
        fits = self.least <= len(self.names)
        check.require(fits, "clients", f"least must be at most the number of clients ({len(self.names)})", self.least)
        check.positive("clients", deadline=self.deadline, wait=self.wait)
        if self.row_bound is not None:
            check.positive("clients", row_bound=self.row_bound)
        check.require(bool(self.test) == bool(self.label), "clients", "label = a column goes with test = a CSV file")

    def _check_split(self) -> None:
        n = len(self.names)
        check.require(len(self.split) == n, "clients", f"split must have one number for each of the {n}", self.split)
        check.require(self.samples is not None, "clients", "split needs samples = how many there are, at every party")
        check.whole(
            "clients", samples=self.samples or 0, **{f"split[{m}]": width for m, width in enumerate(self.split)}
        )
        check.one_of("clients", "holder", self.holder, self.names)
        for key in ("columns", "row_bound", "test"):
            check.require(not getattr(self, key), "clients", f"split shares out columns: leave {key}, for rows, out")

    @property
    def holding(self) -> int:
        """The number of the label holder."""
        return self.names.index(self.holder)


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
        task = _with_coins(task, file)
        mode, algorithm, split = task.privacy.mode, task.algorithm, party.is_vertical(task)
        needs = "columns that are split: give split, samples and holder" if split else "rows: give columns, not split"
        check.require(bool(clients.split) == split, f"{file}, [clients]", f"{algorithm.name} is for {needs}")
        known = ", ".join(sorted(algorithm.modes))
        check.require(mode in algorithm.modes, file, f"{algorithm.name} has no {mode!r} variant (it has: {known})")
        algorithm.check(task.objective.penalty)
        described = describe(
            algorithm, blank(clients, task), task.objective, task.privacy, task.participation, task.settings.engine
        )
        told = {name: described[name] for name in _TOLD} | {"run": plain_fields(task.settings)}
        made = cls(clients, task, {"clients": plain_fields(clients), **told}, _test_set(clients, task))
        made.stand_in(made.event(np.full(len(clients.names), 2)))
        return made

    def event(self, sizes: np.ndarray) -> Event | None:
        """What an answer is, with the least noise the budget allows."""
        asks, rounds = self.task.algorithm.asks(), self.task.participation.most(self.task.settings.rounds)
        privacy: Any = self.task.privacy
        if isinstance(privacy, ProvenColumns):
            return plan_parties(privacy, asks, rounds)
        bound = self.clients.row_bound
        return plan(privacy, asks, rounds, sizes, row_bound=bound) if isinstance(privacy, Proven) else None

    def stand_in(self, event: Event | None) -> Simulator:
        """A client without data behind its real door: errors that every client would meet are met here."""
        task, privacy = self.task, self.task.privacy
        if self.clients.split:
            parts = (task.algorithm, blank(self.clients, task), task.objective, privacy, task.participation)
            return vertical.assemble(*parts, task.settings.rounds, Streams(0), None)  # type: ignore[arg-type]
        ledger = MemoryLedger(Budget(privacy.epsilon, privacy.delta), (1,)) if isinstance(privacy, Proven) else None
        X, y = np.zeros((2, self.clients.columns or 0)), party.blank_labels(task.objective.loss, 2)
        place = node.alone(task, event, X, y, 0, self.clients.row_bound, ledger, engine="numpy")
        place.start(task.algorithm)
        place.ledger, place.test = None, self.test
        return place


def _with_coins(task: Task, file: str) -> Task:
    """A task with a seed: of the coins that everyone may see. Noise must not follow from one that nobody stated."""
    if task.settings.seed is not None:
        return task
    secret = getattr(task.privacy, "noise", "seeded") == "secure" or task.privacy.mode == "none"
    hint = "State [run] seed, for a test; or leave [privacy] noise out: it is then secure"
    check.require(secret, f"{file}, [run]", "noise that follows from a seed needs a stated one", hint=hint)
    return replace(task, settings=replace(task.settings, seed=secrets.randbits(63)))


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
    engine, rows
        What clients compute with; "auto" is decided here for all of them, by how many rows they have together.
    """

    def __init__(
        self, deployment: Deployment, name: str, post: Post, sizes: np.ndarray, engine: str = "auto", rows: int = 0
    ) -> None:
        self.n, self._deployment, self._name, self._post = len(deployment.clients.names), deployment, name, post
        self.event = deployment.event(sizes)
        self._blank, who = deployment.stand_in(self.event), deployment.clients
        self._likes = node.rehearse(deployment.task, who.columns or who.samples or 0, who.row_bound)
        self.dim, self._k = self._blank.dim, 0
        if isinstance(self._blank, vertical.VerticalSimulator):  # `train` gives this to the algorithm as `hub.labels`
            self.labels: LabelOracle = replace(self._blank.labels, prox=self._prox, slope=self._slope)
        self._spent = np.zeros(self.n, dtype=bool)
        self.limits = np.full(self.n, np.inf)  # of clients, as they said it last
        self.heard = np.zeros(self.n, dtype=bool)  # who has answered in any round
        told = {table: columns for table, columns in deployment.tables.items() if table != "clients"}
        self.engine = engine_for(engine, rows, self._blank.dim)
        told["run"] = told["run"] | {"engine": self.engine}
        self._task, self._event = to_toml(told), "" if self.event is None else json.dumps(pack_event(self.event))

    def start(self, algorithm: Algorithm) -> None:
        """Nothing to do: a client starts by itself when it is first asked."""

    def exchange(self, algorithm: Algorithm, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        self._k = k
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
        self.heard |= answered
        return Exchange(up if answered.any() else None, answered)

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Loss and accuracy on the public test set; nothing of private rows. Parties' models are not known yet."""
        return {} if self._deployment.clients.split else self._blank.measure(model)

    def models(self, k: int) -> np.ndarray:
        """The parties' models after round k, end to end; of length 0 where one cannot be had for its budget."""
        widths, deadline = self._deployment.clients.split, self._deployment.clients.deadline
        if not getattr(self._deployment.task.privacy, "model", True):
            return np.zeros(0)
        asks = {client: self._ask(client, None, k, wire.MODEL) for client in range(self.n)}
        replies, models, silent = self._post.ask(asks, deadline), [], []
        for client, width in enumerate(widths):
            reply, values = self._read(replies.get(client), np.zeros((1, width)))
            if reply.code in (wire.BUDGET, wire.LOST, wire.STATE):
                log.warning("no model: %s: %s", self._deployment.clients.names[client], reply.told())
                return np.zeros(0)
            silent += [f"{self._deployment.clients.names[client]}: {reply.told()}"] if reply.code else []
            models.append(values[0])
        if silent:
            raise TooFewAnswers(
                f"after round {k}: every party's model is needed. Run the app again to ask for them. "
                f"Silent: {'; '.join(silent)}"
            )
        return np.concatenate(models)

    def _prox(self, v: np.ndarray, rho: np.ndarray) -> np.ndarray:
        return self._about_labels(party.Prox(v, rho), wire.PROX, v)

    def _slope(self, scores: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        asked = party.Slope(scores) if rows is None else party.SlopeAt(scores, rows)
        return self._about_labels(asked, wire.SLOPE, scores)

    def _about_labels(self, question: Any, what: str, like: np.ndarray) -> np.ndarray:
        """One more exchange in the round, with the label holder alone. Without its answer there is no round."""
        clients = self._deployment.clients
        ask = self._ask(clients.holding, question, self._k, what)
        replies = self._post.ask({clients.holding: ask}, clients.deadline)
        reply, values = self._read(replies.get(clients.holding), like)
        if reply.code:
            raise TooFewAnswers(
                f"round {self._k}: nothing was heard of the labels. Run the app again to go on from round {self._k}. "
                f"Silent: {clients.holder}: {reply.told()}"
            )
        return values

    @staticmethod
    def _read(reply: Reply | None, like: np.ndarray) -> tuple[Reply, np.ndarray]:
        """What was said, and its values; or why there are none."""
        reply = reply or Reply(wire.TIMEOUT, "it did not answer in time")
        try:
            return reply, like if reply.code else wire.unpack(reply.up, party.Values(like)).values
        except InvalidInput as error:
            return Reply(wire.BAD_ANSWER, str(error)[:300]), like

    def snapshot(self) -> dict[str, np.ndarray]:
        known = {"spent": self._spent.astype(np.float64), "limits": self.limits.copy(), "heard": self.heard.copy()}
        return known | {"engine": np.asarray(self.engine)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._spent = np.asarray(arrays["spent"]) > 0
        self.limits, self.heard = np.array(arrays["limits"]), np.asarray(arrays["heard"]) > 0

    def _ask(self, client: int, down: Any, k: int, what: str = wire.ROUND) -> Ask:
        bound = self._deployment.clients.row_bound or 0.0
        told = {} if down is None else wire.pack(down)
        return Ask(self._name, client, k, self._task, self._event, bound, what, told)

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
    nobody = blank(clients, task)
    config = deployment.tables | {"clients": deployment.tables["clients"] | {"experiment": name}}
    if clients.split:  # where a result is looked for whose model is in parts
        config["data"] = {"source": "arrays", "rows": clients.samples, "split": list(clients.split)}
    resume = None
    if folder.is_dir() and any(folder.iterdir()):
        resume = store.load_checkpoint(folder, task.algorithm, nobody, task.objective, config)
    batches = bool(task.algorithm.asks().batch)
    met = post.statuses(clients.wait)
    _must_fit(deployment, met, len(clients.names) if batches or clients.split else clients.least)
    # Without batches noise does not depend on sizes: a client that is late for the first round is no hindrance.
    sizes = np.array([met[i].size if batches else 1 for i in range(len(clients.names))])
    # A run that goes on keeps its engine, whoever is there now: engines agree to rounding only.
    engine = task.settings.engine if resume is None else str(resume.clients.get("engine", task.settings.engine))
    remote = Remote(deployment, name, post, sizes, engine, sum(status.size for status in met.values()))
    keep = store.Checkpoints(folder, config, nobody, last=resume)
    if resume is not None:
        log.info("going on after round %d", resume.k)
        remote.restore(resume.clients)
    for client, status in met.items():
        remote.limits[client] = status.limit

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
    model = remote.models(outcome.rounds) if clients.split else outcome.model[..., 0, :]
    last = post.statuses(wait=0)
    predicts = model.shape[-1] > 0
    limits = np.where(remote.heard | np.isfinite(remote.limits), remote.limits, 0.0)
    charges = None
    if remote.event is not None:
        heard = [last.get(i) for i in range(len(clients.names))]
        charges = charged(task.privacy, remote.event, outcome.rounds, name, clients.names, heard, limits)
    guarantee = _guarantee(deployment, outcome.rounds, met, last, charges, predicts)
    never = [who for i, who in enumerate(clients.names) if not remote.heard[i] and not np.isfinite(remote.limits[i])]
    guarantee = guarantee.leaving_out(*(f"anything of {who}, who was never heard of in this run" for who in never))
    whole = (model, outcome.history, guarantee, outcome.rounds, outcome.stopped, task.objective, config, charges)
    result = vertical.VerticalResult(*whole, widths=clients.split) if clients.split else Result(*whole)
    store.save(result, folder)
    return result


def _guarantee(
    deployment: Deployment,
    rounds: int,
    met: Mapping[int, Status],
    last: Mapping[int, Status],
    charges: Charges | None,
    predicts: bool,
) -> Any:
    """The statement, from what the clients' own ledgers say at the end; of one that is silent then, its limit."""
    task, clients = deployment.task, deployment.clients
    privacy: Any = task.privacy
    known = None if charges is None else shown_by(charges, privacy.delta, task.algorithm.asks().kind)
    if isinstance(privacy, ProvenColumns):
        assert charges is not None
        assert known is not None
        return state_columns_guarantee(privacy, known, together(privacy, charges), predicts)
    seen = {**met, **last}
    sizes = np.array([seen[i].size if i in seen else 1 for i in range(len(clients.names))])
    terms = claim_terms(privacy, task.algorithm, sizes, clients.row_bound, task.participation, rounds)
    return state_guarantee(privacy, task.algorithm.name, rounds, known, claim_terms=terms)


def _must_fit(deployment: Deployment, met: Mapping[int, Status], least: int) -> None:
    if len(met) < least:
        missing = [name for client, name in enumerate(deployment.clients.names) if client not in met]
        why = (
            "" if least == deployment.clients.least else "; batches are drawn, so the noise depends on everyone's size"
        )
        why = "; all must be seen to have the same samples" if deployment.clients.split else why
        raise TooFewAnswers(
            f"app: {len(met)} clients are there and {least} must be{why}. Missing: {', '.join(missing)}"
        )
    clients = deployment.clients
    for client, status in met.items():
        who, columns = f"client {clients.names[client]!r}", clients.split[client] if clients.split else clients.columns
        check.require(status.columns == columns, who, f"must have {columns} columns", status.columns)
        if clients.split:
            check.require(status.size == clients.samples, who, f"must have {clients.samples} samples", status.size)
            same = status.order == met[clients.holding].order
            check.require(same, who, f"must have the samples of {clients.holder!r}, by the same ids and salt",
                          hint="Join them first, or let all parties promise same_order")  # fmt: skip
            check.require(status.labels or client != clients.holding, who, "is the label holder and has no labels")


def blank(clients: Clients, task: Task) -> Any:
    """Stands for the federation where only its shape matters: rows, or columns, of zeros."""
    n = len(clients.names)
    if clients.split:
        from scipy.sparse import csr_array

        assert clients.samples is not None
        parts = tuple(csr_array((clients.samples, width)) for width in clients.split)
        labels = party.blank_labels(task.objective.loss, clients.samples)
        return VerticalFederation(parts, labels, clients.names, clients.holding)
    columns = clients.columns or 0
    return Federation(np.zeros((n, columns)), np.zeros(n), np.arange(n + 1), clients.names, clients.row_bound)


def _test_set(clients: Clients, task: Task) -> tuple[np.ndarray, np.ndarray] | None:
    if not clients.test:
        return None
    X, texts, _ = read_csv(Path(clients.test), clients.label, "")
    fits = X.shape[1] == clients.columns
    check.require(fits, Path(clients.test).name, f"must have {clients.columns} columns besides the label", X.shape[1])
    loss = task.objective.loss
    y, _ = coded(texts, clients.labels, loss, f"{Path(clients.test).name}, column {clients.label!r}")
    return X, loss.check_labels(y)
