"""One table whose columns belong to several parties: a schema says which are whose."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from sottovoce.core.check import InvalidInput
from sottovoce.experiment import run_file
from sottovoce.experiment.predict import predictions
from sottovoce.experiment.saved import load_result
from tests.experiment.test_schema_runs import SCHEMA, table

PARTIES = {"clinic": ["age", "smoker"], "registry": ["admitted"]}
SPLIT = sv.Schema(SCHEMA.columns, label=SCHEMA.label, drop=["id", "ward"], parties=PARTIES)
RUN = """
[data]
csv = "rows.csv"
test = 0.25

[objective]
loss = "logistic"
penalty = "l2"
lam = 0.001

[algorithm]
name = "{}"

[privacy]
mode = "none"

[run]
rounds = {}
seed = 3
"""
METHODS = [("admm-sharing", 300), ("fdml", 40)]


def test_parts_encode_by_themselves() -> None:
    frame = table(50)
    (clinic, registry), y = SPLIT.encode_parts(frame)
    np.testing.assert_array_equal(clinic, SPLIT.part("clinic").transform(frame[["age", "smoker"]]))
    np.testing.assert_array_equal(registry, SPLIT.part("registry").transform(frame[["admitted"]]))
    assert y is not None
    np.testing.assert_array_equal(y, frame["ill"] == "sick")
    assert np.abs(np.linalg.norm(clinic, axis=1) - 1).max() < 1e-11  # it has the bias
    assert np.linalg.norm(registry, axis=1).max() <= 1.0
    whole = SPLIT.transform(frame)
    assert clinic.shape[1] + registry.shape[1] == whole.shape[1]
    other = SPLIT.part("registry")
    assert (other.bias, other.label, other.width) == (False, None, registry.shape[1])
    shorter = replace_unknown(frame)
    np.testing.assert_array_equal(other.transform(shorter), np.zeros((3, other.width)))
    assert sv.Schema.from_toml(SPLIT.to_toml()) == SPLIT
    assert SPLIT.digest() != SCHEMA.digest()


def replace_unknown(frame: pd.DataFrame) -> pd.DataFrame:
    """No date can be read: the middle of the range and no month."""
    return pd.DataFrame({"admitted": ["", "", ""]})


@pytest.mark.parametrize(("name", "rounds"), METHODS)
def test_a_saved_run_predicts_raw_rows_like_the_live_one(tmp_path: Path, name: str, rounds: int) -> None:
    table().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "run.toml").write_text(RUN.format(name, rounds) + "\n" + SPLIT.to_toml())
    experiment = run_file.load(tmp_path / "run.toml")
    live: Any = experiment.train()
    saved: Any = load_result(live.save(tmp_path / "out"))
    new = table(200, seed=1)
    raw = new.drop(columns=["ill", "ward", "id"])
    assert saved.widths == live.widths == tuple(part.shape[1] for part in experiment.data().federation.parts)  # type: ignore[union-attr]
    for ask in ("scores", "predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(saved, ask)(raw), getattr(live, ask)(raw))
    np.testing.assert_array_equal(saved.predict(new), live.predict(raw))
    assert (saved.predict(raw) == new["ill"]).mean() > 0.8
    sent = [saved.partial_scores(m, raw[columns]) for m, columns in enumerate(PARTIES.values())]
    np.testing.assert_allclose(np.sum(sent, axis=0), saved.scores(raw), atol=1e-14)
    new.to_csv(tmp_path / "new.csv", index=False)
    assert predictions(saved, tmp_path / "new.csv")["prediction"] == live.predict(raw).tolist()
    named = [effect.column for effect in saved.effects()["sick"]]
    assert list(dict.fromkeys(named)) == ["age", "smoker", "(bias)", "admitted"]
    assert run_file.build(saved.config, "again").described() == experiment.described()


def test_the_estimator_reaches_scikit_learns_optimum_on_the_same_parts(tmp_path: Path) -> None:
    frame = table()
    model = sv.VerticalClassifier(
        prepare=SPLIT, privacy="none", rounds=600, penalty=sv.L2(0.01), random_state=0
    ).fit(frame)  # fmt: skip
    parts, y = SPLIT.encode_parts(frame)
    assert y is not None
    other = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=False, tol=1e-12).fit(np.hstack(parts), y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-5)
    new = table(100, seed=2)
    saved = load_result(model.result_.save(tmp_path / "run"))
    np.testing.assert_array_equal(saved.predict(new), model.predict(new))
    np.testing.assert_array_equal(saved.predict_proba(new), model.predict_proba(new))
    again = sv.VerticalClassifier(prepare=SPLIT, privacy="none", rounds=600, penalty=sv.L2(0.01), random_state=0)
    np.testing.assert_array_equal(again.fit(frame, frame["ill"]).coef_, model.coef_)
    assert model.score(frame, frame["ill"]) > 0.8


def test_a_proven_run_predicts_too(tmp_path: Path) -> None:
    frame = table(200)
    privacy = sv.ProvenColumns(50.0, 1e-4, unit="record", bound=50.0, row_bound=1.0, score_bound=5.0, model=True)
    model = sv.VerticalClassifier(prepare=SPLIT, privacy=privacy, rounds=3, penalty=sv.L2(1.0), random_state=0)
    model.fit(frame)
    saved = load_result(model.result_.save(tmp_path / "run"))
    np.testing.assert_array_equal(saved.predict(frame), model.predict(frame))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "twice": ({"a": ["age", "smoker"], "b": ["age", "admitted"]}, "column 'age' is held twice, by 'a' too"),
    "nobody": ({"a": ["age"], "b": ["admitted"]}, "column 'smoker' belongs to no party"),
    "unknown": ({"a": ["age", "smoker", "admited"]}, "Did you mean 'admitted'"),
    "empty": ({"a": [], "b": ["age"]}, "party 'a' must have a list of columns"),
    "name": ({"a\0": ["age"]}, "a party's name must be one line of text"),
    "no table": (["age"], "parties must be {party: its columns}"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_parties_that_do_not_fit_are_refused(wrong: str) -> None:
    parties, message = WRONG[wrong]
    with pytest.raises(InvalidInput, match=message):
        sv.Schema(SCHEMA.columns, parties=parties)


def test_what_does_not_go_with_parties_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="owner names who has a row, parties who has a column"):
        sv.Schema(SCHEMA.columns, owner="ward", parties=PARTIES)
    with pytest.raises(InvalidInput, match="does not say which party"):
        SCHEMA.encode_parts(table(5))
    with pytest.raises(InvalidInput, match="leave parties and holder out"):
        sv.VerticalClassifier(["clinic"], prepare=SPLIT, privacy="none").fit(table(9))  # type: ignore[arg-type]
    table().to_csv(tmp_path / "rows.csv", index=False)
    text = RUN.format("dp-sgd", 2) + "\n" + SPLIT.to_toml()
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(InvalidInput, match="is for rows; columns are split here"):
        run_file.load(tmp_path / "run.toml").train()
    (tmp_path / "run.toml").write_text(text.replace("test = 0.25", "clients = 3"))
    with pytest.raises(InvalidInput, match="leave clients, for rows, out"):
        run_file.load(tmp_path / "run.toml").data()
    assert replace(sv.VerticalFederation.from_columns(np.eye(2), [1, -1], [1, 1]), bias=True).bias
