"""The problem that every peer solves, and what each script prints. NumPy alone: it runs in every peer's environment.

    F(w) = (1/100) sum_k [ (1/400) sum_i log(1 + exp(-y_i <x_i, w>)) + (lam/2) |w|^2 ],   lam = 1e-3

100 clients x 400 rows x 104 features in float32; each has features shifted by 0.3 N(0, I) and a model of its own.
FedAvg from w = 0 with full participation, full-batch local gradient steps of 0.2 and a plain average; nothing is
evaluated on the way and nothing is private.
"""

import argparse
import functools
import json
import time

import numpy as np

CLIENTS, ROWS, FEATURES = 100, 400, 104
LAM, STEP = 1e-3, 0.2


def data(clients=CLIENTS, rows=ROWS, features=FEATURES):
    """X (clients, rows, features) in float32 and y (clients, rows) of -1 and 1 in float32."""
    rng = np.random.default_rng(20261115)
    common = rng.standard_normal(features)
    X = np.empty((clients, rows, features), np.float32)
    y = np.empty((clients, rows), np.float32)
    for k in range(clients):
        X[k] = rng.standard_normal((rows, features)) + 0.3 * rng.standard_normal(features)
        y[k] = np.where(X[k] @ (common + rng.standard_normal(features)) > 0, 1, -1)
    return X, y


def objective(X, y, w):
    w = np.asarray(w, np.float64).reshape(-1)
    margins = np.asarray(y, np.float64) * (X.astype(np.float64) @ w)
    return float(np.logaddexp(0.0, -margins).mean() + LAM / 2 * w @ w)


@functools.cache
def kept_data():
    """The data set, for peers whose worker processes each hold it."""
    return data()


def main(run):
    """`run(X, y, steps, rounds)` trains and returns w; it is called once for each of the numbers of rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, nargs="+", default=[100])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--features", type=int, default=FEATURES)
    options = parser.parse_args()
    X, y = data(options.clients, options.rows, options.features)
    for rounds in options.rounds:
        begun, cpu = time.perf_counter(), time.process_time()
        w = run(X, y, options.steps, rounds)
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        print("RESULT " + json.dumps({"objective": objective(X, y, w), "wall": wall, "cpu": cpu}), flush=True)
