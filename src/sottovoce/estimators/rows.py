"""Linear models over rows of many owners, as scikit-learn estimators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.histogram import Evaluation
from sottovoce.estimators.linear import FederatedLinear
from sottovoce.estimators.targets import LinearClassifier, LinearRegressor
from sottovoce.estimators.validation import Table
from sottovoce.rules import Rule, constant_entry


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedClassifier(LinearClassifier, FederatedLinear):
    """A linear classifier over rows of many owners, with a privacy guarantee that is true.

    Parameters
    ----------
    algorithm
        "auto": a rule chooses method, constants and rounds from sizes and the budget, without looking at the data
        (`sottovoce.rules`). The name of a method (`sottovoce list`): the rule chooses its constants and rounds. Or an
        algorithm such as `DPADMM(rho=0.1)`.
    epsilon
        With `delta` the whole budget of each owner for one fit, `prepare` included.
    delta
        See `epsilon`.
    clip
        The bound on the gradient of one record. None: the longest that it can be at a model of zeros, by the loss and
        the bound on rows: 1/2 for a logistic loss and rows of length 1.
    base_rate
        The share of the second class among all records, if it is publicly known (a prevalence from the literature).
        The intercept leans on it where noise exceeds signal and a rule chooses the constants ("auto", "noisy-gd").
        Never take it from the data: no guarantee covers that.
    privacy
        "proven", "published" or "none"; or an object such as `Proven(...)`, in place of epsilon, delta and clip.
    loss
        "logistic" (the default; for more than two classes it is softmax), "softmax", "smoothed-hinge", or an object.
    penalty
        For instance `L1(1e-3)`. None: `L2(1e-4)`. See `penalise_intercept`.
    classes
        All labels that can occur. None: those that do occur; that is read from private data, and the guarantee says so.
    rounds
        Number of rounds; with algorithm "auto" the most that it may choose. None: as many as the rule says, or 50 if
        the algorithm is an object.
    fit_intercept
        Whether rows get one more column, of ones. It counts in the length of a row. Rows that a `Schema` encodes have
        a column for the intercept already, which then is one of the columns of `coef_`; see `Objective`.
    penalise_intercept
        Whether the penalty counts the intercept too. False: it does not, as in scikit-learn.
    prepare
        A `Schema`: X is then a table as it is, and y and groups may be left out if it has these columns. Or
        `PublicScaler`, `PrivateScaler` or `RowClipper`, or a list of them: applied to rows before training and before
        predicting. The budget pays for it and the guarantee covers it. `coef_` belongs to prepared features.
    row_bound
        A public promise that no row (after `prepare`) is longer; it is checked. None: the bound of `prepare`, if any.
    earlier_steps
        "public" declares that whatever was done to X before used no private numbers. "unknown": the guarantee says
        that it does not cover these steps.
    participation
        Which owners take part in which round. None: everyone.
    ledgers
        Folder of the owners' ledger files, for budgets that outlive the fit. None: each fit has its own budget, and
        from the second fit on a warning says so. Copies in worker processes (`n_jobs`) cannot be counted together:
        each of them warns, on the stderr of the worker.
    engine
        "auto", "numpy" or "kernel".
    class_weight
        How much records of each class weigh, before the clip: public numbers, by label or in the order of `classes_`.
    evaluate
        Whether, and how (`Evaluation(...)`), owners hold out records to measure the model on: see `score_privately`.
    random_state
        Seed of the noise. The same rows and settings get the same noise; others (such as the folds of a
        cross-validation) get different noise. None: a fresh seed that is not kept. Once the model or a copy of it was
        fitted in "proven" mode, pickles do not contain the seed; a pickled search holds an unfitted copy.

    Attributes
    ----------
    classes_ : array
        In the order of the columns of `predict_proba`.
    coef_, intercept_ : arrays
        As in scikit-learn's linear models.
    guarantee_ : Guarantee
        What may be said about privacy, and what may not. Print it.
    algorithm_
        The algorithm that was used, with its settings.
    chosen_
        What a rule chose, why (`chosen_.why`), and a warning if noise exceeds signal; None if constants were given.
    rounds_ : int
        Rounds done: fewer than asked for if budgets ran out.
    result_ : Result
        The run itself, on prepared features: `result_.save(folder)` keeps it, for `sottovoce verify` and `report`. It
        contains the seed, so pickles leave it out.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import FederatedClassifier, PublicScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, size=(3000, 2))  # two features that are known to lie between 0 and 100
    >>> y = np.where(X[:, 0] > X[:, 1], "sick", "well")
    >>> hospital = rng.integers(0, 3, size=3000)
    >>> model = FederatedClassifier(
    ...     epsilon=1.0, delta=1e-5, prepare=PublicScaler((0, 100)), classes=["sick", "well"], random_state=0
    ... ).fit(X, y, groups=hospital)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> model.predict([[90.0, 10.0]])
    array(['sick'], dtype='<U4')
    >>> model.guarantee_.short
    '1 (δ=1e-05) per record, server sees all messages, simulated noise'
    """

    class_weight: Mapping[Any, float] | Sequence[float] | None = None
    evaluate: Evaluation | bool = False
    base_rate: float | None = None

    _losses: ClassVar = ("logistic", "softmax", "smoothed-hinge", "weighted-logistic", "weighted-softmax")

    def _rule(self, name: str | None) -> Rule:
        if self.base_rate is None:
            return super()._rule(name)
        check.between(self._name, 0, 1, base_rate=self.base_rate)
        check.require(self.fit_intercept or self._schema is not None, self._name, "base_rate needs fit_intercept=True")
        rule = "base_rate is for constants that a rule chooses, with algorithm 'auto', or 'noisy-gd' and no rounds"
        check.require(name is not None, self._name, rule, hint="Leave it out")
        return Rule(name or "", self.base_rate, 1.0 if self._schema is None else constant_entry(self._schema))

    def _fit(self, X: Table, y: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        super()._fit(X, y, groups)
        if self._outputs == 2:  # two columns of softmax are one of logistic
            self.coef_ = self.coef_[1:] - self.coef_[:1]
            self.intercept_ = self.intercept_[1:] - self.intercept_[:1]


@dataclass(eq=False, repr=False, kw_only=True)
class FederatedRegressor(LinearRegressor, FederatedLinear):
    """A linear regression over rows of many owners, with a privacy guarantee that is true.

    Parameters and attributes are those of `FederatedClassifier`, without `classes` and with these differences:

    Parameters
    ----------
    loss
        "squared" (the default), "huber", or an object such as `Huber(width=0.5)`.
    y_range
        A public range of y, (low, high): values are clipped to it and mapped to [-1, 1] for training. Without it the
        clip norm has to suit the scale of y.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import FederatedRegressor, PublicScaler
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 100, size=(3000, 2))
    >>> y = 200 + 3 * X[:, 0] - X[:, 1] + rng.normal(size=3000)
    >>> firm = rng.integers(0, 3, size=3000)
    >>> model = FederatedRegressor(prepare=PublicScaler((0, 100)), y_range=(0, 600), random_state=0)
    >>> bool(model.fit(X, y, groups=firm).score(X, y) > 0.9)
    True
    """

    def _unstated_sizes(self) -> list[str]:
        unstated = super()._unstated_sizes()
        if self.y_range is None and self._schema is None:
            y = "no range of y is stated, and y beyond about 1 will be clipped away. Give y_range=(low, high)"
            unstated.append(y)
        return unstated
