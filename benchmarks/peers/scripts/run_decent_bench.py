"""decent-bench: FedAvg, or Fed-LT (the method of Fed-PLT's authors) with --method fed-lt."""

import sys

import numpy as np
from decent_array import interoperability as iop
from decent_bench.agents import Agent
from decent_bench.algorithms.federated import FedAvg, FedLT
from decent_bench.costs import L2RegularizerCost, LogisticRegressionCost
from decent_bench.networks import FedNetwork
from problem import LAM, STEP, main


# user: from here
def run(X, y, steps, rounds):
    iop.set_backend("numpy")
    agents = []
    for Xk, yk in zip(X, y, strict=True):
        labels = (yk > 0).astype(np.float32)[:, None]
        rows = [(iop.asarray(x), iop.asarray(label)) for x, label in zip(Xk, labels, strict=True)]
        loss = LogisticRegressionCost(rows)
        agents.append(Agent(loss + LAM * L2RegularizerCost(loss.shape), state_snapshot_period=rounds))
    network = FedNetwork(agents)
    if METHOD == "fedavg":
        algorithm = FedAvg(step_size=STEP, num_local_steps=steps)
    else:
        algorithm = FedLT(step_size=STEP, num_local_steps=steps, penalty=5.0)
    algorithm.run(network, rounds)
    return np.asarray(iop.to_numpy(network.server().x))


# to here
if __name__ == "__main__":
    METHOD = "fed-lt" if "--fed-lt" in sys.argv else "fedavg"
    sys.argv = [argument for argument in sys.argv if argument != "--fed-lt"]
    main(run)
