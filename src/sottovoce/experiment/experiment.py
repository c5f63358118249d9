"""TOML -> dataclasses: a run as a file.

    [data]           name = "adult" (and the loader's options), or csv = "rows.csv" with label = and owner = a column;
                     clients, partition (and its options), test = rows or a fraction, seed, row_bound, shorten,
                     ranges = {column = [low, high], ...} for csv;
                     or split = [66, 57], the columns of each party
    [objective]      loss (and its options), penalty (and its options), scale
    [algorithm]      name, and the algorithm's fields
    [privacy]        mode = "proven" | "published" | "none", and its fields
    [participation]  name, and its fields; left out: everyone
    [run]            rounds, seed, engine, record_every, runs, name, ledgers

A deployment has a table [clients] in place of [data]: see `remote.py`.

A name is looked up in its registry and the dataclass is built from its own fields, so a new algorithm, loss or
penalty needs no line here. `load` reads and builds everything but the rows, which come with `Experiment.data()`.
"""

import inspect
import itertools
import re
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.core.check import InvalidInput, MissingData, NoGuarantee
from sottovoce.core.clipping import shorten_rows
from sottovoce.core.contract import Algorithm, VerticalAlgorithm
from sottovoce.core.participation import PARTICIPATION, Everyone, Participation, Schedule
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.csv_file import coded, label_text, read_csv
from sottovoce.experiment.local import Engine, Result, train
from sottovoce.experiment.to_tables import Tables, describe, plain_fields
from sottovoce.privacy.guarantee import LABELS_FOUND, TEST_SET_ASIDE
from sottovoce.privacy.modes import NoPrivacy, Privacy, Proven, ProvenColumns, Published
from sottovoce.problems import data as datasets
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.objective import Objective
from sottovoce.problems.partition import PARTITIONS, make
from sottovoce.problems.penalties import PENALTIES
from sottovoce.problems.vertical import VerticalFederation, cut

MODES: dict[str, type[Privacy]] = {mode.mode: mode for mode in (Proven, Published, NoPrivacy)}
VERTICAL_MODES: dict[str, type[Any]] = MODES | {ProvenColumns.mode: ProvenColumns}
OWNER = "owner"  # the partition that follows the rows' own owners
_TABLES = ("data", "clients", "objective", "algorithm", "privacy", "participation", "run")
_LARGEST_FILE = 16 * 2**20  # bytes of TOML; a recorded schedule of a long run is the only large thing in one
_NOT_DENSE = "dense"  # an option of some loaders; a run needs dense rows
Built = TypeVar("Built")


# ------------------------------------------------------------------------------------------------------ the dataclasses


@dataclass(frozen=True)
class Settings:
    """[run]. `runs` = 0 is one run without a runs axis; without `seed` one is drawn and kept nowhere, so that the run
    cannot be repeated; `ledgers` is a folder of ledger files, from where the command runs: see `train`."""

    rounds: int
    seed: int | None = None
    engine: Engine = "auto"
    record_every: int = 1
    runs: int = 0
    name: str = ""
    ledgers: str = ""

    def __post_init__(self) -> None:
        check.whole("run", rounds=self.rounds, record_every=self.record_every)
        check.whole("run", at_least=0, runs=self.runs)
        check.one_of("run", "engine", self.engine, get_args(Engine))
        if self.seed is not None:
            check.whole("run", at_least=0, seed=self.seed)
        usable = re.fullmatch(r"[\w.-]{0,100}", self.name) is not None and not self.name.startswith(".")
        check.require(usable, "run", "name must be letters, digits, '-', '_' and '.' (it names a folder)", self.name)


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
    clients: int | None = None
    partition: str = ""
    test: int | float | None = None
    seed: int = 0
    row_bound: float | None = None
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
        check.whole("data", at_least=0, seed=self.seed)
        if self.clients is not None:
            check.whole("data", clients=self.clients)
        if self.partition == OWNER:
            check.require(self.clients is None, "data", "clients follows from the owners; leave it out", self.clients)
        if self.row_bound is not None:
            check.positive("data", row_bound=self.row_bound)
        check.require(not self.shorten or self.row_bound is not None, "data", "shorten needs row_bound = a length")
        if self.split:
            check.whole("data", **{f"split[{m}]": width for m, width in enumerate(self.split)})
            for key in ("clients", "partition", "row_bound", "shorten"):
                check.require(not getattr(self, key), "data", f"split shares out columns: leave {key}, for rows, out")
        distinct = len(set(self.labels)) == len(self.labels)
        check.require(distinct, "data", "labels must be distinct", list(self.labels))


