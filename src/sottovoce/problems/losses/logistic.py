"""The logistic loss."""

import numpy as np

from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.vouched import vouch
from sottovoce.problems.losses.base import SignedLoss, bracketed_root


@vouch
class Logistic(SignedLoss):
    """log(1 + exp(-t)), t = y * margin.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import Logistic
    >>> Logistic().value(np.array([0.0, 3.0]), np.array([1.0, 1.0])).round(3)
    array([0.693, 0.049])
    >>> Logistic().check_labels([0, 1])
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: Logistic: labels must be -1 or +1, and 1 of 2 are neither. ...
    """

    name = "logistic"
    code = 0
    probabilities = True
    curvature = 0.25
    slope_at_zero = 0.5  # of every record, whatever its label

    def value(self, margin: Floats, y: Floats) -> Floats:
        return np.logaddexp(0.0, -y * margin)

    def slope(self, margin: Floats, y: Floats) -> Floats:
        return -y * _tail(y * margin)

    def second(self, margin: Floats, y: Floats) -> Floats:
        t = y * margin
        return _tail(t) * _tail(-t)  # not s(1-s), which loses all digits of a small 1-s

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        return y * _logistic_prox(y * v, self._positive_rho(rho))


def _tail(t: Floats) -> Floats:
    """1 / (1 + exp(t)) to full relative precision: exp is only taken of negative numbers."""
    small = np.exp(-np.abs(t))
    return np.where(t >= 0.0, small, 1.0) / (1.0 + small)


def _logistic_prox(a: Floats, rho: Floats) -> Floats:
    """The root t of rho (t - a) = 1 / (1 + exp(t)).

    The right side falls from 1 to 0, so t - a lies between 0 and tail(a)/rho; and at max(a, 0) + log(1 + 1/rho) the
    left side is larger. That upper end bounds the slope at the root, which gives a lower end too. The slope changes
    its bend only at t = 0: Newton's method from the point of the bracket that is nearest to 0 is monotone.
    """
    a, rho = np.broadcast_arrays(np.asarray(a, dtype=np.float64), rho)
    high = np.minimum(a + _tail(a) / rho, np.maximum(a, 0.0) + np.log1p(1.0 / rho))
    steepest = np.maximum(rho * (high - a), np.finfo(np.float64).tiny)
    # solve tail(t) = steepest; above 1/2 its complement has lost digits, and `a` is then as good an end
    low = np.where(steepest < 0.5, np.clip(np.log1p(-np.minimum(steepest, 0.5)) - np.log(steepest), a, high), a)

    def equation(t: Floats) -> tuple[Floats, Floats]:
        tail = _tail(t)
        return rho * (t - a) - tail, rho + tail * _tail(-t)

    return bracketed_root(equation, low, high, np.clip(0.0, low, high), a)
