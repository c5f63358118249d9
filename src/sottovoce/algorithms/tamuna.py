"""TAMUNA: a random number of corrected local steps, by a random part of the clients.

Condat, Agarský, Malinovsky and Richtárik, "TAMUNA: Doubly Accelerated Federated Learning with Local Training,
Compression, and Partial Participation" (2023), Algorithm 1 without compression (s = c).

    symbol      here                 meaning
    x̄           Down.x               model
    x_i         Up.w                 local model after the local steps
    h_i         Server.h, Down.h     control variate of client i; they add up to zero
    γ           step                 step size
    L, p        Down.steps, 1/local_steps    number of local steps, geometric with chance p
    n, c, χ     hub.n, c, chi        clients, those who take part, a share
    η = pχ      eta                  dual step

The method, one round. Numbers at line ends below are these, not the paper's:

    server      (1)  draws L with P(L > l) = (1 − p)^l, and c of the n clients
    client i    (2)  x_i ← x̄, then L times x_i ← x_i − γ(∇f_i(x_i) − h_i);  sends x_i
    server      (3)  x̄ ← mean of the c x_i
    client i    (4)  h_i ← h_i + (η/γ)(x̄ − x_i), from Σ h_i = 0

Departures from the paper
-------------------------
* The server draws L and sends it. L is at most `most_steps`, the number of answers that a privacy budget must be
  calibrated for. The limit stays exact, since at the optimum no step moves anything.
* For its h_i a client needs the x̄ of the round it took part in, and it may not be asked again for a long time. The
  server knows all that h_i is computed from, so it keeps the h_i and sends them: one more vector down, and a client
  remembers nothing.
* χ is given as a share of n(c−1)/(c(n−1)), the largest that the theory allows, with c of the current round. For c = 1
  that is zero, and nothing is learnt about h_i: the paper requires c >= 2. Some rounds with c = 1 do no harm; but all
  clients must be linked by rounds that they take part in together, or the limit is not the optimum; there is a warning
  (`corrected_steps.py`).
* With several runs at once each has its own L. All are asked, and charged, as often as the longest of them.
* "accelerated": Nesterov's momentum on the gradients ∇f_i − h_i, restarted every round, as in Bastianello et al.
  (Fed-PLT, section VII).
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from sottovoce.algorithms.corrected_steps import CorrectedSteps, needs_meetings, reach
from sottovoce.core.check import Interval, Positive, Whole
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Nothing, Site, of_each_client
from sottovoce.core.participation import Participation
from sottovoce.core.shapes import widths
from sottovoce.solvers import LocalSteps


class Server(Arrays):
    x: Array
    h: Array = of_each_client()


class Down(Arrays):
    x: Array
    h: Array  # one for each client
    steps: Array = widths(1)


class Up(Arrays):
    w: Array


@dataclass(frozen=True)
class TAMUNA(CorrectedSteps, Algorithm[Server, Nothing, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    step
        Step size, the same for all clients; below 2/smoothness of f + penalty, with momentum below 1/smoothness.
    local_steps
        Mean number of local steps, 1/p.
    most_steps
        The largest number of them. None: three times the mean, which one round in twenty would exceed.
    chi
        χ, as a share of the largest that the theory allows: 0 < chi <= 1.
    solver
        "gradient" or "accelerated".
    """

    step: Positive = 0.1
    local_steps: Whole = 10
    most_steps: Whole | None = None
    chi: Annotated[float, Interval(0, 1, closed=("high",))] = 1.0
    solver: LocalSteps = "gradient"

    name = "tamuna"
    summary = "random numbers of corrected local steps, partial participation"
    paper = "Condat et al. 2023"
    not_summed = "its server keeps a control variate of each client, made of its messages"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.most_steps or 3 * self.local_steps)

    def warn_about(self, participation: Participation, n: int) -> None:
        needs_meetings("TAMUNA", participation, n)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        draw, p = hub.rng.uniform(1), 1 / self.local_steps
        steps = np.ceil(np.log(draw) / np.log1p(-p)) if p < 1 else np.ones_like(draw)  # (1)
        return Down(server.x, server.h, np.minimum(steps, self.asks().only.answers))

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        def gradient(w: Array) -> Array:
            return site.f.grad(w) + site.penalty.subgradient(w) - down.h  # of (2)

        w = self.solved(gradient, down.x, site, np.rint(down.steps).astype(int))  # (2)
        return state, Up(site.release(w, centre=down.x))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        n, c = hub.n, np.maximum(hub.answered.sum(axis=-2, keepdims=True), 1)
        # With momentum a constant gradient moves a client farther, so the dual step is shorter by as much, as in LED.
        eta = self.chi * n * (c - 1) / (c * max(n - 1, 1)) / reach(self.solver, self.local_steps)  # pχ
        x = hub.if_any(hub.mean(up.w), server.x)  # (3)
        return Server(x, hub.fresh(server.h + eta / self.step * (x - up.w), server.h))  # (4)
