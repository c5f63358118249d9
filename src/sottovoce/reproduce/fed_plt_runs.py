"""How the trials of Fed-PLT's section VII are run: its data, as far as it is known, errors over rounds, and rates.

The paper gives neither its data nor what a rate is. Here: scikit-learn's `make_classification`, and the slope of
the logarithm of the error (`rate`). Its numbers fit the *sum* over an agent's 20 rows, not the printed mean, and
one step size for all agents.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import LED, TAMUNA, FedLin, FedPD, FedPLT, FiveGCS
from sottovoce.algorithms.fed_plt_rates import DoesNotContract
from sottovoce.core.contract import Algorithm
from sottovoce.core.participation import Everyone, KOfN, Participation
from sottovoce.core.round import Checkpoint
from sottovoce.reproduce.experiment import Columns
from sottovoce.solvers import Noisy

AGENTS = 10
EPSILON = 5.0  # the ridge of section VII: ε/2N |x|² for each agent
GOAL = sv.Objective(sv.Logistic(), penalty=sv.L2(EPSILON / AGENTS), scale="sum")
RHO, LOCAL_STEPS = 0.35, 10
ENOUGH = 1e-9  # of the error at the start


def data(seed: int) -> sv.Federation:
    """10 agents of 20 rows, 15 features behind an intercept, labels ±1."""
    from sklearn.datasets import make_classification

    X, y = make_classification(200, n_features=15, n_redundant=0, n_clusters_per_class=1, random_state=seed)
    X = np.hstack([np.ones((len(X), 1)), X])
    return sv.Federation.from_arrays(X, np.where(y == 1, 1.0, -1.0), np.repeat(np.arange(AGENTS), 20))


def optimum(federation: sv.Federation) -> np.ndarray:
    """argmin Σ f_i, by Newton's method."""
    X, y, w = federation.X, federation.y, np.zeros(federation.X.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(y * (X @ w)))
        hessian = X.T @ ((p * (1 - p))[:, None] * X) + EPSILON * np.eye(len(w))
        w = w - np.linalg.solve(hessian, EPSILON * w - X.T @ (y * p))
    return w


def moduli(federation: sv.Federation) -> tuple[float, float]:
    """λ̲ and λ̄ of all agents."""
    rows = np.split(federation.X, AGENTS)
    return EPSILON / AGENTS, float(max(np.linalg.norm(A, 2) ** 2 for A in rows)) / 4 + EPSILON / AGENTS


class _CloseEnough(Exception):
    pass


def errors(
    seed: int,
    algorithm: Algorithm[Any, Any, Any, Any],
    participation: Participation = Everyone(),  # noqa: B008 (frozen)
    until: float = ENOUGH,
    rounds: int = 3000,
    runs: int = 1,
) -> np.ndarray:
    """The error of every round k = 0, 1, .. and run, until it is `until` of the start, on data set `seed`: (k, runs).

    |x_k − 1 ⊗ x̄| for methods whose agents keep a model x, else that of the coordinator's. A round is a gradient step
    of everyone and may take two exchanges (FedLin).
    """
    federation = data(seed)
    best = optimum(federation)
    agents, exchanges = isinstance(algorithm, FedPLT), 2 if isinstance(algorithm, FedLin) else 1
    found = [np.full(runs, np.sqrt(AGENTS if agents else 1) * np.linalg.norm(best))]  # x_0 = 0

    def note(checkpoint: Checkpoint) -> None:
        if checkpoint.k % exchanges == 0:
            x = checkpoint.clients["client.x"] if agents else algorithm.model(checkpoint.server)
            found.append(np.linalg.norm(x - best, axis=(-2, -1)))
            if (found[-1] <= until * found[0]).all():
                raise _CloseEnough

    with suppress(_CloseEnough), warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotContract)
        sv.train(
            algorithm,
            federation,
            GOAL,
            rounds=rounds * exchanges,
            privacy=sv.NoPrivacy(),
            seed=seed,
            runs=runs,
            participation=participation,
            engine="kernel" if runs > 1 else "numpy",
            record_every=10**9,
            measure_training=False,
            after_round=note,
        )
    return np.array(found)


