"""`make bench` says truly what it will do, before it does it."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks import __main__ as bench
from benchmarks import clock, page
from benchmarks.peers import environments, section
from benchmarks.peers.watch import Watched


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which every section has been measured, and no peer is installed."""
    monkeypatch.setattr(clock, "RESULTS", tmp_path)
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "none")
    for name in bench.SECTIONS:
        (tmp_path / f"{name}.json").write_text(json.dumps({"about": {"seconds": 120}}))
    measured(tmp_path, len(section.PEERS))
    return tmp_path


def measured(folder: Path, peers: int) -> None:
    numbers = {peer.name: {"1": {}} for peer in section.PEERS[:peers]}
    (folder / "peers.json").write_text(json.dumps({"ours": {}, "peers": numbers, "about": {"seconds": 600}}))


def announced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    def refuse(*asked: object, **options: object) -> None:
        raise AssertionError("something was measured")

    monkeypatch.setattr(bench, "measure", refuse)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--announce", *words])
    bench.main()
    return capsys.readouterr().out


def test_what_is_measured_is_not_announced(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert announced(monkeypatch, capsys).startswith("Nothing is left to measure")
    (results / "loop.json").unlink()
    said = announced(monkeypatch, capsys)
    assert said == "To measure, in minutes: loop 3; together about 3.\n"


def test_of_the_peers_only_those_that_are_left_are_announced(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(results, len(section.PEERS) - 1)
    first, second = announced(monkeypatch, capsys).splitlines()
    assert first == "To measure, in minutes: peers 1; together about 1."
    assert ": flower; all" in second
    assert announced(monkeypatch, capsys, "peers", "--only", "jax").count("jax") == 1
    first, second = announced(monkeypatch, capsys, "--again").splitlines()
    assert "loop 2" in first
    assert "peers 10" in first
    assert ": appfl, decent-bench, fedjax, flower, fluke, jax, pfl; all" in second


def test_the_page_of_speed_is_that_of_the_numbers_that_are_kept(tmp_path: Path) -> None:
    page.write(tmp_path)
    assert (tmp_path / "speed.md").read_text() == (page.DOCS / "speed.md").read_text()


def test_a_round_costs_what_the_quickest_long_and_short_runs_differ_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of a process has compilers in it, or nothing at all: it must not count."""
    spent = [[0.01], [0.5, 1.5], [0.4, 1.6], [0.6, 1.7]]
    lines = [json.dumps({"cpu": cpu, "wall": 2 * cpu, "objective": 0.3}) for turn in spent for cpu in turn]
    done = Watched("".join(f"RESULT {line}\n" for line in lines), "", 0, 9.0, 9.0, 100.0)
    monkeypatch.setattr(section, "watch", lambda *given: done)
    found = section.a_round(section.Peer("a loop", "loop.py", rounds=(10, 110)), 1)
    assert found == {"ms": pytest.approx(11.0), "wall ms": pytest.approx(22.0), "megabytes": 100.0, "objective": 0.3}
