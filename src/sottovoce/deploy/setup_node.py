"""A client's folder: what `sottovoce node init` writes, checked against the rows before anything is there.

node.toml   the client's own file: rows, limits, where its server is
line        what it tells its server (`lines.py`); send it to whoever runs that
node.key    its private key; node.pub the public one
ca.crt      the authority that signed the server's certificate
schema.toml what is known of the columns, if the study has a schema
memory/     ledger, answers, log: back this up

To try a deployment on one machine (Flower's simulation), `split_to_nodes` writes such folders for all clients, with
data of one's own.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.deploy import keys, services
from sottovoce.deploy.lines import NodeLine, ServerLine, good_name
from sottovoce.deploy.node import Node
from sottovoce.experiment import whole_files
from sottovoce.experiment.run_file import Experiment
from sottovoce.experiment.tables import Tables, to_toml
from sottovoce.experiment.task import Task
from sottovoce.problems.schema import Schema

FILE, LINE, KEY, PUBLIC, MEMORY, SCHEMA = "node.toml", "line", "node.key", "node.pub", "memory", "schema.toml"
QUESTIONS_PER_HOUR = 1000
BY_HAND = "For columns that are split write node.toml by hand: docs/deploy.md shows one"
LEAST_NOISE = 0.5  # one answer with less noise gives away more than any sensible budget holds
SIGNING_KEY = "products.key"
_MOST_MEMORY = "4G"
_HEADER = """\
# {name}'s own file. It never leaves this machine; paths start from where it stands. A change counts from the next
# question on: write it beside and move it into place.
"""


@dataclass(frozen=True)
class NodeChoices:
    """What the owner of rows decides.

    Parameters
    ----------
    name
        As the study's run file names it.
    server
        The server's line.
    csv
        The rows.
    schema
        The study's schema, if it has one; label, labels and row_bound then follow from it.
    label, labels, row_bound
        Without a schema: the label's column, its classes in the order agreed on (none for a label that is a number),
        and what no row is longer than.
    epsilon, delta
        For life, over all experiments.
    epsilon_per_day
        0: half of epsilon.
    questions_per_hour
        New questions that are answered in an hour.
    algorithms, losses
        What may be asked. None given: all row methods with a proof, and the loss that fits the label.
    """

    name: str
    server: str
    csv: Path
    schema: Path | None = None
    label: str = ""
    labels: tuple[str, ...] = ()
    row_bound: float | None = None
    epsilon: check.Positive = 2.0
    delta: check.Positive = 1e-5
    epsilon_per_day: check.NonNegative = 0.0
    questions_per_hour: check.Whole = QUESTIONS_PER_HOUR  # in node.toml 0 stands for no bound
    algorithms: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        good_name(self.name)
        check.fields(self, "node")
        if self.schema is not None:
            for what, value in (("label", self.label), ("labels", self.labels), ("row-bound", self.row_bound)):
                check.require(not value, "node", f"--{what} is stated by the schema: leave it out")


def make(folder: Path, choices: NodeChoices, compose: bool = False) -> NodeLine:
    """Write a client's folder, all of it or nothing."""
    line, home = ServerLine.read(choices.server), folder.absolute()
    if not choices.csv.is_file():
        raise check.MissingData(f"{choices.csv}: there is no such file. Name the table of rows with --csv")
    schema = _schema(choices, line)
    private, public = keys.key_pair()
    node_line = NodeLine.of(choices.name, public)
    files = {
        FILE: _node_file(choices, line, schema, home).encode(),
        LINE: f"{node_line}\n".encode(),
        PUBLIC: public + b"\n",
        keys.AUTHORITY: line.pem(),
        **({} if choices.schema is None else {SCHEMA: whole_files.read_text(choices.schema).encode()}),
        **{name: text.encode() for name, text in _services(choices, home, compose).items()},
    }
    with whole_files.new_folder(folder) as made:
        made.chmod(0o700)
        (made / MEMORY).mkdir(mode=0o700)
        whole_files.write_content(made / KEY, private, keys.PRIVATE)
        whole_files.write_files(made, files)
        _ = Node(made / FILE).rows  # read and checked: whatever is wrong shows here, and nothing stays
    return node_line


def _schema(choices: NodeChoices, line: ServerLine) -> Schema | None:
    """The study's schema; it must be the one that the server's line names, if that names one."""
    if choices.schema is None:
        hint = "Ask for the study's schema file, and give it with --schema"
        check.require(not line.schema, "node", "the server's line names a schema, and none is given", hint=hint)
        return None
    schema = Schema.from_toml(choices.schema)
    digest = schema.digest()
    hint = f"Ask for the file of which `sottovoce schema digest` prints {line.schema[:16]}..."
    same = line.schema in ("", digest)
    check.require(same, str(choices.schema), "is another schema than the server's line names", digest[:16], hint)
    check.require(not schema.parties, str(choices.schema), "splits columns between parties", hint=BY_HAND)
    return schema


