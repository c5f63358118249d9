"""A round between machines whose server sees sums only, beside one of which it sees every message, in turn.

The same ten nodes of ours on the same SuperLink, the same rows, method and noise of the operating system. What comes
before the first round with sums, the set-up with its keys and shares, is spread over the rounds it is made for.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.machines import Machines
from tests.summed import keys_in, pin_keys

from benchmarks.machines import start, write_nodes
from sottovoce.deploy.deployment import Deployment


def study(files: Mapping[str, Path], rows: int, columns: int, rounds: int, summed: bool) -> Deployment:
    clients: dict[str, Any] = {"names": list(files), "columns": columns, "row_bound": 1.000001, "least": len(files)}
    clients |= {"records": rows * len(files), "deadline": 300, "wait": 300}
    privacy: dict[str, Any] = {"mode": "proven", "epsilon": 20.0, "delta": 1e-3, "clip": 1.0}
    if summed:
        privacy |= {"observer": "sums"}  # of all, of whom a third may collude
        clients |= {"signing_keys": keys_in(list(files.values()))}
    tables: Any = {
        "objective": {"loss": "logistic", "penalty": "l2", "lam": 0.05, "scale": "records"},
        "algorithm": {"name": "noisy-gd", "step": 1.0},
        "privacy": privacy,
        "run": {"rounds": rounds, "engine": "numpy"},
        "clients": clients,
    }
    return Deployment.build(tables, "run.toml")


def seconds_of(machines: Machines, name: str, made: Deployment) -> tuple[float, float]:
    """Wall seconds of the first round with all that comes before it, and the median of the others."""
    said = machines.run(machines.app(name, made), tries=1).end(3600.0)
    result = machines.result(name)
    assert result.rounds == made.settings.rounds, said
    assert (result.history["answered"] == len(machines.files)).all(), said
    seconds = np.asarray(result.history["seconds"])
    return float(seconds[0]), float(np.median(np.diff(seconds)))


def side_by_side(nodes: int, rows: int, columns: int, rounds: int, turns: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {"with sums": [], "set-up": [], "without": [], "ratios": []}
    with tempfile.TemporaryDirectory() as place:
        files = write_nodes(Path(place) / "nodes", nodes, rows, columns)
        pin_keys(list(files.values()), nodes, -(-nodes // 3))
        machines = Machines(Path(place) / "machines", files)
        try:
            start(machines)
            for turn in range(turns):
                _, without = seconds_of(machines, f"plain{turn}", study(files, rows, columns, rounds, False))
                first, other = seconds_of(machines, f"summed{turn}", study(files, rows, columns, rounds, True))
                set_up = max(first - other, 0.0)
                measured = (other, set_up, without, (other + set_up / rounds) / without)
                for name, number in zip(found, measured, strict=True):
                    found[name].append(number)
                print(", ".join(f"{name} {numbers[-1]:.2f}" for name, numbers in found.items()), flush=True)
        finally:
            machines.close()
    sizes = {"nodes": nodes, "rows": rows, "columns": columns, "rounds": rounds, "turns": turns}
    return sizes | found | {"ratio": float(np.median(found["ratios"]))}


def run(quick: bool = False) -> dict[str, Any]:
    return side_by_side(3, 20, 10, 4, 1) if quick else side_by_side(10, 400, 104, 20, 3)
