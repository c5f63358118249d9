"""How the proven comparison is run: what is tuned for each method, on synthetic rows; then Adult with the best."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import (
    ADMM,
    DPSGD,
    LED,
    TAMUNA,
    FedAvg,
    FedEPM,
    FedLin,
    FedPD,
    FedPLT,
    FedProx,
    FedSPDDP,
    FiveGCS,
    SFedAvg,
)
from sottovoce.core.check import InvalidInput
from sottovoce.problems import partition
from sottovoce.reproduce.adult import Method, federation
from sottovoce.reproduce.experiment import Columns

CLIENTS, DELTA, STEPS = 100, 1e-5, 5
GOAL = sv.Objective(sv.Logistic(), penalty=sv.L2(1e-6))
SPLITS: Mapping[str, dict[str, Any]] = {"iid": {}, "dirichlet": {"kind": "dirichlet", "alpha": 0.1, "at_least": 100}}
NOISY_GD = "noisy GD"
MAKE: Mapping[str, Callable[[float], Method]] = {
    NOISY_GD: lambda v: DPSGD(step=v),
    "ADMM": lambda v: ADMM(rho=1 / v),
    "DP-ADMM": lambda v: sv.DPADMM(rho=0.1, c_w=20 * v),
    "FedSPD-DP": lambda v: FedSPDDP(gamma=1 / v, rho=1 / (STEPS * v), local_steps=STEPS),
    "Fed-PLT": lambda v: FedPLT(rho=v, local_steps=STEPS),
    "FedEPM": lambda v: FedEPM(mu=12 / v),
    "FedAvg": lambda v: FedAvg(step=v, local_steps=STEPS),
    "FedProx": lambda v: FedProx(step=v, local_steps=STEPS),
    "SFedAvg": lambda v: SFedAvg(step=v, local_steps=STEPS, by_size=False),
    "Fed-PD": lambda v: FedPD(eta=v, local_steps=STEPS),
    "FedLin": lambda v: FedLin(step=v, local_steps=STEPS),
    "LED": lambda v: LED(step=v, local_steps=STEPS),
    "TAMUNA": lambda v: TAMUNA(step=v, local_steps=STEPS),
    "5GCS": lambda v: FiveGCS(tau=1 / v, local_steps=STEPS),
}


@lru_cache(maxsize=1)
def synthetic(seed: int = 0) -> tuple[sv.Federation, tuple[np.ndarray, np.ndarray]]:
    """Rows of the public shape of Adult: eight attributes with as many levels, six numbers, length 1; a random model
    makes the labels, a quarter of them positive."""
    rng, rows = np.random.default_rng(seed), 45222
    blocks = [rng.beta(1, 4, size=(rows, 6))]
    for levels in (7, 16, 7, 14, 6, 5, 2, 41):
        blocks.append(np.eye(levels)[rng.choice(levels, size=rows, p=rng.dirichlet(np.full(levels, 0.5)))])
    X = np.hstack(blocks)
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12)
    score = X @ rng.normal(scale=6, size=X.shape[1])
    chance = 1 / (1 + np.exp(np.quantile(score, 0.75) - score))
    y = np.where(rng.random(rows) < chance, 1.0, -1.0)
    owned = partition.iid(40000, CLIENTS, seed=seed)
    return sv.Federation.from_arrays(X[:40000], y[:40000], owned, row_bound=1.0), (X[40000:], y[40000:])


def _train(method: str, v: float, rounds: int, epsilon: float, runs: int, data: Any) -> Any:
    rows, test = data
    with warnings.catch_warnings():  # lengths that are too large diverge, and are not chosen
        warnings.simplefilter("ignore")
        return sv.train(
            MAKE[method](v),
            rows,
            GOAL,
            rounds=rounds,
            privacy=sv.Proven(epsilon, DELTA, clip=1.0),
            seed=0,
            runs=runs,
            test=test,
            record_every=rounds,
            measure_training=False,
        )


def chosen(method: str, epsilon: float, lengths: Sequence[float], rounds: Sequence[int]) -> tuple[float, int]:
    """The length and rounds with the least test loss on synthetic rows."""

    def loss(v: float, times: int) -> float:
        try:
            found = float(_train(method, v, times, epsilon, 1, synthetic()).history["test_loss"][-1])
        except InvalidInput:  # a length that the method refuses
            return np.inf
        return found if np.isfinite(found) else np.inf

    grid = [(v, times) for times in rounds for v in lengths]
    return min(grid, key=lambda setting: loss(*setting))


def compare(
    method: str, epsilon: float, runs: int, lengths: Sequence[float], rounds: Sequence[int], splits: Sequence[str]
) -> Columns:
    """Test accuracy and cost on Adult with what was chosen."""
    v, times = chosen(method, epsilon, lengths, rounds)
    found: dict[str, list[Any]] = {}
    for split in splits:
        result = _train(method, v, times, epsilon, runs, federation(CLIENTS, **SPLITS[split]))
        history = result.history
        spent = result.guarantee.epsilon
        assert spent is not None
        assert spent <= epsilon * (1 + 1e-9)
        for name, value in {
            "split": [split] * runs,
            "run": range(runs),
            "v": [v] * runs,
            "rounds": [result.rounds] * runs,
            "test_accuracy": history["test_accuracy"][-runs:],
            "test_loss": history["test_loss"][-runs:],
            "megabytes": (history["bytes_up"] + history["bytes_down"])[-runs:] / 1e6,
            "spent": [spent] * runs,
        }.items():
            found.setdefault(name, []).extend(value)
    return found


def optimal(splits: Sequence[str]) -> Columns:
    """The optimum without privacy, as one row per split."""
    from sottovoce.cli.demo_runs import optimum
    from sottovoce.experiment.source import Data

    found = [optimum(Data(*federation(CLIENTS, **SPLITS[split])), GOAL)[1] for split in splits]
    return {
        "split": list(splits),
        "run": 0,
        "test_accuracy": [one["test_accuracy"] for one in found],
        "test_loss": [one["test_loss"] for one in found],
    }
