"""Owners of split columns on machines of their own: their files with keys, their run, and the same simulated."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import MaskedMoments
from sottovoce.deploy import wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.keys import make_signing_key
from sottovoce.deploy.multiplying import Multiplying
from sottovoce.deploy.node import Node
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import describe_task, to_toml
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import ProvenColumns
from sottovoce.problems.vertical import VerticalFederation
from tests.cases import goal
from tests.deployments import LIMITS, NAME, LocalPost

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


def new_samples(n: int) -> list[np.ndarray]:
    """Each owner's columns of 12 samples that nobody trained on; their ids are SAMPLES, SAMPLES + 1, ..."""
    X = np.random.default_rng(7).uniform(-1, 1, size=(12, sum(SPLIT[:n])))
    return np.split(X, np.cumsum(SPLIT[:n])[:-1], axis=1)


def write_owners(folder: Path, n: int, **limits: Any) -> list[Path]:
    """A folder for each owner with its columns in an order of its own, its key, and its file with all keys pinned.

    Beside them the samples that it may be asked about: `new_samples`, and three that it trained on.
    """
    federation, homes, files = columns(n), [folder / name for name in NAMES[:n]], []
    for home in homes:
        home.mkdir(parents=True)
    keys = [make_signing_key(home / "products.key") for home in homes]
    for number, (home, (X, _)) in enumerate(zip(homes, federation.dense_data(), strict=True)):
        order, holds = np.random.default_rng(number).permutation(SAMPLES), number == HOLDER
        arrays: Any = {"X": X[order], "who": order} | ({"y": federation.y[order]} if holds else {})
        np.savez(home / "rows.npz", **arrays)
        new = np.vstack([new_samples(n)[number], X[:3]])
        np.savez(home / "new.npz", X=new, who=[*range(SAMPLES, SAMPLES + 12), 0, 1, 2])
        data = {"npz": "rows.npz", "id": "who", "salt": "pepper"} | ({"labels": ["-1", "1"]} if holds else {})
        tables = {"node": {"name": home.name}, "data": data, "limits": LIMITS | limits}
        tables["predict"] = {"npz": "new.npz", "id": "who"}
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
    rows = [Node(file).rows for file in files]
    y = np.array([float(label) for label in rows[HOLDER].labels])
    federation = VerticalFederation.from_arrays([each.X for each in rows], y, names=of.clients.names, holder=HOLDER)
    task = of.task
    return train(task.algorithm, federation, task.objective, rounds=1, privacy=task.privacy, seed=of.settings.seed)


def asked(post: LocalPost, what: str) -> list[tuple[int, Ask, Reply]]:
    return [each for each in post.asked if each[1].what == what]


class Attempted:
    """Owners who have agreed and exchanged all, and whose round was not asked for."""

    def __init__(self, folder: Path, n: int) -> None:
        self.files, self.made, self.folder = write_owners(folder, n), deployment_of(n), folder
        self.post = LocalPost(self.files)
        silent = LocalPost(self.files)
        silent.ask = lambda asks, deadline: (
            {} if any(ask.what == wire.ROUND for ask in asks.values()) else self.post.ask(asks, deadline)
        )
        with pytest.raises(TooFewAnswers):
            serve(self.made, NAME, silent, folder / "run")

    def last(self, what: str, client: int) -> Ask:
        return [ask for m, ask, _ in asked(self.post, what) if m == client][-1]

    def answer(self, client: int, ask: Ask) -> Reply:
        return Node(self.files[client]).answer(ask)

    def asks(self, client: int, what: str, content: bytes) -> Reply:
        return self.answer(client, replace(self.last(wire.TAKE, client), what=what, down=wire.of_bytes(content)))

    def round_ask(self, client: int) -> Ask:
        return replace(self.last(wire.TAKE, client), what=wire.ROUND, down={})

    def at(self, client: int) -> tuple[Multiplying, Any]:
        """The owner's own side: what a dishonest owner can seal."""
        node, ask = Node(self.files[client]), self.last(wire.TAKE, client)
        steps = Multiplying(node, ask, node._run(ask))
        return steps, steps._begun
