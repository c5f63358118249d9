"""How ADMM sharing chooses its penalty parameter ρ and the weight τ of its proximal term, from public numbers alone.

Why these rules: see the departures in `admm_sharing.py`.
"""

from typing import Literal

import numpy as np

from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Array, LabelOracle

MOST_APART = 10  # residual balancing changes ρ when one residual is more than this many times the other
BALANCE_EVERY = 5  # rounds


def first_rho(rho: float | Literal["auto"], labels: LabelOracle) -> float:
    """`rho`, or for "auto" 2L (plus κ if l is not convex)."""
    chosen = 2.0 * labels.smoothness - min(labels.strong, 0.0) if rho == "auto" else rho
    if chosen + labels.strong <= 0:
        raise InvalidInput(
            f"ADMMSharing: (7) must be strongly convex: rho must exceed {-labels.strong:g} here, got {chosen:g}"
        )
    return chosen


def proximal_weight(proximal: float | Literal["auto"], rho: Array, parties: int, labels: LabelOracle) -> Array:
    """`proximal`, or for "auto" the least τ that makes parallel updates safe."""
    if proximal != "auto":
        return np.full_like(rho, proximal)
    return np.where(meets_assumption(rho, labels), max(0.0, parties / 2 - 1), parties - 1.0)


def meets_assumption(rho: Array, labels: LabelOracle) -> Array:
    """Assumption 1.2(c): ρ γ(ρ) > 2L² and ρ >= L, where γ(ρ) = ρ + the strong convexity of l."""
    return (rho * (rho + min(labels.strong, 0.0)) > 2 * labels.smoothness**2) & (rho >= labels.smoothness)


def balanced(rho: Array, primal: Array, dual: Array, labels: LabelOracle) -> Array:
    """Residual balancing (Boyd et al. 2011, 3.4.1); ρ never falls to where (7) stops being strongly convex."""
    lower = np.where(dual > MOST_APART * primal * rho, rho / 2, rho)
    new = np.where(primal * rho > MOST_APART * dual, 2 * rho, lower)
    return np.where(new + labels.strong > 0, new, rho)
