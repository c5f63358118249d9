"""Concentrated and Rényi differential privacy, converted to (epsilon, delta).

The conversion is Proposition 12 of Canonne, Kamath & Steinke 2020; batches drawn by chance follow Mironov, Talwar &
Zhang 2019 (Poisson) and Wang, Balle & Kasiviswanathan 2019 (fixed size).
"""

import math
from functools import lru_cache

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.accounting.composition import PURE, Items, is_sampled
from sottovoce.privacy.accounting.search import last_good, last_good_from, log_ratio
from sottovoce.privacy.events import Event

_WHOLE_ORDERS = np.arange(1, 257)
ORDERS = np.concatenate([np.arange(11, 110) / 10, _WHOLE_ORDERS[10:]])


# ------------------------------------------------------------------------------------------------------- concentrated


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon for Rényi divergences `rho * order`, at the best real order.

    epsilon(order) = rho order + log(1 - 1/order) - log(delta order)/(order - 1) is least where
    rho (order - 1)² + log order = log(1/delta). Any order gives a valid bound, so nothing depends on the solver.
    """
    if delta == 0:
        return math.inf
    goal = -math.log(delta)
    most = min(goal, math.log1p(math.sqrt(goal / rho)))
    log_order = last_good(lambda v: rho * math.expm1(v) ** 2 + v - goal, 0.0, most * (1 + 1e-15), 1e-14 * most)
    above = math.expm1(max(log_order, 1e-300))  # the order is 1 more
    log_order, one_less = math.log1p(above), math.log1p(1 / above)  # the latter is -log(1 - 1/order)
    rounding = 2**-49 * (rho * (1 + above) + one_less + (goal + log_order) / above)
    return max(0.0, rho * (1 + above) - one_less + (goal - log_order) / above + rounding)


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho whose `zcdp_epsilon` is at most `epsilon`."""
    check.between("zCDP", 0, 1, delta=delta)
    goal = -math.log(delta)
    start = 2 * math.log(epsilon / (math.sqrt(goal + epsilon) + math.sqrt(goal)))  # epsilon = rho + 2 sqrt(rho goal)
    return math.exp(last_good_from(start, lambda log_rho: log_ratio(zcdp_epsilon(math.exp(log_rho), delta), epsilon)))


# -------------------------------------------------------------------------------------------------------------- Rényi


def renyi_epsilon(items: Items, delta: float) -> float:
    """Epsilon of all these events together, at the best of `ORDERS`."""
    curve = sum((count * renyi_curve(event) for event, count in items), np.zeros(len(ORDERS)))
    parts = curve, np.log1p(-1 / ORDERS), -math.log(delta) / (ORDERS - 1), -np.log(ORDERS) / (ORDERS - 1)
    rounding = 2**-49 * sum(map(np.abs, parts))
    return max(0.0, float((sum(parts) + rounding).min()))


@lru_cache(maxsize=1024)
def renyi_curve(event: Event) -> np.ndarray:
    """Rényi divergences of one event at `ORDERS`."""
    without_sampling = ORDERS / (2 * event.noise_multiplier**2)
    if event.mechanism in PURE:
        return np.minimum(without_sampling, 1 / event.noise_multiplier)
    if not is_sampled(event):
        return without_sampling
    log_excess = _log_poisson_excess(event) if event.sampling == "poisson" else _log_fixed_size_excess(event)
    # (order - 1) times the divergence is convex in the order: between whole orders a chord is an upper bound.
    cumulants = np.interp(ORDERS, _WHOLE_ORDERS, np.logaddexp(0, log_excess))
    return np.minimum(cumulants / (ORDERS - 1), without_sampling)


def _log_poisson_excess(event: Event) -> np.ndarray:
    """log(E[(P/Q)^order] - 1) of the Poisson-sampled Gaussian at whole orders: the binomial sum of Mironov, Talwar &
    Zhang, less the binomial expansion of 1, so that every term is positive."""
    k, exponent = _terms(event)
    log_terms = exponent + np.log(-np.expm1(-exponent)) + k * math.log(event.rate)
    return _binomial_sum(log_terms, math.log1p(-event.rate))


def _log_fixed_size_excess(event: Event) -> np.ndarray:
    """The sum of Theorem 27 of Wang, Balle & Kasiviswanathan, less its leading 1, at whole orders.

    The forward differences in it are the even moments E[(P/Q - 1)^k] of the full-batch Gaussian. As a sum they
    cancel (at high orders and multipliers from 30 on nothing is left); as an integral nothing is lost.
    """
    k, exponent = _terms(event)
    z = np.arange(-28, 54, 0.1)
    ratio = z / event.noise_multiplier - 0.5 / event.noise_multiplier**2
    with np.errstate(divide="ignore", over="ignore"):
        log_distance = np.where(ratio > 40, ratio, np.log(np.abs(np.expm1(ratio))))
    even = np.arange(2, 258, 2)
    inside = even[:, None] * log_distance - z**2 / 2
    peak = inside.max(axis=1)
    log_moments = peak + np.log(np.exp(inside - peak[:, None]).sum(axis=1) * 0.1 / math.sqrt(2 * math.pi))
    # Beyond the grid the other argument of the minimum is the smaller one.
    log_moments[even > 40 * event.noise_multiplier] = math.inf
    between = (log_moments[k // 2 - 1] + log_moments[(k + 1) // 2 - 1]) / 2
    log_terms = np.minimum(math.log(4) + between, math.log(2) + exponent)
    return _binomial_sum(log_terms + k * math.log(event.batch / event.size), 0.0)


def _terms(event: Event) -> tuple[np.ndarray, np.ndarray]:
    """k = 2, 3, ... and log E[(P/Q)^k] of the full-batch Gaussian."""
    k = _WHOLE_ORDERS[1:]
    return k, k * (k - 1) / (2 * event.noise_multiplier**2)


def _binomial_sum(log_terms: np.ndarray, log_rest: float) -> np.ndarray:
    """log of sum over k >= 2 of binomial(order, k) terms[k] rest^(order - k), for each whole order."""
    logs = _log_binomials() + log_terms + log_rest * np.maximum(_WHOLE_ORDERS[:, None] - _WHOLE_ORDERS[1:], 0)
    return np.logaddexp.reduce(logs, axis=1)


@lru_cache(maxsize=1)
def _log_binomials() -> np.ndarray:
    from scipy.special import gammaln  # pyright: ignore[reportMissingTypeStubs]

    order, k = _WHOLE_ORDERS[:, None], _WHOLE_ORDERS[1:]
    logs = gammaln(order + 1) - gammaln(k + 1) - gammaln(np.maximum(order - k, 0) + 1)
    return np.where(k <= order, logs, -math.inf)
