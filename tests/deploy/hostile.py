"""What a server may try that wants more of a node than answers: messages, and the code of an app."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.app.message import Array

from sottovoce.deploy.flower.records import to_records
from sottovoce.deploy.wire import Ask
from tests.deploy.test_node import asks


class _Runs:
    """Runs a command wherever it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> Any:
        import os

        return os.system, (self._command,)


def hostile_messages(loot: Path, file: Path) -> list[RecordDict]:
    """Twenty messages, each of which would leave something at `loot` if what it holds were run or obeyed."""
    ask, shell = asks()[0], f"touch {loot}"
    code = f"__import__('os').system({shell!r})"
    pickled = pickle.dumps(_Runs(shell))
    loads = RecordDict({"arrays": ArrayRecord({"z": Array("object", (1,), "numpy.ndarray", pickled)})})
    said: dict[str, Any] = dict(to_records(ask)["said"])

    def told(**values: Any) -> RecordDict:
        return RecordDict({"said": ConfigRecord(said | values)})

    def task(text: str) -> RecordDict:
        return to_records(replace(ask, task=text))

    rows = str(file.parent / "rows.npz")
    return [
        RecordDict(),
        loads,
        RecordDict({"said": ConfigRecord({"code": code}), **loads}),
        RecordDict({"fab": ConfigRecord({"content": pickled}), "config": ConfigRecord({"run": shell})}),
        RecordDict({"metrics": MetricRecord({"epochs": 10**9})}),
        told(bytes=pickled),
        told(kind="reply"),
        told(kind="status"),
        told(kind=code),
        told(layout=code),
        told(layout='[["../../../loot", [4], 32]]'),
        told(experiment=f"../../{loot.name}"),
        told(what="shell"),
        told(events=code),
        task(code),
        task(ask.task.replace("dp-admm", "os.system")),
        task(ask.task.replace('loss = "logistic"', f'loss = "{rows}"')),
        task(ask.task.replace('engine = "numpy"', f'engine = "{shell}"')),
        task(ask.task.replace('name = "everyone"', f'name = "{code}"')),
        task("[" * 10**5),
        to_records(Ask(ask.experiment, ask.client, 2**31 - 1, ask.task, ask.events, ask.row_bound, ask.what, ask.down)),
        to_records(replace(ask, down={"z": ((2**40,), np.zeros(4).tobytes())})),
        to_records(replace(ask, down={"__class__": ((4,), np.zeros(4).tobytes())})),
    ]
