"""Three clients with files of their own, and the run they are asked for: what tests of a deployment start from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.participation import Everyone
from sottovoce.privacy.ledger_file import FileLedger
from sottovoce.privacy.modes import Privacy, Proven
from sottovoce.problems.federation import Federation
from sottovoce.run.describe import describe, to_toml
from sottovoce.run.node import Node
from sottovoce.run.remote import Deployment
from sottovoce.run.simulate import Result, train
from sottovoce.run.wire import Ask, Reply, Status
from tests.cases import CASES, Method, goal, small

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
    tables = describe(method, federation(), goal(), privacy, Everyone(), "numpy")
    tables["run"] |= {"rounds": rounds, "seed": 11}
    who = {"names": list(NAMES), "columns": 4, "row_bound": 1.0, "least": 3, "deadline": 60, "wait": 60} | clients
    return {name: table for name, table in tables.items() if name != "data"} | {"clients": who}


def deployment(*given: Any, **clients: Any) -> Deployment:
    return Deployment.build(run_tables(*given, **clients), "run.toml")


def simulated(of: Deployment) -> Result:
    """The same run in the simulator."""
    task = of.task
    return train(
        task.algorithm,
        federation(),
        task.objective,
        rounds=task.settings.rounds,
        privacy=task.privacy,
        participation=task.participation,
        seed=task.settings.seed,
        engine="numpy",
    )


class LocalPost:
    """Every message goes to a fresh `Node`, as in Flower to a fresh process. `meddle` sees (client, ask, reply)."""

    def __init__(self, files: list[Path], meddle: Callable[[int, Ask, Reply], Reply | None] | None = None) -> None:
        self.files, self.meddle = files, meddle
        self.asked: list[tuple[int, Ask, Reply]] = []

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        replies = {}
        for client, ask in asks.items():
            reply = Node(self.files[client]).answer(ask)
            self.asked.append((client, ask, reply))
            got = reply if self.meddle is None else self.meddle(client, ask, reply)
            if got is not None:
                replies[client] = got
        return replies

    def statuses(self, wait: float) -> dict[int, Status]:
        said = {client: Node(file).status() for client, file in enumerate(self.files)}
        return {client: status for client, status in said.items() if isinstance(status, Status)}


def charged(file: Path) -> int:
    """How many answers the ledger of this client counts; none before it was first asked."""
    path = file.parent / "node" / "ledger"
    if not path.parent.exists():
        return 0
    with FileLedger.open(path) as ledger:
        return sum(ledger.spent().values())
