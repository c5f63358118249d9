"""LED: local exact diffusion. Local gradient steps with a correction that learns each client's drift.

Alghunaim, "Local Exact-Diffusion for Decentralized Optimization and Learning", IEEE TAC 69 (2024), Algorithm 1, with a
server in place of a network (W = 11ᵀ/N).

    symbol     here              meaning
    x          Down.x            model
    φ_i        Client.phi, Up    local model after the local steps
    y_i        Client.y          dual variable: sum of the drifts φ_i − x
    α, β       step, beta        primal and dual step
    τ          local_steps       local steps a round

The method, one round. Numbers at line ends below are these, not the paper's:

    client i    (1)  φ_i ← x, then τ times φ_i ← φ_i − α∇f_i(φ_i) − βy_i;  sends φ_i
    server      (2)  x ← mean of the φ_i
    client i    (3)  y_i ← y_i + φ_i − x, from y_i = 0

Departures from the paper
-------------------------
* The dual step (3) needs the new x, so a client takes it when the next broadcast brings x.
* The paper has everyone in every round. Here the mean is over those who answered, and a client that was not asked for
  a while is told which mean its last φ_i went into (`Down.met`): the y_i then still add up to zero, without which the
  limit would be wrong. One that answers alone meets no mean but its own and learns nothing: all must meet, at least by
  way of others, or the limit is wrong too (`corrected_steps.py`; there is a warning). There is no theory for it; TAMUNA
  is LED with β = 1/τ, a random τ, and a theory.
* "accelerated": Nesterov's momentum on the gradients ∇f_i + (β/α) y_i, restarted every round, as Bastianello et al.
  (Fed-PLT, section VII) do.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sottovoce import solvers
from sottovoce.algorithms.corrected_steps import needs_meetings, needs_smooth, one_step_for_all, reach
from sottovoce.core import check
from sottovoce.core.contract import Algorithm, Array, Asks, Hub, Mode, Penalty, Site
from sottovoce.core.participation import Participation
from sottovoce.core.shapes import DIM, widths


@dataclass(frozen=True)
class Server:
    x: Array
    met: Array  # the x that each client's last message went into


@dataclass(frozen=True)
class Client:
    phi: Array
    y: Array


@dataclass(frozen=True)
class Down:
    x: Array
    met: Array = widths(0, DIM)  # to each client its own; no coordinates if it is x for everyone


@dataclass(frozen=True)
class Up:
    phi: Array


@dataclass(frozen=True)
class LED(Algorithm[Server, Client, Down, Up]):
    """Algorithm 1 with a server.

    Parameters
    ----------
    step
        Step size, the same for all clients.
    beta
        Dual step. None: one over what a constant gradient of one moves in `local_steps` unit steps, which is as many,
        and with momentum at most local_steps (local_steps + 3)/2. More than about twice that
        can diverge.
    local_steps
        Gradients a round.
    solver
        "gradient" or "accelerated".
    """

    step: float = 0.1
    beta: float | None = None
    local_steps: int = 10
    solver: Literal["gradient", "accelerated"] = "gradient"

    name: ClassVar[str] = "led"
    summary: ClassVar[str] = "local exact diffusion: local steps with a learnt drift correction"
    paper: ClassVar[str] = "Alghunaim 2024"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "proven"})
    down: ClassVar[type] = Down
    up: ClassVar[type] = Up

    def __post_init__(self) -> None:
        if self.beta is not None:
            check.positive("LED", beta=self.beta)
        self.local_solver()

    def local_solver(self) -> solvers.Solver:
        return one_step_for_all("LED", self.solver, self.local_steps, self.step)

    @property
    def dual_step(self) -> float:
        return self.beta or 1 / reach(self.solver, self.local_steps)

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps)

    def check(self, penalty: Penalty) -> None:
        needs_smooth("LED", penalty)

    def warn_about(self, participation: Participation, n: int) -> None:
        needs_meetings("LED", participation, n)

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy(), np.repeat(hub.zeros, hub.n, axis=-2))

    def init_client(self, site: Site) -> Client:
        return Client(site.zeros.copy(), site.zeros.copy())

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.x, server.met[..., :0] if (server.met == server.x).all() else server.met)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        y = state.y + state.phi - (down.met if down.met.shape[-1] else down.x)  # (3), of the client's round before
        pull = self.dual_step / self.step * y

        def gradient(phi: Array) -> Array:
            return site.f.grad(phi) + site.penalty.subgradient(phi) + pull  # of (1)

        strong = site.f.strong_convexity() + site.penalty.strong
        phi = self.local_solver().solve(gradient, down.x, strong, 1 / self.step, site.rng, site.who)  # (1)
        phi = site.release(phi, centre=down.x)
        return Client(phi, y), Up(phi)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        x = hub.if_any(hub.mean(up.phi), server.x)  # (2)
        return Server(x, hub.fresh(np.broadcast_to(x, up.phi.shape), server.met))

    def model(self, server: Server) -> Array:
        return server.x
