"""A round between machines: nodes of ours beside Flower's own FedAvg on SuperNodes, in turn, same rows, same machine.

Both have a SuperLink with TLS, keys and a database, and as many nodes, each with rows of its own. Flower's app takes
one gradient step a round, without privacy; ours is DP-ADMM with noise of the operating system, charged to ledgers.
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.deployments import LIMITS
from tests.machines import Machines, answers, free_ports, wait

from sottovoce.deploy.deployment import Deployment
from sottovoce.experiment.tables import to_toml

PROJECT = """[project]
name = "fedavg"
version = "1.0.0"
[tool.flwr.app]
publisher = "benchmark"
[tool.flwr.app.components]
serverapp = "fedavg.server_app:app"
clientapp = "fedavg.client_app:app"
[tool.flwr.app.config]
rounds = {rounds}
nodes = {nodes}
columns = {columns}
"""
CLIENT = """import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def train(message: Message, context: Context) -> Message:
    rows = np.load(context.node_config["rows"])
    X, y = rows["X"], rows["y"]
    w = message.content["arrays"].to_numpy_ndarrays()[0]
    w = w + (X * (y / (1 + np.exp(y * (X @ w))))[:, None]).mean(axis=0) - 0.05 * w
    content = RecordDict({"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": len(y)})})
    return Message(content=content, reply_to=message)
"""
SERVER = """import time
import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    told = context.run_config
    def seen(round_, arrays):
        print(f"at {round_} {time.monotonic()}", flush=True)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=told["nodes"],
                      min_train_nodes=told["nodes"])
    strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(told["columns"])]), num_rounds=told["rounds"],
                   evaluate_fn=seen)
"""


class SuperNodes(Machines):
    """The same machines with Flower's own SuperLink and SuperNodes."""

    def start_server(self) -> None:
        self._start(
            "server",
            *("flower-superlink", "--host", "127.0.0.1", "--port", str(self.control), "--enable-supernode-auth"),
            *("--database", str(self.folder / "state.db"), "--ssl-ca-certfile", self.keys("ca.crt")),
            *("--ssl-certfile", self.keys("server.pem"), "--ssl-keyfile", self.keys("server.key")),
        )
        wait(lambda: answers(self.control), "the SuperLink listens")

    def start_node(self, name: str, *words: str, **more: str) -> Any:
        rows = self.files[name].parent / "rows.npz"
        return self._start(
            name,
            *("flower-supernode", "--superlink", f"127.0.0.1:{self.control}", "--host", "127.0.0.1"),
            *("--port", str(free_ports(1)[0])),
            *("--root-certificates", self.keys("ca.crt"), "--auth-supernode-private-key", self.keys(f"{name}.key")),
            *("--node-config", f'rows="{rows}"'),
        )

    def _start(self, name: str, program: str, *words: str) -> Any:
        """Flower's own program, with the settings that `sottovoce flower` makes: SuperNodes look for work sooner."""
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        quiet |= {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
        path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        return self.start_program(name, [str(Path(sys.executable).with_name(program)), *words], **quiet, **path)


def write_nodes(folder: Path, nodes: int, rows: int, columns: int) -> dict[str, Path]:
    rng, files = np.random.default_rng(0), {}
    for number in range(nodes):
        home = folder / f"node{number}"
        home.mkdir(parents=True)
        X = rng.normal(size=(rows, columns))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        np.savez(home / "rows.npz", X=X, y=np.where(rng.random(rows) < 0.5, -1.0, 1.0))
        data = {"npz": "rows.npz", "labels": ["-1", "1"], "row_bound": 1.000001}
        limits = LIMITS | {"epsilon": 1e4}
        (home / "node.toml").write_text(to_toml({"node": {"name": home.name}, "data": data, "limits": limits}))
        files[home.name] = home / "node.toml"
    return files


def study(files: Mapping[str, Path], columns: int, rounds: int) -> Deployment:
    clients = {"names": list(files), "columns": columns, "row_bound": 1.000001, "least": len(files), "deadline": 300}
    tables: Any = {
        "objective": {"loss": "logistic", "penalty": "l2", "lam": 0.05},
        "algorithm": {"name": "dp-admm", "rho": 0.3},
        "privacy": {"mode": "proven", "epsilon": 20.0, "delta": 1e-3, "clip": 1.0},
        "run": {"rounds": rounds, "engine": "numpy"},
        "clients": clients | {"wait": 300},
    }
    return Deployment.build(tables, "run.toml")


def fedavg(folder: Path, nodes: int, columns: int, rounds: int) -> Path:
    (folder / "fedavg").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(rounds=rounds, nodes=nodes, columns=columns))
    for name, text in (("__init__", ""), ("client_app", CLIENT), ("server_app", SERVER)):
        (folder / "fedavg" / f"{name}.py").write_text(text)
    return folder


