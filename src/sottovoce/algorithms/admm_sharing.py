"""ADMM sharing: parties with different columns of the same samples, all updating in parallel.

"Learning Privately over Distributed Features: An ADMM Sharing Approach", Algorithm 1 and its private form (16).

    symbol          here                      meaning
    D_m, x_m        behind `site.f`           a party's columns and its part of the model, which it never sends
    D_m x_m         Up.r, Client.r, Server.r  a party's scores, one value per sample
    z, y            Server.z, .y, Down.y      the auxiliary scores and the dual variable
    Σ_k D_k x_k − z Down.excess
    ρ               rho, Server.rho           penalty parameter
    l, L            hub.labels                data term, Lipschitz constant of its gradient
    λ R_m           penalty                   each party's share of the regulariser
    b_1             b1                        bound on |x|, |y|, |z| (Assumption 2); only Published noise uses it
    C, σ            `paper_noise.sharing_*`   Lemma 1, Theorem 3

Departures from the paper
-------------------------
* (1) is printed with and without 1/N. Here `Objective.scale` decides: "mean" puts 1/N before the sum, so L is the
  loss's curvature / N, and rho is N times smaller than for "sum".
* Parallel updates. Lemma 3 has the wrong sign: the left side of (21) is |Σ δ_m|² − Σ |δ_m|², which can be as large as
  (M − 1) Σ |δ_m|², and Lemma 4 then drops the factor ρ/2. So Theorem 1 does not follow from Assumption 1.2(b): with
  equal columns in every party the plain iteration diverges for L/ρ > 2/(3M − 4). A proximal term ρ τ/2 |D_m (x −
  x_m^t)|² in (6) repairs it. It needs only the released D_m x_m^t and turns the target into (ρ u + ρ τ D_m x_m^t)/(ρ +
  ρ τ). With c = 1 + τ the x-step changes the Lagrangian by at most ρ/2 (|Σ δ_m|² − 2c Σ |δ_m|²) <= ρ/2 (M − 2c) Σ
  |δ_m|², so c >= M/2 and 1.2(c) make it fall, and the rest of the proof holds, for non-convex l too. For convex l,
  c >= M is enough for any ρ > 0 (proximal ADMM with a positive matrix). `proximal="auto"` takes the smaller τ that
  applies; for one or two parties and ρ from the rule that is 0, the paper's (6).
* `rho="auto"` is 2L for convex l: it satisfies 1.2(c), ρ γ(ρ) > 2L² and ρ >= L, where γ(ρ) = ρ. If l is not convex but
  l + κ/2 |·|² is, it is 2L + κ, as γ(ρ) = ρ − κ. With `balance`, residual balancing changes ρ in the first rounds.
* In (6) a party uses released scores, also its own: in (16) only those of the others are released ones. So the target
  is public, and a party's model is a function of it.
* If a party does not answer, its last scores count. In the paper everyone answers in every round.
* `Published` noise needs D'D to be invertible. If a party's columns are linearly dependent, directions in the null
  space get no noise.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.core.check import NonNegative, Positive, WholeOrZero, require
from sottovoce.core.contract import Array, Arrays, Asks, Hub, Kept, LabelOracle, Site, VerticalAlgorithm
from sottovoce.core.shapes import widths
from sottovoce.privacy import paper_noise

MOST_APART = 10  # residual balancing changes ρ when one residual is more than this many times the other
BALANCE_EVERY = 5  # rounds


class Server(Arrays):
    r: Array  # every party's last released scores
    z: Array
    y: Array
    rho: Array
    primal: Array  # primal residual |Σ r − z|
    dual: Array  # largest dual residual of a party, without the factor D_m'
    size: Array  # length of Σ r or y, whichever is larger: residuals are relative to it


class Client(Arrays):
    r: Array  # its released scores
    target: Array  # what its model was last fitted to, and with which weight and noise and in which round
    rho: Array
    noise: Array
    k: Array


class Down(Arrays):
    excess: Array
    y: Array
    rho: Array = widths(1)
    weight: Array = widths(1)  # c = 1 + τ
    parties: Array = widths(1)


class Up(Arrays):
    r: Array


@dataclass(frozen=True)
class ADMMSharing(VerticalAlgorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    rho
        Penalty parameter. "auto": 2L (more if l is not convex), from public numbers alone.
    proximal
        τ, the proximal term's weight in units of ρ. "auto": the least that makes parallel updates safe.
    balance
        In the first so many rounds, every fifth round doubles or halves ρ if one residual is ten times the other.
    tol
        Stop when both residuals, relative to scores and duals, are at most this. 0: never.
    b1
        `Published` only: the bound on |x|, |y| and |z| that Lemma 1 assumes.
    """

    rho: Positive | Literal["auto"] = "auto"
    proximal: NonNegative | Literal["auto"] = "auto"
    balance: WholeOrZero = 0
    tol: NonNegative = 0.0
    b1: Positive = 1.0

    name = "admm-sharing"
    summary = "columns split between parties: ADMM on the sum of their scores"
    paper = "Learning Privately over Distributed Features, Algorithm 1"
    modes = frozenset({"none", "published", "proven"})
    not_summed = "columns are split, and sums are proved for rows"

    def asks(self) -> Asks:
        return Asks.every_round(kind="fit")

    def init_server(self, hub: Hub) -> Server:
        labels = _labels(hub)
        zero, one = hub.zeros, hub.zeros[..., :1]
        r, start = np.repeat(zero, hub.n, axis=-2), np.full_like(one, np.inf)
        return Server(r, zero.copy(), zero.copy(), one + self.first_rho(labels), start, start, one.copy())

    def init_client(self, site: Site) -> Client:
        zero, one = site.zeros, site.zeros[..., :1]
        return Client(zero, zero, one + 1.0, one, one)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        excess = _total(server.r) - server.z  # line 12
        weight = 1.0 + self.tau(server.rho, hub)
        return Down(excess, server.y, server.rho, weight, np.full_like(server.rho, float(hub.n)))

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        others = down.excess - state.r  # lines 3, 4: Σ_{k≠m} D_k x_k − z
        tau = down.weight - 1.0
        target = (-others - down.y / down.rho + tau * state.r) / down.weight
        rho = np.broadcast_to(down.rho * down.weight, (*target.shape[:-1], 1))
        noise = np.broadcast_to(self.noise(down, site), rho.shape)
        r = site.release(site.f.fit(target, rho, noise))  # (6), line 6; (16)
        return Client(r, target, rho.copy(), noise.copy(), np.full(rho.shape, float(site.k))), Up(r)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        labels, rho = _labels(hub), server.rho
        r = hub.fresh(up.r, server.r)
        total = _total(r)
        z = labels.prox(total + server.y / rho, rho)  # (7)
        y = server.y + rho * (total - z)  # (8)
        # What is left of the optimality condition of (6) at the new point, without the factor D_m'.
        moved, weight = r - server.r, 1.0 + self.tau(rho, hub)
        left = rho * (weight * moved - _total(moved) + (z - server.z))
        primal, dual = _norm(total - z), _norm(left).max(axis=-2, keepdims=True)
        size = np.maximum(_norm(total), _norm(y) / rho)
        balance = hub.k <= self.balance and hub.k % BALANCE_EVERY == 0
        new_rho = balanced(rho, primal, dual, labels) if balance else rho
        return Server(r, z, y, new_rho, primal, dual / rho, size)

    def model(self, server: Server) -> Array:
        return _total(server.r)

    def kept(self, state: Client) -> Kept:
        return Kept(target=state.target, rho=state.rho, noise=state.noise, k=state.k)

    def stop(self, server: Server) -> str:
        worst = np.maximum(server.primal, server.dual)
        if self.tol > 0 and bool((worst <= self.tol * server.size).all()):
            return f"primal and dual residuals are at most {self.tol:g} of the scores and duals"
        return ""

    def first_rho(self, labels: LabelOracle) -> float:
        """`rho`, or for "auto" 2L (plus κ if l is not convex)."""
        rho = 2.0 * labels.smoothness - min(labels.strong, 0.0) if self.rho == "auto" else self.rho
        rule = f"(7) must be strongly convex: rho must exceed {-labels.strong:g} here"
        require(rho + labels.strong > 0, "ADMMSharing", rule, rho)
        return rho

    def tau(self, rho: Array, hub: Hub) -> Array:
        """`proximal`, or for "auto" the least τ that makes parallel updates safe."""
        if self.proximal != "auto":
            return np.full_like(rho, self.proximal)
        return np.where(meets_assumption(rho, _labels(hub)), max(0.0, hub.n / 2 - 1), hub.n - 1.0)

    def noise(self, down: Down, site: Site) -> Array | float:
        """σ of Theorem 3, the scale of `Published` noise; 0 in the other modes."""
        if site.claim is None:
            return np.zeros((1, 1))
        rule = "Lemma 1 needs a penalty with a second derivative"
        require(site.penalty.smooth, "ADMMSharing", rule, hint="Use L2, or another mode")
        rho, bend = down.rho * down.weight, site.penalty.curvature  # λ c_1
        c = paper_noise.sharing_sensitivity(site.f.width, rho, 1.0, bend, down.parties, self.b1)  # Lemma 1
        return paper_noise.sharing_sigma(c, site.claim.epsilon, site.claim.delta)  # Theorem 3


def meets_assumption(rho: Array, labels: LabelOracle) -> Array:
    """Assumption 1.2(c): ρ γ(ρ) > 2L² and ρ >= L, where γ(ρ) = ρ + the strong convexity of l."""
    return (rho * (rho + min(labels.strong, 0.0)) > 2 * labels.smoothness**2) & (rho >= labels.smoothness)


def balanced(rho: Array, primal: Array, dual: Array, labels: LabelOracle) -> Array:
    """Residual balancing (Boyd et al. 2011, 3.4.1); ρ never falls to where (7) stops being strongly convex."""
    lower = np.where(dual > MOST_APART * primal * rho, rho / 2, rho)
    new = np.where(primal * rho > MOST_APART * dual, 2 * rho, lower)
    return np.where(new + labels.strong > 0, new, rho)


def _labels(hub: Hub) -> LabelOracle:
    assert hub.labels is not None
    return hub.labels


def _total(r: Array) -> Array:
    return r.sum(axis=-2, keepdims=True)


def _norm(v: Array) -> Array:
    return np.linalg.norm(v, axis=-1, keepdims=True)
