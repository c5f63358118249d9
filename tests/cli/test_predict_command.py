"""From a CSV file and one schema to predictions of new rows, on the command line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce.experiment.saved import load_result
from tests.command_line import invoke
from tests.experiment.test_schema_runs import RUN, SCHEMA, table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table().to_csv(tmp_path / "rows.csv", index=False)
    table(20, seed=1).drop(columns=["ill", "ward"]).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "run.toml").write_text(RUN + '[schema]\nfile = "schema.toml"\n')
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    return tmp_path


def call(*arguments: str, code: int = 0) -> str:
    result = invoke(list(arguments))
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def test_predictions_of_new_rows(folder: Path) -> None:
    call("run", "run.toml", "--out", "out")
    text = call("predict", "out", "new.csv")
    call("predict", "out", "new.csv", "--out", "predicted.csv")
    assert (folder / "predicted.csv").read_text() == text
    read = pd.read_csv(folder / "predicted.csv")
    assert list(read.columns) == ["prediction", "probability of healthy", "probability of sick"]
    saved, new = load_result("out"), table(20, seed=1)
    assert read["prediction"].tolist() == saved.predict(new).tolist()
    np.testing.assert_array_equal(read.iloc[:, 1:].to_numpy(), saved.predict_proba(new))
    assert "there is such a file already" in call("predict", "out", "new.csv", "--out", "predicted.csv", code=2)
    assert "there is no such file" in call("predict", "out", "none.csv", code=3)
    shown = call("show", "out")
    assert "Score of sick, before a row is divided by its length" in shown
    assert "smoker" in shown
    assert len(json.loads(call("show", "out", "--json"))["sick"]) == SCHEMA.width
    (folder / "bad.csv").write_text("Sm1thJ0hn\n3\n")
    assert "Sm1th" not in call("predict", "out", "bad.csv", code=2)


def test_a_run_without_a_schema_says_so(folder: Path) -> None:
    numbers = pd.DataFrame({"x": [0.1, -0.2] * 20, "y": ["a", "b"] * 20, "who": ["n", "n", "s", "s"] * 10})
    numbers.to_csv(folder / "rows.csv", index=False)
    text = RUN.replace(
        'csv = "rows.csv"', 'csv = "rows.csv"\nlabel = "y"\nowner = "who"\nlabels = ["a", "b"]\nrow_bound = 1.0'
    )
    (folder / "run.toml").write_text(text)
    call("run", "run.toml", "--out", "out")
    assert "keeps no schema" in call("predict", "out", "new.csv", code=2)
    shown = call("show", "out")
    assert "keeps no schema" in shown
    assert "larger class 50.00%" in shown


def test_a_schema_is_drafted(folder: Path) -> None:
    text = call("schema", "new", "rows.csv", "--label", "ill", "--owner", "ward", "--drop", "id")
    assert "age = {}" in text
    assert "p0" not in text
    public = call("schema", "new", "rows.csv", "--label", "ill", "--owner", "ward", "--drop", "id", "--public")
    assert sv.Schema.from_toml(public).features == ("age", "smoker", "admitted")
    assert "needs --label" in call("schema", "new", "rows.csv", "--public", code=2)
    assert "Did you mean 'ill'" in call("schema", "new", "rows.csv", "--label", "il", code=2)
    assert "unknown action" in call("schema", "old", "rows.csv", code=2)
    assert call("schema", "digest", "schema.toml").strip() == SCHEMA.digest()
    call("schema", "new", "rows.csv", "--out", "draft.toml")
    assert "there is such a file already" in call("schema", "new", "rows.csv", "--out", "draft.toml", code=2)
