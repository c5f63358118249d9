"""Federated averaging and its relatives: local gradient steps, then the mean. `FedAvg` is a good template to copy.

FedAvg: McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data" (2017), Algorithm 1. DP-FedAvg: McMahan, Ramage, Talwar and Zhang, "Learning Differentially Private
Recurrent Language Models" (2018). FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in
Heterogeneous Networks" (2020).

    symbol   here          meaning
    w        Down.w        model
    w_i      w, Up.w       client i's model after its local steps
    η        step          step size
    E        local_steps   local steps a round
    μ        pull          weight of the proximal term μ/2 |w_i − w|²

Departures from the papers
--------------------------
* Local steps use the full local gradient (or a random `batch` of records), not epochs over a shuffled list: a privacy
  budget can be calibrated for a fixed number of oracle answers a round.
* The mean is not weighted by the clients' sizes: the objective is (1/n) Σ f_i, and sizes are in f_i ("sum") or are
  not meant to count ("mean").
* The server applies a penalty that is not smooth, as the prox of the steps taken. With one local step that is
  proximal gradient descent, exactly; with more, clients drift apart and the limit is near the optimum, not at it.
* FedProx leaves the local solver open: here it is gradient descent.
* DP-FedAvg is FedAvg under `Proven(unit="client")`: a client clips its own upload, around the model it was sent, and
  adds noise to it, so the server need not be trusted. The paper's server does both to the sum, and divides by the
  expected number of clients, not by the number of those who answered.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.core.check import NonNegative, Positive, Whole
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Nothing, Site


class Server(Arrays):
    w: Array
    z: Array  # the last message of every client, if they are needed again (`over`); else nothing


class Down(Arrays):
    w: Array


class Up(Arrays):
    w: Array


@dataclass(frozen=True)
class FedAvg(Algorithm[Server, Nothing, Down, Up]):
    """Local gradient steps from the broadcast model, then the mean.

    Parameters
    ----------
    step, local_steps
        Step size, and how many steps a round.
    batch
        Records drawn for each gradient (a share of them if < 1; 0: all).
    pull
        Weight of a proximal term that keeps clients near the broadcast model.
    over
        The mean is over those who just "uploaded", or over the last messages of those "drawn" next.
    """

    step: Positive = 0.1
    local_steps: Whole = 1
    batch: NonNegative = 0
    pull: NonNegative = 0.0
    over: Literal["uploaded", "drawn"] = "uploaded"

    name = "fedavg"
    summary = "federated averaging: local gradient steps, then the mean"
    paper = "McMahan et al. 2017"

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps, batch=self.batch)

    def why_not_sums(self, unit: str) -> str:
        if self.over == "drawn":
            return "over = 'drawn' needs the last message of each client"
        return "" if unit == "client" else "its clients move a model of their own by noisy answers"

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy(), np.repeat(hub.zeros, hub.n if self.over == "drawn" else 1, axis=-2))

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.w if self.over == "uploaded" else self.mean(server.z, hub))

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        w = down.w
        for _ in range(self.local_steps):
            w = w - self.step * self.slope(w, down.w, site)
        return state, Up(site.release(w, centre=down.w))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        w = hub.if_any(self.mean(up.w, hub), server.w)
        return Server(w, hub.fresh(up.w, server.z) if self.over == "drawn" else server.z)

    def slope(self, w: Array, centre: Array, site: Site) -> Array:
        """Gradient of f_i + r (if smooth) + pull/2 |w − centre|²."""
        slope = site.f.grad(w) + site.penalty.by_gradient.subgradient(w)
        return slope if self.pull == 0 else slope + self.pull * (w - centre)

    def mean(self, z: Array, hub: Hub) -> Array:
        w = hub.mean(z)
        return w if hub.penalty.smooth else hub.penalty.prox(w, self.length(hub.k))

    def length(self, k: int) -> float:
        """The steps of round k, added up."""
        return self.step * self.local_steps


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term."""

    pull: NonNegative = 0.1

    name = "fedprox"
    summary = "FedAvg with a proximal term in the local steps"
    paper = "Li et al. 2020"


@dataclass(frozen=True)
class DPFedAvg(FedAvg):
    """FedAvg with the fields of a client-level run, to be used with ``Proven(unit="client")``."""

    local_steps: Whole = 5

    name = "dp-fedavg"
    summary = "FedAvg for client-level privacy: clipped, noisy uploads under Proven(unit='client')"
    paper = "McMahan et al. 2018"
