"""Parties on their own machines: the simulator's numbers, labels that stay with their holder, and samples in order."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import ADMMSharing
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.random.streams import Streams
from sottovoce.deploy import home, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment import label_flips, saved
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy.noise_key import NoiseKey
from sottovoce.problems import columns
from sottovoce.problems.penalties import L1
from tests.cases import VERTICAL, all_modes
from tests.deployments import (
    COLUMNS,
    NAME,
    SECURE_COLUMNS,
    SPLIT,
    LocalPost,
    charged,
    column_deployment,
    column_tables,
    deployment,
    simulated,
    write_nodes,
    write_parties,
)

METHODS = [(name, mode) for name, case in VERTICAL.items() for mode in all_modes(case.algorithm)]
RELATIONS = ["replace-one", "replace-column", "replace-client"]


@pytest.mark.parametrize(("name", "mode"), METHODS)
def test_the_simulators_numbers_bit_for_bit(name: str, mode: str, tmp_path: Path) -> None:
    """Models, scores, residuals and what was spent, in every mode a method for columns has."""
    made = column_deployment(name, all_modes(VERTICAL[name].algorithm)[mode], 3)
    result = serve(made, NAME, LocalPost(write_parties(tmp_path, relations=RELATIONS)), tmp_path / "run")
    expected = simulated(made)
    assert np.array_equal(result.model, expected.model)
    assert result.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert result.guarantee.together == expected.guarantee.together  # what all parties spent together
    loaded: Any = saved.load_result(tmp_path / "run")
    assert np.array_equal(loaded.model, expected.model)
    assert loaded.widths == SPLIT


def test_labels_randomised_with_seeded_noise_and_a_rho_that_moves(tmp_path: Path) -> None:
    method = ADMMSharing(rho=5.0, balance=10, tol=1e-9)
    made = column_deployment(method, replace(COLUMNS, label_epsilon=2.0), 6)
    result = serve(made, NAME, LocalPost(write_parties(tmp_path)), tmp_path / "run")
    assert np.array_equal(result.model, simulated(made).model)


def test_secure_noise_spends_what_the_simulator_spends(tmp_path: Path) -> None:
    files, made = write_parties(tmp_path), column_deployment("admm-sharing", SECURE_COLUMNS)
    results = [serve(made, NAME[::-1] if again else NAME, LocalPost(files), tmp_path / f"{again}") for again in (0, 1)]
    assert results[0].guarantee.epsilon_of_client == simulated(made).guarantee.epsilon_of_client
    assert not np.array_equal(results[0].model, results[1].model)
    assert [charged(file) for file in files] == [8, 8, 8]  # three rounds and a model, twice


def test_labels_are_randomised_once_for_life(tmp_path: Path) -> None:
    """Whatever is asked in whatever experiment, the same flips: others would average out."""
    files = write_parties(tmp_path)
    kept = []
    for name in (NAME, NAME[::-1]):
        serve(column_deployment("admm-sharing", SECURE_COLUMNS, 2), name, LocalPost(files), tmp_path / name)
        kept.append((files[1].parent / "node" / "labels.npz").read_bytes())
    assert kept[0] == kept[1]
    assert not (files[0].parent / "node" / "labels.npz").exists()
    files[1].write_text(files[1].read_text().replace("label_epsilon = 2.0", "label_epsilon = 3.0"))
    other = column_deployment("admm-sharing", replace(SECURE_COLUMNS, label_epsilon=3.0), 2)
    with pytest.raises(TooFewAnswers, match="its labels were randomised before"):
        serve(other, NAME[:16] + NAME[16:][::-1], LocalPost(files), tmp_path / "other")


@pytest.mark.parametrize("key", [None, NoiseKey(Streams(0), np.zeros((1, 2), dtype=np.uint64))])
def test_flips_given_out_are_those_that_were_kept(tmp_path: Path, key: NoiseKey | None) -> None:
    """Secure ones, and seeded ones under another seed."""
    flips = label_flips.LabelFlips(tmp_path / "labels.npz", tmp_path / "labels.ledger", "holder", "samples")
    y = np.resize([-1.0, 1.0], 400)
    first, _ = flips.drawn(y, 2.0, key)
    assert 0 < (first < 0).sum() < 200
    for other in (None, NoiseKey(Streams(1), np.zeros((1, 2), dtype=np.uint64))):
        assert np.array_equal(flips.drawn(y, 2.0, other)[0], first)


def label_receipts(file: Path) -> int:
    with FileLedger.open(file.parent / "node" / "labels.ledger") as ledger:
        assert ledger.epsilon() == pytest.approx(2.0 * sum(ledger.spent().values()))
        return sum(ledger.spent().values())


def test_flips_that_are_lost_are_not_drawn_again(tmp_path: Path) -> None:
    """They were charged before the first answer; without them nothing is said of labels, and the owner is told why."""
    files, made = write_parties(tmp_path), column_deployment("admm-sharing", SECURE_COLUMNS, 2)
    serve(made, NAME, LocalPost(files), tmp_path / "first")
    assert label_receipts(files[1]) == 1
    kept = files[1].parent / "node" / "labels.npz"
    flips = kept.read_bytes()
    kept.unlink()
    with pytest.raises(TooFewAnswers, match="south: ledger: its ledger cannot be"):
        serve(made, NAME[::-1], LocalPost(files), tmp_path / "second")
    assert not kept.exists()
    log = (files[1].parent / "node" / "node.log").read_text()
    assert "labels.npz: is gone, and labels were randomised by it. Put it back. If it is lost, move" in log
    kept.write_bytes(flips)
    serve(made, NAME[::-1], LocalPost(files), tmp_path / "second")
    assert kept.read_bytes() == flips
    assert label_receipts(files[1]) == 1


def test_flips_are_charged_before_an_answer_and_killed_in_between_they_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, made = write_parties(tmp_path), column_deployment("admm-sharing", SECURE_COLUMNS, 2)

    class Killed(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(label_flips, "label_event", die)  # what is charged: after the file, before the charge
        with pytest.raises(Killed):
            serve(made, NAME, LocalPost(files), tmp_path / "run")
    kept = files[1].parent / "node" / "labels.npz"
    flips = kept.read_bytes()
    assert label_receipts(files[1]) == 0
    serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert kept.read_bytes() == flips
    assert label_receipts(files[1]) == 1


def with_penalty(**objective: Any) -> Deployment:
    tables = column_tables("admm-sharing", SECURE_COLUMNS, 2)
    tables["objective"] = {name: value for name, value in tables["objective"].items() if name != "lam"} | objective
    return Deployment.build(tables, "run.toml")


def test_a_fit_that_its_solver_does_not_finish_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal would tell something of the columns. Scores are clipped before the noise, whatever they are."""
    polished = columns.Party._polished

    def never_done(self: Any, x: np.ndarray, *of: Any) -> Any:
        return (x, np.inf) if self.width > 1 else polished(self, x, *of)  # one column: the rehearsal, without data

    monkeypatch.setattr(columns, "_MOST_STEPS", 50)
    monkeypatch.setattr(columns.Party, "_polished", never_done)
    files, made = write_parties(tmp_path), with_penalty(penalty="l1", lam=0.05)
    post = LocalPost(files)
    result = serve(made, NAME, post, tmp_path / "run")
    assert {reply.code for _, _, reply in post.asked} == {""}
    assert not any("certificates" in text for text in result.guarantee.not_covered)
    assert "did not reach" not in (files[0].parent / "node" / "node.log").read_text()
    exact = columns.Columns([np.load(files[0].parent / "rows.npz")["X"]], L1(0.05))
    with pytest.raises(SottovoceError, match="did not reach its certificate"):  # where nothing is to be hidden
        exact.fit(np.ones((1, 40)), np.ones((1, 1)), np.array([0]))


