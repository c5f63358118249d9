"""A linear classifier over columns of many parties, as a scikit-learn estimator."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.estimators.base import CLASSIFICATION, LinearClassifier, numbered, refuse_other_targets
from sottovoce.estimators.scalers import seed_of
from sottovoce.estimators.validation import validated
from sottovoce.experiment.train import train
from sottovoce.privacy.guarantee import LABELS_FOUND
from sottovoce.privacy.modes import NoPrivacy, ProvenColumns, VerticalPrivacy
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import VerticalFederation

_LISTED = 10  # names in an error


class VerticalClassifier(LinearClassifier):
    """A linear classifier for two classes over columns of many parties, row i being the same sample at each of them.

    Parameters
    ----------
    parties
        Who holds which columns: {party: its columns, by name or number}; or how many each has, in order, [3, 5]. None:
        one party has them all. Columns can be held by one party only.
    algorithm
        "admm-sharing", "fdml", or an object.
    privacy
        `ProvenColumns(...)`, `Published(...)` or "none". It has to be said: what a record, a column and a party cost
        differs by orders of magnitude. The page "Choose a method" has an example.
    loss
        "logistic" (the default), "smoothed-hinge", or an object.
    penalty
        None: `L2(1e-4)`. The intercept is penalised like the rest.
    classes
        The two labels there can be, declared. None: those that occur; the guarantee says that this is not covered.
    rounds
        How many rounds.
    fit_intercept
        Whether the party that holds the labels gets one more column, of ones.
    holder
        The party that holds the labels, by name (or by number, where `parties` has no names). None: the first one.
    earlier_steps, ledgers, random_state
        As in `FederatedClassifier`.

    Attributes
    ----------
    classes_, coef_, intercept_, guarantee_, rounds_, n_features_in_, feature_names_in_
        As in `FederatedClassifier`. `coef_` has the parties' models in the order of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import VerticalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4))
    >>> y = X @ [1.0, -1.0, 2.0, 0.0] > 0
    >>> model = VerticalClassifier({"bank": [0, 1], "shop": [2, 3]}, privacy="none", rounds=30).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> print(model.guarantee_)
    No privacy: exact answers were sent in the clear.
    """

    _by_columns = True

    def __init__(
        self,
        parties: Any = None,
        algorithm: Any = "admm-sharing",
        *,
        privacy: Any = None,
        loss: Any = None,
        penalty: Any = None,
        classes: Any = None,
        rounds: int = 50,
        fit_intercept: bool = True,
        holder: Any = None,
        earlier_steps: str = "unknown",
        ledgers: Any = None,
        random_state: Any = None,
    ) -> None:
        self.parties = parties
        self.algorithm = algorithm
        self.privacy = privacy
        self.loss = loss
        self.penalty = penalty
        self.classes = classes
        self.rounds = rounds
        self.fit_intercept = fit_intercept
        self.holder = holder
        self.earlier_steps = earlier_steps
        self.ledgers = ledgers
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **others: Any) -> "VerticalClassifier":
        """Train. `X` has the columns of all parties."""
        if others.pop("groups", None) is not None:
            raise InvalidInput(
                f"{self._name}: fit takes no groups: columns are split here, so no row has an owner. Say who holds "
                "which columns, parties={'bank': [0, 1], ...}; for rows of many owners use FederatedClassifier"
            )
        self._refuse(others)
        X, y = validated(self, X, y, dtype=np.float64, accept_sparse="csr")
        refuse_other_targets(self._name, y)
        self.classes_, number = numbered(self._name, y, self.classes)
        if len(self.classes_) > 2:
            raise InvalidInput(
                f"{self._name}: Only binary classification is supported. The type of the target is multiclass, with "
                f"{len(self.classes_)} classes. Train one model for each class against the others"
            )
        loss = self._loss([name for name in CLASSIFICATION if name != "softmax"])
        objective = Objective(LOSSES[loss]() if isinstance(loss, str) else loss, self._penalty())
        self._train(X, 2.0 * number - 1.0, objective, [] if self.classes is not None else [LABELS_FOUND])
        return self

    def _train(self, X: Any, y: np.ndarray, objective: Objective, left_out: list[str]) -> None:
        mode, (names, shares) = self._mode(), self._shares(X.shape[1])
        place = names.index(check.one_of(self._name, "holder", self.holder, names)) if self.holder is not None else 0
        left_out = [*left_out, *self._earlier(mode)]
        parts = [X[:, own] for own in shares]
        if self.fit_intercept:
            parts[place] = _with_ones(parts[place])
        self._count_fit(mode)
        result: Any = train(  # a VerticalResult
            self._algorithm(),
            VerticalFederation.from_arrays(parts, y, names=names, holder=place),
            objective,
            rounds=self.rounds,
            privacy=mode,
            seed=seed_of(self.random_state),
            record_every=self.rounds,
            measure_training=False,  # exact numbers about private rows do not belong into a model
            ledgers=self.ledgers,
        )
        if result.rounds == 0 or result.model.size == 0:
            raise self._nothing_trained(result.stopped or "what is left does not hold a model")
        self.guarantee_, self.rounds_ = result.guarantee.leaving_out(*left_out), result.rounds
        self.result_ = replace(result, guarantee=self.guarantee_)
        self.coef_, self.intercept_ = np.zeros((1, X.shape[1])), np.zeros(1)
        for m, own in enumerate(shares):
            part = result.party_model(m)
            self.coef_[0, own] = part[: len(own)]
            self.intercept_ += part[len(own) :].sum()

    def _mode(self) -> Any:
        if isinstance(self.privacy, str) and self.privacy == "none":
            return NoPrivacy()
        example = "ProvenColumns(epsilon=1.0, delta=1e-6, unit='record', ...), Published(...) or 'none'"
        fits = isinstance(self.privacy, VerticalPrivacy)
        hint = "docs/choose.md has an example for split columns"
        check.require(fits, self._name, f"privacy must be said: {example}, got {check.shown(self.privacy)}", hint=hint)
        model = not isinstance(self.privacy, ProvenColumns) or self.privacy.model
        check.require(model, self._name, "a model is needed to predict: ProvenColumns(model=True)", self.privacy)
        return self.privacy

    def _shares(self, columns: int) -> tuple[list[Any], list[list[int]]]:
        """The parties' names, and the numbers of the columns that each holds."""
        given = [columns] if self.parties is None else self.parties
        if isinstance(given, Mapping):
            place = {name: number for number, name in enumerate(getattr(self, "feature_names_in_", ()))}
            place |= {number: number for number in range(columns)}
            for name, own in given.items():
                self._must_name_columns(name, own, place)
            names, shares = list(given), [[place[column] for column in own] for own in given.values()]
        else:
            whole = isinstance(given, list | tuple) and all(map(check.is_whole, given))
            rule = "parties must be {name: columns} or whole numbers >= 1, how many columns each has"
            check.require(whole, self._name, rule)
            check.require(sum(given) == columns, self._name, f"parties must add up to the {columns} columns of X")
            ends = np.cumsum([0, *given]).tolist()
            names, shares = list(range(len(given))), [list(range(a, b)) for a, b in itertools.pairwise(ends)]
        self._one_holder_each(columns, dict(zip(names, shares, strict=True)))
        return names, shares

    def _must_name_columns(self, name: Any, own: Any, place: Mapping[Any, int]) -> None:
        """Refuse what is no column of X, by its place: it may be an entry, given by mistake."""
        listed = isinstance(own, list | tuple | range | np.ndarray) and np.ndim(own) == 1
        check.require(listed, self._name, f"parties[{name!r}] must be a list of names or numbers of columns", own)
        for number, column in enumerate(own):
            if column not in place:
                known = place if len(place) <= 2 * _LISTED else list(place)[:_LISTED]
                raise InvalidInput(
                    f"{self._name}: parties[{name!r}] must name columns of X, and its entry {number} is none. There "
                    f"are: {', '.join(map(repr, known))}{', ...' if len(known) < len(place) else ''}"
                )

    def _one_holder_each(self, columns: int, shares: dict[Any, list[int]]) -> None:
        """Refuse columns that are held twice or by nobody, and parties that hold none."""
        names = getattr(self, "feature_names_in_", range(columns))
        held = Counter(column for own in shares.values() for column in own)
        rule = f"each of the {columns} columns of X must be one party's"
        check.require(max(held) < columns, self._name, f"{rule}, and the parties have {len(held)}")
        for column in range(columns):
            what = "held twice" if held[column] > 1 else "held by nobody"
            check.require(held[column] == 1, self._name, f"{rule}, and {names[column]!r} is {what}")
        for name, own in shares.items():
            check.require(bool(own), self._name, f"each party must hold a column, and {name!r} holds none")

    def _margins(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "coef_")
        rows: Any = validated(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        return rows @ self.coef_[0] + self.intercept_[0]

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


def _with_ones(part: Any) -> Any:
    if not hasattr(part, "tocsr"):
        return np.column_stack([part, np.ones(len(part))])
    from scipy.sparse import csr_array, hstack

    return hstack([part, csr_array(np.ones((part.shape[0], 1)))], format="csr")
