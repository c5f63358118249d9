"""How fast Fed-PLT contracts, and good values for its parameters.

There are two bounds, both from the moduli λ̲, λ̄ of the f_i alone.

`contraction` is the paper's: Propositions 1-3, corrected. The minimiser of d moves by at most 1/(1+ρλ̲) =
(1/ρ)/(λ̲+1/ρ) times what its centre moves, so S contains that number. And S ≥ 0 need not have norm < 1: a spectral
radius < 1 is enough, because with Perron vectors u, v of S and the weights D² = diag(u/v) the norm |D S D⁻¹| *is* the
spectral radius. Proposition 2 then holds with it, in the norm that weighs x and z by D.

`rates` is sharper. It holds for quadratic f_i, where it is nearly reached, and for others near the optimum. Where f_i
has curvature λ, local training leaves a(λ) of the distance to the minimiser of d, v = refl(z) is no farther from its
fixed point than z, and

    (x, z)⁺ = [[a, b], [2a, 2b−1]] (x, v),      b = (1−a)/(1+ρλ).

So a round contracts by the largest norm of this matrix over λ̲ ≤ λ ≤ λ̄. That holds for every weight ω on x, so the
least over ω is taken. If agents are active with probability p, the contraction in mean is √(1−p+pr²).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from sottovoce import solvers
from sottovoce.core import check
from sottovoce.core.contract import Array
from sottovoce.solvers import Accelerated, Solver

Number = Array | float  # one for all rows, or (n, 1)


class DoesNotContract(UserWarning):
    """Fed-PLT was started with parameters that are not known to contract."""


@dataclass(frozen=True)
class Contraction:
    """Propositions 1-3, corrected, for agents with moduli λ̲, λ̄."""

    chi: float  # what local training leaves of the distance to the minimiser of d: χ^{N_e}, or χ(N_e)
    zeta: float  # contraction of exact Peaceman-Rachford splitting (Lemma 3)
    matrix: Array  # S, acting on (|x − x̄|, |z − z̄|)

    @property
    def factor(self) -> float:
        """Spectral radius of S. If it is below one, Fed-PLT contracts by it, for any f_i with these moduli."""
        return float(np.abs(np.linalg.eigvals(self.matrix)).max())

    @property
    def norm(self) -> float:
        """|S|. If it is below one, Fed-PLT contracts by it in the plain norm of (x, z), as in Proposition 1."""
        return float(np.linalg.norm(self.matrix, 2))

    def sigma(self, p: float = 1.0) -> float:
        """Contraction in mean when each agent is active with probability `p` (Proposition 2)."""
        return in_mean(self.factor, p)


def contraction(solver: Solver, rho: float, strong: float, smooth: float) -> Contraction:
    """χ, ζ and S of Fed-PLT with this local solver."""
    _check(rho, strong, smooth)
    m, L = strong + 1 / rho, smooth + 1 / rho
    if isinstance(solver, Accelerated):
        chi = float(np.sqrt(1 + L / m) * (1 - np.sqrt(m / L)) ** (solver.answers / 2))  # Lemma 7
    else:
        chi = float(np.abs(_left_over(solver, np.linspace(m, L, 257)[None], m, L)).max())
    zeta = max(abs(1 - rho * smooth) / (1 + rho * smooth), abs(1 - rho * strong) / (1 + rho * strong))
    moves = 1 / (1 + rho * strong)  # (14)
    matrix = np.array([[chi, (1 + chi) * moves], [2 * chi, zeta + 2 * chi * moves]])
    return Contraction(chi, zeta, matrix)


def in_mean(factor: float, p: float) -> float:
    """√(1 − p + p factor²): contraction in mean if each agent takes part with probability `p` (Lemma 4)."""
    check.require(0 < p <= 1, "in_mean", "p must lie in (0, 1]", p)
    return float(np.sqrt(1 - p + p * factor**2))


def rates(
    solver: Solver, rho: Number, strong: Number, smooth: Number, who: Array | None = None, points: int = 257
) -> Array:
    """The factor of a round for each row of (rho, strong, smooth), which are numbers or (n, 1).

    The factor of Fed-PLT is the largest. `who` are the client numbers of the rows, for solvers that differ between
    clients. The curvature is tried at so many `points`.
    """
    rho, low, high = np.broadcast_arrays(*(np.atleast_2d(np.asarray(x, dtype=float)) for x in (rho, strong, smooth)))
    lam = low + (high - low) * np.linspace(0, 1, points)
    with np.errstate(over="ignore", invalid="ignore"):
        a = _left_over(solver, lam + 1 / rho, low + 1 / rho, high + 1 / rho, who)
        b = (1 - a) / (1 + rho * lam)

        def norm(log_weight: Array) -> Array:
            weight = np.exp(2 * log_weight)
            squares = a**2 + weight * b**2 + 4 * a**2 / weight + (2 * b - 1) ** 2
            largest = squares + np.sqrt(np.maximum(squares**2 - 4 * a**2, 0))  # the determinant is −a
            return np.sqrt(largest / 2).max(axis=-1, keepdims=True)

        def closer(least: Array, most: Array) -> tuple[Array, Array]:
            third = (most - least) / 3
            lower = norm(least + third) < norm(most - third)
            return np.where(lower, least, least + third), np.where(lower, most - third, most)

        least, most = np.full(low.shape, -20.0), np.full(low.shape, 10.0)
        for _ in range(40):  # the norm is convex in the logarithm of the weight: search by thirds
            least, most = closer(least, most)
        factors = norm(least)[:, 0]
    return np.where(np.isfinite(factors), factors, np.inf)


def best_rho(
    strong: float, smooth: float, solver: str | Solver = "gradient", local_steps: int = 10
) -> tuple[float, float]:
    """The ρ with the smallest factor a round, and that factor. For exact local training the best ρ is 1/√(λ̲λ̄)."""
    _check(1.0, strong, smooth)
    check.positive("best_rho", strong=strong)
    local = solvers.make(solver, local_steps)
    low, high, rho, factor = np.log(0.01 / smooth), np.log(100 / strong), 1.0, np.inf
    for _ in range(4):  # the factor may have several local minima: search everywhere first, then more closely
        tried = np.exp(np.linspace(low, high, 41))
        factors = rates(local, tried[:, None], strong, smooth, points=65)
        best, width = int(np.argmin(factors)), (high - low) / 20
        rho, factor = float(tried[best]), float(factors[best])
        low, high = np.log(rho) - width, np.log(rho) + width
    return rho, factor


def best_parameters(
    strong: float,
    smooth: float,
    solver: str = "gradient",
    local_steps: Iterable[int] = range(1, 51),
    gradient_cost: float = 0.0,
) -> tuple[float, int, float]:
    """(ρ, N_e, factor) with the shortest time to a given accuracy, if a round takes time 1 + gradient_cost·N_e."""
    check.non_negative("best_parameters", gradient_cost=gradient_cost)
    tried = [(steps, *best_rho(strong, smooth, solver, steps)) for steps in local_steps]
    steps, rho, factor = min(tried, key=lambda one: np.log(one[2]) / (1 + gradient_cost * one[0]))
    return rho, steps, factor


# Stands for random numbers, for a solver that adds noise: here it adds none.
_SILENCE: Any = SimpleNamespace(normal=lambda count: 0.0, uniform=lambda count: 0.5)


def _left_over(solver: Solver, curvature: Array, strong: Number, smooth: Number, who: Array | None = None) -> Array:
    """a(λ): what the solver leaves of an error of one, with one coordinate for each curvature of d."""
    return solver.solve(lambda w: curvature * w, np.ones_like(curvature), strong, smooth, _SILENCE, who)


def _check(rho: float, strong: float, smooth: float) -> None:
    check.positive("Fed-PLT", rho=rho, smooth=smooth)
    check.require(0 <= strong <= smooth, "Fed-PLT", f"strong must lie in [0, smooth = {smooth:g}]", strong)
