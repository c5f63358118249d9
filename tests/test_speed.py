"""Ratios of CPU times, of tasks in turn, with wide margins; see docs/speed.md. `make bench` begins with them.

`make test` leaves them out, because no test of it may depend on a clock: it counts work instead (`test_work.py`).
Each ratio is of the quickest turns: other work on the machine only ever lengthens a turn. A ratio that is too large is
measured again with more turns before it counts.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks import clock, round_cost

import sottovoce as sv
from sottovoce.algorithms import FedPLT
from sottovoce.core.compiling import THREADS
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.problems.rows import Rows
from tests.local import assemble

pytestmark = pytest.mark.clock


def slip(task: Callable[[], Any], against: Callable[[], Any], most: float) -> float:
    """How many times longer `task` takes; measured again with more patience if that is above `most`."""
    ratio = np.inf
    for turns in (3, 9, 27):
        ratio = min(ratio, clock.side_by_side({"task": task, "against": against}, turns).best_ratio("task", "against"))
        if ratio <= most:
            break
    return ratio


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before, THREADS.most = THREADS.most, 1
    yield
    THREADS.most = before


def pool(clients: int, rows: int, features: int, stored: str = "float64") -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(clients * rows, features)).astype(stored)
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    kept = Rows(X, y, np.arange(clients + 1) * rows, sv.Logistic(), engine="kernel")
    return kept, rng.normal(size=(clients, features))


def test_a_pass_is_near_a_centralised_gradient_by_numpy() -> None:
    """Seen: half of it."""
    rows, w = pool(50, 400, 104)
    v = w[0]

    def centralised() -> np.ndarray:
        return rows.X.T @ (-rows.y / (1 + np.exp(rows.y * (rows.X @ v))))

    assert slip(lambda: rows.gradient(w), centralised, 3.0) < 3.0


def test_many_small_clients_cost_what_few_large_ones_do() -> None:
    """As many numbers in all, but 20 000 clients; seen: twice as long."""
    small, w_small = pool(20_000, 10, 20)
    large, w_large = pool(10, 4_000, 100)
    assert slip(lambda: small.gradient(w_small), lambda: large.gradient(w_large), 10.0) < 10.0


def test_clipping_and_float32_cost_next_to_nothing() -> None:
    rows, w = pool(50, 400, 104)
    narrow, _ = pool(50, 400, 104, "float32")
    assert slip(lambda: rows.gradient(w, clip=1.0), lambda: rows.gradient(w), 4.0) < 4.0
    assert slip(lambda: narrow.gradient(w), lambda: rows.gradient(w), 3.0) < 3.0


def test_arg_mins_of_all_clients_cost_tens_of_passes() -> None:
    """Seen: 30 to 40; one client after the other it was several hundred."""
    rows, w = pool(50, 400, 104)
    rows.X /= np.linalg.norm(rows.X, axis=1)[:, None]
    assert slip(lambda: rows.argmin(w, 0.1), lambda: rows.gradient(w), 150.0) < 150.0


@pytest.mark.parametrize("name", ["dp-admm", "fedspd-dp", "fed-plt", "fedepm", "fedepm P", "fedavg"])
def test_a_round_with_proven_noise_costs_little_more_than_its_passes(name: str) -> None:
    """Seen: 1.1 to 1.5 times."""
    algorithm = round_cost.make(name)
    parts = (algorithm, round_cost.data(), round_cost.GOAL, round_cost.privacy_of("proven", name), Everyone())
    ratios = []
    for turns in (5, 15, 45):
        place = assemble(*parts, round_cost.PLANNED, Streams(0), None, "kernel")
        ratios.append(round_cost.measure(place, algorithm, turns).ratio or np.inf)
        if ratios[-1] < 3:
            break
    assert min(ratios) < 3


def test_many_runs_at_once_beat_a_loop_over_seeds() -> None:
    """Seen: 20 times faster and more, with the compiled engine."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 5)), np.where(rng.random(100) < 0.5, 1.0, -1.0)
    federation = sv.Federation.from_arrays(X, y, np.repeat(np.arange(10), 10))
    goal = sv.Objective(sv.Logistic(), sv.L2(0.1))

    def play(seed: int, runs: int | None = None) -> None:
        sv.train(
            FedPLT(local_steps=5), federation, goal, rounds=10, privacy=sv.NoPrivacy(), seed=seed, runs=runs,
            record_every=10, engine="kernel",
        )  # fmt: skip

    some, many, gain = 2, 100, 5
    assert (
        slip(lambda: play(0, many), lambda: [play(seed) for seed in range(some)], many / some / gain)
        < many / some / gain
    )
