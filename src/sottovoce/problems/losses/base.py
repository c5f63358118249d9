"""Losses of linear models: what one row costs, as a function of its margin.

Every function is elementwise over rows and takes any number of leading axes. Nothing here checks labels again:
`check_labels` is the border, and what it returned is what the other methods expect.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.check import InvalidInput, finite_array, positive, require, whole
from sottovoce.core.vouched import vouch

_EPS = float(np.finfo(np.float64).eps)


class Loss(ABC):
    """The contract of a loss, convex in the margin.

    A scalar loss (`outputs` == 1) has margins of shape (..., rows) and labels of shape (rows,). A loss with several
    outputs has margins of shape (..., rows, outputs) and still one label a row. `code` and `parameter` are what
    the compiled kernel needs to choose the same formula.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import LOSSES, Loss
    >>> sorted(LOSSES)
    ['huber', 'logistic', 'smoothed-hinge', 'softmax', 'squared']
    >>> all(issubclass(loss, Loss) for loss in LOSSES.values())
    True
    """

    name: ClassVar[str]
    code: ClassVar[int]
    classification: ClassVar[bool]

    @property
    def outputs(self) -> int:
        """Margins per row."""
        return 1

    @property
    def parameter(self) -> float:
        """The loss's own number (its width), 0.0 if it has none."""
        return 0.0

    @property
    @abstractmethod
    def curvature(self) -> float:
        """Largest second derivative (spectral norm of the Hessian block when there are several outputs)."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """Supremum of the size of the slope (Euclidean when there are several outputs); inf if there is none."""

    @property
    def strong(self) -> float:
        """Smallest second derivative."""
        return 0.0

    @property
    def convex(self) -> bool:
        """Whether a row's loss is convex in the *parameters*, of which its margin is then a linear function."""
        return self.strong >= 0.0

    def scores(self, X: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Margins of rows X at flat parameters w (..., dim)."""
        from sottovoce.problems.subproblem import margins  # which is about losses

        return margins(X, w, self.outputs)

    def check_labels(self, y: ArrayLike) -> np.ndarray:
        """The labels as a float64 array (rows,), or an error that says which labels this loss understands."""
        return finite_array(type(self).__name__, "labels", y, 1)

    def check_both_classes(self, y: np.ndarray) -> None:
        """Refuse labels of a single class: the loss then has no minimiser worth training for."""
        if self.classification and (len(y) == 0 or bool(np.all(y == y[0]))):
            found = f"all {len(y)} labels are the same" if len(y) else "there are no labels"
            raise InvalidInput(
                f"{type(self).__name__}: labels hold one class only, {found}. Add rows of another class, or shuffle "
                "before taking a subset"
            )

    @abstractmethod
    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Loss of each row, (..., rows)."""

    @abstractmethod
    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Derivative with respect to the margin, of the margin's shape."""

    @abstractmethod
    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Second derivative (at a kink of the slope the larger one): (..., rows), or Hessian blocks with two axes
        of length `outputs` at the end."""

    @abstractmethod
    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        """argmin over z of value(z, y) + rho/2 |z - v|^2; `rho` > 0 broadcasts against `v`."""

    def predict(self, margin: np.ndarray) -> np.ndarray:
        """Predictions as floats, in the form in which `check_labels` returns labels."""
        return np.asarray(margin, dtype=np.float64)


class _Signed(Loss):
    """A loss of t = y * margin, labels -1 and +1."""

    classification = True

    @property
    def lipschitz(self) -> float:
        return 1.0

    def check_labels(self, y: ArrayLike) -> np.ndarray:
        labels = super().check_labels(y)
        others = labels[np.abs(labels) != 1.0]
        if others.size:
            raise InvalidInput(
                f"{type(self).__name__}: labels must be -1 or +1, and {others.size} of {labels.size} are neither. Code "
                "one class as -1 and the other as +1, such as 2*y-1 for labels 0 and 1"
            )
        return labels

    def predict(self, margin: np.ndarray) -> np.ndarray:
        return np.where(np.asarray(margin) >= 0.0, 1.0, -1.0)


@vouch
@dataclass(frozen=True)
class Logistic(_Signed):
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

    @property
    def curvature(self) -> float:
        return 0.25

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, -y * margin)

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -y * _tail(y * margin)

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        t = y * margin
        return _tail(t) * _tail(-t)  # not s(1-s), which loses all digits of a small 1-s

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        return y * _logistic_prox(y * v, _positive_rho(self, rho))


@vouch
@dataclass(frozen=True)
class Softmax(Loss):
    """logsumexp(margin) - margin[y] over `classes` margins a row, labels 0 .. classes-1.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import Softmax
    >>> Softmax(3).predict(np.array([[0.1, 2.0, -1.0]]))
    array([1.])
    """

    classes: int
    name = "softmax"
    code = 1
    classification = True

    def __post_init__(self) -> None:
        whole("Softmax", at_least=2, classes=self.classes)

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def curvature(self) -> float:
        return 0.5  # of diag(p) - p p', attained when two classes share all the probability

    @property
    def lipschitz(self) -> float:
        return math.sqrt(2.0)  # of p - e_y, approached when all the probability is on one wrong class

    def check_labels(self, y: ArrayLike) -> np.ndarray:
        labels = super().check_labels(y)
        bad = labels[(labels != np.floor(labels)) | (labels < 0) | (labels >= self.classes)]
        if bad.size:
            raise InvalidInput(
                f"Softmax: labels must be whole numbers 0..{self.classes - 1}, and {bad.size} of "
                f"{labels.size} are not. Number the classes from 0, e.g. np.unique(y, return_inverse=True)[1], "
                "or raise `classes`"
            )
        return labels

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        label = self._is_label(y)
        own = np.where(label, margin, 0.0).sum(axis=-1)
        rivals = np.where(label, -np.inf, margin) - own[..., None]
        top = rivals.max(axis=-1)
        # log(1 + sum over rivals), so that a tiny loss keeps its digits
        return np.logaddexp(0.0, top + np.log(np.exp(rivals - top[..., None]).sum(axis=-1)))

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return _softmax_slope(margin, self._is_label(y))

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        p = _probabilities(margin)
        return p[..., None] * np.eye(self.classes) - p[..., :, None] * p[..., None, :]

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        """As in `Loss`; one rho a row has shape (rows, 1), since `rho` broadcasts against (..., rows, classes)."""
        return _softmax_prox(v, self._is_label(y), _positive_rho(self, rho))

    def predict(self, margin: np.ndarray) -> np.ndarray:
        return np.argmax(margin, axis=-1).astype(np.float64)

    def _is_label(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y)[..., None] == np.arange(self.classes)


@vouch
@dataclass(frozen=True)
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

    @property
    def curvature(self) -> float:
        return 1.0

    @property
    def strong(self) -> float:
        return 1.0

    @property
    def lipschitz(self) -> float:
        return math.inf

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 0.5 * np.square(margin - y)

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return margin - y

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.ones(np.broadcast_shapes(np.shape(margin), np.shape(y)))

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        rho = _positive_rho(self, rho)
        return y / (1.0 + rho) + v * (rho / (1.0 + rho))


@vouch
@dataclass(frozen=True)
class Huber(Loss):
    """r^2/2 for |r| <= width and width |r| - width^2/2 beyond, r = margin - y: the squared loss, its slope clipped.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import Huber
    >>> Huber(width=1.0).slope(np.array([0.5, 100.0]), np.array([0.0, 0.0]))
    array([0.5, 1. ])
    """

    width: float = 1.0
    name = "huber"
    code = 3
    classification = False

    def __post_init__(self) -> None:
        positive("Huber", width=self.width)

    @property
    def parameter(self) -> float:
        return float(self.width)

    @property
    def curvature(self) -> float:
        return 1.0

    @property
    def lipschitz(self) -> float:
        return float(self.width)

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        clipped = self.slope(margin, y)
        return clipped * (margin - y - 0.5 * clipped)  # both branches at once

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.clip(margin - y, -self.width, self.width)

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(np.abs(margin - y) <= self.width, 1.0, 0.0)

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        rho = _positive_rho(self, rho)
        quadratic = y / (1.0 + rho) + v * (rho / (1.0 + rho))
        far = rho * np.abs(v - y) > self.width * (1.0 + rho)
        return np.where(far, v - np.sign(v - y) * self.width / rho, quadratic)


@vouch
@dataclass(frozen=True)
class SmoothedHinge(_Signed):
    """0 for t >= 1, (1-t)^2/(2 width) for 1-width < t < 1 and 1 - t - width/2 below, t = y * margin.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import SmoothedHinge
    >>> SmoothedHinge().value(np.array([0.5, 0.0]), np.array([1.0, 1.0]))
    array([0.125, 0.5  ])
    """

    width: float = 1.0
    name = "smoothed-hinge"
    code = 4

    def __post_init__(self) -> None:
        positive("SmoothedHinge", width=self.width)

    @property
    def parameter(self) -> float:
        return float(self.width)

    @property
    def curvature(self) -> float:
        return 1.0 / self.width

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        gap = 1.0 - y * margin
        steepness = np.clip(gap / self.width, 0.0, 1.0)
        return steepness * (gap - 0.5 * self.width * steepness)  # all three branches at once

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -y * np.clip((1.0 - y * margin) / self.width, 0.0, 1.0)

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        gap = 1.0 - y * margin
        return np.where((gap >= 0.0) & (gap <= self.width), 1.0 / self.width, 0.0)

    def prox(self, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
        rho = _positive_rho(self, rho)
        a, stiff = y * v, rho * self.width
        quadratic = 1.0 / (1.0 + stiff) + a * (stiff / (1.0 + stiff))
        linear = rho * (1.0 - a) > 1.0 + stiff
        return y * np.where(a >= 1.0, a, np.where(linear, a + 1.0 / rho, quadratic))


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Logistic, Softmax, Squared, Huber, SmoothedHinge)}


def newton_prox(loss: Loss, v: np.ndarray, y: np.ndarray, rho: float | np.ndarray) -> np.ndarray:
    """The prox of a loss of one output that has no formula of its own, convex or not, by Newton inside a bracket.

    `loss.strong` is its smallest second derivative, negative if it is not convex; rho must exceed its size, so that
    what is minimised is strongly convex. Then |slope(v)| / (rho + strong) is as far from v as the minimiser can be.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import Squared, newton_prox
    >>> newton_prox(Squared(), np.array([2.0]), np.array([0.0]), 1.0)
    array([1.])
    """
    rho = _positive_rho(loss, rho)
    require(
        bool(np.all(rho + loss.strong > 0.0)),
        type(loss).__name__,
        f"rho must exceed {-loss.strong:g}",
        float(rho.min()),
    )
    v, y, rho = np.broadcast_arrays(np.asarray(v, dtype=np.float64), y, rho)
    pull = loss.slope(v, y)
    reach = -pull / (rho + min(loss.strong, 0.0))
    low, high, t = np.minimum(v, v + reach), np.maximum(v, v + reach), v
    for _ in range(100):
        excess = rho * (t - v) + loss.slope(t, y)
        low, high = np.where(excess < 0.0, t, low), np.where(excess > 0.0, t, high)
        new = t - excess / (rho + loss.second(t, y))
        new = np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        moved, t = np.abs(new - t), new
        if not np.any(moved > 4.0 * _EPS * (np.abs(t) + np.abs(v))):
            break
    return t


def _positive_rho(loss: Loss, rho: float | np.ndarray) -> np.ndarray:
    array = np.asarray(rho, dtype=np.float64)
    good = (array > 0.0) & np.isfinite(array)
    if not good.all():
        require(False, type(loss).__name__, "rho must be finite and > 0", float(array[~good][0]))
    return array


def _tail(t: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(t)) to full relative precision: exp is only asked for negative arguments."""
    small = np.exp(-np.abs(t))
    return np.where(t >= 0.0, small, 1.0) / (1.0 + small)


def _logistic_prox(a: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """The root t of rho (t - a) = 1 / (1 + exp(t)), by Newton inside a bracket.

    The right side falls from 1 to 0, so t - a lies between 0 and tail(a)/rho; and at max(a, 0) + log(1 + 1/rho) the
    left side has overtaken it. That upper end bounds the slope at the root, which gives a lower end too. The slope
    changes its bend only at t = 0: Newton from the bracket's point nearest to 0 runs monotonically to the root.
    """
    a, rho = np.broadcast_arrays(np.asarray(a, dtype=np.float64), rho)
    high = np.minimum(a + _tail(a) / rho, np.maximum(a, 0.0) + np.log1p(1.0 / rho))
    steepest = np.maximum(rho * (high - a), np.finfo(np.float64).tiny)
    # solve tail(t) = steepest; above 1/2 its complement has lost digits, and `a` is then as good an end
    low = np.where(steepest < 0.5, np.clip(np.log1p(-np.minimum(steepest, 0.5)) - np.log(steepest), a, high), a)
    t = np.clip(0.0, low, high)
    for _ in range(100):
        tail = _tail(t)
        excess = rho * (t - a) - tail
        low, high = np.where(excess < 0.0, t, low), np.where(excess > 0.0, t, high)
        new = t - excess / (rho + tail * _tail(-t))
        new = np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        moved, t = np.abs(new - t), new
        if not np.any(moved > 4.0 * _EPS * (np.abs(t) + np.abs(a))):
            break
    return t


def _probabilities(margin: np.ndarray) -> np.ndarray:
    weight = np.exp(margin - np.max(margin, axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def _softmax_slope(margin: np.ndarray, label: np.ndarray) -> np.ndarray:
    """p - e_y, with 1 - p_y summed from the other classes so that it keeps its digits."""
    rivals = np.where(label, 0.0, _probabilities(margin))
    return rivals - label * rivals.sum(axis=-1, keepdims=True)


def _softmax_prox(v: np.ndarray, label: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """Row by row, the z with rho (z - v) + p(z) - e_y = 0.

    Given the level L = logsumexp(z) each coordinate has a closed form, p_j = rho omega(b_j - L - log rho) with
    b = v + e_y/rho and omega Wright's function, and the right L is the root of sum p = 1. The sum is convex and
    falling in L, so Newton climbs to the root from any L that is too low, as is max(b - 1/rho), where the largest
    p is 1. This is safe from any v but cancels when 1/rho is large; Newton in z itself then restores the digits.
    """
    from scipy.special import wrightomega

    v, label, rho = np.broadcast_arrays(np.asarray(v, dtype=np.float64), label, rho)
    pull = v + label / rho
    level = np.max(pull - 1.0 / rho, axis=-1, keepdims=True)
    size = np.max(np.abs(v), axis=-1, keepdims=True)
    near = 1e-9 * (1.0 + size) + 8.0 * _EPS / rho  # nearer than this is lost to that cancellation
    for _ in range(100):
        odds = wrightomega(pull - level - np.log(rho))  # p / rho
        excess = np.sum(rho * odds, axis=-1, keepdims=True) - 1.0
        rise = excess / np.sum(rho * odds / (1.0 + odds), axis=-1, keepdims=True)
        level = level + rise
        if not np.any(rise > near):
            break
    z = pull - wrightomega(pull - level - np.log(rho))
    for _ in range(100):
        step = _softmax_newton_step(z, rho * (z - v) + _softmax_slope(z, label), rho)
        z = z + step
        if not np.any(np.abs(step) > 8.0 * _EPS * (np.max(np.abs(z), axis=-1, keepdims=True) + size)):
            break
    return z


def _softmax_newton_step(z: np.ndarray, gradient: np.ndarray, rho: np.ndarray) -> np.ndarray:
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
