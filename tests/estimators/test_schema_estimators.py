"""Estimators that take a table as it is, by a schema."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import sottovoce as sv
from sottovoce.core.check import InvalidInput
from sottovoce.experiment.saved import load_result
from tests.experiment.test_schema_runs import SCHEMA, table

BUDGET = {"epsilon": 3.0, "clip": 0.5, "rounds": 5, "random_state": 0}


def classifier(**options: object) -> sv.FederatedClassifier:
    given = (
        {"algorithm": sv.algorithms.DPSGD(step=4.0), "prepare": SCHEMA, "earlier_steps": "public"} | BUDGET | options
    )
    return sv.FederatedClassifier(**given)  # type: ignore[arg-type]


def test_a_table_as_it_is(tmp_path: Path) -> None:
    frame, new = table(), table(2000, seed=1)
    model = classifier().fit(frame)
    assert model.classes_.tolist() == ["healthy", "sick"]
    assert model.score(new, new["ill"]) > 0.8
    assert (model.n_features_in_, model.coef_.shape) == (3, (1, SCHEMA.width))
    assert model.intercept_.tolist() == [0.0]
    assert "owner" not in model.guarantee_.short
    apart = classifier().fit(frame.drop(columns=["ill", "ward", "id"]), frame["ill"], groups=frame["ward"])
    np.testing.assert_array_equal(apart.coef_, model.coef_)
    raw = new.drop(columns=["ill", "ward"])
    saved = load_result(model.result_.save(tmp_path / "out"))
    np.testing.assert_array_equal(saved.predict(raw), model.predict(raw))
    np.testing.assert_array_equal(saved.scores(raw), model.decision_function(raw))
    np.testing.assert_array_equal(saved.predict_proba(raw), model.predict_proba(raw))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(raw), model.predict(raw))
    assert model.get_params()["prepare"] == SCHEMA
    clone(model)


def test_classes_keep_the_order_of_the_schema(tmp_path: Path) -> None:
    turned = sv.Schema.from_toml(SCHEMA.to_toml().replace('"healthy", "sick"', '"sick", "healthy"'))
    model = classifier(prepare=turned).fit(table())
    assert model.classes_.tolist() == ["sick", "healthy"]
    new = table(100, seed=1)
    assert model.score(new, new["ill"]) > 0.8
    saved = load_result(model.result_.save(tmp_path / "out"))
    np.testing.assert_array_equal(saved.predict(new), model.predict(new))
    assert classifier(loss="softmax").fit(table()).score(new, new["ill"]) > 0.8


def test_three_classes_and_numbers(tmp_path: Path) -> None:
    frame = table()
    age = frame["age"].fillna(50)
    frame["ill"] = np.where(age < 33, "young", np.where(age < 66, "middle", "old"))
    three = sv.Schema.from_toml(SCHEMA.to_toml().replace('"healthy", "sick"', '"young", "middle", "old"'))
    model = classifier(prepare=three, privacy="none", rounds=100).fit(frame)
    assert model.score(frame, frame["ill"]) > 0.6
    saved = load_result(model.result_.save(tmp_path / "three"))
    np.testing.assert_array_equal(saved.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(saved.predict_proba(frame), model.predict_proba(frame))
    frame["ill"] = 1000 + 20 * age
    money = sv.Schema.from_toml(SCHEMA.to_toml().replace('classes = ["healthy", "sick"]', "range = [1000, 3000]"))
    number = sv.FederatedRegressor(sv.algorithms.DPSGD(step=0.5), prepare=money, privacy="none", rounds=200).fit(frame)
    assert number.score(frame, frame["ill"]) > 0.8
    saved = load_result(number.result_.save(tmp_path / "number"))
    np.testing.assert_array_equal(saved.predict(frame), number.predict(frame))


def test_the_planner_knows_how_long_rows_are() -> None:
    model = classifier(algorithm="auto").fit(table())
    assert model.result_.config["data"]["row_bound"] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["healthy", "sick"]}, "classes must be left out"),
        ({"prepare": sv.Schema(age=sv.Number(0, 1))}, "must say what the label is"),
    ],
)
def test_what_does_not_go_with_a_schema(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        classifier(**change).fit(table(50)[["age", "ill"]] if "Number" in str(change) else table(50), table(50)["ill"])


def test_tables_that_do_not_fit() -> None:
    frame = table(60)
    with pytest.raises(InvalidInput, match="'ward' among them"):
        classifier().fit(frame.drop(columns=["ward"]))
    with pytest.raises(InvalidInput, match="one label per row"):
        classifier().fit(frame, frame["ill"][:10])
    with pytest.raises(InvalidInput, match="row 1 does not"):
        classifier().fit(frame, ["Sm1thJ0hn"] * 60)
    with pytest.raises(InvalidInput, match="y_range must be left out"):
        sv.FederatedRegressor(prepare=SCHEMA).fit(frame)
