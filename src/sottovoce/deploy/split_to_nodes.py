"""The rows of a run file shared out to folders, one for each client, each with a file of its own.

To try a deployment on one machine (Flower's simulation), with data of one's own.
"""

from pathlib import Path
from typing import Any

from sottovoce.core.plain import Json
from sottovoce.experiment import whole_files
from sottovoce.experiment.run_file import Experiment
from sottovoce.experiment.tables import Tables, to_toml
from sottovoce.experiment.task import Task


def write(folder: Path, run: Experiment, task: Task) -> None:
    """`folder`/i/node.toml with the rows of client i and limits that allow `task`, once: all of them or none."""
    federation, schema, loss = run.data().federation, run.data().schema, task.objective.loss
    classes = ["-1", "1"] if loss.outputs == 1 else [str(label) for label in range(loss.outputs)]
    with whole_files.new_folder(folder) as made:
        for number, (name, (X, y)) in enumerate(zip(federation.names, federation.dense_data(), strict=True)):
            (made / str(number)).mkdir()
            whole_files.replace_arrays(made / str(number) / "rows.npz", {"X": X} | ({"y": y} if len(y) else {}))
            data = {"npz": "rows.npz"} | federation.node_table()
            data |= {"labels": classes} if loss.classification and len(y) else {}
            tables: Tables = {"node": {"name": str(name)}, "data": data, "limits": _limits(task)}
            if schema is not None:  # these rows are prepared already
                tables["schema"] = {"digest": schema.digest()}
            (made / str(number) / "node.toml").write_text(to_toml(tables), encoding="utf-8")


def _limits(task: Task) -> Json:
    privacy: Any = task.privacy
    relation = getattr(privacy, "counted_relation", "replace-one")
    labels: Json = {}
    if task.algorithm.layout == "columns":
        epsilon = getattr(privacy, "label_epsilon", None)
        labels = {"open_labels": True} if epsilon is None else {"label_epsilon": epsilon}
    held = {} if task.evaluate is None else {"held_out": task.evaluate.held_out}
    return (
        labels
        | held
        | {
            "epsilon": float(getattr(privacy, "epsilon", 1.0)),
            "delta": float(getattr(privacy, "delta", 0.0)),
            "algorithms": [task.algorithm.name],
            "losses": [task.objective.loss.name],
            "modes": [privacy.mode],
            "relations": [relation],
            "seeded": getattr(privacy, "noise", "") == "seeded",
        }
    )
