"""Consensus ADMM with exact arg-mins, plain and with perturbed primal (PVP) or dual (DVP) variables.

Algorithms 1 and 2 of Huang, Hu, Guo, Chan-Tin and Gong, "DP-ADMM: ADMM-based Distributed Learning with Differential
Privacy" (2020); DVP is from its reference [17]. Equation numbers are that paper's.

    symbol      here               meaning
    w_i, w      Client.w, Down.w   local and global model
    γ_i         Client.gamma       dual variable of w_i = w
    ρ           rho                penalty parameter
    (λ/n) R     penalty            each client's share of the regulariser
    c_1, m_i    f.gradient_bound, f.size

Departures from the paper
-------------------------
* The dual step (line 8) needs w^k, so a client takes it when the next broadcast brings w^k.
* A client uploads v_i = w̃_i − γ_i/ρ instead of w̃_i and γ_i: the server needs no more (line 6), and one vector is
  half the bytes. The client computes w̃_i back from what it released, so both sides have the same value.
* If a client does not answer, its last message counts. In the paper everyone answers in every round.
* The server handles a regulariser that is not smooth, w = prox_{r/ρ}(mean v_i), so that a client's arg-min stays
  smooth. The paper does not say how it solves Algorithm 1 for the l1 norm.
* The square root in PVP's σ is printed too long; it should be 2 c_1 √(2 ln(1.25/δ)) / ((λ/n + ρ) m_i ε).
* The paper only cites DVP: here γ_i is perturbed by the Gaussian mechanism for the sensitivity 2 c_1/m_i of the
  gradient, and the exact arg-min is released. No proof is claimed for it.
* `Proven`: the oracle returns the arg-min with noise; nothing is added afterwards.
"""

from dataclasses import dataclass
from typing import ClassVar

from sottovoce.algorithms.published import gaussian_noise, gradient_change
from sottovoce.core.check import Positive
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Mode, Noise, Penalty, Site, of_each_client


class Server(Arrays):
    w: Array
    v: Array = of_each_client()  # its last message


class Client(Arrays):
    w: Array
    gamma: Array


class Down(Arrays):
    w: Array


class Up(Arrays):
    v: Array


@dataclass(frozen=True)
class ADMM(Algorithm[Server, Client, Down, Up]):
    """Algorithm 1: the exact arg-min of the augmented Lagrangian."""

    rho: Positive = 0.1

    name: ClassVar[str] = "admm"
    summary: ClassVar[str] = "consensus ADMM with exact local arg-mins"
    paper: ClassVar[str] = "Huang et al. 2020, Algorithm 1"
    not_summed: ClassVar[str] = "each client keeps a dual that is made of what it released"

    def asks(self) -> Asks:
        return Asks.every_round(kind="argmin")

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        gamma = state.gamma - self.rho * (state.w - down.w)  # line 8 of the round before
        w, noise = self.primal(state.w, down.w, gamma, site)  # line 4
        v = site.release(w - gamma / self.rho, noise, centre=down.w)
        return Client(v + gamma / self.rho, gamma), Up(v)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        v = hub.fresh(up.v, server.v)
        w = v.mean(axis=-2, keepdims=True)  # line 6
        return Server(w if self.at_client(hub.penalty) else hub.penalty.prox(w, 1 / self.rho), v)

    def at_client(self, penalty: Penalty) -> bool:
        """Whether the regulariser is part of the clients' arg-min (6)."""
        return penalty.ridge

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> tuple[Array, Noise | None]:
        """argmin f_i(w) + (λ/n) R(w) − ⟨γ_i, w⟩ + ρ/2 |w − centre|² (6), and the noise that a paper adds to it."""
        return self.argmin(w, centre, gamma, site), None

    def argmin(self, start: Array, centre: Array, gamma: Array, site: Site) -> Array:
        ridge = site.penalty.strong if self.at_client(site.penalty) else 0.0
        return site.f.argmin(centre, self.rho, linear=-gamma, ridge=ridge, start=start)


@dataclass(frozen=True)
class PVP(ADMM):
    """Algorithm 2: noise on the arg-min."""

    name: ClassVar[str] = "pvp"
    summary: ClassVar[str] = "ADMM with primal variable perturbation"
    paper: ClassVar[str] = "Huang et al. 2020, Algorithm 2"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "published", "proven"})

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> tuple[Array, Noise | None]:
        strong = self.rho + (site.penalty.strong if self.at_client(site.penalty) else 0.0)
        change = gradient_change(site) / strong  # Lemma 4
        return self.argmin(w, centre, gamma, site), gaussian_noise(change, site)  # lines 4, 5


@dataclass(frozen=True)
class DVP(ADMM):
    """Noise on the dual variable before an exact arg-min."""

    name: ClassVar[str] = "dvp"
    summary: ClassVar[str] = "ADMM with dual variable perturbation"
    paper: ClassVar[str] = "Zhang and Zhu 2017, as cited by Huang et al. 2020"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "published"})

    def asks(self) -> Asks:
        return Asks.every_round(kind="argmin", releases=2)

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> tuple[Array, Noise | None]:
        gamma = site.release(gamma, gaussian_noise(gradient_change(site), site))
        return self.argmin(w, centre, gamma, site), None
