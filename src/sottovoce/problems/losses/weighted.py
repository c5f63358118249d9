"""Losses in which a record of one class weighs more than one of another.

The weights are public numbers, given by the user: weights read off the labels ("balanced") would be a leak. A record's
loss, and with it its gradient, is multiplied by the weight of its class *before* the gradient is clipped. So all that a
proof needs of a record is as before: its gradient is at most the clip norm, and the loss's constants are those of the
plain loss times the largest weight. Records of a class that weighs more reach the clip norm earlier.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.losses.base import Loss
from sottovoce.problems.losses.signed import Logistic
from sottovoce.problems.losses.softmax import Softmax

LEAST, MOST = 1e-5, 1e5  # of a weight


def checked_weights(who: str, weights: object, classes: int) -> tuple[float, ...]:
    """One number for each class, as floats."""
    numbers = list(cast(Sequence[object], weights)) if isinstance(weights, list | tuple) else []
    fits = len(numbers) == classes and all(isinstance(each, int | float) and LEAST <= each <= MOST for each in numbers)
    rule = f"class_weight must be {classes} numbers from {LEAST:g} to {MOST:g}, one for each class in order"
    hint = "They must be public: weights read off private labels, such as 'balanced', would be a leak"
    check.require(fits, who, f"{rule}, got {check.shown(cast(object, weights))}", hint=hint)
    return tuple(float(cast(float, each)) for each in numbers)


class _Weighted(Loss):
    """A `plain` loss times the weight of each record's class."""

    code = -1
    class_weight: tuple[float, ...]
    plain: Loss
    lipschitz = derived(lambda self: self.plain.lipschitz * max(self.class_weight))
    curvature = derived(lambda self: self.plain.curvature * max(self.class_weight))
    slope_at_zero = derived(lambda self: self.plain.slope_at_zero * max(self.class_weight))

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = checked_weights(type(self).__name__, self.class_weight, max(2, self.outputs))
        object.__setattr__(self, "class_weight", weights)

    def value(self, margin: Floats, y: Floats) -> Floats:
        return self._of(y) * self.plain.value(margin, y)

    def slope(self, margin: Floats, y: Floats) -> Floats:
        return self._of(y, axes=1) * self.plain.slope(margin, y)

    def second(self, margin: Floats, y: Floats) -> Floats:
        return self._of(y, axes=2) * self.plain.second(margin, y)

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        return self.plain.prox(v, y, self._positive_rho(rho) / self._of(y, axes=1))

    def _of(self, y: Floats, axes: int = 0) -> Floats:
        """The weight of each row's class; of a loss with several outputs, with so many axes of length one behind it."""
        one = self.outputs == 1
        weights = np.asarray(self.class_weight)[np.asarray(y > 0 if one else y).astype(np.intp)]
        return weights if one else weights.reshape(*weights.shape, *(1,) * axes)


@vouch
class WeightedLogistic(_Weighted, Logistic):
    """c_y log(1 + exp(-y margin)): the logistic loss with a weight for each of the classes -1 and +1.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import WeightedLogistic
    >>> WeightedLogistic((1.0, 5.0)).value(np.zeros(2), np.array([-1.0, 1.0])).round(3)
    array([0.693, 3.466])
    >>> WeightedLogistic("balanced")
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: WeightedLogistic: class_weight must be 2 numbers from 1e-05 to 100000, ...
    """

    class_weight: tuple[float, ...]
    name = "weighted-logistic"
    plain = derived(lambda self: Logistic())


@vouch
class WeightedSoftmax(_Weighted, Softmax):
    """The softmax loss with a weight for each class.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import WeightedSoftmax
    >>> WeightedSoftmax(3, (1.0, 1.0, 2.0)).value(np.zeros((2, 3)), np.array([0.0, 2.0])).round(3)
    array([1.099, 2.197])
    """

    class_weight: tuple[float, ...]
    name = "weighted-softmax"
    plain = derived(lambda self: Softmax(self.classes))
