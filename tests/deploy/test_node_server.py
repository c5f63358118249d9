"""The server's half of a deployment: what it makes of silence, of bad answers, and of its own sudden end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Hub
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.core.round import Checkpoint
from sottovoce.deploy import home, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.remote import TooFewAnswers
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply, Status
from sottovoce.experiment import store, whole_files
from sottovoce.experiment.repetitions import interval
from sottovoce.experiment.train import run_task
from sottovoce.planning.problem import Plan, Problem
from sottovoce.privacy.modes import Proven
from tests.deployments import (
    NAME,
    SECURE,
    SEEDED,
    LocalPost,
    charged,
    deployment,
    federation,
    first_messages,
    run_tables,
    simulated,
    write_nodes,
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(home, "KEPT", 100)  # for `implied`
    return write_nodes(tmp_path)


def implied(made: Deployment, files: list[Path], answered: list[set[int]], experiment: str = NAME) -> np.ndarray:
    """The model that the answers on the clients' disks imply, if in round k + 1 those of answered[k] came through."""
    algorithm, like = made.task.algorithm, first_messages(made)[1]

    def hub(k: int, who: set[int]) -> Hub:
        mask = np.array([[i in who] for i in range(3)])
        draw = Draw(Streams(11), np.array([SERVER], dtype=np.uint64), k)
        return Hub(3, made.task.objective.penalty, draw, k, mask, np.zeros((1, 4)))

    server = algorithm.init_server(hub(0, set()))
    for k, who in enumerate(answered, start=1):
        arrays: dict[str, np.ndarray] = {}
        for client in who:
            path = files[client].parent / "node" / "experiments" / experiment / f"{k:06d}.npz"
            for field, array in codec.under("up.", whole_files.read_arrays(path)).items():
                arrays.setdefault(field, np.zeros((3, array.shape[-1])))[client] = array[0]
        up = algorithm.up(**arrays) if who else codec.empty_rows(like, 3)
        server = algorithm.server(server, up, hub(k, who))
    return algorithm.model(server)[0]


def spoil(reply: Reply, **change: Any) -> Reply:
    (name, (shape, data)), *_ = reply.up.items()
    made = {"shape": shape, "data": data, "name": name} | change
    return Reply(up={made["name"]: (made["shape"], made["data"])})


