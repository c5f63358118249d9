"""Penalties: the part of the objective that knows the model but no data.

Every function acts on the last axis and takes any number of leading axes.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce.core.check import InvalidInput, positive, require, shown, whole
from sottovoce.core.compiling import compiled_pays
from sottovoce.core.vouched import vouch

SLACK = 2.0**12
"""How far outside its set an indicator still counts a point as inside, in units of the machine epsilon of the array
times the bound (9e-13 of the bound in float64): rounding must not put a projected point outside."""


class Penalty(ABC):
    """The contract of a penalty: a closed convex function of the model, with a cheap prox.

    An indicator (`finite` is False) is 0 on a set and inf elsewhere. The normal cone of its set is unbounded, so
    by convention its `subgradient` is the element 0, and only `prox` can keep an iteration inside.

    Examples
    --------
    >>> from sottovoce.problems.penalties import PENALTIES, Penalty
    >>> sorted(PENALTIES)
    ['ball', 'box', 'elastic-net', 'l1', 'l2', 'none']
    >>> all(issubclass(penalty, Penalty) for penalty in PENALTIES.values())
    True
    """

    name: ClassVar[str]

    @property
    def smooth(self) -> bool:
        """Differentiable everywhere."""
        return math.isfinite(self.curvature)

    @property
    def separable(self) -> bool:
        """A sum over coordinates, so that prox works on each alone and stretches no distance, not even in L1."""
        return True

    @property
    def finite(self) -> bool:
        """Finite everywhere, so that a subgradient step makes sense."""
        return True

    @property
    def by_gradient(self) -> "Penalty":
        """What of it a client adds to its f_i and takes steps along: all if it is smooth, else nothing."""
        return self if self.smooth else NoPenalty()

    @property
    def strong(self) -> float:
        """Strong-convexity modulus."""
        return 0.0

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the gradient; inf when not smooth."""
        return math.inf

    @abstractmethod
    def value(self, w: np.ndarray) -> np.ndarray:
        """The penalty of each vector: the last axis is summed away."""

    @abstractmethod
    def subgradient(self, w: np.ndarray) -> np.ndarray:
        """The gradient, or where there is none the subgradient of least norm."""

    @abstractmethod
    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        """argmin over w of value(w) + |w - v|^2 / (2 step); `step` > 0 broadcasts to `v`, e.g. with shape (n, 1)."""

    def step(self, x: np.ndarray, keep: float | np.ndarray, g: np.ndarray, total: float | np.ndarray) -> np.ndarray:
        """argmin over z of value(z) + total/2 |z|² − z·(keep x − g); `keep` and `total` > 0 broadcast to `x`."""
        return self.prox((keep * x - g) / total, 1 / np.asarray(total))

    @abstractmethod
    def subgradient_bound(self, dim: int) -> float:
        """Supremum of the Euclidean norm of `subgradient` over the domain, in `dim` coordinates."""


@vouch
@dataclass(frozen=True)
class NoPenalty(Penalty):
    """Zero.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import NoPenalty
    >>> NoPenalty().prox(np.array([3.0, -1.0]), step=1.0)
    array([ 3., -1.])
    """

    name = "none"

    @property
    def curvature(self) -> float:
        return 0.0

    def value(self, w: np.ndarray) -> np.ndarray:
        return np.zeros(np.shape(w)[:-1])

    def subgradient(self, w: np.ndarray) -> np.ndarray:
        return np.zeros(np.shape(w))

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        _check_step(self, step)
        return np.array(v)

    def step(self, x: np.ndarray, keep: float | np.ndarray, g: np.ndarray, total: float | np.ndarray) -> np.ndarray:
        return shrink(x, keep, g, 0.0, total)

    def subgradient_bound(self, dim: int) -> float:
        whole("NoPenalty", dim=dim)
        return 0.0


