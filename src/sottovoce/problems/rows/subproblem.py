"""One client's arg-min: a smooth, strongly convex function of a linear model, minimised until its gradient is small."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

import numpy as np

from sottovoce.core.arrays import Floats
from sottovoce.problems.losses.base import Loss, margins

NEWTON_SOON_UP_TO = 512  # parameters: up to here a Hessian is cheaper than the last iterations of L-BFGS
NEWTON_UP_TO = 4096  # parameters: beyond, it is too big to factor


class Smooth(Protocol):
    """What Newton's method minimises."""

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]: ...

    def hessian(self, w: Floats) -> Floats: ...


@dataclass(frozen=True)
class Subproblem:
    """weight * sum of losses + <shift, w> + pull/2 |w|^2, for one client."""

    X: Floats
    y: Floats
    loss: Loss
    weight: float
    shift: Floats
    pull: float

    def value_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        margin = margins(self.X, w, self.loss.outputs)
        value = self.weight * self.loss.value(margin, self.y).sum() + w @ (self.shift + 0.5 * self.pull * w)
        return float(value), self._gradient(w, margin)

    def gradient(self, w: Floats) -> Floats:
        return self._gradient(w, margins(self.X, w, self.loss.outputs))

    def _gradient(self, w: Floats, margin: Floats) -> Floats:
        slope = self.loss.slope(margin, self.y).reshape(len(self.y), -1)
        return self.weight * (slope.T @ self.X).ravel() + self.shift + self.pull * w

    def hessian(self, w: Floats) -> Floats:
        p, d = self.loss.outputs, self.X.shape[1]
        second = self.loss.second(margins(self.X, w, p), self.y).reshape(-1, p, p)
        hessian = np.empty((p, d, p, d))
        for a in range(p):
            for b in range(a, p):
                hessian[a, :, b] = self.weight * (self.X.T @ (second[:, a, b, None] * self.X))
                hessian[b, :, a] = hessian[a, :, b].T
        return hessian.reshape(p * d, p * d) + self.pull * np.eye(p * d)


def minimise(problem: Subproblem, start: Floats, tol: float) -> tuple[Floats, float]:
    """The best point found and the size of its gradient. Newton's method solves a quadratic function in one step."""
    w, size = start, float(np.linalg.norm(problem.gradient(start)))
    enough = max(tol, 0.01 * size) if w.size <= NEWTON_SOON_UP_TO else tol
    if size > tol and problem.loss.strong < problem.loss.curvature:
        limits = {"gtol": enough / np.sqrt(w.size), "ftol": 0.0, "maxcor": 20, "maxiter": 2000, "maxfun": 5000}
        descend = import_module("scipy.optimize").minimize
        w: Floats = descend(problem.value_and_gradient, start, jac=True, method="L-BFGS-B", options=limits).x
        size = float(np.linalg.norm(problem.gradient(w)))
    return (w, size) if size <= tol or w.size > NEWTON_UP_TO else newton(problem, w, tol, _by_cholesky)


def newton(
    problem: Smooth, w: Floats, tol: float, solve: Callable[[Floats, Floats], Floats], steps: int = 50
) -> tuple[Floats, float]:
    """Newton's method with backtracking on the value; the answer is the point with the smallest gradient, because the
    last digits of the value are noise. `solve` gives the step for a Hessian and a gradient."""
    value, gradient = problem.value_and_gradient(w)
    best, size = w, float(np.linalg.norm(gradient))
    for _ in range(steps):
        if size <= tol:
            break
        step = solve(problem.hessian(w), gradient)
        fraction, slope, noise = 1.0, float(gradient @ step), 1e-14 * (1.0 + abs(value))
        while True:
            trial = w - fraction * step
            trial_value, gradient = problem.value_and_gradient(trial)
            if trial_value <= value - 1e-4 * fraction * slope + noise or fraction < 1e-10:
                break
            fraction *= 0.5
        w, value = trial, trial_value
        if np.linalg.norm(gradient) < size:
            best, size = w, float(np.linalg.norm(gradient))
    return best, size


def _by_cholesky(hessian: Floats, gradient: Floats) -> Floats:
    linalg = import_module("scipy.linalg")
    try:
        return cast(Floats, linalg.cho_solve(linalg.cho_factor(hessian), gradient))
    except linalg.LinAlgError:  # not positive definite in the last digits
        return cast(Floats, np.linalg.lstsq(hessian, gradient)[0])


def surely_minimise(problem: Subproblem, start: Floats, tol: float, last_steps: int) -> Floats:
    """As `minimise`, without an error: where that misses `tol`, at most `last_steps` steps of gradient descent follow.

    Descent gets there wherever rounding allows it. Let F be the function, L its curvature, P = `problem.pull`,
    kappa = L / P, and E a bound on the error of a computed gradient g and on what the rounding of a step amounts to.
    While |g| > tol >= 4 E, a step of 1 / L lowers F by at least |g| (|g| - 2 E) / (2 L) >= |g|² / (4 L); and F is at
    most (1.25 |g|)² / (2 P) above its minimum. So each step takes off a share of 1 / (3.2 kappa), and the last one at
    least tol² / (4 L): from a start where |g| <= G there are at most 3.2 kappa log(4 kappa G² / tol²) + 2 of them. F
    never grows, so no point on the way is further from 0 than 3 G / P.
    """
    zero = np.zeros_like(start)
    best, size = zero, float(np.linalg.norm(problem.gradient(zero)))
    with suppress(Exception):  # of a factorisation, or because of numbers that are not finite
        answer, left = minimise(problem, start, tol)
        if left < size:
            best, size = answer, left
    steep = problem.loss.curvature * problem.weight * float(np.square(problem.X).sum()) + problem.pull
    w = best
    for _ in range(last_steps):
        if size <= tol:
            break
        w = w - problem.gradient(w) / steep
        length = float(np.linalg.norm(problem.gradient(w)))
        if length < size:
            best, size = w, length
    return best
