"""[data]: where the rows come from and who holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.clipping import shorten_rows
from sottovoce.core.plain import Json
from sottovoce.experiment.csv_file import check_classes, coded, label_text, read_csv, with_label_texts
from sottovoce.experiment.tables import choice, field_names, fit_value, from_table, parameters
from sottovoce.problems import data as datasets
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Loss
from sottovoce.problems.metrics import class_labels
from sottovoce.problems.partition import NO_OPTIONS, PARTITIONS, make
from sottovoce.problems.schema import Label, Schema
from sottovoce.problems.vertical import Matrix, VerticalFederation, cut

OWNER = "owner"  # the partition that follows the rows' own owners
TestRows = np.ndarray | list[Matrix]  # where columns are split, a part for each party


@dataclass(frozen=True)
class Source:
    """[data]: where the rows come from and who holds them.

    A CSV file has a header; all columns but `label` and `owner` are features and must be numbers. For a
    classification loss the distinct labels are numbered in increasing order (or in the order of `labels`): -1 and +1
    for two classes, 0, 1, ... for softmax; the saved config names that order, and says with `labels_found` that it was
    not declared but read off the rows, which no guarantee covers. `ranges` brings each feature of a CSV
    file from its stated range to [-1, 1], as `PublicScaler` does: state what is known without looking. With `shorten`,
    rows longer than `row_bound` are scaled down to it, each by itself, which makes the bound true and costs no privacy.
    With `split` columns are shared out instead of rows: the first split[0] of them to one party, the next split[1] to
    another, ... (`owner` is then a column that is left out).
    """

    name: str = ""
    csv: str = ""
    label: str = ""
    owner: str = ""
    labels: tuple[str, ...] = ()
    labels_found: bool = False
    clients: check.Whole | None = None
    partition: str = ""
    test: int | float | None = None
    seed: check.WholeOrZero = 0
    row_bound: check.Positive | None = None
    shorten: bool = False
    split: tuple[int, ...] = ()
    ranges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.require(bool(self.name) != bool(self.csv), "data", "give either name = a data set or csv = a file")
        if self.csv:
            check.require(bool(self.label), "data", "csv needs label = the column that holds the labels")
            check.require(self.label != self.owner, "data", "label and owner must be different columns", self.label)
        else:
            for key in ("label", "owner", "labels", "ranges"):
                check.require(not getattr(self, key), "data", f"{key} goes with csv = a file, not with name")
        check.fields(self, "data")
        if self.owner and not self.partition and not self.split:
            rule = "clients follows from the owners; leave it out, or name a partition that shares the rows out again"
            check.require(self.clients is None, "data", rule, self.clients)
        if self.partition == OWNER:
            check.require(self.clients is None, "data", "clients follows from the owners; leave it out", self.clients)
        check.require(not self.shorten or self.row_bound is not None, "data", "shorten needs row_bound = a length")
        if self.split:
            check.whole("data", **{f"split[{m}]": width for m, width in enumerate(self.split)})
            for key in ("clients", "partition", "row_bound", "shorten"):
                check.require(not getattr(self, key), "data", f"split shares out columns: leave {key}, for rows, out")
        check.require(len(set(self.labels)) == len(self.labels), "data", "labels must be distinct", list(self.labels))

    @property
    def states_sizes(self) -> bool:
        """Whether something is known about the sizes of columns without looking at them."""
        return bool(self.name or self.ranges or self.split or self.row_bound is not None)


@dataclass(frozen=True, eq=False)
class Data:
    """Rows, shared out; test rows; and which label stands for -1, +1 (or 0, 1, ...) when they were mapped.

    Test rows that `[data] test` sets aside from a CSV file are the owners' own; those of a named data set are public.
    `schema` is the one that encoded the rows: the run's own, or the one that comes with a named data set.
    """

    federation: Federation | VerticalFederation
    test: tuple[TestRows, np.ndarray] | None
    labels: tuple[str, ...] = ()
    schema: Schema | None = None


def read_schema(tables: Json, file: str, folder: Path) -> Schema | None:
    """[schema]: the schema itself, or file = a TOML file that holds it. Paths start from `folder`."""
    table = tables.get("schema")
    if table is None:
        return None
    if table.keys() != {"file"}:
        return Schema.from_tables(table, f"{file}, [schema]")
    path = fit_value(f"{file}, [schema]", "file", table["file"], str)
    return Schema.from_toml(folder / Path(path).expanduser())


def read_source(table: Json, where: str, folder: Path, schema: Schema | None = None) -> tuple[Source, Json, Json]:
    """[data]: its own keys, the loader's options and the partition's."""
    if table.get("source") == "arrays":
        raise check.InvalidInput(f"{where}: this run was trained on arrays given in Python; train it again from there")
    loader: Json = {}
    if "name" in table:
        name = choice(datasets.LOADERS, "data set", table, where)
        loader = parameters(datasets.LOADERS[name], leave_out=("dense",))  # a run needs dense rows
    sharing: Json = {}
    if "partition" in table:
        kind = choice([*PARTITIONS, OWNER], "partition", table, where, "partition")
        sharing = parameters(PARTITIONS[kind], leave_out=NO_OPTIONS) if kind != OWNER else {}
    names = field_names(Source)
    check.all_of(where, "key", table, [*names, *loader, *sharing])
    split = [
        {key: fit_value(where, key, table[key], hint) for key, hint in options.items() if key in table}
        for options in (loader, sharing)
    ]
    data = {key: value for key, value in table.items() if key in names}
    data = with_whole_path(with_label_texts(data), "csv", folder)
    if schema is not None and "name" not in data:
        data |= _stated_by(schema, data, where)
    return from_table(Source, data, where), split[0], split[1]


def with_whole_path(table: Json, key: str, folder: Path) -> Json:
    """A table of a file in which a path, if it names one, starts from `folder`."""
    path = table.get(key)
    whole = str((folder / Path(path).expanduser()).resolve()) if isinstance(path, str) and path else None
    return table | ({} if whole is None else {key: whole})


def must_agree(table: Json, stated: Json, where: str) -> None:
    """Refuse a table that says something else than its schema states."""
    for key, value in stated.items():
        same = key not in table or table[key] == value
        check.require(same, where, f"{key} is stated by the [schema]; leave it out here", table.get(key))


def _stated_by(schema: Schema, data: Json, where: str) -> Json:
    """What a schema says of [data]. Nothing else may be said there: a run that was saved says the same again."""
    check.require("csv" in data, where, "a [schema] goes with csv = a file")
    label = check.given(schema.label, where, "the [schema] must say which column is the label", "[schema.label]")
    stated: Json = {"label": label.column, "owner": schema.owner, "labels": list(class_texts(label))}
    for key in ("ranges", "row_bound", "shorten", "split"):
        check.require(not data.get(key), where, f"{key} does not go with a [schema], which prepares the rows")
    must_agree(data, stated, where)
    return stated


def class_texts(label: Label) -> tuple[str, ...]:
    """The classes of a label in order, as text; none for a number."""
    return tuple(map(label_text, label.classes))


def read_rows(
    source: Source, loss: Loss, loader_options: Json, partition_options: Json, schema: Schema | None = None
) -> Data:
    """Read the rows and share them out."""
    labels = source.labels  # those that a schema states are there too
    if schema is not None and source.csv and schema.parties:
        return _split_rows(source, schema, loss)
    if schema is not None and source.csv:
        X, codes, groups = schema.encode(Path(source.csv))
        y, test, row_bound = coded_labels(schema, codes, loss), None, schema.row_bound
    elif source.csv:
        path = Path(source.csv)
        X, texts, groups = read_csv(path, source.label, source.owner, source.ranges)
        y, labels = coded(texts, source.labels, loss, f"{path.name}, column {source.label!r}")
        test, row_bound = None, source.row_bound
        if row_bound is None and source.ranges and not source.split:
            row_bound = float(np.sqrt(X.shape[1]))  # every entry is within [-1, 1]
    else:
        loaded = _loaded(source, loss, loader_options, schema)
        X, y, groups, test, schema = loaded.X, loaded.y, loaded.groups, loaded.test, loaded.schema
        row_bound = loaded.row_bound if source.row_bound is None else source.row_bound
    if source.test is not None:
        train_rows, test_rows = datasets.split_rows(len(y), source.test, source.seed)
        if groups is not None and _by_owner(source):
            _everyone_keeps_rows(groups, train_rows)
        test = X[test_rows], y[test_rows]
        X, y, groups = X[train_rows], y[train_rows], None if groups is None else groups[train_rows]
    if source.shorten and row_bound is not None:
        X, test = shorten_rows(X, row_bound), None if test is None else (shorten_rows(test[0], row_bound), test[1])
    if source.split:
        parties = VerticalFederation.from_columns(X, y, source.split)
        parties = replace(parties, row_bound=row_bound)  # no part of a row is longer than all of it
        return Data(parties, None if test is None else (cut(test[0], source.split), test[1]), labels)
    groups = _groups(source, partition_options, y, groups)
    return Data(_bounded(Federation.from_arrays(X, y, groups), row_bound, schema is not None), test, labels, schema)


def _bounded(federation: Federation, row_bound: float | None, bias: bool) -> Federation:
    """The federation with its promise that no row is longer than this."""
    if row_bound is None:
        return federation
    try:
        return replace(federation, row_bound=row_bound, bias=bias)
    except check.InvalidInput as error:
        how = f"To have them scaled down: [data] row_bound = {row_bound:g}, shorten = true"
        raise check.InvalidInput(f"{error}. {how}") from None


def _split_rows(source: Source, schema: Schema, loss: Loss) -> Data:
    """The rows of a table whose columns are split between the parties of a schema."""
    for key in ("clients", "partition"):
        check.require(not getattr(source, key), "data", f"the [schema] has parties: leave {key}, for rows, out")
    parts, codes = schema.encode_parts(Path(source.csv))
    y, test = coded_labels(schema, codes, loss), None
    if source.test is not None:
        train_rows, test_rows = datasets.split_rows(len(y), source.test, source.seed)
        test = list[Matrix](part[test_rows] for part in parts), y[test_rows]
        parts, y = [part[train_rows] for part in parts], y[train_rows]
    return Data(VerticalFederation.of_schema(schema, parts, y), test, source.labels, schema)


def _loaded(source: Source, loss: Loss, options: Json, schema: Schema | None) -> datasets.Dataset:
    """A named data set. The config of a run that was saved names its schema: it must be the same one again."""
    loaded = datasets.load(source.name, **options)
    rule = "has a schema of its own, or another preparation was asked for, and the [schema] is neither"
    hint = "Leave [schema] out; for a schema of yours give csv = a file"
    check.require(schema is None or schema == loaded.schema, source.name, rule, hint=hint)
    if loaded.schema is None:
        return loaded
    hint = "Give encoding = another preparation"
    check.require(not source.split, source.name, "split counts columns, and a schema encoded the rows", hint=hint)
    y, test = coded_labels(loaded.schema, (loaded.y + 1.0) / 2.0, loss), loaded.test
    test = None if test is None else (test[0], coded_labels(loaded.schema, (test[1] + 1.0) / 2.0, loss))
    return replace(loaded, y=y, test=test)


def coded_labels(schema: Schema, codes: np.ndarray | None, loss: Loss) -> np.ndarray:
    """The labels of a table as the loss wants them, from what its schema made of them.

    Numbers of classes, 0, 1, ..., become -1 and +1 if the loss is for two classes; a label in a range stays as it is.
    """
    label, y = cast(Label, schema.label), cast(np.ndarray, codes)
    suits = loss.classification == (label.range is None)
    kinds = "classes" if loss.classification else "range = [low, high]"
    check.require(suits, "schema.label", f"the {loss.name} loss needs a label with {kinds}")
    if not loss.classification:
        return y
    check_classes("schema.label", len(label.classes), loss)
    return class_labels(loss, y)


def _by_owner(source: Source) -> bool:
    return source.partition == OWNER or (not source.partition and source.clients is None)


def _everyone_keeps_rows(owners: np.ndarray, train_rows: np.ndarray) -> None:
    """An owner whose rows are all in the test part would not be a client, and nobody would be told."""
    without = np.setdiff1d(owners, owners[train_rows]).tolist()
    others = f" (and {len(without) - 1} other owners)" if len(without) > 1 else ""
    rule = f"test takes all rows of owner {without[0] if without else ''!r}{others}, who would have none to train on"
    check.require(not without, "data", rule, hint="Give a smaller test, or leave the rows of that owner out")


def _groups(source: Source, partition_options: Json, y: np.ndarray, owners: np.ndarray | None) -> np.ndarray:
    if _by_owner(source):
        key = "owner = the column that names them" if source.csv else "clients = how many share the rows"
        who = source.name or Path(source.csv).name
        return check.given(owners, who, "rows have no owner of their own", hint=f"Give [data] {key}")
    kind = source.partition or "iid"
    clients = check.given(source.clients, "data", f"partition {kind!r} needs clients = how many share the rows")
    return make(kind, y, clients=clients, seed=source.seed, **partition_options)
