"""A model outside the library: the Python file predicts what the run predicts, and the card says what is true."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce.core.check import InvalidInput
from sottovoce.experiment import run_file
from sottovoce.experiment.predict import predictions, to_csv
from sottovoce.experiment.saved import load_result
from sottovoce.problems import data as datasets
from sottovoce.report import export, page
from sottovoce.report.export import model_card
from sottovoce.report.runs import run_folders
from tests.cli.test_cli import call
from tests.experiment.test_schema_parties import SPLIT
from tests.experiment.test_schema_runs import SCHEMA, table

EVERY_KIND = sv.Schema(
    {"body mass": sv.Number(10, 60, waves=4, missing=[0, -9])},
    pay=sv.Number(0, 1e6, log=True, waves=3, missing=True),
    seen=sv.Date("2015-01-01", "2024-12-31", weekday=True, month=True, form="%d.%m.%Y", waves=3, missing=True),
    flag=sv.Category(True, False),
    code=sv.Category(1, 2.5, "x'\\\"é", missing=["?"]),
    colour=sv.OneHot("red", "green"),
    label=sv.Label("ill", ["no", "yes"]),
    missing_values=["n/a"],
    drop=["id"],
)
ODD = {
    "id": ["a"] * 8,
    "body mass": ["20", " 1e1 ", "0", "-9", "", "n/a", "99", "1_0"],
    "pay": ["0", "1e6", "-5", "inf", "nan", "", "12.5", "abc"],
    "seen": ["31.12.2020", "2020-02-29", "2020-02-30", "", "n/a", "01.01.1999", "2021-05-05T10:00", "x"],
    "flag": ["TRUE", "false", "1", "", "True ", "no", "n/a", "False"],
    "code": ["1.0", "2.50", "x'\\\"é", "?", "", "3", "n/a", "01"],
    "red": ["1", "0", "", "2", "true", "0.5", "n/a", "0"],
    "green": ["0", "1", "", "-1", "0", "0.5", "1", "0"],
}


def result_of(schema: sv.Schema, loss: Any = None, seed: int = 0) -> sv.Result:
    """A run with this schema and made-up weights, which no training would give."""
    objective = sv.Objective(loss or sv.Logistic(), sv.L2(0.1))
    fed = sv.Federation.from_arrays([[1.0], [-1.0]], [1, -1] if objective.loss.outputs == 1 else [0, 1], ["a", "b"])
    made = sv.train(sv.DPSGD(), fed, objective, rounds=1, privacy=sv.NoPrivacy(), seed=0)
    weights = 3 * np.random.default_rng(seed).normal(size=objective.loss.outputs * schema.width)
    return replace(made, model=weights, config=made.config | {"schema": schema.to_tables()})


def scored(folder: Path, result: sv.Result, rows: Path) -> dict[str, list[str]]:
    """What the exported file prints, in a process that cannot import the library."""
    (folder / "model.py").write_text(export.to_python(result), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = (
        "import sys, runpy\n"
        "class Closed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] not in {'numpy', *sys.stdlib_module_names}: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Closed())\n"
        "sys.argv = ['model.py', sys.argv[1]]\n"
        "runpy.run_path('model.py', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(rows)], cwd=folder, env=environment | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    header, *lines = list(csv.reader(done.stdout.splitlines()))
    return dict(zip(header, map(list, zip(*lines, strict=True)), strict=True))


@pytest.mark.parametrize("loss", [sv.Logistic(), sv.Softmax(3), sv.Squared(), sv.SmoothedHinge()], ids=repr)
def test_the_python_file_predicts_what_the_run_predicts(tmp_path: Path, loss: Any) -> None:
    labels = {"softmax": sv.Label("ill", [0, 1, 2]), "squared": sv.Label("ill", range=(10, 50))}
    label = labels.get(loss.name, EVERY_KIND.label)
    schema = sv.Schema(EVERY_KIND.columns, label=label, missing_values=["n/a"], drop=["id"])
    result, path = result_of(schema, loss), tmp_path / "new.csv"
    pd.DataFrame(ODD).to_csv(path, index=False)
    expected = predictions(result, path)
    found = scored(tmp_path, result, path)
    assert list(found) == list(expected)
    for name, column in expected.items():
        if name == "prediction" and label is not labels["squared"]:
            assert found[name] == list(map(str, column))
        else:
            np.testing.assert_allclose(np.array(found[name], dtype=float), column, rtol=0, atol=1e-12)
    if loss.name == "logistic":
        assert len(set(expected["prediction"])) == 2


def test_a_threshold_and_a_calibration_go_along(tmp_path: Path) -> None:
    result, path = result_of(EVERY_KIND), tmp_path / "new.csv"
    pd.DataFrame(ODD).to_csv(path, index=False)
    more = {"evaluate": {"threshold": 0.9}, "choice": {"calibration": 0.25}}
    moved = replace(result, config=result.config | more)
    expected, found = predictions(moved, path), scored(tmp_path, moved, path)
    assert expected != predictions(result, path)
    assert found["prediction"] == expected["prediction"]
    chances = np.array(found["probability of yes"], dtype=float)
    np.testing.assert_allclose(chances, expected["probability of yes"], rtol=0, atol=1e-12)


def test_a_whole_data_set_is_scored_alike(tmp_path: Path) -> None:
    raw = datasets.heart("raw")
    pd.DataFrame(raw.X, columns=list(raw.feature_names)).to_csv(tmp_path / "new.csv", index=False)
    result = result_of(sv.Schema.bundled("heart"))
    expected, found = predictions(result, tmp_path / "new.csv"), scored(tmp_path, result, tmp_path / "new.csv")
    assert found["prediction"] == expected["prediction"]
    chances = np.array(found["probability of ill"], dtype=float)
    np.testing.assert_allclose(chances, expected["probability of ill"], rtol=0, atol=1e-12)


@pytest.fixture
def parties(tmp_path: Path) -> Any:
    frame = table(120)
    model = sv.VerticalClassifier(prepare=SPLIT, privacy="none", rounds=5, random_state=0).fit(frame)
    return load_result(model.result_.save(tmp_path / "run"))


def test_split_columns_are_scored_alike(tmp_path: Path, parties: Any) -> None:
    table(40, seed=1).to_csv(tmp_path / "new.csv", index=False)
    expected, found = predictions(parties, tmp_path / "new.csv"), scored(tmp_path, parties, tmp_path / "new.csv")
    assert found["prediction"] == expected["prediction"]
    chances = np.array(found["probability of sick"], dtype=float)
    np.testing.assert_allclose(chances, expected["probability of sick"], rtol=0, atol=1e-12)


def test_a_run_folder_is_exported_from_the_command_line(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "rows.csv", index=False)
    text = (Path(__file__).parents[2] / "examples" / "patients" / "run.toml").read_text()
    evaluate, rest = text.index("[evaluate]"), text.index("[run]")
    text = (text[:evaluate] + text[rest:]).replace("[data]", "[data]\ntest = 0.28125")
    (tmp_path / "run.toml").write_text(text)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    result = run_file.load(tmp_path / "run.toml").train()
    folder = result.save(tmp_path / "run")
    rows = list(csv.reader((folder / "coefficients.csv").read_text().splitlines()))
    effects = result.effects()["sick"]
    assert rows[0][-1] == "change before a row is divided by its length"
    assert [row[1:3] for row in rows[1:]] == [[each.column, each.what] for each in effects]
    assert [float(row[3]) for row in rows[1:]] == [each.change for each in effects]
    said = json.loads(call("export", str(folder), "--to", "json").stdout)
    assert said["model"]["weights"] == [result.model.tolist()]
    assert said["model"]["features"] == SCHEMA.get_feature_names_out().tolist()
    assert said["guarantee"]["epsilon"] == result.guarantee.epsilon
    assert said["coefficients"]["sick"][0]["change"] == effects[0].change
    assert "divided by its length" in said["coefficients_are"]
    call("export", str(folder), "--to", "python", "--out", str(tmp_path / "model.py"))
    assert (tmp_path / "model.py").read_text(encoding="utf-8") == export.to_python(result)
    card = call("export", str(folder), "--to", "card", "--purpose", "triage").stdout
    for words in ("triage", "| `age` ", "ε = 3", "Not covered", "Nothing that may be published", "no two of them"):
        assert words in card, words
    assert "0.28125" not in card  # a share of the owners' rows was set aside; coefficients have fewer digits
    assert call("export", str(folder), "--to", "onnx").exit_code == 2
    html = page.page(page.pool(run_folders([folder]), [load_result(folder)]))
    assert f"{effects[0].change:+.4g}" in html
    assert "before it is divided by its length" in html


def test_a_card_shows_what_was_measured_in_public() -> None:
    result = result_of(SCHEMA)
    history = replace(result.history, columns={"round": [1], "test_accuracy": [0.75], "objective": [0.5]})
    card = model_card(replace(result, history=history))
    assert "75.00%" in card
    assert "0.5 " not in card  # read off private rows
    assert "No privacy" in card
    assert "Not stated" in card


def test_what_cannot_be_exported_says_why() -> None:
    plain = result_of(SCHEMA)
    with pytest.raises(InvalidInput, match="keeps no schema"):
        export.to_python(replace(plain, config={"run": {}}))
    with pytest.raises(InvalidInput, match="several runs"):
        export.to_json(replace(plain, model=np.zeros((2, SCHEMA.width))))
    assert to_csv({"a": [1], "b": ["x"]}) == "a,b\n1,x\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have a line that names the columns, and rows"),
        ("age,smoker\n", "must have a line that names the columns, and rows"),
        ("age,age,smoker\n1,2,no\n", "column names must be distinct"),
        ("age,smoker\n1\n", "row 1: must have 2 fields, got 1"),
        ('age,smoker\n"44"x,no\n', "must be a CSV file in UTF-8 (Error)"),
        ("age,smoker\n1,\xff\n", "must be a CSV file in UTF-8 (UnicodeDecodeError)"),
    ],
)
def test_a_file_that_the_exported_scorer_cannot_read(text: str, words: str, tmp_path: Path) -> None:
    columns: Any = {"age": sv.Number(0, 100), "smoker": sv.Category("no", "yes")}
    rows = result_of(sv.Schema(columns, label=sv.Label("ill", ["no", "yes"])))
    (tmp_path / "new.csv").write_bytes(text.encode("latin-1"))
    (tmp_path / "model.py").write_text(export.to_python(rows), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "model.py", "new.csv"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
