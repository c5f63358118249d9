"""Federated averaging and its kin: local gradient steps, then the mean. `FedAvg` is the template for a new method.

FedAvg: McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data" (2017), Algorithm 1. DP-FedAvg: McMahan, Ramage, Talwar and Zhang, "Learning Differentially Private
Recurrent Language Models" (2018). FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in
Heterogeneous Networks" (2020). SFedAvg, SFedProx: Zhou and Li, "Exact Penalty Method for Federated Learning" (2022),
Algorithms 3 and 4; equation numbers are that paper's.

    symbol      here                meaning
    w           Down.w              model
    w_i, z_i    w, Up.w             client i's model after its local steps; what it uploads
    η, γ_i      step, steps(site)   step size; the one of (38) is step d_i / √(2 k_0 + ⌈k/k_0⌉)
    E, k_0      local_steps         local steps a round
    μ           pull                weight of the proximal term μ/2 |w_i − w|²
    ℓ           inner               gradient steps in each local step (Algorithm 4)
    d_i         f.size              records of a client

Departures from the papers
--------------------------
* Local steps use the full local gradient (or a random `batch` of records), not epochs over a shuffled list:
  a fixed number of oracle answers a round is what a privacy budget can be calibrated for.
* The mean is not weighted by the clients' sizes: the objective is (1/n) Σ f_i, and sizes are in f_i ("sum") or are
  not meant to count ("mean").
* A penalty that is not smooth is applied by the server, as the prox of the steps taken. With one local step that is
  proximal gradient descent, exactly; with more, clients drift apart and the limit is near the optimum, not at it.
* FedProx leaves the local solver open: here it is gradient descent.
* (34) prints the mean over those who are drawn next, of their last messages; section IV-C means those who just
  uploaded, which takes 2-3 times fewer rounds. `over` offers both.
* (38) makes large clients take longer steps, so the limit weighs each f_i by its d_i, and no one step fits all that a
  penalty's prox could use. Without `by_size` neither is so.
* SFedAvg and SFedProx have the published noise of FedEPM, (39), with its constants; z_i^0 = 0 has no noise.
* DP-FedAvg is FedAvg under `Proven(unit="client")`: a client clips and noises its own upload, around the model it was
  sent, so the server need not be trusted. The paper's server does it to the sum, and divides by the expected number of
  clients, not by that of those who answered.
"""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal

import numpy as np

from sottovoce.algorithms.fedepm import FedEPM, growing_mu, laplace_noise, square
from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Algorithm, Array, Asks, Hub, Mode, Penalty, Site


