"""What `verify` finds out about private estimates when all else in a run folder was made to fit."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import NoisyGD
from sottovoce.auditing.verify import BROKEN
from sottovoce.experiment import run_file
from sottovoce.experiment.evaluation import PrivateEvaluation
from tests.run_folders import GOAL, PROVEN, cover_up, edit, federation, remanifest, trained

INTERCEPT = replace(GOAL, fit_intercept=True)
THREE = replace(federation(), y=np.arange(120) % 3)


def of_rule() -> sv.Result:
    return sv.train("auto", federation(), sv.Objective(sv.Logistic()), privacy=PROVEN, seed=0, evaluate=True)


def with_goal(goal: Any, data: Any = None) -> sv.Result:
    return sv.train(NoisyGD(), data or federation(), goal, rounds=3, privacy=PROVEN, seed=0, evaluate=True)


RUNS: dict[str, Callable[[Path], sv.Result]] = {
    "counted in memory": lambda home: trained(evaluate=True),
    "there or not": lambda home: trained(privacy=replace(PROVEN, relation="add-remove"), evaluate=True),
    "on a grid": lambda home: trained(privacy=replace(PROVEN, noise="discrete"), evaluate=True),
    "one price for all": lambda home: trained(evaluate=sv.Evaluation(share=0.25)),  # the noise multiplier of a round
    "ledgers": lambda home: trained(ledgers=str(home), evaluate=True),
    "two runs": lambda home: trained(runs=2, evaluate=True),
    "no privacy": lambda home: trained(privacy=sv.NoPrivacy(), evaluate=True),
    "intercept": lambda home: with_goal(INTERCEPT),
    "three classes": lambda home: with_goal(sv.Objective(sv.Softmax(3), sv.L2(0.1)), THREE),
    "by rule": lambda home: of_rule(),
    "no bound": lambda home: with_goal(GOAL, replace(federation(), row_bound=None)),
}


FILE = """
[data]
{data}
[objective]
loss = "logistic"
{objective}
[privacy]
mode = "proven"
epsilon = 3.0
delta = 1e-5
[evaluate]
share = 0.2
[run]
seed = 3
{more}"""
SCHEMA = '[schema]\nowner = "ward"\n[schema.label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[schema.columns]\n'
FILES = {
    "a schema": ('csv = "rows.csv"', "", SCHEMA + "age = {range = [0, 100], waves = 3}\nweight = {range = [0, 200]}\n"),
    "ranges": (
        'csv = "rows.csv"\nlabel = "ill"\nowner = "ward"\nlabels = ["no", "yes"]\n'
        "ranges = {age = [0, 100], weight = [0, 200]}", "", "",
    ),
    "ranges, and an intercept": (
        'csv = "rows.csv"\nlabel = "ill"\nowner = "ward"\nlabels = ["no", "yes"]\n'
        "ranges = {age = [0, 100], weight = [0, 200]}", "fit_intercept = true", "",
    ),
    "a data set that comes with a schema": ('name = "heart"', "", ""),
    "a data set as it is": ('name = "heart"\nencoding = "raw"\nrow_bound = 1.0\nshorten = true', "", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_runs_of_files_hold(kind: str, tmp_path: Path) -> None:
    data, objective, more = FILES[kind]
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(1, 99)},{rng.integers(40, 120)},{rng.choice(['no', 'yes'])},{i % 3}" for i in range(90)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,weight,ill,ward", *rows]))
    (tmp_path / "run.toml").write_text(FILE.format(data=data, objective=objective, more=more))
    assert broken(run_file.load(tmp_path / "run.toml").train().save(tmp_path / "run")) == {}


def broken(folder: Path) -> dict[str, str]:
    return {check.about: check.words for check in sv.verify(folder).checks if check.status == BROKEN}


@pytest.mark.parametrize("kind", RUNS)
def test_runs_of_every_kind_hold(kind: str, tmp_path: Path) -> None:
    assert broken(RUNS[kind](tmp_path / "ledgers").save(tmp_path / "run")) == {}


def more_owners(said: Any) -> None:
    said["deviation"] *= (said["owners"] + 1) ** 0.5 / said["owners"] ** 0.5
    said["owners"] += 1


def fewer_owners(said: Any) -> None:
    said["deviation"] *= (said["owners"] - 1) ** 0.5 / said["owners"] ** 0.5
    said["owners"] -= 1
    said["records"] -= 8


def other_edges(said: Any) -> None:
    said["edges"] = [[0.5 + (edge - 0.5) / 2 for edge in edges] for edges in said["edges"]]


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "more owners": (more_owners, "owners were asked for counts"),
    "fewer owners": (fewer_owners, "owners were asked for counts"),
    "more records": (lambda said: said.update(records=90), "so many owners hold out 24 to 24 records"),
    "no records": (lambda said: said.update(records=None), "records must be stated"),
    "other edges": (other_edges, "bins do not end where model and config say"),
    "not calibrated": (lambda said: said.update(calibrated=False), "calibrated does not follow from the loss"),
    "other noise": (lambda said: said.update(deviation=said["deviation"] / 2), "the noise that was charged for has"),
    "other counts": (lambda said: said.update(counts=[1000.0, *said["counts"][1:]]), "do not add up to its records"),
}


@pytest.mark.parametrize("kind", ["counted in memory", "ledgers"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_estimate_that_was_made_up_is_noticed(kind: str, change: str, tmp_path: Path) -> None:
    folder = RUNS[kind](tmp_path / "ledgers").save(tmp_path / "run")

    def made_up(said: Any) -> Any:
        CHANGES[change][0](said["runs"][0])
        return {"runs": [PrivateEvaluation.from_dict(each, "").to_dict() for each in said["runs"]]}

    edit(folder, "evaluation.json", made_up)
    remanifest(folder)
    assert "seal" in broken(folder)
    cover_up(folder)
    found = broken(folder)
    assert found.keys() == {"evaluation"}
    assert CHANGES[change][1] in found["evaluation"]


def test_an_estimate_that_was_taken_away_is_noticed(tmp_path: Path) -> None:
    folder = trained(evaluate=True).save(tmp_path / "run")
    (folder / "evaluation.json").unlink()
    remanifest(folder)
    assert "seal" in broken(folder)
