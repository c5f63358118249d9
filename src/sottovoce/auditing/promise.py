"""What is promised, computed a second time: noise, sensitivities and epsilons, from the promise alone.

An audit that asked the code under audit how much noise there should be would believe its errors. So nothing here calls
`accounting.py`, `local_runs.py`, `sensitivity.py` or a door: noise follows from closed formulas solved with SciPy,
epsilons from `second_accountant.py`, sensitivities from the proofs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.auditing.second_accountant import second_epsilon
from sottovoce.core.contract import Asks, Descent, ProxSteps
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven, ProvenColumns

SOLVED = 1e-9  # the gradient that is left where a solver stops, as `problems/rows/oracle.py` documents it

# ------------------------------------------------------------------------------------------------ noise and epsilon


@dataclass(frozen=True)
class Promised:
    """What each answer is promised to be, and how many there may be."""

    mechanism: str  # as `events.Event` names it
    relation: str
    sampling: str  # "full", "poisson", "fixed-size"
    answers: int  # of the whole run
    epsilon: float
    delta: float

    @property
    def multiplier(self) -> float | None:
        """The noise over the sensitivity that just keeps the promise; None where only `epsilon_of` can tell."""
        if self.sampling != "full":
            return None
        if self.mechanism == "laplace":
            return self.answers / self.epsilon
        if self.mechanism == "gaussian":
            return math.sqrt(self.answers) / gaussian_mu(self.epsilon, self.delta)
        return math.sqrt(self.answers / (2 * zcdp_rho(self.epsilon, self.delta)))

    def epsilon_of(self, multiplier: float, answers: int, rate: float = 1.0, size: int = 1) -> float:
        """The epsilon of so many answers with so much noise, by the second accountant."""
        sampled: dict[str, Any] = {} if self.sampling == "full" or rate == 1 else {"sampling": self.sampling}
        if sampled and self.sampling == "poisson":
            sampled["rate"] = rate
        elif sampled:
            sampled |= {"batch": round(rate * size), "size": size}
        event = Event(self.mechanism, multiplier, relation=self.relation, **sampled)  # type: ignore[arg-type]
        return second_epsilon({event: answers}, self.delta)


def promised(privacy: Any, asks: Asks, rounds: int) -> Promised:
    """What a `Proven` or `ProvenColumns` promise means for every single answer of a run of so many rounds."""
    secure = privacy.noise == "secure"
    if isinstance(privacy, ProvenColumns):
        relation = {"party": "replace-client", "column": "replace-column", "record": "replace-one"}[privacy.unit]
        mechanism = "discrete-gaussian" if secure else "gaussian"
        answers = rounds * asks.only.answers + privacy.model
        return Promised(mechanism, relation, "full", answers, privacy.epsilon, privacy.delta)
    assert isinstance(privacy, Proven)
    times = rounds if privacy.participations is None else min(rounds, privacy.participations)
    mechanism = "discrete-gaussian" if secure and privacy.mechanism == "gaussian" else privacy.mechanism
    if privacy.unit == "client":
        return Promised(mechanism, "replace-client", "full", times * asks.releases, privacy.epsilon, privacy.delta)
    sampling = "full"
    if asks.only.kind == "descent" and mechanism == "gaussian":
        mechanism = "gaussian-chain"
    elif asks.batch and asks.only.kind == "gradient":
        sampling = "poisson" if privacy.relation == "add-remove" else "fixed-size"
    return Promised(mechanism, privacy.relation, sampling, times * asks.only.answers, privacy.epsilon, privacy.delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu at which N(0, 1) against N(mu, 1) is just (epsilon, delta)-private."""
    return math.exp(_root(lambda log_mu: _log_delta(math.exp(log_mu), epsilon) - math.log(delta), -20.0, 20.0))


