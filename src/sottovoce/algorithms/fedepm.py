"""FedEPM: clients are held together by an elastic net around the global model, not by equality or duals.

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

The server sorts the clients' messages, so this method does not go together with secure aggregation.

Departures from the paper
-------------------------
* (13), (15): the sign before λ/η is +, and "let s* satisfy" may have no solution, for the minimiser can sit on a data
  point: `ens` is exact in all cases.
* A penalty r that is not smooth belongs to w: it joins the sum that the server minimises in (19), exactly.
* ⌊k/k_0⌋ is the ceiling; k runs over the whole training, and a client goes on from its own last w_i.
* (20): as printed, μ does not know how many records a client has. The paper's figures need μ/d_i in the step (not in
  the noise): `by_size`. `FedEPM.as_in_paper` has that and the constants of section VII. Where μ_i differ (by size, by
  c, or for scale "sum"), w first follows Σ f_i/μ_i, and turns to the optimum only within some μ/(η k_0) rounds.
* μ_{i,0} = 0.05 and η of about 1e-5 suit the paper's features (columns of length one). Here μ_{i,0} is, unless given,
  k_0 times a bound on the smoothness of f_i, so that k_0 steps along one gradient add up to one that descends; and η is
  0.01, for rows of length about one.
* λ: "exact" holds for the minimisers of (7), but the iteration rests at any point that all clients share and where
  every |∇f_i|_∞ <= λ, the start included. With λ = 0 and α = 1 it reaches the optimum; with λ > 0 it comes near it,
  if λ is small next to the gradients. α > 1 shortens the steps for ever.
* (25) integrates to 2: the noise is Lap(ν) with density exp(−|x|/ν)/2ν. (27) takes the largest change over the
  neighbours of the data at hand: here 2√n times the bound on one record's gradient, over d_i. z_i^0 = 0 has no noise.
* The stopping rule of section VII reads f on private data. Here it reads past models: see `tolerance`.
* `Proven`: the paper's noise counts one of the k_0 steps and forgets that w_i is never noisy. Variant "G" has noise in
  the one gradient of a round, and everything else as it is. Variant "P" has noise on w_i at the end of a round; the
  next one starts from what was sent, with |w_i − w| in μ taken once, there.
"""

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Algorithm, Array, Asks, Hub, Noise, Penalty, ProxSteps, Site
from sottovoce.privacy import claims
from sottovoce.problems.penalties import L1, NoPenalty, shrink


@dataclass(frozen=True)
class Server:
    z: Array  # the last message of every client
    w: Array
    past: Array  # the three models before w


@dataclass(frozen=True)
class Client:
    w: Array


@dataclass(frozen=True)
class Down:
    w: Array


@dataclass(frozen=True)
class Up:
    z: Array


def ens(a: Array, lam: float, eta: float, penalty: Penalty | None = None, among: Array | None = None) -> Array:
    """argmin over w of Σ_i (λ|a_i − w|_1 + η/2 |a_i − w|²) + m r(w), exactly: (..., m, n) to (..., 1, n).

    Where s of the m numbers a_i lie above w and none at w, the condition for a minimum is w = w(s), with
    w(s) = prox_{r/η}(mean + (λ/η)(2s/m − 1)). In general the minimiser is the median of a_1..a_m, w(0)..w(m): let s of
    the a_i lie above it and t at it; then w(0)..w(s) and m − s of the a_i are at most it, m + 1 numbers together, and
    so are the w(s+t)..w(m) and s + t of the a_i at least it. That needs r to be a sum over coordinates, or λ = 0.

    `among` (..., m, 1) of bool leaves rows out.
    """
    rows = a.shape[-2]
    if among is None:
        m, mean, a = np.full((1, 1), rows), a.mean(axis=-2, keepdims=True), np.sort(a, axis=-2)
    else:
        m = among.sum(axis=-2, keepdims=True)
        mean = np.where(among, a, 0.0).sum(axis=-2, keepdims=True) / np.maximum(m, 1)
        # Rows left out become as many numbers above everything as below, which moves no median.
        a = np.sort(np.where(among, a, np.inf), axis=-2)
    s = np.arange(rows + 1)[:, None] - (rows - m)
    w = mean + lam / eta * (2 * s / np.maximum(m, 1) - 1)  # (15)
    w = w if penalty is None else penalty.prox(w, 1 / eta)
    w = w if among is None else np.where(s < 0, -np.inf, w)
    # Both lists are sorted. Of any i of the one and rows + 1 − i of the other, all counted from below, the larger of
    # the two last is at least the median; and for some i it is the median.
    return np.minimum(w[..., -1:, :], np.maximum(a, w[..., -2::-1, :]).min(axis=-2, keepdims=True))


