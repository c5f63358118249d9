"""A run file's rows shared out to clients of their own: the app that `sottovoce app --nodes` writes trains the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.experiment import run_file, tables
from sottovoce.experiment.run_file import TABLES
from sottovoce.experiment.train import train
from sottovoce.problems.vertical import VerticalFederation
from tests.command_line import invoke
from tests.deployments import NAME, LocalPost
from tests.experiment.test_experiment import write_csv

ROWS = """
[data]
csv = "rows.csv"
label = "outcome"
owner = "owner"
row_bound = 9.0
[objective]
loss = "logistic"
penalty = "l2"
lam = 0.01
[algorithm]
name = "dp-admm"
[privacy]
mode = "proven"
noise = "seeded"
epsilon = 5.0
delta = 1e-3
clip = 1.0
[run]
rounds = 2
seed = 1
engine = "numpy"
"""
COLUMNS = (
    ROWS.replace("row_bound = 9.0", "split = [1, 1]", 1)
    .replace('"dp-admm"', '"admm-sharing"')
    .replace("clip = 1.0", 'unit = "record"\nbound = 5.0\nrow_bound = 1.0\nscore_bound = 2.0\nlabel_epsilon = 2.0')
)


BY_RULE = ROWS.replace('[algorithm]\nname = "dp-admm"\n', "").replace("rounds = 2\n", "").replace("clip = 1.0\n", "")


@pytest.mark.parametrize("text", [ROWS, COLUMNS, BY_RULE], ids=["rows", "columns", "by rule"])
def test_clients_of_their_own_train_what_the_file_says(tmp_path: Path, text: str, monkeypatch: Any) -> None:
    write_csv(tmp_path)
    (tmp_path / "run.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    said = invoke(["app", "study", "--config", "run.toml", "--nodes", "nodes", "--out", "run"])
    assert said.exit_code == 0, said.output
    made = Deployment.build(tables.read_tables(tmp_path / "study" / "sottovoce_app" / "run.toml", TABLES), "run.toml")
    files = [tmp_path / "nodes" / str(client) / "node.toml" for client in range(len(made.clients.names))]
    assert [Node(file).name for file in files] == list(made.clients.names)
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert np.array_equal(result.model, run_file.load(tmp_path / "run.toml").train().model)


PRODUCTS = (
    COLUMNS.replace('"admm-sharing"', '"masked-moments"')
    .replace("rounds = 2", "rounds = 1")
    .replace("bound = 5.0\nrow_bound = 1.0\nscore_bound = 2.0\nlabel_epsilon = 2.0", "")
)


def test_owners_of_split_columns_multiply(tmp_path: Path, monkeypatch: Any) -> None:
    """Their files have ids, a salt and keys, which each other's pin; the numbers are those of samples in that order."""
    write_csv(tmp_path)
    (tmp_path / "run.toml").write_text(PRODUCTS)
    monkeypatch.chdir(tmp_path)
    said = invoke(["app", "study", "--config", "run.toml", "--nodes", "nodes", "--out", "run"])
    assert said.exit_code == 0, said.output
    made = Deployment.build(tables.read_tables(tmp_path / "study" / "sottovoce_app" / "run.toml", TABLES), "run.toml")
    files = [tmp_path / "nodes" / str(owner) / "node.toml" for owner in range(2)]
    assert not any(Node(file).limits.open_labels for file in files), "products show no label"
    got = serve(made, NAME, LocalPost(files), tmp_path / "run")
    rows = [Node(file).rows for file in files]
    y = np.array(list(map(float, rows[made.clients.holding].labels)))
    federation = VerticalFederation.from_arrays([each.X for each in rows], y, holder=made.clients.holding)
    task = made.task
    same = train(task.algorithm, federation, task.objective, rounds=1, privacy=task.privacy, seed=made.settings.seed)
    assert np.array_equal(got.model, same.model)


def test_nodes_need_rows_to_share_out(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "run.toml").write_text(ROWS[ROWS.index("[objective]") :])
    monkeypatch.chdir(tmp_path)
    said = invoke(["app", "study", "--config", "run.toml", "--nodes", "nodes"])
    assert said.exit_code == 2
    assert "needs a table [data]" in said.output
    assert not (tmp_path / "nodes").exists()
