"""DP-ADMM (Huang et al. 2020), section VI: number of sources, convergence over eps and delta, accuracy, time.

Adult in 104 columns, 40 000 rows for training, t = 100, rho = 0.1, each client's share of the regulariser 1e-6. The
paper runs each simulation 10 times; it does not say which eps and delta stay fixed while the other changes, nor the
numbers of sources: here eps = 0.1, delta = 1e-3, and 1 to 400 sources.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import ADMM, DPSGD, DVP, PVP
from sottovoce.core.contract import Method
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.problems.rows import Rows
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Panel, Sweep, Value, every
from sottovoce.reproduce.trials import Watch, federation, trained
from sottovoce.reproduce.verdicts import above, falls, highest, lowest, rises

RHO, EPSILON, DELTA = 0.1, 0.1, 1e-3
GOALS = {norm: sv.Objective(sv.Logistic(), penalty) for norm, penalty in (("l1", sv.L1(1e-6)), ("l2", sv.L2(1e-6)))}
C_W = {"l1": 23.0, "l2": 89.0}  # |w*| as the paper gives it
FAMILY: Mapping[str, Method] = {"ADMM": ADMM(rho=RHO), "PVP": PVP(rho=RHO), "DVP": DVP(rho=RHO)}
RIVALS = {"l1": ("DPSGD",), "l2": ("DPSGD", "PVP", "DVP")}  # PVP and DVP are for l2 only
ACCURACY = "test_accuracy"
FIGURES = {"l1": ("1", "2", "3"), "l2": ("4", "5", "6")}


class Averages(Watch):
    """The augmented objective Σ f_i(w̄_i) + ρ|w̄_i − w̄| at averages over the rounds."""

    def __init__(self, rows: Rows, objective: sv.Objective, algorithm: Method) -> None:
        super().__init__(rows, objective, algorithm)
        self.total, self.total_i = np.zeros(()), np.zeros(())

    def note(self, checkpoint: Checkpoint) -> None:
        self.total = self.total + self.algorithm.model(checkpoint.server)
        self.total_i = self.total_i + checkpoint.clients["client.w"]

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        w, w_i = self.total / checkpoint.k, self.total_i / checkpoint.k
        f = self.rows.value(w_i) + self.objective.penalty.value(w_i)
        return {"augmented": (f + RHO * np.linalg.norm(w_i - w, axis=-1)).sum(axis=-1)}


class LocalLoss(Watch):
    """The paper's empirical loss: that of each client's own model."""

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        w = checkpoint.clients.get("client.w", self.algorithm.model(checkpoint.server))
        return {"empirical_loss": self.rows.value(w).mean(axis=-1)}


def trial(
    norm: str,
    rounds: int = 100,
    trials: int = 10,
    method: str = "DP-ADMM",
    epsilon: float = EPSILON,
    delta: float = DELTA,
    clients: int = 100,
    varied: str = "",  # a label only
    **options: Any,
) -> Columns:
    """Trials in the paper's setting; one, without privacy, of a method that has no published noise."""
    methods = {"DP-ADMM": sv.DPADMM(rho=RHO, c_w=C_W[norm]), "DPSGD": DPSGD(step=0.1), **FAMILY}
    private = "published" in methods[method].modes
    privacy, trials = (sv.Published(epsilon, delta), trials) if private else (sv.NoPrivacy(), 1)
    return trained(methods[method], GOALS[norm], privacy, rounds, trials, data={"clients": clients}, **options)


def _sizes(quick_rounds: int, **common: Any) -> tuple[Json, Json]:
    """What full and quick cells have in common."""
    return common, {**common, "rounds": quick_rounds, "every": quick_rounds, "trials": 4}


# --------------------------------------------------------------------------------------------- Figures 1 and 4: sources


def _sources(norm: str) -> Experiment:
    numbers, few = every(clients=(1, 10, 50, 100, 200, 400)), every(clients=(10, 400))
    return Experiment(
        f"dp-admm-figure-{FIGURES[norm][0]}",
        f"Figure {FIGURES[norm][0]}: accuracy and number of data sources ({norm})",
        Sweep(trial, numbers, few, *_sizes(20, norm=norm)),
        [
            Claim("with more sources the model is less accurate", "accuracy falls with n", falls(ACCURACY, "clients")),
            Claim(
                "with more sources the loss is larger", "loss rises with n", rises("objective", "clients"), robust=True
            ),
        ],
        [Panel(ACCURACY, lines=("clients",)), Panel("objective", lines=("clients",))],
    )


# ----------------------------------------------------------------------------------------- Figures 2 and 5: convergence


def _varied(values: Mapping[str, Sequence[float]]) -> list[dict[str, Value]]:
    base = {"epsilon": EPSILON, "delta": DELTA}
    return [{"varied": name, **base, name: value} for name, each in values.items() for value in each]