PENALTIES: dict[str, Any] = {
    "none": {},
    "l1": {"lam": 0.05},
    "l2": {"lam": 0.05},
    "elastic-net": {"l1": 0.05, "l2": 0.05},
    "box": {"low": -1.0, "high": 1.0},
}


@pytest.mark.parametrize("penalty", PENALTIES)
def test_no_number_of_a_server_makes_a_party_refuse_by_its_data(
    penalty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the columns are, the same code; out of range before the charge, within it an answer and a model."""
    monkeypatch.setattr(columns, "_MOST_STEPS", 50)
    parties = write_parties(tmp_path / "as they are", relations=RELATIONS)
    post = LocalPost(parties)
    serve(with_penalty(penalty=penalty, **PENALTIES[penalty]), NAME, post, tmp_path / "run")
    asked, model = (next(ask for i, ask, _ in post.asked if (i, ask.what) == (0, what)) for what in ("round", "model"))
    files = [parties[0]]
    for scale in (1e99, 1e-155):  # a square of the latter, times rho, is 0
        files.append(write_parties(tmp_path / f"{scale}", relations=RELATIONS)[0])
        np.savez(files[-1].parent / "rows.npz", X=np.load(files[-1].parent / "rows.npz")["X"] * scale)
    X, largest = np.load(files[0].parent / "rows.npz")["X"], np.finfo(np.float64).max
    top = np.linalg.eigvalsh(X.T @ X)[-1]
    for number, (rho, size, code) in enumerate(
        [
            (largest / top / 2, 1.0, wire.LIMITS),  # times the largest eigenvalue of D'D it overflows, or not
            (largest / top * 2, 1.0, wire.LIMITS),
            (5e-324, 1.0, wire.BAD_ASK),
            (1.0, 1e308, wire.LIMITS),
            (1e12, 1.0, ""),
            (1e-60, 1.0, ""),
        ]
    ):
        down = {
            name: (shape, np.full(shape, {"rho": rho, "excess": size, "y": 0.0}.get(name, 1.0)).tobytes())
            for name, (shape, _) in asked.down.items()
        }
        name = f"{number:032x}"
        for file in files:
            before = charged(file)
            said = Node(file).answer(replace(asked, experiment=name, down=down))
            assert (said.code, charged(file) - before) == (code, int(code == "")), said.why
            if code == "":
                assert Node(file).answer(replace(model, experiment=name)).code == ""


def test_flips_do_not_move_to_other_samples(tmp_path: Path) -> None:
    """Another salt is another order: the flips that were drawn would fall on other labels."""
    files = write_parties(tmp_path, ids=True)
    made = column_deployment("admm-sharing", SECURE_COLUMNS, 2)
    serve(made, NAME, LocalPost(files), tmp_path / "first")
    for file in files:
        file.write_text(file.read_text().replace("pepper", "salt"))
    with pytest.raises(TooFewAnswers, match="its labels were randomised before"):
        serve(made, NAME[::-1], LocalPost(files), tmp_path / "second")


def test_ids_bring_samples_into_one_order(tmp_path: Path) -> None:
    """Three orders of the same samples and one salt: the run of those who promise the same order, to rounding."""
    made = column_deployment()
    ordered = serve(made, NAME, LocalPost(write_parties(tmp_path / "a")), tmp_path / "ordered")
    plain = column_deployment("admm-sharing", all_modes(ADMMSharing())["none"], 5)
    one = serve(plain, NAME[::-1], LocalPost(write_parties(tmp_path / "b")), tmp_path / "one")
    files = write_parties(tmp_path / "c", ids=True)
    by_id = serve(plain, NAME[::-1], LocalPost(files), tmp_path / "by-id")
    np.testing.assert_allclose(by_id.model, one.model, rtol=1e-9)
    assert ordered.rounds == 3
    files[2].write_text(files[2].read_text().replace("pepper", "salt"))
    with pytest.raises(InvalidInput, match=r"'west': must have the samples of 'south', by the same ids"):
        serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert charged(files[0]) == 0


def _asks(files: list[Path], folder: Path, *given: Any) -> dict[tuple[int, str, int], tuple[Ask, Reply]]:
    post = LocalPost(files)
    serve(column_deployment(*given), NAME, post, folder)
    return {(client, ask.what, ask.k): (ask, reply) for client, ask, reply in post.asked}


@pytest.mark.parametrize("privacy", [COLUMNS, SECURE_COLUMNS], ids=["seeded", "secure"])
def test_a_repeated_question_gets_the_same_answer_for_free(
    tmp_path: Path, privacy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "KEPT", 100)  # those of finished rounds are removed otherwise
    files = write_parties(tmp_path)
    asked = _asks(files, tmp_path / "run", "admm-sharing", privacy)
    assert {what for _, what, _ in asked} == {wire.ROUND, wire.PROX, wire.MODEL}
    assert {client for client, what, _ in asked if what == wire.PROX} == {1}  # of labels nobody else is asked
    for (client, _, _), (ask, reply) in asked.items():
        assert Node(files[client]).answer(ask) == reply
    assert [charged(file) for file in files] == [4, 4, 4]
    model = asked[0, wire.MODEL, 3][0]
    assert Node(files[0]).answer(replace(model, k=2)).code in (wire.LATE, wire.ANSWERED)  # one model, once
    assert Node(files[0]).answer(replace(model, down={"x": ((1, 1), bytes(8))})).code == wire.ANSWERED
    assert charged(files[0]) == 4


def test_a_silent_label_holder_stops_the_round_and_it_goes_on(tmp_path: Path) -> None:
    """Its answers are there again when it is asked again, others' too: the end is as if nothing had happened."""
    files, made = write_parties(tmp_path), column_deployment()

    def deaf(client: int, ask: Ask, reply: Reply) -> Reply | None:
        return None if (ask.what, ask.k) in ((wire.PROX, 2), (wire.MODEL, 3)) and client == 1 else reply

    with pytest.raises(TooFewAnswers, match=r"round 2: nothing was heard of the labels.*south: timeout"):
        serve(made, NAME, LocalPost(files, deaf), tmp_path / "run")
    late = LocalPost(files, lambda client, ask, reply: None if ask.what == wire.MODEL and client == 1 else reply)
    with pytest.raises(TooFewAnswers, match=r"after round 3: every party's model is needed.*south: timeout"):
        serve(made, NAME, late, tmp_path / "run")
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert np.array_equal(result.model, simulated(made).model)
    assert [charged(file) for file in files] == [4, 4, 4]


def test_a_party_that_misses_a_round_counts_with_its_last_scores(tmp_path: Path) -> None:
    files, made = write_parties(tmp_path), column_deployment("admm-sharing", COLUMNS, 4, least=2)
    post = LocalPost(files, lambda c, ask, reply: None if (c, ask.what, ask.k) == (2, wire.ROUND, 2) else reply)
    result = serve(made, NAME, post, tmp_path / "run")
    assert result.history["answered"].tolist() == [3, 2, 3, 3]
    assert [charged(file) for file in files] == [5, 5, 5]


SPOILT: dict[str, Any] = {
    "nan": {"values": ((1, 40), np.full(40, np.nan).tobytes())},
    "another shape": {"values": ((40, 1), bytes(320))},
    "a vast shape": {"values": ((1, 10**12), bytes(320))},
    "another name": {"labels": ((1, 40), bytes(320))},
    "nothing": {},
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_bad_answer_about_labels_is_none(tmp_path: Path, how: str) -> None:
    spoilt, files = Reply(up=SPOILT[how]), write_parties(tmp_path)
    post = LocalPost(files, lambda _, ask, reply: spoilt if ask.what == wire.PROX else reply)
    with pytest.raises(TooFewAnswers, match="south: bad-answer"):
        serve(column_deployment(), NAME, post, tmp_path / "run")


def slope_at(row: float) -> Any:
    return {"scores": ((1, 1), bytes(8)), "rows": ((1, 1), np.full(1, row).tobytes())}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"down": {}}, wire.BAD_ASK),
        ({"down": {"v": ((1, 40), bytes(320)), "rho": ((1, 1), bytes(8))}}, wire.BAD_ASK),  # rho = 0
        ({"down": {"v": ((1, 39), bytes(312)), "rho": ((1, 1), np.ones(1).tobytes())}}, wire.BAD_ASK),
        ({"what": wire.SLOPE}, wire.BAD_ASK),
        ({"what": wire.SLOPE, "down": slope_at(40.0)}, wire.BAD_ASK),
        ({"what": wire.SLOPE, "down": slope_at(0.5)}, wire.BAD_ASK),
        ({"what": wire.SLOPE, "down": slope_at(39.0)}, ""),
    ],
)
def test_questions_about_labels_are_checked(tmp_path: Path, change: Any, code: str) -> None:
    files = write_parties(tmp_path)
    ask, _ = _asks(files, tmp_path / "run")[1, wire.PROX, 1]
    assert Node(files[1]).answer(replace(ask, **change)).code == code
    assert Node(files[0]).answer(ask).why == "this client holds no labels"


