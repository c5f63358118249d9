"""Three nodes with CSV files of strings, gaps and dates, and one schema: they train what the simulator trains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.toml import to_toml
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.deploy.setup_node import split_to_nodes
from sottovoce.experiment import run_file
from sottovoce.experiment.saved import load_result
from sottovoce.experiment.tables import read_tables
from tests.deployments import LIMITS, NAME, LocalPost
from tests.experiment.test_schema_parties import PARTIES, SPLIT
from tests.experiment.test_schema_runs import RUN, SCHEMA, table

WARDS = ("north", "south", "west")
OF_THE_RUN = RUN.replace("test = 0.25\n", "").replace("delta = 1e-5", 'delta = 1e-5\nnoise = "seeded"')
OF_THE_RUN = OF_THE_RUN.replace("[objective]\n", '[objective]\nscale = "mean"\n')  # a server does not know all sizes
OF_THE_RUN = OF_THE_RUN.replace("seed = 3", 'seed = 3\nengine = "numpy"')
CLIENTS = '[clients]\nnames = ["north", "south", "west"]\nleast = 3\ndeadline = 60\nwait = 60\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame = table()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "run.toml").write_text(OF_THE_RUN + "\n" + SCHEMA.to_toml())
    (tmp_path / "server.toml").write_text(
        CLIENTS + OF_THE_RUN.replace('[data]\ncsv = "rows.csv"\n', "") + SCHEMA.to_toml()
    )
    for ward in WARDS:
        (tmp_path / ward).mkdir()
        frame[frame["ward"] == ward].drop(columns=["ward"]).to_csv(tmp_path / ward / "rows.csv", index=False)
        write_node(tmp_path / ward, SCHEMA.to_toml())
    return tmp_path


def write_node(home: Path, schema: str, data: str = 'csv = "rows.csv"') -> None:
    limits = to_toml({"limits": LIMITS | {"delta": 1e-5}})
    (home / "node.toml").write_text(f'[node]\nname = "{home.name}"\n\n[data]\n{data}\n\n{limits}\n{schema}')


def deployment(folder: Path) -> Deployment:
    return Deployment.build(read_tables(folder / "server.toml", run_file.TABLES), "server.toml", folder)


def files(folder: Path) -> list[Path]:
    return [folder / ward / "node.toml" for ward in WARDS]


def test_nodes_train_what_the_simulator_trains(folder: Path) -> None:
    result = serve(deployment(folder), NAME, LocalPost(files(folder)), folder / "out")
    simulated = run_file.load(folder / "run.toml").train()
    np.testing.assert_array_equal(result.model, simulated.model)
    new = table(100, seed=1)
    saved = load_result(folder / "out")
    np.testing.assert_array_equal(saved.predict(new), simulated.predict(new))
    np.testing.assert_array_equal(saved.predict_proba(new), result.predict_proba(new))
    assert saved.schema == SCHEMA


def test_the_schema_may_stand_in_a_file_beside_it(folder: Path) -> None:
    (folder / "north" / "schema.toml").write_text(SCHEMA.to_toml())
    write_node(folder / "north", '[schema]\nfile = "schema.toml"\n')
    assert serve(deployment(folder), NAME, LocalPost(files(folder)), folder / "out").rounds == 5


@pytest.mark.parametrize(
    "schema", [SCHEMA.to_toml().replace("range = [0, 100]", "range = [0, 101]"), f'[schema]\ndigest = "{"0" * 64}"\n']
)
def test_another_schema_is_refused(folder: Path, schema: str) -> None:
    encoded = SCHEMA.encode(folder / "north" / "rows.csv", owners=False)
    if "digest" in schema:
        assert encoded.y is not None
        np.savez(folder / "north" / "rows.npz", X=encoded.X, y=encoded.y)
        write_node(folder / "north", schema, 'npz = "rows.npz"\nlabels = ["0", "1"]\nrow_bound = 1.0')
    else:
        write_node(folder / "north", schema)
    with pytest.raises(SottovoceError, match="its rows are prepared by another schema"):
        serve(deployment(folder), NAME, LocalPost(files(folder)), folder / "out")


def test_a_schema_that_the_server_does_not_name_is_refused(folder: Path) -> None:
    text = (folder / "server.toml").read_text().removesuffix(SCHEMA.to_toml())
    (folder / "server.toml").write_text(
        text.replace("least = 3", f"least = 3\ncolumns = {SCHEMA.width}\nrow_bound = 1.0")
    )
    with pytest.raises(SottovoceError, match="its rows are prepared by another schema"):
        serve(deployment(folder), NAME, LocalPost(files(folder)), folder / "out")


def test_rows_shared_out_to_nodes_keep_the_digest(folder: Path) -> None:
    run = run_file.load(folder / "run.toml")
    made = deployment(folder)
    split_to_nodes(folder / "nodes", run, made.task)
    there = [folder / "nodes" / str(number) / "node.toml" for number in range(3)]
    result = serve(made, NAME, LocalPost(there), folder / "out")
    np.testing.assert_array_equal(result.model, run.train().model)


def test_public_test_rows_are_read_by_the_schema(folder: Path) -> None:
    table(50, seed=2).to_csv(folder / "test.csv", index=False)
    text = (folder / "server.toml").read_text().replace("least = 3", 'least = 3\ntest = "test.csv"')
    (folder / "server.toml").write_text(text)
    result = serve(deployment(folder), NAME, LocalPost(files(folder)), folder / "out")
    right = (result.predict(table(50, seed=2)) == table(50, seed=2)["ill"]).mean()
    assert result.history["test_accuracy"][-1] == pytest.approx(right)


def test_the_ledger_belongs_to_the_table_and_not_to_its_schema(folder: Path) -> None:
    before = Node(folder / "north" / "node.toml").rows
    write_node(folder / "north", SCHEMA.to_toml().replace("waves = 5", "waves = 6"))
    after = Node(folder / "north" / "node.toml").rows
    assert before.X.shape != after.X.shape
    assert before.fingerprint == after.fingerprint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('csv = "rows.csv"\nrow_bound = 1.0', "row_bound does not go with a"),
        ('csv = "rows.csv"\nlabel = "age"', "label is stated by the"),
        ('csv = "rows.csv"\nlabels = ["sick", "healthy"]', "labels is stated by the"),
        ('npz = "rows.npz"', "npz does not go with a"),
        ('csv = "rows.csv"\nsame_order = true', "same_order does not go with a"),
    ],
)
def test_what_does_not_go_with_a_schema_is_refused(folder: Path, data: str, message: str) -> None:
    write_node(folder / "north", SCHEMA.to_toml(), data)
    with pytest.raises(InvalidInput, match=message):
        Node(folder / "north" / "node.toml")


@pytest.mark.parametrize("digest", ["3", '"abc"', f'"{"g" * 64}"'])
def test_a_digest_is_64_hex_digits(folder: Path, digest: Any) -> None:
    write_node(folder / "north", f"[schema]\ndigest = {digest}\n", 'npz = "rows.npz"\nlabels = ["0", "1"]')
    with pytest.raises(InvalidInput, match="64 hex digits"):
        Node(folder / "north" / "node.toml")


# ------------------------------------------------------------------------------------------------------ split columns


def test_parties_with_their_parts_of_a_schema_train_what_the_simulator_trains(tmp_path: Path) -> None:
    frame = table(80).drop(columns=["ward"])
    schema = SPLIT
    privacy = {"mode": "proven", "epsilon": 50.0, "delta": 1e-4, "noise": "seeded", "unit": "record", "bound": 50.0}
    tables: Any = {
        "data": {"csv": "rows.csv"},
        "objective": {"loss": "logistic", "penalty": "l2", "lam": 1.0},
        "algorithm": {"name": "admm-sharing"},
        "privacy": privacy | {"row_bound": 1.0, "score_bound": 5.0, "model": True},
        "run": {"rounds": 3, "seed": 3, "name": "parties"},
        "schema": schema.to_tables(),
    }
    places = []
    salted = 'id = "id"\nsalt = "agreed"'
    for number, (party, own) in enumerate(PARTIES.items()):
        (tmp_path / party).mkdir()
        part = frame[["id", *own, *(["ill"] if number == 0 else [])]].sample(frac=1, random_state=number)
        part.to_csv(tmp_path / party / "rows.csv", index=False)
        limits = to_toml({"limits": LIMITS | {"delta": 1e-4, "epsilon": 60.0, "algorithms": ["admm-sharing"],
                                              "open_labels": True}})  # fmt: skip
        data = f'[data]\ncsv = "rows.csv"\n{salted}\n'
        (tmp_path / party / "node.toml").write_text(f'[node]\nname = "{party}"\n{data}{limits}\n{schema.to_toml()}')
        places.append(tmp_path / party / "node.toml")
    clients = {"samples": 80, "deadline": 60.0, "wait": 60.0, "names": list(PARTIES), "least": 2}
    made = Deployment.build({name: t for name, t in tables.items() if name != "data"} | {"clients": clients}, "s.toml")
    assert made.clients.split == tuple(schema.part(party).width for party in PARTIES)
    result = serve(made, NAME, LocalPost(places), tmp_path / "out")
    order = Node(places[0])._data.in_order(frame["id"].tolist())[0]
    frame.iloc[order].to_csv(tmp_path / "rows.csv", index=False)
    simulated = run_file.build(tables, "run.toml", tmp_path).train()
    np.testing.assert_array_equal(result.model, simulated.model)
    new = table(30, seed=1)
    np.testing.assert_array_equal(load_result(tmp_path / "out").predict(new), simulated.predict(new))
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "node.toml").write_text(places[0].read_text().replace('"clinic"\n[data]', '"north"\n[data]'))
    with pytest.raises(InvalidInput, match="unknown party 'north'"):
        Node(tmp_path / "north" / "node.toml")
