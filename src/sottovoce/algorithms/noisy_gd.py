"""Noisy gradient descent with momentum and averaged iterates: ours, with constants by rule (`sottovoce.rules`).

    symbol   here           meaning
    w        Server.w       model
    v        Server.v       velocity
    g_i      Up.g           client i's noisy gradient of f_i at w
    η        step           step size
    β        momentum       how much of the last velocity is kept
    T        rounds         of the run
    T_0      average_from   the first round whose model enters the average; 0: the answer is the last model

The method, one round:

    client i    (1)  g_i ← ∇f_i(w), clipped record by record, with noise;  sends g_i
    server      (2)  v ← β v − η mean of the g_i
                (3)  w ← prox_{η r}(w + v)
    answer      (4)  the last w, or the mean of the w of rounds T_0, ..., T; its intercept leans on a public base rate

Why this and not something cleverer. With all records in every round, T answers of noise multiplier √T/μ are together
exactly one Gaussian answer of multiplier 1/μ. A linear combination Σ_t a_t g_t of them has noise of √T/μ times the
length of a, which is at least |Σ a_t|/μ (Cauchy and Schwarz), with equality for equal a_t. So correlating noise over
rounds gains nothing, and equal steps are near the optimum. What matters is how far to go in all, τ = T η/(1 − β): noise
grows with τ, and so does what is learnt. `sottovoce.rules` chooses τ from public numbers.

Privacy. Each g_i is one answer of the oracle; (2) to (4) are post-processing. Sensitivities are those of a clipped
gradient (`privacy/doors/record.py`).

Standard errors. Near the path without noise, noise ξ_k of round k moves the answer by a linear map of it: by a factor
a_j(h) along an eigenvector of curvature h, j rounds later. Curvatures are between 0 and a public bound, so a parameter
has a deviation of at most that of ξ times the largest √Σ_j a_j(h)² over such h. It is an upper bound: where h > 0,
descent takes noise back again. (For unequal curvatures on the way and β = 0 it holds too: no step stretches.)

Departures
----------
There is no paper. For (3) with a smooth penalty the limit is the same as with its gradient.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from sottovoce.algorithms.dp_sgd import Down, Up
from sottovoce.core.check import Interval, NonNegative, Positive, WholeOrZero
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, KnownNoise, Nothing, Site


class Server(Arrays):
    w: Array
    v: Array
    mean: Array
    averaged: Array  # models in the mean so far, one number for each run


@dataclass(frozen=True)
class NoisyGD(Algorithm[Server, Nothing, Down, Up]):
    """w ← prox(w + v), v ← momentum · v − step · mean of the clients' noisy gradients.

    Parameters
    ----------
    step
        Step size η. With rows of length 1 and a logistic loss, 8 is twice the inverse of the largest curvature.
    momentum
        β in [0, 1).
    average_from
        The answer is the mean of the models from this round on; 0: the last model.
    batch
        Records drawn for each gradient (a share of them if < 1; 0: all).
    lean
        Added to the last coordinate of the answer, which is then the intercept: what a *public* base rate is worth
        where noise exceeds signal (`sottovoce.rules`).
    """

    step: Positive = 1.0
    momentum: Annotated[float, Interval(0, 1, closed=("low",))] = 0.0
    average_from: WholeOrZero = 0
    batch: NonNegative = 0
    lean: Annotated[float, Interval(-40, 40)] = 0.0

    name = "noisy-gd"
    summary = "noisy gradient descent with momentum, for constants chosen by rule"
    not_summed = ""

    def asks(self) -> Asks:
        return Asks.every_round(batch=self.batch)

    def init_server(self, hub: Hub) -> Server:
        return Server(hub.zeros.copy(), hub.zeros.copy(), hub.zeros.copy(), hub.zeros[..., :1].copy())

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        return state, Up(site.release(site.f.grad(down.w), centre=site.zeros))  # (1)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        v = hub.if_any(self.momentum * server.v - self.step * hub.mean(up.g), server.v)  # (2)
        w = hub.if_any(hub.penalty.prox(server.w + v, self.step), server.w)  # (3)
        counts = float(0 < self.average_from <= hub.k)
        averaged = server.averaged + counts
        mean = server.mean + counts * (w - server.mean) / np.maximum(averaged, 1)  # (4)
        return Server(w, v, mean, averaged)

    def standard_errors(self, server: Server, noise: KnownNoise) -> Array | None:
        if self.batch or not noise.penalty.smooth:
            return None
        return np.full_like(server.w, noise.deviation * self.stretch(noise.curvature, noise.rounds))

    def stretch(self, curvature: float, rounds: int) -> float:
        """The largest √Σ_j a_j(h)² for 0 <= h <= curvature, j = 1..rounds, of the answer (4)."""
        return float(self.gains(np.linspace(0.0, curvature, 65), rounds).max())

    def gains(self, h: Array, rounds: int) -> Array:
        """√Σ_j a_j(h)², j = 1..rounds, of the answer (4)."""
        return np.sqrt(np.square(self.weights(h, rounds)).sum(axis=0))

    def weights(self, h: Array, rounds: int) -> Array:
        """(rounds, *h): how much of the noise of each round is in the answer (4), where the curvature is h."""
        moved, velocity, after = np.zeros_like(h), np.full_like(h, self.step), []
        for _ in range(rounds):
            moved = moved + velocity
            after.append(moved)
            velocity = self.momentum * velocity - self.step * h * moved
        factors = np.array(after)[::-1]  # what is left of a round's noise in the last model
        if self.average_from:
            total = np.concatenate([np.zeros_like(h)[None], np.cumsum(after, axis=0)])
            left = np.arange(rounds, 0, -1)  # rounds to the end, that of the noise included
            before = np.maximum(left - (rounds - self.average_from + 1), 0)
            factors = (total[left] - total[before]) / (rounds - self.average_from + 1)
        return factors

    def model(self, server: Server) -> Array:
        w = np.where(server.averaged > 0, server.mean, server.w)
        w[..., -1] += self.lean  # (4)
        return w
