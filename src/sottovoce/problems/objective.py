"""What is minimised: a loss on rows that stay with their owners, plus a public penalty.

With n clients, client i holding m_i rows,

    F(w) = (1/n) Σ_i f_i(w) + r(w),      f_i(w) = (1/m_i) Σ_j loss(a_ij·w, b_ij)   (scale "mean": clients weigh alike)
                                         f_i(w) =         Σ_j loss(a_ij·w, b_ij)   (scale "sum")
                                         f_i(w) = (n/m)   Σ_j loss(a_ij·w, b_ij)   (scale "records", m = Σ_i m_i)

so `penalty=L2(1e-6)` is each client's share: the λ/n of the papers that write Σ_i f_i + λR. With scale "records" all
records weigh the same and F is the mean loss over all of them plus the penalty, which is what scikit-learn minimises;
small clients then bring no more noise than their records are worth. A number as scale is the weight of one record.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from numpy.typing import ArrayLike

from sottovoce.core import check
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

    loss: Annotated[Loss, check.Example("Logistic()")]
    penalty: Annotated[Penalty, check.Example("L2(1e-6)")] = field(default_factory=NoPenalty)
    scale: Literal["mean", "sum", "records"] | check.Positive = "mean"

    def __post_init__(self) -> None:
        check.fields(self)

    def weighing(self, record: float | Literal["mean"]) -> "Objective":
        """The same, with scale "records" as a number: the weight of one record, which follows from public sizes."""
        return replace(self, scale=record) if self.scale == "records" else self

    def oracle(self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, engine: str = "auto") -> Rows:
        """Exact answers about these rows, sorted by client: what a door wraps."""
        if isinstance(self.loss, Module):
            return ModuleRows(X, y, offsets, self.loss, self.scale)
        return Rows(X, y, offsets, self.loss, self.scale, engine)
