"""FedEPM's step rule (20), its published noise (27) or (39), and the server's minimum (19).

SFedAvg and SFedProx, from the same paper, have the noise too.
"""

from math import exp, log, sqrt
from typing import Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Array, Noise, Penalty, Site
from sottovoce.privacy import paper_noise

C, ALPHA = 1e-8, 1.001  # how μ grows: c and α of section VII


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


def first_mu(mu: float | None, k0: int, site: Site) -> Array | float:
    """μ_{i,0}: `mu`, or that for which k0 steps along one gradient add up to one step that descends."""
    if mu is not None:
        return mu
    share = site.f.weight * site.f.size  # 1 for scale "mean"
    smoothness = site.f.curvature_bound * share + site.penalty.by_gradient.curvature
    if not np.isfinite(smoothness).all():
        raise check.InvalidInput(
            "FedEPM: without a public bound on row lengths give mu, about k0 times the smoothness of f; or "
            f"promise a bound ({check.ROW_BOUND})"
        )
    return k0 * smoothness


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
