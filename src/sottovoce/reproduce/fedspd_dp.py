"""FedSPD-DP (Li et al. 2022), section V: total privacy loss, K, Q, other methods, and what is claimed over rounds.

Adult with its official split, N = 100 clients, T = 100, rho = 20, l1 of weight 0.01, delta = 1e-4, G = 1 (by
clipping). The paper gives neither its encoding (162 parameters; here two-class softmax on 104 columns, 208), nor
the four values in each figure, nor how many trials: 10 here.
"""

from collections.abc import Sequence

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import DPSGD, DPFedAvg, FedSPDDP
from sottovoce.core.participation import KOfN
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.privacy import accounting, paper_noise
from sottovoce.privacy.events import Event
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Panel, Sweep, Value, every
from sottovoce.reproduce.trials import Watch, federation, trained
from sottovoce.reproduce.verdicts import declines, falls, highest, rises

CLIENTS, ROUNDS, DELTA, BATCH = 100, 100, 1e-4, 10
GOAL = sv.Objective(sv.Softmax(2), penalty=sv.L1(0.01 / CLIENTS))  # (34) has the sum over clients, here it is the mean
DATA: Json = {"clients": CLIENTS, "encoding": "classes", "official": True}
OFFICIAL_SIZE = 326  # the paper's 32 561 rows over 100 clients
FULL, QUICK = {"rounds": ROUNDS, "trials": 10}, {"rounds": 10, "trials": 2}


class Lagrangian(Watch):
    """The augmented Lagrangian value (5), with x_i the last inner iterate of a client."""

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        x, lam = checkpoint.clients["client.x"], checkpoint.clients["client.lam"]
        away = x - checkpoint.server.y.mean(axis=-2, keepdims=True)
        value = self.rows.value(x) + self.objective.penalty.value(x)
        alfv = value - (lam * away).sum(axis=-1) + 10 * np.square(away).sum(axis=-1)  # ρ/2 = 10
        return {"alfv": alfv.sum(axis=-1)}


def fedspd(K: int, Q: int) -> FedSPDDP:
    return FedSPDDP(rho=20.0, local_steps=Q, batch=BATCH, client_rate=K / CLIENTS)


# ---------------------------------------------------------------------------------- Figures 2 to 4: total loss, K and Q


def trial(rounds: int, trials: int, total: float = 1.0, K: int = 20, Q: int = 5) -> Columns:
    """Trials in the paper's setting, with `total` as the total privacy loss that it claims."""
    method, sizes = fedspd(K, Q), federation(**DATA)[0].sizes
    privacy = sv.Published(method.sampling.epsilon(total, ROUNDS, sizes), DELTA, clip=1.0)  # (36)
    options: Json = {"participation": KOfN(K), "watch": Lagrangian}
    return trained(method, GOAL, privacy, rounds, trials, data=DATA, at_once=1, **options)


def _figure(
    number: int,
    by: str,
    shows: str,
    values: Sequence[Value],
    few: Sequence[Value],
    stated: Sequence[Claim],
    **fixed: float,
) -> Experiment:
    return Experiment(
        f"fedspd-dp-figure-{number}",
        f"Figure {number}: accuracy and ALFV for four {shows}",
        Sweep(trial, every(**{by: values}), every(**{by: few}), FULL | fixed, QUICK | fixed),
        stated,
        [
            Panel("test_accuracy", lines=(by,)),
            Panel("alfv", lines=(by,), ylabel="ALFV", log="y"),
            Panel("objective", lines=(by,)),
        ],
    )


FIGURE_2 = _figure(
    2,
    "total",
    "total privacy losses",
    (0.5, 1.0, 3.0, 10.0),
    (0.5, 10.0),
    [
        Claim("a larger total privacy loss gives a better accuracy", "rises", rises("test_accuracy", "total")),
        Claim("and a smaller objective", "falls", falls("objective", "total"), robust=True),
        Claim("ALFV decreases over the rounds", "decreases", declines("alfv", each=("total",))),
    ],
)
FIGURE_3 = _figure(
    3,
    "K",
    "numbers of clients a round",
    (10, 20, 50, 100),
    (10, 50),
    [
        Claim("more clients a round, faster convergence (accuracy)", "rises with K", rises("test_accuracy", "K")),
        Claim("more clients a round, faster convergence (objective)", "falls with K", falls("objective", "K")),
        Claim("more clients a round, faster convergence (ALFV)", "falls with K", falls("alfv", "K")),
    ],
)
FIGURE_4 = _figure(
    4,
    "Q",
    "numbers of local steps",
    (2, 5, 10, 20),
    (2, 10),
    [
        Claim("more local steps, better accuracy", "rises with Q", rises("test_accuracy", "Q")),
        Claim("more local steps, smaller objective", "falls with Q", falls("objective", "Q")),
        Claim("more local steps, smaller ALFV", "falls with Q", falls("alfv", "Q")),
    ],
    total=3.0,
    K=10,
)