@dataclass(frozen=True, eq=False)
class Data:
    """Rows, shared out; test rows; and which label stands for -1, +1 (or 0, 1, ...) when they were mapped.

    Test rows that `[data] test` sets aside from a CSV file are the owners' own; those of a named data set are public.
    """

    federation: Any  # a Federation, or a VerticalFederation where columns are split
    test: tuple[Any, np.ndarray] | None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """What is asked for, whoever holds the rows: all that a deployed client is told."""

    objective: Objective
    algorithm: Algorithm[Any, Any, Any, Any]
    privacy: Privacy
    participation: Participation
    settings: Settings


@dataclass(frozen=True)
class Experiment:
    """One run, ready to start: everything but the rows is built and checked."""

    source: Source
    loader_options: dict[str, Any]
    partition_options: dict[str, Any]
    objective: Objective
    algorithm: Algorithm[Any, Any, Any, Any]
    privacy: Privacy
    participation: Participation
    settings: Settings
    file: str = "run"  # named in errors

    def data(self) -> Data:
        """The rows; read at the first call."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        with _said_by(f"{self.file}, [data]"):
            return _read(self)

    def with_algorithm(self, algorithm: Algorithm[Any, Any, Any, Any]) -> "Experiment":
        """The same run of another algorithm, on the same rows (not read again)."""
        other = replace(self, algorithm=algorithm)
        if "_data" in self.__dict__:
            other.__dict__["_data"] = self._data
        return other

    def described(self) -> Tables:
        """The tables of this run with every default written out: what is saved, and what `load` reads back."""
        source = replace(self.source, labels=self.data().labels, labels_found=self._labels_found())
        data = plain_fields(source) | self.loader_options | self.partition_options
        run = plain_fields(self.settings)
        described = describe(
            self.algorithm, self.data().federation, self.objective, self.privacy, self.participation, run["engine"]
        )
        return described | {"data": data, "run": run}

    def train(
        self,
        after_round: Callable[[Checkpoint], None] = lambda checkpoint: None,
        resume: Checkpoint | None = None,
    ) -> Result:
        """Train, from the start or from a checkpoint of this same run."""
        data, settings = self.data(), self.settings
        with _said_by(f"{self.file}, [participation]"):
            _fits(self.participation, data.federation.n, settings.rounds)
        with _said_by(self.file):
            result = train(
                self.algorithm,
                data.federation,
                self.objective,
                rounds=settings.rounds,
                privacy=self.privacy,
                participation=self.participation,
                seed=settings.seed,
                runs=settings.runs or None,
                test=data.test,
                engine=settings.engine,
                record_every=settings.record_every,
                ledgers=settings.ledgers or None,
                resume=resume,
                after_round=after_round,
            )
        not_covered = [LABELS_FOUND] if self._labels_found() else []
        not_covered += [TEST_SET_ASIDE] if self.source.csv and self.source.test is not None else []
        return replace(result, config=self.described(), guarantee=result.guarantee.leaving_out(*not_covered))

    def _labels_found(self) -> bool:
        """Whether the labels there can be were read off the rows: a look that nobody paid for."""
        return self.source.labels_found or (bool(self.data().labels) and not self.source.labels)


# ------------------------------------------------------------------------------------------------------ file -> objects


def load(path: str | Path, **run: Any) -> Experiment:
    """The run that a TOML file describes; `run` overrides keys of its [run] table."""
    path = Path(path)
    tables = read_tables(path)
    tables["run"] = {"name": folder_name(path.stem)} | tables.get("run", {}) | run
    return build(tables, path.name, path.parent)


def read_tables(path: Path, known: Collection[str] = _TABLES) -> Tables:
    """The tables of a TOML file, not interpreted yet."""
    if path.is_dir():
        raise InvalidInput(
            f"{path}: is a folder, not a TOML file. To go on with a run use: sottovoce run --resume {path}"
        )
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise MissingData(f"{path}: there is no such file") from None
    except OSError as error:
        raise MissingData(f"{path}: cannot be read ({error.strerror})") from None
    check.require(len(content) <= _LARGEST_FILE, str(path), f"must have at most {_LARGEST_FILE // 2**20} MiB")
    text = check.utf8(str(path), content, "TOML")
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{path}: must be TOML ({error})") from None
    for name, table in tables.items():
        check.one_of(path.name, "table", name, known)
        check.require(isinstance(table, dict), path.name, f"{name} must be a table, [{name}]", table)
    return tables


def build(tables: Tables, file: str, folder: Path = Path()) -> Experiment:
    """The run that `tables` describe. `file` is named in errors; paths in it start from `folder`."""
    check.require("data" in tables, file, "needs a table [data]")
    source, loader_options, partition_options = _source(tables["data"], f"{file}, [data]", folder)
    return Experiment(source, loader_options, partition_options, **vars(build_task(tables, file)), file=file)


def build_task(tables: Tables, file: str) -> Task:
    """What `tables` ask for, whoever holds the rows. `file` is named in errors."""
    for name in ("objective", "algorithm", "privacy", "run"):
        check.require(name in tables, file, f"needs a table [{name}]")
    algorithm = _named(ALGORITHMS, "algorithm", tables["algorithm"], f"{file}, [algorithm]")
    modes = VERTICAL_MODES if isinstance(algorithm, VerticalAlgorithm) else MODES
    privacy: Any = _named(modes, "mode", tables["privacy"], f"{file}, [privacy]", key="mode")
    given = tables.get("participation", {"name": Everyone.name})
    participation = _named(PARTICIPATION, "participation", given, f"{file}, [participation]")
    settings = from_table(Settings, tables["run"], f"{file}, [run]")
    asks_someone = participation.most(settings.rounds) > 0
    check.require(asks_someone, f"{file}, [participation]", f"asks nobody in {settings.rounds} rounds; name clients")
    objective = build_objective(tables["objective"], f"{file}, [objective]")
    return Task(objective, algorithm, privacy, participation, settings)


def build_objective(table: Mapping[str, Any], where: str) -> Objective:
    """The objective of an [objective] table, in which the options of the loss and of the penalty stand side by side."""
    if table.get("loss") == "module":
        raise InvalidInput(
            f"{where}: a neural model is code, which no file may bring along. Build its Module again in Python and "
            "give it the saved parameters: module.scores(X, w), or module.trained(w)"
        )
    loss = LOSSES[_choice(LOSSES, "loss", table, where, "loss")]
    penalty = PENALTIES[_choice(PENALTIES, "penalty", {"penalty": "none"} | dict(table), where, "penalty")]
    _known_keys(table, ["loss", "penalty", "scale", *_field_names(loss), *_field_names(penalty)], where)

    def part(kind: type[Built], name: str) -> Built:
        own = _field_names(kind)
        return from_table(kind, {key: value for key, value in table.items() if key in own}, where, name)

    scale = _fit(where, "scale", table.get("scale", "mean"), str)
    made = part(loss, loss.name), part(penalty, penalty.name)
    with _said_by(where):
        return Objective(*made, scale)


def _source(table: dict[str, Any], where: str, folder: Path) -> tuple[Source, dict[str, Any], dict[str, Any]]:
    """[data]: its own keys, the loader's options and the partition's."""
    if table.get("source") == "arrays":
        raise InvalidInput(f"{where}: this run was trained on arrays given in Python; train it again from there")
    loader: dict[str, Any] = {}
    if "name" in table:
        name = _choice([info.name for info in datasets.available()], "data set", table, where)
        loader = _parameters(getattr(datasets, name), leave_out=(_NOT_DENSE,))
    sharing: dict[str, Any] = {}
    if "partition" in table:
        kind = _choice([*PARTITIONS, OWNER], "partition", table, where, "partition")
        sharing = _parameters(PARTITIONS[kind], leave_out=("y", "clients", "seed")) if kind != OWNER else {}
    own = _field_names(Source)
    _known_keys(table, [*own, *loader, *sharing], where)
    split = [
        {key: _fit(where, key, table[key], hint) for key, hint in options.items() if key in table}
        for options in (loader, sharing)
    ]
    given = {key: value for key, value in table.items() if key in own}
    if isinstance(given.get("labels"), list):
        given["labels"] = [label_text(label) for label in given["labels"]]
    if isinstance(given.get("csv"), str) and given["csv"]:
        given["csv"] = str((folder / Path(given["csv"]).expanduser()).resolve())
    return from_table(Source, given, where), split[0], split[1]


def _named(
    registry: Mapping[str, type[Built]], what: str, table: dict[str, Any], where: str, key: str = "name"
) -> Built:
    """The object a table describes: a registered name and the fields of its dataclass."""
    name = _choice(registry, what, table, where, key)
    return from_table(registry[name], {k: v for k, v in table.items() if k != key}, where, name, also=(key,))


def _choice(registry: Collection[str], what: str, table: Mapping[str, Any], where: str, key: str = "name") -> str:
    check.require(key in table, where, f"needs {key} = one of {', '.join(registry)}")
    return check.one_of(where, what, table[key], registry)


def from_table(
    kind: type[Built], table: Mapping[str, Any], where: str, name: str = "", also: Sequence[str] = ()
) -> Built:
    """`kind` from its fields, with the types it declares; its own checks are told where the values came from."""
    hints, own = get_type_hints(kind), fields(kind)  # type: ignore[arg-type]
    _known_keys(table, [*also, *(each.name for each in own)], where)
    for each in own:
        needed = each.default is MISSING and each.default_factory is MISSING
        check.require(each.name in table or not needed, where, f"{name or 'this table'} needs {each.name} = ...")
    # Defaults go the same way, so that what is written down and read again is the same: a 0 may stand for 0.0.
    usual = {each.name: each.default for each in own if each.default not in (MISSING, None)}
    values = {key: _fit(where, key, value, hints[key]) for key, value in (usual | dict(table)).items()}
    with _said_by(where):
        return kind(**values)


@contextmanager
def _said_by(where: str) -> Iterator[None]:
    """Put the place in front of what others have to say about its values; a table is not named twice."""
    try:
        yield
    except (InvalidInput, MissingData, NoGuarantee) as error:
        table = re.search(r"\[(\w+)\]$", where)
        said = str(error).removeprefix(f"{table[1]}: ") if table else str(error)
        raise type(error)(f"{where}: {said}") from None


def _fits(participation: Participation, n: int, rounds: int) -> None:
    """Have the rule check itself against the number of clients, before the first round and not in a later one."""
    told = rounds if isinstance(participation, Schedule) else 1  # what is drawn, is drawn alike in every round
    for _ in itertools.islice(participation.masks(n, Streams(0)), told):
        pass


def _field_names(kind: Any) -> list[str]:
    return [each.name for each in fields(kind)]


def _known_keys(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in table:
        check.one_of(where, "key", key, dict.fromkeys(known))  # each once, in the order given


_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _fit(where: str, name: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint` (whole numbers serve as numbers, lists as tuples), or an error that says which."""
    try:
        return _as(value, hint)
    except TypeError as error:
        raise InvalidInput(f"{where}: {name} must be {error}, got {value!r}") from None


