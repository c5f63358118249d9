"""Against a plain NumPy loop over clients, in one process and in turns: FedAvg with the ledger and proven noise on.

The loop draws no noise and counts nothing. What both do once is left out: a long run less a short one.
"""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import clock
from benchmarks.peers.section import SCRIPTS
from sottovoce.core.compiling import THREADS

SHORT = 10  # rounds of the run that is subtracted
TARGETS = {
    "float32 1": 1.6,
    "float32 5": 1.3,
    "float64 1": 1.7,
    "float64 5": 1.0,
    "many, CPU": 20.0,
    "many, wall": 30.0,
}


def run(quick: bool = False, turns: int = 21) -> dict[str, Any]:
    turns, rounds = (3, 20) if quick else (turns, 100)
    THREADS.most = 1
    problem, theirs, ours = (_script(name) for name in ("problem", "numpy_loop", "run_sottovoce"))
    vars(ours)["EXACT"] = False
    X, y = problem.data()
    numbers: dict[str, Any] = {}
    for stored in ("float32", "float64"):
        for steps in (1, 5):
            print(f"loop: {stored}, local steps: {steps}", flush=True)
            rows, labels, vars(ours)["STORED"] = X.astype(stored), y.astype(stored), stored
            count = max(rounds // steps, 20)
            found = against(lambda n, a=rows, b=labels, s=steps: theirs.run(a, b, s, n),
                            lambda n, s=steps: ours.run(X, y, s, n), count, SHORT, turns)  # fmt: skip
            numbers[f"{stored} {steps}"] = found
    return numbers | many_clients(problem, theirs, ours, 10_000 if quick else 100_000, min(turns, 9))


def many_clients(problem: ModuleType, theirs: ModuleType, ours: ModuleType, clients: int, turns: int) -> dict[str, Any]:
    """So many clients x 20 x 20, one step: CPU time on one thread, and wall time with ours on two."""
    X, y = problem.data(clients, 20, 20)
    vars(ours)["STORED"] = "float32"
    numbers: dict[str, Any] = {}
    for name, threads, timer in (("many, CPU", 1, time.process_time), ("many, wall", 2, time.perf_counter)):
        print(f"loop: {clients} clients, {threads} threads", flush=True)
        THREADS.most = threads
        numbers[name] = against(
            lambda n: theirs.run(X, y, 1, max(1, n // 10)), lambda n: ours.run(X, y, 1, n), 10, 2, turns, timer, 10
        )
    THREADS.most = 1
    return numbers | {"clients": clients}


def against(
    theirs: Callable[[int], Any], ours: Callable[[int], Any], rounds: int, short: int, turns: int,
    timer: Callable[[], float] = time.process_time, fewer: int = 1,
) -> dict[str, float]:  # fmt: skip
    """How many times faster a round of ours is; the loop plays 1/`fewer` of the rounds, where it is slow."""
    tasks = {"loop": lambda: theirs(rounds), "short": lambda: ours(short), "long": lambda: ours(short + rounds)}
    turn = clock.side_by_side(tasks, turns, timer)
    loop = turn.seconds["loop"] / rounds * fewer
    mine = (turn.seconds["long"] - turn.seconds["short"]) / rounds
    shown = {"loop ms": 1e3 * float(np.median(loop)), "ours ms": 1e3 * float(np.median(mine)), "turns": turns}
    return clock.median_within(loop / mine) | shown


def _script(name: str) -> ModuleType:
    """A script of the peers as a module; they find each other as files of one folder."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS))


def page(numbers: dict[str, Any]) -> Iterator[str]:
    yield "## 1. Against a plain NumPy loop\n"
    yield (
        "FedAvg as a loop of twelve lines over the clients, which draws no noise and counts nothing, beside ours with "
        "the ledger and proven noise on. Both in one process, in turns; a ratio is the median over turns, with an "
        "interval that covers it with a probability of 95 % (by order statistics). The loop has rows and models in the "
        "type that is named.\n"
    )
    yield "| clients x rows x features | rows, local steps | loop, ms | ours, ms | times faster | interval | target |"
    yield "|---|---|---|---|---|---|---|"
    many = f"{numbers['clients']:,} x 20 x 20".replace(",", " ")
    kinds = [("100 x 400 x 104", f"{stored}, {steps}", f"{stored} {steps}") for stored in ("float32", "float64")
             for steps in (1, 5)]  # fmt: skip
    kinds += [(many, "float32, 1, CPU time", "many, CPU"), (many, "float32, 1, wall time, two threads", "many, wall")]
    for shape, kind, name in kinds:
        one, target = numbers[name], TARGETS[name]
        missed = "" if one["ratio"] >= target else " **missed**"
        times = f"{one['loop ms']:.2f} | {one['ours ms']:.2f} | {one['ratio']:.2f}{missed}"
        yield f"| {shape} | {kind} | {times} | {one['low']:.2f} to {one['high']:.2f} | {target:g} |"
    yield ""
