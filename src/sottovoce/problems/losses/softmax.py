"""The softmax loss, for more than two classes."""

import math
from importlib import import_module
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import Booleans, Floats, Numbers
from sottovoce.core.check import Interval, require
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.losses.base import EPS, Loss, softplus


@vouch
class Softmax(Loss):
    """logsumexp(margin) - margin[y] over `classes` margins of each row, labels 0 .. classes-1.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import Softmax
    >>> Softmax(3).predict(np.array([[0.1, 2.0, -1.0]]))
    array([1.])
    """

    classes: Annotated[int, Interval(2, whole=True)]
    name = "softmax"
    code = 1
    classification = True
    probabilities = True
    curvature = 0.5  # of diag(p) - p p', attained when two classes share all the probability
    lipschitz = math.sqrt(2.0)  # of p - e_y, approached when all the probability is on one wrong class
    outputs = derived(lambda self: self.classes)
    # |p − e_y| where all classes are equally likely:
    slope_at_zero = derived(lambda self: math.sqrt(1 - 1 / self.classes))

    def check_labels(self, y: ArrayLike) -> Floats:
        labels = super().check_labels(y)
        others = int(np.count_nonzero((labels != np.floor(labels)) | (labels < 0) | (labels >= self.classes)))
        rule = f"labels must be whole numbers 0..{self.classes - 1}, and {others} of {labels.size} are not"
        hint = "Number the classes from 0, e.g. np.unique(y, return_inverse=True)[1], or raise `classes`"
        require(others == 0, "Softmax", rule, hint=hint)
        return labels

    def value(self, margin: Floats, y: Floats) -> Floats:
        label = self._is_label(y)
        of_label = np.where(label, margin, 0.0).sum(axis=-1)
        others = np.where(label, -np.inf, margin) - of_label[..., None]
        top = others.max(axis=-1)
        # log(1 + sum over the other classes), so that a tiny loss keeps its digits
        return softplus(top + np.log(np.exp(others - top[..., None]).sum(axis=-1)))

    def slope(self, margin: Floats, y: Floats) -> Floats:
        return _softmax_slope(margin, self._is_label(y))

    def second(self, margin: Floats, y: Floats) -> Floats:
        p = _probabilities(margin)
        return p[..., None] * np.eye(self.classes) - p[..., :, None] * p[..., None, :]

    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        """As in `Loss`; one rho for each row has shape (rows, 1): it broadcasts against (..., rows, classes)."""
        return _softmax_prox(v, self._is_label(y), self._positive_rho(rho))

    def predict(self, margin: Floats) -> Floats:
        return np.argmax(margin, axis=-1).astype(np.float64)

    def _is_label(self, y: Floats) -> Booleans:
        return np.asarray(y)[..., None] == np.arange(self.classes)


def _probabilities(margin: Floats) -> Floats:
    weight = np.exp(margin - np.max(margin, axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def _softmax_slope(margin: Floats, label: Booleans) -> Floats:
    """p - e_y, with 1 - p_y summed from the other classes so that it keeps its digits."""
    others = np.where(label, 0.0, _probabilities(margin))
    return others - label * others.sum(axis=-1, keepdims=True)


def _softmax_prox(v: Floats, label: Booleans, rho: Floats) -> Floats:
    """Row by row, the z with rho (z - v) + p(z) - e_y = 0.

    Given the level L = logsumexp(z) each coordinate has a closed form, p_j = rho omega(b_j - L - log rho) with
    b = v + e_y/rho and omega Wright's function, and the right L is the root of sum p = 1. The sum is convex and
    falling in L, so Newton's method climbs to the root from any L that is too low, as is max(b - 1/rho), where the
    largest p is 1. This is safe from any v but cancels when 1/rho is large; Newton's method in z then restores the
    digits.
    """
    wrightomega = import_module("scipy.special").wrightomega
    v, label, rho = np.broadcast_arrays(np.asarray(v, dtype=np.float64), label, rho)
    pull = v + label / rho
    level = np.max(pull - 1.0 / rho, axis=-1, keepdims=True)
    size = np.max(np.abs(v), axis=-1, keepdims=True)
    near = 1e-9 * (1.0 + size) + 8.0 * EPS / rho  # nearer than this is lost to that cancellation
    for _ in range(100):
        odds = wrightomega(pull - level - np.log(rho))  # p / rho
        excess = np.sum(rho * odds, axis=-1, keepdims=True) - 1.0
        rise = excess / np.sum(rho * odds / (1.0 + odds), axis=-1, keepdims=True)
        level = level + rise
        if not np.any(rise > near):
            break
    z = pull - wrightomega(pull - level - np.log(rho))
    for _ in range(100):
        step = _newton_step(z, rho * (z - v) + _softmax_slope(z, label), rho)
        z = z + step
        if not np.any(np.abs(step) > 8.0 * EPS * (np.max(np.abs(z), axis=-1, keepdims=True) + size)):
            break
    return z


def _newton_step(z: Floats, gradient: Floats, rho: Floats) -> Floats:
    """Damped Newton step for the Hessian diag(rho + p) - p p', inverted by the Sherman-Morrison formula.

    Along a direction of spread R (largest minus smallest entry) the second derivative grows at most like exp(R s),
    for which the step s = log(1 + R)/R never increases the objective; it tends to 1 near the solution.
    """
    p = _probabilities(z)
    diagonal = rho + p
    inner = np.sum(p * gradient / diagonal, axis=-1, keepdims=True)
    room = np.sum(p * rho / diagonal, axis=-1, keepdims=True)  # 1 - p' diag^-1 p, without the cancellation
    newton = -(gradient + p * inner / room) / diagonal
    spread = np.maximum(np.ptp(newton, axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    return newton * (np.log1p(spread) / spread)
