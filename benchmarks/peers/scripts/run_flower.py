"""Flower's simulation: a NumPy client, its FedAvg strategy, Ray with two actors."""

import logging
import os

os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Message
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from problem import LAM, STEP, kept_data, main

logging.getLogger("flwr").setLevel(logging.ERROR)


# user: from here
def train(message, context):
    Xk, yk = (part[context.node_config["partition-id"]] for part in kept_data())
    v = message.content["arrays"].to_numpy_ndarrays()[0].copy()
    for _ in range(message.content["config"]["steps"]):
        slope = -yk / (1 + np.exp(yk * (Xk @ v)))
        v -= np.float32(STEP) * (slope @ Xk / np.float32(len(yk)) + np.float32(LAM) * v)
    content = RecordDict({"arrays": ArrayRecord([v]), "metrics": MetricRecord({"num-examples": len(yk)})})
    return Message(content=content, reply_to=message)


def run(X, y, steps, rounds):
    from flwr.app import ConfigRecord

    client, server, end = ClientApp(), ServerApp(), {}
    client.train()(train)

    @server.main()
    def serve(grid, context):
        # Without `min_train_nodes` the first round has only those clients that have registered by then.
        everyone = {"min_train_nodes": len(X), "min_available_nodes": len(X)}
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, **everyone)
        start = ArrayRecord([np.zeros(X.shape[2], np.float32)])
        result = strategy.start(grid, start, num_rounds=rounds, train_config=ConfigRecord({"steps": steps}))
        end["w"] = result.arrays.to_numpy_ndarrays()[0]

    run_simulation(server, client, len(X), backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    return end["w"]


# to here
if __name__ == "__main__":
    main(run)
