"""A client's own rows: the [node] and [data] of its file, read once and checked before anybody asks."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.clipping import shorten_rows
from sottovoce.core.files import number_or_nan
from sottovoce.core.plain import Json
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Limits, Refused
from sottovoce.experiment import whole_files
from sottovoce.experiment.csv_file import class_codes, label_text, read_csv, with_label_texts
from sottovoce.experiment.source import class_texts, must_agree, read_schema
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import LOSSES, Loss
from sottovoce.problems.schema import Schema
from sottovoce.problems.schema.frames import csv_rows, must_be_there
from sottovoce.problems.vertical import hashed


class OwnRows(NamedTuple):
    """What was read."""

    X: np.ndarray
    labels: list[str]  # as text
    declared: tuple[str, ...]  # the labels that its owner says there can be, in order
    order: str  # names the order of the samples, where it follows from ids
    fingerprint: str
    ids: tuple[str, ...] = ()  # of its samples, where there are any, in the order of the file


@dataclass(frozen=True)
class Identity:
    """[node]."""

    name: str
    folder: str = "node"

    def __post_init__(self) -> None:
        good = 0 < len(self.name) <= 200 and self.name.isprintable()
        check.require(good, "node", "name must be one line of text", self.name)


@dataclass(frozen=True)
class Own:
    """[data]: the client's own rows. `labels` says which label is -1 and which +1 (or 0, 1, ...), alike everywhere.

    Where columns are split, its owner says how its samples stand in the order of the others': by `id`, a column (or an
    array) whose salted hashes put them in order, the same at every party with the same ids and `salt`; or by
    `same_order`, its word that row i is the same sample everywhere. Only the label holder then has labels.
    """

    csv: str = ""
    npz: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()
    row_bound: float | None = None
    shorten: bool = False
    id: str = ""
    same_order: bool = False
    salt: str = ""

    def __post_init__(self) -> None:
        check.require(bool(self.csv) != bool(self.npz), "data", "give either csv = a file or npz = a file")
        labelled = self.columns or bool(self.label)
        check.require(bool(self.csv) or not self.label, "data", "label = a column goes with csv")
        check.require(not self.csv or labelled, "data", "csv needs label = a column, unless columns are split")
        check.require(not (self.id and self.same_order), "data", "give either id = a column or same_order = true")
        check.require(bool(self.id) or not self.salt, "data", "salt goes with id = a column")
        check.require(not self.shorten or self.row_bound is not None, "data", "shorten needs row_bound = a length")

    @property
    def columns(self) -> bool:
        """Whether these are columns of samples that others have too."""
        return bool(self.id) or self.same_order

    def in_order(self, ids: list[str]) -> tuple[list[int], str]:
        """The rows in the order of their ids' salted hashes, and a digest of all of these, which names the order."""
        row_of = hashed("data", ids, len(ids), self.salt)
        order = sorted(row_of)
        return [row_of[digest] for digest in order], hashlib.sha256(b"".join(order)).hexdigest()

    def rows(self, folder: Path, name: str, limits: Limits, schema: Schema | None = None) -> OwnRows:
        """The rows, checked once against what their owner says about them."""
        if schema is None:
            X, texts, ids = self._read(folder)
            if self.shorten and self.row_bound is not None:
                X = shorten_rows(X, self.row_bound)
            print_ = fingerprint(X, np.array(texts))  # whatever order they are used in, and however labels are spelt
            texts = [label_text(text) for text in texts]
            Federation(X, np.zeros(len(X)), np.array([0, len(X)]), (name,), self.row_bound)  # checks the promise
        else:
            X, texts, ids, print_ = self._encoded(folder, schema)
        self._check_labels(texts, limits)
        if ids is None:
            return OwnRows(X, texts, self.labels, "", print_)
        rows, order = self.in_order(ids)
        return OwnRows(X[rows], [texts[row] for row in rows if texts], self.labels, order, print_, tuple(ids))

    def _encoded(self, folder: Path, schema: Schema) -> tuple[np.ndarray, list[str], list[str] | None, str]:
        """The rows as a schema encodes them: features, labels as text, ids where there are, and a fingerprint.

        The fingerprint is that of the table, whatever schema is used for it.
        """
        path = folder / Path(self.csv).expanduser()
        X, y, _ = schema.encode(path, owners=False)
        texts: list[str] = []
        if schema.label is not None and y is not None:  # else it is a party without labels
            classes = class_texts(schema.label)
            texts = [classes[code] for code in y.tolist()] if classes else [repr(value) for value in y.tolist()]
        header, rows, _ = csv_rows(path)
        table = "\n".join("\x1f".join(row) for row in [header, *rows])
        print_ = fingerprint(np.frombuffer(table.encode(), dtype=np.uint8))
        return X, texts, self._ids(path) if self.id else None, print_

    def new_rows(self, folder: Path, schema: Schema | None) -> tuple[np.ndarray, list[str]]:
        """Rows that nobody trains on, in the order of the file, and their ids as text."""
        if schema is None:
            X, _, ids = self._read(folder)
            return X, [] if ids is None else list(map(str, ids))
        path = folder / Path(self.csv).expanduser()
        return schema.encode(path, owners=False, labels=False).X, self._ids(path)

    def _ids(self, path: Path) -> list[str]:
        """The ids in a csv file as text, in its order."""
        header, rows, _ = csv_rows(path)
        must_be_there(path.name, self.id, header)
        return [row[header.index(self.id)] for row in rows]

    def _check_labels(self, texts: list[str], limits: Limits) -> None:
        """Which classes there are is declared, never read off the rows: else one record could renumber all others."""
        kinds = {LOSSES[name].classification for name in limits.losses} if texts else set()
        if True in kinds:
            hint = 'For instance labels = ["no", "yes"]: the first is -1 (or 0), the second +1 (or 1), ...'
            check.require(len(self.labels) > 1, "data", "needs labels = the classes there can be, in order", hint=hint)
            unknown = [row for row, text in enumerate(texts, start=1) if text not in self.labels]
            fix = "Name it in labels too, or drop these rows"
            check.every_row("data", "labels must name every class", unknown, "has another", fix)
        if False in kinds:
            numbers = all(math.isfinite(number_or_nan(text)) for text in texts)
            rule = "labels must be finite numbers, since the limits allow a loss for numbers"
            check.require(numbers, "data", rule, hint="Leave that loss out of the limits")

    def coded(self, texts: list[str], loss: Loss) -> np.ndarray:
        """Labels as the loss wants them. What is refused follows from the declared classes alone."""
        if not texts or not loss.classification:  # a party without labels has none to code
            return np.array(texts, dtype=np.float64)
        declared, needed = len(self.labels), 2 if loss.outputs == 1 else loss.outputs
        if declared != needed:
            raise Refused(wire.BAD_ASK, f"the loss is for {needed} classes, and this client declares {declared}")
        return class_codes(texts, self.labels, loss)

    def _read(self, folder: Path) -> tuple[np.ndarray, list[str], list[str] | None]:
        """Features, labels as text (what a loss makes of them comes later), and ids where there are."""
        if self.csv:
            X, texts, ids = read_csv(folder / Path(self.csv).expanduser(), self.label, self.id)
            return X, texts, None if ids is None else ids.tolist()
        path = folder / Path(self.npz).expanduser()
        arrays = whole_files.read_arrays(path)
        needed = {"X"} | (set() if self.columns else {"y"}) | ({self.id} if self.id else set())
        there = ", ".join(sorted(arrays))
        check.require(needed <= arrays.keys(), str(path), f"must hold arrays {sorted(needed)}", there)
        stored = np.float32 if arrays["X"].dtype == np.float32 else np.float64
        X = check.finite_array(str(path), "X", arrays["X"], ndim=2, dtype=stored)
        for name in ("y", self.id):
            if name in arrays:
                one = arrays[name].shape == (len(X),)
                check.require(one, str(path), f"{name} must have one entry per row of X ({len(X)})", arrays[name].shape)
        texts = [label_text(label) for label in arrays["y"].tolist()] if "y" in arrays else []
        return X, texts, [label_text(each) for each in arrays[self.id].tolist()] if self.id else None


