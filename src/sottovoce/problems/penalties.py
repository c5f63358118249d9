"""Penalties: the part of the objective that knows the model but no data.

Every function acts on the last axis and takes any number of leading axes.
"""

import math
from abc import abstractmethod
from typing import Annotated, ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Booleans, Floats, Numbers
from sottovoce.core.compiling import compiled_pays
from sottovoce.core.penalty import Penalty as Penalty
from sottovoce.core.penalty import Zero
from sottovoce.core.vouched import derived, vouch

SLACK = 2.0**12
"""How far outside its set an indicator still counts a point as inside, in units of the machine epsilon of the array
times the bound (9e-13 of the bound in float64): rounding must not put a projected point outside."""


@vouch
class NoPenalty(Zero):
    """Zero.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import NoPenalty
    >>> NoPenalty().prox(np.array([3.0, -1.0]), step=1.0)
    array([ 3., -1.])
    """

    name = "none"

    def step(self, x: Floats, keep: Numbers, g: Floats, total: Numbers) -> Floats:
        return shrink(x, keep, g, 0.0, total)


@vouch
class L1(Penalty):
    """lam |w|_1.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L1
    >>> L1(0.5).prox(np.array([3.0, -0.2]), step=1.0)
    array([2.5, 0. ])
    """

    lam: check.Positive
    name = "l1"
    steepest = derived(lambda self: self.lam)

    def value(self, w: Floats) -> Floats:
        return self.lam * np.abs(w).sum(axis=-1)

    def subgradient(self, w: Floats) -> Floats:
        return self.lam * np.sign(w)

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        return _soften(v, self.lam * step)

    def step(self, x: Floats, keep: Numbers, g: Floats, total: Numbers) -> Floats:
        return shrink(x, keep, g, self.lam, total)

    def smooth_at(self, w: Floats) -> Booleans:
        return w != 0


@vouch
class L2(Penalty):
    """lam/2 |w|_2^2.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L2
    >>> L2(1.0).prox(np.array([3.0, -1.0]), step=1.0)
    array([ 1.5, -0.5])
    """

    lam: check.Positive
    name = "l2"
    strong = curvature = derived(lambda self: float(self.lam))

    def value(self, w: Floats) -> Floats:
        return 0.5 * self.lam * np.square(w).sum(axis=-1)

    def subgradient(self, w: Floats) -> Floats:
        return self.lam * w

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        return v / (1.0 + self.lam * step)


@vouch
class ElasticNet(Penalty):
    """l1 |w|_1 + l2/2 |w|_2^2.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import ElasticNet
    >>> float(ElasticNet(l1=1.0, l2=0.5).value(np.array([1.0, 1.0])))
    2.5
    """

    l1: check.Positive
    l2: check.Positive
    name = "elastic-net"

    def __post_init__(self) -> None:
        alone = "Use L2 alone" if self.l1 == 0 else "Use L1 alone"
        weights = f"got ({check.shown(self.l1)}, {check.shown(self.l2)})"
        check.require(self.l1 != 0 and self.l2 != 0, "ElasticNet", f"l1 and l2 must be > 0, {weights}", hint=alone)
        super().__post_init__()

    strong = derived(lambda self: float(self.l2))

    def value(self, w: Floats) -> Floats:
        return self.l1 * np.abs(w).sum(axis=-1) + 0.5 * self.l2 * np.square(w).sum(axis=-1)

    def subgradient(self, w: Floats) -> Floats:
        return self.l1 * np.sign(w) + self.l2 * w

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        return _soften(v, self.l1 * step) / (1.0 + self.l2 * step)

    def smooth_at(self, w: Floats) -> Booleans:
        return w != 0


class _Indicator(Penalty):
    """0 on a set, inf outside: value and subgradient follow from which vectors are inside."""

    finite = False
    steepest = 0.0

    @abstractmethod
    def _inside(self, w: Floats) -> Booleans:
        """Which vectors lie in the set, up to `SLACK`."""

    def value(self, w: Floats) -> Floats:
        return np.where(self._inside(w), 0.0, math.inf)

    def subgradient(self, w: Floats) -> Floats:
        outside = int(np.sum(~self._inside(w)))
        rule = f"a subgradient exists only inside the set, got {outside} vectors outside it"
        check.require(outside == 0, repr(self), rule, hint="Project them with `prox` first")
        return np.zeros(np.shape(w))


@vouch
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
            rule = f"{name} must be a number, got {check.shown(bound)}"
            check.require(check.is_number(bound), "Box", rule, hint="Use -inf or inf for no bound")
        rule = f"low must be < high, got ({check.shown(self.low)}, {check.shown(self.high)})"
        check.require(self.low < self.high, "Box", rule)

    def _inside(self, w: Floats) -> Booleans:
        slack = SLACK * _epsilon(w)
        above = w >= self.low - slack * abs(self.low)
        return np.all(above & (w <= self.high + slack * abs(self.high)), axis=-1)

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        return np.clip(v, self.low, self.high)

    def smooth_at(self, w: Floats) -> Booleans:
        return (w > self.low) & (w < self.high)


