"""What is minimised: a loss on rows that stay with their owners, plus a public penalty.

With n clients, client i holding m_i rows,

    F(w) = (1/n) Σ_i f_i(w) + r(w),      f_i(w) = (1/m_i) Σ_j loss(a_ij·w, b_ij)   (scale "mean": clients weigh alike)
                                         f_i(w) =         Σ_j loss(a_ij·w, b_ij)   (scale "sum")
                                         f_i(w) = (n/m)   Σ_j loss(a_ij·w, b_ij)   (scale "records", m = Σ_i m_i)

so `penalty=L2(1e-6)` is each client's share: the λ/n of the papers that write Σ_i f_i + λR. With scale "records" all
records weigh the same and F is the mean loss over all of them plus the penalty, which is what scikit-learn minimises;
small clients then bring no more noise than their records are worth. A number as scale is the weight of one record.
"""

from dataclasses import InitVar, dataclass, field, replace
from typing import Annotated, Literal, TypeVar

from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import Loss
from sottovoce.problems.module import Module, ModuleRows
from sottovoce.problems.penalties import NoPenalty, Penalty, WithIntercept
from sottovoce.problems.rows import Rows

Data = TypeVar("Data", bound=FederatedData)


@dataclass(frozen=True)
class Objective:
    """loss × penalty × scale.

    Parameters
    ----------
    loss, penalty, scale
        See above.
    fit_intercept
        Whether the model has an intercept, its last coefficient (for softmax: the last one of each class). Rows then
        get one more column, of ones, in `train` and in `predict`; where columns are split, the party with the labels
        gets it. Rows that a `Schema` encoded have a column for it already, the bias. It was 1 before the row was
        divided by its length, so it holds 1/length: a row's score is (w·x + b)/length, and b is the intercept in the
        units of the row before the division.
    penalise_intercept
        Whether the penalty counts the intercept too. By default it leaves it out, as scikit-learn does, and `penalty`
        becomes `WithIntercept(penalty)`. Where columns are split it has to be counted: the sensitivity of a party's
        fit rests on the ridge of all its coefficients.

    Examples
    --------
    >>> from sottovoce import L1, Logistic, Objective
    >>> Objective(Logistic(), L1(1e-3), scale="sum")
    Objective(loss=Logistic(), penalty=L1(lam=0.001), scale='sum')
    >>> Objective(Logistic(), L1(1e-3), fit_intercept=True).penalty
    WithIntercept(penalty=L1(lam=0.001), outputs=1, penalised=False)
    """

    loss: Annotated[Loss, check.Example("Logistic()")]
    penalty: Annotated[Penalty, check.Example("L2(1e-6)")] = field(default_factory=NoPenalty)
    scale: Literal["mean", "sum", "records"] | check.Positive = "mean"
    fit_intercept: InitVar[bool] = False
    penalise_intercept: InitVar[bool] = False

    def __post_init__(self, fit_intercept: bool, penalise_intercept: bool) -> None:
        check.fields(self)
        for name, value in (("fit_intercept", fit_intercept), ("penalise_intercept", penalise_intercept)):
            check.of_kind("Objective", name, value, bool, "True")
        rule = "penalise_intercept goes with fit_intercept"
        check.require(fit_intercept or not penalise_intercept, "Objective", rule)
        if fit_intercept and not self.intercept:
            rule = "fit_intercept is for linear models: give a neural one a layer with a bias"
            check.require(not isinstance(self.loss, Module), "Objective", rule)
            object.__setattr__(self, "penalty", WithIntercept(self.penalty, self.loss.outputs, penalise_intercept))

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept."""
        return isinstance(self.penalty, WithIntercept)

    def on(self, data: Data, blanks: bool = False) -> Data:
        """The data with a column for the intercept, if the model has one and they have none yet.

        `blanks`: a row of zeros stands for a record that is not there.
        """
        return data.with_bias(blanks) if self.intercept else data  # type: ignore[return-value]

    def weighing(self, record: float | Literal["mean"]) -> "Objective":
        """The same, with scale "records" as a number: the weight of one record, which follows from public sizes."""
        return replace(self, scale=record) if self.scale == "records" else self

    def oracle(self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, engine: str = "auto") -> Rows:
        """Exact answers about these rows, sorted by client: what a door wraps."""
        if isinstance(self.loss, Module):
            return ModuleRows(X, y, offsets, self.loss, self.scale)
        return Rows(X, y, offsets, self.loss, self.scale, engine)
