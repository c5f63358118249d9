"""What is promised, computed a second time: noise, sensitivities and epsilons, from the promise alone.

If the audit asked the code under audit how much noise there should be, it would believe its errors. So nothing here
calls `privacy/accounting`, `local_steps.py`, `sensitivity.py` or a door: noise follows from closed formulas solved with
SciPy, epsilons from `second_accountant.py`, sensitivities from the proofs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar, root_scalar
from scipy.special import log_ndtr

from sottovoce.core.contract import Asks, Descent, Part, ProxSteps
from sottovoce.core.plain import Json
from sottovoce.privacy.events import Event, Mechanism, Relation, Sampling, make_event
from sottovoce.privacy.modes import Proven, ProvenColumns

GRID = 2.0**24  # steps of the grid of discrete noise in a clip norm
SOLVED = 1e-9  # norm of the gradient where a solver stops, as `problems/rows/oracle.py` documents it
# By unit: how neighbours differ, if not by the relation of one record.
_RELATIONS: dict[str, Relation] = {"client": "replace-client", "party": "replace-client", "column": "replace-column"}

# ------------------------------------------------------------------------------------------------ noise and epsilon


@dataclass(frozen=True)
class Promised:
    """What each answer to one kind of question is promised to be, and how many there may be."""

    mechanism: Mechanism
    relation: Relation
    sampling: Sampling
    answers: int  # in the whole run
    epsilon: float  # of the whole run, all kinds of question together
    delta: float
    share: float = 1.0  # of the budget, in mu²
    steps: float = 0.0  # how far one unit moves an answer on its grid, in grid steps; 0 where there is no grid
    coordinates: int = 0  # numbers of an answer on a grid
    contributors: int = 1  # whose noise adds up in what an observer sees

    @property
    def multiplier(self) -> float | None:
        """The least noise, divided by the sensitivity, that keeps the promise; None where batches are drawn."""
        if self.sampling != "full":
            return None
        if self.mechanism == "laplace":
            return self.answers / self.epsilon
        answers = self.answers / self.share
        if self.mechanism == "gaussian":
            return math.sqrt(answers) / gaussian_mu(self.epsilon, self.delta)
        if self.steps:  # discrete noise is worth a Gaussian with 64 grid steps² less variance
            return math.hypot(math.sqrt(answers) / gaussian_mu(self.epsilon, self.delta), 8 / self.steps)
        return math.sqrt(answers / (2 * zcdp_rho(self.epsilon, self.delta)))

    def event(self, multiplier: float, rate: float = 1.0, size: int = 1) -> Event:
        """One such answer with so much noise, to a client of `size` records that draws this share of them."""
        fields: Json = {"mechanism": self.mechanism, "noise_multiplier": multiplier, "relation": self.relation}
        if self.sampling == "poisson" and rate < 1:
            fields |= {"sampling": "poisson", "rate": rate}
        elif self.sampling == "fixed-size" and rate < 1:
            fields |= {"sampling": "fixed-size", "batch": round(rate * size), "size": size}
        if self.steps and multiplier < math.inf:
            fields |= {"sensitivity": self.steps, "coordinates": self.coordinates, "contributors": self.contributors}
        return make_event(**fields)


def promised(
    privacy: Proven | ProvenColumns, asks: Asks, rounds: int, dim: int = 1, columns: int = 1, slope: float = math.inf
) -> tuple[Promised, ...]:
    """What a promise means for the answers of each part of a run; where whole clients are hidden, for its uploads.

    `dim`, `columns`, `slope`: numbers of a model (or of scores), columns of a row (or of the widest party), and the
    bound on slopes at a model of zeros: how long answers on a grid are.
    """
    unit, times = privacy.unit, min(rounds, getattr(privacy, "participations", None) or rounds)
    relation = _RELATIONS.get(unit, getattr(privacy, "relation", "replace-one"))
    mechanism: Mechanism = getattr(privacy, "mechanism", "gaussian")
    on_grid = privacy.noise != "seeded" and mechanism == "gaussian"
    if on_grid:
        mechanism = "discrete-gaussian"
    budget, honest = (privacy.epsilon, privacy.delta), 1
    if getattr(privacy, "observer", "server") == "sums":  # all who answer, but those who may collude
        honest = (getattr(privacy, "least", None) or 1) - (getattr(privacy, "colluders", None) or 0)
    if unit == "client":
        uploads = min(times, sum(part.rounds(rounds) for part in asks.parts)) * asks.releases
        longest = dim + columns * (columns + 1) // 2 if "moments" in asks.kinds else dim
        steps, numbers = (2 * (GRID + 1), longest) if on_grid else (0.0, 0)
        return (Promised(mechanism, relation, "full", uploads, *budget, 1.0, steps, numbers, honest),)
    promises = []
    for part in asks.parts:
        answers = min(times, part.rounds(rounds)) * part.answers
        if part is asks.parts[-1]:
            answers += getattr(privacy, "model", 0)  # a party's model for prediction, after the last round
        chain = part.kind == "descent" and mechanism == "gaussian"
        of_part = ("gaussian-chain" if chain else mechanism, relation, _sampling(part, relation))
        steps, numbers = _on_grid(privacy, part, dim, columns, slope) if on_grid else (0.0, 0)
        promises.append(Promised(*of_part, answers, *budget, part.share, steps, numbers, honest))
    return tuple(promises)


def _on_grid(privacy: Proven | ProvenColumns, part: Part, dim: int, columns: int, slope: float) -> tuple[float, int]:
    """How far one record moves an answer on a grid, in grid steps, and how many numbers the answer has.

    A vector that is cut to a clip norm has at most GRID + 1 steps. Of all else only the difference is bounded. It is
    lengthened by truncation, by up to one step in every coordinate; and, where numbers are divided by a grid step (all
    but moments), by the rounding of quotients, by as much.
    """
    if isinstance(privacy, ProvenColumns):
        longest = max(dim, columns)
        return (2 * (GRID + 1) if privacy.variant == "clip" else GRID + 2 * math.sqrt(longest)), longest
    if part.kind in ("prox-steps", "argmin"):
        return GRID + 2 * math.sqrt(dim), dim
    if part.kind != "moments":
        return (2 if privacy.relation == "replace-one" else 1) * (GRID + 1), dim
    slope = min(part.slope_bound, slope)
    width = dim + columns * (columns + 1) // 2
    moved = moments_sensitivity(privacy, part.kappa, slope) / math.hypot(slope, part.kappa)
    return math.ceil(moved * GRID) + math.sqrt(width), width


def _sampling(part: Part, relation: Relation) -> Sampling:
    if not part.batch or part.kind != "gradient":
        return "full"
    return "poisson" if relation == "add-remove" else "fixed-size"


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which N(0, 1) against N(mu, 1) is (epsilon, delta)-private."""
    return math.exp(_root(lambda log_mu: _log_delta(math.exp(log_mu), epsilon) - math.log(delta), -20.0, 20.0))


