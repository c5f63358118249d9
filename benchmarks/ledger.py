"""What a ledger costs: milliseconds of one synced charge on disk, and of one charge of 100 clients in memory.

Run with a folder on the disk of interest: ``python benchmarks/ledger.py [folder]``.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sottovoce.ledger.budget import Budget
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy.events import Event

EVENT = Event("gaussian", 1000.0)
BUDGET = Budget(10.0, 1e-5)


def median_ms(action: Callable[[int], object], times: int) -> float:
    taken = []
    for number in range(times):
        start = time.perf_counter()
        action(number)
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken)


def on_disk(folder: Path, rows: int) -> tuple[float, float]:
    """One charge with this many rows before it, and one opening (which verifies every row)."""
    path = folder / f"{rows}.ledger"
    with FileLedger.create(path, "owner", fingerprint(np.arange(3.0)), BUDGET) as ledger:

        def charge(number: int) -> None:
            ledger.charge(EVENT, run="benchmark", round=number, question=0, purpose="gradient")

        for number in range(rows):
            charge(number)
        charged = median_ms(lambda number: charge(rows + number), 200)
    return charged, median_ms(lambda _: FileLedger.open(path).close(), 5)


def in_memory(shape: tuple[int, ...], kinds: int, some: bool) -> float:
    """One charge of all clients, or of half of them with a mask over runs, `kinds` of event in turn."""
    ledger = MemoryLedger(BUDGET, shape)
    events = [Event("gaussian", 1000.0 + kind) for kind in range(kinds)]
    clients = np.arange(0, shape[-1], 2) if some else None
    active = np.ones((*shape[:-1], shape[-1] // 2), bool) if some else None
    ledger.charge(events[0], clients, active)
    return median_ms(lambda number: ledger.charge(events[number % kinds], clients, active), 500)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for rows in (1, 1000):
            charged, opened = on_disk(Path(folder), rows)
            print(
                f"disk, {rows:5d} rows before: {charged:8.3f} ms a synced charge, {opened:8.3f} ms to open and verify"
            )
    for shape, kinds, some in [((100,), 1, False), ((100,), 1, True), ((50, 100), 1, True), ((100,), 2, False)]:
        who = "half, masked" if some else "all"
        print(f"memory, shape {shape!s:9}, {who:12}, {kinds} kind(s): {in_memory(shape, kinds, some):8.4f} ms a charge")


if __name__ == "__main__":
    main()