# ---------------------------------------------------------------------------------------------- Figure 5: other methods


def client_level(epsilon: float) -> sv.Proven:
    """The noise of the classical Gaussian mechanism for (epsilon, delta) a round, as a budget for the whole run."""
    multiplier = paper_noise.gaussian_factor(epsilon, DELTA)
    total = accounting.epsilon({Event("gaussian", multiplier, relation="replace-client"): ROUNDS}, DELTA)
    return sv.Proven(total * (1 + 1e-9), DELTA, clip=1.0, unit="client")


def against(method: str, epsilon: float, rounds: int, trials: int) -> Columns:
    """Trials of one of four methods at eps a round, with 20 of the clients a round, or the same 20 in every round."""
    published, some, same = sv.Published(epsilon, DELTA, clip=1.0), KOfN(20), sv.Everyone()
    algorithm, privacy, participation = {
        "FedSPD-DP": (fedspd(20, 5), published, some),
        "DP-SGD": (DPSGD(step=0.1), published, same),
        "DP-FedAvg": (DPFedAvg(step=0.1, local_steps=5, batch=BATCH), client_level(epsilon), some),
        "DP-ADMM": (sv.DPADMM(rho=20.0, c_w=1.0, theorem=3), published, same),
    }[method]
    data = DATA if participation is some else {**DATA, "first": 20}
    return trained(algorithm, GOAL, privacy, rounds, trials, data=data, at_once=1, participation=participation)


METHODS = ("FedSPD-DP", "DP-SGD", "DP-FedAvg", "DP-ADMM")
FIGURE_5 = Experiment(
    "fedspd-dp-figure-5",
    "Figure 5: against DP-SGD, DP-FedAvg and DP-ADMM at eps = 0.1 and 1 a round",
    Sweep(against, every(epsilon=(0.1, 1.0), method=METHODS), every(epsilon=(1.0,), method=METHODS), FULL, QUICK),
    [
        *(
            Claim(
                f"FedSPD-DP is the most accurate (eps = {epsilon:g} a round)",
                "FedSPD-DP highest",
                highest("test_accuracy", "method", "FedSPD-DP", where={"epsilon": epsilon}),
            )
            for epsilon in (0.1, 1.0)
        ),
        Claim(
            "DP-FedAvg is much worse when eps is small",
            "accuracy falls from eps = 1 to 0.1",
            rises("test_accuracy", "epsilon", where={"method": "DP-FedAvg"}),
        ),
    ],
    [
        Panel("test_accuracy", lines=("method",), where={"epsilon": 0.1}, title="eps = 0.1 a round"),
        Panel("test_accuracy", lines=("method",), where={"epsilon": 1.0}, title="eps = 1 a round"),
        Panel("objective", lines=("method",), where={"epsilon": 1.0}, title="eps = 1 a round", log="y"),
    ],
)

# -------------------------------------------------------------------------------------------- Figure 6: what is claimed


def claimed(method: str, clients: int, sampling: str) -> Columns:
    """The total that the papers claim after t rounds of (0.1, 1e-4) each; `sampling` with replacement (WR) or not."""
    rounds = np.arange(5, ROUNDS + 1, 5)
    if method == "DP-ADMM":
        return {"round": rounds, "total": [paper_noise.moments_total(int(t), 0.1, DELTA) for t in rounds]}
    q = paper_noise.fedspd_data_rate(5, BATCH, OFFICIAL_SIZE, sampling == "WR")
    return {"round": rounds, "total": [paper_noise.fedspd_total(0.1, int(t), q, clients / CLIENTS) for t in rounds]}


CLAIMED = [
    {"method": "DP-ADMM", "clients": 100, "sampling": "WOR"},
    *every(method=("FedSPD-DP",), clients=(100, 20), sampling=("WOR", "WR")),
]
FIGURE_6 = Experiment(
    "fedspd-dp-figure-6",
    "Figure 6: total privacy loss that is claimed, all or 20 of 100 clients a round",
    Sweep(claimed, CLAIMED, CLAIMED),
    [
        Claim(
            "claimed total of DP-ADMM above that of FedSPD-DP, all clients",
            "larger",
            highest("total", "method", "DP-ADMM", where={"clients": 100, "sampling": "WOR"}, exact=True),
            robust=True,
            kind="formula",
        ),
        Claim(
            "claimed total with all clients above that with 20",
            "larger",
            highest("total", "clients", 100, where={"method": "FedSPD-DP", "sampling": "WOR"}, exact=True),
            robust=True,
            kind="formula",
        ),
        Claim(
            "claimed total without replacement above that with",
            "slightly larger",
            highest("total", "sampling", "WOR", where={"clients": 20}, exact=True),
            robust=True,
            kind="formula",
        ),
    ],
    [Panel("total", lines=("method", "clients", "sampling"), ylabel="claimed total eps")],
)
EXPERIMENTS = (FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6)
