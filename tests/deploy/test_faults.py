"""What may go wrong between machines, one thing at a time, with real processes: in every row the right model or a clear
reason, nothing lost, and nothing uncharged.

What else one request of a false server meets (coded answers, wrong certificates) is in `test_node_process.py`, what a
client that dies at each step of an answer leaves behind in `test_node.py`, and several faults at once in
`test_machines.py`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from tests.deploy.test_machines import silent
from tests.deploy.test_node_process import Answer, serving
from tests.deploy.test_node_server import implied
from tests.deployments import NAMES, SEEDED, deployment, simulated, write_nodes
from tests.machines import LONG, Keeper, Machines, started, wait

FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A file system of its own with little room, for the client in the south; None where it cannot be had."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", str(folder)], check=False)
    yield folder if mounted.returncode == 0 else None
    if mounted.returncode == 0:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, small_disk: Path | None) -> Iterator[Machines]:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for minutes: ask for it with `make test MACHINES=1`")
    files = write_nodes(tmp_path_factory.mktemp("rows"), epsilon=1e4)  # for all these runs
    if small_disk is not None:
        (files[1].parent / "node").symlink_to(small_disk)
    with started(tmp_path_factory.mktemp("machines"), files, behind=("west",)) as made:
        yield made
        for name in NAMES:
            assert "Traceback" not in made.log(name).read_text()


class Study:
    """A run, of six rounds which all three must answer unless said otherwise, and what it must come to."""

    def __init__(self, machines: Machines, name: str, rounds: int = 6, **clients: Any) -> None:
        self.made = deployment("dp-admm", SEEDED, rounds, **{"deadline": 40, "wait": 120} | clients)
        self._machines, self._name, self.before = machines, name, machines.receipts()
        self._app = machines.app(name, self.made)
        self.run = machines.run(self._app, tries=1)

    def again(self) -> str:
        self.run = self._machines.run(self._app, tries=6)
        return self.run.end()

    def is_right(self) -> None:
        """The simulator's numbers to the bit, and six charges for each client, none twice."""
        got, expected = self._machines.result(self._name), simulated(self.made)
        assert np.array_equal(got.model, expected.model)
        assert got.history["answered"].tolist() == [3] * 6
        assert self._machines.receipts() == [count + 6 for count in self.before]


def stop(machines: Machines, name: str) -> None:
    """Ask a node to end: it does, and that is no failure."""
    machines.running[name].send_signal(signal.SIGTERM)
    assert machines.running.pop(name).wait(LONG) == 0
    assert machines.log(name).read_text().endswith("stopped, as asked\n")


def start(machines: Machines, name: str, words: str = "connected to", **more: str) -> None:
    before = len(machines.log(name).read_text()) if machines.log(name).exists() else 0
    machines.start_node(name, **more)
    machines.says(name, words, before)


def test_the_servers_app_is_killed(machines: Machines) -> None:
    """The command that started it says so, and how to go on."""
    study = Study(machines, "killed-app")
    study.run.reaches(2)
    for process in machines.processes("server"):
        with contextlib.suppress(OSError):
            if b"flwr-serverapp" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGKILL)
    said = study.run.end()
    assert "The run stopped after round" in said
    assert "To go on from there: sottovoce flower run" in said
    assert "going on after round" in study.again()
    study.is_right()


def test_the_link_is_killed_and_restarted_behind_a_proxy(machines: Machines) -> None:
    """Nodes say what they wait for, and come back by themselves."""
    study, before = Study(machines, "killed-link"), {name: len(machines.log(name).read_text()) for name in NAMES}
    study.run.reaches(2)
    machines.kill("server")
    study.run.end()
    for name in NAMES:
        machines.says(name, "cannot be reached", before[name])
    machines.start_server()
    for name in NAMES:
        machines.says(name, "waiting for questions", before[name])
    assert "going on after round" in study.again()
    study.is_right()


