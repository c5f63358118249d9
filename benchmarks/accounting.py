"""Milliseconds of processor time for the questions the library asks its accountant, each with empty caches.

Run: python benchmarks/accounting.py
"""

import time
from collections.abc import Callable
from typing import Any

from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event

EPSILON, DELTA, ANSWERS = 1.0, 1e-5, 1000

KINDS: dict[str, dict[str, Any]] = {
    "gaussian, full batch": {},
    "gaussian, Poisson 1 %": {"sampling": "poisson", "relation": "add-remove", "rate": 0.01},
    "gaussian, Poisson 10 %": {"sampling": "poisson", "relation": "add-remove", "rate": 0.1},
    "gaussian, 10 of 1000": {"sampling": "fixed-size", "batch": 10, "size": 1000},
    "discrete gaussian": {"mechanism": "discrete-gaussian"},
    "laplace": {"mechanism": "laplace"},
    "randomised response": {"mechanism": "randomized-response"},
}


def forget() -> None:
    for cached in vars(accounting).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def milliseconds(ask: Callable[[], object], times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        ask()
    return (time.process_time() - start) / times * 1e3


def main() -> None:
    accounting.calibrate(EPSILON, DELTA, 10, **KINDS["gaussian, Poisson 10 %"])  # pays for the imports
    print(f"epsilon {EPSILON:g}, delta {DELTA:g}, {ANSWERS} answers; milliseconds")
    print(f"{'':24}{'noise':>10}{'calibrate':>12}{'epsilon':>10}{'affordable':>12}{'again':>10}")
    for name, kind in KINDS.items():
        forget()
        calibrated = milliseconds(lambda kind=kind: accounting.calibrate(EPSILON, DELTA, ANSWERS, **kind))
        noise = accounting.calibrate(EPSILON, DELTA, ANSWERS, **kind)
        event = Event(**{"mechanism": "gaussian", **kind, "noise_multiplier": noise})
        forget()
        cost = milliseconds(lambda event=event: accounting.epsilon({event: ANSWERS}, DELTA))
        forget()
        left = milliseconds(lambda event=event: accounting.affordable(event, EPSILON, DELTA))
        again = milliseconds(lambda event=event: accounting.affordable(event, EPSILON, DELTA), times=20)
        print(f"{name:24}{noise:10.4f}{calibrated:12.2f}{cost:10.2f}{left:12.2f}{again:10.4f}")


if __name__ == "__main__":
    main()
