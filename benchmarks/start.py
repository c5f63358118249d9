"""Start: import, --help, the first compile and the next, the demo. Each in processes of its own."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import clock

COMPILE = """
from sottovoce.problems import kernels
kernels.gradients({stored!r}, {stored!r}, 0, kernels.lanes_of(104), False)
"""
FIRST_RUN = """
import numpy as np
import sottovoce as sv
rng = np.random.default_rng(0)
X, y = rng.standard_normal((40_000, 104)), np.where(rng.random(40_000) < 0.5, 1.0, -1.0)
federation = sv.Federation.from_arrays(X, y, np.repeat(np.arange(100), 400)).in_float32()
privacy = sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0)
sv.train(sv.FedAvg(), federation, sv.Objective(sv.Logistic(), sv.L2(1e-3)), rounds=5, privacy=privacy)
"""


def run(quick: bool = False, turns: int = 9) -> dict[str, Any]:
    turns = 3 if quick else turns
    command = [str(Path(sys.executable).parent / "sottovoce")]
    tasks = {
        "python": [sys.executable, "-c", "pass"],
        "numpy": [sys.executable, "-c", "import numpy"],
        "import": [sys.executable, "-c", "import sottovoce"],
        "numba": [sys.executable, "-c", "import numba"],
        "help": [*command, "--help"],
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for turn in range(turns + 1):
        for name, task in tasks.items():
            taken = spent(task)
            if turn:
                seconds[name].append(taken)
    numbers: dict[str, Any] = {name: _median(values) for name, values in seconds.items()}
    for stored in ("float64", "float32"):
        with tempfile.TemporaryDirectory() as cache:
            task = [sys.executable, "-c", COMPILE.format(stored=stored)]
            numbers |= _first_and_later(f"kernel {stored}", task, turns - 3, cache)
    with tempfile.TemporaryDirectory() as cache:
        numbers |= _first_and_later("run", [sys.executable, "-c", FIRST_RUN], turns - 3, cache)
    with tempfile.TemporaryDirectory() as folder:
        demo = [*command, "demo", "--quiet", "--out"]
        spans = [
            spent([*demo, f"{folder}/{turn}"], NUMBA_CACHE_DIR=f"{folder}/cache{turn}") for turn in range(turns // 3)
        ]
        numbers["demo"] = _median(spans)
    return numbers


def _first_and_later(name: str, task: list[str], turns: int, cache: str) -> dict[str, Any]:
    """With nothing in Numba's cache, and with all that the task needs."""
    first = [spent(task, NUMBA_CACHE_DIR=f"{cache}/{turn}") for turn in range(max(1, turns))]
    later = [spent(task, NUMBA_CACHE_DIR=f"{cache}/0") for _ in range(3)]
    return {f"first {name}": _median(first), f"cached {name}": _median(later)}


def spent(command: list[str], **environment: str) -> tuple[float, float]:
    """(wall, CPU) seconds of a process and its children."""
    begun, before = time.perf_counter(), os.times()
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begun, cpu


def _median(values: list[tuple[float, float]]) -> dict[str, Any]:
    wall, cpu = np.array(values).T
    return {
        "wall": float(np.median(wall)), "cpu": float(np.median(cpu)), "least wall": float(wall.min()),
        "cpu within": clock.median_within(cpu),
    }  # fmt: skip
