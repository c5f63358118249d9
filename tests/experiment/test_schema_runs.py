"""A CSV file with strings, gaps, dates, an id and own labels: trained by a run file, predicted from raw rows."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce.core.check import InvalidInput
from sottovoce.experiment import run_file
from sottovoce.experiment.predict import predictions
from sottovoce.experiment.saved import load_result
from sottovoce.problems import data as datasets

SCHEMA = sv.Schema(
    age=sv.Number(0, 100, waves=5, missing=True),
    smoker=sv.Category("no", "yes", missing=True),
    admitted=sv.Date("2020-01-01", "2024-12-31", month=True),
    label=sv.Label("ill", ["healthy", "sick"]),
    owner="ward",
    drop=["id"],
)
RUN = """
[data]
csv = "rows.csv"
test = 0.25

[objective]
loss = "logistic"
penalty = "l2"
lam = 0.001

[algorithm]
name = "dp-sgd"
step = 4.0

[privacy]
mode = "proven"
epsilon = 3.0
delta = 1e-5
clip = 0.5

[run]
rounds = 5
seed = 3
"""


def table(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, rows).round()
    sick = age + rng.normal(0, 10, rows) > 50
    return pd.DataFrame(
        {
            "id": [f"p{row}" for row in range(rows)],
            "age": np.where(rng.random(rows) < 0.05, np.nan, age),
            "smoker": rng.choice(["no", "yes", "sometimes", ""], rows),
            "admitted": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 1800, rows), unit="D"),
            "ill": np.where(sick, "sick", "healthy"),
            "ward": rng.choice(["north", "south", "west"], rows),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    (tmp_path / "run.toml").write_text(RUN + "\n" + SCHEMA.to_toml())
    (tmp_path / "other.toml").write_text(RUN + '\n[schema]\nfile = "schema.toml"\n')
    return tmp_path


def test_a_saved_run_predicts_raw_rows_like_the_live_one(folder: Path) -> None:
    live = run_file.load(folder / "run.toml").train()
    live.save(folder / "out")
    saved = load_result(folder / "out")
    new = table(200, seed=1)
    raw = new.drop(columns=["ill", "ward", "id"])
    assert saved.schema == live.schema == SCHEMA
    np.testing.assert_array_equal(saved.predict(raw), live.predict(raw))
    np.testing.assert_array_equal(saved.scores(raw), live.scores(raw))
    np.testing.assert_array_equal(saved.predict_proba(raw), live.predict_proba(raw))
    np.testing.assert_array_equal(saved.predict(new), live.predict(raw))
    assert set(saved.predict(new)) == {"healthy", "sick"}
    assert (saved.predict(new) == new["ill"]).mean() > 0.75
    chances = saved.predict_proba(new)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(chances[:, 1] > 0.5, saved.predict(new) == "sick")
    new.to_csv(folder / "new.csv", index=False)
    np.testing.assert_array_equal(saved.predict(folder / "new.csv"), live.predict(raw))


def test_a_schema_stands_in_the_run_file_or_beside_it(folder: Path) -> None:
    first, second = (run_file.load(folder / name, name="same") for name in ("run.toml", "other.toml"))
    assert first.described() == second.described()
    np.testing.assert_array_equal(first.data().federation.y, second.data().federation.y)
    assert first.data().federation.row_bound == 1.0
    assert first.data().federation.names == ("north", "south", "west")
    assert first.data().labels == ("healthy", "sick")
    text = run_file.build(first.described(), "again").described()
    assert text == first.described()
    guarantee = first.train().guarantee.text
    assert "labels" not in guarantee.lower() or "read off" not in guarantee


def test_the_run_folder_shows_the_schema_as_it_was_written(folder: Path) -> None:
    run_file.load(folder / "run.toml").train().save(folder / "out")
    text = (folder / "out" / "config.toml").read_text()
    assert SCHEMA.to_toml() in text
    assert sv.Schema.from_tables(tomllib.loads(text)["schema"]).digest() == SCHEMA.digest()


def test_several_classes_and_numbers_come_back_as_they_were(folder: Path) -> None:
    frame = table()
    age = frame["age"].fillna(0)
    frame["ill"] = np.where(age < 33, "young", np.where(age < 66, "middle", "old"))
    frame.to_csv(folder / "rows.csv", index=False)
    three = SCHEMA.to_toml().replace('"healthy", "sick"', '"young", "middle", "old"')
    text = RUN.replace('"logistic"', '"softmax"\nclasses = 3').replace('"proven"', '"none"')
    text = text.replace("epsilon = 3.0\ndelta = 1e-5\nclip = 0.5\n", "").replace("rounds = 5", "rounds = 200")
    (folder / "run.toml").write_text(text + "\n" + three)
    result = run_file.load(folder / "run.toml").train()
    assert set(result.predict(frame)) <= {"young", "middle", "old"}
    assert (result.predict(frame) == frame["ill"]).mean() > 0.6
    assert result.predict_proba(frame).shape == (600, 3)
    frame["ill"] = 1000 + 20 * frame["age"].fillna(50)
    frame.to_csv(folder / "rows.csv", index=False)
    money = SCHEMA.to_toml().replace('classes = ["healthy", "sick"]', "range = [1000, 3000]")
    (folder / "run.toml").write_text(
        text.replace('"softmax"\nclasses = 3', '"squared"').replace("4.0", "0.5") + "\n" + money
    )
    result = run_file.load(folder / "run.toml").train()
    assert np.abs(result.predict(frame) - frame["ill"]).mean() < 150
    with pytest.raises(InvalidInput, match="has no probabilities"):
        result.predict_proba(frame)


def test_rows_that_do_not_fit_are_refused(folder: Path) -> None:
    result = run_file.load(folder / "run.toml").train()
    with pytest.raises(InvalidInput, match="'smoker' among them"):
        result.predict(table(5).drop(columns=["smoker"]))
    with pytest.raises(InvalidInput, match="an array without names must have the 3 columns"):
        result.predict(np.zeros((2, 23)))
    plain = sv.train(
        sv.DPADMM(),
        sv.Federation.from_arrays([[1.0], [-1.0]], [1, -1], ["a", "b"]),
        sv.Objective(sv.Logistic(), sv.L2(0.1)),
        rounds=2,
        privacy=sv.NoPrivacy(),
        seed=0,
    )
    with pytest.raises(InvalidInput, match="Result: X must have 1 columns"):
        plain.predict([[1.0, 2.0]])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('csv = "rows.csv"', 'csv = "rows.csv"\nlabel = "age"', "label is stated by the"),
        ('csv = "rows.csv"', 'csv = "rows.csv"\nowner = "id"', "owner is stated by the"),
        ('csv = "rows.csv"', 'csv = "rows.csv"\nlabels = ["sick", "healthy"]', "labels is stated by the"),
        ('csv = "rows.csv"', 'csv = "rows.csv"\nrow_bound = 2.0', "row_bound does not go with a"),
        ('csv = "rows.csv"', 'csv = "rows.csv"\nranges = {age = [0, 1]}', "ranges does not go with a"),
        ('csv = "rows.csv"', 'name = "heart"', "has a schema of its own"),
        ('"logistic"', '"squared"', "the squared loss needs a label with range"),
        ('"logistic"', '"softmax"\nclasses = 3', "must hold 3 classes"),
        ('[schema.label]\ncolumn = "ill"\nclasses = ["healthy", "sick"]\n', "", "which column is the label"),
        ("range = [0, 100]", "range = [100, 0]", r"run.toml, \[schema.columns.age\]: Number: low must be < high"),
        ('owner = "ward"', 'owner = "wards"', "Did you mean 'ward'"),
    ],
)
def test_what_does_not_go_together_is_refused(folder: Path, old: str, new: str, message: str) -> None:
    text = (folder / "run.toml").read_text()
    assert old in text
    (folder / "run.toml").write_text(text.replace(old, new))
    with pytest.raises(InvalidInput, match=message):
        run_file.load(folder / "run.toml").data()


def raw_heart() -> tuple[pd.DataFrame, np.ndarray]:
    plain = datasets.heart("raw")
    return pd.DataFrame(plain.X, columns=list(plain.feature_names)), np.where(plain.y > 0, "ill", "healthy")


@pytest.mark.parametrize("loss", [{"loss": "logistic"}, {"loss": "softmax", "classes": 2}])
def test_a_run_on_a_named_set_keeps_its_schema_and_predicts_raw_rows(tmp_path: Path, loss: dict[str, Any]) -> None:
    exact = {"privacy": {"mode": "none"}, "objective": {**loss, "scale": "records"}, "run": {"rounds": 50, "seed": 0}}
    tables: Any = tomllib.loads(RUN) | {"data": {"name": "heart", "test": 0.25}, **exact}
    experiment = run_file.build(tables, "heart.toml")
    live = experiment.train()
    saved = load_result(live.save(tmp_path / "out"))
    frame, ill = raw_heart()
    assert saved.schema == sv.Schema.bundled("heart")
    np.testing.assert_array_equal(saved.predict_proba(frame), live.predict_proba(frame))
    assert (saved.predict(frame) == ill).mean() > 0.75
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert predictions(saved, tmp_path / "new.csv")["prediction"] == live.predict(frame).tolist()
    again = run_file.build(saved.config, "saved.toml")
    assert again.described() == experiment.described()
    np.testing.assert_array_equal(again.data().federation.X, experiment.data().federation.X)  # type: ignore[union-attr]


def test_another_preparation_of_a_named_set_is_asked_for() -> None:
    tables: Any = tomllib.loads(RUN) | {"data": {"name": "heart", "encoding": "raw"}}
    data = run_file.build(tables, "heart.toml").data()
    assert data.schema is None
    assert data.federation.X.shape == (740, 10)  # type: ignore[union-attr]
    tables["data"] = {"name": "heart", "split": [33, 33]}
    tables |= {"algorithm": {"name": "admm-sharing"}, "privacy": {"mode": "none"}}
    with pytest.raises(InvalidInput, match="split counts columns, and a schema encoded the rows"):
        run_file.build(tables, "heart.toml").data()


def test_no_value_is_in_an_error(folder: Path) -> None:
    frame: Any = table()
    frame.loc[3, "ill"] = "Sm1thJ0hn"
    frame.to_csv(folder / "rows.csv", index=False)
    with pytest.raises(InvalidInput, match="row 4 does not") as caught:
        run_file.load(folder / "run.toml").data()
    assert "Sm1th" not in str(caught.value)
