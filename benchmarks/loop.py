"""Against a plain NumPy loop over clients, in one process and in turns: FedAvg with the ledger and proven noise on.

The loop draws no noise and counts nothing. What ours does once is left out: its rounds are timed between the calls of
`after_round`.
"""

import importlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import sottovoce as sv
from benchmarks import clock
from benchmarks.peers.section import SCRIPTS
from sottovoce.algorithms import FedAvg
from sottovoce.core.compiling import THREADS

WARM_UP = 2  # rounds of ours that do not count: set-up ends with the first
TARGETS = {
    "float32 1": 1.6,
    "float32 5": 1.3,
    "float64 1": 1.7,
    "float64 5": 1.0,
    "many, CPU": 20.0,
    "many, wall": 30.0,
}
Timer = Callable[[], float]
_BUDGETS = itertools.count()


def proven() -> sv.Proven:
    """A budget that no run had before: else accounting would remember the epsilons of the last run."""
    return sv.Proven(epsilon=10.0 + 1e-6 * next(_BUDGETS), delta=1e-5, clip=1.0)


def run(quick: bool = False, turns: int = 21) -> dict[str, Any]:
    turns, rounds = (3, 20) if quick else (turns, 100)
    problem, loop = _script("problem"), _script("numpy_loop")
    X, y = problem.data()
    numbers: dict[str, Any] = {}
    for stored in ("float32", "float64"):
        federation, own = _federation(X, y, stored), (X.astype(stored), y.astype(stored))
        for steps in (1, 5):
            print(f"loop: {stored}, local steps: {steps}", flush=True)
            count = max(rounds // steps, 20)
            found = against(lambda n, own=own, s=steps: loop.run(*own, s, n), federation, problem, steps, count, turns)
            numbers[f"{stored} {steps}"] = found
    return numbers | many_clients(problem, loop, 10_000 if quick else 100_000, 3 if quick else 9)


def many_clients(problem: ModuleType, loop: ModuleType, clients: int, turns: int) -> dict[str, Any]:
    """So many clients x 20 x 20, one step: CPU time on one thread, and wall time with ours on two."""
    X, y = problem.data(clients, 20, 20)
    federation, numbers = _federation(X, y, "float32"), dict[str, Any]()
    for name, threads, timer in (("many, CPU", 1, time.process_time), ("many, wall", 2, time.perf_counter)):
        print(f"loop: {clients} clients, threads: {threads}", flush=True)
        THREADS.most = threads
        numbers[name] = against(lambda n: loop.run(X, y, 1, 1), federation, problem, 1, 20, turns, timer, 1)
    THREADS.most = 1
    return numbers | {"clients": clients}


def against(
    loop: Callable[[int], Any], federation: sv.Federation, problem: ModuleType, steps: int, rounds: int, turns: int,
    timer: Timer = time.process_time, of_loop: int = 0,
) -> dict[str, float]:  # fmt: skip
    """How many times faster a round of ours is; the loop plays as many rounds, or `of_loop` where it is slow."""
    THREADS.most = THREADS.most if of_loop else 1
    theirs, ours = [], []
    for turn in range(turns + 1):
        begun = timer()
        loop(of_loop or rounds)
        taken = timer() - begun
        mine = _a_round(federation, problem, steps, rounds, timer)
        if turn:  # the first has compilers in it
            theirs.append(1e3 * taken / (of_loop or rounds))
            ours.append(1e3 * mine)
    shown = {"loop ms": float(np.median(theirs)), "ours ms": float(np.median(ours)), "turns": turns}
    return clock.median_within(np.array(theirs) / np.array(ours)) | shown


def _a_round(federation: sv.Federation, problem: ModuleType, steps: int, rounds: int, timer: Timer) -> float:
    """Seconds of a round of ours, all that `train` does in it included."""
    at: list[float] = []
    sv.train(
        FedAvg(step=problem.STEP, local_steps=steps), federation, sv.Objective(sv.Logistic(), sv.L2(problem.LAM)),
        rounds=rounds + WARM_UP, privacy=proven(), seed=0, measure_training=False,
        after_round=lambda checkpoint: at.append(timer()),
    )  # fmt: skip
    return (at[-1] - at[WARM_UP - 1]) / rounds


def _federation(X: np.ndarray, y: np.ndarray, stored: str) -> sv.Federation:
    federation = sv.Federation.from_clients(list(zip(X, y, strict=True)))
    return federation.in_float32() if stored == "float32" else federation


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
