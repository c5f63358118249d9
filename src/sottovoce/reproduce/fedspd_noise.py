"""FedSPD-DP (Li et al. 2022), Figures 2 to 5 without noise: what is due to the noise, and what to the short steps.

Where a curve of `fedspd_dp.py` is not the paper's, it may be by the noise (20), or by the steps 1/(ρ + γ) with γ by
(35), which are as short as that noise asks for. First only the noise is left out; then steps are longer as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedSPDDP
from sottovoce.core.contract import Array, Noise, Site
from sottovoce.core.participation import KOfN
from sottovoce.core.plain import Json
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce.experiment import Columns, Experiment, Panel, Setting, Sweep, Table, Value, every
from sottovoce.reproduce.fedspd_dp import (
    ACCURACY,
    BATCH,
    BOTH,
    BOUND,
    DELTA,
    FEWER,
    FITTED,
    GOAL,
    L1,
    QUICK,
    both,
    curves,
    data,
    trial,
)
from sottovoce.reproduce.groups import means
from sottovoce.reproduce.measures import over_rounds
from sottovoce.reproduce.trials import trained
from sottovoce.reproduce.verdicts import alike, declines, falls

FIGURES: Mapping[int, tuple[str, Sequence[Value], Json]] = {  # what is varied, and what is not
    2: ("total", (0.5,), {"K": 20, "Q": 5}),
    3: ("K", (10, 20, 50, 100), {"total": 1.0, "Q": 5}),
    4: ("Q", (2, 5, 10, 20), {"total": 3.0, "K": 10}),
}


class WithoutNoise(FedSPDDP):
    """Not the paper's: its steps, and no noise."""

    def noise(self, site: Site, gamma: Array | float) -> Noise | None:
        return Noise("gaussian", 0.0 * self.slope(site))


def silent(figure: int, reading: str, total: float, K: int, Q: int, rounds: int, trials: int) -> Columns:
    return trial(reading, rounds, trials, total, K, Q, WithoutNoise)


def _settings(figures: Sequence[int]) -> list[Setting]:
    return [
        {"figure": number, "reading": reading, **fixed, by: value}
        for number in figures
        for by, values, fixed in (FIGURES[number],)
        for reading in BOTH
        for value in values
    ]


def _shown(table: Table) -> str:
    """Accuracy and ALFV without noise, by what a figure varies."""
    rows = []
    for (number, reading), part in table.each("figure", "reading"):
        by = FIGURES[number][0]
        for name, y in (("accuracy", ACCURACY), ("ALFV", "alfv")):
            over, ends = means(part, y, by), means(part.at_end(), y, by)
            values = [f"{by} = {value:g}: {over[value].value:.4f}, {ends[value].value:.4f}" for value in ends]
            rows.append([str(number), reading, name, "; ".join(values)])
    headings = ["Figure", "reading", "of", "mean over the rounds, and end, without noise"]
    return f"{markdown_table(headings, rows)}\n"


WITHOUT_NOISE = Experiment(
    "fedspd-dp-noise",
    "Figures 2 to 4 without their noise: the same steps, to tell what is due to the noise",
    Sweep(silent, _settings((2, 3, 4)), _settings((2,)), FEWER, QUICK),
    [
        *both(
            "without noise ALFV decreases at a total of 0.5",
            "decreases", declines, "alfv", where={"figure": 2}, kind="ours",
        ),
        *both(
            "without noise the number of clients a round does not matter for the accuracy",
            "alike, by (35) and (36); to 0.002 in the mean over the rounds", alike, ACCURACY, "K", 0.002,
            of=over_rounds(ACCURACY, "figure", "reading", "K"), where={"figure": 3}, kind="ours",
        ),
        *both(
            "without noise more local steps, smaller ALFV",
            "falls with Q", falls, "alfv", "Q", where={"figure": 4}, kind="ours",
        ),
        *both(
            "without noise the number of local steps does not matter for the accuracy",
            "alike, as steps are short; to 0.002 at the end", alike, ACCURACY, "Q", 0.002, where={"figure": 4},
            kind="ours",
        ),
    ],
    curves("Q", ", no noise", figure=4),
    summary=_shown,
)  # fmt: skip

# ----------------------------------------------------------------------------------------------- Figure 5: longer steps

SHORT, DIRECTION, OPTIMUM = "FedSPD-DP, no noise", "direction of the first gradient", "optimum of (34)"
LARGER = "larger class"
LENGTHS = [(20.0, 1.0), (20.0, 1e-3), (5.0, 1e-3), (1.0, 1e-3)]  # ρ, and what (35) is multiplied by


