"""A client on its own machine: the simulator's numbers, its owner's limits, no charge lost or doubled by a crash."""

import errno
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.random.streams import Streams
from sottovoce.deploy import node as module
from sottovoce.deploy import wire
from sottovoce.deploy.node import Node
from sottovoce.deploy.remote import Remote
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.experiment import saved, whole_files
from sottovoce.experiment.task import Task
from tests.cases import CASES, all_modes
from tests.deployments import (
    NAME,
    SECURE,
    SEEDED,
    LocalPost,
    charged,
    deployment,
    first_messages,
    run_tables,
    simulated,
    write_nodes,
)


class Killed(BaseException):
    """Stands for kill -9: nothing catches it, nothing is cleaned up."""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_nodes(tmp_path)


def asks(*given: Any, k: int = 1, **clients: Any) -> dict[int, Ask]:
    """The questions of a first round."""
    heard: dict[int, Ask] = {}

    class Listen:
        def ask(self, asks: Any, deadline: float) -> dict[int, Reply]:
            heard.update(asks)
            return {}

        def statuses(self, wait: float) -> Any:
            return {}

    made = deployment(*given, **({"least": 1} | clients))
    remote = Remote(made, NAME, Listen(), np.ones(3))
    down, _ = first_messages(made)
    with pytest.raises(Exception, match="0 of 3 clients answered"):
        remote.exchange(made.task.algorithm, down, np.ones(3, dtype=bool), k)
    return heard


def at(ask: Ask, k: int, shift: float = 0.0) -> Ask:
    """The same question of another round, about another point."""
    moved = {name: (shape, (np.frombuffer(data) + shift).tobytes()) for name, (shape, data) in ask.down.items()}
    return replace(ask, k=k, down=moved)


# ---------------------------------------------------------------------------------------------- the simulator's numbers


@pytest.mark.parametrize("name", CASES)
def test_every_method_gives_the_simulators_numbers_bit_for_bit(name: str, tmp_path: Path) -> None:
    algorithm = CASES[name].algorithm
    made = deployment(algorithm, list(all_modes(algorithm).values())[-1], 2)  # proven where there is a proof
    result = serve(made, NAME, LocalPost(write_nodes(tmp_path)), tmp_path / "run")
    expected = simulated(made)
    assert np.array_equal(result.model, expected.model)
    assert result.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert np.array_equal(saved.load_result(tmp_path / "run").model, expected.model)


def test_secure_noise_spends_what_the_simulator_spends(files: list[Path], tmp_path: Path) -> None:
    made = deployment("dp-admm", SECURE)
    results = [serve(made, NAME[::-1] if again else NAME, LocalPost(files), tmp_path / f"{again}") for again in (0, 1)]
    spent = simulated(made).guarantee
    assert results[0].guarantee.epsilon_of_client == spent.epsilon_of_client
    assert "operating system" in results[0].guarantee.noise
    assert not np.array_equal(results[0].model, results[1].model)  # nothing of the noise follows from the seed
    assert [charged(file) for file in files] == [6, 6, 6]
    assert results[1].guarantee.epsilon is not None
    assert results[1].guarantee.epsilon > 20  # the second experiment draws on the same ledgers, and says so


