"""Three clients with files of their own, and the run they are asked for: what tests of a deployment start from."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import codec
from sottovoce.core.contract import Hub
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import describe_task, to_toml
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import train
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy.modes import Privacy, Proven, ProvenColumns
from sottovoce.problems.federation import Federation
from sottovoce.problems.vertical import VerticalFederation, joined
from tests.cases import CASES, VERTICAL, Method, goal, small, small_columns

NAMES = ("north", "south", "west")
NAME = "0123456789abcdef" * 2
SEEDED = Proven(epsilon=20.0, delta=1e-3, clip=1.0)
SECURE = Proven(epsilon=20.0, delta=1e-3, clip=1.0, noise="secure")
LIMITS: dict[str, Any] = {
    "epsilon": 100.0,
    "delta": 1e-3,
    "algorithms": list(ALGORITHMS),
    "losses": ["logistic"],
    "modes": ["proven", "published", "none"],
    "seeded": True,
}


def federation() -> Federation:
    """The three largest clients of `small`."""
    return Federation.from_clients(small().data()[3:], names=NAMES, row_bound=1.0)


def write_nodes(folder: Path, **limits: Any) -> list[Path]:
    """A folder for each client with its rows and its own file."""
    files = []
    for name, (X, y) in zip(NAMES, federation().data(), strict=True):
        home = folder / name
        home.mkdir(parents=True)
        np.savez(home / "rows.npz", X=X, y=y)
        data = {"npz": "rows.npz", "labels": ["-1", "1"], "row_bound": 1.0}
        (home / "node.toml").write_text(to_toml({"node": {"name": name}, "data": data, "limits": LIMITS | limits}))
        files.append(home / "node.toml")
    return files


def run_tables(algorithm: Method | str = "dp-admm", privacy: Privacy = SEEDED, rounds: int = 3, **clients: Any) -> Any:
    """The tables of a run file, for three clients."""
    method = CASES[algorithm].algorithm if isinstance(algorithm, str) else algorithm
    tables = {**describe_task(Task(method, goal(), privacy)), "run": {"engine": "numpy", "rounds": rounds, "seed": 11}}
    who = {"names": list(NAMES), "columns": 4, "row_bound": 1.0, "least": 3, "deadline": 60, "wait": 60} | clients
    return tables | {"clients": who}


def deployment(*given: Any, **clients: Any) -> Deployment:
    return Deployment.build(run_tables(*given, **clients), "run.toml")


def simulated(of: Deployment) -> Result:
    """The same run in the simulator."""
    task = of.task
    return train(
        task.algorithm,
        columns() if of.clients.split else federation(),
        task.objective,
        rounds=task.rounds,
        privacy=task.privacy,
        participation=task.participation,
        seed=of.settings.seed,
        engine="numpy",
    )


def first_messages(of: Deployment) -> tuple[Any, Any]:
    """The first broadcast of this run, and the answer of a client without data."""
    clients = of.stand_in(of.plan(np.full(len(of.clients.names), 2)))
    algorithm, zeros = of.task.algorithm, np.zeros((1, clients.dim))
    draw = Draw(Streams(0), np.array([SERVER], dtype=np.uint64), 0)
    hub = Hub(1, of.task.objective.penalty, draw, 1, np.ones((1, 1), dtype=bool), zeros, clients.labels)
    down = algorithm.broadcast(algorithm.init_server(hub), hub)
    exchange = clients.exchange(algorithm, codec.rows(down, np.array([0])), np.ones(clients.n, dtype=bool), 1)
    assert exchange is not None
    return codec.rows(down, np.array([0])), codec.rows(exchange.up, np.array([0]))


def fresh_node(file: Path) -> Node:
    """A node as a fresh process has it. Its files are read again only if one of them has changed."""
    beside = sorted(path for path in file.parent.iterdir() if path.is_file())
    node = object.__new__(Node)
    node.__dict__ |= _read_files(file, file.read_bytes(), tuple((path.name, path.stat()) for path in beside))
    node.__dict__ |= {"_runs": OrderedDict(), "_open_ledger": None, "_recent": None}
    return node


@lru_cache(maxsize=8)
def _read_files(file: Path, *_content: object) -> dict[str, Any]:
    node = Node(file)
    with suppress(Exception):  # told when it is asked
        node.rows  # noqa: B018 (read once, and kept)
    return node.__dict__


@lru_cache(maxsize=8)
def _read_assignment(read: Callable[[Ask], Assignment], task: str, events: str, row_bound: float) -> Assignment:
    return read(Ask(NAME, 0, 1, task, events, row_bound))


class LocalPost:
    """Every message goes to a fresh `Node`, as in Flower to a fresh process. `meddle` sees (client, ask, reply).

    What is read from the same text again is kept: reading it was most of the work.
    """

    def __init__(self, files: list[Path], meddle: Callable[[int, Ask, Reply], Reply | None] | None = None) -> None:
        self.files, self.meddle = files, meddle
        self.asked: list[tuple[int, Ask, Reply]] = []

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        replies = {}
        read = Assignment.read
        once = lambda ask: _read_assignment(read, ask.task, ask.events, ask.row_bound)  # noqa: E731
        for client, ask in asks.items():
            with patch.object(Assignment, "read", once):
                reply = fresh_node(self.files[client]).answer(ask)
            self.asked.append((client, ask, reply))
            got = reply if self.meddle is None else self.meddle(client, ask, reply)
            if got is not None:
                replies[client] = got
        return replies

    def statuses(self, wait: float) -> dict[int, Status]:
        said = {client: fresh_node(file).status() for client, file in enumerate(self.files)}
        return {client: status for client, status in said.items() if isinstance(status, Status)}


def charged(file: Path) -> int:
    """How many answers the ledger of this client counts; none before it was first asked."""
    path = file.parent / "node" / "ledger"
    if not path.exists():
        return 0
    with FileLedger.open(path) as ledger:
        return sum(ledger.spent().values())


# ----------------------------------------------------------------------------------------------- columns that are split

SPLIT = (2, 3, 5)
COLUMNS = ProvenColumns(20.0, 1e-3, unit="record", bound=50.0, row_bound=3.0, score_bound=10.0)
SECURE_COLUMNS = ProvenColumns(
    20.0, 1e-3, unit="record", bound=50.0, variant="clip", model_bound=10.0, noise="secure", label_epsilon=2.0
)


def columns() -> VerticalFederation:
    """The samples of `small_columns`, with three parties; the second has the labels."""
    whole = small_columns()
    return VerticalFederation.from_columns(joined(whole.parts), whole.y, SPLIT, names=NAMES, holder=1)


def write_parties(folder: Path, ids: bool = False, **limits: Any) -> list[Path]:
    """A folder for each party with its columns and its own file; with `ids` each has its samples in another order."""
    files, federation = [], columns()
    for number, (name, (X, _)) in enumerate(zip(NAMES, federation.dense_data(), strict=True)):
        home, holds = folder / name, number == federation.holder
        home.mkdir(parents=True)
        order = np.random.default_rng(number).permutation(len(X)) if ids else np.arange(len(X))
        arrays = {"X": X[order], "who": order} | ({"y": federation.y[order]} if holds else {})
        np.savez(home / "rows.npz", **arrays)  # type: ignore[arg-type]
        data = {"npz": "rows.npz"} | ({"labels": ["-1", "1"]} if holds else {})
        data |= {"id": "who", "salt": "pepper"} if ids else {"same_order": True}
        own = LIMITS | ({"label_epsilon": 2.0, "open_labels": True} if holds else {}) | limits
        (home / "node.toml").write_text(to_toml({"node": {"name": name}, "data": data, "limits": own}))
        files.append(home / "node.toml")
    return files


def column_tables(algorithm: Method | str = "admm-sharing", privacy: Any = COLUMNS, rounds: int = 3, **who: Any) -> Any:
    """The tables of a run file, for three parties."""
    method = VERTICAL[algorithm].algorithm if isinstance(algorithm, str) else algorithm
    tables = {**describe_task(Task(method, goal(), privacy)), "run": {"engine": "numpy", "rounds": rounds, "seed": 11}}
    usual = {"names": list(NAMES), "split": list(SPLIT), "samples": 40, "holder": "south", "deadline": 60, "wait": 60}
    return tables | {"clients": usual | {"least": 3} | who}


def column_deployment(*given: Any, **clients: Any) -> Deployment:
    return Deployment.build(column_tables(*given, **clients), "run.toml")
