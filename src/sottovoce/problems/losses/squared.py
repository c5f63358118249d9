"""The squared loss, and Huber's loss, whose slope is bounded."""

import numpy as np

from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.check import Positive
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.losses.base import Loss


@vouch
class Squared(Loss):
    """(margin - y)^2 / 2.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import Squared
    >>> Squared().value(np.array([1.0, 3.0]), np.array([0.0, 3.0]))
    array([0.5, 0. ])
    """

    name = "squared"
    code = 2
    classification = False
    curvature = strong = 1.0

    def value(self, margin: Floats, y: Floats) -> Floats:
        return 0.5 * np.square(margin - y)

    def slope(self, margin: Floats, y: Floats) -> Floats:
        return margin - y

    def second(self, margin: Floats, y: Floats) -> Floats:
        return np.ones(np.broadcast_shapes(np.shape(margin), np.shape(y)))

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        rho = self._positive_rho(rho)
        return y / (1.0 + rho) + v * (rho / (1.0 + rho))


@vouch
class Huber(Squared):
    """r^2/2 for |r| <= width and width |r| - width^2/2 beyond, r = margin - y: the squared loss with a clipped slope.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import Huber
    >>> Huber(width=1.0).slope(np.array([0.5, 100.0]), np.array([0.0, 0.0]))
    array([0.5, 1. ])
    """

    width: Positive = 1.0
    name = "huber"
    code = 3
    strong = 0.0
    parameter = lipschitz = derived(lambda self: float(self.width))

    def value(self, margin: Floats, y: Floats) -> Floats:
        clipped = self.slope(margin, y)
        return clipped * (margin - y - 0.5 * clipped)  # both branches at once

    def slope(self, margin: Floats, y: Floats) -> Floats:
        return np.clip(margin - y, -self.width, self.width)

    def second(self, margin: Floats, y: Floats) -> Floats:
        return np.where(np.abs(margin - y) <= self.width, 1.0, 0.0)

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        rho = self._positive_rho(rho)
        far = rho * np.abs(v - y) > self.width * (1.0 + rho)
        return np.where(far, v - np.sign(v - y) * self.width / rho, super().prox(v, y, rho))