@dataclass(frozen=True)
class Server:
    w: Array
    z: Array  # the last message of every client, if they are needed again (`over`); else nothing


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

    step: float = 0.1
    local_steps: int = 1
    batch: float = 0
    pull: float = 0.0
    over: Literal["uploaded", "drawn"] = "uploaded"

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "federated averaging: local gradient steps, then the mean"
    paper: ClassVar[str] = "McMahan et al. 2017"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "proven"})
    down: ClassVar[type] = Down
    up: ClassVar[type] = Up

    def __post_init__(self) -> None:
        who = type(self).__name__
        check.positive(who, step=self.step)
        check.whole(who, local_steps=self.local_steps)
        check.non_negative(who, batch=self.batch, pull=self.pull)
        check.one_of(who, "over", self.over, ("uploaded", "drawn"))

    def asks(self) -> Asks:
        return Asks(answers=self.local_steps, batch=self.batch)

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy(), np.repeat(hub.zeros, hub.n if self.over == "drawn" else 1, axis=-2))

    def init_client(self, site: Site) -> Client:
        return Client()

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.w if self.over == "uploaded" else self.mean(server.z, hub))  # (34)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        w = down.w
        for _ in range(self.local_steps):
            w = w - self.step * self.slope(w, down.w, site)
        return state, Up(site.release(w, centre=down.w))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        w = hub.if_any(self.mean(up.w, hub), server.w)
        return Server(w, hub.fresh(up.w, server.z) if self.over == "drawn" else server.z)

    def model(self, server: Server) -> Array:
        return server.w

    def slope(self, w: Array, centre: Array, site: Site) -> Array:
        """Gradient of f_i + r (if smooth) + pull/2 |w − centre|²."""
        return site.f.grad(w) + site.penalty.by_gradient.subgradient(w) + self.pull * (w - centre)

    def mean(self, z: Array, hub: Hub) -> Array:
        w = hub.mean(z)
        return w if hub.penalty.smooth else hub.penalty.prox(w, self.length(hub.k))

    def length(self, k: int) -> float:
        """The steps of round k, added up."""
        return self.step * self.local_steps


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term."""

    pull: float = 0.1

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvg with a proximal term in the local steps"
    paper: ClassVar[str] = "Li et al. 2020"


@dataclass(frozen=True)
class DPFedAvg(FedAvg):
    """FedAvg with the fields of a client-level run, to be used with ``Proven(unit="client")``."""

    local_steps: int = 5

    name: ClassVar[str] = "dp-fedavg"
    summary: ClassVar[str] = "FedAvg for client-level privacy: clipped, noisy uploads under Proven(unit='client')"
    paper: ClassVar[str] = "McMahan et al. 2018"


@dataclass(frozen=True)
class SFedAvg(FedAvg):
    """Algorithm 3 with (35).

    Parameters
    ----------
    inner
        Gradient steps in each local step.
    by_size
        Whether steps are proportional to a client's number of records (38).
    mu
        μ_{i,0} of the published noise (39).
    """

    step: float = 2.0
    local_steps: int = 12
    inner: int = 1
    by_size: bool = True
    mu: float = 0.05

    name: ClassVar[str] = "sfedavg"
    summary: ClassVar[str] = "secured FedAvg: shrinking local steps, noisy upload"
    paper: ClassVar[str] = "Zhou and Li 2022, Algorithm 3"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "published", "proven"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check.whole(type(self).__name__, inner=self.inner)
        check.positive(type(self).__name__, mu=self.mu)

    def asks(self) -> Asks:
        return Asks(answers=self.local_steps * self.inner, batch=self.batch)

    def check(self, penalty: Penalty) -> None:
        if self.by_size and not penalty.smooth:
            who, kind = type(self).__name__, type(penalty).__name__
            raise InvalidInput(f"{who}: the prox of {kind} needs one step size for all clients; use by_size=False")

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        w = before = down.w
        first = None
        for gamma in self.steps(site.k):
            before = w
            for _ in range(self.inner):
                slope = self.slope(w, down.w, site)
                first = slope if first is None else first
                w = w - gamma * (site.f.size if self.by_size else 1.0) * slope  # (35), (36) by Algorithm 4
        assert first is not None
        mu = growing_mu(self.mu, FedEPM.c, FedEPM.alpha, site.k * self.local_steps, square(before - down.w))
        return state, Up(site.release(w, laplace_noise(39, first, mu, site), centre=down.w))  # (37)

    def steps(self, k: int) -> list[float]:
        """γ_i^k / d_i of (38) in round k; the ceiling of the first step is that of the round before."""
        rounds = [k - 1] + [k] * (self.local_steps - 1)
        return [self.step / sqrt(2 * self.local_steps + past) for past in rounds]

    def length(self, k: int) -> float:
        return self.inner * sum(self.steps(k))


@dataclass(frozen=True)
class SFedProx(SFedAvg):
    """Algorithm 3 with (36), solved by Algorithm 4."""

    pull: float = 1e-5
    inner: int = 3

    name: ClassVar[str] = "sfedprox"
    summary: ClassVar[str] = "secured FedProx: shrinking local steps, noisy upload"
    paper: ClassVar[str] = "Zhou and Li 2022, Algorithms 3 and 4"