def start(machines: Machines) -> Machines:
    machines.start_server()
    for name in machines.files:
        machines.register(name)
    for name in machines.files:
        machines.start_node(name)
    return machines


def side_by_side(nodes: int, rows: int, columns: int, rounds: int, turns: int) -> dict[str, Any]:
    """Seconds a round of both, in turn, the first of each run left out; the ratio is the median over turns."""
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = write_nodes(folder / "nodes", nodes, rows, columns)
        mine, other = Machines(folder / "ours", files), SuperNodes(folder / "theirs", files)
        try:
            start(mine)
            start(other)
            for turn in range(turns):
                said = other.run(fedavg(folder / f"fedavg{turn}", nodes, columns, rounds), tries=1).end()
                times = [float(time) for _, time in re.findall(r"at (\d+) ([\d.]+)", said)]
                theirs.append(float(np.median(np.diff(times)[1:])))
                said = mine.run(mine.app(f"study{turn}", study(files, columns, rounds)), tries=1).end()
                assert f"round {rounds} of {rounds} done" in said, said
                ours.append(float(np.median(np.diff(mine.result(f"study{turn}").history["seconds"]))))
                print(f"{nodes} nodes x {columns}: ours {ours[-1]:.2f} s, Flower's {theirs[-1]:.2f} s", flush=True)
            held = [proportional(mine.running[name].pid) - rows * columns * 8 / 1e6 for name in files]
        finally:
            other.close()
            mine.close()
    ratio = float(np.median(np.array(ours) / np.array(theirs)))
    return {
        "nodes": nodes, "rows": rows, "columns": columns, "rounds": rounds, "turns": turns, "ours": ours,
        "theirs": theirs, "ratio": ratio, "megabytes beyond rows": max(held),
    }  # fmt: skip


def many(nodes: int, rounds: int) -> dict[str, Any]:
    """So many nodes of ours, so many rounds: do they come to the end?"""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = write_nodes(folder / "nodes", nodes, 100, 104)
        machines = Machines(folder / "ours", files)
        try:
            start(machines)
            said = machines.run(machines.app("study", study(files, 104, rounds)), tries=1).end(3600.0)
            assert f"round {rounds} of {rounds} done" in said, said
            result = machines.result("study")
            held = max(proportional(machines.running[name].pid) for name in files)
            charged = machines.receipts()
        finally:
            machines.close()
    seconds = float(np.median(np.diff(result.history["seconds"])))
    answered = int(min(result.history["answered"]))
    return {
        "nodes": nodes, "rounds": int(result.rounds), "least answers": answered, "charged": sorted(set(charged)),
        "seconds": seconds, "megabytes": held,
    }  # fmt: skip


def proportional(process: int) -> float:
    """Megabytes of memory, what is shared with others counted by its share."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def run(quick: bool = False) -> dict[str, Any]:
    turns, rounds = (1, 4) if quick else (3, 8)
    return {
        "small": side_by_side(5, 400, 104, rounds, turns),
        "large": side_by_side(3, 8, 10**5 if quick else 10**6, rounds, turns),
        "many": many(5 if quick else 20, 20),
    }
