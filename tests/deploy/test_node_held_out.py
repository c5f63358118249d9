"""Held-out records at nodes: counted once, out of the budget, by the owner's own key and within its limits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.histogram import Evaluation
from sottovoce.deploy import beside_rounds, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from tests.deployments import NAME, SECURE, SEEDED, LocalPost, charged, federation, run_tables, write_nodes


def made(privacy: Any = SEEDED, **evaluate: Any) -> Deployment:
    tables = run_tables("dp-sgd", privacy)
    return Deployment.build(tables | {"evaluate": {"held_out": 0.5} | evaluate}, "run.toml")


@pytest.mark.parametrize("privacy", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_nodes_answer_counts_within_the_budget(tmp_path: Path, privacy: Any) -> None:
    files = write_nodes(tmp_path, held_out=0.5)
    post = LocalPost(files)
    result = serve(made(privacy), NAME, post, tmp_path / "run")
    found = result.evaluation
    assert found is not None
    sizes = federation().sizes
    assert found.records == int((sizes - Evaluation(held_out=0.5).training_sizes(sizes)).sum())
    assert found.owners == 3
    assert [charged(file) for file in files] == [4, 4, 4]  # three rounds, and the counts
    assert result.guarantee.epsilon == pytest.approx(20.0, rel=1e-3)
    assert sv.verify(tmp_path / "run").holds
    kept = sv.load_result(tmp_path / "run").evaluation
    assert kept is not None
    assert np.array_equal(kept.counts, found.counts)


def test_the_counts_are_of_the_records_that_the_key_names(tmp_path: Path) -> None:
    files = write_nodes(tmp_path, held_out=0.5)
    privacy = replace(SEEDED, epsilon=99.0)  # counts with little noise
    result = serve(made(privacy, share=0.9), NAME, LocalPost(files), tmp_path / "run")
    exact = np.zeros(4)
    for file, (X, y) in zip(files, federation().data(), strict=True):
        key = (file.parent / "node" / beside_rounds.KEY).read_bytes()
        held = Evaluation(held_out=0.5).positions(key, len(X))
        right = np.stack([X[held] @ result.model < 0, X[held] @ result.model >= 0], axis=-1)
        exact += np.stack([right[y[held] < 0].sum(axis=0), right[y[held] > 0].sum(axis=0)]).ravel()
    assert result.evaluation is not None
    assert np.abs(result.evaluation.table.ravel() - exact).max() < 5 * result.evaluation.deviation < 5
    keys = {(file.parent / "node" / beside_rounds.KEY).read_bytes() for file in files}
    assert len(keys) == 3


def test_the_same_question_gets_the_same_answer_for_free_and_another_none(tmp_path: Path) -> None:
    files = write_nodes(tmp_path, held_out=0.5)
    post = LocalPost(files)
    serve(made(), NAME, post, tmp_path / "run")
    ask, reply = next((ask, reply) for _, ask, reply in post.asked if ask.what == wire.HISTOGRAM)
    assert Node(files[0]).answer(ask) == reply
    other = replace(ask, down=wire.pack(beside_rounds.Finished(np.ones((1, 4)))))
    assert Node(files[0]).answer(other).code == wire.ANSWERED
    assert charged(files[0]) == 4
    early = replace(ask, experiment="f" * 32, k=2)
    assert Node(files[0]).answer(early).code == wire.BAD_ASK
    assert charged(files[0]) == 4


def test_counts_are_given_after_training_alone_and_for_a_model_that_fits(tmp_path: Path) -> None:
    post = LocalPost(write_nodes(tmp_path, held_out=0.5))
    serve(made(), NAME, post, tmp_path / "run")
    *rounds, ask = [ask for client, ask, _ in post.asked if client == 0]
    assert (len(rounds), ask.what) == (3, wire.HISTOGRAM)
    fresh = write_nodes(tmp_path / "fresh", held_out=0.5)[0]
    assert Node(fresh).answer(ask).code == wire.STATE  # it took no part
    assert (charged(fresh), list((fresh.parent / "node").glob("experiments/*"))) == (0, [])
    assert [Node(fresh).answer(each).code for each in rounds] == ["", "", ""]
    wide = replace(ask, down=wire.pack(beside_rounds.Finished(np.ones((1, 5)))))
    assert Node(fresh).answer(wide).code == wire.BAD_ASK
    huge = replace(ask, down=wire.pack(beside_rounds.Finished(np.full((1, 4), 1e30))))
    assert Node(fresh).answer(huge).code == wire.LIMITS
    assert charged(fresh) == 3
    assert Node(fresh).answer(ask).code == ""
    assert charged(fresh) == 4


@pytest.mark.parametrize(("own", "words"), [({}, "it holds out no records"), ({"held_out": 0.25}, "a share of 0.25")])
def test_an_owner_decides_what_it_holds_out(tmp_path: Path, own: dict[str, float], words: str) -> None:
    files = write_nodes(tmp_path, **own)
    post = LocalPost(files)
    with pytest.raises(sv.core.check.SottovoceError, match=words):
        serve(made(), NAME, post, tmp_path / "run")
    assert charged(files[0]) == 0


def test_a_node_that_is_silent_at_the_end_is_left_out(tmp_path: Path) -> None:
    files = write_nodes(tmp_path, held_out=0.5)
    post = LocalPost(files, lambda client, ask, reply: None if (client, ask.what) == (1, wire.HISTOGRAM) else reply)
    found = serve(made(), NAME, post, tmp_path / "run").evaluation
    assert found is not None
    sizes = federation().sizes[[0, 2]]
    assert found.owners == 2
    assert found.records == int((sizes - Evaluation(held_out=0.5).training_sizes(sizes)).sum())


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_key_that_is_gone_is_not_made_anew(tmp_path: Path, rounds: int) -> None:
    """Whether counts were answered or not: training has left out the records that it names."""
    files = write_nodes(tmp_path, held_out=0.5)
    key = files[0].parent / "node" / beside_rounds.KEY
    post = LocalPost(files)
    serve(made(), NAME, post, tmp_path / "run")
    assert key.stat().st_mode & 0o777 == 0o600
    asks = [ask for client, ask, _ in post.asked if client == 0][: rounds + 1]
    fresh = write_nodes(tmp_path / "fresh", held_out=0.5)[0]
    own = fresh.parent / "node" / beside_rounds.KEY
    assert [Node(fresh).answer(ask).code for ask in asks[:rounds]] == [""] * rounds
    own.unlink()
    assert Node(fresh).answer(asks[rounds]).code == wire.LEDGER
    assert Node(fresh).answer(replace(asks[0], experiment="f" * 32)).code == wire.LEDGER
    own.write_bytes(key.read_bytes())  # another one
    assert Node(fresh).answer(asks[rounds]).code == wire.LEDGER
    assert charged(fresh) == rounds


def test_an_experiment_that_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    files = write_nodes(tmp_path, held_out=0.5, epsilon=20.0)
    post = LocalPost(files)
    serve(made(), NAME, post, tmp_path / "run")
    ask = next(ask for _, ask, _ in post.asked)
    assert Node(files[0]).answer(replace(ask, experiment="f" * 32)).code == wire.BUDGET
    kept = files[0].parent / "node" / "experiments"
    assert [folder.name for folder in kept.iterdir()] == [NAME]
    assert (kept / NAME / "held-out").exists()
