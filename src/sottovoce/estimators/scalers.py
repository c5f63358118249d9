"""Features brought to one scale without a leak: by ranges that are stated, or by ranges that were paid for.

`StandardScaler`, `MinMaxScaler` and their kin read private rows, and what they read ends up in the model: no budget
pays for it. The transformers here either read nothing (`PublicScaler`, `RowClipper`) or read through noise
(`PrivateScaler`). Given to an estimator as `prepare=...`, their cost is part of its guarantee.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.clipping import clip_rows
from sottovoce.core.random.streams import Streams
from sottovoce.estimators.fit_counter import Counted
from sottovoce.estimators.validation import validated
from sottovoce.ledger.charges import charges_of
from sottovoce.ledger.memory import Budget, MemoryLedger
from sottovoce.privacy import accounting, ranges
from sottovoce.privacy.doors.proven import Ledger
from sottovoce.privacy.guarantee import ONE_OWNER, Statement, state_guarantee
from sottovoce.privacy.modes import Proven
from sottovoce.privacy.noise_key import NoiseKey, rows_digests
from sottovoce.problems.federation import Federation
from sottovoce.problems.public_ranges import scaled_to_ranges, stated_ranges


class _Preparation(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer whose map is public once it is settled."""

    row_bound_: float  # no row is longer afterwards

    def transform(self, X: Any) -> np.ndarray:
        """The rows, prepared: each by itself."""
        check_is_fitted(self, "row_bound_")
        return self.apply(self.checked(X, reset=False))

    def checked(self, X: Any, reset: bool = True) -> np.ndarray:
        """`X` as finite float64 numbers, with the columns there were (`reset`: there will be)."""
        return np.asarray(validated(self, X, reset=reset, dtype=np.float64))

    def apply(self, X: np.ndarray) -> np.ndarray:
        """The prepared rows."""
        raise NotImplementedError  # every preparation has its own

    def bound_of(self, columns: int) -> float:
        """How long prepared rows of so many columns can be."""
        raise NotImplementedError  # every preparation has its own


class _Scaler(_Preparation):
    """Clips each feature to its range, and brings the range to [-1, 1]."""

    ranges_: np.ndarray  # (features, 2)
    centre: bool

    def settle(self, found: np.ndarray) -> None:
        self.ranges_ = found
        self.row_bound_ = self.bound_of(len(found))

    def bound_of(self, columns: int) -> float:
        return float(np.sqrt(columns))

    def apply(self, X: np.ndarray) -> np.ndarray:
        return scaled_to_ranges(X, self.ranges_, self.centre)


class PublicScaler(_Scaler):
    """Scale features by ranges that are known without looking at the data, to [-1, 1].

    Parameters
    ----------
    ranges
        (low, high) for all features; or one such pair per feature, as a list or as a mapping from column names. Take
        them from a code book, a law of nature, a form's limits: never from the private rows.
    centre
        Whether the middle of a range becomes 0. If not, features are only divided, and 0 stays 0 (for 0/1 columns).

    Attributes
    ----------
    ranges_ : array (features, 2)
    row_bound_ : float
        No prepared row is longer.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import PublicScaler
    >>> PublicScaler([(0, 120), (-10, 40)]).fit_transform(np.array([[30.0, 15.0], [150.0, 40.0]]))
    array([[-0.5,  0. ],
           [ 1. ,  1. ]])
    """

    def __init__(self, ranges: Any = None, *, centre: bool = True) -> None:
        self.ranges = ranges
        self.centre = centre

    def fit(self, X: Any, y: object = None) -> "PublicScaler":
        """Check that there is a range for every column. The entries of `X` are not used."""
        X = self.checked(X)
        self.settle(self.stated(X.shape[1], getattr(self, "feature_names_in_", None)))
        return self

    def stated(self, columns: int, names: ArrayLike | None) -> np.ndarray:
        """The stated ranges as an array (columns, 2)."""
        listed = None if names is None else np.asarray(names).tolist()
        return stated_ranges("PublicScaler", self.ranges, columns, listed)


class RowClipper(_Preparation):
    """Scale rows down to a length: those that are longer than `bound`, and no others.

    Each row is changed by itself, so nothing is read and nothing leaks; and the bound is a promise that step sizes
    (and the proofs of hidden local steps) can rely on.

    Parameters
    ----------
    bound
        Euclidean length.

    Examples
    --------
    >>> from sottovoce.estimators.scalers import RowClipper
    >>> RowClipper(1.0).fit_transform([[3.0, 4.0], [0.1, 0.0]])
    array([[0.6, 0.8],
           [0.1, 0. ]])
    """

    def __init__(self, bound: float = 1.0) -> None:
        self.bound = bound

    def fit(self, X: Any, y: object = None) -> "RowClipper":
        """Remember the columns. The entries of `X` are not used."""
        self.checked(X)
        self.settle()
        return self

    def settle(self) -> None:
        check.positive("RowClipper", bound=self.bound)
        self.row_bound_ = float(self.bound)

    def bound_of(self, columns: int) -> float:
        return float(self.bound)

    def apply(self, X: np.ndarray) -> np.ndarray:
        return clip_rows(X, self.row_bound_)