def test_nothing_behind_a_secure_door_follows_from_the_seed(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[Streams] = []
    plain, questions = Task.key, asks("dp-admm", SECURE)

    def noted(task: Task, streams: Streams, *rest: Any) -> Any:
        seeds.append(streams)
        return plain(task, streams, *rest)

    monkeypatch.setattr(Task, "key", noted)
    for place in (0, 1):
        assert Node(files[place]).answer(questions[place]).code == ""
    assert all(streams.drawn for streams in seeds)  # by the operating system
    assert len({streams.seed for streams in seeds}) == len(seeds) >= 2


# ----------------------------------------------------------------------------------------------------- repeats, crashes


@pytest.mark.parametrize("privacy", [SECURE, SEEDED], ids=["secure", "seeded"])
def test_a_repeated_question_gets_the_same_answer_for_free(files: list[Path], privacy: Any) -> None:
    ask = asks("dp-admm", privacy)[0]
    first = Node(files[0]).answer(ask)
    assert first.code == ""
    assert Node(files[0]).answer(ask) == first
    assert charged(files[0]) == 1
    later = Node(files[0]).answer(at(ask, 3))
    assert later.code == ""
    assert Node(files[0]).answer(ask) == first  # a server that went back gets what it got
    assert charged(files[0]) == 2


@pytest.mark.parametrize("privacy", [SECURE, SEEDED], ids=["secure", "seeded"])
def test_one_answer_a_round_and_never_backwards(files: list[Path], privacy: Any) -> None:
    ask = asks("dp-admm", privacy)[0]
    Node(files[0]).answer(at(ask, 2))
    assert Node(files[0]).answer(at(ask, 2, shift=0.1)).code == wire.ANSWERED
    assert Node(files[0]).answer(ask).code == wire.LATE
    assert (
        Node(files[0]).answer(replace(at(ask, 3), task=ask.task.replace("seed = 11", "seed = 12"))).code
        == wire.ANSWERED
    )
    assert Node(files[0]).answer(at(ask, 4)).code == wire.BAD_ASK  # the experiment has 3 rounds
    assert charged(files[0]) == 1


@pytest.mark.parametrize("privacy", [SECURE, SEEDED], ids=["secure", "seeded"])
def test_killed_between_charge_and_answer(files: list[Path], privacy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The charge stands and the round stays silent; those after it fit into the budget as planned."""
    ask = asks("dp-admm", privacy)[0]
    assert Node(files[0]).answer(ask).code == ""
    _killed_before_the_answer_is_kept(files[0], at(ask, 2), monkeypatch)
    assert charged(files[0]) == 2
    assert Node(files[0]).answer(at(ask, 2)).code == wire.LOST
    assert charged(files[0]) == 2
    assert Node(files[0]).answer(at(ask, 3)).code == ""
    assert charged(files[0]) == 3  # the noise was calibrated for three answers, and three were charged


@pytest.mark.parametrize("moment", ["checked", "row inserted", "row committed"])
def test_killed_while_charging(files: list[Path], moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever in the ledger it dies: nothing was sent, and at most one answer too many is counted."""
    ask, from_now = asks("dp-admm", SECURE)[0], []
    Node(files[0]).status()

    def step(name: str) -> None:
        if name == moment and not from_now:
            from_now.append(name)
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module.FileLedger, "_withdraw", lambda *_: None)  # the dead take nothing back
        patch.setattr("sottovoce.ledger.chain.step", step)
        try:
            Node(files[0]).answer(ask)
        except Killed:
            assert from_now
    reply = Node(files[0]).answer(ask)
    assert charged(files[0]) == 1
    assert reply.code in ("", wire.LOST)


def _killed_before_the_answer_is_kept(file: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(whole_files, "replace_arrays", die)
        with pytest.raises(Killed):
            Node(file).answer(ask)


def test_a_full_disk_is_said_and_nothing_is_sent(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asks("dp-admm", SECURE)[0]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(whole_files, "write_content", full)
        reply = Node(files[0]).answer(ask)
    assert (reply.code, reply.up) == (wire.DISK, {})
    assert not list((files[0].parent / "node" / "experiments").rglob("*.npz"))
    assert Node(files[0]).answer(ask).code == wire.LOST
    assert Node(files[0]).answer(at(ask, 2)).code == ""
    assert charged(files[0]) == 2


def test_memory_that_is_gone_is_not_made_up(files: list[Path]) -> None:
    import shutil

    ask = asks("dp-admm", SECURE)[0]
    Node(files[0]).answer(ask)
    shutil.rmtree(files[0].parent / "node" / "experiments")
    assert Node(files[0]).answer(ask).code == wire.LOST
    assert Node(files[0]).answer(at(ask, 2)).code == wire.STATE
    assert charged(files[0]) == 1


def test_two_at_once_are_one(files: list[Path]) -> None:
    ask, replies = asks("dp-admm", SECURE)[0], []
    threads = [threading.Thread(target=lambda: replies.append(Node(files[0]).answer(ask))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies[0].code == ""
    assert replies[0] == replies[1] == replies[2]
    assert charged(files[0]) == 1


def test_answers_of_finished_rounds_are_removed(files: list[Path]) -> None:
    """The last ones are kept: a server that lost its last round on disk asks about it once more."""
    ask, node = asks("dp-admm", SECURE, 8)[0], Node(files[0])
    replies = [node.answer(at(ask, k)) for k in range(1, 6)]
    assert [reply.code for reply in replies] == [""] * 5
    kept = sorted(path.name for path in (files[0].parent / "node" / "experiments" / NAME).glob("*.npz"))
    assert kept == ["000004.npz", "000005.npz"]
    assert [Node(files[0]).answer(at(ask, k)) for k in (4, 5)] == replies[3:]
    assert Node(files[0]).answer(at(ask, 3)).code == wire.LATE
    assert charged(files[0]) == 5


def test_a_rewritten_answer_file_is_refused(files: list[Path]) -> None:
    ask = asks()[0]
    Node(files[0]).answer(ask)
    stored = next((files[0].parent / "node" / "experiments").rglob("*.npz"))
    stored.write_bytes(stored.read_bytes()[:100])
    assert Node(files[0]).answer(ask).code == wire.FAILED


# ----------------------------------------------------------------------------------------------------------- the limits


@pytest.mark.parametrize(
    ("limits", "privacy", "words"),
    [
        ({"epsilon": 10.0}, SEEDED, "epsilon 20 is above 10"),
        ({"delta": 1e-5}, SEEDED, "delta must be 1e-05"),
        ({"algorithms": ["fed-plt"]}, SEEDED, "algorithm 'dp-admm' is not among"),
        ({"losses": ["squared"]}, SEEDED, "loss 'logistic' is not among"),
        ({"seeded": False}, SEEDED, "seeded noise is not accepted"),
        ({"least_clip": 2.0}, SEEDED, "clip 1 is below 2"),
        ({"least_noise": 50.0}, SEEDED, "is below 50"),
        ({"modes": ["proven"]}, all_modes(CASES["dp-admm"].algorithm)["none"], "privacy mode 'none' is not among"),
        ({"message_bytes": 8}, SEEDED, "bytes is above 8"),
        ({}, replace(SEEDED, relation="add-remove"), "relation 'add-remove' is not among"),
    ],
)
def test_limits_are_the_owners(tmp_path: Path, limits: Any, privacy: Any, words: str) -> None:
    file = write_nodes(tmp_path, **limits)[0]
    reply = Node(file).answer(asks("dp-admm", privacy)[0])
    assert (reply.code, reply.up) == (wire.LIMITS, {})
    assert words in reply.why
    assert Node(file).status().epsilon == 0  # type: ignore[union-attr]


def test_a_longer_row_than_promised_is_not_asked_for(files: list[Path]) -> None:
    ask = asks()[0]
    for bound in (0.5, 0.999):
        reply = Node(files[0]).answer(replace(ask, row_bound=bound))
        assert reply.code == wire.LIMITS
    assert Node(files[0]).answer(replace(ask, row_bound=2.0)).code == ""


def test_a_budget_is_for_life(tmp_path: Path) -> None:
    """A second experiment gets what the first left over; then the client is silent, whatever the server asks."""
    files, made = write_nodes(tmp_path, epsilon=25.0), deployment("dp-admm", SECURE)
    serve(made, NAME, LocalPost(files), tmp_path / "one")
    post = LocalPost(files)
    second = serve(made, NAME[::-1], post, tmp_path / "two")
    assert "every client's budget is spent" in second.stopped
    assert 0 < second.rounds < 3
    assert second.guarantee.epsilon is not None
    assert 20 < second.guarantee.epsilon <= 25
    assert {reply.code for _, _, reply in post.asked} == {"", wire.BUDGET}


def test_limits_that_the_owner_changes(tmp_path: Path) -> None:
    file = write_nodes(tmp_path)[0]
    Node(file).status()
    file.write_text(file.read_text().replace("epsilon = 100.0", "epsilon = 30.0"))
    assert Node(file).status().limit == 30.0  # type: ignore[union-attr]


def test_other_rows_need_a_ledger_of_their_own(files: list[Path]) -> None:
    node = Node(files[0])
    node.status()
    rows = dict(np.load(files[0].parent / "rows.npz"))
    rows["X"][0, 0] /= 2
    np.savez(files[0].parent / "rows.npz", **rows)
    reply = Node(files[0]).answer(asks()[0])
    assert reply.code == wire.LEDGER


def test_the_coding_of_labels_does_not_make_another_ledger(files: list[Path]) -> None:
    """Whatever loss a server asks for, one budget counts."""
    made = json.dumps([Node(file).status().epsilon for file in files])  # type: ignore[union-attr]
    assert made == "[0.0, 0.0, 0.0]"
    tables = run_tables()
    tables["objective"] = {"loss": "softmax", "classes": 2, "penalty": "l2", "lam": 0.05}
    files[0].write_text(files[0].read_text().replace('losses = ["logistic"]', 'losses = ["logistic", "softmax"]'))
    first = Node(files[0]).answer(asks("dp-admm", SECURE)[0])
    assert first.code == ""
    from sottovoce.deploy.deployment import Deployment

    heard = LocalPost(files[:1])
    soft = Deployment.build(tables | {"clients": tables["clients"] | {"names": ["north"], "least": 1}}, "run.toml")
    Remote(soft, NAME[::-1], heard, np.ones(1)).exchange(
        soft.task.algorithm, first_messages(soft)[0], np.ones(1, dtype=bool), 1
    )
    assert heard.asked[0][2].code == ""
    assert charged(files[0]) == 2


# ---------------------------------------------------------------------------------------------- what comes from outside


BAD = {
    "no toml": {"task": "this is = = not"},
    "unknown algorithm": {"task": '[algorithm]\nname = "os.system"\n'},
    "an event of another kind": {"events": json.dumps([{"mechanism": "laplace", "noise_multiplier": 9.0}])},
    "an event that is no event": {"events": '[{"noise_multiplier": "a lot"}]'},
    "no event": {"events": ""},
    "no arrays": {"down": {}},
    "an array too many": {"down": {"w": ((1, 4), bytes(32)), "x": ((1, 4), bytes(32)), "y": ((1, 4), bytes(32))}},
    "a shape without its bytes": {"down": {"w": ((10**9, 10**9), bytes(32))}},
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_question_is_refused_and_costs_nothing(files: list[Path], what: str) -> None:
    reply = Node(files[0]).answer(replace(asks()[0], **BAD[what]))
    assert (reply.code, reply.up) == (wire.BAD_ASK, {})
    assert Node(files[0]).status().epsilon == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broadcast_must_be_finite(files: list[Path], value: float) -> None:
    assert Node(files[0]).answer(at(asks()[0], 1, shift=value)).code == wire.BAD_ASK


def test_a_refused_question_leaves_no_folder(tmp_path: Path) -> None:
    """Whatever it is refused for; but a client that was charged remembers that it was asked."""
    file = write_nodes(tmp_path, epsilon=20.0)[0]
    ask, experiments = asks("dp-admm", SECURE)[0], file.parent / "node" / "experiments"
    for change in BAD.values():
        assert Node(file).answer(replace(ask, **change)).code == wire.BAD_ASK
    assert not experiments.exists()
    spent = replace(ask, events=json.dumps([json.loads(ask.events)[0] | {"noise_multiplier": 0.01}]))
    assert Node(file).answer(spent).code == wire.BUDGET
    assert not experiments.exists()
    assert Node(file).answer(ask).code == ""
    assert Node(file).answer(replace(spent, experiment=NAME[::-1])).code == wire.BUDGET
    assert [path.name for path in experiments.iterdir()] == [NAME]


def test_a_charge_without_an_answer_is_remembered_though_the_next_question_is_refused(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = asks("dp-admm", SECURE)[0]
    _killed_before_the_answer_is_kept(files[0], ask, monkeypatch)
    assert Node(files[0]).answer(replace(at(ask, 2), down={})).code == wire.BAD_ASK
    assert Node(files[0]).answer(at(ask, 2)).code == ""


def test_words_of_others_are_fit_for_the_owners_terminal(files: list[Path]) -> None:
    task = '"\\u001b[2J\\n2026 all is well" = 1'
    assert Node(files[0]).answer(replace(asks()[0], task=task)).code == wire.BAD_ASK
    Node(files[0]).home.note(f"\x1b[2J\n2026 all is well{'!' * 10**6}")
    lines = (files[0].parent / "node" / "node.log").read_text().split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() and len(line) < 3000 for line in lines)


def test_an_ask_checks_itself() -> None:
    good = asks()[0]
    for change in ({"experiment": "../../etc"}, {"k": 0}, {"client": -1}, {"task": "x" * 2**21}, {"row_bound": np.nan}):
        with pytest.raises(ValueError, match="Ask"):
            replace(good, **change)


def test_no_word_of_the_data_leaves(files: list[Path]) -> None:
    """The reason stays in the client's own log."""
    rows = dict(np.load(files[0].parent / "rows.npz"))
    rows["X"][3, 1] = 123.456789
    np.savez(files[0].parent / "rows.npz", **rows)
    reply = Node(files[0]).answer(asks()[0])
    assert (reply.code, reply.why) == (wire.FAILED, "it could not answer; its own log says why")
    log = (files[0].parent / "node" / "node.log").read_text()
    assert "row_bound promises" in log
    assert "123.4" not in repr(Node(files[0]).status())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('npz = "rows.npz"', "give either csv = a file or npz = a file"),
        ("[limits]", "needs a table"),
        ("epsilon = 100.0", "needs epsilon"),
        ('losses = ["logistic"]', "needs losses"),
    ],
)
def test_a_nodes_file_says_what_is_missing(files: list[Path], change: str, words: str) -> None:
    files[0].write_text(files[0].read_text().replace(change, "" if change != "[limits]" else "[node2]"))
    with pytest.raises(ValueError, match=words if change != "[limits]" else "node2"):
        Node(files[0])


def test_a_csv_file_serves_as_well(files: list[Path]) -> None:
    home = files[0].parent
    rows = np.load(home / "rows.npz")
    lines = [",".join(map(repr, [*x.tolist(), int(label)])) for x, label in zip(rows["X"], rows["y"], strict=True)]
    (home / "rows.csv").write_text("\n".join(["a,b,c,d,ill", *lines]))
    other = home / "csv.toml"
    data = files[0].read_text().replace('npz = "rows.npz"', 'csv = "rows.csv"\nlabel = "ill"')
    other.write_text(data.replace('name = "north"', 'name = "north"\nfolder = "other"'))
    ask = asks()[0]
    assert Node(other).answer(ask) == Node(files[0]).answer(ask)


def test_state_is_what_the_simulator_has(files: list[Path], tmp_path: Path) -> None:
    """After three rounds the file of the last round holds the client's state and its answer."""
    serve(deployment("fed-plt", SEEDED), NAME, LocalPost(files), tmp_path / "run")
    stored = whole_files.read_arrays(files[1].parent / "node" / "experiments" / NAME / "000003.npz")
    assert set(codec.under("client.", stored)) != set()
    assert all(np.isfinite(array).all() for array in codec.under("up.", stored).values())


def test_noise_without_bound_is_refused(files: list[Path]) -> None:
    ask = asks()[0]
    loud = json.loads(ask.events)[0] | {"noise_multiplier": 1e20}
    reply = Node(files[0]).answer(replace(ask, events=json.dumps([loud])))
    assert reply.code == wire.LIMITS
    assert "noise multiplier 1e+20 is above" in reply.why


@pytest.mark.parametrize("task", ["a" + ".a" * 100 + " = 1", "#" * 70_000], ids=["deep", "long"])
def test_a_task_that_takes_for_ever_to_read_is_refused(files: list[Path], task: str) -> None:
    reply = Node(files[0]).answer(replace(asks()[0], task=task))
    assert reply.code == wire.BAD_ASK
    assert "keys of few parts" in reply.why


def test_a_ledger_that_is_gone_is_not_begun_anew(files: list[Path]) -> None:
    assert not Node(files[0]).answer(asks()[0]).code
    for name in ("ledger", "ledger.head"):
        (files[0].parent / "node" / name).unlink()
    assert Node(files[0]).answer(at(asks()[0], 2)).code
    assert Node(files[0]).status().code  # type: ignore[union-attr]


def test_an_arg_min_that_misses_its_certificate_is_answered_where_all_of_it_is_clipped(tmp_path: Path) -> None:
    """A refusal would tell something of the rows, and cost nothing: with w far away rounding decides, row by row."""
    files = write_nodes(tmp_path, relations=["replace-client"])
    whole = replace(SECURE, unit="client")
    ask = asks(replace(CASES["admm"].algorithm, rho=1.0), whole)[0]
    for number, direction in enumerate(np.random.default_rng(0).normal(size=(4, 1, 4))):
        far = {"w": ((1, 4), (1e8 * direction).astype("<f8").tobytes())}
        for client, file in enumerate(files):
            said = Node(file).answer(replace(ask, client=client, experiment=f"{number:032x}", down=far))
            assert said.code == "", said.why
    assert [charged(file) for file in files] == [4, 4, 4]


def test_a_folder_that_others_can_look_into_is_refused(files: list[Path]) -> None:
    """Its files would be theirs to read: states, flips, the log. What to do is said to its owner alone."""
    assert Node(files[0]).inspect().epsilon == 0.0
    folder = files[0].parent / "node"
    assert folder.stat().st_mode & 0o777 == 0o700
    for mode in (0o750, 0o701, 0o704):
        folder.chmod(mode)
        with pytest.raises(InvalidInput, match=rf"nobody but its owner.*got 'mode {mode:o}'. Close it with: chmod 700"):
            Node(files[0]).inspect()
        assert Node(files[0]).answer(asks("dp-admm", SECURE)[0]).code == wire.FAILED
    folder.chmod(0o700)
    assert Node(files[0]).answer(asks("dp-admm", SECURE)[0]).code == ""
