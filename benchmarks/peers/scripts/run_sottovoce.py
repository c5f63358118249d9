"""sottovoce: FedAvg with a ledger and proven noise (--exact: without), rows in float32 as the peers have them."""

import sys

import numpy as np
from problem import LAM, STEP, main

import sottovoce as sv
from sottovoce.algorithms import FedAvg


# user: from here
def run(X, y, steps, rounds):
    clients = list(zip(X, y, strict=True))
    federation = sv.Federation.from_clients(clients)
    if STORED == "float32":
        federation = federation.in_float32()
    privacy = sv.NoPrivacy() if EXACT else sv.Proven(epsilon=10.0, delta=1e-5, clip=1.0)
    result = sv.train(
        FedAvg(step=STEP, local_steps=steps),
        federation,
        sv.Objective(sv.Logistic(), sv.L2(LAM)),
        rounds=rounds,
        privacy=privacy,
        seed=0,
        measure_training=False,
    )
    return np.asarray(result.model)


# to here
if __name__ == "__main__":
    EXACT, STORED = "--exact" in sys.argv, "float64" if "--float64" in sys.argv else "float32"
    sys.argv = [argument for argument in sys.argv if argument not in ("--exact", "--float64")]
    main(run)