class PrivateScaler(Counted, _Scaler):
    """Scale features by ranges that every owner told through noise, to [-1, 1].

    What is asked, and why it is private, is said in `sottovoce.privacy.ranges`. The ranges are rough (to an eighth of
    the largest size found, at best) and leave a few extreme records outside, which are clipped. The more features, the
    more noise: state the ranges that you know (`PublicScaler`), and pay only for those that you do not.

    As `prepare=PrivateScaler(...)` of an estimator it is paid from the estimator's budget, and noise, relation and
    seed are those of the training. By itself it has a budget and a guarantee of its own; an estimator behind it in a
    pipeline does not know of it.

    Parameters
    ----------
    epsilon, delta
        What the ranges may cost each owner's records. delta = 0: Laplace noise, pure.
    centre
        As in `PublicScaler`.
    noise
        "seeded" (simulation) or "secure", as in `Proven`.
    random_state
        Seed of seeded noise, which is the same for the same rows only. None: a fresh one that is not kept. The
        pickle of a scaler that was fitted, or of its copies, does not contain it.

    Attributes
    ----------
    ranges_ : array (features, 2)
    row_bound_ : float
    guarantee_ : Guarantee
        Only if it was fitted by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import PrivateScaler
    >>> X = np.random.default_rng(0).uniform(0, 50, size=(5000, 1))
    >>> scaler = PrivateScaler(epsilon=1.0, random_state=0).fit(X)
    >>> bool(np.abs(scaler.transform(X)).max() <= 1)
    True
    >>> scaler.guarantee_.short
    '1 (δ=1e-06) per record, server sees all messages, simulated noise'
    """

    __metadata_request__fit = {"groups": True}  # noqa: RUF012 (read by scikit-learn)

    def __init__(
        self,
        epsilon: float = 0.1,
        delta: float = 1e-6,
        *,
        centre: bool = True,
        noise: str = "seeded",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.centre = centre
        self.noise = noise
        self.random_state = random_state

    def fit(self, X: Any, y: object = None, groups: ArrayLike | None = None) -> "PrivateScaler":
        """Ask every owner (`groups`: whose each row is; None: all of one) for its noisy counts."""
        check.positive("PrivateScaler", epsilon=self.epsilon)
        check.non_negative("PrivateScaler", delta=self.delta)
        X = self.checked(X)
        federation = Federation.from_arrays(X, np.zeros(len(X)), np.zeros(len(X)) if groups is None else groups)
        mechanism = "laplace" if self.delta == 0 else "gaussian"
        noise = check.one_of("PrivateScaler", "noise", self.noise, ("seeded", "secure"))
        alone = Proven(self.epsilon, self.delta, clip=1.0, mechanism=mechanism, noise=noise)  # type: ignore[arg-type]
        ledger = MemoryLedger(Budget(self.epsilon, self.delta), (federation.n,))
        self.ask(federation, alone, ledger, seed_of(self.random_state))
        accountant = accounting.accountant_name(ledger.spent(0), self.delta)
        charged = charges_of(ledger, ranges.plan_counts(self.epsilon, self.delta, alone), rounds=1)
        known = Statement(ledger.epsilons(), accountant, charged, ("ranges",), forgotten=self.random_state is None)
        said = state_guarantee(alone, "ranges", 1, known)
        self.guarantee_ = said.leaving_out(*([ONE_OWNER] if groups is None else []))
        return self

    def must_leave_enough(self, privacy: Proven) -> None:
        """Refuse to take nearly all of a budget that is for more than ranges."""
        ranges.must_leave_enough(ranges.plan_counts(self.epsilon, self.delta, privacy), privacy)

    def leaves(self, privacy: Proven) -> float:
        """The epsilon that is left of a budget for training."""
        return ranges.left_for_training(ranges.plan_counts(self.epsilon, self.delta, privacy), privacy)

    def ask(self, federation: Federation, privacy: Proven, ledger: Ledger, seed: int | None) -> None:
        """Find the ranges of a federation's features; what it costs is charged to `ledger`."""
        self.fits.seed_used = True
        event = ranges.plan_counts(self.epsilon, self.delta, privacy)
        key = None
        if privacy.noise == "seeded":
            streams = Streams.unpredictable() if seed is None else Streams(seed)
            rows = rows_digests(federation.X, federation.y, federation.offsets)
            key = NoiseKey.of_task(streams, rows, "ranges", event, federation.X.shape[1])
        self.settle(ranges.find_ranges(federation.X, federation.offsets, event, self.delta, ledger, key))


def seed_of(random_state: Any) -> int | None:
    """The seed that scikit-learn's `random_state` stands for; None stays None, a fresh one that nobody keeps.

    The folds of a cross-validation share a seed. They do not share noise: it is bound to the rows and the answers.
    """
    if random_state is None:
        return None
    if random_state is np.random or isinstance(random_state, np.random.RandomState):
        random_state = check_random_state(random_state).randint(2**31)
    fits = isinstance(random_state, int | np.integer) and int(random_state) >= 0
    hint = "Of a Generator give a number, random_state=int(rng.integers(2**31))"
    rule = f"must be None, a whole number >= 0 or a RandomState, got {check.shown(random_state)}"
    check.require(fits, "random_state", rule, hint=hint)
    return int(random_state)
