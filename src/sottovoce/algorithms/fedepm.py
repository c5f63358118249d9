"""FedEPM: an elastic-net penalty keeps local models near the global one, without constraints or dual variables.

Zhou and Li, "Exact Penalty Method for Federated Learning" (2022), Algorithms 1 and 2.

    symbol             here                     meaning
    w^τ                Down.w                   global model
    w_i^k, z_i         Client.w, Up.z           a client's model; the noisy copy it uploads
    f_i                f, and r if smooth       a client's loss
    φ(x)               lam, eta                 λ|x|_1 + η/2 |x|², the penalty on w_i − w (8)
    k_0                k0                       local steps a round, all along one gradient
    μ_{i,k}            growing_mu(...)          μ_{i,0} (1 + c|w_i − w|²) α^k (20)
    ε_i                laplace_noise(...)       published noise (27) or (39)
    d_i                f.size                   records of a client
    m, n               hub.n, f.dim             number of clients, of coordinates

The server sorts the clients' messages, so this method cannot be used with secure aggregation.

Departures from the paper
-------------------------
* (13), (15): the sign before λ/η is +, and "let s* satisfy" may have no solution, because the minimiser can be one of
  the data points. `elastic_mean` is exact in all cases.
* A penalty r that is not smooth is a penalty on w: it is part of the sum that the server minimises in (19), exactly.
* ⌊k/k_0⌋ is the ceiling; k counts the steps of the whole training, and a client continues from its own last w_i.
* (20): as printed, μ does not depend on how many records a client has. The paper's figures need μ/d_i in the step (not
  in the noise): `by_size`. `FedEPM.as_in_paper` has that and the constants of section VII. If the μ_i differ (by size,
  by c, or for scale "sum"), w first follows Σ f_i/μ_i, and approaches the optimum only after some μ/(η k_0) rounds.
* μ_{i,0} = 0.05 and η of about 1e-5 suit the paper's features (columns of length one). Here μ_{i,0} is, unless given,
  k_0 times a bound on the smoothness of f_i, so that k_0 steps along one gradient are together one step that descends.
  The default of η is 0.01, for rows of length about one.
* λ: "exact" holds for the minimisers of (7), but the iteration also stops at any point that all clients share and where
  every |∇f_i|_∞ <= λ; the start can be such a point. With λ = 0 and α = 1 it reaches the optimum. With λ > 0 it comes
  near it, if λ is small compared with the gradients. With α > 1 the steps become shorter for ever.
* (25) integrates to 2: the noise is Lap(ν) with density exp(−|x|/ν)/2ν. (27) takes the largest change over the
  neighbours of the actual data: here it is 2√n times the bound on one record's gradient, over d_i. z_i^0 = 0 has no
  noise.
* The stopping rule of section VII reads f on private data. Here it reads past models: see `tolerance`.
* `Proven`: the paper's noise counts only one of the k_0 steps, and ignores that w_i itself is never noisy. Variant "G"
  adds noise to the one gradient of a round and changes nothing else. Variant "P" adds noise to w_i at the end of a
  round, and the next round starts from what was sent, where it also computes the |w_i − w| of μ, once.
"""

from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Annotated, Literal

import numpy as np

from sottovoce.algorithms.published import needs_paper_variant
from sottovoce.core import check
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Noise, Penalty, ProxSteps, Site
from sottovoce.privacy import paper_noise
from sottovoce.problems.penalties import L1, NoPenalty, shrink

C, ALPHA = 1e-8, 1.001  # how μ grows: c and α of section VII


class Server(Arrays):
    w: Array
    z: Array  # the last message of every client
    past: Array  # the three models before w


class Client(Arrays):
    w: Array


class Down(Arrays):
    w: Array


class Up(Arrays):
    z: Array


