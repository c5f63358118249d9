"""Owners of split columns on machines of their own: their files with keys, their run, and the same simulated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.algorithms import MaskedMoments
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.keys import make_agreement_key
from sottovoce.deploy.node import Node
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import describe_task, to_toml
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import ProvenColumns
from sottovoce.problems.vertical import VerticalFederation
from tests.cases import goal
from tests.deployments import LIMITS

NAMES = ("bank", "shop", "map")
SPLIT = (2, 3, 2)
SAMPLES = 60
SEEDED = ProvenColumns(20.0, 1e-3, unit="record")
HOLDER = 1


def columns(n: int) -> VerticalFederation:
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, size=(SAMPLES, sum(SPLIT[:n])))
    y = np.where(X @ rng.normal(size=X.shape[1]) > 0, 1.0, -1.0)
    return VerticalFederation.from_columns(X, y, SPLIT[:n], names=NAMES[:n], holder=HOLDER)


def write_owners(folder: Path, n: int, **limits: Any) -> list[Path]:
    """A folder for each owner with its columns in an order of its own, its key, and its file with all keys pinned."""
    federation, homes, files = columns(n), [folder / name for name in NAMES[:n]], []
    for home in homes:
        home.mkdir(parents=True)
    keys = [make_agreement_key(home / "products.key") for home in homes]
    for number, (home, X) in enumerate(zip(homes, federation.parts, strict=True)):
        order, holds = np.random.default_rng(number).permutation(SAMPLES), number == HOLDER
        arrays: Any = {"X": X[order], "who": order} | ({"y": federation.y[order]} if holds else {})
        np.savez(home / "rows.npz", **arrays)
        data = {"npz": "rows.npz", "id": "who", "salt": "pepper"} | ({"labels": ["-1", "1"]} if holds else {})
        tables = {"node": {"name": home.name}, "data": data, "limits": LIMITS | limits}
        tables["products"] = {"key": "products.key"}
        owners = "\n".join(f'{name} = "{key}"' for name, key in zip(NAMES, keys, strict=False))
        (home / "node.toml").write_text(f"{to_toml(tables)}\n[products.owners]\n{owners}\n")
        files.append(home / "node.toml")
    return files


def deployment_of(n: int, privacy: Any = SEEDED, **who: Any) -> Deployment:
    tables = describe_task(Task(MaskedMoments(), goal(), privacy))
    clients = {"names": list(NAMES[:n]), "split": list(SPLIT[:n]), "samples": SAMPLES, "holder": NAMES[HOLDER]}
    clients |= {"deadline": 60, "wait": 60} | who
    return Deployment.build(tables | {"run": {"rounds": 1, "seed": 11}, "clients": clients}, "run.toml")


def simulated(of: Deployment, files: Sequence[Path]) -> Result:
    """The same run in the simulator, with the samples in the order of their salted ids."""
    rows = [Node(file).looked_at() for file in files]
    y = np.array([float(label) for label in rows[HOLDER].labels])
    federation = VerticalFederation.from_arrays([each.X for each in rows], y, names=of.clients.names, holder=HOLDER)
    task = of.task
    return train(task.algorithm, federation, task.objective, rounds=1, privacy=task.privacy, seed=of.settings.seed)
