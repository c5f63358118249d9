"""Scale features without a leak: by ranges that are stated, or by ranges that are estimated through noise.

`StandardScaler`, `MinMaxScaler` and similar ones read private rows, and what they read ends up in the model: no budget
pays for it. The transformers here either read nothing (`PublicScaler`, `RowClipper`) or read through noise
(`PrivateScaler`). If they are given to an estimator as `prepare=...`, its guarantee includes their cost (`Steps`).
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.clipping import clip_rows
from sottovoce.core.random.streams import Streams
from sottovoce.estimators.fit_counter import Counted
from sottovoce.estimators.validation import Table, validated_rows
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import accounting, ranges
from sottovoce.privacy.doors.proven import Ledger
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import ONE_OWNER, Statement, state_guarantee
from sottovoce.privacy.modes import PrivacyMode, Proven
from sottovoce.privacy.noise_key import NoiseKey, rows_digests
from sottovoce.problems.federation import Federation
from sottovoce.problems.public_ranges import scaled_to_ranges, stated_ranges

_ABSURD = 1e9  # an end of a found range beyond which it is more likely a mark for missing values

RandomState = int | np.random.RandomState | None


class Preparation(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer that changes each row by itself, in a way that is public once it is fitted."""

    asks: ClassVar[bool] = False  # whether it has to ask the owners, which costs a part of the budget
    row_bound_: float  # no prepared row is longer

    def fit(self, X: Table, y: object = None) -> Self:
        """Remember the columns. The entries of `X` are not used."""
        self.fit_columns(validated_rows(self, X, reset=True).shape[1], getattr(self, "feature_names_in_", None))
        return self

    def transform(self, X: Table) -> np.ndarray:
        """Prepare rows, each by itself."""
        check_is_fitted(self, "row_bound_")
        return self.apply(validated_rows(self, X))

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Prepare rows that are checked already."""
        raise NotImplementedError  # every preparation has its own

    def fit_columns(self, columns: int, names: ArrayLike | None) -> None:
        """Set `row_bound_`, and all that needs no data. `names`: those of the columns, if they have any."""
        raise NotImplementedError  # every preparation has its own

    def ask(self, federation: Federation, privacy: Proven, ledger: Ledger, seed: int | None) -> None:
        """Ask the owners for what is not known without data; the cost is charged to `ledger`."""

    def leaves(self, privacy: Proven, columns: int) -> float:
        """The epsilon that is left of a budget for training; refused if that is next to nothing."""
        return privacy.epsilon


class _Scaler(Preparation):
    """Clip each feature to its range, and map the range to [-1, 1]."""

    ranges_: np.ndarray  # (features, 2)
    centre: bool

    def fit_columns(self, columns: int, names: ArrayLike | None) -> None:
        """Prepared entries lie in [-1, 1], whatever the ranges."""
        self.row_bound_ = float(np.sqrt(columns))

    def apply(self, X: np.ndarray) -> np.ndarray:
        return scaled_to_ranges(X, self.ranges_, self.centre)


@dataclass(eq=False, repr=False)
class PublicScaler(_Scaler):
    """Scale features to [-1, 1] by ranges that are known without looking at the data.

    Parameters
    ----------
    ranges
        (low, high) for all features; or one such pair per feature, as a list or as a mapping from column names. Take
        them from a code book, a law of nature or the limits of a form, never from the private rows.
    centre
        Whether the middle of a range becomes 0. If not, features are only divided, and 0 stays 0 (for 0/1 columns).

    Attributes
    ----------
    ranges_ : array (features, 2)
        The ranges, one pair per feature.
    row_bound_ : float
        The length that no prepared row exceeds.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import PublicScaler
    >>> PublicScaler([(0, 120), (-10, 40)]).fit_transform(np.array([[30.0, 15.0], [150.0, 40.0]]))
    array([[-0.5,  0. ],
           [ 1. ,  1. ]])
    """

    ranges: ArrayLike | Mapping[str, tuple[float, float]] | None = None
    _: KW_ONLY
    centre: bool = True

    def fit_columns(self, columns: int, names: ArrayLike | None) -> None:
        """Use the stated ranges."""
        listed = None if names is None else np.asarray(names).tolist()
        self.ranges_ = stated_ranges("PublicScaler", self.ranges, columns, listed)
        super().fit_columns(columns, names)


@dataclass(eq=False, repr=False)
class RowClipper(Preparation):
    """Scale down the rows that are longer than `bound`, and no others.

    Each row is changed by itself, so nothing is read and nothing leaks. The bound is a promise that step sizes (and
    the proofs for hidden local steps) can rely on.

    Parameters
    ----------
    bound
        Euclidean length.

    Examples
    --------
    >>> from sottovoce import RowClipper
    >>> RowClipper(1.0).fit_transform([[3.0, 4.0], [0.1, 0.0]])
    array([[0.6, 0.8],
           [0.1, 0. ]])
    """

    bound: float = 1.0

    def fit_columns(self, columns: int, names: ArrayLike | None) -> None:
        """Use the bound, whatever the number of columns."""
        check.positive("RowClipper", bound=self.bound)
        self.row_bound_ = float(self.bound)

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Scale long rows down."""
        return clip_rows(X, self.row_bound_)


