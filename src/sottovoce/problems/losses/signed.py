"""Losses of labels -1 and +1: the logistic loss, and the hinge loss of a support vector machine without its kink."""

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.losses.base import Loss, bracketed_root, softplus


class SignedLoss(Loss):
    """A loss of t = y * margin, for labels -1 and +1."""

    classification = True
    lipschitz = 1.0

    def check_labels(self, y: ArrayLike) -> Floats:
        labels = super().check_labels(y)
        others = int(np.count_nonzero(np.abs(labels) != 1.0))
        rule = f"labels must be -1 or +1, and {others} of {labels.size} are neither"
        hint = "Code one class as -1 and the other as +1, such as 2*y-1 for labels 0 and 1"
        check.require(others == 0, type(self).__name__, rule, hint=hint)
        return labels

    def predict(self, margin: Floats) -> Floats:
        return np.where(np.asarray(margin) >= 0.0, 1.0, -1.0)


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
        return softplus(-y * margin)

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


@vouch
class SmoothedHinge(SignedLoss):
    """0 for t >= 1, (1-t)^2/(2 width) for 1-width < t < 1 and 1 - t - width/2 below, t = y * margin.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import SmoothedHinge
    >>> SmoothedHinge().value(np.array([0.5, 0.0]), np.array([1.0, 1.0]))
    array([0.125, 0.5  ])
    """

    width: check.Positive = 1.0
    name = "smoothed-hinge"
    code = 4
    parameter = derived(lambda self: float(self.width))
    curvature = derived(lambda self: 1.0 / self.width)

    def value(self, margin: Floats, y: Floats) -> Floats:
        gap = 1.0 - y * margin
        steepness = np.clip(gap / self.width, 0.0, 1.0)
        return steepness * (gap - 0.5 * self.width * steepness)  # all three branches at once

    def slope(self, margin: Floats, y: Floats) -> Floats:
        return -y * np.clip((1.0 - y * margin) / self.width, 0.0, 1.0)

    def second(self, margin: Floats, y: Floats) -> Floats:
        gap = 1.0 - y * margin
        return np.where((gap >= 0.0) & (gap <= self.width), 1.0 / self.width, 0.0)

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        rho = self._positive_rho(rho)
        a, stiff = y * v, rho * self.width
        quadratic = 1.0 / (1.0 + stiff) + a * (stiff / (1.0 + stiff))
        linear = rho * (1.0 - a) > 1.0 + stiff
        return y * np.where(a >= 1.0, a, np.where(linear, a + 1.0 / rho, quadratic))