@vouch
@dataclass(frozen=True)
class L1(Penalty):
    """lam |w|_1.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L1
    >>> L1(0.5).prox(np.array([3.0, -0.2]), step=1.0)
    array([2.5, 0. ])
    """

    lam: float
    name = "l1"

    def __post_init__(self) -> None:
        positive("L1", lam=self.lam)

    def value(self, w: np.ndarray) -> np.ndarray:
        return self.lam * np.abs(w).sum(axis=-1)

    def subgradient(self, w: np.ndarray) -> np.ndarray:
        return self.lam * np.sign(w)

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        _check_step(self, step)
        return _soften(v, self.lam * step)

    def step(self, x: np.ndarray, keep: float | np.ndarray, g: np.ndarray, total: float | np.ndarray) -> np.ndarray:
        return shrink(x, keep, g, self.lam, total)

    def subgradient_bound(self, dim: int) -> float:
        whole("L1", dim=dim)
        return self.lam * math.sqrt(dim)


@vouch
@dataclass(frozen=True)
class L2(Penalty):
    """lam/2 |w|_2^2.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L2
    >>> L2(1.0).prox(np.array([3.0, -1.0]), step=1.0)
    array([ 1.5, -0.5])
    """

    lam: float
    name = "l2"

    def __post_init__(self) -> None:
        positive("L2", lam=self.lam)

    @property
    def strong(self) -> float:
        return float(self.lam)

    @property
    def curvature(self) -> float:
        return float(self.lam)

    def value(self, w: np.ndarray) -> np.ndarray:
        return 0.5 * self.lam * np.square(w).sum(axis=-1)

    def subgradient(self, w: np.ndarray) -> np.ndarray:
        return self.lam * w

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        _check_step(self, step)
        return v / (1.0 + self.lam * step)

    def subgradient_bound(self, dim: int) -> float:
        whole("L2", dim=dim)
        return math.inf


@vouch
@dataclass(frozen=True)
class ElasticNet(Penalty):
    """l1 |w|_1 + l2/2 |w|_2^2.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import ElasticNet
    >>> float(ElasticNet(l1=1.0, l2=0.5).value(np.array([1.0, 1.0])))
    2.5
    """

    l1: float
    l2: float
    name = "elastic-net"

    def __post_init__(self) -> None:
        alone = "Use L2 alone" if self.l1 == 0 else "Use L1 alone"
        given = f"got ({shown(self.l1)}, {shown(self.l2)})"
        require(self.l1 != 0 and self.l2 != 0, "ElasticNet", f"l1 and l2 must be > 0, {given}", hint=alone)
        positive("ElasticNet", l1=self.l1, l2=self.l2)

    @property
    def strong(self) -> float:
        return float(self.l2)

    def value(self, w: np.ndarray) -> np.ndarray:
        return self.l1 * np.abs(w).sum(axis=-1) + 0.5 * self.l2 * np.square(w).sum(axis=-1)

    def subgradient(self, w: np.ndarray) -> np.ndarray:
        return self.l1 * np.sign(w) + self.l2 * w

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        _check_step(self, step)
        return _soften(v, self.l1 * step) / (1.0 + self.l2 * step)

    def subgradient_bound(self, dim: int) -> float:
        whole("ElasticNet", dim=dim)
        return math.inf


class _Indicator(Penalty):
    """0 on a set, inf outside; value and subgradient follow from who is inside."""

    @property
    def finite(self) -> bool:
        return False

    @abstractmethod
    def _inside(self, w: np.ndarray) -> np.ndarray:
        """Which vectors lie in the set, up to `SLACK`."""

    def value(self, w: np.ndarray) -> np.ndarray:
        return np.where(self._inside(w), 0.0, math.inf)

    def subgradient(self, w: np.ndarray) -> np.ndarray:
        outside = int(np.sum(~self._inside(w)))
        if outside:
            raise InvalidInput(
                f"{self!r}: a subgradient exists only inside the set, got {outside} vectors outside it. "
                "Project them with `prox` first"
            )
        return np.zeros(np.shape(w))

    def subgradient_bound(self, dim: int) -> float:
        whole(type(self).__name__, dim=dim)
        return 0.0


