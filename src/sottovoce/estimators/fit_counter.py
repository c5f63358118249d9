"""How often an estimator was fitted, shared with its copies: each fit of a private one costs, and uses up its seed."""

from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator


@dataclass
class Fits:
    """Of an estimator and its copies, as far as this process knows."""

    count: int = 0  # that spent a budget which no ledger on disk counts
    elsewhere: bool = False  # this is a copy, by pickle, and nobody here knows of the other ones
    seed_used: bool = False  # for noise that hides private rows


class Counted(BaseEstimator):
    """An estimator whose copies know of its fits, and whose pickles do not hold a seed that was used."""

    _fits: Fits

    @property
    def fits(self) -> Fits:
        """Made on first use: scikit-learn wants constructors that set parameters and nothing else."""
        if "_fits" not in self.__dict__:
            self._fits = Fits()
        return self._fits

    def __sklearn_clone__(self) -> Any:
        """Cross-validation fits a copy for every fold."""
        clone: Any = super().__sklearn_clone__()
        clone._fits = self.fits
        return clone

    def __getstate__(self) -> dict[str, Any]:
        """Without a seed that was used, here or by a copy: with it, anybody could draw the noise and take it off.

        Workers of `cross_val_score(..., n_jobs=2)` get such pickles. Their fits are not counted together, so each
        warns; and if this process has fitted before, they draw fresh noise.
        """
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        state.pop("result_", None)  # its config names the seed
        fits = state.get("_fits")
        if fits is not None:
            state["_fits"] = Fits(elsewhere=True)
            if fits.seed_used:
                state["random_state"] = None
        return state
