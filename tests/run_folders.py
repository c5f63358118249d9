"""Run folders of every kind that `verify` knows, and what somebody who knows the format would write over them."""

import contextlib
import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import ADMMSharing, FedSPDDP
from sottovoce.experiment.tables import to_toml
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.file import FileLedger

GOAL = sv.Objective(sv.Logistic(), sv.L2(0.1))
PROVEN = sv.Proven(epsilon=1.0, delta=1e-3, clip=1.0)
COLUMNS = sv.ProvenColumns(5.0, 1e-3, unit="record", bound=5.0, row_bound=1.0, score_bound=0.3, label_epsilon=2.0)


def rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(120, 2))
    return X, np.where(X[:, 0] > X[:, 1], 1, -1)


def federation() -> sv.Federation:
    X, y = rows()
    return sv.Federation.from_arrays(X, y, groups=np.arange(120) % 3, row_bound=1.0)


def columns() -> sv.VerticalFederation:
    X, y = rows()
    return sv.VerticalFederation.from_columns(X[:30], y[:30], (1, 1))


def trained(algorithm: Any = None, privacy: Any = PROVEN, seed: int = 0, **how: Any) -> sv.Result:
    method = sv.DPADMM(rho=0.3) if algorithm is None else algorithm
    how = {"rounds": 3, "engine": "numpy"} | how
    return sv.train(method, how.pop("federation", federation()), GOAL, privacy=privacy, seed=seed, **how)


def raise_budgets(ledgers: Path, epsilon: float) -> None:
    for file in sorted(ledgers.glob("*.ledger")):
        with FileLedger.open(file) as ledger:
            ledger.change_budget(Budget(epsilon, ledger.budget.delta), "agreed")


def three_runs(home: Path) -> list[sv.Result]:
    """On the same ledgers: gradients, proximal steps that rest on a bound on rows, gradients again."""
    methods = (sv.DPADMM(rho=0.3), FedSPDDP(variant="P"), sv.DPADMM(rho=0.3))
    results = []
    for seed, method in enumerate(methods):
        results.append(trained(method, seed=seed, ledgers=str(home)))
        raise_budgets(home, 10.0)
    return results


def estimated() -> sv.Result:
    """A classifier whose ranges are paid for out of the same budget."""
    X, y = rows()
    prepare = sv.PrivateScaler(epsilon=8.0, delta=0.0)
    model = sv.FederatedClassifier(
        epsilon=20.0, delta=1e-3, rounds=3, prepare=prepare, classes=[-1, 1], earlier_steps="public", random_state=0
    )
    return model.fit(X, y, groups=np.arange(120) % 3).result_


def split_columns(**how: Any) -> sv.Result:
    return trained(ADMMSharing(), COLUMNS, federation=columns(), **how)


# ------------------------------------------------------------------------------------------------------ writing over it


def read(path: Path) -> Any:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


def write(path: Path, value: Any) -> None:
    path.write_text(to_toml(value) if path.suffix == ".toml" else json.dumps(value, indent=2, ensure_ascii=False))


def edit(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change what a file says, in place or by the value that `change` returns."""
    value = read(folder / name)
    new = change(value)
    write(folder / name, value if new is None else new)


def link(previous: str, content: list[Any]) -> str:
    """As the module docstrings describe it, and not as the library does it."""
    return hashlib.sha256(json.dumps([previous, *content], separators=(",", ":")).encode()).hexdigest()


def rechain(folder: Path) -> None:
    """Every chain of charges with hashes that fit what stands there."""

    def change(said: Any) -> None:
        charges = said["charges"]
        for history in (*charges["histories"], *([charges["labels"]] if charges["labels"] else [])):
            before = ""
            for one in history.get("charges", []):
                one["hash"] = link(before, ["charge", one["count"], json.dumps(one["event"], sort_keys=True)])
                before = one["hash"]
            for place, row in enumerate(history.get("rows", [])):
                if place and row["details"] is not None:
                    names = ("sequence", "kind", "time", "run", "round", "question", "details")
                    row["hash"] = link(history["rows"][place - 1]["hash"], [row[name] for name in names])

    edit(folder, "charges.json", change)


def reseal(folder: Path) -> None:
    """A seal that fits."""
    files = {"config": "config.toml", "model": "model.npz", "evaluation": "evaluation.json"}
    there = {what: folder / name for what, name in files.items() if (folder / name).exists()}
    digests = {what: hashlib.sha256(file.read_bytes()).hexdigest() for what, file in there.items()}

    def change(said: Any) -> None:
        ends: list[Any] = []
        if said["charges"] is not None:
            charges = said["charges"]
            ends = [charges["run"], charges["rounds"]]
            for history in (*charges["histories"], *([charges["labels"]] if charges["labels"] else [])):
                chain = history.get("charges", history.get("rows", []))
                ends.append(chain[-1]["hash"] if chain else "")
        said["seal"] = digests | {"hash": link("", ["seal", *digests.values(), *ends])}

    edit(folder, "charges.json", change)


def remanifest(folder: Path) -> None:
    """A manifest that fits."""
    names = sorted(file.name for file in folder.iterdir() if file.name != "manifest.json")
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    edit(folder, "manifest.json", lambda said: {**said, "files": files})


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value that is no object and no list, and to every empty one."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def flip(value: Any, path: tuple[Any, ...]) -> None:
    """Another value of the same kind at `path`."""
    *outer, last = path
    for key in outer:
        value = value[key]
    old = value[last]
    if isinstance(old, bool):
        value[last] = not old
    elif isinstance(old, int):
        value[last] = old + 1
    elif isinstance(old, float):
        value[last] = old * 1.5 + 0.01
    elif isinstance(old, str):
        value[last] = ("0" if old[:1] != "0" else "1") + old[1:]
    else:
        value[last] = 1.0 if old is None else [1]


def cover_up(folder: Path) -> None:
    """Chains, seal and manifest as they would be if what stands there had been written by the library."""
    for step in (rechain, reseal, remanifest):
        with contextlib.suppress(AttributeError, TypeError, KeyError, FileNotFoundError, ValueError):
            step(folder)