@dataclass(frozen=True)
class FedEPM(Algorithm[Server, Client, Down, Up]):
    """Algorithm 2.

    Parameters
    ----------
    eta, lam
        Weights of the square and of the absolute value in the penalty on w_i − w. lam None: eta/2, as in the paper.
    mu
        Inverse step size at the start. None: k0 times a bound on the smoothness, which must then be known.
    c, alpha
        How mu grows with the distance from the model and with every step.
    k0
        Local steps a round.
    by_size
        Whether a client divides mu in its steps by the number of its records.
    over
        Whose last messages the model (19) is computed from: those of "all" clients, as in the paper, or of those who
        just "uploaded", which misses the optimum unless everyone takes part.
    noise
        The published noise: equation 27, from a bound on gradients, or 39, from a client's own gradient.
    variant
        Where `Proven` adds noise: to the gradient ("G") or to the end of a round ("P").
    tolerance
        Stop when the last four models differ by less than this share of the last one's length. 0: never.
    """

    eta: check.Positive = 0.01
    lam: check.NonNegative | None = None
    mu: check.Positive | None = None
    c: check.NonNegative = C
    alpha: Annotated[float, check.Interval(1, closed=("low",))] = ALPHA
    k0: check.Whole = 12
    by_size: bool = False
    over: Literal["all", "uploaded"] = "all"
    noise: Literal[27, 39] = 39
    variant: Literal["G", "P"] = "G"
    tolerance: check.NonNegative = 0.0

    name = "fedepm"
    summary = "elastic-net penalty between models, several local steps along one gradient"
    paper = "Zhou and Li 2022"
    modes = frozenset({"none", "published", "proven"})
    not_summed = "its server sorts the messages of single clients"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.require(self.mu is not None or not self.by_size, "FedEPM", "by_size needs mu: give a number")

    @classmethod
    def as_in_paper(cls, clients: int, share: float, **fields: object) -> "FedEPM":
        """The constants of section VII, for `clients` clients of whom a `share` is drawn in a round."""
        eta = (0.02 * clients + 1) * (share + 0.1) * 1e-5
        return replace(cls(eta=eta, mu=0.05, by_size=True), **fields)

    @property
    def threshold(self) -> float:
        """λ."""
        return self.eta / 2 if self.lam is None else self.lam

    def asks(self) -> Asks:
        return Asks.every_round(kind="prox-steps") if self.variant == "P" else Asks.every_round()

    def check(self, penalty: Penalty) -> None:
        solved = self.threshold == 0 or penalty.separable
        rule = f"with {type(penalty).__name__} the model (19) has no closed form"
        check.require(solved, "FedEPM", rule, hint="Use lam=0")

    def init_server(self, hub: Hub) -> Server:
        everyone, three = np.repeat(hub.zeros, hub.n, axis=-2), np.repeat(hub.zeros, 3, axis=-2)
        return Server(hub.zeros.copy(), everyone, three)

    def init_client(self, site: Site) -> Client:
        needs_paper_variant("FedEPM", self.variant, "G", site)
        return Client(site.zeros.copy())

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        if self.variant == "P":
            return self.client_from_release(state, down, site)
        g = site.f.grad(down.w) + site.penalty.by_gradient.subgradient(down.w)  # (18)
        start, share = self.first_mu(site), self.share(site)
        mu, away = start, state.w - down.w
        for step in range(self.k0):
            mu = growing_mu(start, self.c, self.alpha, (site.k - 1) * self.k0 + step + 1, away)
            away = shrink(away, mu / share, g, self.threshold, self.eta + mu / share)  # (20)
        w = down.w + away
        return Client(w), Up(site.release(w, laplace_noise(self.noise, g, mu, site), centre=down.w))  # (21)

    def client_from_release(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        """Variant "P": the same round from a w_i that was released; in `Proven` mode its end is noisy."""
        start, away = self.first_mu(site), state.w - down.w
        first = growing_mu(start, self.c, self.alpha, (site.k - 1) * self.k0 + 1, away) / self.share(site)
        pulls = first * self.alpha ** np.arange(self.k0).reshape(-1, *(1,) * first.ndim)  # with |w_i − w| of the start
        h = L1(self.threshold) if self.threshold > 0 else NoPenalty()
        push = -site.penalty.by_gradient.subgradient(down.w)
        steps = ProxSteps(pulls, self.eta + pulls, push, down.w, h, fresh=False, at=down.w)
        z = site.release(site.f.prox_steps(state.w, steps), centre=down.w)  # (18), (20), (21)
        return Client(z), Up(z)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        z = hub.fresh(up.z, server.z)  # (22)
        among = None if self.over == "all" else hub.answered
        penalty = None if hub.penalty.smooth else hub.penalty
        w = elastic_mean(z, self.threshold, self.eta, penalty, among)  # (19)
        w = hub.if_any(w, server.w)
        return Server(w, z, np.concatenate([server.past[..., 1:, :], server.w], axis=-2))

    def stop(self, server: Server) -> str:
        moved = np.linalg.norm(server.w - server.past, axis=-1).max(axis=-1)
        if np.all(moved < self.tolerance * np.linalg.norm(server.w[..., 0, :], axis=-1)):
            return f"the last four models differ by less than {self.tolerance:g} of their length"
        return ""

    def first_mu(self, site: Site) -> Array | float:
        """μ_{i,0}: `mu`, or that for which k0 steps along one gradient add up to one step that descends."""
        if self.mu is not None:
            return self.mu
        smoothness = site.f.curvature_bound * (site.f.weight * site.f.size) + site.penalty.by_gradient.curvature
        rule = "without a public bound on row lengths give mu, about k0 times the smoothness of f"
        hint = f"Or promise a bound ({check.ROW_BOUND})"
        check.require(bool(np.isfinite(smoothness).all()), "FedEPM", rule, hint=hint)
        return self.k0 * smoothness

    def share(self, site: Site) -> Array | float:
        """What μ is divided by in a step."""
        return site.f.size if self.by_size else 1.0


def elastic_mean(a: Array, lam: float, eta: float, penalty: Penalty | None = None, among: Array | None = None) -> Array:
    """argmin over w of Σ_i (λ|a_i − w|_1 + η/2 |a_i − w|²) + m r(w), exactly: (..., m, n) to (..., 1, n).

    If s of the m numbers a_i are above w and none is equal to it, the condition for a minimum is w = w(s), with
    w(s) = prox_{r/η}(mean + (λ/η)(2s/m − 1)). In general the minimiser is the median of a_1..a_m, w(0)..w(m): let s of
    the a_i be above it and t equal to it. Then w(0)..w(s) and m − s of the a_i are at most it, which is m + 1 numbers;
    and w(s+t)..w(m) and s + t of the a_i are at least it, which is m + 1 numbers too. That needs r to be a sum over
    coordinates, or λ = 0.

    `among` (..., m, 1) of bool says which rows count. None: all of them.
    """
    rows = a.shape[-2]
    if among is None:
        m, mean, a = np.full((1, 1), rows), a.mean(axis=-2, keepdims=True), np.sort(a, axis=-2)
    else:
        m = among.sum(axis=-2, keepdims=True)
        mean = np.where(among, a, 0.0).sum(axis=-2, keepdims=True) / np.maximum(m, 1)
        # A row that does not count becomes one number above all others and one below, which does not move the median.
        a = np.sort(np.where(among, a, np.inf), axis=-2)
    s = np.arange(rows + 1)[:, None] - (rows - m)
    w = mean + lam / eta * (2 * s / np.maximum(m, 1) - 1)  # (15)
    w = w if penalty is None else penalty.prox(w, 1 / eta)
    w = w if among is None else np.where(s < 0, -np.inf, w)
    # Both lists are sorted. Take the i smallest of one and the rows + 1 − i smallest of the other: the largest of these
    # is at least the median, and for some i it is the median.
    return np.minimum(w[..., -1:, :], np.maximum(a, w[..., -2::-1, :]).min(axis=-2, keepdims=True))


def growing_mu(start: Array | float, c: float, alpha: float, k: int, away: Array) -> Array:
    """μ_{i,k} of (20), where `away` is w_i − w. It grows by at most 1e60: steps are 0 by then."""
    return start * (1 + c * np.vecdot(away, away)[..., None]) * exp(min(k * log(alpha), 138.0))


def laplace_noise(equation: Literal[27, 39], g: Array, mu: Array | float, site: Site) -> Noise | None:
    """What the paper adds to an upload after steps along g, the last of them with weight mu."""
    if site.claim is None:
        return None
    if equation == 39:
        size = np.abs(g).sum(axis=-1, keepdims=True)
        return Noise("laplace", paper_noise.fedepm_practical_scale(size, site.claim.epsilon, mu))
    change = 2 * sqrt(site.f.dim) * site.f.gradient_bound * site.f.weight  # at least (26)
    return Noise("laplace", paper_noise.fedepm_scale(change, site.claim.epsilon, mu))
