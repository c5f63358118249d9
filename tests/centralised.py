"""Centralised methods, written out for a single data set in plain NumPy: what federated ones are with one client.

What their updates become then is worked out by hand here: duals and averages are gone where they cancel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil, sqrt

import numpy as np

DIM, SIZE = 4, 47
ZERO = np.zeros(DIM)
Point = np.ndarray
Models = Iterator[Point]
Script = Callable[["Problem"], Models]


@dataclass(frozen=True)
class Problem:
    """f, the mean logistic loss of one client, and r, a ridge or an l1 norm."""

    X: np.ndarray
    y: np.ndarray
    ridge: float
    l1: float

    def loss_slope(self, w: Point) -> Point:
        """∇f."""
        return self.X.T @ (-self.y / (1 + np.exp(self.y * (self.X @ w)))) / len(self.y)

    def slope(self, w: Point) -> Point:
        """Of all that is smooth: the ridge included."""
        return self.loss_slope(w) + self.ridge * w

    def shrink(self, w: Point, length: float) -> Point:
        """The prox of what is not smooth."""
        return np.sign(w) * np.maximum(np.abs(w) - length * self.l1, 0)

    def prox(self, w: Point, length: float) -> Point:
        """The prox of all of r."""
        return self.shrink(w, length) / (1 + length * self.ridge)


def descend(slope: Callable[[Point], Point], w: Point, steps: int, step: float) -> Point:
    for _ in range(steps):
        w = w - step * slope(w)
    return w


def preconditioned(p: Problem, curvature: float) -> Models:
    """Steps along the gradient times the inverse of what the objective's curvature is at zero, from there on."""
    curve = curvature * p.X.T @ p.X / len(p.y) + p.ridge * np.eye(DIM)
    w = ZERO
    while True:
        w = w - np.linalg.solve(curve, p.slope(w))
        yield w


def proximal_point(p: Problem, step: float, steps: int, pull: float = 0.0) -> Models:
    """Inexactly, by gradient steps: w ← argmin F + pull/2 |. − w|². Without a pull, gradient descent."""
    w = ZERO
    while True:
        w = descend(lambda v, w=w: p.slope(v) + pull * (v - w), w, steps, step)
        w = p.shrink(w, steps * step)
        yield w


def proximal_gradient(p: Problem, step: float) -> Models:
    w = ZERO
    while True:
        w = p.prox(w - step * p.loss_slope(w), step)
        yield w


def every_second(models: Models) -> Models:
    """Two exchanges a round."""
    w = ZERO
    for new in models:
        yield from (w, new)
        w = new


def shrinking_steps(p: Problem, step: float, steps: int, inner: int = 1, pull: float = 0.0) -> Models:
    """Proximal point with the steps of (38) of FedEPM."""
    w = ZERO
    for past in count():
        centre, length = w, 0.0
        for k in range(past * steps, (past + 1) * steps):
            gamma = step / sqrt(2 * steps + ceil(k / steps))
            w = descend(lambda v, c=centre: p.slope(v) + pull * (v - c), w, inner, gamma)
            length += inner * gamma
        w = p.shrink(w, length)
        yield w


def soft_penalty(p: Problem, eta: float, mu: float, k0: int) -> Models:
    """Steps on ⟨∇F(w), x⟩ + η/2 |x − w|², all along one gradient; then w ← argmin r + η/2 |. − x|²."""
    w = x = ZERO
    while True:
        g, centre = p.slope(w), w
        x = descend(lambda v, g=g, c=centre: g + eta * (v - c), x, k0, 1 / (mu + eta))
        w = p.shrink(x, 1 / eta)
        yield w


def admm(p: Problem, rho: float) -> Models:
    """min F(x) + r(w), x = w. The arg-min by Newton's method."""

    def minimiser(x: Point, gamma: Point, w: Point) -> Point:
        for _ in range(20):
            share = 1 / (1 + np.exp(p.y * (p.X @ x)))
            hessian = p.X.T @ ((share * (1 - share))[:, None] * p.X) / SIZE + (p.ridge + rho) * np.eye(DIM)
            x = x - np.linalg.solve(hessian, p.slope(x) - gamma + rho * (x - w))
        return x

    x = gamma = w = ZERO
    while True:
        gamma = gamma - rho * (x - w)
        x = minimiser(x, gamma, w)
        w = p.shrink(x - gamma / rho, 1 / rho)
        yield w


def linearised_admm(p: Problem, rho: float, smooth: float) -> Models:
    x = gamma = w = ZERO
    while True:
        gamma = gamma - rho * (x - w)
        x = x - (p.loss_slope(x) - gamma + rho * (x - w)) / (rho + smooth)
        w = p.prox(x - gamma / rho, 1 / rho)
        yield w


def peaceman_rachford(p: Problem, rho: float, steps: int, step: float) -> Models:
    x = z = ZERO
    while True:
        y = p.shrink(z, rho)
        x = descend(lambda w, v=2 * y - z: p.slope(w) + (w - v) / rho, x, steps, step)
        z = z + 2 * (x - y)
        yield p.shrink(z, rho)


def douglas_rachford(p: Problem, eta: float, steps: int, step: float) -> Models:
    x = t = ZERO
    while True:
        x = descend(lambda w, t=t: p.slope(w) + (w - t) / eta, x, steps, step)
        y = p.shrink(2 * x - t, eta)
        t = t + y - x
        yield y


def averaged_proximal_gradient(p: Problem, rho: float, gamma: float, steps: int, from_mean: bool = False) -> Models:
    """Proximal gradient steps, pulled to the mean of the last round's; the model is that mean, extrapolated."""
    x = mean = ZERO
    while True:
        if from_mean:
            x = mean
        before, ends = mean, []
        for _ in range(steps):
            x = p.prox((gamma * x + rho * before - p.loss_slope(x)) / (gamma + rho), 1 / (gamma + rho))
            ends.append(x)
        mean = np.mean(ends, axis=0)
        yield 2 * mean - before


def primal_dual(p: Problem, tau: float, gamma: float, steps: int, step: float) -> Models:
    """The dual step u ← ∇f(argmin f(y) − ⟨u, y⟩ + τ/2 |y − x|²), then a primal one along 2u⁺ − u."""
    x = u = ZERO
    while True:
        y = descend(lambda w, x=x, u=u: p.loss_slope(w) - u + tau * (w - x), x, steps, step)
        old, u = u, p.loss_slope(y)
        x = p.prox(x - gamma * (2 * u - old), gamma)
        yield x
