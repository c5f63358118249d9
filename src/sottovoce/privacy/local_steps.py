"""Several local steps of which only the last point leaves the client: how far can one record move that point?

Pure functions of public numbers; the doors call them. Two kinds of steps, with their proofs:

* `ProxSteps` (FedSPD-DP and FedEPM, noise on the end). All start at a public point, so u_0 = 0. A prox is 1-Lipschitz,
  so the distance u_j between the iterates of two neighbouring data sets obeys

      u_j <= (keep_j u_{j-1} + D_j) / total_j

  where D_j bounds the part of the difference of the two gradients that `keep_j` does not absorb. If every step uses one
  gradient at a public point, D_j is the sensitivity of a gradient. If each step asks for a new gradient at its own
  point, D_j is the same as long as every x -> keep_j x - ∇f(x) is keep_j-Lipschitz, that is, f is convex and smooth
  with constant <= 2 keep_j. Otherwise it is known from the second step on only that both gradients are bounded by the
  clip norm.

* `Descent` (Fed-PLT, noise in every step). Each step is c-Lipschitz with c < 1 and neighbours' steps differ by at
  most step·D. By shifted divergences (Feldman, Mironov, Talwar and Thakurta 2018), with the shift spent in the
  proportion c^(N-t), the end of N steps is as private as one Gaussian answer with `chain_gain` times less noise.
"""

from collections.abc import Callable

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Descent, ProxSteps

LEAST_TOTAL, LARGEST_WEIGHT = 1e-60, 1e120  # limits for weights of proximal steps, so that no product overflows


def take_prox_steps(
    gradient: Callable[[np.ndarray, int], np.ndarray], start: np.ndarray, spec: ProxSteps
) -> np.ndarray:
    """How far from the centre the last iterate (or their mean) is; `gradient(x, j)` answers for step j."""
    away, sum_away = start - spec.centre, np.zeros(())  # the distance of x from the centre
    fixed = None if spec.fresh else gradient(start if spec.at is None else spec.at, 0) - spec.push
    for j, (keep, total) in enumerate(zip(*spec.weights, strict=True)):
        g = gradient(spec.centre + away, j) - spec.push if fixed is None else fixed
        away = spec.h.step(away, keep, g, total)
        if spec.average:
            sum_away = sum_away + away
    return sum_away / len(spec.weights[0]) if spec.average else away


def prox_steps_sensitivity(spec: ProxSteps, first: np.ndarray, later: np.ndarray) -> np.ndarray:
    """How far apart two neighbours' ends can be; `first` is D_1, `later` are the other D_j, per client (n, 1)."""
    keeps, totals = spec.weights
    extremes = float(keeps.min()), float(totals.min()), float(max(keeps.max(), totals.max()))
    fits = extremes[0] >= 0 and extremes[1] >= LEAST_TOTAL and extremes[2] <= LARGEST_WEIGHT
    rule = f"needs 0 <= keep and {LEAST_TOTAL:g} <= total, both at most {LARGEST_WEIGHT:g}"
    check.require(fits, "ProxSteps", rule, extremes)
    # Else steps would stretch distances, and with them what was rounded before.
    check.require(bool(np.all(keeps <= totals)), "ProxSteps", "needs keep <= total in every step")
    u, sum_u = np.zeros_like(first), np.zeros_like(first)
    for j, (keep, total) in enumerate(zip(keeps, totals, strict=True)):
        u = (keep * u + (first if j == 0 else later)) / total
        sum_u = sum_u + u if spec.average else u
    return sum_u / len(keeps) if spec.average else u


def take_descent(gradient: Callable[[np.ndarray, int], np.ndarray], start: np.ndarray, spec: Descent) -> np.ndarray:
    """The end of the steps; `gradient(x, j)` answers for step j, with or without noise."""
    x = start
    for j in range(spec.count):
        x = x - spec.step * (gradient(x, j) + spec.ridge * x + spec.pull * (x - spec.centre))
    return x


def contraction(spec: Descent, smooth: np.ndarray) -> np.ndarray:
    """The Lipschitz constant c of one step for a convex f that is smooth with constant `smooth`."""
    flat, steep = spec.ridge + spec.pull, smooth + spec.ridge + spec.pull
    return np.maximum(np.abs(1 - spec.step * flat), np.abs(1 - spec.step * steep))


def chain_gain(c: np.ndarray, count: int) -> np.ndarray:
    """√((1+c)(1−c^N) / ((1−c)(1+c^N))): 1 for one step, bounded for many, at most √N."""
    return np.sqrt((1 + c) * (1 - c**count) / ((1 - c) * (1 + c**count)))
