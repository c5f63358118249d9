"""The rows of a run file shared out to folders, one for each client, each with a file of its own.

For a try of a deployment on one machine (Flower's simulation), where nobody's data are at stake but one's own.
"""

from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.experiment import whole_files
from sottovoce.experiment.run_file import Experiment
from sottovoce.experiment.tables import Tables, to_toml
from sottovoce.experiment.task import Task


def clients_table(run: Experiment) -> dict[str, Any]:
    """[clients] of a deployment over the clients that `run` simulates."""
    federation: Any = run.data().federation
    names = {"names": list(federation.names)}
    if federation.layout == "columns":
        holder = federation.names[federation.holder]
        return names | {"split": list(federation.widths), "samples": federation.samples, "holder": holder}
    bound = {} if federation.row_bound is None else {"row_bound": float(federation.row_bound)}
    return names | {"columns": int(federation.X.shape[1])} | bound


def write(folder: Path, run: Experiment, task: Task) -> None:
    """`folder`/i/node.toml with the rows of client i and limits that allow `task`, once: all of them or none."""
    federation: Any = run.data().federation
    vertical = federation.layout == "columns"
    loss = task.objective.loss
    classes = ["-1", "1"] if loss.outputs == 1 else [str(label) for label in range(loss.outputs)]
    with whole_files.new_folder(folder) as made:
        for number, (name, (X, y)) in enumerate(zip(federation.names, federation.data(), strict=True)):
            (made / str(number)).mkdir()
            if vertical:
                part: Any = federation.parts[number]
                X = part.toarray() if hasattr(part, "tocsr") else part
            arrays = {"X": np.asarray(X, dtype=np.float64)} | ({"y": y} if len(y) else {})
            whole_files.replace_arrays(made / str(number) / "rows.npz", arrays)
            data: dict[str, Any] = {"npz": "rows.npz"} | ({"same_order": True} if vertical else {})
            data |= {"labels": classes} if loss.classification and len(y) else {}
            if getattr(federation, "row_bound", None) is not None:
                data["row_bound"] = float(federation.row_bound)
            tables: Tables = {"node": {"name": str(name)}, "data": data, "limits": _limits(task)}
            (made / str(number) / "node.toml").write_text(to_toml(tables), encoding="utf-8")


def _limits(task: Task) -> dict[str, Any]:
    privacy: Any = task.privacy
    relation = getattr(privacy, "counted_relation", "replace-one")
    labels: dict[str, Any] = {}
    if task.algorithm.layout == "columns":
        epsilon = getattr(privacy, "label_epsilon", None)
        labels = {"open_labels": True} if epsilon is None else {"label_epsilon": epsilon}
    return labels | {
        "epsilon": float(getattr(privacy, "epsilon", 1.0)),
        "delta": float(getattr(privacy, "delta", 0.0)),
        "algorithms": [task.algorithm.name],
        "losses": [task.objective.loss.name],
        "modes": [privacy.mode],
        "relations": [relation],
        "seeded": getattr(privacy, "noise", "") == "seeded",
    }