def growing_mu(start: Array | float, c: float, alpha: float, k: int, distance_squared: Array) -> Array:
    """μ_{i,k} of (20), where |w_i − w|² is given. Its growth ends at 1e60: steps are 0 by then."""
    return start * (1 + c * distance_squared) * exp(min(k * log(alpha), 138.0))


def laplace_noise(equation: Literal[27, 39], g: Array, mu: Array, site: Site) -> Noise | None:
    """What the paper adds to an upload after steps along g with a last weight of mu."""
    if site.claim is None:
        return None
    if equation == 39:
        size = np.abs(g).sum(axis=-1, keepdims=True)
        return Noise("laplace", claims.fedepm_practical_scale(size, site.claim.epsilon, mu))
    change = 2 * sqrt(site.f.dim) * site.f.gradient_bound * site.f.weight  # at least (26)
    return Noise("laplace", claims.fedepm_scale(change, site.claim.epsilon, mu))


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
        Whose last messages make the model (19): those of "all", as in the paper, or of those who just "uploaded",
        which misses the optimum unless everyone takes part.
    noise
        The published noise: equation 27, from a bound on gradients, or 39, from a client's own gradient.
    variant
        Where `Proven` has its noise: in the gradient ("G") or on the end of a round ("P").
    tolerance
        Stop when the last four models differ by less than this share of the last one's length. 0: never.
    """

    eta: float = 0.01
    lam: float | None = None
    mu: float | None = None
    c: float = 1e-8
    alpha: float = 1.001
    k0: int = 12
    by_size: bool = False
    over: Literal["all", "uploaded"] = "all"
    noise: Literal[27, 39] = 39
    variant: Literal["G", "P"] = "G"
    tolerance: float = 0.0

    name: ClassVar[str] = "fedepm"
    summary: ClassVar[str] = "elastic-net penalty between models, several local steps along one gradient"
    paper: ClassVar[str] = "Zhou and Li 2022"
    down: ClassVar[type] = Down
    up: ClassVar[type] = Up

    def __post_init__(self) -> None:
        check.positive("FedEPM", eta=self.eta)
        check.non_negative("FedEPM", lam=self.lam or 0.0, c=self.c, tolerance=self.tolerance)
        if self.mu is not None:
            check.positive("FedEPM", mu=self.mu)
        check.require(self.alpha >= 1, "FedEPM", "alpha must be >= 1", self.alpha)
        check.whole("FedEPM", k0=self.k0)
        check.require(self.mu is not None or not self.by_size, "FedEPM", "by_size needs mu: give a number")
        check.one_of("FedEPM", "over", self.over, ("all", "uploaded"))
        check.require(self.noise in (27, 39), "FedEPM", f"noise must be 27 or 39, got {check.shown(self.noise)}")
        check.one_of("FedEPM", "variant", self.variant, ("G", "P"))

    @classmethod
    def as_in_paper(cls, clients: int, share: float, **fields: Any) -> "FedEPM":
        """The constants of section VII, for `clients` clients of whom a `share` is drawn in a round."""
        eta = (0.02 * clients + 1) * (share + 0.1) * 1e-5
        return cls(**({"eta": eta, "mu": 0.05, "by_size": True} | fields))

    @property
    def threshold(self) -> float:
        """λ."""
        return self.eta / 2 if self.lam is None else self.lam

    def asks(self) -> Asks:
        return Asks(kind="prox-steps") if self.variant == "P" else Asks()

    def check(self, penalty: Penalty) -> None:
        if self.threshold > 0 and not penalty.separable:
            raise InvalidInput(f"FedEPM: with {type(penalty).__name__} the model (19) has no closed form; use lam=0")

    def init_server(self, hub: Hub) -> Server:
        everyone, three = np.repeat(hub.zeros, hub.n, axis=-2), np.repeat(hub.zeros, 3, axis=-2)
        return Server(everyone, hub.zeros.copy(), three)

    def init_client(self, site: Site) -> Client:
        if self.variant == "P" and site.claim is not None:
            raise NoGuarantee("FedEPM: variant 'P' is not the paper's; Published needs variant='G'")
        return Client(site.zeros.copy())

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.w)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        if self.variant == "P":
            z = site.release(self.end_of_round(state.w, down.w, site), centre=down.w)
            return Client(z), Up(z)
        g = site.f.grad(down.w) + self.regular(down.w, site)  # (18)
        start = mu = self.first_mu(site)
        away = state.w - down.w
        for step in range(self.k0):
            mu = self.mu_in(step, start, square(away), site)  # that of the last step sets the noise
            pull = self.in_step(mu, site)
            away = shrink(away, pull, g, self.threshold, self.eta + pull)  # (20)
        w = down.w + away
        return Client(w), Up(site.release(w, laplace_noise(self.noise, g, mu, site), centre=down.w))  # (21)

    def end_of_round(self, w: Array, centre: Array, site: Site) -> Array:
        """Variant "P": the k_0 steps from a w that was released, their end noisy in `Proven` mode."""
        first = self.in_step(self.mu_in(0, self.first_mu(site), square(w - centre), site), site)
        pulls = first * self.alpha ** np.arange(self.k0).reshape(-1, *(1,) * first.ndim)  # |w_i − w| stays what it was
        h = L1(self.threshold) if self.threshold > 0 else NoPenalty()
        spec = ProxSteps(pulls, self.eta + pulls, -self.regular(centre, site), centre, h, fresh=False, at=centre)
        return site.f.prox_steps(w, spec)  # (20)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        z = hub.fresh(up.z, server.z)  # (22)
        among = None if self.over == "all" else hub.answered
        penalty = None if hub.penalty.smooth else hub.penalty
        w = ens(z, self.threshold, self.eta, penalty, among)  # (19)
        w = hub.if_any(w, server.w)
        return Server(z, w, np.concatenate([server.past[..., 1:, :], server.w], axis=-2))

    def model(self, server: Server) -> Array:
        return server.w

    def stop(self, server: Server) -> str:
        moved = np.linalg.norm(server.w - server.past, axis=-1).max(axis=-1)
        if np.all(moved < self.tolerance * np.linalg.norm(server.w[..., 0, :], axis=-1)):
            return f"the last four models differ by less than {self.tolerance:g} of their length"
        return ""

    def regular(self, w: Array, site: Site) -> Array:
        """The public part of ∇f_i."""
        return site.penalty.by_gradient.subgradient(w)

    def first_mu(self, site: Site) -> Array:
        """μ_{i,0}."""
        if self.mu is not None:
            return np.asarray(self.mu)
        share = site.f.weight * site.f.size  # 1 for scale "mean"
        bend = site.f.curvature_bound * share + site.penalty.by_gradient.curvature
        if not np.isfinite(bend).all():
            raise InvalidInput(
                "FedEPM: without a public bound on row lengths give mu, about k0 times the smoothness of f; or "
                f"promise a bound ({check.ROW_BOUND})"
            )
        return self.k0 * bend

    def mu_in(self, step: int, start: Array, distance_squared: Array, site: Site) -> Array:
        """μ_{i,k+1} in a step (from 0) of this round."""
        return growing_mu(start, self.c, self.alpha, (site.k - 1) * self.k0 + step + 1, distance_squared)

    def in_step(self, mu: Array, site: Site) -> Array:
        return mu / site.f.size if self.by_size else mu


def square(x: Array) -> Array:
    """|x|², client by client."""
    return np.vecdot(x, x)[..., None]
