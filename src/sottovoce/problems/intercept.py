"""The intercept of a model: a last coefficient that no penalty pulls to zero."""

from typing import Annotated, ClassVar

import numpy as np

from sottovoce.core.arrays import Booleans, Floats, Numbers
from sottovoce.core.check import Example, Whole, require
from sottovoce.core.vouched import derived, vouch
from sottovoce.problems.penalties import Penalty


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
    >>> from sottovoce.problems.intercept import WithIntercept
    >>> WithIntercept(L2(1.0)).prox(np.array([3.0, -1.0]), step=1.0)
    array([ 1.5, -1. ])
    """

    penalty: Annotated[Penalty, Example("L2(1e-6)")]
    outputs: Whole = 1
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
        require(once, "WithIntercept", "penalty must be one without an intercept, which would be named twice")

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
        require(dim % self.outputs == 0, "WithIntercept", f"a model must have {self.outputs} equal parts", dim)
        paying = np.ones((self.outputs, dim // self.outputs), dtype=bool)
        paying[:, -1] = self.penalised
        return paying.reshape(-1)
