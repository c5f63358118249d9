"""What a server needs to know before it meets the clients: a run file with a table [clients].

[clients]  names (their order is their number), columns, row_bound; records = how many there are at all clients
           together, a public number: all records then weigh the same; deadline and wait in seconds; least = answers a
           round needs; test = a public CSV file with label and labels, to measure on.
           With a [schema], the same one at all clients, columns, row_bound, label and labels follow from it
           Where the server sees sums only: signing_keys = the public keys of their owners, in the order of the names
           Where columns are split: split = the columns of each party, samples, holder = who has the labels; for
           masked-moments with three parties or more, dealers = who deals to each pair of them (1 2, 1 3, ..., 2 3, ...)
"""

import secrets
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

import numpy as np

from sottovoce.algorithms import MaskedMoments
from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.core.random.streams import Streams
from sottovoce.deploy.beside_rounds import blank_labels
from sottovoce.deploy.keys import MAKE_KEY
from sottovoce.deploy.product_terms import COORDINATOR, Terms, usual_dealers
from sottovoce.deploy.summing import stated_in
from sottovoce.deploy.wire import is_hex
from sottovoce.experiment.csv_file import coded, read_csv, with_label_texts
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.run_file import Settings, build_task
from sottovoce.experiment.source import class_texts, coded_labels, must_agree, read_schema, with_whole_path
from sottovoce.experiment.tables import Tables, describe_task, from_table, plain_fields
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import CLIENTS
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy.events import Event
from sottovoce.problems.federation import FederatedData, Federation
from sottovoce.problems.schema import Schema
from sottovoce.problems.vertical import VerticalFederation