def rate(error: np.ndarray) -> float:
    """exp of the least-squares slope of ln(error) over rounds, from 1e-2 to 1e-9 of the start.

    Where the error does not get there: over the last half of the rounds.
    """
    share = error / error[0]
    first, last = int(np.argmax(share <= 1e-2)), int(np.argmax(share <= ENOUGH))
    if not 0 < first < last:
        first, last = len(share) // 2, len(share) - 1
    k = np.arange(first, last + 1)
    return float(np.exp(np.polyfit(k, np.log(np.maximum(share[k], 1e-300)), 1)[0]))


# Each method with its one tuned number; where it scales with the smoothness, as a multiple of 1/λ̄.
MAKE: Mapping[str, Callable[..., Algorithm[Any, Any, Any, Any]]] = {
    "Fed-PLT": lambda value, solver, strong, smooth, steps: FedPLT(
        rho=value, solver=solver, local_steps=steps, strong=strong, smooth=smooth
    ),
    "Fed-PD": lambda value, solver, strong, smooth, steps: FedPD(eta=value, solver=solver, local_steps=steps),
    "FedLin": lambda value, solver, strong, smooth, steps: FedLin(value / smooth, steps, solver=solver),
    "TAMUNA": lambda value, solver, strong, smooth, steps: TAMUNA(value / smooth, steps, solver=solver),
    "LED": lambda value, solver, strong, smooth, steps: LED(
        step=value / smooth, solver=solver, local_steps=steps, **({"beta": 0.13} if solver == "gradient" else {})
    ),
    "5GCS": lambda value, solver, strong, smooth, steps: FiveGCS(tau=value, solver=solver, local_steps=steps),
}
# The best of each row counts: the paper tunes every method.
VALUES: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("Fed-PLT", "gradient"): (0.3, 0.35, 0.4),
    ("Fed-PLT", "accelerated"): (0.3, 0.35, 0.4),
    ("Fed-PD", "gradient"): (0.25, 0.33, 0.45),
    ("Fed-PD", "accelerated"): (0.25, 0.33, 0.45),
    ("FedLin", "gradient"): (1.3, 1.5, 1.7),
    ("FedLin", "accelerated"): (0.3, 0.6, 0.9),
    ("TAMUNA", "gradient"): (0.6, 0.8, 1.1),
    ("TAMUNA", "accelerated"): (0.3, 0.6, 0.9),
    ("LED", "gradient"): (0.6, 0.8, 1.0),
    ("LED", "accelerated"): (0.3, 0.6, 0.9),
    ("5GCS", "gradient"): (2.0, 3.0, 4.5),
    ("5GCS", "accelerated"): (2.0, 3.0, 4.5),
}


def rates(
    method: str,
    value: float,
    datasets: int,
    runs: int,
    solver: str = "gradient",
    active: int = AGENTS,
    steps: int = LOCAL_STEPS,
    rounds: int = 1000,
) -> Columns:
    """The rate on each data set, in each run."""
    participation = Everyone() if active == AGENTS else KOfN(active)
    found = []
    for seed in range(datasets):
        algorithm = MAKE[method](value, solver, *moduli(data(seed)), steps)
        error = errors(
            seed, algorithm, participation, rounds=rounds, runs=runs if active < AGENTS or method == "TAMUNA" else 1
        )
        found += [(seed, run, rate(one)) for run, one in enumerate(error.T)]
    dataset, run, rate_ = np.array(found).T
    return {"dataset": dataset.astype(int), "run": run.astype(int), "rate": rate_}


def asymptotic(variance: float, datasets: int, runs: int, rounds: int = 200) -> Columns:
    """Error of one agent (root of the mean square), mean over the last half of the rounds, with noise of variance
    2γτ in every local step."""
    found = []
    for seed in range(datasets):
        strong, smooth = moduli(data(seed))
        gamma = 2 / (strong + smooth + 2 / RHO)
        solver = Noisy(LOCAL_STEPS, gamma, noise_std=float(np.sqrt(2 * gamma * variance)))
        error = errors(
            seed, FedPLT(rho=RHO, solver=solver, strong=strong, smooth=smooth), until=0.0, rounds=rounds, runs=runs
        )
        found += [(seed, run, one[rounds // 2 :].mean() / np.sqrt(AGENTS)) for run, one in enumerate(error.T)]
    dataset, run, error = np.array(found).T
    return {"dataset": dataset.astype(int), "run": run.astype(int), "error": error}
