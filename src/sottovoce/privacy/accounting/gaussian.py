"""The exact trade-off of Gaussian noise (Dong, Roth & Su 2022): delta and epsilon of N(0, 1) against N(mu, 1)."""

import math
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.accounting.search import last_good_from

_Function = Callable[[float | np.ndarray], np.ndarray]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_PLACES = (_NODES + 1) / 2  # in (0, 1)
_LARGEST = (
    0.99  # a delta beyond it promises nothing, and rounding hides its epsilon: that of this one is an upper bound
)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta of N(0, 1) against N(mu, 1): Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""
    check.positive("gaussian_delta", mu=mu)
    check.non_negative("gaussian_delta", epsilon=epsilon)
    return math.exp(_log_delta(mu, epsilon / mu - mu / 2))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon >= 0 at which N(0, 1) against N(mu, 1) has `delta`."""
    check.positive("gaussian_epsilon", mu=mu)
    check.between("gaussian_epsilon", 0, 1, delta=delta)
    delta = min(delta, _LARGEST)
    goal = math.log(delta)
    if math.erf(mu / math.sqrt(8)) * (1 + 2**-50) <= delta:  # 2 Phi(mu/2) - 1, the delta of epsilon 0
        return 0.0
    # In x = epsilon/mu - mu/2 the curve has one scale for every mu: delta is at most Phi(-x) <= exp(-x²/2).
    safe = math.sqrt(-2 * goal)
    x = _beyond(safe, goal)
    # Halley's method for log delta = log(delta): a step leaves about the cube of an error, so three or four will do.
    for _ in range(100):  # near delta = 1 there are more, and rounding may keep them from getting shorter
        log_delta = _log_delta(mu, x)
        slope, bend = _log_delta_slope(mu, x, log_delta)
        newton = (log_delta - goal) / slope
        step = newton / (1 - newton * bend / 2)
        x -= step
        if abs(step) <= 1e-6 * max(safe, abs(x)):
            break
    size = max(safe, abs(x))
    beyond = 2**-49 * size * (2 + size)  # so far from the root rounding does not hide on which side of it a point is
    while (good := x + beyond) < safe and _log_delta(mu, good) > goal:
        beyond *= 8
    good = good if good < safe else safe
    return max(0.0, mu * (good + mu / 2) * (1 + 2**-50))  # three roundings, upwards


def _beyond(x: float, goal: float) -> float:
    """A point where Phi(-x) is at most e^goal, nearer than `x`, where exp(-x²/2) is that.

    For x > 0, Phi(-x) <= phi(x)/x, which is e^goal where x = sqrt(-2 goal - 2 log(x sqrt(2 pi))). The right side falls
    in x. So its value at a point beyond that root is before the root, and its value there is beyond the root again.
    """
    for _ in range(2):
        square = -2 * (goal + math.log(x)) - math.log(2 * math.pi)
        if square < 1:
            return math.sqrt(-2 * goal)
        x = math.sqrt(square)
    return x


@lru_cache(maxsize=1024)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which N(0, 1) against N(mu, 1) is (`epsilon`, `delta`)-private."""
    check.positive("gaussian_mu", epsilon=epsilon)
    check.between("gaussian_mu", 0, 1, delta=delta)
    goal = math.log(min(delta, _LARGEST))

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return _log_delta(mu, epsilon / mu - mu / 2) - goal

    # epsilon = mu²/2 + mu sqrt(2 log 1/delta), solved for mu, is on the safe side.
    start = 2 * epsilon / (math.sqrt(-2 * goal + 2 * epsilon) + math.sqrt(-2 * goal))
    return math.exp(last_good_from(math.log(start), excess))


@cache
def _special() -> tuple[_Function, _Function]:
    """Kept, because an import statement in a loop of root finding would cost as much as the functions do."""
    from scipy.special import erfcx, ndtr  # pyright: ignore[reportMissingTypeStubs]

    return erfcx, ndtr


def _log_delta(mu: float, x: float) -> float:
    """log delta at epsilon = mu (x + mu/2), to full relative precision.

    With M(t) = Phi(-t)/phi(t), Mills' ratio, delta = phi(x) (M(x) - M(x + mu)). For small mu the difference is the
    integral of -M'(t) = 1 - t M(t) over [x, x + mu], which has nothing left to cancel.
    """
    if x > 37.5:  # delta < 1e-305: the bound Phi(-x) <= exp(-x²/2) will do
        return -x * x / 2
    erfcx, ndtr = _special()
    log_phi = -x * x / 2 - 0.5 * math.log(2 * math.pi)
    if mu <= 0.5:
        t = x + mu * _PLACES
        slope = 1 - t * (math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2)))
        return log_phi + math.log(mu / 2 * float(_WEIGHTS @ slope))
    far = math.sqrt(math.pi / 2) * float(erfcx((x + mu) / math.sqrt(2)))
    return math.log(float(ndtr(-x)) - math.exp(log_phi) * far)


def _log_delta_slope(mu: float, x: float, log_delta: float) -> tuple[float, float]:
    """The derivative of `_log_delta` in x, and the second one divided by it.

    The first is -mu phi(x) M(x + mu) / delta, because d delta / d epsilon is -e^epsilon Phi(-x - mu). The derivative
    of its logarithm is -x + M'(t)/M(t) at t = x + mu, minus the first one; and M'(t) = t M(t) - 1.
    """
    if x > 37.5:
        return -x, 1 / x
    t = x + mu
    mills = math.sqrt(math.pi / 2) * float(_special()[0](t / math.sqrt(2)))
    slope = -mu * math.exp(-x * x / 2 - 0.5 * math.log(2 * math.pi) - log_delta) * mills
    beyond = 1 / mills - t if t < 1e3 else 1 / t  # nothing is left of the difference where t is large
    return slope, -x - beyond - slope
