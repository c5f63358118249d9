"""What a round between machines costs, beside Flower's own FedAvg on the same rows and the same processes.

    .venv/bin/python -m benchmarks.deployment

Starts a SuperLink and three SuperNodes on loopback with TLS and keys, runs DP-ADMM with secure noise and then FedAvg as
Flower ships it (one gradient step a round, no privacy), and prints seconds per round, the first left out.
"""

import re
import tempfile
from pathlib import Path

import numpy as np
from tests.machines import Machines
from tests.deployments import NAMES, SECURE, deployment

ROUNDS = 6
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
"""
CLIENT = """from pathlib import Path
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.train()
def train(message: Message, context: Context) -> Message:
    rows = np.load(Path(context.node_config["sottovoce"]).resolve().parent / "rows.npz")
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
    def seen(round_, arrays):
        print(f"at {round_} {time.monotonic()}", flush=True)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=3, min_train_nodes=3)
    strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(4)]), num_rounds=context.run_config["rounds"],
                   evaluate_fn=seen)
"""


def fedavg(folder: Path) -> Path:
    (folder / "fedavg").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(rounds=ROUNDS))
    for name, text in (("__init__", ""), ("client_app", CLIENT), ("server_app", SERVER)):
        (folder / "fedavg" / f"{name}.py").write_text(text)
    return folder


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        machines = Machines(Path(place))
        try:
            machines.start_server()
            for name in NAMES:
                machines.command("desk", "supernode", "register", machines.keys(f"{name}.pub"), "tls")
                machines.start_client(name)
            machines.run(machines.app("ours", deployment("dp-admm", SECURE, ROUNDS))).end()
            ours = np.diff(result(machines, "ours").history["seconds"])
            said = machines.run(fedavg(Path(place) / "theirs")).end()
            times = [float(time) for _, time in re.findall(r"at (\d+) ([\d.]+)", said)]
            theirs = np.diff(times)[1:]
        finally:
            machines.close()
    for name, seconds in (("sottovoce, DP-ADMM, secure noise", ours), ("Flower's FedAvg, no privacy", theirs)):
        print(f"{name:35s} {np.median(seconds):6.2f} s a round (from {seconds.min():.2f} to {seconds.max():.2f})")


if __name__ == "__main__":
    main()
