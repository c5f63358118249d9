"""What privacy costs in time: ledger, noise and accounting next to a round of 100 clients x 400 rows x 104 features.

    .venv/bin/python benchmarks/privacy_cost.py

Shares of one round, so that a busy machine does not matter; milliseconds where a target is in milliseconds.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.local import assemble

import sottovoce as sv
from sottovoce.algorithms import DPSGD
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Purpose, Streams
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.privacy import accounting
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy.events import Event

CLIENTS, ROWS, FEATURES = 100, 400, 104


def median_ms(work: Callable[[], object], times: int) -> float:
    work()
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(taken))


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(CLIENTS * ROWS, FEATURES))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.where(X @ rng.normal(size=FEATURES) > 0, 1.0, -1.0)
    federation = sv.Federation.from_arrays(X, y, np.repeat(np.arange(CLIENTS), ROWS), row_bound=1.0 + 1e-9)
    goal = sv.Objective(sv.Logistic(), sv.L2(1e-6))
    proven, algorithm = sv.Proven(1.0, 1e-5, 1.0), DPSGD()
    place = assemble(algorithm, federation, goal, proven, Everyone(), 10**6, Streams(0), None, "kernel")
    place.start(algorithm)
    plain = assemble(algorithm, federation, goal, sv.NoPrivacy(), Everyone(), 10**6, Streams(0), None, "kernel")
    plain.start(algorithm)
    from sottovoce.algorithms.dp_sgd import Down

    down, everyone = Down(np.zeros((1, FEATURES))), np.ones(CLIENTS, dtype=bool)
    clients, ledger = np.arange(CLIENTS), place.ledger
    assert ledger is not None
    event = place.door.event

    exact = median_ms(lambda: plain.exchange(algorithm, down, everyone, 1), 60)
    private = median_ms(lambda: place.exchange(algorithm, down, everyone, 1), 60)
    count = median_ms(lambda: (ledger.afford(event, 1, clients, 1), ledger.charge(event, clients, everyone, 1, 0)), 200)
    noise = median_ms(lambda: place.streams.normal(clients, 1, Purpose.NOISE, FEATURES), 60)
    print(f"a round of {CLIENTS} x {ROWS} x {FEATURES}: {exact:.2f} ms exact, {private:.2f} ms proven")
    print(f"  ledger in memory   {count:7.3f} ms   {count / private:6.1%} of the round   (target: under 10 %)")
    print(f"  seeded noise       {noise:7.3f} ms   {noise / private:6.1%} of the round")

    zeros = np.zeros(FEATURES, np.int64)
    secure = median_ms(lambda: mechanisms.noised("gaussian", 37.0 * 2 * mechanisms.GRID_BOUND, zeros), 60)
    print(f"secure noise, one client's {FEATURES} values: {secure:.2f} ms   (target: under 10 ms)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.ledger"
        with FileLedger.create(path, "one", fingerprint(X[:ROWS], y[:ROWS]), Budget(1e6, 1e-5)) as disk:
            asked = iter(range(10**6))
            synced = median_ms(
                lambda: disk.charge(event, run="bench", round=next(asked), question=0, purpose="training"), 60
            )
    print(f"ledger on disk, one synced answer: {synced:.2f} ms")
    begun = time.perf_counter()
    accounting.epsilon({Event("gaussian", 5.0, "poisson", "add-remove", 0.01): 3}, 1e-5)
    print(f"first question to dp-accounting, its import included, once a process: {time.perf_counter() - begun:.3f} s")
    for name, options in {
        "full batch": {},
        "Poisson, 10 of 326": {"sampling": "poisson", "relation": "add-remove", "rate": 10 / 326},
        "fixed size, 10 of 326": {"sampling": "fixed-size", "batch": 10, "size": 326},
        "discrete": {"mechanism": "discrete-gaussian"},
    }.items():
        begun = time.perf_counter()
        accounting.calibrate(1.0, 1e-5, 1000, **options)
        print(f"calibration, 1000 answers, {name}: {time.perf_counter() - begun:.3f} s   (target: under 1 s)")


if __name__ == "__main__":
    main()
