"""Split columns by default: run files, saved folders, predictions and estimators that use masked moments."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import ADMMSharing, MaskedMoments
from sottovoce.auditing.verify import verify
from sottovoce.experiment import run_file
from sottovoce.experiment.saved import load_result
from sottovoce.problems.vertical import VerticalFederation
from tests.command_line import invoke

RUN = """
[data]
csv = "rows.csv"
test = 0.2

[schema.parties]
bank = ["age", "income"]
shop = ["sex"]
{third}
[schema.label]
column = "buys"
classes = ["no", "yes"]

[schema.columns]
age = {{range = [0, 100]}}
income = {{range = [0, 1000], knots = 4}}
sex = {{levels = ["f", "m"]}}
{more}

[objective]
loss = "logistic"
penalty = "l2"
lam = 1e-4

[privacy]
mode = "proven"
epsilon = 3.0
delta = 1e-5
{privacy}
[run]
seed = 1
"""


def rows(count: int = 2000, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    made: Any = []
    for _ in range(count):
        age, income, sex, region = (
            rng.uniform(18, 90),
            rng.uniform(0, 1000),
            rng.choice(["f", "m"]),
            rng.choice(["n", "s"]),
        )
        buys = (age - 50) / 30 + (income - 500) / 300 + (1 if sex == "f" else -1) + rng.normal() > 0
        made.append({"age": round(age, 1), "income": round(income), "sex": str(sex), "region": str(region),
                     "buys": "yes" if buys else "no"})  # fmt: skip
    return made


def written(folder: Path, third: bool = False, privacy: str = "") -> Path:
    """A table and a run file that names no method."""
    table = [{name: row[name] for name in row if third or name != "region"} for row in rows()]
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    more = (
        {"third": 'map = ["region"]\n', "more": 'region = {levels = ["n", "s"]}'}
        if third
        else {"third": "", "more": ""}
    )
    (folder / "run.toml").write_text(RUN.format(**more, privacy=privacy))
    return folder / "run.toml"


@pytest.mark.parametrize("third", [False, True])
def test_a_run_file_without_a_method_uses_masked_moments_and_verifies(tmp_path: Path, third: bool) -> None:
    result: Any = run_file.load(written(tmp_path, third)).train()
    assert result.config["algorithm"]["name"] == "masked-moments"
    assert result.config["algorithm"]["shares"] == ([3, 1, 1] if third else [3, 1])
    assert result.history["test_accuracy"][-1] > 0.75
    best_alone = max(values[0] for name, values in result.metrics.items() if name.endswith("_alone"))
    assert result.history["test_accuracy"][-1] > best_alone
    folder = result.save(tmp_path / "saved")
    verdict = verify(folder)
    assert verdict.holds, [check for check in verdict.checks if check.status == "does not hold"]
    again = load_result(folder)
    table = [{name: row[name] for name in ("age", "income", "sex", *(["region"] if third else []))} for row in rows(50)]
    np.testing.assert_array_equal(again.predict(table), result.predict(table))


def test_the_command_predicts_for_split_columns_and_shows_what_each_party_alone_would_give(tmp_path: Path) -> None:
    folder = run_file.load(written(tmp_path)).train().save(tmp_path / "saved")
    new = tmp_path / "new.csv"
    new.write_text("age,income,sex\n20,50,m\n85,990,f\n")
    told = invoke(["predict", str(folder), str(new)])
    assert told.exit_code == 0
    assert [line.split(",")[0] for line in told.stdout.splitlines()] == ["prediction", "no", "yes"]
    shown = invoke(["show", str(folder)]).stdout.replace("\n", " ")
    assert "columns of bank alone" in shown
    assert "columns of shop alone" in shown


def test_bounds_on_scores_choose_admm_sharing_as_before(tmp_path: Path) -> None:
    bounds = 'unit = "record"\nbound = 20.0\nrow_bound = 1.0\nscore_bound = 1.0\n'
    path = written(tmp_path, privacy=bounds)
    path.write_text(path.read_text().replace("seed = 1", "seed = 1\nrounds = 2"))
    assert isinstance(run_file.load(path).task.algorithm, ADMMSharing)


def test_auto_in_train_goes_by_what_is_split() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 3))
    y = np.where(X.sum(axis=1) > 0, 1.0, -1.0)
    parties, goal = VerticalFederation.from_columns(X, y, [1, 2]), sv.Objective(sv.Logistic(), sv.L2(1e-4))
    proven = sv.train("auto", parties, goal, privacy=sv.ProvenColumns(1.0, 1e-5), seed=0)
    assert proven.config["algorithm"]["name"] == "masked-moments"
    assert "lambda" in proven.remarks[0]
    named = sv.train("masked-moments", parties, goal, privacy=sv.ProvenColumns(1.0, 1e-5), seed=0)
    np.testing.assert_array_equal(named.model, proven.model)
    plain = sv.train("auto", parties, goal, privacy=sv.NoPrivacy(), seed=0, measure_training=False)
    assert plain.config["algorithm"]["name"] == "admm-sharing"


SCHEMA = sv.Schema(
    age=sv.Number(0, 100),
    income=sv.Number(0, 1000, knots=4),
    sex=sv.Category("f", "m"),
    label=sv.Label("buys", ["no", "yes"]),
    drop=["region"],
    parties={"bank": ["age", "income"], "shop": ["sex"]},
)


def test_epsilon_and_delta_are_enough_for_a_classifier() -> None:
    model = sv.VerticalClassifier(prepare=SCHEMA, epsilon=3.0, delta=1e-6, random_state=0).fit(rows(4000))
    test = rows(1000, seed=1)
    assert np.mean(model.predict(test) == [row["buys"] for row in test]) > 0.75
    assert "and its label" in model.guarantee_.unit
    assert model.guarantee_.epsilon == pytest.approx(3.0, abs=1e-6)
    assert isinstance(model.algorithm_, MaskedMoments)
    assert model.algorithm_.shares == (3, 1)
    assert model.chosen_ is not None
    assert model.result_.standard_errors is not None
    assert model.result_.standard_errors.shape == model.coef_[0].shape


def test_several_classes_and_a_regression_over_split_columns() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20_000, 4))
    kinds = np.array(["a", "b", "c"])[np.argmax(X @ rng.normal(size=(4, 3)), axis=1)]
    model = sv.VerticalClassifier([1, 3], epsilon=5.0, random_state=0).fit(X, kinds)
    assert model.score(X, kinds) > 0.85
    assert model.coef_.shape == (3, 4)
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(axis=1), 1.0)
    values = 50 + X @ [10.0, 0.0, -5.0, 2.0]
    regression = sv.VerticalRegressor({"x": [0, 1], "y": [2, 3]}, y_range=(30, 70), epsilon=5.0, random_state=0)
    assert regression.fit(X, values).score(X, values) > 0.97
    np.testing.assert_allclose(regression.coef_, [10.0, 0.0, -5.0, 2.0], atol=1.0)
    assert regression.intercept_ == pytest.approx(50, abs=1.0)


def test_a_regression_by_a_schema_predicts_in_its_own_units() -> None:
    schema = sv.Schema(age=sv.Number(0, 100), sex=sv.Category("f", "m"), label=sv.Label("pay", range=(0, 200)),
                       parties={"bank": ["age"], "shop": ["sex"]})  # fmt: skip
    table: Any = [
        {"age": row["age"], "sex": row["sex"], "pay": row["age"] + (30 if row["sex"] == "f" else 0)}
        for row in rows(4000)
    ]
    model = sv.VerticalRegressor(prepare=schema, epsilon=10.0, random_state=0).fit(table)
    assert model.score(table, [row["pay"] for row in table]) > 0.6


def test_a_row_of_zeros_at_a_party_is_a_row_like_others() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(500, 3))
    X[::3, 1:] = 0.0  # the second party knows nothing of these
    y = np.where(X[:, 0] > 0, 1, -1)
    model = sv.VerticalClassifier([1, 2], epsilon=50.0, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
