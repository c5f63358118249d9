"""Real processes on loopback: a SuperLink and three nodes with TLS and keys, and what may befall them.

One set of processes serves all tests of this file, in order.
"""

import contextlib
import os
import re
import resource
import secrets
import signal
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.algorithms import ADMMSharing
from sottovoce.deploy.flower import superlink
from sottovoce.ledger.file import FileLedger
from tests.deploy.test_node_server import implied
from tests.deployments import (
    COLUMNS,
    NAMES,
    SECURE,
    SECURE_COLUMNS,
    SEEDED,
    column_deployment,
    deployment,
    simulated,
    write_nodes,
    write_parties,
)
from tests.machines import Keeper, Machines, started, talk, wait


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_nodes(tmp_path_factory.mktemp("rows"), epsilon=1e4)  # for all these runs


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_parties(tmp_path_factory.mktemp("parties"))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, rows: list[Path]) -> Iterator[Machines]:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for minutes: ask for it with `make test MACHINES=1`")
    with started(tmp_path_factory.mktemp("machines"), rows, behind=("west",)) as made:
        yield made


def by_name(files: list[Path]) -> dict[str, Path]:
    return dict(zip(NAMES, files, strict=True))


def test_dp_admm_bit_for_bit_while_strangers_knock(machines: Machines) -> None:
    """Five rounds give the simulator's numbers to the bit. Garbage, strangers and plain connections are refused."""
    made = deployment("dp-admm", SEEDED, 5, deadline=120)
    under_way = machines.run(machines.app("admm", made))
    for port in (machines.port, machines.control):
        garbage(port)
    with pytest.raises(ssl.SSLError):  # a certificate that nobody known signed
        talk(machines.port, ssl.create_default_context())
    under_way.reaches(1)
    replayed(machines)
    said = under_way.end()
    assert "round 5 of 5 done" in said, said
    expected = simulated(made)
    got = machines.result("admm")
    assert np.array_equal(got.model, expected.model)
    assert got.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert got.history["answered"].tolist() == [3] * 5
    assert machines.receipts() == [5, 5, 5]


def garbage(port: int) -> None:
    for words in (
        secrets.token_bytes(2**16),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(2**16),
    ):
        send(port, words)


def send(port: int, words: bytes) -> bytes:
    """What comes back, until the other side closes the line. It must: an open line is one that was believed."""
    heard = b""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), 60) as line:
        line.settimeout(60)
        line.sendall(words)
        line.shutdown(socket.SHUT_WR)
        while data := line.recv(2**16):
            heard += data
    return heard


def replayed(machines: Machines) -> None:
    """Bytes a client has sent, sent again, get no further than a handshake; a signature is good for minutes only."""
    longest = max(machines.cable.sent, key=len)
    assert len(longest) > 1000
    assert len(send(machines.port, bytes(longest))) < 10_000  # keys, certificate, and an alert
    assert machines.signed("north", "north", minutes=0) != 401
    assert machines.signed("north", "north", minutes=-10) == 401  # an old one
    assert machines.signed("north", "north", minutes=+10) == 401  # made ahead
    assert machines.signed("north", "south", minutes=0) == 401  # by someone else
    assert machines.signed("stranger", "stranger", minutes=0) != 200


def test_who_comes_in_where_nodes_do_is_answered_as_a_node_alone(machines: Machines) -> None:
    """Starting, stopping and listing runs, registering nodes, tasks of app processes: on the server's loopback only."""
    for path in ("/v1/control/list-runs", "/v1/control/list-nodes", "/v1/runtime/acquire-task"):
        assert machines.post(machines.control, path) == 200
        for way in (path, f"/v1/fleet/..{path[3:]}", f"/{path}", path.replace("/v1", "/v1/fleet/%2e%2e")):
            assert machines.post(machines.port, way) == 404
    for path in ("/v1/control/start-run", "/v1/control/stop-run", "/v1/control/register-node", "/docs", "/health"):
        assert machines.post(machines.port, path) == 404
    assert machines.command("desk", "ls", "tls").returncode == 0
    refused = machines.command("desk", "supernode", "register", machines.keys("stranger.pub"), "outside")
    assert refused.returncode != 0, refused
    assert machines.signed("stranger", "stranger", minutes=0) != 200
    assert machines.post(machines.port, "/v1/fleet/pull-messages") == 401  # a node, and who is it?
    assert machines.post(machines.port, "/v1/fleet/push-object", bytes(superlink.LARGEST_PIECE)) == 400  # it was read
    announced = {"content-length": str(superlink.LARGEST_PIECE + 1)}
    assert machines.post(machines.port, "/v1/fleet/push-object", b"", announced) == 413
    assert machines.post(machines.port, "/v1/fleet/push-object", iter([b"no", b"end"])) == 411