def test_a_ledger_is_moved_and_put_back(machines: Machines) -> None:
    study, home = Study(machines, "ledger"), machines.files["north"].parent / "node"
    study.run.reaches(1)
    for name in ("ledger", "ledger.head"):
        (home / name).rename(home / f"{name}.away")
    said = study.run.end()
    assert "north: ledger: " in said, said
    for name in ("ledger", "ledger.head"):
        (home / f"{name}.away").rename(home / name)
    study.again()
    study.is_right()


def test_a_disk_is_full_and_has_room_again(machines: Machines, small_disk: Path | None) -> None:
    if small_disk is None:
        pytest.skip("needs a small file system, and this account may not mount one")
    with Keeper(machines) as kept:
        study = Study(machines, "disk", rounds=20, least=2)
        k = study.run.reaches(1)
        with contextlib.suppress(OSError), (small_disk / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(1024))
                filler.flush()
        study.run.reaches(k + 3)
        (small_disk / "filler").unlink()
        said = study.run.end()
    assert "south: disk: " in said or "south: ledger: " in said, said
    got, answered = machines.result("disk"), [{0, 1, 2} - who for who in silent(said).values()][:20]
    assert (got.rounds, answered[-1]) == (20, {0, 1, 2})
    assert np.array_equal(got.model, implied(study.made, kept.files, answered, machines.experiment))
    charged = machines.receipts()[1] - study.before[1]
    assert sum(1 in who for who in answered) <= charged <= 20


def test_a_budget_is_spent(machines: Machines) -> None:
    """The run goes on without the one who has nothing left, and nothing more is charged to it."""
    Study(machines, "spending").run.end()
    file = machines.files["west"]
    text = file.read_text()
    file.write_text(text.replace("epsilon = 10000.0", "epsilon = 20.0"))
    try:
        study = Study(machines, "budget", least=2)
        said = study.run.end()
        assert "west: budget: its privacy budget is spent" in said, said
        assert machines.result("budget").history["answered"].tolist() == [2] * 6
        assert machines.receipts() == [*(count + 6 for count in study.before[:2]), study.before[2]]
    finally:
        file.write_text(text)


def test_a_line_is_cut_and_late_and_has_wrong_bytes(machines: Machines) -> None:
    study, before = Study(machines, "line", deadline=120), len(machines.log("west").read_text())
    study.run.reaches(1)
    machines.cable.garbled = True
    machines.says("west", "cannot be reached", before)
    machines.cable.garbled, machines.cable.delay = False, 0.2
    study.run.reaches(2)
    machines.cable.delay = 0.0
    machines.cable.cut()
    machines.cable.cut(False)
    study.run.end()
    study.is_right()


def test_a_false_server_takes_the_place_of_the_true_one(machines: Machines) -> None:
    """It has the certificate too. No redirect is followed, no 10 GB are read, and the node comes back by itself."""
    study, before = Study(machines, "false", deadline=120), len(machines.log("west").read_text())
    study.run.reaches(1)
    keys, large = machines.folder / "keys", (200, {"content-length": str(10**10)}, b"x")
    with serving(keys, large) as elsewhere:
        answers: list[Answer] = [(307, {"location": f"https://127.0.0.1:{elsewhere.port}/"}, b"")]
        with serving(keys, lambda *_: answers[-1]) as false:
            lead(machines, false.port)
            machines.says("west", "elsewhere (a redirect)", before)
            answers.append(large)
            machines.says("west", "a response of 10000000000 bytes", before)
            lead(machines, machines.port)
        assert elsewhere.asked == []
    said = study.run.end()
    assert "west: unreachable: " in said or "round 6 of 6 done" in said, said
    machines.says("west", "waiting for questions", before)
    study.again()
    study.is_right()


def lead(machines: Machines, port: int) -> None:
    """The cable goes there from now on."""
    machines.cable.cut()
    machines.cable.target = port
    machines.cable.cut(False)


