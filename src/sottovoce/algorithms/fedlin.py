"""FedLin: local gradient steps, each corrected by the difference between the clients' gradients and one's own.

Mitra, Jaafar, Pappas and Hassani, "Linear Convergence in Federated Learning: Tackling Client Heterogeneity and Sparse
Gradients" (NeurIPS 2021), Algorithm 1 without sparsification.

    symbol        here           meaning
    x̄             Down.x         model
    ∇f_i(x̄)       Client.g       what client i answered in the first exchange
    g             Down.g         mean of the clients' ∇f_i(x̄)
    x_{i,ℓ}       w              local model
    η             step           step size
    H             local_steps

One round of the paper is two exchanges, and so two rounds of the loop: `rounds=2*T` for T rounds. In the odd ones the
server asks for gradients at x̄ (phase 0), in the even ones for local steps (phase 1); the model moves in the even ones.

Departures from the paper
-------------------------
* The public penalty is not part of what clients send: its gradient is added where they step, which is the same.
* `Proven`: the declared number of answers is that of the longer phase, for every exchange. So noise is calibrated for
  2·H answers a round of the paper where H + 1 are charged; `Proven(participations=T*(H+1)/H)`, rounded up, plans for
  what T rounds of the paper really cost.
* A client that missed the first exchange corrects with its last gradient, and the server averages the last gradients
  of all. The paper has everyone in every round.
* "accelerated": Nesterov's momentum on the same gradients, restarted every round, as Bastianello et al. (Fed-PLT,
  section VII) do.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sottovoce import solvers
from sottovoce.core import check
from sottovoce.core.algorithm import Algorithm, Array, Asks, Hub, Mode, Penalty, Site
from sottovoce.core.check import InvalidInput

ASK_GRADIENT, ASK_STEPS = 0.0, 1.0


@dataclass(frozen=True)
class Server:
    x: Array
    g: Array  # the last gradient of every client


@dataclass(frozen=True)
class Client:
    g: Array


@dataclass(frozen=True)
class Down:
    x: Array
    g: Array  # no coordinates in phase 0, where nobody needs it
    phase: Array  # (1, 1)


@dataclass(frozen=True)
class Up:
    answer: Array  # a gradient in phase 0, a model in phase 1


@dataclass(frozen=True)
class FedLin(Algorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    step
        Step size, the same for all clients; below 2/smoothness of f + penalty ("accelerated": below 1/smoothness).
    local_steps
        Local steps in every second exchange.
    solver
        "gradient" or "accelerated".
    """

    step: float = 0.1
    local_steps: int = 10
    solver: Literal["gradient", "accelerated"] = "gradient"

    name: ClassVar[str] = "fedlin"
    summary: ClassVar[str] = "local steps corrected by the mean gradient; two exchanges a round"
    paper: ClassVar[str] = "Mitra et al. 2021"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "proven"})

    def __post_init__(self) -> None:
        self.local_solver()

    def local_solver(self) -> solvers.Solver:
        return one_step_for_all("FedLin", self.solver, self.local_steps, self.step)

    def asks(self) -> Asks:
        return Asks(answers=self.local_steps)

    def check(self, penalty: Penalty) -> None:
        needs_smooth("FedLin", penalty)

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy(), np.repeat(hub.zeros, hub.n, axis=-2))

    def init_client(self, site: Site) -> Client:
        return Client(site.zeros.copy())

    def broadcast(self, server: Server, hub: Hub) -> Down:
        phase = self.phase(hub.k)
        g = server.g.mean(axis=-2, keepdims=True)
        return Down(server.x, g if phase == ASK_STEPS else g[..., :0], np.full((1, 1), phase))

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        if np.rint(down.phase).item() == ASK_GRADIENT:
            g = site.release(site.f.grad(down.x), centre=site.zeros)
            return Client(g), Up(g)

        def gradient(w: Array) -> Array:
            return site.f.grad(w) - state.g + down.g + site.penalty.subgradient(w)

        strong = site.f.strong_convexity() + site.penalty.strong
        w = self.local_solver().solve(gradient, down.x, strong, 1 / self.step, site.rng, site.who)
        return state, Up(site.release(w, centre=down.x))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        if self.phase(hub.k) == ASK_GRADIENT:
            return Server(server.x, hub.fresh(up.answer, server.g))
        return Server(mean_or(server.x, up.answer, hub), server.g)

    def model(self, server: Server) -> Array:
        return server.x

    def phase(self, k: int) -> float:
        return ASK_GRADIENT if k % 2 else ASK_STEPS


# What FedLin shares with LED and TAMUNA.


def one_step_for_all(who: str, solver: str, local_steps: int, step: float) -> solvers.Solver:
    """The solver of a method whose step must be one number for all clients; Nesterov's takes it as 1/smoothness."""
    check.positive(who, step=step)
    check.one_of(who, "solver", solver, ("gradient", "accelerated"))
    return solvers.make(solver, local_steps, step=step if solver == "gradient" else None)


def needs_smooth(who: str, penalty: Penalty) -> None:
    """Local steps end where the mean gradient vanishes: there is no place for a prox that keeps the limit exact."""
    if not penalty.smooth:
        kind = type(penalty).__name__
        raise InvalidInput(f"{who}: needs a smooth penalty such as L2, got {kind}; use FedPD, 5GCS or Fed-PLT for it")


def mean_or(old: Array, x: Array, hub: Hub) -> Array:
    """The mean over those who answered; where nobody did (in one of several runs), the old value."""
    return np.where(hub.answered.any(axis=-2, keepdims=True), hub.mean(x), old)