def _convergence(norm: str) -> Experiment:
    values = {"epsilon": (0.01, 0.05, 0.1, 0.2), "delta": (1e-6, 1e-5, 1e-4, 1e-3)}
    few = {name: each[::3] for name, each in values.items()}
    return Experiment(
        f"dp-admm-figure-{FIGURES[norm][1]}",
        f"Figure {FIGURES[norm][1]}: convergence over eps and delta ({norm})",
        Sweep(trial, _varied(values), _varied(few), *_sizes(20, norm=norm, watch=Averages, columns=("objective",))),
        [
            Claim(
                f"a larger {word} converges better",
                f"augmented objective falls with {word}",
                falls("augmented", name, where={"varied": name}),
                robust=name == "epsilon",
            )
            for word, name in (("eps", "epsilon"), ("delta", "delta"))
        ],
        [
            Panel("augmented", lines=(name,), where={"varied": name}, title=fixed, log="y")
            for name, fixed in (("epsilon", "delta = 1e-3"), ("delta", "eps = 0.1"))
        ],
    )


# --------------------------------------------------------------------------------------- Figures 3 and 6: other methods


def _accuracy(norm: str) -> Experiment:
    methods, others, exact = ("DP-ADMM", *RIVALS[norm]), ", ".join(RIVALS[norm]), [{"method": "ADMM", "epsilon": 0.0}]
    private, ours = {"method": methods, "epsilon": 0.1}, {"method": "DP-ADMM"}
    shown = {"where": {"epsilon": [0.0, 0.1]}, "title": "eps = 0.1"}
    return Experiment(
        f"dp-admm-figure-{FIGURES[norm][2]}",
        f"Figure {FIGURES[norm][2]}: loss and error against other methods ({norm})",
        Sweep(
            trial,
            exact + every(epsilon=(0.05, 0.1, 0.2), method=methods),
            exact + every(epsilon=(0.1,), method=methods),
            *_sizes(4, norm=norm, watch=LocalLoss, columns=(ACCURACY,)),
        ),
        [
            Claim(
                f"DP-ADMM has a smaller empirical loss than {others} (eps = 0.1)",
                "DP-ADMM lowest",
                lowest("empirical_loss", "method", "DP-ADMM", where=private),
                robust=norm == "l2",
            ),
            Claim(
                f"DP-ADMM is more accurate than {others} (eps = 0.1)",
                "DP-ADMM highest",
                highest(ACCURACY, "method", "DP-ADMM", where=private),
            ),
            Claim(
                "a larger eps gives DP-ADMM a smaller loss",
                "falls with eps",
                falls("empirical_loss", "epsilon", where=ours),
            ),
            Claim(
                "a larger eps gives DP-ADMM a better accuracy", "rises with eps", rises(ACCURACY, "epsilon", where=ours)
            ),
        ],
        [
            Panel("empirical_loss", lines=("method",), log="y", **shown),
            Panel(ACCURACY, lines=("method",), **shown),
            Panel(ACCURACY, lines=("epsilon",), where=ours, title="DP-ADMM, by eps"),
        ],
    )


# ------------------------------------------------------------------------------------------------------- Table II: time


def seconds(epsilon: float, rounds: int) -> Columns:
    """CPU time of the ADMM family, in turns, as multiples of DP-ADMM's."""
    rows, _ = federation(clients=100)
    taken: dict[str, float] = {}
    for name, method in {"DP-ADMM": sv.DPADMM(rho=RHO, c_w=C_W["l2"]), **FAMILY}.items():
        privacy = sv.NoPrivacy() if name == "ADMM" else sv.Published(epsilon, DELTA)
        for times in (1, rounds):  # the first compiles
            begun = time.process_time()
            sv.train(method, rows, GOALS["l2"], rounds=times, privacy=privacy, seed=0, record_every=times)
            taken[name] = time.process_time() - begun
    return {"method": list(taken), "times_dp_admm": [value / taken["DP-ADMM"] for value in taken.values()]}


TABLE_II = Experiment(
    "dp-admm-table-2",
    "Table II: time of ADMM, PVP and DVP as multiples of DP-ADMM's",
    Sweep(seconds, every(epsilon=(0.01, 0.05, 0.1)), every(epsilon=(0.1,)), {"rounds": 20}, {"rounds": 2}, alone=True),
    [
        Claim(
            "DP-ADMM takes much less time than ADMM, PVP and DVP (eps = 0.1)",
            "13, 15 and 13 times DP-ADMM's time",
            above("times_dp_admm", "method", 5, where={"epsilon": 0.1, "method": ["ADMM", "PVP", "DVP"]}),
        )
    ],
    [Panel("times_dp_admm", "epsilon", ("method",), log="xy", ylabel="time, DP-ADMM = 1")],
)
EXPERIMENTS = (*(make(norm) for norm in ("l1", "l2") for make in (_sources, _convergence, _accuracy)), TABLE_II)
