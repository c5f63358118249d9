"""`Schema`: a table's columns, stated; and the rows of such a table as numbers of length 1."""

import copy
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.core import check
from sottovoce.core.clipping import clip_rows
from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Json
from sottovoce.core.toml import to_toml
from sottovoce.problems.schema import toml
from sottovoce.problems.schema.columns import Column
from sottovoce.problems.schema.encoding import ALWAYS_MISSING, canonical
from sottovoce.problems.schema.frames import Table, must_be_there, read_table
from sottovoce.problems.schema.label import Label
from sottovoce.problems.schema.values import to_arrow

BIAS = "(bias)"
BUNDLED = ("adult", "heart", "a9a")
_ENCODING = "sottovoce encoding 1"  # part of the digest: another encoding of the same columns is another schema
_CHUNK = 2048  # rows that are encoded at a time, so that the numbers stay in cache


class Encoded(NamedTuple):
    """A table as numbers: rows of length 1, the label (a class's number, or a number in [-1, 1]) and the owner."""

    X: np.ndarray
    y: np.ndarray | None
    owners: np.ndarray | None


class Schema:
    """What everybody knows of a table, stated and never read off its rows.

    As a scikit-learn transformer it turns a table into rows of numbers, each of length 1: numbers from their range to
    [-1, 1], a category to one column per level less their mean, a column of ones (the bias), and then each row divided
    by its own length. Every row is encoded by itself: nothing is learnt, so nothing is charged, and no sensitivity
    rests on the ranges being right. What lies outside is clipped, an unknown level becomes zeros; neither is counted.

    Parameters
    ----------
    columns
        {name: column}, for names that are no Python words; others can be given as keywords.
    label
        `Label(column, classes)` or `Label(column, range=(low, high))`.
    owner
        The column that names the owner of each row.
    drop
        Columns that are left out, such as an id.
    missing_values
        Texts that stand for a missing value in every column, beside an empty field and NaN.
    parties
        Where columns are split: {party: the columns that it has}, each column once. The first party has the label too,
        and the bias. Each encodes its own part of a row (`part`) and scales it to a length of at most 1, without
        knowing anything of the others'.
    bias
        Whether rows get a column of ones, for the intercept. Without it a row of length below 1 stays as it is.

    Examples
    --------
    >>> import sottovoce as sv
    >>> schema = sv.Schema(
    ...     age=sv.Number(0, 100),
    ...     smoker=sv.Category("no", "yes", missing=True),
    ...     label=sv.Label("ill", ["no", "yes"]),
    ...     drop=["id"],
    ... )
    >>> rows = [{"id": 7, "age": 50, "smoker": "yes", "ill": "no"}, {"id": 8, "age": 130, "smoker": None, "ill": "yes"}]
    >>> schema.transform(rows).round(3)
    array([[ 0.   , -0.258,  0.516, -0.258,  0.775],
           [ 0.612, -0.204, -0.204,  0.408,  0.612]])
    >>> schema.get_feature_names_out().tolist()
    ['age', 'smoker=no', 'smoker=yes', 'smoker missing', '(bias)']
    >>> sv.Schema.from_toml(schema.to_toml()) == schema
    True
    """

    row_bound = 1.0  # no encoded row is longer, whatever the table holds

    def __init__(
        self,
        columns: Mapping[str, Column] | None = None,
        /,
        *,
        label: Label | None = None,
        owner: str = "",
        drop: Iterable[str] = (),
        missing_values: Iterable[object] = (),
        parties: Mapping[str, Iterable[str]] | None = None,
        bias: bool = True,
        **more: Column,
    ) -> None:
        columns = {} if columns is None else columns
        check.require(isinstance(columns, Mapping), "Schema", f"columns must be a dict, got {check.shown(columns)}")
        twice = [name for name in columns if name in more]
        check.require(not twice, "Schema", f"column {twice[0] if twice else ''!r} is given twice")
        self.columns: dict[str, Column] = {**columns, **more}
        self.label, self.owner = label, owner
        dropped = _listed("drop", drop)
        named = all(isinstance(name, str) and name for name in dropped)
        check.require(named, "Schema", "drop must be a list of column names")
        self.drop = tuple(dict.fromkeys(map(str, dropped)))
        self.missing_values = tuple(dict.fromkeys(map(canonical, _listed("missing_values", missing_values))))
        self.parties, self.bias = as_parties(parties or {}, self.columns, owner), bias
        self._output = "default"
        self._check()
        self._widths = [len(column.feature_names(name)) for name, column in self.columns.items()]

    def _check(self) -> None:
        check.require(len(self.columns) > 0, "Schema", "needs at least one column")
        for name, column in self.columns.items():
            named = isinstance(name, str) and bool(name.strip()) and name == name.strip()
            rule = f"a column's name must be text without spaces around it, got {check.shown(name)}"
            check.require(named, "Schema", rule)
            check.of_kind("Schema", f"column {name!r}", column, Column, "Number(0, 100) or Category('no', 'yes')")
        if self.label is not None:
            check.of_kind("Schema", "label", self.label, Label, "Label('ill', ['no', 'yes'])")
        check.of_kind("Schema", "owner", self.owner, str, "'hospital', the name of a column")
        check.of_kind("Schema", "bias", self.bias, bool, "True")
        used = [source for name, column in self.columns.items() for source in column.sources(name)]
        used += [*self.drop, *([self.owner] if self.owner else []), *([self.label.column] if self.label else [])]
        twice = sorted({name for name in used if used.count(name) > 1}) if len(set(used)) < len(used) else []
        rule = f"a column can be one of feature, label, owner or dropped, and {', '.join(map(repr, twice))} is several"
        check.require(not twice, "Schema", rule)
        for name, column in self.columns.items():
            clash = sorted(set(getattr(column, "levels", ())) & (set(self.missing_values) | ALWAYS_MISSING))
            check.require(not clash, "Schema", f"column {name!r}: {clash} cannot be both a level and a missing value")
        features = self.get_feature_names_out().tolist()
        rule = "names of columns and levels must not run together"
        check.require(len(set(features)) == len(features), "Schema", rule)

    # ------------------------------------------------------------------------------------------------------- encoding

    @property
    def width(self) -> int:
        """How many numbers an encoded row has, the bias included."""
        return sum(self._widths) + self.bias

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of the user's table that are encoded, in order."""
        return tuple(source for name, column in self.columns.items() for source in column.sources(name))

    def encode(self, data: object, *, owners: bool = True, labels: bool = True) -> Encoded:
        """A table as numbers: rows, labels and owners (None where the schema names none).

        `owners`, `labels`: whether they are read; if not, their columns may be left out.
        """
        asked_owner, label = self.owner if owners else "", self.label if labels else None
        table = self._fitting(data, [*([asked_owner] if asked_owner else []), *([label.column] if label else [])])
        names = y = None
        if asked_owner:
            names = np.array([canonical(name) for name in table.column(asked_owner).to_pylist()])
            named = not {"None", *self.missing_values, *ALWAYS_MISSING}.intersection(names.tolist())
            check.require(named, table.who, f"column {asked_owner!r}: must name an owner in every row")
        if label is not None:
            y = self.code_labels(table.column(label.column), f"{table.who}, column {label.column!r}")
        return Encoded(self._rows(table), y, names)

    def code_labels(self, y: object, who: str = "y") -> np.ndarray:
        """The labels of rows, given as a column: the number of each class, 0, 1, ...; or a number in [-1, 1]."""
        label = check.given(self.label, who, "the schema says nothing about the label")
        return label.read(who, to_arrow(y), frozenset(self.missing_values) | ALWAYS_MISSING)

    def transform(self, X: object) -> Any:
        """The rows as numbers, (rows, width), each of length 1. Label, owner and dropped columns may be left out."""
        encoded = self._rows(self._fitting(X, []))
        if self._output == "default":
            return encoded
        from importlib import import_module

        frame = import_module(self._output).DataFrame
        names = self.get_feature_names_out().tolist()
        if self._output == "pandas":
            return frame(encoded, columns=names, index=getattr(X, "index", None))
        return frame(encoded, schema=names)

    def _fitting(self, data: object, needed: list[str]) -> Table:
        """The table, if it has the columns that the schema expects: the features and those `needed`."""
        table = read_table("Schema", data, self.features)
        for name in [*self.features, *needed]:
            must_be_there(table.who, name, table.names)
        known = {*self.features, self.owner, *self.drop, *([self.label.column] if self.label else [])}
        others = [place for place, name in enumerate(table.names, start=1) if name not in known]
        if others:
            listed = ", ".join(map(str, others[:5])) + (", ..." if len(others) > 5 else "")
            rule = f"has {len(others)} columns that the schema does not name (number {listed} of {len(table.names)})"
            check.require(False, table.who, rule, hint="State what they hold, or name them in drop")
        return table

    def _rows(self, table: Table) -> np.ndarray:
        entries = []
        for name, column in self.columns.items():
            marks = frozenset((*self.missing_values, *column.marks())) | ALWAYS_MISSING
            arrays = [table.column(source) for source in column.sources(name)]
            entries.append(column.read(f"{table.who}, column {name!r}", arrays, marks))
        encoded = np.empty((table.rows, self.width))
        ends = list(itertools.accumulate(self._widths, initial=0))
        for start in range(0, table.rows, _CHUNK):
            part = slice(start, start + _CHUNK)
            block = np.ones_like(encoded[part])  # the last column stays 1, if it is the bias
            for column, values, (a, b) in zip(self.columns.values(), entries, itertools.pairwise(ends), strict=True):
                block[:, a:b] = column.encode(values[part])
            # With a bias each row is at least 1 long, so it is divided by its length.
            encoded[part] = clip_rows(block, self.row_bound)
        return encoded

    # ------------------------------------------------------------------------------------------------- split columns

    def part(self, party: str) -> "Schema":
        """What one party has of the schema: its own columns; the first party also the label and the bias."""
        names = self.parties[check.one_of("Schema", "party", party, self.parties)]
        first = party == next(iter(self.parties))
        columns = {name: self.columns[name] for name in names}
        label = self.label if first else None
        return Schema(columns, label=label, drop=self.drop, missing_values=self.missing_values, bias=first)

    def encode_parts(self, data: object, labels: bool = True) -> tuple[list[np.ndarray], np.ndarray | None]:
        """A table that holds the columns of all parties: each party's part of the rows, and the labels."""
        check.require(bool(self.parties), "Schema", "does not say which party has which columns", hint="Give parties")
        label = self.label if labels else None
        table = self._fitting(data, [label.column] if label else [])
        y = None if label is None else self.code_labels(table.column(label.column), table.who)
        return [self.part(party)._rows(table) for party in self.parties], y

    # -------------------------------------------------------------------------------------------------- as written text

    def to_tables(self) -> Json:
        """The schema as plain values: the contents of [schema] in a run file."""
        tables: Json = {
            "owner": self.owner,
            "drop": list(self.drop),
            "missing_values": list(self.missing_values),
            "bias": None if self.bias else False,
            "parties": {party: list(columns) for party, columns in self.parties.items()},
            "label": self.label.to_table() if self.label else None,
            "columns": {name: column.to_table() for name, column in self.columns.items()},
        }
        return {name: table for name, table in tables.items() if table not in ("", [], {}, None)}

    def to_toml(self) -> str:
        """The schema as TOML: the same text in a file of its own, in a run file and in a node's file."""
        return to_toml({"schema": self.to_tables()})

    @classmethod
    def from_tables(cls, tables: Json, where: str = "[schema]") -> "Schema":
        """The schema that the contents of [schema] describe; `where` is named in errors."""
        columns, options = toml.parts(tables, where)
        return cls(columns, **options)

    @classmethod
    def from_toml(cls, source: str | Path) -> "Schema":
        """Read a TOML file, or the text that `to_toml` gives."""
        tables, where = toml.read(source)
        return cls.from_tables(tables, where)

    @classmethod
    def from_frictionless(cls, source: object, *, label: str, owner: str = "", drop: Iterable[str] = ()) -> "Schema":
        """Read a Frictionless Table Schema: a JSON file, or its contents as a dict. See `schema.frictionless`."""
        from sottovoce.problems.schema import frictionless

        columns, options = frictionless.parts(source, label, owner, tuple(drop))
        return cls(columns, **options)

    @classmethod
    def bundled(cls, name: str) -> "Schema":
        """The schema of a public data set, written from its documentation: "adult", "heart" or "a9a"."""
        check.one_of("Schema", "bundled schema", name, BUNDLED)
        return cls.from_toml(packaged_text("problems.schema.bundled", f"{name}.toml"))

    def digest(self) -> str:
        """SHA-256 of what the schema says: equal for schemas that encode every table alike, and for no others."""
        plain = json.dumps([_ENCODING, self.to_tables()], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        label = "" if self.label is None else f", label {self.label.column!r}"
        return f"Schema of {len(self.columns)} columns{label}: {self.width} numbers a row"

    # ------------------------------------------------------------------------------------ as a scikit-learn transformer

    def fit(self, X: object = None, y: object = None) -> "Schema":
        """Nothing is learnt."""
        return self

    def fit_transform(self, X: object, y: object = None) -> Any:
        """As `transform`."""
        return self.transform(X)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """A name for each number of an encoded row."""
        names = [feature for name, column in self.columns.items() for feature in column.feature_names(name)]
        return np.array([*names, *([BIAS] if self.bias else [])], dtype=object)

    def set_output(self, *, transform: str | None = None) -> "Schema":
        """What `transform` returns: "default" (an array), "pandas" or "polars"."""
        if transform is not None:
            self._output = check.one_of("Schema", "output", transform, ("default", "pandas", "polars"))
        return self

    def get_params(self, deep: bool = True) -> Json:
        """None: a schema is stated as a whole, and there is nothing to search over."""
        return {}

    def set_params(self, **params: object) -> "Schema":
        """Nothing can be set."""
        check.require(not params, "Schema", "has no parameters to set. Make another schema")
        return self

    def __sklearn_clone__(self) -> "Schema":
        return copy.copy(self)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        inputs = InputTags(string=True, categorical=True, allow_nan=True)
        return Tags(None, TargetTags(required=False), TransformerTags(), input_tags=inputs, requires_fit=False)


def as_parties(
    parties: Mapping[str, Iterable[str]], columns: Mapping[str, Column], owner: str
) -> dict[str, tuple[str, ...]]:
    """{party: its columns}, checked: every column belongs to one party."""
    check.require(isinstance(parties, Mapping), "Schema", "parties must be {party: its columns}")
    if not parties:
        return {}
    check.require(not owner, "Schema", "owner names who has a row, parties who has a column", hint="Give one of them")
    held: dict[str, str] = {}
    for party, names in parties.items():
        named = isinstance(party, str) and party.isprintable() and party == party.strip() != ""
        check.require(named, "Schema", f"a party's name must be one line of text, got {check.shown(party)}")
        listed = isinstance(names, list | tuple) and len(names) > 0
        check.require(listed, "Schema", f"party {party!r} must have a list of columns")
        for name in names:
            check.one_of("Schema", f"column of party {party!r}", name, columns)
            check.require(name not in held, "Schema", f"column {name!r} is held twice, by {held.get(name)!r} too")
            held[name] = party
    nobody = [name for name in columns if name not in held]
    check.require(not nobody, "Schema", f"column {nobody[0] if nobody else ''!r} belongs to no party")
    return {party: tuple(names) for party, names in parties.items()}


def _listed(name: str, values: Iterable[object]) -> list[object]:
    if isinstance(values, list | tuple) and all(isinstance(each, str | int | float) for each in values):
        return list(values)
    raise check.InvalidInput(f"Schema: {name} must be a list of texts, got {check.shown(values)}")
