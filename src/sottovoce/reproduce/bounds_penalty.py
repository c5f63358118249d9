"""FedEPM's Theorem III.1, the exact penalty: measured on the small problem of `bounds.py`, and on that of section VII.

λ* of (11) is the largest entry of any client's gradient at the optimum w* of (6). By the theorem w*, shared by all, is
a stationary point of the penalised problem (7) for λ >= λ*.
"""

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedEPM
from sottovoce.core import check
from sottovoce.core.round import Checkpoint
from sottovoce.reproduce import fedepm_trials
from sottovoce.reproduce.bounds import ETA, K0, SEEDED, as_rows, federation, minimiser
from sottovoce.reproduce.experiment import Columns
from sottovoce.reproduce.trials import watch

SMOOTH = 0.25  # of f_i, and μ


def exact(times: float, alpha: float, rounds: int) -> Columns:
    """λ is so many `times` λ*. `miss`: by how much w*, shared by all, misses (10), as a share of λ*: for a stationary
    point of (7) gradients must add up to 0, and no entry of one may exceed λ. `distance`: how far FedEPM without noise,
    which begins at 0, ends from w*, as a share of |w*|.
    """
    owned, objective = federation(), sv.Objective(sv.Logistic(), sv.NoPenalty())
    rows = as_rows(owned, objective)
    best = minimiser(rows, objective, SMOOTH)
    slopes = rows.gradient(best[None])
    star = float(np.abs(slopes).max())  # (11)
    lam, ends = times * star, [0.0]
    miss = max(np.abs(slopes.sum(axis=0)).max(), np.maximum(np.abs(slopes) - lam, 0.0).max()) / star  # (10)

    def note(checkpoint: Checkpoint) -> None:
        ends[0] = float(np.linalg.norm(checkpoint.server.w - best) / np.linalg.norm(best))

    algorithm = sv.FedEPM(eta=ETA, lam=lam, mu=SMOOTH, c=1.0, alpha=alpha, k0=K0)
    watch(algorithm, owned, objective, sv.NoPrivacy(), note, rounds=rounds, runs=1, **SEEDED)
    return {"star": star, "lam": lam, "miss": float(miss), "distance": ends[0]}


def section_vii(m: int, share: float, partitions: int) -> Columns:
    """λ of section VII, and λ* of its problem on some partitions, at the optimum by Newton's method."""
    stars = []
    for seed in range(partitions):
        owned = fedepm_trials.cut_at_random(m, seed)
        objective = fedepm_trials.goal(owned)
        rows, ridge = as_rows(owned, objective), objective.penalty.curvature
        weight, w = np.repeat(1 / (m * owned.sizes), owned.sizes), np.zeros(owned.X.shape[1])
        slope = np.full_like(w, np.inf)
        for _ in range(12):
            chance = 1 / (1 + np.exp(owned.y * (owned.X @ w)))
            slope = ridge * w - (weight * owned.y * chance) @ owned.X
            curved = (owned.X.T * (weight * chance * (1 - chance))) @ owned.X + ridge * np.eye(len(w))
            w = w - np.linalg.solve(curved, slope)
        check.require(bool(np.abs(slope).max() < 1e-12), "bounds", "the optimum was not found", slope)
        stars.append(float(np.abs(rows.gradient(w[None]) + ridge * w).max()))  # (11)
    return {"partition": np.arange(partitions), "star": stars, "lam": FedEPM.as_in_paper(m, share).threshold}