@dataclass(frozen=True)
class Clients:
    """[clients]: who takes part, and how long the server waits for them."""

    names: tuple[str, ...]
    columns: check.Whole | None = None
    row_bound: check.Positive | None = None
    records: check.Whole | None = None
    deadline: check.Positive = 300.0
    wait: check.Positive = 600.0
    least: check.Whole = 1
    test: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    split: tuple[int, ...] = ()
    samples: check.Whole | None = None
    holder: str = ""
    dealers: tuple[str, ...] = ()
    signing_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.require(len(self.names) > 0, "clients", "names must name somebody")
        check.require(len(set(self.names)) == len(self.names), "clients", "names must be distinct", list(self.names))
        check.fields(self, "clients")
        if self.split:
            self._check_split()
        else:
            check.require(self.columns is not None, "clients", "needs columns = ... (or split, where they are split)")
            for key in ("samples", "holder", "dealers"):
                check.require(not getattr(self, key), "clients", f"{key} goes with split = the columns of each party")
        fits = self.least <= len(self.names)
        check.require(fits, "clients", f"least must be at most the number of clients ({len(self.names)})", self.least)
        if self.records is not None:
            check.whole("clients", at_least=len(self.names), records=self.records)
        check.require(bool(self.test) == bool(self.label), "clients", "label = a column goes with test = a CSV file")
        whole = all(map(is_hex, self.signing_keys))
        check.require(whole, "clients", "signing_keys must be of 64 hex digits each", hint=MAKE_KEY)

    def _check_split(self) -> None:
        n = len(self.names)
        check.require(len(self.split) == n, "clients", f"split must have one number for each of the {n}", self.split)
        check.require(self.samples is not None, "clients", "split needs samples = how many there are, at every party")
        check.whole("clients", **{f"split[{m}]": width for m, width in enumerate(self.split)})
        check.one_of("clients", "holder", self.holder, self.names)
        for key in ("columns", "row_bound", "records", "test"):
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
    settings: Settings
    tables: Tables  # of the task, every default written out
    test: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    schema: Schema | None = None

    @classmethod
    def build(cls, tables: Tables, file: str, folder: Path = Path()) -> "Deployment":
        """From the tables of a run file; noise is secure unless it says otherwise."""
        check.require("clients" in tables, file, "needs a table [clients]")
        table = with_whole_path(with_label_texts(tables["clients"]), "test", folder)
        schema = read_schema(tables, file, folder)
        if schema is not None:
            table |= _stated_by(schema, table, f"{file}, [clients]")
        clients = from_table(Clients, table, f"{file}, [clients]")
        privacy = {"noise": "secure"} if tables.get("privacy", {}).get("mode") == "proven" else {}
        objective = {"scale": "mean" if clients.records is None else "records"} | tables.get("objective", {})
        tables = tables | {"objective": objective, "privacy": privacy | tables.get("privacy", {})}
        bias = schema is not None
        task, settings = build_task(tables, file, bias)
        task = _weighing(task.among(len(clients.names)), clients, file)
        clients = _summed(task, clients, f"{file}, [clients]")
        task, clients = _multiplied(task, clients, schema, f"{file}, [clients]")
        hint = "Take them from the run file that `sottovoce plan` writes"
        concrete = task.rule is None
        check.require(concrete, f"{file}, [algorithm]", "a deployment must state constants and [run] rounds", hint=hint)
        hint = "Give a [schema], which has one, or give rows a column of ones and leave fit_intercept out"
        rule = "fit_intercept needs rows with a column for it"
        check.require(bias or not task.objective.intercept, f"{file}, [objective]", rule, hint=hint)
        one_run = settings.runs == 0 and not settings.ledgers
        check.require(one_run, f"{file}, [run]", "runs and ledgers are for simulations: leave them out")
        settings = _with_coins(task, settings, file)
        split = task.algorithm.layout == "columns"
        needs = "columns that are split: give split, samples and holder" if split else "rows: give columns, not split"
        check.require(bool(clients.split) == split, f"{file}, [clients]", f"{task.algorithm.name} is for {needs}")
        known = ", ".join(sorted(task.algorithm.modes))
        has = task.privacy.mode in task.algorithm.modes
        check.require(has, file, f"{task.algorithm.name} has no {task.privacy.mode!r} variant (it has: {known})")
        task.check_method()
        written = {"clients": plain_fields(clients), **describe_task(task), "run": plain_fields(settings)}
        written |= {} if schema is None else {"schema": schema.to_tables()}
        made = cls(clients, task, settings, written, _test_set(clients, task, schema), schema)
        made.stand_in(made.plan(np.full(len(clients.names), 2)))
        return made

    def plan(self, sizes: np.ndarray) -> tuple[Event, ...]:
        """What each answer is, with the least noise the budget allows."""
        clients = self.clients
        if clients.split:
            sizes = np.full(len(clients.names), clients.samples)
        columns = max(clients.split) if clients.split else clients.columns or 0
        return self.task.plan(sizes, columns, row_bound=clients.row_bound)

    def blank(self) -> Federation | VerticalFederation:
        """A federation of zeros with the same shape, for code that needs only the shape."""
        clients, n = self.clients, len(self.clients.names)
        if clients.split:
            return _blank_columns(clients, self.task)
        columns = clients.columns or 0
        return Federation(np.zeros((n, columns)), np.zeros(n), np.arange(n + 1), clients.names, clients.row_bound)

    def stand_in(self, events: tuple[Event, ...]) -> LocalClients:
        """A client without data behind its real door, so that errors of every client show up before the first round."""
        federation: FederatedData = self.blank()
        if federation.layout == "rows":
            labels = blank_labels(self.task.objective.loss, 2)
            X = np.zeros((2, self.clients.columns or 0))
            federation = Federation.from_clients([(X, labels)], row_bound=self.clients.row_bound)
        budget = self.task.privacy.budget
        ledger = None if budget is None else MemoryLedger(Budget(*budget), (federation.n,))
        task = replace(self.task, engine="numpy")
        made = CLIENTS[federation.layout].of(
            task, federation, ledger, Streams(0), events, test=self.test, measure_training=False
        )
        made.start(task.algorithm)
        made.ledger = None
        return made


def _weighing(task: Task, clients: Clients, file: str) -> Task:
    """The task with the weight of one record as a number: it follows from how many there are, which must be stated."""
    scale, records = task.objective.scale, clients.records
    if scale != "records":
        fits = records is None or not isinstance(scale, str)
        rule = 'records goes with scale = "records" in [objective]'
        check.require(fits, f"{file}, [clients]", rule, scale, "Leave one of them out")
        return task
    number = "how many there are at all clients together, a public number"
    rule = f'scale = "records" in [objective] needs records = {number}'
    hint = 'State it, or set scale = "mean", with which clients weigh the same'
    check.require(records is not None, f"{file}, [clients]", rule, hint=hint)
    trained = int(task.training_sizes(np.array([records]))[0])
    return replace(task, objective=task.objective.weighing(len(clients.names) / trained))


