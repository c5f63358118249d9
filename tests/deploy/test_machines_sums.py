"""Real processes on loopback whose server sees sums only: ten nodes, three of which are killed at different steps."""

import contextlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.deploy.aggregation.state import ANNOUNCED
from sottovoce.deploy.aggregation.store import start_of_machine
from tests.machines import Machines, Run, started
from tests.summed import deployment_of, names_of, simulated, sums, write_owners

N, ROUNDS = 10, 20


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for minutes: ask for it with `make test MACHINES=1`")
    return write_owners(tmp_path / "rows", N, least=7, colluders=0)


def kill_once(machines: Machines, under_way: Run, name: str, k: int, step: str) -> None:
    """kill -9, as soon as its disk says that it has taken this step of the protocol: the next one is under way."""
    folder = machines.files[name].parent / "node" / "sums" / machines.experiment / "secrets" / start_of_machine()

    def taken() -> bool:
        with contextlib.suppress(FileNotFoundError):
            _, stage, given, _, *number = (folder / "state").read_bytes()[:8]
            now = int.from_bytes(bytes(number), "big")
            return {"S1": stage >= ANNOUNCED, "R1": now >= k, "R2": now > k or (now == k and given == 1)}[step]
        return False

    under_way.until(taken, f"{name} has taken {step} of round {k}")
    machines.kill(name)


def opened_by(said: str) -> list[list[int]]:
    """Who is in the sum of each round, as the server's log tells it."""
    names, answered = names_of(N), [list(range(N)) for _ in range(ROUNDS)]
    for k, missing in re.findall(r"round (\d+): the sum is without (.*)", said):
        answered[int(k) - 1] = [i for i in range(N) if names[i] not in missing.strip().split(", ")]
    for k in re.findall(r"round (\d+): .*nothing is opened", said):
        answered[int(k) - 1] = []
    return answered


def test_ten_nodes_of_whom_three_are_killed_at_different_steps(files: list[Path], tmp_path: Path) -> None:
    """In the set-up, after an upload, and after shares were given: the model is the simulator's."""
    made = deployment_of(files, sums(least=7, colluders=0), rounds=ROUNDS, deadline=120, wait=500)
    with started(tmp_path / "machines", dict(zip(names_of(N), files, strict=True))) as machines:
        under_way = machines.run(machines.app("summed", made))
        kill_once(machines, under_way, "owner3", 0, "S1")
        kill_once(machines, under_way, "owner5", 4, "R1")
        kill_once(machines, under_way, "owner7", 8, "R2")  # or R3
        said = under_way.end()
        got, receipts = machines.result("summed"), machines.receipts()
    answered = opened_by(said)
    assert got.rounds == ROUNDS, said
    assert got.history["answered"].tolist() == [len(who) for who in answered], said
    assert np.array_equal(got.model, simulated(made, answered)), said
    gone = {3, 5, 7}
    assert all(not gone & set(who) for who in answered[12:]), said
    assert [receipts[i] for i in range(N) if i not in gone] == [ROUNDS] * 7
    assert all(receipts[i] >= sum(i in who for who in answered) for i in gone)
