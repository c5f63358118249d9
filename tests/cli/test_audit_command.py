"""`sottovoce audit` as a newcomer meets it: verdicts in words and in JSON, one run, membership, refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from sottovoce.algorithms import DPSGD
from sottovoce.auditing import papers as audit_papers
from sottovoce.auditing import paths as audit_paths
from sottovoce.auditing.finding import Check
from sottovoce.auditing.one_run import one_run, plant
from sottovoce.auditing.papers import Row
from sottovoce.cli import terminal
from sottovoce.experiment import run_file
from sottovoce.privacy.modes import Proven
from sottovoce.report import audits as audit_show
from tests.cases import goal, small
from tests.command_line import invoke
from tests.experiment.test_experiment import tiny_tables, write_csv, write_toml


def call(*words: object) -> Result:
    return invoke(["audit", *(str(word) for word in words)])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path)
    return write_toml(tmp_path, privacy={"mode": "proven", "epsilon": 4.0, "delta": 1e-3, "clip": 1.0})


def test_a_published_claim_falls_and_a_proven_one_stands() -> None:
    small_game = ("--rounds", 10, "--clients", 1, "--records", 2, "--features", 1)
    fallen = call("fedspd-dp", "--mode", "published", "--epsilon", 1, *small_game)
    assert fallen.exit_code == terminal.REFUTED, fallen.stderr
    for word in ("REFUTED", "Verdict: refuted", "typical data", "given those before"):
        assert word in fallen.stdout
    told = json.loads(call("fedepm", "--delta", 0, *small_game, "--json").stdout)
    assert told["verdict"] == "not refuted"
    assert told["comparisons"][0]["lower"] == pytest.approx(1.0)
    said = call("dp-fedavg", "--unit", "client", *small_game, "--quiet").stdout.splitlines()
    assert said[0] == "not refuted"
    assert "plain\tsize of the noise\tnot refuted" in said
    assert all(line.endswith("\tnot refuted") for line in said[1:])


def test_each_check_is_told_and_decides_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    small_game = ("dp-admm", "--rounds", 3, "--clients", 2, "--records", 2, "--features", 2)
    told = call(*small_game, "--json", "--path", "float32", "--path", "seeds")
    assert told.exit_code == 0
    assert {one["path"] for one in json.loads(told.stdout)["checks"]} == {"float32", "seeds"}
    assert set(json.loads(told.stdout)["checks"][0]) == {"path", "name", "seen", "promised", "verdict"}
    for verdict, code in (("suspicious", terminal.SUSPICIOUS), ("refuted", terminal.REFUTED)):
        kind: Any = verdict
        found = [Check("plain", "what was looked at", "this", "that", kind)]
        monkeypatch.setattr(audit_paths, "examine", lambda *_, found=found, **__: found)
        said = call(*small_game)
        assert said.exit_code == code
        assert f"Verdict: {verdict}" in said.stdout
        assert f"plain: what was looked at: this; promised: that: {verdict.upper()}." in " ".join(said.stdout.split())
        assert call(*small_game, "-q").stdout.splitlines()[0] == verdict


def test_paths_that_a_method_has_not_are_refused() -> None:
    refused = call("dp-admm", "--path", "variants")
    assert refused.exit_code == terminal.BAD_INPUT
    assert "unknown path 'variants'" in refused.stderr
    help_ = " ".join(call("--help").stdout.split())
    assert "7 refuted, 8 suspicious" in help_
    for path in audit_paths.PATHS:
        assert path in help_


def test_split_columns_are_audited_too() -> None:
    for unit in ("record", "column", "party"):
        told = json.loads(call("admm-sharing", "--unit", unit, "--rounds", 4, "--json").stdout)
        assert (told["verdict"], told["statistic"]) == ("not refuted", "exact")
        assert 0.7 < told["comparisons"][0]["lower"] <= 1.0
    told = json.loads(call("admm-sharing", "--mode", "published", "--rounds", 1, "--json").stdout)
    assert told["verdict"] == "refuted"
    assert told["comparisons"][0]["lower"] == "infinite"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "needs a method"),
        (("dp-amm",), 2, "Did you mean 'dp-admm'"),
        (("dp-admm", "--mode", "publishd"), 2, "Did you mean 'published'"),
        (("fedavg", "--mode", "published"), 4, "has no 'published' variant"),
        (("dp-admm", "--runs", 3), 2, "runs must be a whole number >= 64"),
        (("dp-admm", "--epsilon", -1), 2, "epsilon must be > 0"),
        (("dp-admm", "--one-run"), 2, "need a FILE.toml"),
        (("admm-sharing", "--unit", "client"), 2, "unknown unit 'client'"),
        (("fdml",), 4, "has no 'proven' variant"),
        (("no.toml",), 3, "there is no such file"),
        (("--papers", "dp-admm"), 2, "takes no method"),
        (("--papers", "--membership"), 2, "takes one of"),
    ],
)
def test_refusals(words: tuple[object, ...], code: int, said: str) -> None:
    outcome = call(*words)
    assert outcome.exit_code == code
    assert said in outcome.stderr
    assert outcome.stdout == ""


def test_a_run_file_is_audited_on_its_own_records(file: Path) -> None:
    told = json.loads(call(file, "--runs", 64, "--json").stdout)
    assert told["verdict"] == "not refuted"
    assert "with another label" in told["neighbours"]
    assert 0 < told["comparisons"][0]["lower"] <= 4.0
    plain = write_toml(file.parent, privacy={"mode": "none"})
    assert "promises something" in call(plain).stderr


@pytest.mark.parametrize("canaries", [8, 40])
def test_one_run_with_canaries(file: Path, canaries: int) -> None:
    outcome = call(file, "--one-run", "--canaries", canaries)
    assert outcome.exit_code == 0, outcome.stderr
    assert f"{canaries} canaries in one run" in outcome.stdout
    assert "not refuted" in outcome.stdout


def test_one_run_sees_a_leak_and_no_more_than_there_is(tmp_path: Path) -> None:
    """At an enormous epsilon all guesses are right; at a true one the bound stays below it."""
    write_csv(tmp_path)
    tables: dict[str, Any] = {"algorithm": {"name": "dp-sgd", "step": 1.0}, "run": {"rounds": 4, "seed": 2}}
    bounds = []
    for epsilon in (1e6, 1.0):
        privacy = {"mode": "proven", "epsilon": epsilon, "delta": 1e-6, "clip": 1.0}
        todo = run_file.load(write_toml(tmp_path, **tables, privacy=privacy))
        bounds.append(one_run(todo, canaries=200).worst.lower)
    assert bounds[0] > 3
    assert bounds[1] <= 1.0


@pytest.mark.parametrize("blank", [False, True])
def test_canaries_are_planted_where_they_should_be(blank: bool) -> None:
    federation = small()
    made, heads = plant(federation, goal().loss, 9, blank, seed=1)
    columns = made.X[:, 4:]
    assert made.X.shape == (len(federation.X) + 9, 4 + 9)
    assert np.array_equal(made.sizes, federation.sizes + np.array([2, 2, 2, 1, 1, 1]))
    assert np.linalg.norm(made.X, axis=1).max() <= 1.0
    assert (columns > 0).sum() == (heads.sum() if blank else 9)
    signs = columns.T @ made.y
    assert np.array_equal(signs > 0.5, heads)
    assert not np.any((columns > 0).any(axis=1) & (made.X[:, :4] != 0).any(axis=1))


def test_membership(file: Path) -> None:
    rows = {name: value for name, value in tiny_tables()["data"].items() if name != "test"}
    alone = write_toml(file.parent, data=rows)
    assert "rows that were not trained on" in call(alone, "--membership").stderr
    held_out = write_toml(file.parent, data=rows | {"test": 0.3})
    told = json.loads(call(held_out, "--membership", "--json").stdout)
    assert 0 <= told["area"] <= 1
    said = call(held_out, "--membership", "--out", "roc.png").stdout
    assert "weak attack" in said
    assert Path("roc.png").read_bytes().startswith(b"\x89PNG")


ROWS = [Row("a", "claim | one", 1.0, np.inf, "exact", 1, 0.1), Row("b", "two", 1.0, 0.3, "ratio", 9, 0.1)]


def test_papers_are_written_and_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit_papers, "rows", lambda runs, progress: iter(ROWS))
    outcome = call("--papers")
    assert outcome.exit_code == 0, outcome.stderr
    assert "refuted" in outcome.stdout
    text = (tmp_path / "docs" / "audit.md").read_text()
    assert "| b | two | 1 | ≥ 0.300 | ratio | not refuted |" in text
    assert "= infinite" in text
    assert (tmp_path / "docs" / "audit.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(call("--papers", "--json", "--out", tmp_path / "other").stdout)
    assert [row["verdict"] for row in told["rows"]] == ["refuted", "not refuted"]
    assert told["rows"][0]["found"] == "infinite"


def test_papers_with_something_proven_refuted_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fallen = Row("a", "proven, the whole run", 1.0, 2.0, "exact", 1, 0.1)
    monkeypatch.setattr(audit_papers, "rows", lambda runs, progress: iter([*ROWS, fallen]))
    assert call("--papers", "--out", tmp_path).exit_code == terminal.REFUTED


def test_papers_cut_short_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def two_then_stop(runs: int, progress: Any) -> Any:
        yield from ROWS
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit_papers, "rows", two_then_stop)
    outcome = call("--papers")
    assert "nothing was written" in outcome.stdout
    assert not (tmp_path / "docs").exists()


def test_every_proven_method_is_in_the_table() -> None:
    from sottovoce.algorithms import ALGORITHMS

    named = {name.split(",")[0] for name, _, _ in audit_papers.proven_variants()}
    products = audit_papers.products_of_columns()
    assert (products.claimed, products.refuted) == (1.0, False)
    named.add(products.method)
    assert named == {name for name, kind in ALGORITHMS.items() if "proven" in kind.modes}
    assert audit_papers.proven_game(DPSGD(), Proven(1.0, 1e-5, 1.0)).rounds == 10
    assert audit_show.markdown([]).startswith("# What messages give away")
    page = Path(__file__).parents[2] / "docs" / "audit.md"
    assert page.read_text().endswith(audit_show.markdown([]).split("*Refuted* settles")[1])
