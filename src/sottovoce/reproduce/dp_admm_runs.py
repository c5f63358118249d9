"""How the trials of DP-ADMM's section VI are run: its setting on Adult, and time."""

import time
from typing import Any

import sottovoce as sv
from sottovoce.algorithms import ADMM, DVP, PVP
from sottovoce.reproduce.adult import Method, federation, trained
from sottovoce.reproduce.experiment import Cell, Columns

RHO, EPSILON, DELTA = 0.1, 0.1, 1e-3
PENALTIES = {"l1": sv.L1(1e-6), "l2": sv.L2(1e-6)}
C_W = {"l1": 23.0, "l2": 89.0}  # |w*| as the paper gives it


def _goal(norm: str) -> sv.Objective:
    return sv.Objective(sv.Logistic(), penalty=PENALTIES[norm])


def cell(
    norm: str,
    labels: dict[str, Any],
    quick: bool,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    clients: int = 100,
    method: Method | None = None,
    quick_rounds: int = 20,
    **options: Any,
) -> Cell:
    """Trials of DP-ADMM, or of another method, in the paper's setting."""
    private = method is None or "published" in method.modes
    return Cell(
        labels,
        trained,
        {
            "algorithm": sv.DPADMM(rho=RHO, c_w=C_W[norm]) if method is None else method,
            "objective": _goal(norm),
            "privacy": sv.Published(epsilon, delta) if private else sv.NoPrivacy(),
            "rounds": quick_rounds if quick else 100,
            "trials": (4 if quick else 10) if private else 1,
            "data": {"clients": clients},
            "every": quick_rounds if quick else 5,
            **options,
        },
    )


def seconds(epsilon: float, rounds: int) -> Columns:
    """CPU time of the ADMM family, in turns, as multiples of DP-ADMM's."""
    rows, _ = federation(clients=100)
    published = sv.Published(epsilon, DELTA)
    methods: dict[str, tuple[Method, Any]] = {
        "DP-ADMM": (sv.DPADMM(rho=RHO, c_w=C_W["l2"]), published),
        "ADMM": (ADMM(rho=RHO), sv.NoPrivacy()),
        "PVP": (PVP(rho=RHO), published),
        "DVP": (DVP(rho=RHO), published),
    }
    taken: dict[str, float] = {}
    for name, (method, privacy) in methods.items():
        for times in (1, rounds):  # the first compiles
            begun = time.process_time()
            sv.train(method, rows, _goal("l2"), rounds=times, privacy=privacy, seed=0, record_every=times)
            taken[name] = time.process_time() - begun
    return {"method": list(taken), "times_dp_admm": [value / taken["DP-ADMM"] for value in taken.values()]}
