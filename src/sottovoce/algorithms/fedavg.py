"""Federated averaging: local gradient steps, then the mean. The template to copy for a new method.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data" (2017), Algorithm 1.

    symbol   here          meaning
    w        Down.w        model
    w_i      Up.w          client i's model after its local steps
    η, E     step, local_steps

Departures from the paper
-------------------------
* Local steps use the full local gradient (or a random `batch` of records), not epochs over a shuffled list:
  a fixed number of oracle answers a round is what a privacy budget can be calibrated for.
* The mean is not weighted by the clients' sizes: the objective is (1/n) Σ f_i, and sizes are in f_i ("sum") or are
  not meant to count ("mean").
* A penalty that is not smooth is applied by the server, as the prox of the steps taken. With one local step that is
  proximal gradient descent, exactly; with more, clients drift apart and the limit is near the optimum, not at it.
"""

from dataclasses import dataclass
from typing import ClassVar

from sottovoce.core import check
from sottovoce.core.algorithm import Algorithm, Array, Asks, Hub, Mode, Site


@dataclass(frozen=True)
class Server:
    w: Array


@dataclass(frozen=True)
class Client:
    """A client remembers nothing."""


@dataclass(frozen=True)
class Down:
    w: Array


@dataclass(frozen=True)
class Up:
    w: Array


@dataclass(frozen=True)
class FedAvg(Algorithm[Server, Client, Down, Up]):
    """Local gradient steps from the broadcast model, then the mean of those who answered."""

    step: float = 0.1
    local_steps: int = 1
    batch: float = 0

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "federated averaging: local gradient steps, then the mean"
    paper: ClassVar[str] = "McMahan et al. 2017"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "proven"})

    def __post_init__(self) -> None:
        check.positive("FedAvg", step=self.step)
        check.whole("FedAvg", local_steps=self.local_steps)
        check.non_negative("FedAvg", batch=self.batch)

    def asks(self) -> Asks:
        return Asks(answers=self.local_steps, batch=self.batch)

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy())

    def init_client(self, site: Site) -> Client:
        return Client()

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.w)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        w = down.w
        for _ in range(self.local_steps):
            regular = site.penalty.subgradient(w) if site.penalty.smooth else 0.0
            w = w - self.step * (site.f.grad(w) + regular)
        return state, Up(site.release(w, centre=down.w))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        w = hub.mean(up.w)
        return Server(w if hub.penalty.smooth else hub.penalty.prox(w, self.step * self.local_steps))

    def model(self, server: Server) -> Array:
        return server.w