def _log_delta(mu: float, epsilon: float) -> float:
    """log of Phi(−epsilon/mu + mu/2) − e^epsilon Phi(−epsilon/mu − mu/2)."""
    from scipy.special import log_ndtr

    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), float(log_ndtr(-mu / 2 - epsilon / mu))
    return first + math.log(max(-math.expm1(min(epsilon + second - first, 0.0)), 1e-300))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho whose best conversion over Rényi orders a, rho a + log(1 − 1/a) − log(delta a)/(a − 1), is epsilon."""
    from scipy.optimize import minimize_scalar

    def converted(rho: float) -> float:
        def at(log_above: float) -> float:
            above = math.exp(log_above)
            order = 1 + above
            return rho * order + math.log(above / order) - (math.log(delta) + math.log(order)) / above

        best: Any = minimize_scalar(at, bounds=(-10.0, 20.0), method="bounded", options={"xatol": 1e-9})
        return float(best.fun)

    return math.exp(_root(lambda log_rho: converted(math.exp(log_rho)) - epsilon, -40.0, 20.0))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    found: Any = brentq(excess, low, high, xtol=1e-13)
    return float(found)


def batch_rates(batch: float, sizes: np.ndarray, fixed: bool) -> np.ndarray:
    """The share of its records that a client draws: `batch` of them, or that share if below 1."""
    wanted = [min(batch * size if batch < 1 else batch, size) for size in sizes]
    return np.array([max(1, round(one)) if fixed else one for one in wanted]) / sizes


# ------------------------------------------------------------------------------------------------------ sensitivities


def gradient_sensitivity(privacy: Proven, weight: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """2C, or C where a record is left out, times what a record counts for in a mean over the expected batch."""
    return (2.0 if privacy.relation == "replace-one" else 1.0) * privacy.clip * weight / rate


def argmin_sensitivity(one: np.ndarray, rho: Any, ridge: float) -> np.ndarray:
    """Gradients that differ by at most `one` everywhere move the minimiser of a (rho + ridge)-convex function so far,
    and each of two solvers may be off by a gradient of `SOLVED`."""
    return (one + 2 * SOLVED) / (np.asarray(rho, dtype=np.float64) + ridge)


def prox_sensitivity(spec: ProxSteps, one: np.ndarray, most: np.ndarray, absorbed: bool) -> np.ndarray:
    """From a public start: u <- (keep u + D)/total, D = `one`; from the second step on `most` where the steps do not
    absorb that they stand at different points."""
    moved, total_moved = np.zeros_like(one), np.zeros_like(one)
    for j in range(len(spec.keep)):
        moved = (np.asarray(spec.keep[j]) * moved + (one if j == 0 or absorbed else most)) / np.asarray(spec.total[j])
        total_moved = total_moved + moved
    return total_moved / len(spec.keep) if spec.average else moved


def chain_deviation(spec: Descent, one: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """What the noise on the end of a chain has to be for a multiplier of 1, where gradients do not depend on the point.

    The noise of every step is `one` times sqrt((1+c)(1−c^N)/((1−c)(1+c^N))), c being the contraction of a step on the
    steepest data; the end is the sum of what each step's noise became in the steps after it.
    """
    flat = 1 - np.asarray(spec.step) * (spec.ridge + spec.pull)
    steep = 1 - np.asarray(spec.step) * (smooth + spec.ridge + spec.pull)
    c, count = np.maximum(np.abs(flat), np.abs(steep)), spec.count
    gain = np.sqrt((1 + c) * (1 - c**count) / ((1 - c) * (1 + c**count)))
    return gain * one * np.asarray(spec.step) * np.sqrt(sum(flat ** (2 * j) for j in range(count)))


def scores_sensitivity(privacy: ProvenColumns, u: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """How far a party's scores can move, for a target u (projected) and mu = lam/rho."""
    length = np.sqrt(np.square(u).sum(axis=-1, keepdims=True))
    if privacy.variant == "clip":
        return np.full_like(length, 2 * privacy.bound)
    if privacy.unit == "party":
        return length
    if privacy.unit == "column":
        return length / (1 + mu / float(privacy.column_bound or 0) ** 2)
    score = float(privacy.score_bound or 0)
    moved = 2 * np.hypot(score, _record_reach(privacy, u, mu, length))
    return np.minimum(moved, np.minimum(length, 2 * score * np.sqrt(u.shape[-1])))  # scores lie in a ball and a box


def model_sensitivity(privacy: ProvenColumns, u: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """The same of a party's model for prediction."""
    length = np.sqrt(np.square(u).sum(axis=-1, keepdims=True))
    if privacy.variant == "clip":
        return np.full_like(length, 2 * float(privacy.model_bound or 0))
    ball = length / np.sqrt(mu)
    return (
        np.minimum(2 * _record_reach(privacy, u, mu, length) / np.sqrt(mu), ball) if privacy.unit == "record" else ball
    )


def _record_reach(privacy: ProvenColumns, u: np.ndarray, mu: np.ndarray, length: np.ndarray) -> np.ndarray:
    """phi (|u|_inf + P) of the proof for one record."""
    bound = float(privacy.row_bound or 0)
    h = np.minimum(bound**2 / mu, 1.0)
    return np.sqrt(h) / (1 + h) * (np.abs(u).max(axis=-1, keepdims=True) + bound * length / (2 * np.sqrt(mu)))
