"""Clients in this process, put together from loose parts."""

from typing import Any

from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import local_clients


def assemble(
    algorithm: Any,
    federation: Any,
    objective: Any,
    privacy: Any,
    participation: Any,
    rounds: int,
    streams: Any,
    test: Any = None,
    engine: Any = "auto",
    ledgers: Any = None,
) -> LocalClients:
    task = Task(algorithm, objective, privacy, participation, rounds, engine)
    return local_clients(task, federation, streams, test, ledgers)
