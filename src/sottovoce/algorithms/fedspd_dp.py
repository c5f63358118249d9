"""FedSPD-DP: a primal-dual method with several local proximal (stochastic) gradient steps a round.

Li, Wang, Chang and Chi, "Federated Stochastic Primal-dual Learning with Differential Privacy" (2022), Algorithm 1.

    symbol            here                     meaning
    x_0               Down.x                   global model
    x_i^{t,Q}, λ_i    Client.x, Client.lam     last inner iterate, dual variable of x_i = x_0
    x_i^t             mean                     average of a round's inner iterates (13b)
    ỹ_i               Up.y, Server.y           noisy x_i − λ_i/ρ; the server keeps everyone's last one
    R_i               penalty                  regulariser: every client takes the prox of the whole of it
    ρ, γ_i^t          rho, inverse_step(site)  penalty parameter, inverse step size (26)
    Q, b              local_steps, batch       inner steps a round, records in a batch
    p_i               client_rate              chance that a client takes part in a round
    G, d              f.gradient_bound, f.dim  bound on |∇f_i|, number of coordinates
    d_X, d_λ, φ       d_x, d_lambda, phi       diameters of the primal and dual domain, deviation of one gradient
    σ_{i,t}           paper_noise.fedspd_sigma published noise (20)
    q_i               data_rate(sizes)         chance that a record is drawn (22)
    ε̄, ε              claimed_total, epsilon_of_round   loss of the whole run (21), of a round (36)

Departures from the paper
-------------------------
* Inner iterates are x^{t,0}, .., x^{t,Q} with x^{t,0} = x^{t−1,Q}; (13b) is the mean of the Q new iterates of a round.
  The printed indices are shifted by one. (9a) lacks the 1/N that line 5 has.
* γ is (26)-(27) as printed, although (69) drops a Q² of (20), and with the numbers of section V (K = 20, ε = 1) their
  condition ρ >= √γ fails from the second round on. Without noise, the term of the noise is left out. `Proven` noise
  counts as part of a gradient's variance, φ²/b; so it does in variant "P", although no gradient is noisy there, as it
  only sets a step size. Only a constant `gamma` reaches the optimum.
* Every inner step draws a new batch without replacement, while (22) assumes that the batches of a round are disjoint.
  Sampling with replacement is not offered, only its claim (`replacement`), because it leaks more than Remark 2 says,
  not less: a record that is drawn twice counts twice. A run with that setting is reported to break the claim.
* For scale "sum" G bounds the gradients of m_i records together: m_i times as much.
* A constraint (box, ball) holds for the clients' x_i, and for x_0 only in the limit: the model is x_0 projected.
* `Proven`: the paper's noise does not protect the hidden x_i and λ_i. Variant "G" adds noise to every gradient instead,
  and changes nothing else. Variant "P" adds noise to x_i^t, and x_i and λ_i continue from what was released:
  x_i^{t+1,0} = x̃_i^t, λ_i^t = λ_i^{t−1} − ρ(x̃_i^t − x_0^t). Both are functions of ỹ_i = 2x̃_i^t − λ_i^{t−1}/ρ − x_0^t.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.algorithms.published import needs_paper_variant
from sottovoce.core.check import Interval, NonNegative, Positive, Whole, require
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Noise, ProxSteps, Site, of_each_client
from sottovoce.privacy import paper_noise
from sottovoce.privacy.batches import batch_rates


class Server(Arrays):
    x: Array
    y: Array = of_each_client()  # its last message


class Client(Arrays):
    x: Array
    lam: Array


class Down(Arrays):
    x: Array


class Up(Arrays):
    y: Array


@dataclass(frozen=True)
class FedSPDDP(Algorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    rho
        Penalty parameter.
    gamma
        Inverse step size. None: it grows as in (26), from the constants below. A constant should exceed half the
        smoothness of f.
    local_steps
        Inner steps a round, Q.
    batch
        Records each of them draws: a number, a share of them if < 1, or 0 for all.
    client_rate
        Chance p that a client takes part in a round, K/N for K of N. It is used in (26), (21) and (36) only, and does
        not decide who takes part.
    d_x, d_lambda, phi
        Constants of (26)-(27).
    replacement
        Whether the paper's claim (22) is read for batches drawn with replacement. Batches are drawn without it.
    variant
        Where `Proven` adds noise: "G" to every gradient, "P" to the average of a round. `Published` needs "G".
    """

    rho: Positive = 20.0
    gamma: Positive | None = None
    local_steps: Whole = 5
    batch: NonNegative = 0
    client_rate: Annotated[float, Interval(0, 1, closed=("high",))] = 1.0
    d_x: Positive = 1.0
    d_lambda: Positive = 1.0
    phi: NonNegative = 1.0
    replacement: bool = False
    variant: Literal["G", "P"] = "G"

    name = "fedspd-dp"
    summary = "primal-dual method with several local proximal gradient steps"
    paper = "Li et al. 2022"
    modes = frozenset({"none", "published", "proven"})
    not_summed = "each client keeps a dual and a model of its own"

    def asks(self) -> Asks:
        if self.variant == "P":
            return Asks.every_round(kind="prox-steps", batch=self.batch)
        return Asks.every_round(answers=self.local_steps, batch=self.batch)

    def claim_terms(self, sizes: Array, rounds: int) -> dict[str, object]:
        unmet = ("it is for batches drawn with replacement, these were not",) * self.replacement
        terms: dict[str, object] = {"data_rate": None, "client_rate": self.client_rate, "unmet": unmet}
        if self.replacement or np.all(self.local_steps * batch_rates(self.batch, sizes, whole=True) < 1):
            return terms | {"data_rate": self.data_rate(sizes)}
        return terms  # (22) has no q < 1 then, and (21) no total

    def data_rate(self, sizes: ArrayLike) -> float:
        """Chance q that a record is drawn in a round (22)-(23); of clients of unequal sizes, the largest one counts."""
        m = np.atleast_1d(np.asarray(sizes))
        drawn = np.rint(batch_rates(self.batch, m, whole=True) * m).astype(int)
        pairs = zip(drawn.tolist(), m.tolist(), strict=True)
        return max(paper_noise.fedspd_data_rate(self.local_steps, b, size, self.replacement) for b, size in pairs)

    def claimed_total(self, epsilon: float, rounds: int, sizes: ArrayLike) -> float:
        """The epsilon that the paper claims for the whole run, from that of one round (21)."""
        return paper_noise.fedspd_total(epsilon, rounds, self.data_rate(sizes), self.client_rate)

    def epsilon_of_round(self, total: float, rounds: int, sizes: ArrayLike) -> float:
        """The epsilon of one round, `Published(epsilon=...)`, for a claimed total over the run (36)."""
        return paper_noise.fedspd_epsilon(total, rounds, self.data_rate(sizes), self.client_rate)

    def init_client(self, site: Site) -> Client:
        needs_paper_variant("FedSPDDP", self.variant, "G", site)
        return Client(site.zeros.copy(), site.zeros.copy())  # line 2

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.y.mean(axis=-2, keepdims=True))  # line 5

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        if self.variant == "P":
            return self.client_from_release(state, down, site)
        gamma, rho = self.inverse_step(site), self.rho
        push, curvature = rho * down.x + state.lam, rho + gamma
        x, total = state.x, 0.0  # line 9
        for _ in range(self.local_steps):
            x = site.penalty.prox((gamma * x + push - site.f.grad(x)) / curvature, 1 / curvature)  # (13a)
            total = total + x
        mean = total / self.local_steps  # (13b)
        lam = state.lam - rho * (mean - down.x)  # line 16
        y = site.release(mean - lam / rho, self.noise(site, gamma), centre=down.x)  # (14)
        return Client(x, lam), Up(y)

    def client_from_release(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        """Variant "P": the same round, but the client remembers only what it sent."""
        gamma, push = self.inverse_step(site), self.rho * down.x + state.lam
        keep, total = [gamma] * self.local_steps, [self.rho + gamma] * self.local_steps
        steps = ProxSteps(keep, total, push, 0.0, site.penalty, average=True)
        mean = site.f.prox_steps(state.x, steps)  # (13a), (13b)
        fixed = state.lam / self.rho + down.x
        y = site.release(2 * mean - fixed, centre=down.x)  # (14) with line 16 put in
        released = (y + fixed) / 2
        return Client(released, state.lam - self.rho * (released - down.x)), Up(y)  # line 16

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        y = hub.fresh(up.y, server.y)  # line 22
        x = y.mean(axis=-2, keepdims=True)
        return Server(x if hub.penalty.finite else hub.penalty.prox(x, 1.0), y)

    def inverse_step(self, site: Site) -> Array | float:
        """γ_i^t: `gamma`, or (26)."""
        if self.gamma is not None:
            return self.gamma
        slope = self.slope(site)
        rule = "the step sizes (26) need bounded gradients (a clip norm, or a loss of bounded slope)"
        hint = "Give gamma = a constant above half the smoothness of f"
        require(bool(np.isfinite(slope).all()), "FedSPDDP", rule, hint=hint)
        drawn = batch_rates(self.batch, site.f.size, whole=True) * site.f.size
        variance = self.phi**2 / drawn + site.f.dim * site.f.noise_std**2
        spread = slope**2 + 2 * self.d_lambda**2 + 2 * variance
        if site.claim is not None:
            factor = paper_noise.gaussian_factor(site.claim.epsilon, site.claim.delta)  # √(2 ln(1.25/δ))/ε
            noise = slope * factor / max(self.local_steps - 1, 1)
            spread = spread + 8 * self.rho * site.f.dim * noise**2  # (27), (29)
        return 2 * np.sqrt(self.local_steps * self.client_rate * spread * site.k) / self.d_x  # (26)

    def noise(self, site: Site, gamma: Array | float) -> Noise | None:
        """The noise that the paper adds to y_i."""
        if (claim := site.claim) is None:
            return None
        per_slope = paper_noise.fedspd_sigma(1.0, self.rho, gamma, self.local_steps, claim.epsilon, claim.delta)
        return Noise("gaussian", self.slope(site) * per_slope)  # (20)

    def slope(self, site: Site) -> Array:
        """G: bound on |∇f_i|."""
        return site.f.gradient_bound * site.f.weight * site.f.size
