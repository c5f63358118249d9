"""Noisy (clipped) gradient descent: the baseline for every other method.

Abadi et al., "Deep Learning with Differential Privacy" (2016), with each client adding its own noise, as Huang et al.
(2020) compare with it (learning rate 0.1, sampling ratio 1).

    symbol   here     meaning
    w        Down.w   model
    g_i      Up.g     client i's gradient
    η        step     learning rate
    L        batch    records drawn for each gradient (a share of them if < 1; 0: all)

Departures from the paper
-------------------------
* The penalty is public, so the server applies its prox. For l2 the limit is the same as with its gradient.
* `Published` noise is the classical Gaussian mechanism on the full local gradient of a round. It is the same for every
  `batch`: no amplification by sampling is claimed.
"""

from dataclasses import dataclass

from sottovoce.algorithms.published import gaussian_noise, gradient_change
from sottovoce.core.check import NonNegative, Positive
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Nothing, Site


class Server(Arrays):
    w: Array


class Down(Arrays):
    w: Array


class Up(Arrays):
    g: Array


@dataclass(frozen=True)
class DPSGD(Algorithm[Server, Nothing, Down, Up]):
    """w ← prox(w − step · mean of the clients' noisy gradients)."""

    step: Positive = 0.1
    batch: NonNegative = 0

    name = "dp-sgd"
    summary = "noisy clipped (proximal) gradient descent"
    paper = "Abadi et al. 2016"
    modes = frozenset({"none", "published", "proven"})
    not_summed = ""

    def asks(self) -> Asks:
        return Asks.every_round(batch=self.batch)

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        noise = gaussian_noise(gradient_change(site), site)
        return state, Up(site.release(site.f.grad(down.w), noise, centre=site.zeros))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        w = hub.penalty.prox(server.w - self.step * hub.mean(up.g), self.step)
        return Server(hub.if_any(w, server.w))
