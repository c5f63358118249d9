"""How the trials of FedSPD-DP's section V are run: its setting on Adult, its (36), and what it claims over rounds."""

from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedSPDDP
from sottovoce.core.participation import KOfN
from sottovoce.privacy import accounting, paper_noise
from sottovoce.privacy.events import Event
from sottovoce.reproduce.adult import Method, Watch, federation, trained
from sottovoce.reproduce.experiment import Cell, Columns

CLIENTS, ROUNDS, DELTA, BATCH = 100, 100, 1e-4, 10
GOAL = sv.Objective(sv.Softmax(2), penalty=sv.L1(0.01 / CLIENTS))  # (34) has the sum over clients, here it is the mean
DATA: dict[str, Any] = {"clients": CLIENTS, "encoding": "classes", "official": True}
OFFICIAL_SIZE = 326  # the paper's 32 561 rows over 100 clients


def method(k: int, q: int) -> FedSPDDP:
    return FedSPDDP(rho=20.0, local_steps=q, batch=BATCH, client_rate=k / CLIENTS)


def _per_round(algorithm: FedSPDDP, total: float) -> float:
    """The paper's (36)."""
    return algorithm.sampling.epsilon(total, ROUNDS, federation(**DATA)[0].sizes)


def cell(labels: dict[str, Any], quick: bool, watch: type[Watch], total: float = 1.0, k: int = 20, q: int = 5) -> Cell:
    """Trials of FedSPD-DP in the paper's setting, with `total` as the total privacy loss that it claims."""
    algorithm = method(k, q)
    privacy = sv.Published(_per_round(algorithm, total), DELTA, clip=1.0)
    return trials(labels, quick, algorithm, privacy, KOfN(k), watch=watch)


def trials(
    labels: dict[str, Any], quick: bool, algorithm: Method, privacy: Any, participation: Any, **options: Any
) -> Cell:
    return Cell(
        labels,
        trained,
        {
            "algorithm": algorithm,
            "objective": GOAL,
            "privacy": privacy,
            "participation": participation,
            "rounds": 10 if quick else ROUNDS,
            "trials": 2 if quick else 10,
            "at_once": 1,
            "every": 5,
            "data": DATA,
            "columns": ("test_accuracy", "objective"),
            **options,
        },
    )


def client_level(epsilon: float) -> sv.Proven:
    """The noise of the classical Gaussian mechanism for (epsilon, delta) a round, as a budget for the whole run."""
    multiplier = paper_noise.gaussian_factor(epsilon, DELTA)
    total = accounting.epsilon({Event("gaussian", multiplier, relation="replace-client"): ROUNDS}, DELTA)
    return sv.Proven(total * (1 + 1e-9), DELTA, clip=1.0, unit="client")


def claimed(method: str, k: int, replacement: bool) -> Columns:
    """The total that the papers claim after t rounds of (0.1, 1e-4) each."""
    rounds = np.arange(5, ROUNDS + 1, 5)
    m = OFFICIAL_SIZE
    if method == "DP-ADMM":
        return {"round": rounds, "total": [paper_noise.moments_total(int(t), 0.1, DELTA) for t in rounds]}
    q = paper_noise.fedspd_data_rate(5, BATCH, m, replacement)
    return {"round": rounds, "total": [paper_noise.fedspd_total(0.1, int(t), q, k / CLIENTS) for t in rounds]}
