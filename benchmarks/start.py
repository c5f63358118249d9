"""Start: import, --help, the first compile and the next, the demo. Each in processes of its own."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

COMPILE = """
from sottovoce.problems import kernels
kernels.gradients({stored!r}, {stored!r}, 0, kernels.lanes_of(104), False)
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
            first = min(spent(task, NUMBA_CACHE_DIR=f"{cache}/{turn}") for turn in range(turns // 2))
            spent(task, NUMBA_CACHE_DIR=cache)
            again = _median([spent(task, NUMBA_CACHE_DIR=cache) for _ in range(3)])
        numbers[f"first kernel {stored}"] = {"wall": first[0], "cpu": first[1]}
        numbers[f"cached kernel {stored}"] = again
    with tempfile.TemporaryDirectory() as folder:
        demo = [*command, "demo", "--quiet", "--out"]
        spans = [
            spent([*demo, f"{folder}/{turn}"], NUMBA_CACHE_DIR=f"{folder}/cache{turn}") for turn in range(turns // 3)
        ]
        numbers["demo"] = _median(spans)
    return numbers


def spent(command: list[str], **environment: str) -> tuple[float, float]:
    """(wall, CPU) seconds of a process and its children."""
    begun, before = time.perf_counter(), os.times()
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr[-500:]}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begun, cpu


def _median(values: list[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = np.median(np.array(values), axis=0)
    return {"wall": float(wall), "cpu": float(cpu), "least wall": float(min(one for one, _ in values))}