def _log_delta(mu: float, epsilon: float) -> float:
    """log of Phi(−epsilon/mu + mu/2) − e^epsilon Phi(−epsilon/mu − mu/2)."""
    first, second = float(log_ndtr(mu / 2 - epsilon / mu)), float(log_ndtr(-mu / 2 - epsilon / mu))
    return first + math.log(max(-math.expm1(min(epsilon + second - first, 0.0)), 1e-300))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho whose best conversion over Rényi orders a, rho a + log(1 − 1/a) − log(delta a)/(a − 1), is epsilon."""

    def converted(rho: float) -> float:
        def at(log_above: float) -> float:
            above = math.exp(log_above)
            order = 1 + above
            return rho * order + math.log(above / order) - (math.log(delta) + math.log(order)) / above

        best = minimize_scalar(at, bounds=(-10.0, 20.0), method="bounded", options={"xatol": 1e-9})
        return float(best.fun)

    return math.exp(_root(lambda log_rho: converted(math.exp(log_rho)) - epsilon, -40.0, 20.0))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    return float(root_scalar(excess, bracket=(low, high), xtol=1e-13).root)


def batch_rates(batch: float, sizes: np.ndarray, fixed: bool) -> np.ndarray:
    """The share of its records that a client draws: `batch` records, or this share of them if below 1."""
    wanted = [min(batch * size if batch < 1 else batch, size) for size in sizes]
    return np.array([max(1, round(number)) if fixed else number for number in wanted]) / sizes


# ------------------------------------------------------------------------------------------------------ sensitivities


def gradient_sensitivity(privacy: Proven, weight: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """2C, or C where a record is left out, times the weight of a record in a mean over the expected batch."""
    return (2.0 if privacy.relation == "replace-one" else 1.0) * privacy.clip * weight / rate


def argmin_sensitivity(one: np.ndarray, rho: np.ndarray, ridge: float) -> np.ndarray:
    """Gradients that differ by at most `one` everywhere move the minimiser of a (rho + ridge)-convex function so far,
    and each of two solvers may stop at a gradient of norm `SOLVED`."""
    return (one + 2 * SOLVED) / (rho + ridge)


def prox_sensitivity(spec: ProxSteps, one: np.ndarray, later: np.ndarray) -> np.ndarray:
    """From a public start: u <- (keep u + D)/total with D = `one` in the first step, and `later` after it."""
    moved, total_moved = np.zeros_like(one), np.zeros_like(one)
    for j in range(len(spec.keep)):
        moved = (np.asarray(spec.keep[j]) * moved + (one if j == 0 else later)) / np.asarray(spec.total[j])
        total_moved = total_moved + moved
    return total_moved / len(spec.keep) if spec.average else moved


def chain_deviation(spec: Descent, one: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """The deviation of the noise on the end of a chain, for a multiplier of 1, if gradients are the same everywhere.

    The noise of every step is `one` times sqrt((1+c)(1−c^N)/((1−c)(1+c^N))), c being the contraction of a step on the
    steepest data. The noise on the end is the sum of what later steps make of the noise of each step.
    """
    flat = 1 - np.asarray(spec.step) * (spec.ridge + spec.pull)
    steep = 1 - np.asarray(spec.step) * (smooth + spec.ridge + spec.pull)
    c, count = np.maximum(np.abs(flat), np.abs(steep)), spec.count
    gain = np.sqrt((1 + c) * (1 - c**count) / ((1 - c) * (1 + c**count)))
    return gain * one * np.asarray(spec.step) * np.sqrt(sum(flat ** (2 * j) for j in range(count)))


def moments_sensitivity(privacy: Proven, kappa: float, slope: float) -> float:
    """How far one record moves the sum of moments: with c the product of the two rows, at most the root of
    2 B² (1 + c) + 2 κ² (1 − c²); where a record is left out, of B² + κ²."""
    if privacy.relation == "add-remove":
        return math.hypot(slope, kappa)
    c = min(1.0, slope**2 / (2 * kappa**2))
    return math.sqrt(2 * slope**2 * (1 + c) + 2 * kappa**2 * (1 - c**2))


def scores_sensitivity(privacy: ProvenColumns, u: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """How far a party's scores can move, for a projected target u and mu = lam/rho."""
    length = np.sqrt(np.square(u).sum(axis=-1, keepdims=True))
    if privacy.variant == "clip":
        return np.full_like(length, 2 * (privacy.bound or 0.0))
    if privacy.unit == "party":
        return length
    if privacy.unit == "column":
        return length / (1 + mu / float(privacy.column_bound or 0) ** 2)
    score = float(privacy.score_bound or 0)
    moved = 2 * np.hypot(score, _record_reach(privacy, u, mu, length))
    return np.minimum(moved, np.minimum(length, 2 * score * np.sqrt(u.shape[-1])))  # scores lie in a ball and a box


def model_sensitivity(privacy: ProvenColumns, u: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """How far a party's model for prediction can move."""
    length = np.sqrt(np.square(u).sum(axis=-1, keepdims=True))
    if privacy.variant == "clip":
        return np.full_like(length, 2 * float(privacy.model_bound or 0))
    ball = length / np.sqrt(mu)
    if privacy.unit != "record":
        return ball
    return np.minimum(2 * _record_reach(privacy, u, mu, length) / np.sqrt(mu), ball)


def _record_reach(privacy: ProvenColumns, u: np.ndarray, mu: np.ndarray, length: np.ndarray) -> np.ndarray:
    """phi (|u|_inf + P) of the proof for one record."""
    bound = float(privacy.row_bound or 0)
    h = np.minimum(bound**2 / mu, 1.0)
    return np.sqrt(h) / (1 + h) * (np.abs(u).max(axis=-1, keepdims=True) + bound * length / (2 * np.sqrt(mu)))
