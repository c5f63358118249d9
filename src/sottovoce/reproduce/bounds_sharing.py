"""ADMM sharing, Theorems 1 and 2: the Lyapunov value V on small problems where they apply, next to its bound."""

from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import ADMMSharing
from sottovoce.core.round import Checkpoint
from sottovoce.reproduce.bounds import SEEDED, columns, some_rounds
from sottovoce.reproduce.experiment import Columns
from sottovoce.reproduce.trials import watch

CASES = {  # number of parties, whether all have the same columns, weight of the proximal term, ρ
    "two parties, as printed": (2, False, 0.0, 2.0),
    "four parties with equal columns, as printed": (4, True, 0.0, 2.0),
    "four parties with equal columns, as printed, ρ = 5": (4, True, 0.0, 5.0),
    "four parties with equal columns, proximal term": (4, True, 3.0, 2.0),
}


def sharing(case: str, rounds: int) -> Columns:
    """The least V^t (13) so far against C (𝓛¹ − f̲)/T (48), with C = C_1/C_2 from (39) to (45); and V^t itself (`last`).

    Squared loss (L = 1), orthonormal columns (every eigenvalue of D'D is 1), ridge 0.1, ρ >= 2: Assumption 1 holds, as
    γ_m = ρ + 0.1 >= 2 and ργ >= ρ² > 2L². With a proximal term of weight τ (c = 1 + τ >= M) the constants are those of
    the repaired proof, see `ADMMSharing`.
    """
    parties, equal, proximal, rho = CASES[case]
    ridge, rng = 0.1, np.random.default_rng(0)
    parts = [np.linalg.qr(rng.normal(size=(40, 4)))[0] for _ in range(parties)]
    parts = np.stack([parts[0]] * parties if equal else parts)
    y = rng.normal(size=40)
    c_1 = max((2 + rho * (1 + proximal)) ** 2 + (parties + 1) * rho**2, (parties + 1) * (1 + rho) ** 2 + rho**-2)
    of_x = rho * (2 + 2 * proximal - parties) / 2 if proximal else parties * (rho + ridge) / 2
    constant = c_1 / min(of_x, rho / 2 - 1 / rho)
    recorded, least, first, values, bounds, last = some_rounds(rounds), np.inf, None, [], [], []

    def note(checkpoint: Checkpoint) -> None:
        nonlocal least, first
        r, z, dual = (part[0] for part in (checkpoint.server.r, checkpoint.server.z[0], checkpoint.server.y[0]))
        x, over = np.einsum("mnd,mn->md", parts, r), r.sum(axis=0) - z
        of_x = x - (x - np.einsum("mnd,n->md", parts, dual + rho * over)) / (1 + ridge)
        of_z = z - y - dual - rho * over
        now = float((of_x**2).sum() + of_z @ of_z + over @ over)  # (13)
        least = min(least, now)
        if first is None:
            first = ((z - y) @ (z - y) + ridge * (x**2).sum() + rho * over @ over) / 2 + dual @ over  # (5); f̲ = 0
        if checkpoint.k in recorded:
            values.append(least)
            bounds.append(constant * first / checkpoint.k)
            last.append(now)

    objective = sv.Objective(sv.Squared(), sv.L2(ridge), scale="sum")
    owned: Any = sv.VerticalFederation.from_arrays(list(parts), y)
    algorithm = ADMMSharing(rho=rho, proximal=proximal)
    watch(algorithm, owned, objective, sv.NoPrivacy(), note, rounds=rounds, runs=1, **SEEDED)
    return columns(recorded, values, bounds, last=last)
