"""The contract of a loss: `problems/losses` has the losses, and doors rely on the constants of those that are ours.

Every function works on each row by itself and takes any number of leading axes. Labels are checked once, by
`check_labels`; the other methods expect what it returned.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Numbers
from sottovoce.core.vouched import derived


class Loss(ABC):
    """The contract of a loss, convex in the margin.

    A loss with one output has margins of shape (..., rows) and labels of shape (rows,). A loss with several outputs has
    margins of shape (..., rows, outputs) and still one label for each row.

    Attributes
    ----------
    probabilities
        Whether margins stand for probabilities of classes.
    outputs
        Margins of each row.
    curvature
        Largest second derivative (spectral norm of the Hessian block if there are several outputs).
    lipschitz
        Supremum of the size of the slope (Euclidean if there are several outputs); inf if there is none.
    strong
        Smallest second derivative.
    slope_at_zero
        Size of the slope where the margin is 0, where training starts; inf if it depends on the label.
    code, parameter
        By these the compiled kernel knows the formula: the number of the loss, and the loss's own number (its width).
        A negative number: it does not, and NumPy computes.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import LOSSES, Loss
    >>> sorted(LOSSES)
    ['huber', 'logistic', 'smoothed-hinge', 'softmax', 'squared', 'weighted-logistic', 'weighted-softmax']
    >>> all(issubclass(loss, Loss) for loss in LOSSES.values())
    True
    """

    name: ClassVar[str]
    code: ClassVar[int]
    classification: bool
    probabilities: bool = False
    outputs: int = 1
    parameter: float = 0.0
    curvature: float = math.inf
    lipschitz: float = math.inf
    strong: float = 0.0

    def __post_init__(self) -> None:
        check.fields(self)

    @derived
    def slope_at_zero(self) -> float:
        return self.lipschitz  # a bound on it, for a loss that does not state its own

    @property
    def convex(self) -> bool:
        """Whether a row's loss is convex in the *parameters*, of which its margin is then a linear function."""
        return self.strong >= 0.0

    def model_size(self, columns: int) -> int:
        """How many parameters a model for rows of so many columns has."""
        return columns * self.outputs

    def scores(self, X: AnyArray, w: Floats) -> Floats:
        """Margins of rows X at flat parameters w (..., dim)."""
        return margins(X, w, self.outputs)

    def check_labels(self, y: ArrayLike) -> Floats:
        """The labels as a float64 array (rows,), or an error that says which labels this loss understands."""
        return check.finite_array(type(self).__name__, "labels", y, 1)

    def check_both_classes(self, y: AnyArray) -> None:
        """Refuse labels of a single class: the loss then has no minimiser worth training for."""
        several = len(y) > 0 and not bool(np.all(y == y[0]))
        reason = f"all {len(y)} labels are the same" if len(y) else "there are no labels"
        hint = "Add rows of another class, or shuffle before taking a subset"
        rule = f"labels hold one class only, {reason}"
        check.require(several or not self.classification, type(self).__name__, rule, hint=hint)

    @abstractmethod
    def value(self, margin: Floats, y: Floats) -> Floats:
        """Loss of each row, (..., rows)."""

    @abstractmethod
    def slope(self, margin: Floats, y: Floats) -> Floats:
        """Derivative with respect to the margin, of the margin's shape."""

    @abstractmethod
    def second(self, margin: Floats, y: Floats) -> Floats:
        """Second derivative (where the slope has a kink, the larger one): (..., rows), or Hessian blocks with two axes
        of length `outputs` at the end."""

    @abstractmethod
    def prox(self, v: Floats, y: Floats, rho: Numbers) -> Floats:
        """argmin over z of value(z, y) + rho/2 |z - v|^2; `rho` > 0 broadcasts against `v`."""

    def predict(self, margin: Floats) -> Floats:
        """Predictions as floats, in the form in which `check_labels` returns labels."""
        return np.asarray(margin, dtype=np.float64)

    def _positive_rho(self, rho: Numbers) -> Floats:
        return check.positive_array(type(self).__name__, "rho", rho)


def margins(X: AnyArray, w: AnyArray, outputs: int) -> Floats:
    """Margins of rows X at flat parameters w (..., dim): (..., rows), or (..., rows, outputs) if there are several."""
    rows, points = np.asarray(X), np.asarray(w)
    shapes = (rows.shape, points.shape)
    fits = rows.ndim == 2 and points.shape[-1:] == (rows.shape[1] * outputs,)
    check.require(fits, "margins", f"w must end in an axis of {outputs} x the columns of X", shapes)
    by_output = points.reshape(*points.shape[:-1], outputs, rows.shape[1]) @ rows.T
    return by_output.swapaxes(-1, -2) if outputs > 1 else by_output[..., 0, :]
