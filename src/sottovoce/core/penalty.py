"""The contract of a penalty: the public part of the objective, the same for everyone.

`problems/penalties.py` has those that there are. Every function acts on the last axis and takes any number of leading
axes.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Booleans, Floats, Numbers


class Penalty(ABC):
    """The contract of a penalty: a closed convex function of the model, with a cheap prox.

    An indicator (`finite` is False) is 0 on a set and inf elsewhere. The normal cone of its set is unbounded, so
    by convention its `subgradient` is the element 0, and only `prox` can keep an iteration inside.

    Attributes
    ----------
    separable
        A sum over coordinates, so that prox works on each alone and increases no distance, not even in the l1 norm.
    finite
        Finite everywhere, so that a subgradient step makes sense.
    strong
        Strong-convexity modulus.
    curvature
        Lipschitz constant of the gradient; inf when not smooth.
    steepest
        Supremum of the size of one coordinate of `subgradient` over the domain.

    Examples
    --------
    >>> from sottovoce.problems.penalties import PENALTIES, Penalty
    >>> sorted(PENALTIES)
    ['ball', 'box', 'elastic-net', 'l1', 'l2', 'none']
    >>> all(issubclass(penalty, Penalty) for penalty in PENALTIES.values())
    True
    """

    name: ClassVar[str]
    separable: bool = True
    finite: bool = True
    strong: float = 0.0
    curvature: float = math.inf
    steepest: float = math.inf

    def __post_init__(self) -> None:
        check.fields(self)

    @property
    def smooth(self) -> bool:
        """Differentiable everywhere."""
        return math.isfinite(self.curvature)

    @property
    def ridge(self) -> bool:
        """strong/2 |w|²: the same quadratic function of every coordinate (or nothing at all)."""
        return self.smooth and self.curvature == self.strong

    @property
    def by_gradient(self) -> "Penalty":
        """The part that a client adds to its f_i and takes gradient steps along: all of it if smooth, else nothing."""
        return self if self.smooth else Zero()

    @abstractmethod
    def value(self, w: Floats) -> Floats:
        """The penalty of each vector: the last axis is summed away."""

    @abstractmethod
    def subgradient(self, w: Floats) -> Floats:
        """The gradient, or where there is none the subgradient of least norm."""

    @abstractmethod
    def prox(self, v: Floats, step: Numbers) -> Floats:
        """argmin over w of value(w) + |w - v|^2 / (2 step); `step` > 0 broadcasts to `v`, e.g. with shape (n, 1)."""

    def step(self, x: Floats, keep: Numbers, g: Floats, total: Numbers) -> Floats:
        """argmin over z of value(z) + total/2 |z|² − z·(keep x − g); `keep` and `total` > 0 broadcast to `x`."""
        return self.prox((keep * x - g) / total, 1 / np.asarray(total))

    def smooth_at(self, w: Floats) -> Booleans:
        """Of a penalty that is not smooth but separable: the coordinates around which it is smooth."""
        return np.zeros(np.shape(w), dtype=bool)

    def subgradient_bound(self, dim: int) -> float:
        """Supremum of the Euclidean norm of `subgradient` over the domain, in `dim` coordinates."""
        check.whole(type(self).__name__, dim=dim)
        return self.steepest * math.sqrt(dim)

    def curvatures(self, columns: int) -> Floats | None:
        """Of a quadratic penalty: the second derivative at each of the `columns` coefficients of one output."""
        return np.full(columns, self.strong) if self.ridge else None

    def _check_step(self, step: Numbers) -> None:
        check.positive_array(type(self).__name__, "step", step)


class Zero(Penalty):
    """Nothing."""

    curvature = steepest = 0.0

    def value(self, w: Floats) -> Floats:
        return np.zeros(np.shape(w)[:-1])

    def subgradient(self, w: Floats) -> Floats:
        return np.zeros(np.shape(w))

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        return np.array(v)
