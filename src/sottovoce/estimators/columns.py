"""A linear classifier and a regression over columns of many parties, as scikit-learn estimators."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sottovoce.algorithms import MaskedMoments
from sottovoce.core import check
from sottovoce.core.arrays import Matrix
from sottovoce.core.contract import Method
from sottovoce.core.plain import Json
from sottovoce.estimators.base import PrivateEstimator
from sottovoce.estimators.scalers import seed_of
from sottovoce.estimators.targets import LinearClassifier, LinearRegressor
from sottovoce.estimators.validation import Table, validated, validated_rows
from sottovoce.experiment.task import Task, usual_for_columns
from sottovoce.experiment.vertical_result import VerticalResult
from sottovoce.privacy.modes import NoPrivacy, ProvenColumns
from sottovoce.problems.losses import Loss
from sottovoce.problems.schema import Schema
from sottovoce.problems.vertical import VerticalFederation, summed_scores
from sottovoce.rules import AUTO

_LISTED = 10  # names in an error
Column = str | int


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalLinear(PrivateEstimator):
    """What a classifier and a regression over split columns share; `VerticalClassifier` has the parameters."""

    parties: Mapping[str, Sequence[Column]] | Sequence[int] | None = field(default=None, kw_only=False)
    algorithm: Method | str = field(default=AUTO, kw_only=False)
    holder: Column | None = None
    prepare: Schema | None = None
    penalise_intercept: bool = True

    _layout: ClassVar = "columns"
    _modes: ClassVar = {"proven": ProvenColumns, "none": NoPrivacy}
    _example: ClassVar = "'proven' (with epsilon and delta), ProvenColumns(...), Published(...) or 'none'"

    def fit(self, X: Table, y: ArrayLike | None = None, **others: object) -> Self:
        """Train. `X` has the columns of all parties."""
        self._refuse(others)
        self._fit(X, y)
        return self

    def _algorithm(self) -> Method:
        if isinstance(self.algorithm, str) and self.algorithm == AUTO:
            return usual_for_columns(self._mode())()
        return super()._algorithm()

    def _refuse(self, arguments: Json) -> None:
        by_columns = "Say who holds which columns, parties={'bank': [0, 1], ...}"
        hint = f"{by_columns}; for rows of many owners use FederatedClassifier"
        rule = "fit takes no groups: columns are split here, so no row has an owner"
        check.require(arguments.pop("groups", None) is None, self._name, rule, hint=hint)
        super()._refuse(arguments)

    def _read(
        self, X: Table, y: ArrayLike | None, groups: ArrayLike | None, numeric: bool
    ) -> tuple[Matrix | list[np.ndarray], np.ndarray, ArrayLike | None]:
        """The table, or with a schema each party's part of it; and the labels."""
        schema = self.prepare
        if schema is None:
            return *validated(self, X, y, numeric), groups
        check.of_kind(self._name, "prepare", schema, Schema, "Schema(..., parties={'bank': ['age'], 'shop': ['sex']})")
        rule = "a schema says who has which columns and the labels: leave parties and holder out"
        check.require(self.parties is None and self.holder is None, self._name, rule)
        check.require(schema.label is not None, self._name, "the schema must state the label, Label(column, ...)")
        parts, codes = schema.encode_parts(X, labels=y is None)
        self.n_features_in_ = len(schema.features)
        return parts, schema.code_labels(y, f"{self._name}: y") if codes is None else codes, groups

    def _train(
        self, table: Matrix | list[np.ndarray], y: np.ndarray, loss: Loss, left_out: list[str], groups: ArrayLike | None
    ) -> None:
        if isinstance(table, list):
            made = VerticalFederation.of_schema(cast(Schema, self._schema), table, y)
            result, self._widths = self._trained(made, loss, left_out), made.widths
            self.coef_, self.intercept_ = result.model.reshape(loss.outputs, -1).copy(), np.zeros(loss.outputs)
            return
        names, shares = self._shares(table.shape[1])
        holder = names[0] if self.holder is None else self.holder
        place = names.index(check.one_of(self._name, "holder", holder, names))
        federation = VerticalFederation.from_arrays([table[:, share] for share in shares], y, names=names, holder=place)
        result = self._trained(federation, loss, left_out)
        self.coef_, self.intercept_ = np.zeros((loss.outputs, table.shape[1])), np.zeros(loss.outputs)
        for party, share in enumerate(shares):
            model = result.party_model(party).reshape(loss.outputs, -1)
            self.coef_[:, share] = model[:, : len(share)]
            self.intercept_ += model[:, len(share) :].sum(axis=1)

    def _trained(self, federation: VerticalFederation, loss: Loss, left_out: list[str]) -> VerticalResult:
        mode, algorithm = self._mode(), self._algorithm()
        rounds = min(self._rounds, 1) if isinstance(algorithm, MaskedMoments) else self._rounds
        self._count_fit(mode)
        task = Task(algorithm, self._objective(loss), mode, rounds=rounds)
        left_out = [*left_out, *self._earlier(mode)]
        return cast(VerticalResult, self._run(task, federation, left_out, seed_of(self.random_state), self.ledgers))

    def _shares(self, columns: int) -> tuple[list[Column], list[list[int]]]:
        """The parties' names, and the numbers of the columns that each of them holds."""
        parties = [columns] if self.parties is None else self.parties
        names: list[Column]
        if isinstance(parties, Mapping):
            place: dict[Column, int] = {name: j for j, name in enumerate(getattr(self, "feature_names_in_", ()))}
            place |= {number: number for number in range(columns)}
            for name, share in parties.items():
                self._must_name_columns(name, share, place)
            names, shares = list[Column](parties), [[place[column] for column in share] for share in parties.values()]
        else:
            counts = isinstance(parties, list | tuple) and all(map(check.is_whole, parties))
            rule = "parties must be {name: columns} or whole numbers >= 1, how many columns each has"
            check.require(counts, self._name, rule)
            check.require(sum(parties) == columns, self._name, f"parties must add up to the {columns} columns of X")
            ends = np.cumsum([0, *parties]).tolist()
            names, shares = list[Column](range(len(parties))), [list(range(a, b)) for a, b in itertools.pairwise(ends)]
        self._one_holder_each(columns, dict(zip(names, shares, strict=True)))
        return names, shares

    def _must_name_columns(self, name: object, share: object, place: Mapping[Column, int]) -> None:
        """Refuse what is no column of X. It is named by its place: it may be an entry, given by mistake."""
        listed = isinstance(share, list | tuple | range | np.ndarray) and np.ndim(share) == 1
        check.require(listed, self._name, f"parties[{name!r}] must be a list of names or numbers of columns", share)
        for number, column in enumerate(share):  # type: ignore[arg-type]  (it is listed)
            if column not in place:
                known = place if len(place) <= 2 * _LISTED else list(place)[:_LISTED]
                raise check.InvalidInput(
                    f"{self._name}: parties[{name!r}] must name columns of X, and its entry {number} is none. There "
                    f"are: {', '.join(map(repr, known))}{', ...' if len(known) < len(place) else ''}"
                )

    def _one_holder_each(self, columns: int, shares: Mapping[object, list[int]]) -> None:
        """Refuse columns that are held twice or by nobody, and parties that hold none."""
        names = getattr(self, "feature_names_in_", range(columns))
        held = Counter(column for share in shares.values() for column in share)
        rule = f"each of the {columns} columns of X must belong to one party"
        for column in range(columns):
            what = "held twice" if held[column] > 1 else "held by nobody"
            check.require(held[column] == 1, self._name, f"{rule}, and {names[column]!r} is {what}")
        for name, share in shares.items():
            check.require(bool(share), self._name, f"each party must hold a column, and {name!r} holds none")

    def _scores(self, X: Table) -> np.ndarray:
        check_is_fitted(self, "coef_")
        if self.prepare is not None:  # as a saved run computes them, to the last bit
            parts, _ = self.prepare.encode_parts(X, labels=False)
            return summed_scores(parts, self.coef_.ravel(), self._widths, len(np.atleast_2d(self.coef_)))
        scores = validated_rows(self, X, sparse=True) @ np.atleast_2d(self.coef_).T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalClassifier(VerticalLinear, LinearClassifier):
    """A linear classifier over columns of many parties; row i is the same sample at each of them.

    By default one round of masked moments: what is released are sums over all samples, with noise, and the unit is one
    record, all of its columns at all parties *and its label*. `epsilon` and `delta` are all that has to be said.

    Parameters
    ----------
    parties
        Who holds which columns: {party: its columns, by name or number}; or how many each has, in order, [3, 5]. None:
        one party has them all. A column can be held by one party only.
    algorithm
        "auto": "masked-moments", or without a budget "admm-sharing"; or "fdml", or an object.
    epsilon, delta
        The whole budget for each record, its label included.
    privacy
        "proven", "none", or an object: `ProvenColumns(...)` with what admm-sharing needs, `Published(...)`.
    loss
        "logistic" (the default; for more than two classes softmax), "smoothed-hinge", or an object.
    prepare
        A `Schema` with `parties`: X is then a table as it is, and y may be left out if it has the label's column. The
        first party has the labels. Each party's part of a row has length at most 1 by construction. `coef_` then holds
        the parties' models end to end. Without a schema columns should lie in [-1, 1]: rows longer than the square root
        of a party's number of columns are scaled down.
    penalty
        None: `L2(1e-4)`. It counts the intercept too. `result_.with_penalty(...)` gives others at no cost.
    classes
        The labels that can occur. None: those that do occur; the guarantee says that this is not covered.
    rounds
        Number of rounds of admm-sharing and fdml.
    fit_intercept
        Whether the party that holds the labels gets one more column, of ones.
    penalise_intercept
        Must be True here.
    holder
        The party that holds the labels, by name (or by number, if `parties` has no names). None: the first one.
    earlier_steps, ledgers, random_state
        As in `FederatedClassifier`.

    Attributes
    ----------
    algorithm_, classes_, coef_, intercept_, guarantee_, result_, rounds_, n_features_in_, feature_names_in_
        As in `FederatedClassifier`. `coef_` has the parties' models in the order of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import VerticalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 4))
    >>> y = X @ [1.0, -1.0, 2.0, 0.0] > 0
    >>> model = VerticalClassifier({"bank": [0, 1], "shop": [2, 3]}, epsilon=1.0, delta=1e-6, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> model.guarantee_.unit
    'one record: all columns of one sample at all owners, and its label, replaced by any others'
    """

    _losses: ClassVar = ("logistic", "softmax", "smoothed-hinge")

    def _coded(self, numbers: np.ndarray) -> tuple[Loss, np.ndarray]:
        loss, coded = super()._coded(numbers)
        several = f"The type of the target is multiclass, with {len(self.classes_)} classes"
        rule = f"Only binary classification is supported. {several}"  # the words that scikit-learn's own tests look for
        fits = loss.outputs == 1 or isinstance(self._algorithm(), MaskedMoments)
        check.require(fits, self._name, rule, hint="Use masked-moments, or train a model for each class")
        return loss, coded

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = False
        with suppress(check.SottovoceError):  # parameters are checked when they are used
            tags.classifier_tags.multi_class = isinstance(self._algorithm(), MaskedMoments)
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalRegressor(VerticalLinear, LinearRegressor):
    """A linear regression over columns of many parties; row i is the same sample at each of them.

    Parameters and attributes are those of `VerticalClassifier`, without `classes` and with these differences:

    Parameters
    ----------
    loss
        "squared" (the default), "huber", or an object.
    y_range
        A public range of y, (low, high): values are clipped to it. Without it y is clipped to [-1, 1]. A schema states
        it instead, `Label(column, range=(low, high))`.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import VerticalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 3))
    >>> y = 200 + X @ [30.0, -10.0, 20.0]
    >>> model = VerticalRegressor({"bank": [0], "shop": [1, 2]}, y_range=(140, 260), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """
