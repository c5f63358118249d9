"""DP-ADMM: ADMM on a first-order approximation, with noise that shrinks as the step does; and what it is compared with.

Huang, Hu, Guo, Chan-Tin and Gong, "DP-ADMM: ADMM-based Distributed Learning with Differential Privacy", IEEE TIFS
15 (2020). Algorithm 1 is consensus ADMM with exact arg-mins (`ADMM`), Algorithm 2 perturbs its primal variable (`PVP`),
the paper's reference [17] its dual variable (`DVP`), and Algorithm 3 is DP-ADMM (`DPADMM`).

    symbol              here                      meaning
    w_i, w              Client.w, Down.w          local model (w̃_i: as it was released) and global model
    γ_i                 Client.gamma              dual variable of w_i = w
    ρ                   rho                       penalty parameter
    (λ/n) R             penalty                   each client's share of the regulariser
    m_i                 f.size                    records of a client
    c_1                 f.gradient_bound          bound on |∇l|; the clip norm
    c_3                 f.curvature_bound         bound on |∇²l|
    (λ/n)c_2, (λ/n)c_4  of `penalty`              bounds on the regulariser's subgradient and curvature
    η_i^k               step(site)                step size of round k, (29) or (34)
    σ_{i,k}             gradient_std / (ρ+1/η)    noise on the local model (14)
    c_w                 c_w                       a guess of |w*|
    d p                 f.dim                     number of coordinates

Departures from the paper
-------------------------
* The dual step (line 8, in Algorithm 3 line 10) needs w^k, so a client takes it when the next broadcast brings w^k.
* A client uploads v_i = w̃_i − γ_i/ρ instead of w̃_i and γ_i: the server needs no more (line 6), and one vector is
  half the bytes. The client computes w̃_i back from what it released, so both sides have the same value.
* If a client does not answer, its last message counts. In the paper everyone answers in every round.
* The server handles a regulariser that is not smooth, w = prox_{r/ρ}(mean v_i), so that a client's arg-min stays
  smooth. The paper does not say how it solves Algorithm 1 for the l1 norm.
* The square root in PVP's σ is printed too long; it should be 2 c_1 √(2 ln(1.25/δ)) / ((λ/n + ρ) m_i ε).
* The paper only cites DVP: here γ_i is perturbed by the Gaussian mechanism for the sensitivity 2 c_1/m_i of the
  gradient, and the exact arg-min is released. No proof is claimed for it.
* `Proven`: the oracle returns arg-mins and gradients with noise; nothing is added afterwards.

Of Algorithm 3 alone:

* Read as a matrix normal, "MN(0, σ²I, σ²I)" has entries of variance σ⁴; here they are N(0, σ²), as Theorem 1 needs.
* (29) and (34) contain the noise as 2c_1√(2 ln(1.25/δ))/(m_i ε), which is the noise σ_{i,k}(ρ+1/η) on the gradient.
  Written with that number, they can be used for `Proven` noise too, and without noise.
* In the paper c_w is |w*| from non-private training; here the user states a guess, which costs no privacy.
* c_2 is infinite for l2; then Theorem 3 is used on the ball |w| <= c_w. It only sets a step size.
* `penalty_at="server"` replaces the subgradient of R in (10a) by the server's prox: exact for l1, and the only choice
  for box and ball. "client" is the paper's (38a), (39a).
* For scale "sum" a record's weight is 1 instead of 1/m_i, in (14), (29) and (34).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.algorithms.published import gaussian_noise, gradient_change
from sottovoce.core.check import InvalidInput, Positive, require
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Noise, Penalty, Site, of_each_client


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

    name = "admm"
    summary = "consensus ADMM with exact local arg-mins"
    paper = "Huang et al. 2020, Algorithm 1"
    not_summed = "each client keeps a dual that is made of what it released"

    def asks(self) -> Asks:
        return Asks.every_round(kind="argmin")

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        gamma = state.gamma - self.rho * (state.w - down.w)  # line 8 of the round before
        noise = self.noise(site)
        v = site.release(self.primal(state.w, down.w, gamma, site) - gamma / self.rho, noise, centre=down.w)  # line 4
        return Client(v + gamma / self.rho, gamma), Up(v)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        v = hub.fresh(up.v, server.v)
        w = v.mean(axis=-2, keepdims=True)  # line 6
        return Server(w if self.at_client(hub.penalty) else hub.penalty.prox(w, 1 / self.rho), v)

    def at_client(self, penalty: Penalty) -> bool:
        """Whether the regulariser is part of the clients' arg-min (6)."""
        return penalty.ridge

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> Array:
        """argmin f_i(w) + (λ/n) R(w) − ⟨γ_i, w⟩ + ρ/2 |w − centre|² (6)."""
        ridge = site.penalty.strong if self.at_client(site.penalty) else 0.0
        return site.f.argmin(centre, self.rho, linear=-gamma, ridge=ridge, start=w)

    def noise(self, site: Site) -> Noise | None:
        """The noise that a paper adds to the arg-min; None: none."""
        return None


@dataclass(frozen=True)
class PVP(ADMM):
    """Algorithm 2: noise on the arg-min."""

    name = "pvp"
    summary = "ADMM with primal variable perturbation"
    paper = "Huang et al. 2020, Algorithm 2"
    modes = frozenset({"none", "published", "proven"})

    def noise(self, site: Site) -> Noise | None:
        strong = self.rho + (site.penalty.strong if self.at_client(site.penalty) else 0.0)
        return gaussian_noise(gradient_change(site) / strong, site)  # Lemma 4, line 5


@dataclass(frozen=True)
class DVP(ADMM):
    """Noise on the dual variable before an exact arg-min."""

    name = "dvp"
    summary = "ADMM with dual variable perturbation"
    paper = "Zhang and Zhu 2017, as cited by Huang et al. 2020"
    modes = frozenset({"none", "published"})

    def asks(self) -> Asks:
        return Asks.every_round(kind="argmin", releases=2)

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> Array:
        return super().primal(w, centre, site.release(gamma, gaussian_noise(gradient_change(site), site)), site)


@dataclass(frozen=True)
class DPADMM(ADMM):
    """Algorithm 3.

    Parameters
    ----------
    rho
        Penalty parameter.
    c_w
        Guess of the norm of the optimal model. It scales the step if there is noise, or no smoothness.
    theorem
        Which step size: 3 (convex, (29)) or 4 (convex and smooth, (34)). "auto": 4 if the penalty is smooth and a
        bound on the curvature is known, which in `Proven` mode needs a promised `row_bound`.
    penalty_at
        Where the regulariser is handled: "client" by a subgradient, as in the paper, or "server" by its prox.

    Examples
    --------
    >>> from sottovoce import DPADMM
    >>> DPADMM(rho=0.1, c_w=1000.0).name
    'dp-admm'
    >>> DPADMM(rho=-1.0)
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: DPADMM: rho must be > 0, got -1.0
    """

    c_w: Positive = 10.0
    theorem: Literal["auto", 3, 4] = "auto"
    penalty_at: Literal["client", "server"] = "client"

    name = "dp-admm"
    summary = "ADMM on a first-order approximation with noisy, shrinking steps"
    paper = "Huang et al. 2020, Algorithm 3"
    modes = frozenset({"none", "published", "proven"})

    def asks(self) -> Asks:
        return Asks.every_round()

    def check(self, penalty: Penalty) -> None:
        if self.penalty_at == "client" and not penalty.finite:
            kind = type(penalty).__name__
            raise InvalidInput(f"DPADMM: {kind} has no subgradient to step along; use penalty_at='server', its prox")

    def at_client(self, penalty: Penalty) -> bool:
        return self.penalty_at == "client"

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> Array:
        eta = self.step(site)
        # Where no term has a name, NumPy may add in place: with many clients one array more is much memory.
        return (-self.slope(w, site) + gamma + self.rho * centre + w / eta) / (self.rho + 1 / eta)  # (10a) by (12a)

    def slope(self, w: Array, site: Site) -> Array:
        """∇f_i(w) + (λ/n) R'(w), the latter if it is the clients' part."""
        if self.at_client(site.penalty):
            return site.f.grad(w) + site.penalty.subgradient(w)
        return site.f.grad(w)

    def noise(self, site: Site) -> Noise:
        return Noise("gaussian", self.gradient_std(site) / (self.rho + 1 / self.step(site)))  # (10b), (14)

    def gradient_std(self, site: Site) -> Array:
        """Standard deviation of the noise on the gradient: σ_{i,k} (ρ + 1/η)."""
        published = gaussian_noise(gradient_change(site), site)  # (14)
        return site.f.noise_std if published is None else np.asarray(published.scale)

    def step(self, site: Site) -> Array:
        """η_i^k of Theorem 3 or 4."""
        penalty, noise, dim, k = site.penalty, self.gradient_std(site), site.f.dim, max(site.k, 1)
        share = site.f.weight * site.f.size  # 1 for scale "mean"
        client = self.at_client(penalty)
        bend = site.f.curvature_bound * share + (penalty.curvature if client else 0.0)
        if self.theorem == 3 or (self.theorem == "auto" and not np.isfinite(bend).all()):
            # (λ/n) c_2: bound on the regulariser's subgradient, for a smooth one where |w| <= c_w
            steepest = penalty.curvature * self.c_w if penalty.smooth else penalty.subgradient_bound(dim)
            slope = site.f.gradient_bound * share + (steepest if client else 0.0)
            hint = "Use a loss of bounded slope with a row_bound, or Proven(unit='record'), which clips"
            require(bool(np.isfinite(slope).all()), "DPADMM", "theorem 3 needs bounded gradients", hint=hint)
            return self.c_w / np.sqrt(2 * k * (slope**2 + dim * noise**2))  # (29)
        rule = "theorem 4 needs a smooth penalty and a public bound on row lengths"
        hint = "Give the federation a row_bound (in a file: [data] row_bound), or use theorem=3"
        require(bool(np.isfinite(bend).all()), "DPADMM", rule, hint=hint)
        return 1 / (bend + noise * np.sqrt(2 * dim * k) / self.c_w)  # (34)
