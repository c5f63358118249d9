"""What a round costs where only sums are seen, beside one of which every message is.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m benchmarks.sums_cost

CPU time on one thread, each task in turn, so that a busy machine slows all alike. A round is everything that the
simulator does in it: broadcast, clipped gradients (or moments), noise, charges, and the step of the server.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.local import assemble

import sottovoce as sv
from benchmarks.clock import side_by_side
from benchmarks.round_cost import SERVER_ONLY, data
from sottovoce.algorithms import Moments, NoisyGD
from sottovoce.core.compiling import THREADS
from sottovoce.core.contract import Hub
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Draw, Streams

TURNS, PLANNED = 15, 1000
SIZES = ((100, 400, 104), (10, 1000, 50))  # clients, rows of each, columns
GOAL = sv.Objective(sv.Logistic(), sv.L2(1e-3), scale="records")
SERVER: dict[str, Any] = {"epsilon": 1e4, "delta": 1e-5, "clip": 0.5}
OBSERVERS = {
    "server": sv.Proven(**SERVER),
    "server, on a grid": sv.Proven(**SERVER, noise="discrete"),
    "sums": sv.Proven(**SERVER, observer="sums"),
}


def rounds_of(algorithm: Any, privacy: sv.Proven, federation: sv.Federation, again: bool) -> Callable[[], None]:
    """A function that plays one round more, or `again` the first one."""
    place = assemble(algorithm, federation, GOAL, privacy, Everyone(), PLANNED, Streams(0), None, "kernel")
    place.start(algorithm)
    clients, columns = federation.n, federation.X.shape[1]
    everyone, zeros = np.ones(clients, dtype=bool), np.zeros((1, columns))
    unspent = {} if place.ledger is None else place.ledger.state()
    k = 0

    def hub() -> Hub:
        return Hub(clients, GOAL.penalty, Draw(place.streams, SERVER_ONLY, k), k, everyone[:, None], zeros)

    state = algorithm.init_server(hub())

    def play() -> None:
        nonlocal k, state
        k = 1 if again else k + 1
        if again and place.ledger is not None:
            place.ledger.restore(unspent)
        exchange = place.exchange(algorithm, algorithm.broadcast(state, hub()), everyone, k)
        assert exchange is not None
        state = algorithm.server(state, exchange.up, hub())

    return play


def main() -> None:
    THREADS.most = 1
    for clients, rows, columns in SIZES:
        federation = data(clients, rows, columns)
        print(f"{clients} clients x {rows} rows x {columns} columns, one thread, CPU time of a round")
        for algorithm, again in ((NoisyGD(), False), (Moments(), True)):
            tasks = {name: rounds_of(algorithm, one, federation, again) for name, one in OBSERVERS.items()}
            turns = side_by_side(tasks, TURNS)
            for name in OBSERVERS:
                ratio = turns.ratio(name, "server")
                print(f"  {algorithm.name}, {name}: {turns.ms(name):.1f} ms, {ratio:.2f} times as long")


if __name__ == "__main__":
    main()
