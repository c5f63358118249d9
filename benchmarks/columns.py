"""Products of split columns between machines: seconds of the one round, and what a node holds, at two sizes.

Three owners with as many columns each, real nodes on loopback with TLS, secure noise and ledgers; another owner deals.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.deployments import LIMITS
from tests.machines import Machines

from benchmarks.machines import start
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.keys import make_signing_key
from sottovoce.experiment.tables import to_toml

NAMES = ("bank", "shop", "map")


def write_owners(folder: Path, samples: int, columns: int) -> dict[str, Path]:
    rng, homes = np.random.default_rng(0), {name: folder / name for name in NAMES}
    for home in homes.values():
        home.mkdir(parents=True)
    owners = {name: make_signing_key(home / "own.key") for name, home in homes.items()}
    for name, home in homes.items():
        X, holds = rng.uniform(-1, 1, size=(samples, columns // len(NAMES))), name == NAMES[0]
        y: Any = {"y": np.where(rng.random(samples) < 0.5, -1.0, 1.0)} if holds else {}
        np.savez(home / "rows.npz", X=X, who=np.arange(samples), **y)
        data: Any = {"npz": "rows.npz", "id": "who", "salt": "pepper"} | ({"labels": ["-1", "1"]} if holds else {})
        products = {"key": "own.key", "owners": owners}
        tables = {"node": {"name": name}, "data": data, "limits": LIMITS, "products": products}
        (home / "node.toml").write_text(to_toml(tables))
    return {name: home / "node.toml" for name, home in homes.items()}


def study(samples: int, columns: int) -> Deployment:
    clients = {"names": list(NAMES), "split": [columns // 3] * 3, "samples": samples, "holder": NAMES[0]}
    tables: Any = {
        "objective": {"loss": "logistic", "penalty": "l2", "lam": 1e-3},
        "algorithm": {"name": "masked-moments"},
        "privacy": {"mode": "proven", "epsilon": 1.0, "delta": 1e-3, "unit": "record"},
        "run": {"rounds": 1},
        "clients": clients | {"deadline": 300, "wait": 300},
    }
    return Deployment.build(tables, "run.toml")


def one_round(samples: int, columns: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        machines = Machines(folder / "ours", write_owners(folder / "owners", samples, columns))
        try:
            start(machines)
            begun = time.monotonic()
            said = machines.run(machines.app("study", study(samples, columns)), tries=1).end()
            whole = time.monotonic() - begun
            assert "round 1 of 1 done" in said, said
            seconds = float(machines.result("study").history["seconds"][-1])
            found = {name: of_process(machines.running[name].pid) for name in NAMES}
        finally:
            machines.close()
    return {
        "samples": samples, "columns": columns, "seconds": seconds, "seconds with start": whole,
        "CPU seconds of a node": max(cpu for cpu, _ in found.values()),
        "megabytes of a node": max(peak for _, peak in found.values()),
    }  # fmt: skip


def of_process(process: int) -> tuple[float, float]:
    """CPU seconds that it used, and the most megabytes that it held."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return (int(fields[11]) + int(fields[12])) / 100, peak / 1e3


def run(quick: bool = False) -> dict[str, Any]:
    samples = 2000 if quick else 40_000
    return {"half": one_round(samples // 2, 120), "whole": one_round(samples, 120)}