@dataclass(eq=False, repr=False)
class PrivateScaler(Counted, _Scaler):
    """Scale features to [-1, 1] by ranges that are estimated from noisy counts of every owner.

    `sottovoce.privacy.ranges` explains what owners are asked and why that is private. The ranges are rough (to an
    eighth of the largest size found, at best) and leave a few extreme records outside, which are clipped. The more
    features, the more noise: state the ranges that you know (`PublicScaler`), and pay only for those that you do not.

    As `prepare=PrivateScaler(...)` of an estimator it is paid from the budget of the estimator, and uses the noise,
    the relation and the seed of the training. By itself it has its own budget and guarantee, and an estimator behind
    it in a pipeline does not know of it.

    Parameters
    ----------
    epsilon
        With `delta` what the ranges may cost the records of each owner.
    delta
        0: Laplace noise, pure epsilon.
    centre
        As in `PublicScaler`.
    noise
        "seeded" (simulation) or "secure", as in `Proven`.
    random_state
        Seed of seeded noise; noise is the same only for the same rows. None: a fresh seed that is not kept. Once the
        scaler or a copy of it was fitted, pickles do not contain the seed.

    Attributes
    ----------
    ranges_ : array (features, 2)
        The ranges, one pair per feature.
    row_bound_ : float
        The length that no prepared row exceeds.
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
    asks = True

    epsilon: float = 0.1
    delta: float = 1e-6
    _: KW_ONLY
    centre: bool = True
    noise: Literal["seeded", "secure"] = "seeded"
    random_state: RandomState = None

    def fit(self, X: Table, y: object = None, groups: ArrayLike | None = None) -> Self:
        """Ask every owner for its noisy counts. `groups`: the owner of each row; None: one owner has all rows."""
        check.positive("PrivateScaler", epsilon=self.epsilon)
        check.non_negative("PrivateScaler", delta=self.delta)
        rows = validated_rows(self, X, reset=True)
        blank = np.zeros(len(rows))  # of labels; and of owners, if there is one
        federation = Federation.from_arrays(rows, blank, blank if groups is None else groups)
        check.one_of("PrivateScaler", "noise", self.noise, ("seeded", "secure"))
        mechanism = "laplace" if self.delta == 0 else "gaussian"
        privacy = Proven(self.epsilon, self.delta, clip=1.0, mechanism=mechanism, noise=self.noise)
        ledger = MemoryLedger(Budget(self.epsilon, self.delta), (federation.n,))
        self.ask(federation, privacy, ledger, seed_of(self.random_state))
        self.fit_columns(rows.shape[1], None)
        accountant = accounting.accountant_name(ledger.spent(0), self.delta)
        charged = Charges((self._event(privacy, rows.shape[1]),), 1, *ledger.histories(), ledger.run)
        known = Statement(ledger.epsilons(), accountant, charged, ("ranges",), forgotten=self.random_state is None)
        guarantee = state_guarantee(privacy, "ranges", 1, known)
        self.guarantee_ = guarantee.leaving_out(*([ONE_OWNER] if groups is None else []))
        return self

    def _event(self, privacy: Proven, columns: int) -> Event:
        """What one noisy answer of an owner is."""
        return ranges.plan_counts(self.epsilon, self.delta, privacy, columns)

    def leaves(self, privacy: Proven, columns: int) -> float:
        """The epsilon that is left of a budget for training; refused if that is next to nothing."""
        event = self._event(privacy, columns)
        ranges.must_leave_enough(event, privacy)
        return ranges.left_for_training(event, privacy)

    def ask(self, federation: Federation, privacy: Proven, ledger: Ledger, seed: int | None) -> None:
        """Find the ranges of a federation's features; the cost is charged to `ledger`."""
        self.fits.seed_used = True
        event = self._event(privacy, federation.X.shape[1])
        key = None
        if privacy.noise == "seeded":
            streams = Streams.unpredictable() if seed is None else Streams(seed)
            rows = rows_digests(federation.X, federation.y, federation.offsets)
            key = NoiseKey.of_task(streams, rows, "ranges", event, federation.X.shape[1])
        self.ranges_ = ranges.find_ranges(federation.X, federation.offsets, event, self.delta, ledger, key)
        largest = np.abs(self.ranges_).max(axis=1)  # noisy, released and paid for: a warning may name them
        columns = np.flatnonzero(largest > _ABSURD).tolist()
        if columns:
            warnings.warn(
                f"PrivateScaler: column {columns[0]} ({len(columns)} such columns) got a range up to "
                f"{largest[columns[0]]:.2g}, which leaves little of ordinary values. If a number such as 1e10 stands "
                "for missing values, drop it before, or state the range (PublicScaler)",
                stacklevel=2,
            )


