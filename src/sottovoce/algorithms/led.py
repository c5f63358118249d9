"""LED, local exact diffusion: local gradient steps with a correction that learns how far each client drifts.

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
* In the paper everyone takes part in every round. Here the mean is over those who answered. A client that was not asked
  for some rounds is sent the mean that its last φ_i went into (`Down.met`): so the y_i still add up to zero, without
  which the limit would be wrong. A client that answers alone learns nothing, because the mean is its own φ_i. So all
  clients must be linked by rounds that they take part in together, or the limit is wrong too; there is a warning
  (`corrected_steps.py`). There is no theory for partial participation. TAMUNA is LED with β = 1/τ, a random τ, and a
  theory.
* "accelerated": Nesterov's momentum on the gradients ∇f_i + (β/α) y_i, restarted every round, as in Bastianello et al.
  (Fed-PLT, section VII).
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.algorithms.corrected_steps import CorrectedSteps, needs_meetings, reach
from sottovoce.core.check import Positive, Whole
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Site, of_each_client
from sottovoce.core.participation import Participation
from sottovoce.core.shapes import DIM, widths
from sottovoce.solvers import LocalSteps


class Server(Arrays):
    x: Array
    met: Array = of_each_client()  # the mean x that its last message went into


class Client(Arrays):
    phi: Array
    y: Array


class Down(Arrays):
    x: Array
    met: Array = widths(0, DIM)  # one for each client; no coordinates if all are x


class Up(Arrays):
    phi: Array


@dataclass(frozen=True)
class LED(CorrectedSteps, Algorithm[Server, Client, Down, Up]):
    """Algorithm 1 with a server.

    Parameters
    ----------
    step
        Step size, the same for all clients.
    beta
        Dual step; more than about twice the default can diverge. None: 1/local_steps, and with momentum
        2/(local_steps (local_steps + 3)) (`corrected_steps.reach`).
    local_steps
        Gradients a round.
    solver
        "gradient" or "accelerated".
    """

    step: Positive = 0.1
    beta: Positive | None = None
    local_steps: Whole = 10
    solver: LocalSteps = "gradient"

    name = "led"
    summary = "local exact diffusion: local steps with a learnt drift correction"
    paper = "Alghunaim 2024"
    not_summed = "each client keeps a correction that is made of what it released"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps)

    def warn_about(self, participation: Participation, n: int) -> None:
        needs_meetings("LED", participation, n)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.x, server.met[..., :0] if (server.met == server.x).all() else server.met)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        y = state.y + state.phi - (down.met if down.met.shape[-1] else down.x)  # (3), of the client's round before
        beta = self.beta or 1 / reach(self.solver, self.local_steps)
        pull = beta / self.step * y

        def gradient(phi: Array) -> Array:
            return site.f.grad(phi) + site.penalty.subgradient(phi) + pull  # of (1)

        phi = site.release(self.solved(gradient, down.x, site), centre=down.x)  # (1)
        return Client(phi, y), Up(phi)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        x = hub.if_any(hub.mean(up.phi), server.x)  # (2)
        return Server(x, hub.fresh(np.broadcast_to(x, up.phi.shape), server.met))
