"""Columns of several owners: parties with different features of the same samples, one of them with the labels.

Parties that number their samples differently are joined on identifiers. They compare salted hashes (SHA-256), never
the identifiers themselves. But a hash hides nothing from someone who can guess the identifier, and whoever sees two
lists learns which samples are in both. A private set intersection would hide that; this is not one.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Integers, Matrix, MatrixLike, Sparse, SparseLike, is_sparse
from sottovoce.core.plain import Json
from sottovoce.problems.federation import FederatedData, check_names, refuse_huge, with_ones
from sottovoce.problems.losses import Loss
from sottovoce.problems.schema import Schema

_REVEALS = (
    "The exact join tells whoever sees two of the hashed lists which samples are in both, and whoever can guess "
    "identifiers (and knows the salt) who they are. No privacy guarantee covers it."
)


@dataclass(frozen=True)
class Alignment:
    """Which samples the parties have in common.

    Parameters
    ----------
    samples
        How many samples all parties have: these are trained on.
    held
        How many each list had, by its name; the list of the labels last, if they have one of their own.
    joined
        Whether identifiers were compared. If not, row i was taken to be the same sample everywhere.
    """

    samples: int
    held: dict[str, int]
    joined: bool

    def __str__(self) -> str:
        if not self.joined:
            return f"{self.samples} samples, taken to be in the same order everywhere (no ids were given)."
        kept = ", ".join(f"{name}: {self.samples} of {count}" for name, count in self.held.items())
        return f"{self.samples} samples matched by id ({kept}). {_REVEALS}"


@dataclass(frozen=True)
class VerticalFederation(FederatedData):
    """Columns of many owners: party m holds parts[m], row i of every part being the same sample.

    Parameters
    ----------
    parts
        One (samples, columns) array per party: dense, or sparse (CSR).
    y
        The labels, with party `holder`.
    names
        One per party.
    holder
        The number of the party that has the labels.
    report
        Which samples the parties have in common.
    bias
        Whether the last column of the holder's part is there for the intercept.
    row_bound
        A public bound on the length of each party's part of a row: 1 if a `Schema` encoded it. None: none is known.
    shares
        Columns of the table that each part was made from, where a schema encoded it (the bias is one); none: its own.

    Examples
    --------
    >>> from sottovoce import VerticalFederation
    >>> bank, shop = [[1.0], [2.0], [3.0]], [[0.5, 0.1], [0.7, 0.2]]
    >>> parties = VerticalFederation.from_arrays(
    ...     [bank, shop], [1, -1, 1], ids=[["ann", "bob", "eve"], ["eve", "ann"]], names=["bank", "shop"], salt="agreed"
    ... )
    >>> parties
    VerticalFederation(2 parties, 2 samples, 1 + 2 columns)
    >>> str(parties.report).split(".")[0]
    '2 samples matched by id (bank: 2 of 3, shop: 2 of 2)'
    """

    parts: tuple[Matrix, ...] = field(repr=False)
    y: AnyArray = field(repr=False)
    names: tuple[str, ...]
    holder: check.WholeOrZero = 0
    report: Alignment | None = None
    bias: bool = False
    row_bound: check.Positive | None = None
    shares: tuple[int, ...] = ()
    layout = "columns"

    @classmethod
    def from_arrays(
        cls,
        parts: Sequence[MatrixLike],
        y: ArrayLike,
        *,
        ids: Sequence[ArrayLike] | None = None,
        label_ids: ArrayLike | None = None,
        names: Sequence[object] | None = None,
        holder: int = 0,
        salt: str = "",
    ) -> "VerticalFederation":
        """Bring the parties' rows into one order.

        Parameters
        ----------
        parts
            X_1, ..., X_M: numbers, dense or scipy.sparse.
        y
            One label per row of the holder's part, or per entry of `label_ids`.
        ids
            One list of sample identifiers per party, each with one per row and none twice. Samples that some party
            lacks are left out, and `report` says how many. None: row i is the same sample everywhere.
        label_ids
            Identifiers of the labels, if they are not in the order of the holder's rows.
        salt
            A text that the parties agreed to put in front of identifiers before they hash them.
        """
        who = "VerticalFederation"
        check.require(_is_list(parts) and len(parts) > 0, who, "parts must be a list with one array per party")
        names = usual_names(len(parts)) if names is None else list(names)
        check.require(len(names) == len(parts), who, f"needs one name per party ({len(parts)})", len(names))
        check.whole(who, at_least=0, holder=holder)
        check.require(holder < len(parts), who, f"holder must be the number of a party, 0..{len(parts) - 1}", holder)
        titles = tuple(str(name) for name in names)
        checked = [_matrix(title, part) for title, part in zip(titles, parts, strict=True)]
        labels = check.any_array(who, "y", y)
        check.require(labels.ndim == 1, who, "y must have one axis", labels.shape)
        if ids is None:
            check.require(label_ids is None, who, "label_ids need ids of the parties' rows to be compared with")
            return cls(tuple(checked), labels, titles, holder)
        check.require(len(ids) == len(parts), who, f"ids must be {len(parts)} lists, one per party", len(ids))
        lists = {title: hashed(title, of_party, part.shape[0], salt)
                 for title, of_party, part in zip(titles, ids, checked, strict=True)}  # fmt: skip
        if label_ids is not None:
            lists["the labels"] = hashed("the labels", label_ids, len(labels), salt)
        else:
            _as_many(titles[holder], "labels", len(labels), checked[holder].shape[0])
        order = lists["the labels" if label_ids is not None else titles[holder]]
        shared = [digest for digest in order if all(digest in each for each in lists.values())]
        held = {title: len(each) for title, each in lists.items()}
        counts = ", ".join(f"{title}: {count}" for title, count in held.items())
        check.require(bool(shared), who, f"no identifier is held by everybody ({counts})", hint="Check the salt")
        parts_ = tuple(
            part[[lists[title][digest] for digest in shared]] for title, part in zip(titles, checked, strict=True)
        )
        labels = labels[[order[digest] for digest in shared]]
        return cls(parts_, labels, titles, holder, Alignment(len(shared), held, joined=True))

    @classmethod
    def from_columns(
        cls,
        X: MatrixLike,
        y: ArrayLike,
        split: Sequence[int],
        *,
        names: Sequence[object] | None = None,
        holder: int = 0,
    ) -> "VerticalFederation":
        """Cut one array into parties: the first split[0] columns, the next split[1], ..."""
        return cls.from_arrays(cut(_matrix("X", X), split), y, names=names, holder=holder)

    @classmethod
    def of_schema(cls, schema: Schema, parts: Sequence[MatrixLike], y: ArrayLike) -> "VerticalFederation":
        """Parts that a schema with parties encoded, `Schema.encode_parts`. The first party has the labels."""
        made = cls.from_arrays(parts, y, names=list(schema.parties))
        counts = [len(columns) for columns in schema.parties.values()]
        counts[0] += schema.bias
        return replace(made, bias=schema.bias, row_bound=schema.row_bound, shares=tuple(counts))

    def __post_init__(self) -> None:
        check.fields(self)
        check_names("VerticalFederation", self.names)
        samples = len(self.y)
        check.require(samples > 0, "VerticalFederation", "needs at least one sample")
        for name, part in zip(self.names, self.parts, strict=True):
            _as_many(name, "rows", part.shape[0], samples)
        if self.report is None:
            report = Alignment(samples, dict.fromkeys(self.names, samples), joined=False)
            object.__setattr__(self, "report", report)

    @property
    def samples(self) -> int:
        """Number of samples, of which every party has its columns."""
        return len(self.y)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(int(part.shape[1]) for part in self.parts)

    @property
    def sizes(self) -> Integers:
        return np.full(self.n, self.samples)

    def message_size(self, loss: Loss) -> int:
        return self.samples

    def rows_like_these(self, who: str, X: Sequence[MatrixLike]) -> list[Matrix]:
        return matrices(who, X, self.widths)

    def with_ones(self, X: Sequence[Matrix]) -> list[Matrix]:
        return [with_ones(part) if m == self.holder else part for m, part in enumerate(X)]

    def with_bias(self, blanks: bool = False) -> "VerticalFederation":
        if self.bias:
            return self
        shares = tuple(count + (m == self.holder) for m, count in enumerate(self.shares))
        longer = None if self.row_bound is None else float(np.hypot(self.row_bound, 1.0))
        return replace(self, parts=tuple(self.with_ones(self.parts)), bias=True, shares=shares, row_bound=longer)

    def pooled(self) -> "VerticalFederation":
        """All columns at one party: the best that the parties could do if they shared everything."""
        return VerticalFederation((joined(self.parts),), self.y, ("everyone",))

    def alone(self, m: int) -> "VerticalFederation":
        """Party m with the labels and nobody else: what it could do by itself."""
        return VerticalFederation((self.parts[m],), self.y, (self.names[m],))

    @property
    def record_weight(self) -> Literal["mean"]:
        return "mean"  # all owners have the same records

    def data(self) -> list[tuple[AnyArray, AnyArray]]:
        return [(_plain(part), self._labels_of(m)) for m, part in enumerate(self.parts)]

    def dense_data(self) -> list[tuple[Floats, AnyArray]]:
        return [(_dense(part), self._labels_of(m)) for m, part in enumerate(self.parts)]

    def fingerprint_arrays(self) -> list[AnyArray]:
        return [array for of_party in self.data() for array in of_party]

    def to_table(self) -> Json:
        return {"source": "arrays", "rows": self.samples, "split": list(self.widths), "holder": self.holder}

    def model_parts(self) -> Json:
        return {"widths": self.widths}

    def clients_table(self) -> Json:
        split = {"split": list(self.widths), "samples": self.samples}
        return {"names": list(self.names)} | split | {"holder": self.names[self.holder]}

    def node_table(self) -> Json:
        return {"same_order": True}

    def _labels_of(self, m: int) -> AnyArray:
        return self.y if m == self.holder else self.y[:0]

    def __repr__(self) -> str:  # the default would print rows
        widths = " + ".join(map(str, self.widths))
        return f"VerticalFederation({self.n} parties, {self.samples} samples, {widths} columns)"


def usual_names(count: int) -> list[str]:
    """Names of parties that were given none."""
    return [f"party {m}" for m in range(1, count + 1)]


def cut(X: Matrix, split: Sequence[int]) -> list[Matrix]:
    """Neighbouring columns of X, split[0] of them, then split[1], ..."""
    whole = _is_list(split) and all(map(check.is_whole, split))
    check.require(whole, "split", "must be whole numbers >= 1, one per party")
    check.require(sum(split) == X.shape[1], "split", f"must add up to the {X.shape[1]} columns of X")
    return [X[:, a:b] for a, b in itertools.pairwise(itertools.accumulate(split, initial=0))]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence)


def joined(parts: Sequence[Matrix]) -> Matrix:
    """Parts side by side: sparse if all are."""
    if all(map(is_sparse, parts)):
        return import_module("scipy.sparse").hstack(parts, format="csr")
    return np.hstack([_dense(part) for part in parts])


def matrices(who: str, parts: Sequence[MatrixLike], widths: Sequence[int]) -> list[Matrix]:
    """One array per party, with rows of the same columns as before: checked."""
    listed = _is_list(parts) and len(parts) == len(widths)
    got = len(parts) if _is_list(parts) else type(parts).__name__
    check.require(listed, who, f"needs a list of {len(widths)} arrays, one per party", got)
    checked = [_matrix(f"party {m + 1}", part) for m, part in enumerate(parts)]
    for m, (part, width) in enumerate(zip(checked, widths, strict=True)):
        check.require(part.shape[1] == width, who, f"party {m + 1} must have its {width} columns", part.shape[1])
        _as_many(f"party {m + 1}", "rows", part.shape[0], checked[0].shape[0])
    return checked


def summed_scores(parts: Sequence[Matrix], model: np.ndarray, widths: Sequence[int], outputs: int = 1) -> np.ndarray:
    """Σ_m X_m x_m: (runs?, rows); of a loss with several margins (runs?, rows, outputs)."""
    if outputs > 1:
        by_output = np.moveaxis(model.reshape(*model.shape[:-1], outputs, -1), -2, 0)
        return np.stack([summed_scores(parts, weights, widths) for weights in by_output], axis=-1)
    pieces = np.split(model, np.cumsum(widths)[:-1], axis=-1)
    return np.sum([(part @ piece.T).T for part, piece in zip(parts, pieces, strict=True)], axis=0)


def _matrix(name: str, X: MatrixLike) -> Matrix:
    """Finite float64 numbers, dense or CSR."""
    if isinstance(X, SparseLike):
        shape = cast(Sparse, X).shape
        check.require(len(shape) == 2, name, "X must have 2 axes", shape)
        matrix = import_module("scipy.sparse").csr_array(X, dtype=np.float64)
        matrix.sum_duplicates()
        entries = check.finite_array(name, "X", matrix.data, ndim=1)
    else:
        entries = matrix = np.ascontiguousarray(check.finite_array(name, "X", X, ndim=2))
    check.require(matrix.shape[1] > 0, name, "X must have at least one column", matrix.shape)
    refuse_huge(name, entries)
    return matrix


def hashed(name: str, ids: ArrayLike, rows: int, salt: str) -> dict[bytes, int]:
    """The row of each salted hash. Missing and repeated identifiers are refused with their counts."""
    column = check.any_array(name, "ids", ids)
    check.require(column.ndim == 1, name, "ids must have one axis", column.shape)
    _as_many(name, "ids", len(column), rows)
    values = column.tolist()
    missing = sum(value is None or value != value or value == "" for value in values)
    hint = "Give every row one, or leave those rows out"
    check.require(missing == 0, name, f"{missing} of {rows} ids are missing", hint=hint)
    row_of = {hashlib.sha256(f"{salt}\x00{value}".encode()).digest(): row for row, value in enumerate(values)}
    rule = f"{rows - len(row_of)} of {rows} ids are there more than once"
    check.require(len(row_of) == rows, name, rule, hint="A sample must have one row: merge or drop the others")
    return row_of


def _as_many(name: str, what: str, got: int, rows: int) -> None:
    check.require(got == rows, "VerticalFederation", f"{name} must have as many {what} as there are samples ({rows})",
                  got, "Samples in another order, or others, are joined by ids")  # fmt: skip


def _dense(part: Matrix) -> Floats:
    return part.toarray() if is_sparse(part) else part


def _plain(part: Matrix) -> AnyArray:
    """All that a matrix consists of, in one array."""
    if not is_sparse(part):
        return part
    return np.concatenate([part.data, part.indices.astype(np.float64), part.indptr.astype(np.float64)])
