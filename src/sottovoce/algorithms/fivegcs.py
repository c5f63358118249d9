"""5GCS: a primal-dual method with client sampling, whose dual step is a local problem solved by a few gradient steps.

Grudzień, Malinovsky and Richtárik, "Can 5th Generation Local Training Methods Support Client Sampling? Yes!" (AISTATS
2023), Algorithm 1.

    symbol       here             meaning
    x̂            Down.x           the point everyone starts from; the model
    M F_i        f                data term of client i, for F = Σ F_i + (μ/2)|x|²
    M u_i        Client.u, Up.u   dual variable: the gradient of f at y_i
    v            mean of u        Σ u_i of the paper
    y_i          y                local model
    τ M          tau              dual step
    γ            gamma            primal step
    K            local_steps      gradient steps a round on the local problem
    M, C         hub.n, a         clients, those who take part

The method, one round, with u_i and τ scaled as in the code (see the first departure), for (1/M) Σ f_i + r. Numbers at
line ends below are these, not the paper's:

    server      (1)  x̂ ← prox_{γr}(x − γv)
    client i    (2)  y_i ← K gradient steps from x̂ on ψ_i(y) = f_i(y) + (τ/2)|y − x̂ − u_i/τ|²
                (3)  u_i ← ∇f_i(y_i);  sends u_i
    server      (4)  v⁺ ← mean of everyone's u_i
                (5)  x ← x̂ − γ (M/C) (v⁺ − v);  v ← v⁺

In the code the server begins a round at (4) and ends it with the next x̂, (1).

Departures from the paper
-------------------------
* u_i and τ are M times the paper's: f is not divided by the number M of clients, so a client need not know M.
* The paper splits (μ/2)|x|² off a strongly convex objective and lets the server handle it, x̂ = (x − γv)/(1 + γμ). That
  is the prox of γ(μ/2)|x|². Here it is the prox of the public penalty: the same for L2(μ), and exact for any other.
* In M/C, C is the number of clients that answered in this round.
* Local steps can be accelerated: the paper allows any solver that satisfies its descent inequality, and proves that
  gradient steps do.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.algorithms.corrected_steps import OwnSteps
from sottovoce.core import check
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Site, of_each_client
from sottovoce.solvers import LocalSteps


class Server(Arrays):
    x: Array
    u: Array = of_each_client()


class Client(Arrays):
    u: Array


class Down(Arrays):
    x: Array


class Up(Arrays):
    u: Array


@dataclass(frozen=True)
class FiveGCS(OwnSteps, Algorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    tau
        Dual step; the curvature that a local problem gains.
    gamma
        Primal step; the theory needs gamma <= 1/tau. None: 1/tau.
    local_steps
        Gradients a round on the local problem; one more is asked for at its end.
    solver
        "gradient" or "accelerated".
    step
        Step of "gradient". None: 2/(strong + smooth), from the moduli of each client's local problem; in `Proven` mode
        from public bounds on them, so the step is another one than without privacy, even if the noise is tiny.
    """

    tau: check.Positive = 1.0
    gamma: check.Positive | None = None
    local_steps: check.Whole = 10
    solver: LocalSteps = "gradient"
    step: check.Positive | None = None

    name = "5gcs"
    summary = "primal-dual method with client sampling and local dual steps"
    paper = "Grudzień et al. 2023"
    not_summed = "each client keeps a dual that is made of what it released"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps + 1)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        def gradient(y: Array) -> Array:
            return site.f.grad(y) + self.tau * (y - down.x) - state.u  # ∇ψ_i

        strong, smooth = site.f.strong_convexity() + self.tau, site.f.smoothness() + self.tau
        y = self.local_solver.solve(gradient, down.x, strong, smooth, site.rng, site.who)  # (2)
        u = site.release(site.f.grad(y), centre=site.zeros)  # (3)
        return Client(u), Up(u)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        gamma, a = self.gamma or 1 / self.tau, hub.answered.sum(axis=-2, keepdims=True)
        u = hub.fresh(up.u, server.u)
        v, before = u.mean(axis=-2, keepdims=True), server.u.mean(axis=-2, keepdims=True)  # (4)
        x = server.x - gamma * hub.n / np.maximum(a, 1) * (v - before)  # (5)
        x_hat = hub.penalty.prox(x - gamma * v, gamma)  # (1)
        return Server(hub.if_any(x_hat, server.x), u)
