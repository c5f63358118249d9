"""Comparisons: intervals against SciPy's, and pairs that are pairs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce.cli import terminal
from sottovoce.experiment import saved
from sottovoce.experiment.repetitions import Repetitions, interval, paired
from sottovoce.experiment.run_file import load
from sottovoce.experiment.tables import to_toml
from sottovoce.report import compare
from tests.cli.test_cli import assert_refused, call
from tests.experiment.test_experiment import tiny_tables, write_csv

RUN = tiny_tables()["run"]
FEW = {"participation": {"name": "k-of-n", "k": 1}, "privacy": {"mode": "none"}}
BOTH = {"fedavg": {"name": "fedavg"}, "fedprox": {"name": "fedprox"}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_csv(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def file(name: str, **changes: Any) -> Path:
    path = Path(f"{name}.toml")
    path.parent.mkdir(exist_ok=True)
    path.write_text(to_toml(tiny_tables(**changes)))
    return path


def repetitions(path: Path, seeds: int, name: str = "") -> Repetitions:
    return Repetitions(name or path.stem, (load(path, runs=seeds, seed=0).train(),))


# ------------------------------------------------------------------------------------------------------------ intervals


def test_intervals_against_scipy() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 20))
    own, apart = interval(before), interval(after - before)
    expected = stats.ttest_1samp(before, 0.0).confidence_interval(0.95)
    assert (own.low, own.high) == pytest.approx((expected.low, expected.high))
    expected = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert (apart.low, apart.high) == pytest.approx((expected.low, expected.high))
    assert np.isnan(interval(np.array([1.0])).low)
    assert np.isnan(interval(np.array([1.0, np.inf])).low)


def test_ninety_five_of_a_hundred_hold_the_mean() -> None:
    over = interval(np.random.default_rng(1).normal(size=(20_000, 5)))
    held = ((over.low <= 0) & (over.high >= 0)).mean()
    assert abs(held - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 20_000)


# ---------------------------------------------------------------------------------------------------------------- pairs


def test_a_seed_is_the_same_run_however_many_there_are(here: Path) -> None:
    path = file("a", participation={"name": "k-of-n", "k": 2})
    few, many = repetitions(path, 3), repetitions(path, 5)
    assert many.keys[:3] == few.keys
    np.testing.assert_allclose(many.last("test_loss")[:3], few.last("test_loss"), rtol=1e-12)
    assert len(set(many.last("test_loss"))) == 5


def test_pairs_share_who_takes_part(here: Path) -> None:
    """With one of three clients a round and no noise, all chance is in who takes part, and pairing removes it."""
    first, second = (repetitions(file(name, algorithm=table, **FEW), 12) for name, table in BOTH.items())
    one, two = first.last("objective"), second.last("objective")
    apart = paired(first, second, "objective")
    assert apart is not None
    assert apart.mean == pytest.approx((two - one).mean())
    assert np.corrcoef(one, two)[0, 1] > 0.9
    shifted = interval(np.roll(two, 1) - one)
    assert apart.high - apart.low < 0.5 * (shifted.high - shifted.low)


def test_only_the_same_seeds_are_paired(here: Path) -> None:
    path = file("a")
    first = Repetitions("a", (load(path, runs=2, seed=0).train(),))
    assert paired(first, Repetitions("b", (load(path, runs=2, seed=1).train(),)), "test_loss") is None
    assert paired(first, repetitions(path, 3), "test_loss") is None
    assert paired(first, repetitions(path, 2), "test_loss") is not None


# --------------------------------------------------------------------------------------------------------- command line


def test_compare_tells_what_separate_runs_tell(here: Path) -> None:
    files = [file("a"), file("b", privacy={"mode": "proven", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0}), file("c/a")]
    write_csv(here / "c")
    outcome = call("compare", *files, "--seeds", "4", "--json", "--out", "out")
    said = json.loads(outcome.stdout)
    assert outcome.stderr == ""
    assert (said["seeds"], said["paired_with"], said["folder"]) == (4, "a", "out")
    assert [run["name"] for run in said["runs"]] == ["a", "b", "a-2"]
    assert said["differ_in"]["privacy.epsilon"] == [1.0, 8.0, 1.0]
    values = [repetitions(path, 4).last("test_loss") for path in files[:2]]
    for run, expected in zip(said["runs"], values, strict=False):
        told = run["measures"]["test_loss"]
        np.testing.assert_allclose(told["values"], expected, rtol=1e-12)
        low, high = stats.t.interval(0.95, 3, loc=expected.mean(), scale=stats.sem(expected))
        assert (told["mean"], told["low"], told["high"]) == pytest.approx((expected.mean(), low, high))
    apart = stats.ttest_rel(values[1], values[0]).confidence_interval(0.95)
    assert said["differ_in"]["data.csv"] == [str(here / "rows.csv")] * 2 + [str(here / "c" / "rows.csv")]
    told = said["runs"][1]["measures"]["test_loss"]["difference"]
    assert (told["low"], told["high"]) == pytest.approx((apart.low, apart.high))
    same = said["runs"][2]["measures"]["test_loss"]["difference"]  # the same settings, so the same numbers
    assert same == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert said["runs"][0]["measures"]["test_loss"]["difference"] is None
    for column in ("objective", "test_loss", "test_accuracy"):  # the test rows are the owners' own
        assert not said["runs"][0]["measures"][column]["released"]
    assert json.loads((here / "out" / compare.NUMBERS).read_text())["runs"] == said["runs"]
    assert saved.load_result(here / "out" / "a-2").config["run"]["runs"] == 4
    assert (here / "out" / compare.FIGURE).read_bytes().startswith(b"\x89PNG")
    page = (here / "out" / compare.PAGE).read_text()
    assert "Difference to a, paired by seed (4 seeds)" in page


def test_the_table(here: Path) -> None:
    outcome = call("compare", file("a"), file("b", algorithm={"name": "dp-admm", "rho": 0.5}), "--seeds", "3")
    assert outcome.exit_code == 0
    (folder,) = (here / "runs").iterdir()
    told = json.loads((folder / compare.NUMBERS).read_text())["runs"][1]["measures"]["test_loss"]
    flat = " ".join(outcome.stdout.split())
    assert f"{told['mean']:.4g} {told['low']:.4g} to {told['high']:.4g} {told['difference']['mean']:+.4g}" in flat
    assert "They differ in algorithm.rho: 0.1, 0.5" in flat
    assert "training objective (simulation only, not released)" in flat
    assert "test loss (simulation only, not released)" in flat
    assert "ε is of one run alone" in flat
    assert max(map(len, outcome.stdout.splitlines())) <= 80


def test_a_run_that_went_to_infinity_has_no_interval(here: Path) -> None:
    first, other = repetitions(file("a"), 3), repetitions(file("b", algorithm={"name": "dp-admm", "rho": 0.5}), 3)
    other.first.history.columns["test_loss"][-1] = np.inf
    told = compare.compared([first, other])["runs"][1]["measures"]["test_loss"]
    assert told["mean"] == np.inf
    assert np.isnan([told["low"], told["difference"]["low"]]).all()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a.toml"], terminal.BAD_INPUT, "at least two run files"),
        (["a.toml", "b.toml", "--seeds", "1"], terminal.BAD_INPUT, "seeds must be >= 2"),
        (["a.toml", "nowhere.toml"], terminal.MISSING, "nowhere.toml"),
        (["a.toml", "kept.toml"], terminal.BAD_INPUT, "must not spend budgets that last"),
    ],
)
def test_what_cannot_be_compared_leaves_nothing(here: Path, words: list[str], code: int, said: str) -> None:
    file("a")
    file("b")
    file("kept", run=RUN | {"ledgers": "ledgers"})
    assert_refused(call("compare", *words), code, said)
    assert not (here / "runs").exists()
    assert not (here / "ledgers").exists()