def test_two_nodes_have_one_key(machines: Machines) -> None:
    """The second is told, waits, and disturbs nobody; when the first goes it takes the first's place."""
    shutil.copytree(machines.files["north"].parent, machines.folder / "twin", ignore=shutil.ignore_patterns("node"))
    (machines.folder / "nodes" / "twin.toml").symlink_to(machines.folder / "twin" / "node.toml")
    study = Study(machines, "twins")
    start(machines, "twin", "another node is connected by this client's key")
    study.run.end()
    study.is_right()
    stop(machines, "north")
    machines.says("twin", "connected to")
    stop(machines, "twin")
    start(machines, "north")


@pytest.mark.parametrize(("shift", "words"), [("+600s", "10 minutes ahead of"), ("-600s", "10 minutes behind")])
def test_a_clock_is_ten_minutes_wrong(machines: Machines, shift: str, words: str) -> None:
    if FAKETIME is None:
        pytest.skip("needs libfaketime (Debian: apt-get install libfaketime) to have a wrong clock")
    stop(machines, "west")
    wrong = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    start(machines, "west", f"this machine's clock is {words} the server's", **wrong)
    assert machines.running["west"].poll() is None
    stop(machines, "west")
    start(machines, "west")
    study = Study(machines, f"clock{shift[0].replace('+', 'ahead').replace('-', 'behind')}")
    study.run.end()
    study.is_right()


def test_rows_change_under_a_node(machines: Machines) -> None:
    """It goes on with those that it has read; after a restart its ledger, which belongs to them, is refused."""
    study, rows = Study(machines, "rows"), machines.files["north"].parent / "rows.npz"
    study.run.reaches(1)
    kept, arrays = rows.read_bytes(), dict(np.load(rows))
    np.savez(rows, X=arrays["X"][::-1] / 2, y=arrays["y"][::-1])
    study.run.end()
    study.is_right()
    stop(machines, "north")
    process = machines.start_node("north")
    assert process.wait(LONG) == 5
    assert "it is a ledger of another data set" in machines.log("north").read_text().splitlines()[-1]
    machines.running.pop("north")
    rows.write_bytes(kept)
    start(machines, "north")


def test_a_stranger_is_let_in_once_it_is_registered(machines: Machines) -> None:
    home = machines.folder / "stranger"
    shutil.copytree(machines.files["north"].parent, home, ignore=shutil.ignore_patterns("node"))
    text = (home / "node.toml").read_text().replace("north.key", "stranger.key").replace('"north"', '"stranger"')
    (home / "node.toml").write_text(text)
    (machines.folder / "nodes" / "stranger.toml").symlink_to(home / "node.toml")
    start(machines, "stranger", "the server does not know this client's key")
    machines.register("stranger")
    machines.says("stranger", "connected to")
    assert machines.running["stranger"].poll() is None
    stop(machines, "stranger")


def test_a_gate_is_closed_and_opened_again(machines: Machines) -> None:
    """Behind a gate the process that speaks with the server reads no rows; without it nothing is answered."""
    stop(machines, "north")
    socket = machines.folder / "gate.socket"
    (machines.folder / "nodes" / "line.toml").write_text(machines.connection("north"))
    own = str(machines.folder / "nodes" / "north.toml")
    machines.start("gate", "node", "gate", own, str(socket))
    wait(socket.is_socket, "the gate is open")
    machines.start("line", "node", "start", str(machines.folder / "nodes" / "line.toml"), "--gate", str(socket))
    machines.says("line", "connected to")
    study = Study(machines, "gate")
    study.run.reaches(2)
    machines.kill("gate")
    said = study.run.end()
    assert "north: failed: its gate does not answer" in said or "round 6 of 6 done" in said, said
    machines.start("gate", "node", "gate", own, str(socket))
    wait(lambda: machines.log("gate").read_text().count("answering at") == 2, "the gate is open again")
    study.again()
    study.is_right()
    stop(machines, "line")
    machines.kill("gate")
    start(machines, "north")
