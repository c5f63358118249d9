"""Times side by side: every task in turn, and ratios within a turn, so that a busy machine slows all alike."""

import gc
import json
import math
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


class Turns:
    """Seconds of each task in each turn."""

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        self.seconds = {name: np.array(values) for name, values in seconds.items()}

    def ms(self, name: str) -> float:
        return 1e3 * float(np.median(self.seconds[name]))

    def ratio(self, name: str, over: str) -> float:
        """How many times longer `name` takes than `over`: the median over turns."""
        return float(np.median(self.seconds[name] / self.seconds[over]))

    def ratio_within(self, name: str, over: str) -> dict[str, float]:
        """The same, with an interval for the median over turns: see `median_within`."""
        return median_within(self.seconds[name] / self.seconds[over])

    def best_ratio(self, name: str, over: str) -> float:
        """From the quickest turn of each: for wall time, which other work only ever lengthens."""
        return float(self.seconds[name].min() / self.seconds[over].min())


def side_by_side(
    tasks: Mapping[str, Callable[[], Any]], turns: int = 15, clock: Callable[[], float] = time.process_time
) -> Turns:
    """CPU seconds (or another clock's) of each task, after one turn that does not count.

    Every turn has an order of its own: what ran before a task decides what it finds in the caches. The first task of a
    turn runs once before it counts: the garbage collector has emptied them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(turns + 1):
            names = random.Random(turn).sample(list(tasks), len(tasks))
            tasks[names[0]]()
            for name in names:
                begun = clock()
                tasks[name]()
                if turn:
                    seconds[name].append(clock() - begun)
            gc.collect()
    finally:
        if enabled:
            gc.enable()
    return Turns(seconds)


def median_within(values: np.ndarray, level: float = 0.95) -> dict[str, float]:
    """The median of some turns, and an interval that covers what it would be over ever more of them.

    By order statistics, so no distribution is assumed: of n values the j-th smallest lies above the median with a
    probability of P(Binomial(n, 1/2) < j). With fewer than six turns it is the whole range, and covers less often.
    """
    ordered, n = np.sort(values), len(values)
    below = np.cumsum([math.comb(n, j) for j in range(n)]) / 2.0**n  # P(Binomial < j + 1)
    skipped = int(np.searchsorted(below, (1 - level) / 2, side="right"))
    low, high = ordered[max(0, skipped - 1)], ordered[n - 1 - max(0, skipped - 1)]
    return {"ratio": float(np.median(ordered)), "low": float(low), "high": float(high)}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """b of the fit seconds = a sizes^b."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def keep(section: str, numbers: Any, seconds: float | None = None) -> None:
    """Write a section's numbers, with when it was, how busy the machine was, and how long it took."""
    RESULTS.mkdir(exist_ok=True, parents=True)
    about = {"date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[1], 1), "cores": os.cpu_count()}
    if seconds is not None:
        about["seconds"] = round(seconds)
    path = RESULTS / f"{section}.json"
    path.write_text(json.dumps({**numbers, "about": about}, indent=1) + "\n")
    print(f"wrote {path}", flush=True)


def kept(section: str) -> dict[str, Any] | None:
    path = RESULTS / f"{section}.json"
    return json.loads(path.read_text()) if path.exists() else None
