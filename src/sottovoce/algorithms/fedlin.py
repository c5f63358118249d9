"""FedLin: local gradient steps, each corrected by the difference between the mean gradient and the client's own.

Mitra, Jaafar, Pappas and Hassani, "Linear Convergence in Federated Learning: Tackling Client Heterogeneity and Sparse
Gradients" (NeurIPS 2021), Algorithm 1 without sparsification.

    symbol        here           meaning
    x̄             Down.x         model
    ∇f_i(x̄)       Client.g       what client i answered in the first exchange
    g             Down.g         mean of the clients' ∇f_i(x̄)
    x_{i,ℓ}       w              local model
    η             step           step size
    H             local_steps    local steps a round

The method, one round of the paper. Numbers at line ends below are these, not the paper's:

    client i    (1)  sends ∇f_i(x̄)
    server      (2)  g ← mean of the ∇f_i(x̄)
    client i    (3)  x_{i,0} = x̄;  x_{i,ℓ+1} ← x_{i,ℓ} − η (∇f_i(x_{i,ℓ}) − ∇f_i(x̄) + g), ℓ = 0..H−1;  sends x_{i,H}
    server      (4)  x̄ ← mean of the x_{i,H}

One round of the paper is two exchanges, so it takes two rounds of the loop: `rounds=2*T` for T rounds. In odd rounds
the server asks for gradients at x̄ (phase 0), in even rounds for local steps (phase 1). The model moves in even rounds.

Departures from the paper
-------------------------
* The public penalty is not part of what clients send. Its gradient is added in their steps, which gives the same.
* `Proven`: the number of answers of the longer phase is declared for every exchange. So noise is calibrated for 2·H
  answers per round of the paper, while H + 1 are charged. `Proven(participations=T*(H+1)/H)`, rounded up, plans for
  what T rounds of the paper really cost.
* A client that missed the first exchange corrects with its last gradient, and the server averages the last gradients
  of all. For a client that never took part in a first exchange that is zero, and the limit is wrong. In the paper
  everyone takes part in every round.
* "accelerated": Nesterov's momentum on the same gradients, restarted every round, as in Bastianello et al. (Fed-PLT,
  section VII).
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.algorithms.corrected_steps import CorrectedSteps
from sottovoce.core.check import Positive, Whole
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Site, of_each_client
from sottovoce.core.shapes import DIM, widths
from sottovoce.solvers import LocalSteps

ASK_GRADIENT, ASK_STEPS = 0.0, 1.0


class Server(Arrays):
    x: Array
    g: Array = of_each_client()  # its last gradient


class Client(Arrays):
    g: Array


class Down(Arrays):
    x: Array
    g: Array = widths(0, DIM)  # no coordinates in phase 0, which does not need it
    phase: Array = widths(1)


class Up(Arrays):
    answer: Array  # a gradient in phase 0, a model in phase 1


@dataclass(frozen=True)
class FedLin(CorrectedSteps, Algorithm[Server, Client, Down, Up]):
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

    step: Positive = 0.1
    local_steps: Whole = 10
    solver: LocalSteps = "gradient"

    name = "fedlin"
    summary = "local steps corrected by the mean gradient; two exchanges a round"
    paper = "Mitra et al. 2021"
    not_summed = "each client keeps a gradient that it released, and corrects its steps by it"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        phase = self.phase(hub.k)
        g = server.g.mean(axis=-2, keepdims=True)  # (2)
        return Down(server.x, g if phase == ASK_STEPS else g[..., :0], np.full((1, 1), phase))

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        if np.rint(down.phase).item() == ASK_GRADIENT:
            g = site.release(site.f.grad(down.x), centre=site.zeros)  # (1)
            return Client(g), Up(g)

        def gradient(w: Array) -> Array:
            return site.f.grad(w) - state.g + down.g + site.penalty.subgradient(w)  # of (3)

        w = self.solved(gradient, down.x, site)  # (3)
        return state, Up(site.release(w, centre=down.x))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        if self.phase(hub.k) == ASK_GRADIENT:
            return Server(server.x, hub.fresh(up.answer, server.g))
        return Server(hub.if_any(hub.mean(up.answer), server.x), server.g)  # (4)

    def phase(self, k: int) -> float:
        return ASK_GRADIENT if k % 2 else ASK_STEPS
