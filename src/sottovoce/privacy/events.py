"""What one answer costs: everything an accountant needs to know, and nothing about the data.

An `Event` is made by the act of answering (the door in `privacy/doors/base.py`), kept by the ledger, and turned into a
number by `accounting.py`. Three places, three questions: what happened, how often, how bad.
"""

from dataclasses import dataclass
from typing import Literal

from sottovoce.core import check

Mechanism = Literal["gaussian", "discrete-gaussian", "gaussian-chain", "laplace", "randomized-response"]
Sampling = Literal["full", "poisson", "fixed-size"]
Relation = Literal["replace-one", "add-remove", "replace-client", "replace-column"]


@dataclass(frozen=True, slots=True)
class Event:
    """One noisy answer about one client's data.

    Parameters
    ----------
    mechanism
        Which noise was added. "laplace" noise is on a value of bounded L1 sensitivity and is pure DP. A
        "gaussian-chain" is the end of several noisy contracting steps: its Rényi divergences are those of a Gaussian
        (`privacy/local_steps.py`), which is all that is used of it.
    noise_multiplier
        Standard deviation of the noise (Laplace: its scale; randomised response: 1/epsilon) divided by the
        sensitivity *under `relation`*. The library divides by itself: no accountant rescales it.
    sampling
        "full": every record took part. "poisson": each with probability `rate`, on its own. "fixed-size":
        `batch` of `size`, without replacement.
    relation
        The neighbouring relation the sensitivity was taken for. Sums over different relations mean nothing, so
        accountants refuse to mix them.
    row_bound
        The sensitivity holds if no row, and no row of a neighbour, is longer than this. 0: it holds for all rows. None:
        not known, of a charge whose format did not keep it. Accountants do not look at it; a statement names it.
    """

    mechanism: Mechanism
    noise_multiplier: float
    sampling: Sampling = "full"
    relation: Relation = "replace-one"
    rate: float = 1.0
    batch: int = 0
    size: int = 0
    row_bound: float | None = 0.0

    def __post_init__(self) -> None:
        check.positive("Event", noise_multiplier=self.noise_multiplier)
        if self.row_bound is not None:
            check.non_negative("Event", row_bound=self.row_bound)
        if self.sampling == "poisson":
            check.require(0 < self.rate <= 1, "Event", "a Poisson rate must lie in (0, 1]", self.rate)
            # Poisson sampling changes the number of records, so only add/remove is a neighbouring relation of it.
            check.require(self.relation == "add-remove", "Event", "Poisson sampling needs add-remove", self.relation)
        if self.sampling == "fixed-size":
            check.require(0 < self.batch <= self.size, "Event", "batch must lie in 1..size", (self.batch, self.size))
            check.require(
                self.relation == "replace-one", "Event", "fixed-size sampling needs replace-one", self.relation
            )
