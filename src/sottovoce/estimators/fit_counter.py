"""How often an estimator and its copies were fitted: every private fit costs, and its seed must not be used again."""

from dataclasses import dataclass
from typing import Self, cast

from sklearn.base import BaseEstimator

from sottovoce.core.plain import Json


@dataclass
class Fits:
    """The fits of an estimator and its copies, as far as this process knows."""

    count: int = 0  # fits with a budget that no ledger on disk counts
    elsewhere: bool = False  # this estimator was unpickled: its copies in other processes are not known here
    told_of_groups: bool = False  # it was said that all rows count as those of one owner
    seed_used: bool = False  # the seed has drawn noise that protects private rows


class Counted(BaseEstimator):
    """An estimator that shares the count of its fits with its copies, and whose pickles hold no seed that was used."""

    _fits: Fits

    @property
    def fits(self) -> Fits:
        """The shared count. It is made on first use: scikit-learn wants constructors that only set parameters."""
        if "_fits" not in self.__dict__:
            self._fits = Fits()
        return self._fits

    def __sklearn_clone__(self) -> Self:
        """Copy the parameters and share the count. Cross-validation fits such a copy for every fold."""
        clone = cast(Self, super().__sklearn_clone__())
        clone._fits = self.fits
        return clone

    def __getstate__(self) -> Json:
        """Leave out a seed that was used, here or by a copy: who has it can compute the noise and remove it.

        Workers of `cross_val_score(..., n_jobs=2)` get such pickles. Their fits cannot be counted together, so each
        of them warns. If this process has fitted before, they draw fresh noise.
        """
        state: Json = dict(super().__getstate__())  # type: ignore[call-overload]
        state.pop("result_", None)  # its config holds the seed
        fits = state.get("_fits")
        if fits is not None:
            state["_fits"] = Fits(elsewhere=True)
            if fits.seed_used:
                state["random_state"] = None
        return state
