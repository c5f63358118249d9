"""What methods share whose local steps are corrected by how clients differ: FedLin, LED, TAMUNA and SCAFFOLD."""

import warnings
from collections.abc import Callable
from dataclasses import replace

from sottovoce import solvers
from sottovoce.core import check
from sottovoce.core.contract import Array, Penalty, Site
from sottovoce.core.participation import Participation
from sottovoce.solvers import LocalSteps, Solver


class MissesOptimum(UserWarning):
    """A method was started with a participation rule under which it cannot reach the optimum."""


class CorrectedSteps:
    """What FedLin, LED and TAMUNA share: one step for all clients, which are told how they differ from the mean."""

    step: float
    local_steps: int
    solver: LocalSteps

    @property
    def local_solver(self) -> Solver:
        """Nesterov's method takes 1/step for the smoothness."""
        return solvers.make(self.solver, self.local_steps, step=self.step if self.solver == "gradient" else None)

    def check(self, penalty: Penalty) -> None:
        needs_smooth(type(self).__name__, penalty)

    def solved(self, gradient: Callable[[Array], Array], start: Array, site: Site, steps: Array | None = None) -> Array:
        """The end of the local steps along this corrected gradient; `steps`: how many, if not `local_steps`."""
        solver = self.local_solver if steps is None else replace(self.local_solver, steps=steps)
        strong = site.f.strong_convexity() + site.penalty.strong
        return solver.solve(gradient, start, strong, 1 / self.step, site.rng, site.who)


class OwnSteps:
    """What FedPD and 5GCS share: a `step` of gradient descent, or the one that follows from what they minimise."""

    step: float | None
    local_steps: int
    solver: LocalSteps

    def __post_init__(self) -> None:
        check.fields(self)
        fits = self.step is None or self.solver == "gradient"
        check.require(fits, type(self).__name__, "step goes with solver='gradient'", self.step)

    @property
    def local_solver(self) -> Solver:
        """The solver of this name."""
        return solvers.make(self.solver, self.local_steps, step=self.step)


def reach(solver: LocalSteps, local_steps: int) -> float:
    """How far a constant gradient of length one moves a client in steps of length one; with momentum, at most."""
    return local_steps * (1 if solver == "gradient" else (local_steps + 3) / 2)


def needs_smooth(who: str, penalty: Penalty, instead: str = "Use FedPD, 5GCS or Fed-PLT for it") -> None:
    """Refuse a penalty without a gradient: a prox after several local steps would move the limit."""
    check.require(penalty.smooth, who, f"needs a smooth penalty such as L2, got {type(penalty).__name__}", hint=instead)


def needs_meetings(who: str, participation: Participation, n: int) -> None:
    """Warn if clients are not linked by rounds that they take part in together.

    A correction is learnt from a mean with others, and the corrections of those who are linked add up to zero. At the
    optimum the correction of client i is its own gradient, up to a factor. So groups that are not linked reach the
    optimum only if the gradients of each group add up to zero there, and a client that is always alone only if its own
    gradient is zero there.
    """
    if not participation.meet(n):
        message = (
            f"{who}: with participation {participation.name!r} the {n} clients are not all linked by common rounds, "
            "not even through other clients. So it cannot learn how they differ, and unless they agree its model "
            "misses the optimum. Let two or more take part in a round, such as KOfN(2), or use FedPD, 5GCS or Fed-PLT"
        )
        warnings.warn(message, MissesOptimum, stacklevel=3)
