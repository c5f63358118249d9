"""DP-ADMM: ADMM on a first-order approximation, with noise that shrinks as the step does.

Huang, Hu, Guo, Chan-Tin and Gong, "DP-ADMM: ADMM-based Distributed Learning with Differential Privacy", IEEE TIFS
15 (2020), Algorithm 3. Lines 8 and 10 (server and dual step) are those of Algorithm 1: see `admm.py`.

    symbol          here                      meaning
    w̃_i, w, γ_i     Client.w, Down.w, .gamma  released local model, global model, dual variable
    ρ               rho                       penalty parameter
    η_i^k           step(site)                step size of round k, (29) or (34)
    σ_{i,k}         gradient_std / (ρ+1/η)    noise on the local model (14)
    c_1             f.gradient_bound          bound on |∇l|; the clip norm
    (λ/n)c_2, (λ/n)c_4  of `penalty`          bounds on the regulariser's subgradient and curvature
    c_3             f.curvature_bound         bound on |∇²l|
    c_w             c_w                       a guess of |w*|
    d p             f.dim                     number of coordinates

Departures from the paper
-------------------------
* Those of `admm.py`: order of the dual step, one uploaded vector, clients that do not answer.
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
from typing import ClassVar, Literal

import numpy as np

from sottovoce.algorithms.admm import ADMM
from sottovoce.algorithms.published import gaussian_noise, gradient_change
from sottovoce.core.check import InvalidInput, Positive
from sottovoce.core.contract import Array, Asks, Mode, Noise, Penalty, Site


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

    name: ClassVar[str] = "dp-admm"
    summary: ClassVar[str] = "ADMM on a first-order approximation with noisy, shrinking steps"
    paper: ClassVar[str] = "Huang et al. 2020, Algorithm 3"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "published", "proven"})

    def asks(self) -> Asks:
        return Asks.every_round()

    def check(self, penalty: Penalty) -> None:
        if self.penalty_at == "client" and not penalty.finite:
            kind = type(penalty).__name__
            raise InvalidInput(f"DPADMM: {kind} has no subgradient to step along; use penalty_at='server', its prox")

    def at_client(self, penalty: Penalty) -> bool:
        return self.penalty_at == "client"

    def primal(self, w: Array, centre: Array, gamma: Array, site: Site) -> tuple[Array, Noise | None]:
        eta, of_penalty = self.step(site), site.penalty.subgradient(w) if self.at_client(site.penalty) else 0.0
        curvature = self.rho + 1 / eta
        new = (-site.f.grad(w) - of_penalty + gamma + self.rho * centre + w / eta) / curvature  # (10a) by (12a)
        return new, Noise("gaussian", self.gradient_std(site) / curvature)  # (10b), (14)

    def gradient_std(self, site: Site) -> Array | float:
        """Standard deviation of the noise on the gradient: σ_{i,k} (ρ + 1/η)."""
        published = gaussian_noise(gradient_change(site), site)  # (14)
        return site.f.noise_std if published is None else published.scale

    def step(self, site: Site) -> Array:
        """η_i^k of Theorem 3 or 4."""
        penalty, noise, dim, k = site.penalty, self.gradient_std(site), site.f.dim, max(site.k, 1)
        share = site.f.weight * site.f.size  # 1 for scale "mean"
        client = self.at_client(penalty)
        bend = site.f.curvature_bound * share + (penalty.curvature if client else 0.0)
        if self.theorem == 3 or (self.theorem == "auto" and not np.isfinite(bend).all()):
            slope = site.f.gradient_bound * share + (self.regular_bound(penalty, dim) if client else 0.0)
            if not np.isfinite(slope).all():
                raise InvalidInput(
                    "DPADMM: theorem 3 needs bounded gradients: a loss of bounded slope and a row_bound, or "
                    "Proven(unit='record'), which clips"
                )
            return self.c_w / np.sqrt(2 * k * (slope**2 + dim * noise**2))  # (29)
        if not np.isfinite(bend).all():
            raise InvalidInput(
                "DPADMM: theorem 4 needs a smooth penalty and a public bound on row lengths: give the federation a "
                "row_bound (in a file: [data] row_bound), or use theorem=3"
            )
        return 1 / (bend + noise * np.sqrt(2 * dim * k) / self.c_w)  # (34)

    def regular_bound(self, penalty: Penalty, dim: int) -> float:
        """(λ/n) c_2: bound on the regulariser's subgradient, for a smooth one where |w| <= c_w."""
        return penalty.curvature * self.c_w if penalty.smooth else penalty.subgradient_bound(dim)