def test_fed_plt_bit_for_bit_though_server_and_client_are_killed(machines: Machines) -> None:
    """kill -9 of a client in mid-round and of the whole server; both come back, and no client answers or pays twice."""
    before, made = machines.receipts(), deployment("fed-plt", SEEDED, 5, deadline=120)
    app = machines.app("plt", made)
    under_way = machines.run(app)
    under_way.reaches(2)
    machines.kill("south")  # in mid-round: one is always under way
    machines.cable.cut()  # a cable to a dead server is dead
    machines.kill("server")
    under_way.end()
    assert machines.done("plt", 2)
    assert not machines.done("plt", 5)
    machines.start_server()
    restart(machines, "south")
    said = machines.run(app).end()
    assert "going on after round" in said, said
    expected = simulated(made)
    got = machines.result("plt")
    assert np.array_equal(got.model, expected.model)
    assert got.history["answered"].tolist() == [3] * 5
    answers = made.task.algorithm.asks().only.answers
    assert machines.receipts() == [count + 5 * answers for count in before]


@pytest.mark.parametrize("name", ["fedspd-dp", "fedepm", "dp-sgd"])
def test_further_methods_of_rows_bit_for_bit(machines: Machines, name: str) -> None:
    """With those above and below, five methods of rows and one of columns."""
    before, made = machines.receipts(), deployment(name, SEEDED, 3, deadline=120)
    said = machines.run(machines.app(name, made)).end()
    assert "round 3 of 3 done" in said, said
    got, expected = machines.result(name), simulated(made)
    assert np.array_equal(got.model, expected.model)
    answers = made.task.algorithm.asks().only.answers
    assert machines.receipts() == [count + 3 * answers for count in before]


def restart(machines: Machines, name: str) -> None:
    """A killed client is let in again once the old one's heart has stopped for a minute, and waits for that."""
    said = len(machines.log(name).read_text())
    machines.start_node(name)
    machines.says(name, "connected to", said)


def test_admm_sharing_bit_for_bit(machines: Machines, parties: list[Path]) -> None:
    """Columns split between three machines, the labels with one of them: the simulator's numbers to the bit."""
    machines.have(by_name(parties))
    made = column_deployment("admm-sharing", COLUMNS, 5, deadline=120)
    said = machines.run(machines.app("sharing", made)).end()
    assert "round 5 of 5 done" in said, said
    got, expected = machines.result("sharing"), simulated(made)
    assert np.array_equal(got.model, expected.model)
    assert got.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert machines.receipts() == [6, 6, 6]  # five rounds, and a model


def test_the_label_holder_is_killed_in_mid_round(machines: Machines, parties: list[Path]) -> None:
    """kill -9 between its scores and its word on labels: the run stops, says why, and ends as if nothing had been."""
    machines.have(by_name(parties))
    before, made = machines.receipts(), column_deployment(ADMMSharing(rho=3.0), COLUMNS, 4, deadline=60)
    app = machines.app("holder", made)
    under_way = machines.run(app, tries=1)
    scores = parties[1].parent / "node" / "experiments" / machines.experiment / "000002.npz"
    wait(scores.exists, "the label holder has answered in round 2")
    machines.kill("south")
    said = under_way.end()
    reason = r"stopped: round 2: (nothing was heard of the labels|2 of 3 clients answered).*Silent: south: "
    assert re.search(reason, said), said
    assert machines.done("holder", 1) == 1
    restart(machines, "south")
    said = machines.run(app).end()
    assert "going on after round 1" in said, said
    got, expected = machines.result("holder"), simulated(made)
    assert np.array_equal(got.model, expected.model)
    assert got.history["answered"].tolist() == [3] * 4
    assert machines.receipts() == [count + 5 for count in before]  # four rounds and a model, none twice