@vouch
class Ball(_Indicator):
    """0 where |w|_2 <= radius, inf elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.penalties import Ball
    >>> Ball(1.0).prox(np.array([3.0, 4.0]), step=1.0)
    array([0.6, 0.8])
    """

    radius: check.Positive
    name = "ball"
    separable = False

    def _inside(self, w: Floats) -> Booleans:
        return np.linalg.norm(w, axis=-1) <= self.radius * (1.0 + SLACK * _epsilon(w))

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        # with one step per coordinate the metric is not round and this projection would be the wrong one
        check.require(np.shape(step)[-1:] in ((), (1,)), "Ball", "step must be one number per vector", np.shape(step))
        norm = np.linalg.norm(v, axis=-1, keepdims=True)
        return v * (self.radius / np.maximum(norm, self.radius))


@vouch
class WithIntercept(Penalty):
    """`penalty`, of a model whose last coefficient (of each output) is an intercept: that one is left out.

    Leaving coordinates out keeps the prox of the others as it is and adds the identity, so it increases no distance
    that the penalty's own prox does not increase. Along the intercept there is no curvature: `strong` is 0.

    Parameters
    ----------
    penalty
        What the other coefficients pay.
    outputs
        Into how many equal parts the model is cut: one for each class of a softmax.
    penalised
        Whether the intercept pays too.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import L2
    >>> from sottovoce.problems.penalties import WithIntercept
    >>> WithIntercept(L2(1.0)).prox(np.array([3.0, -1.0]), step=1.0)
    array([ 1.5, -1. ])
    """

    penalty: Annotated[Penalty, check.Example("L2(1e-6)")]
    outputs: check.Whole = 1
    penalised: bool = False
    rests_on: ClassVar[tuple[str, ...]] = ("penalty",)

    name = derived(lambda self: self.penalty.name)  # by which a table names it
    separable = derived(lambda self: self.penalty.separable)
    finite = derived(lambda self: self.penalty.finite)
    strong = derived(lambda self: self.penalty.strong if self.penalised else 0.0)
    curvature = derived(lambda self: self.penalty.curvature)
    steepest = derived(lambda self: self.penalty.steepest)

    def __post_init__(self) -> None:
        super().__post_init__()
        once = not isinstance(self.penalty, WithIntercept)
        check.require(once, "WithIntercept", "penalty must be one without an intercept, which would be named twice")

    def value(self, w: Floats) -> Floats:
        return self.penalty.value(w[..., self._paying(w)])

    def subgradient(self, w: Floats) -> Floats:
        paying, slope = self._paying(w), np.zeros(np.shape(w))
        slope[..., paying] = self.penalty.subgradient(w[..., paying])
        return slope

    def prox(self, v: Floats, step: Numbers) -> Floats:
        self._check_step(step)
        paying = self._paying(v)
        moved = np.array(np.broadcast_to(v, np.broadcast_shapes(np.shape(v), np.shape(step))))
        each = np.ndim(step) > 0 and np.shape(step)[-1] == len(paying) > 1  # one step per coordinate
        moved[..., paying] = self.penalty.prox(moved[..., paying], np.asarray(step)[..., paying] if each else step)
        return moved

    def smooth_at(self, w: Floats) -> Booleans:
        paying, smooth = self._paying(w), np.ones(np.shape(w), dtype=bool)
        smooth[..., paying] = self.penalty.smooth_at(w[..., paying])
        return smooth

    def subgradient_bound(self, dim: int) -> float:
        free = 0 if self.penalised else self.outputs
        return self.penalty.subgradient_bound(dim - free) if dim > free else 0.0

    def curvatures(self, columns: int) -> Floats | None:
        curvatures = self.penalty.curvatures(columns)
        if curvatures is not None and not self.penalised:
            curvatures[-1] = 0.0
        return curvatures

    def _paying(self, w: Floats) -> Booleans:
        """Which coordinates of a model are penalised."""
        dim = np.shape(w)[-1]
        check.require(dim % self.outputs == 0, "WithIntercept", f"a model must have {self.outputs} equal parts", dim)
        paying = np.ones((self.outputs, dim // self.outputs), dtype=bool)
        paying[:, -1] = self.penalised
        return paying.reshape(-1)


PENALTIES: dict[str, type[Penalty]] = {penalty.name: penalty for penalty in (NoPenalty, L1, L2, ElasticNet, Box, Ball)}


def _soften(v: Floats, threshold: Numbers) -> Floats:
    """Every entry moved towards 0 by `threshold`, and to exactly 0 if it is nearer than that."""
    return v - np.clip(v, -threshold, threshold)


def shrink(x: Floats, keep: Numbers, g: Floats, threshold: float, total: Numbers) -> Floats:
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

    from sottovoce.problems import shrink_kernel

    if x.shape != g.shape:
        x, g = np.broadcast_arrays(x, g)

    def flat(part: Numbers, width: int) -> Floats:
        if np.shape(part) != (shape := (*x.shape[:-1], width)):
            part = np.broadcast_to(part, shape)
        return np.ascontiguousarray(part, dtype=np.float64).reshape(-1, width)

    out, dim = np.empty(x.shape), x.shape[-1]
    shrink_kernel.shrink()(flat(x, dim), flat(keep, 1), flat(g, dim), threshold, flat(total, 1), out.reshape(-1, dim))
    return out


def _epsilon(w: AnyArray) -> float:
    return float(np.finfo(np.result_type(w, np.float32)).eps)
