"""Fed-PLT and its rivals on the problem of its section VII: errors over the rounds, and what is called a rate.

The paper gives neither its data nor what a rate is. Here: scikit-learn's `make_classification`, and the slope of the
logarithm of the error (`rate`). Its numbers fit the *sum* over an agent's 20 rows, not the printed mean (`scale`), and
one step size for all agents.
"""

import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import LED, TAMUNA, FedLin, FedPD, FedPLT, FiveGCS
from sottovoce.algorithms.fed_plt_rates import DoesNotContract
from sottovoce.core.contract import Method
from sottovoce.core.participation import Everyone, KOfN, Participation
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.reproduce.experiment import Columns
from sottovoce.reproduce.trials import Enough, watch

AGENTS = 10
EPSILON = 5.0  # the ridge of section VII: ε/2N |x|² for each agent
Scale = Literal["sum", "mean"]
ROWS: dict[Scale, int] = {"sum": 1, "mean": 20}  # what an agent's cost is divided by
RHO, LOCAL_STEPS = 0.35, 10
ENOUGH = 1e-9  # of the error at the start


def data(seed: int) -> sv.Federation:
    """10 agents of 20 rows, 15 features behind an intercept, labels ±1."""
    from sklearn.datasets import make_classification

    X, y = make_classification(200, n_features=15, n_redundant=0, n_clusters_per_class=1, random_state=seed)
    X = np.hstack([np.ones((len(X), 1)), X])
    return sv.Federation.from_arrays(X, np.where(y == 1, 1.0, -1.0), np.repeat(np.arange(AGENTS), 20))


def goal(scale: Scale = "sum") -> sv.Objective:
    return sv.Objective(sv.Logistic(), penalty=sv.L2(EPSILON / AGENTS), scale=scale)


def optimum(federation: sv.Federation, scale: Scale = "sum") -> np.ndarray:
    """argmin Σ f_i, by Newton's method."""
    X, y, w, m = federation.X, federation.y, np.zeros(federation.X.shape[1]), ROWS[scale]
    for _ in range(30):
        p = 1 / (1 + np.exp(y * (X @ w)))
        hessian = X.T @ ((p * (1 - p))[:, None] * X) / m + EPSILON * np.eye(len(w))
        w = w - np.linalg.solve(hessian, EPSILON * w - X.T @ (y * p) / m)
    return w


def moduli(federation: sv.Federation, scale: Scale = "sum") -> tuple[float, float]:
    """λ̲ and λ̄ of all agents."""
    largest = float(max(np.linalg.norm(A, 2) ** 2 for A in np.split(federation.X, AGENTS)))
    return EPSILON / AGENTS, largest / (4 * ROWS[scale]) + EPSILON / AGENTS


def errors(
    seed: int,
    algorithm: Method,
    participation: Participation = Everyone(),  # noqa: B008 (frozen)
    until: float = ENOUGH,
    rounds: int = 3000,
    runs: int = 1,
    scale: Scale = "sum",
) -> np.ndarray:
    """The error of every round k = 0, 1, .. and run, until it is `until` of the start, on data set `seed`: (k, runs).

    |x_k − 1 ⊗ x̄| for methods whose agents keep a model x, else that of the coordinator's. A round is a gradient step
    of everyone and may take two exchanges (FedLin).
    """
    federation = data(seed)
    best = optimum(federation, scale)
    agents, exchanges = isinstance(algorithm, FedPLT), 2 if isinstance(algorithm, FedLin) else 1
    distances = [np.full(runs, np.sqrt(AGENTS if agents else 1) * np.linalg.norm(best))]  # x_0 = 0

    def note(checkpoint: Checkpoint) -> None:
        if checkpoint.k % exchanges == 0:
            x = checkpoint.clients["client.x"] if agents else algorithm.model(checkpoint.server)
            distances.append(np.linalg.norm(x - best, axis=(-2, -1)))
            if (distances[-1] <= until * distances[0]).all():
                raise Enough

    options: Json = {"participation": participation, "engine": "kernel" if runs > 1 else "numpy", "seed": seed}
    options |= {"rounds": rounds * exchanges, "runs": runs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotContract)
        watch(algorithm, federation, goal(scale), sv.NoPrivacy(), note, **options)
    return np.array(distances)


def each_run(
    datasets: int, column: str, error_of: Callable[[int], np.ndarray], value: Callable[[np.ndarray], float]
) -> Columns:
    """A value of the errors of each run on each data set."""
    rows = [(seed, run, value(error)) for seed in range(datasets) for run, error in enumerate(error_of(seed).T)]
    dataset, run, values = np.array(rows).T
    return {"dataset": dataset.astype(int), "run": run.astype(int), column: values}


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


def _method(name: str, value: float, solver: str, strong: float, smooth: float, steps: int) -> Method:
    """`value` is the tuned number; where it scales with the smoothness, as a multiple of 1/λ̄."""
    options: Json = {"solver": solver, "local_steps": steps}
    step, beta = value / smooth, 0.13 if solver == "gradient" else None
    methods: dict[str, Callable[[], Method]] = {
        "Fed-PLT": lambda: FedPLT(rho=value, strong=strong, smooth=smooth, **options),
        "Fed-PD": lambda: FedPD(eta=value, **options),
        "FedLin": lambda: FedLin(step, **options),
        "TAMUNA": lambda: TAMUNA(step, **options),
        "LED": lambda: LED(step=step, beta=beta, **options),
        "5GCS": lambda: FiveGCS(tau=value, **options),
    }
    return methods[name]()


def rates(
    datasets: int,
    runs: int,
    method: str = "Fed-PLT",
    value: float = RHO,
    solver: str = "gradient",
    active: int = AGENTS,
    steps: int = LOCAL_STEPS,
    rounds: int = 1000,
    scale: Scale = "sum",
) -> Columns:
    """The rate on each data set, in each run."""
    participation = Everyone() if active == AGENTS else KOfN(active)
    chance = active < AGENTS or method == "TAMUNA"

    def error(seed: int) -> np.ndarray:
        algorithm = _method(method, value, solver, *moduli(data(seed), scale), steps)
        return errors(seed, algorithm, participation, rounds=rounds, runs=runs if chance else 1, scale=scale)

    return each_run(datasets, "rate", error, rate)
