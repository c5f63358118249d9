"""Clients whose server sees sums only: their files with keys, the run they are asked for, and the same simulated."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.algorithms import NoisyGD
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Exchange
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.keys import make_signing_key
from sottovoce.experiment.tables import describe_task, to_toml
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import local_clients
from sottovoce.privacy.modes import Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from tests.deployments import LIMITS

COLUMNS = 4
GOAL = Objective(Logistic(), L2(1e-3), scale="records")


def names_of(n: int) -> tuple[str, ...]:
    return tuple(f"owner{i}" for i in range(n))


def federation(n: int) -> Federation:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(12 * n, COLUMNS))
    X /= 1.01 * np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ np.array([1.0, -2.0, 0.5, 0.0]) > 0, 1.0, -1.0)
    parts = [(X[i::n], y[i::n]) for i in range(n)]
    return Federation.from_clients(parts, names=names_of(n), row_bound=1.0)


def sums(**more: Any) -> Proven:
    """Seeded noise on the grid, so that numbers can be compared."""
    return Proven(20.0, 1e-3, clip=1.0, observer="sums", **more)


def write_owners(folder: Path, n: int, least: int, colluders: int, **limits: Any) -> list[Path]:
    """A folder for each client with its rows, its signing key and its own file, in which all keys are pinned."""
    files = []
    for name, (X, y) in zip(names_of(n), federation(n).data(), strict=True):
        home = folder / name
        home.mkdir(parents=True)
        np.savez(home / "rows.npz", X=X, y=y)
        tables = {
            "node": {"name": name},
            "data": {"npz": "rows.npz", "labels": ["-1", "1"], "row_bound": 1.0},
            "limits": LIMITS | limits,
        }
        (home / "node.toml").write_text(to_toml(tables))
        files.append(home / "node.toml")
    pin_keys(files, least, colluders)
    return files


def pin_keys(files: Sequence[Path], least: int, colluders: int) -> None:
    """Make each client's signing key, and name the keys of all in each client's own file."""
    keys = [make_signing_key(file.parent / "sums.key") for file in files]
    owners = "\n".join(f'{file.parent.name} = "{key}"' for file, key in zip(files, keys, strict=True))
    stated = to_toml({"sums": {"key": "sums.key", "least": least, "colluders": colluders}})
    for file in files:
        file.write_text(f"{file.read_text()}\n{stated}\n[sums.owners]\n{owners}\n")


def keys_in(files: Sequence[Path]) -> list[str]:
    """The public keys, in the order of the clients."""
    return list(tomllib.loads(files[0].read_text())["sums"]["owners"].values())


def deployment_of(
    files: Sequence[Path], privacy: Proven, rounds: int = 3, method: Any = None, **who: Any
) -> Deployment:
    n = len(files)
    run = {"engine": "numpy", "rounds": rounds, "seed": 11}
    clients = {"names": list(names_of(n)), "columns": COLUMNS, "row_bound": 1.0, "records": 12 * n}
    clients |= {"deadline": 60, "wait": 60, "signing_keys": keys_in(files)} | who
    tables = {**describe_task(Task(method or NoisyGD(step=2.0), GOAL, privacy)), "run": run, "clients": clients}
    return Deployment.build(tables, "run.toml")


def simulated(of: Deployment, answered: Sequence[Sequence[int]]) -> np.ndarray:
    """The model of the same run in the simulator, where these clients answer in each round."""
    seed = of.settings.seed
    assert seed is not None
    clients = local_clients(replace(of.task, engine="numpy"), federation(len(of.clients.names)), Streams(seed))
    exchange = clients.exchange

    def of_those(algorithm: Any, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        return exchange(algorithm, down, active & np.isin(np.arange(clients.n), answered[k - 1]), k)

    clients.exchange = of_those
    return of.task.play(clients, Streams(seed)).model[0]