def _node_file(choices: NodeChoices, line: ServerLine, schema: Schema | None, home: Path) -> str:
    csv = choices.csv.absolute()
    data: Json = {"csv": str(csv.relative_to(home)) if home in csv.parents else str(csv)}
    if schema is None:
        hint = "Name it with --label; or give the study's schema with --schema"
        check.require(bool(choices.label), "node", "which column is the label?", hint=hint)
        data |= {"label": choices.label, "labels": list(choices.labels)}
        data |= {} if choices.row_bound is None else {"row_bound": choices.row_bound}
    classes = len(choices.labels) if schema is None else len(schema.label.classes if schema.label else ())
    limits: Json = {
        "epsilon": choices.epsilon,
        "delta": choices.delta,
        "epsilon_per_day": choices.epsilon_per_day or choices.epsilon / 2,
        "questions_per_hour": choices.questions_per_hour,
        "algorithms": list(choices.algorithms or proven_row_methods()),
        "losses": list(choices.losses or usual_losses(classes)),
        "least_noise": LEAST_NOISE,
    }
    tables: dict[str, Json] = {
        "node": {"name": choices.name, "folder": MEMORY},
        "server": {"address": line.address, "certificate": keys.AUTHORITY, "key": KEY},
        "data": data,
        **({} if schema is None else {"schema": {"file": SCHEMA}}),
        "limits": limits,
    }
    digest_line = "" if schema is None else f"# The digest of its schema: {schema.digest()}\n"
    return f"{_HEADER.format(name=choices.name)}{digest_line}\n{to_toml(tables)}"


def proven_row_methods() -> list[str]:
    """Methods for rows with a proof: behind the door every one of them is as private as any other."""
    return [name for name, method in ALGORITHMS.items() if method.layout == "rows" and "proven" in method.modes]


def usual_losses(classes: int) -> Sequence[str]:
    """The losses for a label of so many classes; of none, for a number."""
    by_classes = {0: ("squared", "huber"), 2: ("logistic", "weighted-logistic", "smoothed-hinge")}
    return by_classes.get(classes, ("softmax", "weighted-softmax"))


def _services(choices: NodeChoices, home: Path, compose: bool) -> dict[str, str]:
    name, words = f"sottovoce-node-{choices.name}", ("node", "start", str(home / FILE))
    outside = {} if home in choices.csv.parents else {choices.csv.absolute(): False}
    mounts = {home: False, home / MEMORY: True} | outside
    return services.files(name, words, home, _MOST_MEMORY, mounts, [] if compose else None)


# ---------------------------------------------------------------------------------- all clients of a run file at once


def split_to_nodes(folder: Path, run: Experiment, task: Task) -> None:
    """`folder`/i/node.toml with the rows of client i and limits that allow `task`, once: all of them or none."""
    federation, schema, loss = run.data().federation, run.data().schema, task.objective.loss
    classes = ["-1", "1"] if loss.outputs == 1 else [str(label) for label in range(loss.outputs)]
    names, multiplied = [str(name) for name in federation.names], task.split is not None
    ids = {"id": "id", "salt": secrets.token_hex(16)}  # products need samples in the order of salted ids
    with whole_files.new_folder(folder) as made:
        for number in range(len(names)):
            (made / str(number)).mkdir()
        made_keys = (keys.make_signing_key(made / str(number) / SIGNING_KEY) for number in range(len(names)))
        public_keys = list(made_keys) if multiplied else []
        for number, (name, (X, y)) in enumerate(zip(names, federation.dense_data(), strict=True)):
            arrays = {"X": X} | ({"y": y} if len(y) else {}) | ({"id": np.arange(len(X))} if multiplied else {})
            whole_files.replace_arrays(made / str(number) / "rows.npz", arrays)
            data = {"npz": "rows.npz"} | (ids if multiplied else federation.node_table())
            data |= {"labels": classes} if loss.classification and len(y) else {}
            tables: Tables = {"node": {"name": name}, "data": data, "limits": _limits(task)}
            if schema is not None:  # these rows are prepared already
                tables["schema"] = {"digest": schema.digest()}
            if multiplied:
                tables["products"] = {"key": SIGNING_KEY, "owners": dict(zip(names, public_keys, strict=True))}
            (made / str(number) / "node.toml").write_text(to_toml(tables), encoding="utf-8")


def _limits(task: Task) -> Json:
    privacy = task.privacy
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
        "relations": [getattr(privacy, "counted_relation", "replace-one")],
        "seeded": getattr(privacy, "noise", "") == "seeded",
    }