@dataclass(frozen=True)
class LongerSteps(WithoutNoise):
    """Not the paper's: γ is this much of (35)."""

    times: float = 1.0

    def inverse_step(self, site: Site) -> Array | float:
        return self.times * super().inverse_step(site)


def longer(reading: str, rho: float, times: float, rounds: int, trials: int) -> Columns:
    """FedSPD-DP without noise at eps = 1 a round, K = 20, Q = 5."""
    method = LongerSteps(rho=rho, local_steps=5, batch=BATCH, client_rate=0.2, times=times)
    options: Json = {"participation": KOfN(20), "columns": (ACCURACY,), "data": data(reading), "at_once": 4}
    privacy = sv.Published(1.0, DELTA, assume=BOUND)
    return {"method": SHORT, **trained(method, GOAL, privacy, rounds, trials, **options)}


def reference(reading: str, method: str, rounds: int, trials: int) -> Columns:
    """The accuracy of minus the first gradient of (34), or of its minimiser: (w/2, −w/2) for the two classes. Or the
    share of the larger class."""
    from scipy.optimize import minimize

    owned, (X, y) = data(reading)
    A = np.where(owned.y > 0, 1.0, -1.0)[:, None] * owned.X
    w = A.mean(axis=0)

    def cost(parts: np.ndarray) -> tuple[float, np.ndarray]:
        """At w = p − q with p, q >= 0, where the l1 norm is their sum."""
        margin = A @ np.subtract(*np.split(parts, 2))
        slope = A.T @ (1 / (1 + np.exp(margin))) / len(A)
        return np.logaddexp(0, -margin).mean() + L1 * parts.sum(), L1 + np.concatenate([-slope, slope])

    if method == OPTIMUM:
        start, positive = np.zeros(2 * len(w)), [(0.0, None)] * (2 * len(w))
        w = np.subtract(*np.split(minimize(cost, start, jac=True, bounds=positive, method="L-BFGS-B").x, 2))
    right = np.mean((X @ w > 0) == (y > 0)) if method != LARGER else max(np.mean(y > 0), np.mean(y <= 0))
    return {"round": rounds, "run": 0, "rho": 0.0, "times": 0.0, ACCURACY: float(right)}


def _lengths(table: Table) -> str:
    rows = []
    for (method, rho, times), part in table.at_end().each("method", "rho", "times"):
        name = f"{method}, ρ = {rho:g}, γ = {times:g} times (35)" if method == SHORT else method
        rows.append([name, *(f"{one.value:.4f}" for one in means(part, ACCURACY, "reading").values())])
    return f"Test accuracy after {table['round'].max():g} rounds:\n\n{markdown_table(['', *BOTH], rows)}\n"


_LONGER = Sweep(
    longer,
    [{"reading": reading, "rho": rho, "times": times} for reading in BOTH for rho, times in LENGTHS],
    [{"reading": FITTED, "rho": 20.0, "times": 1.0}],
    FEWER,
    QUICK,
)
_REFERENCES = Sweep(
    reference,
    every(reading=BOTH, method=(DIRECTION, OPTIMUM, LARGER)),
    every(reading=(FITTED,), method=(DIRECTION,)),
    FEWER,
    QUICK,
)
LONGER = Experiment(
    "fedspd-dp-steps",
    "Figure 5: FedSPD-DP without noise and with longer steps 1/(ρ + γ)",
    lambda quick: [*_LONGER(quick), *_REFERENCES(quick)],
    both(
        "without noise, and with the steps (35), the model keeps the direction of the first gradient",
        "alike in accuracy; to 0.005, as we read it", alike, ACCURACY, "method", 0.005,
        where={"method": [SHORT, DIRECTION], "times": [1.0, 0.0]}, kind="ours", exact=True,
    ),
    [
        Panel(
            ACCURACY,
            lines=("rho", "times"),
            where={"method": SHORT, "reading": reading},
            title=reading,
            legend="ρ, γ as a share of (35)",
            references=lambda table, reading=reading: {
                name: one.value
                for name, one in means(table.where(reading=reading), ACCURACY, "method").items()
                if name != SHORT
            },
        )
        for reading in BOTH
    ],
    summary=_lengths,
)  # fmt: skip
EXPERIMENTS = (WITHOUT_NOISE, LONGER)
