"""The hinge loss of a support vector machine, with its kink rounded off."""

import numpy as np

from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.check import Positive
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.losses.base import SignedLoss


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

    width: Positive = 1.0
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
