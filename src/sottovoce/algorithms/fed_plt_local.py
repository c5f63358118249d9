"""What Fed-PLT's agents know of their local problem d (9): moduli, step size, and the noise of Proposition 4."""

import warnings
from dataclasses import dataclass

import numpy as np

from sottovoce import solvers
from sottovoce.algorithms.fed_plt_rates import DoesNotContract, rates
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Array, Site
from sottovoce.privacy import paper_noise
from sottovoce.solvers import Gradient, Noisy, Solver

FOREVER = 10**12  # rounds: the K of Proposition 4's limit


@dataclass(frozen=True)
class LocalProblem:
    """min over w of d(w) = f_i(w) + |w − v|²/(2ρ) (9), for the agents at hand."""

    site: Site
    solver: Solver
    rho: float
    strong: Array | float  # λ̲ of f_i, with the regulariser if it is part of f_i
    smooth: Array | float  # λ̄ of the same
    horizon: int  # number of rounds that the published noise is for; 0: any number

    @property
    def moduli(self) -> tuple[Array | float, Array | float]:
        """Strong convexity and smoothness of d."""
        return self.strong + 1 / self.rho, self.smooth + 1 / self.rho

    @property
    def step(self) -> Array | float:
        """γ of gradient steps."""
        assert isinstance(self.solver, Gradient)
        return self.solver.length(solvers.Local(*self.moduli, None, self.site.who))

    @property
    def tau(self) -> Array | float:
        """τ at which Proposition 4 and Lemma 5 promise what was asked for."""
        claim, f, solver = self.site.claim, self.site.f, self.solver
        assert claim is not None
        if type(solver) is not Gradient or not isinstance(solver.steps, int) or solver.batch:
            raise NoGuarantee(f"FedPLT: Proposition 4 is about gradient steps on all records, not {solver}")
        if not np.all(np.asarray(self.strong) > 0):
            raise InvalidInput("FedPLT: Proposition 4 needs strongly convex f_i: add a ridge, L2(...), at the clients")
        steps = (self.step, self.horizon or FOREVER, solver.steps)
        return paper_noise.fed_plt_tau(
            claim.epsilon, claim.delta, 2 * f.gradient_bound, 1 / f.weight, self.strong, *steps
        )

    def start(self) -> Array:
        """x_{i,0}: zero, and in `Published` mode random."""
        x = self.site.zeros.copy()
        if self.site.claim is None:
            return x
        return x + self.tau * np.sqrt(2 / self.strong) * self.site.rng.normal(self.site.f.dim)  # Proposition 4

    def solver_with_noise(self) -> Solver:
        """The local solver, and in `Published` mode one that adds noise after every step."""
        if self.site.claim is None:
            return self.solver
        gamma = self.step
        return Noisy(self.solver.steps, gamma, noise_std=np.sqrt(2 * gamma) * self.tau)  # (13)

    def warn(self) -> None:
        """Warn if nothing is known to contract with these parameters."""
        if not np.isfinite(self.smooth).all():
            return
        rate = float(rates(self.solver, self.rho, self.strong, self.smooth, self.site.who, points=33).max())
        # With little or no strong convexity the factor is about 1 whatever the parameters are: warn of growth only.
        if rate > 1.01:
            message = (
                f"FedPLT: not known to contract (factor {rate:.4g} a round); try more local steps, "
                "solver='accelerated', or rho=fed_plt_rates.best_rho(strong, smooth, solver)"
            )
            warnings.warn(message, DoesNotContract, stacklevel=2)
