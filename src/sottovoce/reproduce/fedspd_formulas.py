"""FedSPD-DP (Li et al. 2022): formulas that it draws or remarks on. Nothing is measured here.

Figure 6 is the total privacy loss (21) over the rounds. Remarks 4 and 5 are about (21) for one accuracy, or one total.
"""

from typing import Any

import numpy as np

from sottovoce.privacy import paper_noise
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Panel, Sweep, Table, Value, every
from sottovoce.reproduce.fedspd_dp import BATCH, BOUND, CLIENTS, DELTA, ROUNDS, SIZE
from sottovoce.reproduce.measures import Measure
from sottovoce.reproduce.verdicts import falls, highest, lowest, rises

# ------------------------------------------------------------------------------------------------------------- Figure 6


def claimed(method: str, clients: int, sampling: str) -> Columns:
    """The total that the papers claim after t rounds of (0.1, 1e-4) each; `sampling` with replacement (WR) or not; and
    the deviation of the noise, where both methods move by 1/(rho + gamma) of a gradient, in units of that."""
    rounds, per_slope = np.arange(5, ROUNDS + 1, 5), paper_noise.gaussian_factor(0.1, DELTA)
    if method == "DP-ADMM":
        totals = [paper_noise.moments_total(int(t), 0.1, DELTA) for t in rounds]
        return {"round": rounds, "total": totals, "noise": 2 * BOUND * per_slope / SIZE}  # its (14)
    q = paper_noise.fedspd_data_rate(5, BATCH, SIZE, sampling == "WR")
    totals = [paper_noise.fedspd_total(0.1, int(t), q, clients / CLIENTS) for t in rounds]
    return {"round": rounds, "total": totals, "noise": 4 * BOUND * per_slope * 5 / 4}  # (20)


CLAIMED = [
    {"method": "DP-ADMM", "clients": 100, "sampling": "WOR"},
    *every(method=("FedSPD-DP",), clients=(100, 20), sampling=("WOR", "WR")),
]


def _formula(
    says: str, paper: str, y: str, by: str, winner: Value, of: Measure = lambda table: table, **where: Any
) -> Claim:
    rule = lowest if y == "noise" else highest
    return Claim(says, paper, rule(y, by, winner, of=of, where=where, exact=True), robust=y == "total", kind="formula")


def _dp_admm_and_20(table: Table) -> Table:
    """DP-ADMM's one line, and FedSPD-DP's with 20 clients without replacement."""
    keep = (table["method"] == "DP-ADMM") | ((table["clients"] == 20) & (table["sampling"] == "WOR"))
    return table.rows(keep)


FIGURE_6 = Experiment(
    "fedspd-dp-figure-6",
    "Figure 6: total privacy loss that is claimed, all or 20 of 100 clients a round",
    Sweep(claimed, CLAIMED),
    [
        _formula(
            "claimed total of DP-ADMM above that of FedSPD-DP, all clients",
            "larger", "total", "method", "DP-ADMM", clients=100, sampling="WOR",
        ),
        _formula(
            "claimed total of DP-ADMM above that of FedSPD-DP, 20 clients",
            "larger", "total", "method", "DP-ADMM", of=_dp_admm_and_20,
        ),
        _formula(
            "claimed total with all clients above that with 20",
            "larger", "total", "clients", 100, method="FedSPD-DP", sampling="WOR",
        ),
        *(
            _formula(
                f"claimed total without replacement above that with ({clients} clients)",
                "slightly larger", "total", "sampling", "WOR", clients=clients, method="FedSPD-DP",
            )
            for clients in (20, 100)
        ),
        _formula(
            "FedSPD-DP needs much less noise than DP-ADMM for the same eps a round",
            "considerably smaller", "noise", "method", "FedSPD-DP", clients=100, sampling="WOR",
        ),
    ],
    [Panel("total", lines=("method", "clients", "sampling"), ylabel="total ε that is claimed")],
)  # fmt: skip

# --------------------------------------------------------------------------------------------------- Remarks 4 and 5


TOGETHER = "(21) with (22) and (32)"


def remark(number: int, value: int) -> Columns:
    """4: the total (21) after the rounds that (32) needs for one accuracy with Q = `value`, in units of that for Q = 1,
    and the same by (33). 5: after how many rounds of (0.1, 1e-4) the total (21) is 1, with K = `value`."""
    epsilon, many = 0.1, 8_000_000  # rounds for Q = 1: enough that those for all Q are whole

    def total(rounds: int, steps: int, clients: int) -> float:
        q = paper_noise.fedspd_data_rate(steps, BATCH, SIZE)
        return paper_noise.fedspd_total(epsilon, rounds, q, clients / CLIENTS)

    if number == 4:
        printed = value**1.5 * np.sqrt((1 - BATCH / SIZE) / (1 - value * BATCH / SIZE))
        together = total(many // value**3, value, CLIENTS) / total(many, 1, CLIENTS)
        return {"formula": [TOGETHER, "(33) as printed"], "level": [together, printed]}
    return {"formula": "(21)", "level": (1 / total(1, 5, value)) ** 2}


_VALUES = [*every(number=(4,), value=(1, 2, 5, 10, 20)), *every(number=(5,), value=(10, 20, 50, 100))]
REMARKS = Experiment(
    "fedspd-dp-remarks",
    "Remarks 4 and 5: the total for one accuracy over Q, and the rounds for one total over K",
    Sweep(remark, _VALUES),
    [
        Claim(
            "Remark 4: (33) follows from (21), (22) and (32): more local steps cost a larger total for one accuracy",
            "rises, as Q^1.5/√(1 − Qb/m), (33)",
            rises("level", "value", where={"number": 4, "formula": TOGETHER}, exact=True),
            kind="formula",
        ),
        Claim(
            "Remark 5: for one total, fewer clients a round can go on for longer",
            "more rounds with a smaller K",
            falls("level", "value", where={"number": 5}, exact=True),
            robust=True,
            kind="formula",
        ),
    ],
    [
        Panel("level", "value", ("formula",), {"number": number}, f"Remark {number}", xlabel=x, ylabel=y, log="y")
        for number, x, y in (
            (4, "local steps Q", "total for one accuracy, Q = 1 is 1"),
            (5, "clients a round K", "rounds until the total is 1"),
        )
    ],
)
EXPERIMENTS = (FIGURE_6, REMARKS)