def spent(machines: Machines, run: str) -> list[Counter[Any]]:
    """What each client's ledger says of one experiment."""
    counts = []
    for file in machines.files.values():
        with FileLedger.open(file.parent / "node" / "ledger") as ledger:
            counts.append(Counter(receipt.event for receipt in ledger.receipts() if receipt.run == run))
    return counts


def test_secure_noise_spends_what_the_simulator_spends(
    machines: Machines, rows: list[Path], parties: list[Path]
) -> None:
    """Noise of the operating system: no number can be compared, but what was charged can."""
    runs, made = {}, {}
    for name, files, privacy in (("dp-admm", rows, SECURE), ("fed-plt", rows, SECURE),
                                 ("admm-sharing", parties, SECURE_COLUMNS)):  # fmt: skip
        machines.have(by_name(files))
        build = deployment if files == rows else column_deployment
        made[name] = build(name, privacy, 2, deadline=120)
        said = machines.run(machines.app(f"secure-{name}", made[name])).end()
        assert "round 2 of 2 done" in said, said
        runs[name] = spent(machines, machines.experiment)
    for name, counts in runs.items():
        (event,) = made[name].plan(np.ones(3))
        models = name == "admm-sharing"
        expected = 2 * made[name].task.algorithm.asks().only.answers + models
        assert counts == [Counter({event: expected})] * 3
        whole = simulated(made[name]).guarantee  # of a ledger that holds nothing else
        assert {ledger_epsilon(count, whole.delta) for count in counts} == {whole.epsilon}


def ledger_epsilon(count: Any, delta: Any) -> float:
    from sottovoce.privacy import accounting

    return accounting.epsilon(count, delta)


def silent(said: str) -> dict[int, set[int]]:
    """Who did not answer in which round, as the server's log tells it. A round that was stopped is done again."""
    missing: dict[int, set[int]] = {k: set() for k in range(1, 100)}
    for line in said.splitlines():
        if found := re.match(r"round (\d+): (\w+): ", line):
            missing[int(found[1])].add(NAMES.index(found[2]))
        elif found := re.match(r"stopped: round (\d+): ", line):
            missing[int(found[1])].clear()
    return missing


def test_suspended_cut_off_full_and_killed_clients(machines: Machines, rows: list[Path]) -> None:
    """Nobody waits beyond the deadline, the model is what the answers imply, and no ledger is below what was sent."""
    machines.have(by_name(rows))
    rounds, deadline = 30, 20
    before, made = machines.receipts(), deployment("dp-admm", SECURE, rounds, least=1, deadline=deadline, wait=300)
    with Keeper(machines) as kept:
        under_way = machines.run(machines.app("faults", made))
        k = under_way.reaches(1)
        machines.signal("north", signal.SIGSTOP)
        machines.cable.cut()
        k = under_way.reaches(k + 3)  # the first without the two may have had their answers already
        machines.signal("north", signal.SIGCONT)
        machines.cable.cut(False)
        k = under_way.reaches(k + 1, answers=3)  # both are back: as soon as Flower sees them again
        machines.limit_files("west", 4096)
        k = under_way.reaches(k + 2)
        machines.limit_files("west", resource.RLIM_INFINITY)
        k = under_way.reaches(k + 1, answers=3)
        machines.kill("south")  # in mid-round: one is always under way
        said = under_way.end()
    got, missing = machines.result("faults"), silent(said)
    answered = [{0, 1, 2} - missing[k] for k in range(1, rounds + 1)]
    assert got.rounds == rounds, said
    assert got.history["answered"].tolist() == [len(who) for who in answered]
    assert any({0, 2} <= who for who in missing.values()), said  # suspended, and cut off
    assert re.search(r"round \d+: west: (disk|ledger)", said), said  # full
    assert 1 in missing[rounds], said  # killed
    assert {0, 2} <= answered[-1], said  # and those are back
    assert np.array_equal(got.model, implied(made, kept.files, answered, machines.experiment))
    for client, (now, then) in enumerate(zip(machines.receipts(), before, strict=True)):
        assert sum(client in who for who in answered) <= now - then <= rounds
    # The deadline, a minute for a newcomer's name, and work.
    assert max(np.diff(got.history["seconds"])) < deadline + 60 + 30
    # Of the one that says nothing at the end, the guarantee takes that it has spent all it ever may.
    assert got.guarantee.epsilon_of_client[1] == 1e4