@vouch
@dataclass(frozen=True)
class Box(_Indicator):
    """0 where low <= w_j <= high for every coordinate, inf elsewhere; a bound may be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import Box
    >>> Box(-1.0, 1.0).prox(np.array([3.0, -0.5]), step=1.0)
    array([ 1. , -0.5])
    """

    low: float
    high: float
    name = "box"

    def __post_init__(self) -> None:
        for name, bound in (("low", self.low), ("high", self.high)):
            is_number = isinstance(bound, int | float | np.integer | np.floating)
            rule = f"{name} must be a number, got {shown(bound)}"
            require(is_number, "Box", rule, hint="Use -inf or inf for no bound")
        require(self.low < self.high, "Box", f"low must be < high, got ({shown(self.low)}, {shown(self.high)})")

    def _inside(self, w: np.ndarray) -> np.ndarray:
        slack = SLACK * _epsilon(w)
        above = w >= self.low - slack * abs(self.low)
        return np.all(above & (w <= self.high + slack * abs(self.high)), axis=-1)

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        _check_step(self, step)
        return np.clip(v, self.low, self.high)


@vouch
@dataclass(frozen=True)
class Ball(_Indicator):
    """0 where |w|_2 <= radius, inf elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import Ball
    >>> Ball(1.0).prox(np.array([3.0, 4.0]), step=1.0)
    array([0.6, 0.8])
    """

    radius: float
    name = "ball"

    def __post_init__(self) -> None:
        positive("Ball", radius=self.radius)

    @property
    def separable(self) -> bool:
        return False

    def _inside(self, w: np.ndarray) -> np.ndarray:
        return np.linalg.norm(w, axis=-1) <= self.radius * (1.0 + SLACK * _epsilon(w))

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        _check_step(self, step)
        # with one step per coordinate the metric is not round and this projection would be the wrong one
        require(np.shape(step)[-1:] in ((), (1,)), "Ball", "step must be one number per vector", np.shape(step))
        norm = np.linalg.norm(v, axis=-1, keepdims=True)
        return v * (self.radius / np.maximum(norm, self.radius))


PENALTIES: dict[str, type[Penalty]] = {penalty.name: penalty for penalty in (NoPenalty, L1, L2, ElasticNet, Box, Ball)}


def _soften(v: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
    """Every entry moved towards 0 by `threshold`, and to exactly 0 if it is nearer than that."""
    return v - np.clip(v, -threshold, threshold)


def shrink(
    x: np.ndarray, keep: np.ndarray | float, g: np.ndarray, threshold: float, total: np.ndarray | float
) -> np.ndarray:
    """argmin over z of total/2 |z|² − z·(keep x − g) + threshold |z|_1, for clients (..., n, dim).

    `keep` and `total` are numbers, or one for each client (..., n, 1). Where a compiler is loaded it takes one pass
    over x instead of five: methods that take many steps between two gradients spend their time here.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import shrink
    >>> shrink(np.array([[3.0, 0.5]]), 1.0, np.array([[0.0, 0.0]]), threshold=1.0, total=2.0)
    array([[1., 0.]])
    """
    if not compiled_pays(x.size):
        return _soften(keep * x - g, threshold) * (1.0 / total)
    from sottovoce.problems import kernels

    if x.shape != g.shape:
        x, g = np.broadcast_arrays(x, g)

    def flat(part: np.ndarray | float, width: int) -> np.ndarray:
        if np.shape(part) != (shape := (*x.shape[:-1], width)):
            part = np.broadcast_to(part, shape)
        return np.ascontiguousarray(part, dtype=np.float64).reshape(-1, width)

    out, dim = np.empty(x.shape), x.shape[-1]
    kernels.shrink()(flat(x, dim), flat(keep, 1), flat(g, dim), threshold, flat(total, 1), out.reshape(-1, dim))
    return out


def _check_step(penalty: Penalty, step: float | np.ndarray) -> None:
    array = np.asarray(step)
    good = (array > 0) & np.isfinite(array)
    if not good.all():
        require(False, type(penalty).__name__, "step must be finite and > 0", float(array[~good].flat[0]))


def _epsilon(w: np.ndarray) -> float:
    return float(np.finfo(np.result_type(w, np.float32)).eps)