@dataclass(frozen=True)
class Steps:
    """The preparation of one fitted estimator: its own copies of what `prepare` holds."""

    who: str
    steps: tuple[Preparation, ...]
    columns: int

    @classmethod
    def of(
        cls, who: str, prepare: Preparation | Sequence[Preparation] | None, columns: int, names: ArrayLike | None
    ) -> "Steps":
        """Copy the steps of the estimator called `who`, and fit them as far as that needs no data."""
        listed = prepare if isinstance(prepare, list | tuple) else [prepare]
        steps = [cast(Preparation, clone(step, safe=False)) for step in listed if step is not None]
        for step in steps:
            known = isinstance(step, PublicScaler | PrivateScaler | RowClipper)
            rule = "prepare takes PublicScaler, PrivateScaler and RowClipper, or a Schema by itself"
            check.require(known, who, f"{rule}, got {type(step).__name__}", hint="Give PublicScaler(ranges)")
            step.fit_columns(columns, names)
        asking = sum(step.asks for step in steps)
        check.require(asking <= 1, who, "prepare takes one PrivateScaler at most", asking)
        return cls(who, tuple(steps), columns)

    @property
    def bound(self) -> float | None:
        """How long prepared rows can be, if the steps say so."""
        return self.steps[-1].row_bound_ if self.steps else None

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Prepare the rows that are to be predicted."""
        for step in self.steps:
            X = step.apply(X)
        return X

    def epsilon_for_training(self, privacy: Proven) -> float:
        """What the steps leave of a budget; refused if that is next to nothing."""
        return min((step.leaves(privacy, self.columns) for step in self.steps), default=privacy.epsilon)

    def prepare(
        self, federation: Federation, privacy: PrivacyMode, ledger: Ledger | None, seed: int | None
    ) -> Federation:
        """Prepare the rows that are to be trained on. A step that asks is paid from `ledger`."""
        proven = privacy if isinstance(privacy, Proven) else None
        if proven is not None:
            self.epsilon_for_training(proven)  # refuses steps that leave too little, before anybody is asked
        for step in self.steps:
            if proven is not None and ledger is not None:
                step.ask(federation, proven, ledger, seed)
            else:
                rule = "PrivateScaler needs privacy 'proven', where a budget pays for it"
                hint = "State ranges, PublicScaler(ranges), or fit the scaler by itself before"
                check.require(not step.asks, self.who, rule, hint=hint)
            federation = replace(federation, X=step.apply(federation.X))
        return federation


def seed_of(random_state: RandomState) -> int | None:
    """The seed that scikit-learn's `random_state` stands for. None stays None: a fresh seed that nobody keeps.

    The folds of a cross-validation share a seed. They do not share noise: it is bound to the rows and the answers.
    """
    if random_state is None:
        return None
    if random_state is np.random or isinstance(random_state, np.random.RandomState):
        random_state = check_random_state(random_state).randint(2**31)
    is_seed = isinstance(random_state, int | np.integer) and int(random_state) >= 0
    hint = "Of a Generator give a number, random_state=int(rng.integers(2**31))"
    rule = f"must be None, a whole number >= 0 or a RandomState, got {check.shown(random_state)}"
    check.require(is_seed, "random_state", rule, hint=hint)
    return int(random_state)
