"""A tenfold slip is caught here: how much work something is, in calls and in memory, whatever the machine does besides.

Loops over clients, rows or runs belong into NumPy and compiled code. So many must take as many calls as few, and
next to no memory but that of the answer. Times are compared in `test_speed.py`.
"""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks import round_cost

import sottovoce as sv
from sottovoce.algorithms import FedPLT
from sottovoce.problems.rows import Rows
from tests.counting import calls_of_the_library

GOAL = sv.Objective(sv.Logistic(), sv.L2(0.1))


def calls(work: Callable[[], Any]) -> int:
    work()  # what is done once and kept is not counted
    return calls_of_the_library(work)[1]


def memory(work: Callable[[], Any]) -> int:
    """Bytes that NumPy and Python hold at most at once, beside what they held before."""
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def pool(clients: int, rows: int, features: int, stored: str = "float64") -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(clients * rows, features))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    kept = Rows(X.astype(stored), y, np.arange(clients + 1) * rows, sv.Logistic(), engine="kernel")
    return kept, rng.normal(size=(clients, features))


@pytest.mark.parametrize("stored", ["float64", "float32"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_pass_is_one_step_for_all_clients_and_copies_no_rows(stored: str, clip: float | None) -> None:
    counted = []
    for clients, rows in ((10, 1600), (1000, 16)):
        kept, w = pool(clients, rows, 50, stored)
        counted.append(calls(lambda kept=kept, w=w: kept.gradient(w, clip=clip)))
        spare = 40_000  # sums of parts of large clients take 16 000 of it; a thread that only starts now 3 000
        assert memory(lambda kept=kept, w=w: kept.gradient(w, clip=clip)) < 2 * w.nbytes + spare < kept.X.nbytes
    assert counted[1] <= counted[0] <= counted[1] + 1 <= 20  # the parts of large clients are added up in one call more


@pytest.mark.parametrize("part", [slice(None), slice(1, None)], ids=["all clients", "a part of them"])
def test_an_objective_of_many_clients_needs_no_memory_for_all_rows(part: slice) -> None:
    kept, _ = pool(200_000, 10, 2, "float32")
    w, clients = np.zeros((1, 2)), None if part == slice(None) else np.arange(kept.n_clients)[part]
    assert memory(lambda: kept.value(w, clients)) < kept.y.nbytes  # one number for each row


def test_arg_mins_of_all_clients_take_tens_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client after the other it was several hundred."""
    rows, w = pool(50, 100, 20)
    plain, passes = Rows._gradients, []

    def counted(*about: Any) -> np.ndarray:
        passes.append(about)
        return plain(*about)

    monkeypatch.setattr(Rows, "_gradients", counted)
    assert calls(lambda: rows.argmin(w, 0.1)) < 1000
    assert 0 < len(passes) / 2 < 60  # `calls` does it twice


def federation(clients: int) -> sv.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(clients * 40, 20))
    X /= np.linalg.norm(X, axis=1)[:, None] * (1 + 1e-12)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    return sv.Federation.from_arrays(X, y, np.repeat(np.arange(clients), 40), row_bound=1.0)


@pytest.mark.parametrize("name", ["dp-admm", "fedspd-dp", "fed-plt", "fedepm", "fedepm P", "fedavg"])
def test_a_round_with_proven_noise_takes_as_many_calls_for_many_clients(name: str) -> None:
    """All of them are enough for compiled noise."""
    algorithm, privacy, counted = round_cost.make(name), round_cost.privacy_of("proven", name), []
    for clients in (30, 300):
        data = federation(clients)

        def rounds(count: int, data: sv.Federation = data) -> int:
            options: dict[str, Any] = {"privacy": privacy, "seed": 0, "record_every": 1000, "engine": "kernel"}
            return calls(lambda: sv.train(algorithm, data, GOAL, rounds=count, **options))

        counted.append((rounds(12) - rounds(2)) / 10)
    assert counted[1] <= 1.05 * counted[0] < 1000


def test_many_runs_at_once_take_as_many_calls_as_one() -> None:
    def play(runs: int) -> int:
        options: dict[str, Any] = {"privacy": sv.NoPrivacy(), "seed": 0, "record_every": 10, "engine": "kernel"}
        return calls(lambda: sv.train(FedPLT(local_steps=5), federation(5), GOAL, rounds=10, runs=runs, **options))

    assert play(100) < 1.2 * play(1)


def test_import_loads_numpy_alone() -> None:
    heavy = ("scipy", "numba", "sklearn", "matplotlib", "dp_accounting", "opendp", "pyarrow", "rich", "flwr", "torch")
    check = f"import sys, sottovoce; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", check], text=True).strip() == "[]"
