"""A hundred clients in Flower's own simulation, as docs/deploy.md tries a deployment on one machine."""

import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'simulation'")
pytest.importorskip("ray", reason="needs the extra 'simulation'")

from sottovoce.experiment import run_file, saved
from tests.deploy.test_superlink_process import listening
from tests.deployments import charged
from tests.machines import LONG, SOTTOVOCE, answers, end_all, free_ports, processes_of, wait

RUN = """
[data]
name = "adult"
clients = 100
seed = 0
[objective]
loss = "logistic"
penalty = "l2"
lam = 0.01
[algorithm]
name = "dp-admm"
[privacy]
mode = "proven"
noise = "seeded"
epsilon = 5.0
delta = 1e-4
clip = 1.0
[run]
rounds = 2
seed = 3
engine = "numpy"
"""


class Listeners:
    """Looks now and then, while it is entered, where all processes of this home listen."""

    def __init__(self, home: Path) -> None:
        self._home, self._over, self.at = home, threading.Event(), set[tuple[str, int]]()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Listeners":
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _look(self) -> None:
        while not self._over.wait(1.0):
            self.at |= listening(processes_of(self._home))


def test_a_hundred_clients(tmp_path: Path) -> None:
    """Each with its own files, limits and ledger: the numbers of the library's simulator, to the bit."""
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts Flower's simulation with Ray: ask for it with `make test MACHINES=1`")
    (tmp_path / "run.toml").write_text(RUN)
    (tmp_path / "home").mkdir()
    (port,) = free_ports(1)
    connection = f'[superlink]\ndefault = "sim"\n[superlink.sim]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    (tmp_path / "home" / "config.toml").write_text(connection)
    told = {"FLWR_HOME": str(tmp_path / "home"), "SOTTOVOCE_NODES": str(tmp_path / "nodes"), "OMP_NUM_THREADS": "1"}
    settings = {"env": os.environ | told | {"PYTHONWARNINGS": ""}, "cwd": tmp_path}

    def command(*words: str) -> str:
        done = subprocess.run([*SOTTOVOCE, *words], **settings, capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done
        return done.stdout

    said = command("app", "study", "--config", "run.toml", "--nodes", "nodes", "--out", "runs/study")
    assert "Shared out the rows to 100 clients" in said
    place = ("superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port))
    with (tmp_path / "link.log").open("wb") as log:
        link = subprocess.Popen([*SOTTOVOCE, "flower", *place], **settings, stdout=log, stderr=log)
    try:
        wait(lambda: answers(port), "the SuperLink listens")
        size = "num-supernodes=100 client-resources-num-cpus=1"
        with Listeners(tmp_path / "home") as seen:
            said = command("flower", "run", "study", "sim", "--stream", "--federation-config", size)
    finally:
        end_all(tmp_path / "home", link)
    assert "round 2 of 2 done" in said, said
    assert len(seen.at) > 1  # Ray's, beside the SuperLink's
    assert {address for address, _ in seen.at} <= {"0100007F", "0000000000000000FFFF00000100007F"}, seen.at  # loopback
    got, expected = saved.load_result(tmp_path / "runs" / "study"), run_file.load(tmp_path / "run.toml").train()
    assert got.history["answered"].tolist() == [100, 100]
    assert np.array_equal(got.model, expected.model)
    assert got.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert [charged(tmp_path / "nodes" / str(client) / "node.toml") for client in (0, 57, 99)] == [2, 2, 2]
