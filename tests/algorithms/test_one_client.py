"""With one client a method is a centralised one: model by model, against that one written out for a single data set.

What the federated updates become with one client is worked out by hand here: duals and averages are gone where they
cancel.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from math import ceil, sqrt
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import (
    ADMM,
    DPADMM,
    DPSGD,
    DVP,
    LED,
    PVP,
    TAMUNA,
    DPFedAvg,
    FedAvg,
    FedEPM,
    FedLin,
    FedPD,
    FedPLT,
    FedProx,
    FedSPDDP,
    FiveGCS,
    SFedAvg,
    SFedProx,
)
from sottovoce.core.check import InvalidInput
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy
from sottovoce.problems.federation import Federation
from tests.cases import CASES, Method, goal, small

DIM, SIZE = 4, 47
ZERO = np.zeros(DIM)
Point = np.ndarray
Models = Iterator[Point]


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


def problem(penalty: str) -> tuple[Problem, Federation]:
    X, y = small().X[-SIZE:], small().y[-SIZE:]
    ridge, l1 = (0.05, 0.0) if penalty == "l2" else (0.0, 0.01)  # as in `goal`
    return Problem(X, y, ridge, l1), Federation.from_clients([(X, y)], row_bound=1.0)


def descend(slope: Callable[[Point], Point], w: Point, steps: int, step: float) -> Point:
    for _ in range(steps):
        w = w - step * slope(w)
    return w


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
    x = gamma = w = ZERO
    while True:
        gamma = gamma - rho * (x - w)
        for _ in range(20):
            share = 1 / (1 + np.exp(p.y * (p.X @ x)))
            hessian = p.X.T @ ((share * (1 - share))[:, None] * p.X) / SIZE + (p.ridge + rho) * np.eye(DIM)
            x = x - np.linalg.solve(hessian, p.slope(x) - gamma + rho * (x - w))
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


CENTRALISED: list[tuple[Method, Callable[[Problem], Models]]] = [
    (ADMM(rho=0.3), lambda p: admm(p, 0.3)),
    (PVP(rho=0.3), lambda p: admm(p, 0.3)),
    (DVP(rho=0.3), lambda p: admm(p, 0.3)),
    (DPADMM(rho=0.3, penalty_at="server"), lambda p: linearised_admm(p, 0.3, 0.25)),
    (DPSGD(step=0.7), lambda p: proximal_gradient(p, 0.7)),
    (FedAvg(step=0.7, local_steps=3), lambda p: proximal_point(p, 0.7, 3)),
    (DPFedAvg(step=0.7, local_steps=3), lambda p: proximal_point(p, 0.7, 3)),
    (FedProx(step=0.7, local_steps=3, pull=0.4), lambda p: proximal_point(p, 0.7, 3, 0.4)),
    (SFedAvg(step=2.0, local_steps=3, by_size=False), lambda p: shrinking_steps(p, 2.0, 3)),
    (SFedAvg(step=0.05, local_steps=3), lambda p: shrinking_steps(p, 0.05 * SIZE, 3)),
    (SFedProx(step=1.0, local_steps=3, pull=0.4, by_size=False), lambda p: shrinking_steps(p, 1.0, 3, 3, 0.4)),
    (SFedProx(step=0.02, local_steps=3, pull=0.4), lambda p: shrinking_steps(p, 0.02 * SIZE, 3, 3, 0.4)),
    (FedEPM(eta=0.2, lam=0.0, mu=0.8, c=0.0, alpha=1.0, k0=4), lambda p: soft_penalty(p, 0.2, 0.8, 4)),
    (
        FedEPM(eta=0.2, lam=0.0, mu=0.8, c=0.0, alpha=1.0, k0=4, variant="P"),
        lambda p: soft_penalty(p, 0.2, 0.8, 4),
    ),
    (FedPLT(rho=2.0, local_steps=4, step=1.1), lambda p: peaceman_rachford(p, 2.0, 4, 1.1)),
    (FedPLT(rho=2.0, local_steps=4, step=1.1, variant="B"), lambda p: peaceman_rachford(p, 2.0, 4, 1.1)),
    (FedSPDDP(rho=0.3, gamma=0.6, local_steps=3), lambda p: averaged_proximal_gradient(p, 0.3, 0.6, 3)),
    (
        FedSPDDP(rho=0.3, gamma=0.6, local_steps=3, variant="P"),
        lambda p: averaged_proximal_gradient(p, 0.3, 0.6, 3, from_mean=True),
    ),
    (FedPD(eta=2.0, local_steps=4, step=1.1), lambda p: douglas_rachford(p, 2.0, 4, 1.1)),
    (FiveGCS(tau=0.4, gamma=1.5, local_steps=4, step=1.1), lambda p: primal_dual(p, 0.4, 1.5, 4, 1.1)),
    (FedLin(step=0.7, local_steps=3), lambda p: every_second(proximal_point(p, 0.7, 3))),
    (LED(step=0.7, local_steps=3), lambda p: proximal_point(p, 0.7, 3)),
    (TAMUNA(step=0.7, local_steps=1), lambda p: proximal_point(p, 0.7, 1)),
]


def takes(algorithm: Method, penalty: str) -> bool:
    try:
        algorithm.check(goal(penalty=penalty).penalty)
    except InvalidInput:
        return False
    return True


PAIRS = [
    pytest.param(*row, penalty, id=f"{row[0].name}, {penalty}")
    for row in CENTRALISED
    for penalty in ("l1", "l2")
    if takes(row[0], penalty)
]


def test_every_method_is_here() -> None:
    assert {algorithm.name for algorithm, _ in CENTRALISED} == CASES.keys()


def models(algorithm: Method, federation: Federation, penalty: str) -> np.ndarray:
    """After each of 15 rounds."""
    kept: list[Checkpoint] = []
    options: dict[str, Any] = {"rounds": 15, "privacy": NoPrivacy(), "engine": "numpy", "seed": 0}
    train(algorithm, federation, goal(penalty=penalty), after_round=kept.append, **options)
    return np.array([algorithm.model(checkpoint.server)[0] for checkpoint in kept])


@pytest.mark.parametrize(("algorithm", "script", "penalty"), PAIRS)
def test_one_client_is_its_centralised_method(algorithm: Method, script: Any, penalty: str) -> None:
    """In every round, long before the limit."""
    p, federation = problem(penalty)
    found, expected = models(algorithm, federation, penalty), np.array(list(islice(script(p), 15)))
    exact = algorithm.asks().only.kind != "argmin"  # an arg-min is solved to |gradient| <= 1e-9
    np.testing.assert_allclose(found, expected, atol=1e-12 if exact else 1e-7, rtol=0)
    assert np.linalg.norm(expected[-1] - expected[-3]) > 1e-4


def test_tamuna_takes_random_numbers_of_gradient_steps() -> None:
    p, federation = problem("l2")
    found = models(TAMUNA(step=0.1, local_steps=3, most_steps=7), federation, "l2")
    every_step = np.array([ZERO, *islice(proximal_point(p, 0.1, 1), 15 * 7)])
    distance = np.linalg.norm(found[:, None] - every_step, axis=-1)
    np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-12)
    steps = np.diff(distance.argmin(axis=1), prepend=0)
    assert 1 == steps.min() < steps.max() <= 7
