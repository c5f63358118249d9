"""The rows of a run file shared out to folders, one for each client, each with a file of its own.

To try a deployment on one machine (Flower's simulation), with data of one's own.
"""

import secrets
from pathlib import Path

import numpy as np

from sottovoce.core.plain import Json
from sottovoce.deploy.keys import make_signing_key
from sottovoce.experiment import whole_files
from sottovoce.experiment.run_file import Experiment
from sottovoce.experiment.tables import Tables, to_toml
from sottovoce.experiment.task import Task

KEY = "products.key"


def write(folder: Path, run: Experiment, task: Task) -> None:
    """`folder`/i/node.toml with the rows of client i and limits that allow `task`, once: all of them or none."""
    federation, schema, loss = run.data().federation, run.data().schema, task.objective.loss
    classes = ["-1", "1"] if loss.outputs == 1 else [str(label) for label in range(loss.outputs)]
    names, multiplied = [str(name) for name in federation.names], task.split is not None
    ids = {"id": "id", "salt": secrets.token_hex(16)}  # products need samples in the order of salted ids
    with whole_files.new_folder(folder) as made:
        for number in range(len(names)):
            (made / str(number)).mkdir()
        keys = [make_signing_key(made / str(number) / KEY) for number in range(len(names))] if multiplied else []
        for number, (name, (X, y)) in enumerate(zip(names, federation.dense_data(), strict=True)):
            arrays = {"X": X} | ({"y": y} if len(y) else {}) | ({"id": np.arange(len(X))} if multiplied else {})
            whole_files.replace_arrays(made / str(number) / "rows.npz", arrays)
            data = {"npz": "rows.npz"} | (ids if multiplied else federation.node_table())
            data |= {"labels": classes} if loss.classification and len(y) else {}
            tables: Tables = {"node": {"name": name}, "data": data, "limits": _limits(task)}
            if schema is not None:  # these rows are prepared already
                tables["schema"] = {"digest": schema.digest()}
            if multiplied:
                tables["products"] = {"key": KEY, "owners": dict(zip(names, keys, strict=True))}
            (made / str(number) / "node.toml").write_text(to_toml(tables), encoding="utf-8")


def _limits(task: Task) -> Json:
    privacy = task.privacy
    relation = getattr(privacy, "counted_relation", "replace-one")
    labels: Json = {}
    if task.algorithm.layout == "columns" and task.split is None:  # products show no label
        epsilon = getattr(privacy, "label_epsilon", None)
        labels = {"open_labels": True} if epsilon is None else {"label_epsilon": epsilon}
    held = {} if task.evaluate is None else {"held_out": task.evaluate.held_out}
    return {
        **labels,
        **held,
        "epsilon": float(getattr(privacy, "epsilon", 1.0)),
        "delta": float(getattr(privacy, "delta", 0.0)),
        "algorithms": [task.algorithm.name],
        "losses": [task.objective.loss.name],
        "modes": [privacy.mode],
        "relations": [relation],
        "seeded": getattr(privacy, "noise", "") == "seeded",
    }
