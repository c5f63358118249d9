"""A linear classifier over columns of many parties, as a scikit-learn estimator."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Method
from sottovoce.core.plain import Json
from sottovoce.estimators.base import LinearClassifier
from sottovoce.estimators.scalers import seed_of
from sottovoce.estimators.validation import Table, validated, validated_rows
from sottovoce.experiment.result import summed_scores
from sottovoce.experiment.task import Task
from sottovoce.privacy.modes import NoPrivacy, PrivacyMode
from sottovoce.problems.objective import Objective
from sottovoce.problems.schema import Schema
from sottovoce.problems.vertical import Matrix, VerticalFederation

_LISTED = 10  # names in an error
Column = str | int


@dataclass(eq=False, repr=False, kw_only=True)
class VerticalClassifier(LinearClassifier):
    """A linear classifier for two classes over columns of many parties; row i is the same sample at each of them.

    Parameters
    ----------
    parties
        Who holds which columns: {party: its columns, by name or number}; or how many each has, in order, [3, 5]. None:
        one party has them all. A column can be held by one party only.
    algorithm
        "admm-sharing", "fdml", or an object.
    privacy
        `ProvenColumns(...)`, `Published(...)` or "none". There is no default: what a record, a column and a party cost
        differs by orders of magnitude. The page "Choose a method" has an example.
    loss
        "logistic" (the default), "smoothed-hinge", or an object.
    prepare
        A `Schema` with `parties`: X is then a table as it is, and y may be left out if it has the label's column. The
        first party has the labels. `coef_` then holds the parties' models end to end.
    penalty
        None: `L2(1e-4)`. It counts the intercept too: the sensitivity of a party's fit rests on that.
    classes
        The two labels that can occur. None: those that do occur; the guarantee says that this is not covered.
    rounds
        Number of rounds.
    fit_intercept
        Whether the party that holds the labels gets one more column, of ones.
    penalise_intercept
        Must be True here.
    holder
        The party that holds the labels, by name (or by number, if `parties` has no names). None: the first one.
    earlier_steps
        As in `FederatedClassifier`.
    ledgers
        As in `FederatedClassifier`.
    random_state
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
    >>> X = rng.normal(size=(500, 4))
    >>> y = X @ [1.0, -1.0, 2.0, 0.0] > 0
    >>> model = VerticalClassifier({"bank": [0, 1], "shop": [2, 3]}, privacy="none", rounds=30).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    >>> print(model.guarantee_)
    No privacy: exact answers were sent in the clear.
    """

    parties: Mapping[str, Sequence[Column]] | Sequence[int] | None = field(default=None, kw_only=False)
    algorithm: Method | str = field(default="admm-sharing", kw_only=False)
    privacy: PrivacyMode | Literal["none"] | None = None
    prepare: Schema | None = None
    holder: Column | None = None
    penalise_intercept: bool = True

    _layout: ClassVar = "columns"
    _losses: ClassVar = ("logistic", "smoothed-hinge")

    def fit(self, X: Table, y: ArrayLike | None = None, **others: Any) -> Self:
        """Train. `X` has the columns of all parties."""
        if others.pop("groups", None) is not None:
            raise InvalidInput(
                f"{self._name}: fit takes no groups: columns are split here, so no row has an owner. Say who holds "
                "which columns, parties={'bank': [0, 1], ...}; for rows of many owners use FederatedClassifier"
            )
        self._refuse(others)
        if self.prepare is not None:
            return self._fit_table(self.prepare, X, y)
        table, labels = validated(self, X, y, sparse=True)
        numbers, left_out = self._code_labels(labels)
        if len(self.classes_) > 2:
            raise InvalidInput(
                f"{self._name}: Only binary classification is supported. The type of the target is multiclass, with "
                f"{len(self.classes_)} classes. Train one model for each class against the others"
            )
        self._train(table, 2.0 * numbers - 1.0, self._objective(self._loss()), left_out)
        return self

    def _fit_table(self, schema: Schema, X: Any, y: ArrayLike | None) -> Self:
        """Train on a table, of which the schema says who has which columns."""
        check.of_kind(self._name, "prepare", schema, Schema, "Schema(..., parties={'bank': ['age'], 'shop': ['sex']})")
        rule = "a schema says who has which columns and the labels: leave parties and holder out"
        check.require(self.parties is None and self.holder is None, self._name, rule)
        label, mode = schema.label, self._mode()
        two = label is not None and len(label.classes) == 2
        check.require(two, self._name, "the schema must state two classes, Label(column, [...])")
        assert label is not None
        parts, codes = schema.encode_parts(X, labels=y is None)
        codes = schema.code_labels(y, f"{self._name}: y") if codes is None else codes
        self.classes_, self.n_features_in_ = np.array(label.classes), len(schema.features)
        made = VerticalFederation.from_arrays(parts, 2.0 * codes - 1.0, names=list(schema.parties))
        task = Task(self._algorithm(), self._objective(self._loss()), mode, rounds=self._rounds)
        self._count_fit(mode)
        options: Json = {"seed": seed_of(self.random_state), "ledgers": self.ledgers}
        result = self._run(task, replace(made, bias=schema.bias), list(self._earlier(mode)), **options)
        # a saved run prepares new rows by it
        self.result_ = replace(result, config=result.config | {"schema": schema.to_tables()})
        self.coef_, self.intercept_ = result.model[None, :].copy(), np.zeros(1)
        self._widths = made.widths
        return self

    def _train(self, X: Matrix, y: np.ndarray, objective: Objective, left_out: list[str]) -> None:
        mode, (names, shares) = self._mode(), self._shares(X.shape[1])
        holder: Any = names[0] if self.holder is None else self.holder
        place = names.index(check.one_of(self._name, "holder", holder, names))
        left_out = [*left_out, *self._earlier(mode)]
        parts = [X[:, share] for share in shares]
        federation = VerticalFederation.from_arrays(parts, y, names=names, holder=place)
        task, seed = Task(self._algorithm(), objective, mode, rounds=self._rounds), seed_of(self.random_state)
        self._count_fit(mode)
        result: Any = self._run(task, federation, left_out, seed=seed, ledgers=self.ledgers)  # a VerticalResult
        self.coef_, self.intercept_ = np.zeros((1, X.shape[1])), np.zeros(1)
        for party, share in enumerate(shares):
            model = result.party_model(party)
            self.coef_[0, share] = model[: len(share)]
            self.intercept_ += model[len(share) :].sum()

    def _mode(self) -> PrivacyMode:
        if isinstance(self.privacy, str) and self.privacy == "none":
            return NoPrivacy()
        example = "ProvenColumns(epsilon=1.0, delta=1e-6, unit='record', ...), Published(...) or 'none'"
        hint = "docs/choose.md has an example for split columns"
        if not (isinstance(self.privacy, PrivacyMode) and self._layout in self.privacy.layouts):
            rule = f"privacy must be stated: {example}, got {check.shown(self.privacy)}"
            raise InvalidInput(f"{self._name}: {rule}. {hint}")
        rule = "a model is needed to predict: ProvenColumns(model=True)"
        check.require(self.privacy.predicts, self._name, rule, self.privacy)
        return self.privacy

    def _shares(self, columns: int) -> tuple[list[Any], list[list[int]]]:
        """The parties' names, and the numbers of the columns that each of them holds."""
        given: Any = [columns] if self.parties is None else self.parties
        if isinstance(given, Mapping):
            place = {name: number for number, name in enumerate(getattr(self, "feature_names_in_", ()))}
            place |= {number: number for number in range(columns)}
            for name, share in given.items():
                self._must_name_columns(name, share, place)
            names, shares = list(given), [[place[column] for column in share] for share in given.values()]
        else:
            counts = isinstance(given, list | tuple) and all(map(check.is_whole, given))
            rule = "parties must be {name: columns} or whole numbers >= 1, how many columns each has"
            check.require(counts, self._name, rule)
            check.require(sum(given) == columns, self._name, f"parties must add up to the {columns} columns of X")
            ends = np.cumsum([0, *given]).tolist()
            names, shares = list(range(len(given))), [list(range(a, b)) for a, b in itertools.pairwise(ends)]
        self._one_holder_each(columns, dict(zip(names, shares, strict=True)))
        return names, shares

    def _must_name_columns(self, name: object, share: object, place: Mapping[Any, int]) -> None:
        """Refuse what is no column of X. It is named by its place: it may be an entry, given by mistake."""
        listed = isinstance(share, list | tuple | range | np.ndarray) and np.ndim(share) == 1
        check.require(listed, self._name, f"parties[{name!r}] must be a list of names or numbers of columns", share)
        for number, column in enumerate(share):  # type: ignore[arg-type]  (it is listed)
            if column not in place:
                known = place if len(place) <= 2 * _LISTED else list(place)[:_LISTED]
                raise InvalidInput(
                    f"{self._name}: parties[{name!r}] must name columns of X, and its entry {number} is none. There "
                    f"are: {', '.join(map(repr, known))}{', ...' if len(known) < len(place) else ''}"
                )

    def _one_holder_each(self, columns: int, shares: Mapping[object, list[int]]) -> None:
        """Refuse columns that are held twice or by nobody, and parties that hold none."""
        names = getattr(self, "feature_names_in_", range(columns))
        held = Counter(column for share in shares.values() for column in share)
        rule = f"each of the {columns} columns of X must belong to one party"
        check.require(max(held) < columns, self._name, f"{rule}, and the parties have {len(held)}")
        for column in range(columns):
            what = "held twice" if held[column] > 1 else "held by nobody"
            check.require(held[column] == 1, self._name, f"{rule}, and {names[column]!r} is {what}")
        for name, share in shares.items():
            check.require(bool(share), self._name, f"each party must hold a column, and {name!r} holds none")

    def _scores(self, X: Table) -> np.ndarray:
        check_is_fitted(self, "coef_")
        if self.prepare is not None:  # as a saved run computes them, to the last bit
            return summed_scores(self.prepare.encode_parts(X, labels=False)[0], self.coef_[0], self._widths)
        return validated_rows(self, X, sparse=True) @ self.coef_[0] + self.intercept_[0]

    def __sklearn_tags__(self) -> Tags:
        tags: Any = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
