"""What FedLin, LED and TAMUNA share: local steps of one size for all clients, corrected by how the clients differ."""

import warnings

from sottovoce import solvers
from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Penalty
from sottovoce.core.participation import Participation


class MissesOptimum(UserWarning):
    """A method was started with participants among whom it cannot reach the optimum."""


def one_step_for_all(who: str, solver: str, local_steps: int, step: float) -> solvers.Solver:
    """The solver of a method whose step must be one number for all clients; Nesterov's takes it as 1/smoothness."""
    check.positive(who, step=step)
    check.one_of(who, "solver", solver, ("gradient", "accelerated"))
    return solvers.make(solver, local_steps, step=step if solver == "gradient" else None)


def reach(solver: str, local_steps: int) -> float:
    """How far a constant gradient of one moves a client in so many unit steps; with momentum, at most."""
    return local_steps * (1 if solver == "gradient" else (local_steps + 3) / 2)


def needs_smooth(who: str, penalty: Penalty) -> None:
    """Local steps end where the mean gradient vanishes: there is no place for a prox that keeps the limit exact."""
    if not penalty.smooth:
        kind = type(penalty).__name__
        raise InvalidInput(f"{who}: needs a smooth penalty such as L2, got {kind}; use FedPD, 5GCS or Fed-PLT for it")


def needs_meetings(who: str, participation: Participation, n: int) -> None:
    """Corrections are learnt from a mean with others, and add up to zero among those who meet.

    At the optimum client i's is its own gradient, up to a factor. So groups that never meet reach it only if the
    gradients of each add up to zero there; a client that is always alone, only if its own vanishes.
    """
    if not participation.meet(n):
        message = (
            f"{who}: with participation {participation.name!r} the {n} clients do not all meet, not even by way of "
            "others; it cannot learn how they differ, and unless they agree its model stays off the optimum. Let two "
            "or more take part in a round, such as KOfN(2), or use FedPD, 5GCS or Fed-PLT"
        )
        warnings.warn(message, MissesOptimum, stacklevel=3)
