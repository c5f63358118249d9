"""Effects are what really happens to a score if a value changes."""

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.check import InvalidInput
from sottovoce.problems.schema.effects import effects
from tests.experiment.test_schema_runs import SCHEMA

STATED = sv.Schema(
    age=sv.Number(0, 50, missing=True),
    cost=sv.Number(0, 99, log=True, waves=3),
    sex=sv.Category("f", "m", missing=True),
    day=sv.Date("2020-01-01", "2024-01-01", weekday=True, month=True),
    colour=sv.OneHot("red", "green"),
)


def score(weights: np.ndarray, **change: object) -> float:
    row = {"age": 25, "cost": 9, "sex": "?", "day": "2022-01-01", "red": 0, "green": 0} | change
    encoded = STATED.transform([row])[0]
    return float(encoded / encoded[-1] @ weights)


def test_effects_are_differences_of_scores() -> None:
    weights = np.random.default_rng(0).normal(size=STATED.width)
    listed = {(each.column, each.what): each.change for each in effects(STATED, weights)}
    usual = score(weights)
    assert listed["age", "per unit"] == pytest.approx(score(weights, age=26) - usual)
    missing = score(weights, age=None) - usual
    assert listed["age", "missing, next to known"] == pytest.approx(missing)
    assert listed["sex", "m"] == pytest.approx(score(weights, sex="m") - usual)
    assert listed["sex", "missing"] == pytest.approx(score(weights, sex=None) - usual)
    assert listed["colour", "green"] == pytest.approx(score(weights, green=1) - usual)
    assert listed["(bias)", "every row"] == weights[-1]
    week = score(weights, day="2022-01-08") - usual  # the same weekday and month
    assert listed["day", "per year"] == pytest.approx(week / 7 * 365.25)
    weekdays = [change for (column, what), change in listed.items() if column == "day" and "weekday" in what]
    months = [change for (column, what), change in listed.items() if column == "day" and "month" in what]
    assert (len(weekdays), len(months)) == (7, 12)
    tuesday = score(weights, day="2022-01-04") - score(weights, day="2022-01-03")
    step = listed["day", "per year"] / 365.25
    assert listed["day", "weekday=Tue"] - listed["day", "weekday=Mon"] == pytest.approx(tuesday - step)
    bend = (
        listed["cost", "near 9"] - listed["cost", "near 0"] + listed["cost", "per unit of log(1 + value)"] * np.log(10)
    )
    assert bend == pytest.approx(usual - score(weights, cost=0))
    assert len(listed) == STATED.width


def test_weights_must_fit() -> None:
    with pytest.raises(InvalidInput, match="needs 24 weights"):
        effects(SCHEMA, np.zeros(3))
