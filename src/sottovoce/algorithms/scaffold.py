"""SCAFFOLD: local gradient steps, each corrected by control variates that estimate how a client differs from the mean.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
(ICML 2020), Algorithm 1 with option II for the control variates.

    symbol      here                meaning
    x           Down.x              model
    y_i         Up.y                local model after the local steps
    c_i, c      Server.c, its mean  control variate of client i, and the mean of all N of them
    c_i − c     Down.drift          how client i differs from the mean
    η_l, η_g    step, global_step   step sizes at the clients and at the server
    K           local_steps         local steps a round
    N, S        hub.n, answered     clients, those who take part

The method, one round. Numbers at line ends below are these, not the paper's:

    server      (1)  sends x and c
    client i    (2)  y_i ← x, then K times y_i ← y_i − η_l (∇f_i(y_i) − c_i + c)
                (3)  c_i⁺ ← c_i − c + (x − y_i)/(Kη_l);  sends y_i − x and c_i⁺ − c_i
    server      (4)  x ← x + η_g · (mean over S of y_i − x)
                (5)  c ← c + (1/N) Σ_S (c_i⁺ − c_i);  c_i ← c_i⁺ for i in S

Departures from the paper
-------------------------
* c_i⁺ follows from y_i and from what the server knows, so the server computes (3), keeps the c_i, and sends c_i − c in
  place of c. That halves the upload, a client remembers nothing, and a lost reply changes nothing: in the paper's form
  the client would have replaced its c_i and the server would not have counted it, which moves the limit for good.
* y_i is sent, not y_i − x. c is the mean of the c_i, which (5) keeps up from c = c_i = 0.
* The gradient of the public penalty is part of ∇f_i, and computed where it is needed.
"""

from dataclasses import dataclass

from sottovoce.algorithms.corrected_steps import needs_smooth
from sottovoce.core.check import NonNegative, Positive, Whole
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Nothing, Penalty, Site, of_each_client


class Server(Arrays):
    x: Array
    c: Array = of_each_client()


class Down(Arrays):
    x: Array
    drift: Array  # one for each client


class Up(Arrays):
    y: Array


@dataclass(frozen=True)
class SCAFFOLD(Algorithm[Server, Nothing, Down, Up]):
    """Algorithm 1, option II.

    Parameters
    ----------
    step, local_steps
        Step size at the clients, and how many steps a round.
    global_step
        Step size at the server. 1: the model is the mean of the local models.
    batch
        Records drawn for each gradient (a share of them if < 1; 0: all).
    """

    step: Positive = 0.1
    local_steps: Whole = 10
    global_step: Positive = 1.0
    batch: NonNegative = 0

    name = "scaffold"
    summary = "local steps corrected by control variates"
    paper = "Karimireddy et al. 2020"
    not_summed = "its server keeps a control variate of each client, made of its messages"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps, batch=self.batch)

    def check(self, penalty: Penalty) -> None:
        needs_smooth("SCAFFOLD", penalty)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.x, server.c - server.c.mean(axis=-2, keepdims=True))  # (1)

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        y = down.x
        for _ in range(self.local_steps):
            y = y - self.step * (site.f.grad(y) + site.penalty.subgradient(y) - down.drift)  # (2)
        return state, Up(site.release(y, centre=down.x))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        drift = server.c - server.c.mean(axis=-2, keepdims=True)
        c = drift + (server.x - up.y) / (self.local_steps * self.step)  # (3)
        x = server.x + self.global_step * (hub.mean(up.y) - server.x)  # (4)
        return Server(hub.if_any(x, server.x), hub.fresh(c, server.c))  # (5)
