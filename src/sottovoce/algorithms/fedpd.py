"""FedPD: every client minimises its own augmented Lagrangian around the server's point, by gradient steps.

Zhang, Hong, Dhople, Yin and Liu, "FedPD: A Federated Learning Framework With Adaptivity to Non-IID Data", IEEE TSP 69
(2021), Algorithm 1 with Oracle I.

    symbol        here                meaning
    x_i           Client.x            local model
    λ_i           Client.lam          dual variable of x_i = x_0
    x_0           Down.c              global model
    x⁺_{0,i}      Up.v                what the server averages
    η             eta                 inverse penalty parameter
    Q_i, η_1      local_steps, step   gradient steps a round, and their size

The method, one round. Numbers at line ends below are these, not the paper's:

    client i    (1)  x_i ← Q_i gradient steps from x_i on L_i(x) = f_i(x) + ⟨λ_i, x − x_0⟩ + |x − x_0|²/(2η)
                (2)  λ_i ← λ_i + (x_i − x_0)/η
                (3)  sends x⁺_{0,i} = x_i + ηλ_i
    server      (4)  x_0 ← mean of the x⁺_{0,i}

Departures from the paper
-------------------------
* No rounds are skipped (p = 0 in the paper): skipping leaves an error that does not fade.
* With full participation and exact local problems this is Douglas-Rachford splitting, so the server can handle a
  penalty that is not smooth exactly: x_0 = prox_{ηr}(mean of the messages). The paper has smooth objectives only.
* If a client does not answer, its last message counts. In the paper everyone answers in every round.
* Local steps use full gradients and can be accelerated, as in Bastianello et al. (Fed-PLT, section VII).
"""

from dataclasses import dataclass

from sottovoce.algorithms.corrected_steps import OwnSteps
from sottovoce.core import check
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Site, of_each_client
from sottovoce.solvers import LocalSteps


class Server(Arrays):
    c: Array
    v: Array = of_each_client()  # its last message


class Client(Arrays):
    x: Array
    lam: Array


class Down(Arrays):
    c: Array


class Up(Arrays):
    v: Array


@dataclass(frozen=True)
class FedPD(OwnSteps, Algorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    eta
        Inverse penalty parameter.
    local_steps
        Gradients a round.
    solver
        "gradient" or "accelerated".
    step
        Step of "gradient". None: 2/(strong + smooth), from the moduli of each client's local problem; in `Proven` mode
        from public bounds on them, so the step is another one than without privacy, even if the noise is tiny.
    """

    eta: check.Positive = 1.0
    local_steps: check.Whole = 10
    solver: LocalSteps = "gradient"
    step: check.Positive | None = None

    name = "fedpd"
    summary = "federated primal-dual method: local steps on an augmented Lagrangian"
    paper = "Zhang et al. 2021"
    not_summed = "each client keeps a dual and a model of its own, and the server all last messages"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        f, r, eta = site.f, site.penalty.by_gradient, self.eta

        def gradient(x: Array) -> Array:
            return f.grad(x) + r.subgradient(x) + state.lam + (x - down.c) / eta  # ∇L_i

        strong, smooth = f.strong_convexity() + r.strong + 1 / eta, f.smoothness() + r.curvature + 1 / eta
        x = self.local_solver.solve(gradient, state.x, strong, smooth, site.rng, site.who)  # (1)
        lam = state.lam + (x - down.c) / eta  # (2)
        return Client(x, lam), Up(site.release(x + eta * lam, centre=down.c))  # (3)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        v = hub.fresh(up.v, server.v)
        c = v.mean(axis=-2, keepdims=True)  # (4)
        return Server(c if hub.penalty.smooth else hub.penalty.prox(c, self.eta), v)