SPOILT = {
    "nan": lambda reply: spoil(reply, data=np.full(4, np.nan).tobytes()),
    "infinite": lambda reply: spoil(reply, data=np.full(4, -np.inf).tobytes()),
    "another shape": lambda reply: spoil(reply, shape=(4, 1)),
    "a vast shape": lambda reply: spoil(reply, shape=(10**12, 10**12)),
    "too many bytes": lambda reply: spoil(reply, data=bytes(10**6)),
    "too few bytes": lambda reply: spoil(reply, data=bytes(7)),
    "another name": lambda reply: spoil(reply, name="weights"),
    "nothing": lambda reply: Reply(),
    "silence": lambda reply: None,
    "a refusal": lambda reply: Reply(wire.LIMITS, "not today"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_bad_answer_is_no_answer(
    files: list[Path], tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In round 2 the third client's answer is unusable: training goes on with the others, and takes it back after."""

    def meddle(client: int, ask: Ask, reply: Reply) -> Reply | None:
        return SPOILT[how](reply) if (client, ask.k) == (2, 2) else reply

    made = deployment("dp-admm", SEEDED, 3, least=2)
    result = serve(made, NAME, LocalPost(files, meddle), tmp_path / "run")
    assert result.history["answered"].tolist() == [3, 2, 3]
    assert np.array_equal(result.model, implied(made, files, [{0, 1, 2}, {0, 1}, {0, 1, 2}]))
    assert [charged(file) for file in files] == [3, 3, 3]
    assert "round 2: west: " in caplog.text


def test_too_few_answers_stop_and_resume(files: list[Path], tmp_path: Path) -> None:
    """What was answered before the stop is answered again, with the same bytes and without a charge."""
    made = deployment("dp-admm", SECURE, 3)
    lost = LocalPost(files, lambda client, ask, reply: None if (client, ask.k) == (0, 2) else reply)
    with pytest.raises(TooFewAnswers, match=r"round 2: 2 of 3 clients answered.*north: timeout"):
        serve(made, NAME, lost, tmp_path / "run")
    again = LocalPost(files)
    result = serve(made, NAME, again, tmp_path / "run")
    before = {client: reply for client, ask, reply in lost.asked if ask.k == 2}
    after = {client: reply for client, ask, reply in again.asked if ask.k == 2}
    assert before == after
    assert result.rounds == 3
    assert [charged(file) for file in files] == [3, 3, 3]
    assert np.array_equal(result.model, implied(made, files, [{0, 1, 2}] * 3))


@pytest.mark.parametrize("privacy", [SEEDED, SECURE], ids=["seeded", "secure"])
@pytest.mark.parametrize("moment", ["before the checkpoint", "after it"])
def test_a_server_that_dies_goes_on(files: list[Path], tmp_path: Path, moment: str, privacy: Any) -> None:
    """With secure noise an answer that was made again would differ: the one that was stored is sent."""
    made = deployment("fed-plt", privacy, 3)

    class Killed(BaseException):
        pass

    def die(checkpoint: Checkpoint) -> None:
        if checkpoint.k == 2:
            raise Killed

    early, write = moment == "before the checkpoint", store.Checkpoints.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.Checkpoints, "write", lambda self: (early and die(self.last)) or write(self))
        before = LocalPost(files)
        with pytest.raises(Killed):
            serve(made, NAME, before, tmp_path / "run", after_round=die)
    post = LocalPost(files)
    result = serve(made, NAME, post, tmp_path / "run")
    assert min(ask.k for _, ask, _ in post.asked) == (2 if early else 3)
    first = {(client, ask.k): reply.up for client, ask, reply in before.asked}
    again = {(client, ask.k): reply.up for client, ask, reply in post.asked if (client, ask.k) in first}
    assert len(again) == (3 if early else 0)
    assert all(first[key] == up for key, up in again.items())
    if privacy == SEEDED:
        assert np.array_equal(result.model, simulated(made).model)
    answers = made.task.algorithm.asks().only.answers
    assert [charged(file) for file in files] == [3 * answers] * 3
    with pytest.raises(ValueError, match="this run is finished"):
        serve(made, NAME, LocalPost(files), tmp_path / "run")


def own(file: Path) -> Status:
    """What a node says of itself."""
    said = Node(file).status()
    assert isinstance(said, Status)
    return said


def test_a_client_that_is_lost_for_good(files: list[Path], tmp_path: Path) -> None:
    class Without(LocalPost):
        def statuses(self, wait: float) -> Any:
            return {client: status for client, status in super().statuses(wait).items() if client != 1}

    made = deployment("dp-admm", SECURE, 3, least=2)
    post = Without(files, lambda client, ask, reply: Reply(wire.ABSENT, "gone") if client == 1 else reply)
    result = serve(made, NAME, post, tmp_path / "run")
    assert result.history["answered"].tolist() == [2, 2, 2]
    assert result.guarantee.epsilon == pytest.approx(max(own(files[0]).epsilon, own(files[2]).epsilon))
    assert "who was never heard of in this run" in result.guarantee.not_covered[-1]


def test_a_client_that_answered_and_is_gone_counts_with_its_limit(files: list[Path], tmp_path: Path) -> None:
    """Also after a restart of the server, which has not met it itself."""
    gone = [False]

    class Losing(LocalPost):
        def statuses(self, wait: float) -> Any:
            found = super().statuses(wait)
            return {client: status for client, status in found.items() if client != 1 or not gone[0]}

    class Killed(Exception):
        pass

    def kill(checkpoint: Any) -> None:
        gone[0] = True
        raise Killed

    made = deployment("dp-admm", SECURE, 3, least=2)
    post = Losing(files, lambda client, ask, reply: Reply(wire.ABSENT, "gone") if client == 1 and gone[0] else reply)
    with pytest.raises(Killed):
        serve(made, NAME, post, tmp_path / "run", after_round=kill)
    result = serve(made, NAME, post, tmp_path / "run")
    assert result.guarantee.epsilon == own(files[1]).limit


def test_noise_is_secure_unless_the_file_says_otherwise() -> None:
    tables = run_tables()
    del tables["privacy"]["noise"]
    assert Deployment.build(tables, "run.toml").task.privacy == SECURE


@pytest.mark.parametrize(
    ("table", "change", "words"),
    [
        ("clients", {"least": 4}, "least must be at most the number of clients"),
        ("clients", {"names": ["a", "a"]}, "names must be distinct"),
        ("clients", {"columns": 0}, "columns must be a whole number >= 1"),
        ("clients", {"deadline": -1}, "deadline must be > 0"),
        ("clients", {"test": "nowhere.csv", "label": "y"}, "there is no such file"),
        ("objective", {"scale": "records"}, r'run.toml, \[clients\]: scale = "records" in \[objective\] needs records'),
        ("clients", {"records": 2}, "records must be a whole number >= 3"),
        ("clients", {"records": 98}, "records goes with scale = .records."),
        ("run", {"runs": 3}, "runs and ledgers are for simulations"),
        ("algorithm", {"name": "dvp"}, "has no 'proven' variant"),
    ],
)
def test_a_run_file_says_what_is_wrong(table: str, change: Any, words: str) -> None:
    tables = run_tables()
    tables[table] = change if table == "algorithm" else tables[table] | change
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        Deployment.build(tables, "run.toml")


def test_records_weigh_the_same_where_their_number_is_stated(files: list[Path], tmp_path: Path) -> None:
    tables = run_tables("dp-sgd")
    tables["objective"] |= {"scale": "records"}
    tables["clients"] |= {"records": int(federation().sizes.sum())}
    made = Deployment.build(tables, "run.toml")
    assert Deployment.build(made.tables, "run.toml").task == made.task
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    task = replace(made.task, objective=replace(made.task.objective, scale="records"))
    expected = run_task(task, federation(), seed=11).model
    np.testing.assert_array_equal(result.model, expected)
    del tables["objective"]["scale"]
    assert Deployment.build(tables, "run.toml").task == made.task


def test_the_run_file_of_a_plan_is_one_of_a_deployment() -> None:
    problem = Problem([400] * 3, 4, Proven(1.0, 1e-5, noise="secure"))
    task = problem.task("auto")
    plan = Plan(problem, task, interval(np.ones(2)), 0.9, 0.9, 0.5, 1.0, (), ())
    tables = {name: table for name, table in plan.tables().items() if name != "data"}
    who = {"names": ["a", "b", "c"], "columns": 4, "row_bound": 1.0}
    with pytest.raises(InvalidInput, match=r"run.toml, \[clients\]: .* needs records"):
        Deployment.build(tables | {"clients": who}, "run.toml")
    made = Deployment.build(tables | {"clients": who | {"records": 1200}}, "run.toml")
    assert (made.task.algorithm, made.task.rounds) == (task.algorithm, task.rounds)
    assert made.task.objective.scale == 3 / 1200


def test_what_is_measured_is_public(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "public.csv").write_text("a,b,c,d,ill\n1,0,0,0,1\n-1,0,0,0,-1\n")
    made = deployment("dp-admm", SEEDED, 2, test=str(tmp_path / "public.csv"), label="ill", labels=[-1, 1])
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert {"test_loss", "test_accuracy"} <= set(result.history.columns)
    assert not {"objective", "epsilon"} & set(result.history.columns)


def test_a_client_with_other_columns_is_told_apart(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="client 'north': must have 5 columns, got 4"):
        serve(deployment("dp-admm", SEEDED, 2, columns=5), NAME, LocalPost(files), tmp_path / "run")