@pytest.mark.parametrize(
    ("limits", "privacy", "words"),
    [
        ({"open_labels": False}, COLUMNS, "labels would be shown: open_labels is false, its label_epsilon is 2"),
        ({"label_epsilon": 1.0}, replace(COLUMNS, label_epsilon=2.0), "label_epsilon 2 is asked for, and its own is 1"),
        ({"least_clip": 60.0}, COLUMNS, "bound 50 is below 60"),
        ({}, replace(COLUMNS, unit="party", row_bound=None, score_bound=None), "relation 'replace-client' is not"),
        ({"seeded": False}, COLUMNS, "seeded noise is not accepted"),
        ({"algorithms": ["dp-admm"]}, COLUMNS, "algorithm 'admm-sharing' is not among"),
    ],
)
def test_limits_are_the_owners(tmp_path: Path, limits: Any, privacy: Any, words: str) -> None:
    files = write_parties(tmp_path, **limits)
    with pytest.raises(TooFewAnswers, match=words):
        serve(column_deployment("admm-sharing", privacy), NAME, LocalPost(files), tmp_path / "run")
    assert charged(files[1]) == 0


def test_rows_and_columns_are_told_apart(tmp_path: Path) -> None:
    """A client of rows does not answer as a party, nor the other way round."""
    made = column_deployment("admm-sharing", COLUMNS, 3)
    parties, rows = write_parties(tmp_path / "parties"), write_nodes(tmp_path / "rows")
    ask, _ = _asks(parties, tmp_path / "run")[0, wire.ROUND, 1]
    assert "does not say how its samples are in order" in Node(rows[0]).answer(ask).why
    with pytest.raises(InvalidInput, match="must have 2 columns, got 4"):
        serve(made, NAME, LocalPost(rows), tmp_path / "other")
    with pytest.raises(InvalidInput, match="must have 4 columns"):
        serve(deployment(), NAME, LocalPost(parties), tmp_path / "third")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"split": [2, 3]}, "split must have one number for each of the 3"),
        ({"split": [2, 3, 0]}, r"split\[2\] must be a whole number >= 1"),
        ({"holder": "nobody"}, "holder"),
        ({"columns": 4}, "leave columns, for rows, out"),
        ({"test": "x.csv", "label": "y"}, "leave test, for rows, out"),
    ],
)
def test_a_run_file_says_what_is_wrong(change: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        column_deployment(**change)


def test_a_run_file_needs_the_kind_of_clients_its_method_is_for() -> None:
    tables = column_tables()
    tables["clients"] = {"names": ["a", "b"], "columns": 4}
    with pytest.raises(InvalidInput, match="admm-sharing is for columns that are split: give split"):
        Deployment.build(tables, "run.toml")
    tables = column_tables()
    del tables["privacy"]["noise"]
    assert Deployment.build(tables, "run.toml").task.privacy.secret_noise, "unless the file says otherwise"


def test_sizes_must_agree(tmp_path: Path) -> None:
    files = write_parties(tmp_path)
    rows = dict(np.load(files[2].parent / "rows.npz"))
    np.savez(files[2].parent / "rows.npz", X=rows["X"][:-1])
    with pytest.raises(InvalidInput, match="client 'west': must have 40 samples, got 39"):
        serve(column_deployment(), NAME, LocalPost(files), tmp_path / "run")


def test_columns_from_a_csv_file(tmp_path: Path) -> None:
    files = write_parties(tmp_path / "a", ids=True)
    answers = [Node(files[1]).status()]
    home = files[1].parent
    rows = np.load(home / "rows.npz")
    both = zip(rows["who"], rows["X"], rows["y"], strict=True)
    lines = [f"{who},{','.join(map(repr, x.tolist()))},{int(y)}" for who, x, y in both]
    (home / "rows.csv").write_text("\n".join(["who,a,b,c,ill", *lines]))
    text = files[1].read_text().replace('npz = "rows.npz"', 'csv = "rows.csv"\nlabel = "ill"')
    files[1].write_text(text)
    assert Node(files[1]).status() == answers[0]
    files[1].write_text(text.replace('label = "ill"\n', "").replace("ill", "sick"))
    (home / "rows.csv").write_text("\n".join(["who,a,b,c", *(line.rsplit(",", 1)[0] for line in lines)]))
    (home / "node" / "ledger").unlink()
    (home / "node" / "ledger.head").unlink()
    again = Node(files[1]).status()
    assert isinstance(again, Status)
    assert replace(again, charges="") == replace(answers[0], labels=False, charges="")  # another ledger, another salt