def _stated_by(schema: Schema, data: Json, where: str, split: bool) -> Json:
    """[data] of a node whose rows are prepared by a schema, with what that says of them; `split`: by its part of it."""
    for key in ("npz", *(() if split else ("id", "same_order", "salt")), "row_bound", "shorten"):
        check.require(not data.get(key), where, f"{key} does not go with a [schema], which prepares the rows of a csv")
    check.require(schema.label is not None or split, where, "the [schema] must say which column is the label")
    stated: Json = {"label": "", "labels": []}
    if schema.label is not None:
        stated = {"label": schema.label.column, "labels": list(class_texts(schema.label))}
    must_agree(data, stated, where)
    return data | stated | {"row_bound": schema.row_bound}


def with_schema(tables: Json, path: Path) -> tuple[Schema | None, str, Json]:
    """The schema by which this client prepares its rows, if it does, and the digest of the one they are prepared by.

    If that names parties, columns are split: the client prepares its own ones, by its part of the schema. The third is
    [data], with what the schema says of it.
    """
    data = with_label_texts(tables["data"])
    table = tables.get("schema", {})
    if not table or table.keys() == {"digest"}:
        digest = table.get("digest", "")
        rule = "digest must be the 64 hex digits that Schema.digest() gives"
        check.require(digest == "" or wire.is_hex(digest), f"{path.name}, [schema]", rule)
        return None, digest, data
    schema = cast(Schema, read_schema(tables, path.name, path.parent))
    split = bool(schema.parties)
    own = schema.part(tables["node"].get("name", "")) if split else schema
    return own, schema.digest(), _stated_by(own, data, f"{path.name}, [data]", split)