def _summed(task: Task, clients: Clients, where: str) -> Clients:
    """[clients] where the server sees sums only: as many must be there as a sum needs."""
    if not task.privacy.sums:
        check.require(not clients.signing_keys, where, 'signing_keys go with [privacy] observer = "sums"')
        return clients
    n = len(clients.names)
    check.require(len(clients.signing_keys) == n, where, f"observer sums needs signing_keys, one for each of the {n}",
                  len(clients.signing_keys), MAKE_KEY)  # fmt: skip
    return replace(clients, least=max(clients.least, stated_in(task)[0]))


def _multiplied(task: Task, clients: Clients, schema: Schema | None, where: str) -> tuple[Task, Clients]:
    """Task and [clients] where products of split columns are asked for: all constants follow from what is public."""
    if not isinstance(task.algorithm, MaskedMoments) or not clients.split:
        check.require(not clients.dealers, where, "dealers go with masked-moments, and with split = the columns")
        return task, clients
    nobody = _blank_columns(clients, task)
    if schema is not None:
        counts = tuple(len(schema.parties[name]) + (schema.bias and name == clients.holder) for name in clients.names)
        nobody = replace(nobody, bias=schema.bias, row_bound=schema.row_bound, shares=counts)
    task, names = task.settled(nobody), clients.names
    split, samples = task.masked_moments.split, task.masked_moments.samples
    usual = usual_dealers(split)
    chosen = tuple(names.index(check.one_of(where, "dealers", name, names)) for name in clients.dealers) or usual
    Terms(split, samples, "0" * 64, names, chosen)  # checks who deals
    dealers = () if COORDINATOR in chosen else tuple(names[dealer] for dealer in chosen)
    return task, replace(clients, least=len(names), dealers=dealers)


def _blank_columns(clients: Clients, task: Task) -> VerticalFederation:
    csr_array, samples = import_module("scipy.sparse").csr_array, clients.samples or 0
    parts = tuple(csr_array((samples, width)) for width in clients.split)
    return VerticalFederation(parts, blank_labels(task.objective.loss, samples), clients.names, clients.holding)


def _with_coins(task: Task, settings: Settings, file: str) -> Settings:
    """Settings with a seed for the random numbers that everyone may see. Noise may follow from a stated seed only."""
    if settings.seed is not None:
        return settings
    secret = task.privacy.secret_noise or task.privacy.mode == "none"
    hint = "State [run] seed, for a test; or leave [privacy] noise out: it is then secure"
    check.require(secret, f"{file}, [run]", "noise that follows from a seed needs a stated one", hint=hint)
    return replace(settings, seed=secrets.randbits(63))


def _stated_by(schema: Schema, table: Json, where: str) -> Json:
    """What a schema says of [clients]. Nothing else may be said there."""
    label = check.given(schema.label, where, "the [schema] must say which column is the label")
    stated: Json = {"columns": schema.width, "row_bound": schema.row_bound}
    if schema.parties:
        names = list(schema.parties)
        stated = {"names": names, "split": [schema.part(name).width for name in names], "holder": names[0]}
    else:
        rule = "split does not go with a [schema] without parties, which prepares whole rows"
        check.require(not table.get("split"), where, rule)
    if table.get("test"):
        stated |= {"label": label.column, "labels": list(class_texts(label))}
    must_agree(table, stated, where)
    return stated


def _test_set(clients: Clients, task: Task, schema: Schema | None = None) -> tuple[np.ndarray, np.ndarray] | None:
    if not clients.test:
        return None
    loss = task.objective.loss
    if schema is not None:
        X, codes, _ = schema.encode(Path(clients.test), owners=False)
        return X, loss.check_labels(coded_labels(schema, codes, loss))
    X, texts, _ = read_csv(Path(clients.test), clients.label, "")
    fits = X.shape[1] == clients.columns
    check.require(fits, Path(clients.test).name, f"must have {clients.columns} columns besides the label", X.shape[1])
    y, _ = coded(texts, clients.labels, loss, f"{Path(clients.test).name}, column {clients.label!r}")
    return X, loss.check_labels(y)