def _as(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        said = []
        for kind in kinds:
            try:
                return _as(value, kind)
            except TypeError as error:
                said.append(str(error))
        raise TypeError(" or ".join(said))
    if origin is Literal:  # which of them, the dataclass checks
        kinds = tuple({type(choice): None for choice in get_args(hint)})
        return _as(value, Union[kinds])  # noqa: UP007 (made at run time)
    if origin is not None and issubclass(origin, Sequence):
        item = get_args(hint)[0]
        if not isinstance(value, list | tuple):
            raise TypeError("a list")
        return tuple(_as(each, item) for each in value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise TypeError("a table")
        return {key: _as(each, get_args(hint)[1]) for key, each in value.items()}
    fits = isinstance(value, (int, float) if hint is float else hint) and (hint is bool or not isinstance(value, bool))
    if not fits:
        raise TypeError(_WORDS.get(hint, hint.__name__))
    return float(value) if hint is float else value


def _parameters(function: Callable[..., Any], leave_out: Collection[str]) -> dict[str, Any]:
    """Names and types of a function's options."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.annotation for parameter in parameters if parameter.name not in leave_out}


def folder_name(text: str) -> str:
    """`text` as the name of a run, which names a folder."""
    return re.sub(r"[^\w.-]+", "-", text).lstrip(".")[:100]


# -------------------------------------------------------------------------------------------------------- rows, shared


def _read(experiment: Experiment) -> Data:
    source, loss = experiment.source, experiment.objective.loss
    labels: tuple[str, ...] = ()
    if source.csv:
        path = Path(source.csv)
        X, texts, groups = read_csv(path, source.label, source.owner, source.ranges)
        y, labels = coded(texts, source.labels, loss, f"{path.name}, column {source.label!r}")
        _warn_of_sizes(experiment)
        test, row_bound = None, source.row_bound
        if row_bound is None and source.ranges and not source.split:
            row_bound = float(np.sqrt(X.shape[1]))  # every entry is within [-1, 1]
    else:
        loaded = datasets.load(source.name, **experiment.loader_options)
        X, y, groups, test = loaded.X, loaded.y, loaded.groups, loaded.test
        row_bound = loaded.row_bound if source.row_bound is None else source.row_bound
    if source.test is not None:
        train_rows, test_rows = datasets.split_rows(len(y), source.test, source.seed)
        if groups is not None and _by_owner(source):
            _everyone_keeps_rows(groups, train_rows)
        test = X[test_rows], y[test_rows]
        X, y, groups = X[train_rows], y[train_rows], None if groups is None else groups[train_rows]
    if source.shorten:
        assert row_bound is not None
        X, test = shorten_rows(X, row_bound), None if test is None else (shorten_rows(test[0], row_bound), test[1])
    if source.split:
        parties = VerticalFederation.from_columns(X, y, source.split)
        return Data(parties, None if test is None else (cut(test[0], source.split), test[1]), labels)
    groups = _groups(experiment, y, groups)
    federation = Federation.from_arrays(X, y, groups)
    if row_bound is not None:
        try:
            federation = replace(federation, row_bound=row_bound)
        except InvalidInput as error:
            way_out = f"To have them scaled down: [data] row_bound = {row_bound:g}, shorten = true"
            raise InvalidInput(f"{error}. {way_out}") from None
    return Data(federation, test, labels)


def _warn_of_sizes(experiment: Experiment) -> None:
    """Say what is not known of the rows, as the estimators do. The rows are not looked at for it."""
    source = experiment.source
    stated = source.ranges or source.split or source.row_bound is not None
    if not stated and experiment.privacy.mode == "proven":
        warnings.warn(
            f"{experiment.file}, [data]: nothing is stated about the sizes of columns, and those of other sizes than "
            "about 1 will be clipped away. Give ranges = { column = [low, high], ... }, or a row_bound",
            stacklevel=2,
        )


def _by_owner(source: Source) -> bool:
    return source.partition == OWNER or (not source.partition and source.clients is None)


def _everyone_keeps_rows(owners: np.ndarray, train_rows: np.ndarray) -> None:
    """An owner whose rows are all in the test part would not be a client, and nobody would be told."""
    without = np.setdiff1d(owners, owners[train_rows]).tolist()
    if without:
        others = f" (and {len(without) - 1} other owners)" if len(without) > 1 else ""
        raise InvalidInput(
            f"data: test takes all rows of owner {without[0]!r}{others}, who would have none to train on. "
            "Give a smaller test, or leave the rows of that owner out"
        )


def _groups(experiment: Experiment, y: np.ndarray, owners: np.ndarray | None) -> np.ndarray:
    source = experiment.source
    if _by_owner(source):
        if owners is None:
            what = f"{source.name or Path(source.csv).name}: rows have no owner of their own"
            way_out = "owner = the column that names them" if source.csv else "clients = how many share the rows"
            raise InvalidInput(f"{what}; give [data] {way_out}")
        return owners
    kind = source.partition or "iid"
    clients = source.clients
    if clients is None:
        raise InvalidInput(f"data: partition {kind!r} needs clients = how many share the rows")
    return make(kind, y, clients=clients, seed=source.seed, **experiment.partition_options)
