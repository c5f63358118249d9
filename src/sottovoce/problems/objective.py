"""What is minimised: a loss on rows that stay with their owners, plus a public penalty.

With n clients, client i holding m_i rows,

    F(w) = (1/n) Σ_i f_i(w) + r(w),      f_i(w) = (1/m_i) Σ_j loss(a_ij·w, b_ij)   (scale "mean")
                                         f_i(w) =         Σ_j loss(a_ij·w, b_ij)   (scale "sum")

so `penalty=L2(1e-6)` is each client's share: the λ/n of the papers that write Σ_i f_i + λR.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.check import Example
from sottovoce.problems.losses import Loss
from sottovoce.problems.module import Module, ModuleRows
from sottovoce.problems.penalties import NoPenalty, Penalty
from sottovoce.problems.rows import Rows


@dataclass(frozen=True)
class Objective:
    """loss × penalty × scale.

    Examples
    --------
    >>> from sottovoce import L1, Logistic, Objective
    >>> Objective(Logistic(), L1(1e-3), scale="sum")
    Objective(loss=Logistic(), penalty=L1(lam=0.001), scale='sum')
    """

    loss: Annotated[Loss, Example("Logistic()")]
    penalty: Annotated[Penalty, Example("L2(1e-6)")] = field(default_factory=NoPenalty)
    scale: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        check.fields(self)

    def oracle(self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, engine: str = "auto") -> Rows:
        """Exact answers about these rows, sorted by client: what a door wraps."""
        if isinstance(self.loss, Module):
            return ModuleRows(X, y, offsets, self.loss, self.scale)
        return Rows(X, y, offsets, self.loss, self.scale, engine)
