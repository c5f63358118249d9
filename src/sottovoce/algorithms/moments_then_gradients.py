"""Moments first, then preconditioned noisy gradients: ours. For budgets that are large beside the noise.

    symbol   here                  meaning
    b, G, κ, c, λ                  as in `moments.py`
    P        Server.P              preconditioner, the inverse of the quadratic's curvature
    w        Server.w              model
    g_i      Up.g                  client i's noisy gradient at w
    f        share                 share of the budget (of μ²) that the moments get
    T_0      average_from          the first round whose model enters the average

The method:

    round 1     (1)  moments as in `moments.py`, with κ² = B²/2: they cost no more than a gradient
                (2)  P ← (c (G₊ + λ) + r'')⁻¹;  w ← P b
    round k     (3)  client i sends g_i, its clipped noisy gradient at w
                (4)  w ← w − P (mean of the g_i + ∇r(w))
    answer      (5)  the mean of the w of rounds T_0, ..., T

Privacy. The budget adds up in μ²: f μ² for the moments and (1 − f) μ² for the gradients together (`Asks`). All else is
post-processing.

Standard errors. To first order, noise of round 1 moves the model by P (δb − c δG w), and that of a later round by
−P (ξ + c δG Δ), Δ the step of that round: P carries the noise of round 1 into every step. From then on each round
keeps a factor M = 1 − θ (1 − cλ p) of it along an eigenvector of P with eigenvalue p, if the objective has θ times the
curvature of the quadratic there. So of the noise of round k the share α_k is in the answer, the mean over rounds T_0 to
T of M^(t − k). δG meets Σ α_k Δ_k, for which α_1 w_1 + ᾱ (w − w_1) is taken, with ᾱ the mean of the later α_k. A loss
bends less at larger margins, and not at all where slopes are clipped, so θ is below 1, and not known: it is taken as
1/10, which is a logistic loss's at margins of 3.6. Where it bends more, noise is taken back faster and the errors are
too large; at larger margins everywhere they would be too small.

Departures
----------
There is no paper. Only smooth penalties: (4) has no prox in the metric of P.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.algorithms.corrected_steps import needs_smooth
from sottovoce.algorithms.dp_sgd import Down
from sottovoce.algorithms.moments import Moments, moments_width
from sottovoce.algorithms.noisy_gd import NoisyGD
from sottovoce.core.check import Fraction, Positive, WholeOrZero
from sottovoce.core.contract import Array, Arrays, Asks, Hub, KnownNoise, Nothing, Part, Penalty, Site
from sottovoce.core.shapes import DIM, widths

_LEAST_BEND = 0.1  # θ


class Server(Arrays):
    w: Array
    start: Array  # the model after round 1
    P: Array
    mean: Array
    averaged: Array
    done: Array


class Up(Arrays):
    m: Array = widths(0, moments_width)
    g: Array = widths(0, DIM)


@dataclass(frozen=True)
class MomentsThenGradients(Moments):
    """A start and a preconditioner from noisy moments, then noisy gradient steps.

    Parameters
    ----------
    share
        Share of the budget for the moments.
    average_from
        The answer is the mean of the models from this round on; 0: the last model.
    kappa, ridge, curvature, outputs, slope_bound
        As in `Moments`.
    """

    kappa: Positive = 0.125**0.5
    share: Fraction = 0.1
    average_from: WholeOrZero = 0

    name = "moments-then-gradients"
    summary = "noisy moments, then preconditioned noisy gradients"
    down = Down
    up = Up

    def asks(self) -> Asks:
        first = Part("moments", last=1, share=self.share, kappa=self.kappa, slope_bound=self.slope_bound)
        return Asks((first, Part("gradient", first=2, share=1 - self.share)))

    def check(self, penalty: Penalty) -> None:
        needs_smooth(type(self).__name__, penalty, "Or use moments")

    def init_server(self, hub: Hub) -> Server:  # type: ignore[override]
        columns = hub.zeros.shape[-1] // self.outputs
        one = hub.zeros[..., :1].copy()
        P = np.broadcast_to(np.eye(columns).reshape(1, -1), (*hub.zeros.shape[:-1], columns**2)).copy()
        return Server(hub.zeros.copy(), hub.zeros.copy(), P, hub.zeros.copy(), one, one.copy())

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:  # type: ignore[override]
        nothing = site.zeros[..., :0]
        if site.k == 1:
            return state, Up(site.release(site.f.moments(self.kappa, self.slope_bound), centre=0.0), nothing)  # (1)
        return state, Up(nothing, site.release(site.f.grad(down.w), centre=site.zeros))  # (3)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:  # type: ignore[override]
        columns = hub.zeros.shape[-1] // self.outputs
        P = server.P.reshape(*server.P.shape[:-1], columns, columns)
        if up.m.shape[-1]:
            curve, first = self.quadratic(hub.mean(up.m), hub.zeros.shape[-1])
            curvatures = hub.penalty.curvatures(columns)
            bend = np.full(columns, hub.penalty.curvature) if curvatures is None else curvatures
            P = np.linalg.inv(curve + np.diag(bend))  # (2)
            moved = self._applied(P, first)
        else:
            moved = -self._applied(P, hub.mean(up.g) + hub.penalty.subgradient(server.w))  # (4)
        w = hub.if_any(server.w + moved, server.w)
        start = w if up.m.shape[-1] else server.start
        P = hub.if_any(P.reshape(*server.P.shape), server.P)
        counts = float(0 < self.average_from <= hub.k)
        averaged = server.averaged + counts
        mean = server.mean + counts * (w - server.mean) / np.maximum(averaged, 1)  # (5)
        return Server(w, start, P, mean, averaged, server.done + 1)

    def _applied(self, P: Array, vector: Array) -> Array:
        """P times each block of a vector."""
        blocks = vector.reshape(*vector.shape[:-1], self.outputs, P.shape[-1])
        return (blocks @ P).reshape(vector.shape)

    def standard_errors(self, server: Server, noise: KnownNoise) -> Array | None:  # type: ignore[override]
        columns = server.w.shape[-1] // self.outputs
        blocks = (*server.w.shape[:-1], self.outputs, columns)
        if noise.rounds < 2:
            return None
        p, U = np.linalg.eigh(server.P.reshape(*server.P.shape[:-1], columns, columns))
        bend = _LEAST_BEND * (1 - self.curvature * self.ridge * p)  # 1 − M
        alpha = NoisyGD(1.0, average_from=self.average_from).weights(bend, noise.rounds)
        of_first, of_gradient = (noise.deviation * noise.row_bound) ** 2, noise.later**2
        of_gram = (self.curvature * noise.deviation * noise.row_bound**2 / self.kappa) ** 2 / 2
        along = of_first * np.square(alpha[0]) + of_gradient * np.square(alpha[1:]).sum(axis=0)
        start, answer = server.start.reshape(blocks), self.model(server).reshape(blocks)
        early, late = alpha[0][..., None, :, None], alpha[1:].mean(axis=0)[..., None, :, None]
        met = early * start[..., None, :] + late * (answer - start)[..., None, :]  # by δG, along each eigenvector
        across = np.einsum("...ci,...ojc->...oij", U, met)
        moved = (U * p[..., None, :])[..., None, :, :]
        lengths = along[..., None, :] + of_gram * np.square(met).sum(axis=-1)
        variance = (np.square(moved) @ lengths[..., None])[..., 0]
        variance += of_gram * ((moved @ (across * np.swapaxes(across, -1, -2))) * moved).sum(axis=-1)
        return np.sqrt(variance).reshape(server.w.shape)

    def model(self, server: Server) -> Array:  # type: ignore[override]
        return np.where(server.averaged > 0, server.mean, server.w)

    def stop(self, server: Server) -> str:  # type: ignore[override]
        return ""
