"""A run file becomes a task here.

    [data]           name = "adult" (and the loader's options), or csv = "rows.csv" with label = and owner = a column;
                     clients, partition (and its options), test = rows or a fraction, seed, row_bound, shorten,
                     ranges = {column = [low, high], ...} for csv;
                     or split = [66, 57], the columns of each party
    [schema]         what is known of a CSV file's columns, or file = "schema.toml": see `problems/schema/toml.py`
    [objective]      loss (and its options), penalty (and its options), scale ("records" unless stated),
                     fit_intercept (true with a schema, else false), penalise_intercept
    [algorithm]      name, and the algorithm's fields; or a name alone, and no rounds in [run]: a rule gives constants
                     and rounds (`rules`). Left out: name = "auto", the method that the rule chooses, for at most as
                     many rounds as are stated; base_rate goes with "auto", and rows with an intercept
    [privacy]        mode = "proven" | "published" | "none", and its fields
    [participation]  name, and its fields; left out: everyone
    [run]            rounds, seed, engine, record_every, runs, name, ledgers
    [choice]         in saved runs: what a rule chose, and why

A deployment has a table [clients] in place of [data]: see `deploy/server.py`.

`load` reads and builds everything but the rows, which come with `Experiment.data()`.
"""

import itertools
import re
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sottovoce.algorithms import ALGORITHMS, MaskedMoments
from sottovoce.core import check
from sottovoce.core.contract import Layout
from sottovoce.core.histogram import Evaluation
from sottovoce.core.participation import PARTICIPATION, Everyone, Schedule
from sottovoce.core.plain import Json
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import AfterRound, Checkpoint
from sottovoce.experiment import tables as toml
from sottovoce.experiment.result import Result
from sottovoce.experiment.source import Data, Source, read_rows, read_schema, read_source
from sottovoce.experiment.tables import Built, Tables
from sottovoce.experiment.task import Engine, Task, usual_for_columns
from sottovoce.experiment.train import run_task
from sottovoce.privacy.guarantee import LABELS_FOUND, TEST_SET_ASIDE
from sottovoce.privacy.modes import NoPrivacy, PrivacyMode, Proven, ProvenColumns, Published
from sottovoce.problems import data as datasets
from sottovoce.problems.losses import LOSSES
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import PENALTIES
from sottovoce.problems.schema import Schema
from sottovoce.rules import AUTO, METHODS, Chosen, Rule, constant_entry

MODES: dict[Layout, dict[str, type[PrivacyMode]]] = {
    "rows": {mode.mode: mode for mode in (Proven, Published, NoPrivacy)},
    "columns": {mode.mode: mode for mode in (ProvenColumns, Published, NoPrivacy)},
}
_OF_TASK = ("objective", "algorithm", "privacy", "participation", "evaluate", "choice")
TABLES = ("data", "clients", "schema", *_OF_TASK, "run")


@dataclass(frozen=True)
class Settings:
    """[run]. `rounds` = 0: a rule chooses. `runs` = 0 is one run without a runs axis; without `seed` one is drawn and
    kept nowhere, so that the run cannot be repeated; `ledgers` is a folder of ledger files, from where the command
    runs: see `train`."""

    rounds: check.WholeOrZero = 0
    seed: check.WholeOrZero | None = None
    engine: Engine = "auto"
    record_every: check.Whole = 1
    runs: check.WholeOrZero = 0
    name: str = ""
    ledgers: str = ""

    def __post_init__(self) -> None:
        check.fields(self, "run")
        usable = re.fullmatch(r"[\w.-]{0,100}", self.name) is not None and not self.name.startswith(".")
        check.require(usable, "run", "name must be letters, digits, '-', '_' and '.' (it names a folder)", self.name)


@dataclass(frozen=True)
class Experiment:
    """One run, ready to start: everything but the rows is built and checked."""

    task: Task
    settings: Settings
    source: Source
    loader_options: Json
    partition_options: Json
    schema: Schema | None = None
    file: str = "run"  # named in errors

    def data(self) -> Data:
        """The rows; read at the first call."""
        return self._data

    @cached_property
    def _data(self) -> Data:
        with toml.placed_at(f"{self.file}, [data]"):
            if self.task.privacy.mode == "proven" and self.schema is None and not self.source.states_sizes:
                warnings.warn(
                    f"{self.file}, [data]: nothing is stated about the sizes of columns, and those of other sizes than "
                    "about 1 will be clipped away. Give ranges = { column = [low, high], ... }, or a row_bound",
                    stacklevel=2,
                )
            options = self.loader_options, self.partition_options
            return read_rows(self.source, self.task.objective.loss, *options, self.schema)

    def with_task(self, task: Task) -> "Experiment":
        """Another task on the same rows (not read again)."""
        other = replace(self, task=task, settings=replace(self.settings, rounds=task.rounds))
        if "_data" in self.__dict__:
            other.__dict__["_data"] = self._data
        return other

    def chosen(self) -> "Experiment":
        """The same run with what a rule chooses written out. It looks at sizes, columns and the budget."""
        if self.task.rule is None:
            return self
        federation = self.data().federation
        with toml.placed_at(f"{self.file}, [algorithm]"):
            task = self.task.settled(self.task.objective.on(federation))
        # As it is read from a saved run, so that noise is bound to the same: a 0 may stand for 0.0.
        table = {"name": task.algorithm.name, **toml.plain_fields(task.algorithm)}
        algorithm = toml.named(ALGORITHMS, "algorithm", table, self.file)
        return self.with_task(replace(task, algorithm=algorithm, objective=self.task.objective))

    def described(self) -> Tables:
        """The tables of this run with every default written out: what is saved, and what `load` reads back."""
        if self.task.rule is not None:
            return self.chosen().described()
        rows = self.data()
        source = replace(self.source, labels=rows.labels, labels_found=self._labels_found())
        data = {**toml.plain_fields(source), **self.loader_options, **self.partition_options}
        task = replace(self.task.settled(self.task.objective.on(rows.federation)), objective=self.task.objective)
        tables = {"data": data, **toml.describe_task(task), "run": toml.plain_fields(self.settings)}
        if rows.schema is not None:
            tables["schema"] = rows.schema.to_tables()
            tables["objective"] = {"fit_intercept": False} | tables["objective"]  # what is usual differs with a schema
        return tables

    def train(self, after_round: AfterRound | None = None, resume: Checkpoint | None = None) -> Result:
        """Train, from the start or from a checkpoint of this same run."""
        if self.task.rule is not None:
            return self.chosen().train(after_round, resume)
        data, settings, task = self.data(), self.settings, self.task
        with toml.placed_at(f"{self.file}, [participation]"):
            # A rule that does not suit this number of clients is refused before the first round. Of one that draws
            # clients, the first round shows it.
            looked_at = settings.rounds if isinstance(task.participation, Schedule) else 1
            for _ in itertools.islice(task.participation.masks(data.federation.n, Streams(0)), looked_at):
                pass
        with toml.placed_at(self.file):
            asked = settings.seed, settings.runs or None, data.test, settings.record_every
            kept = {"ledgers": settings.ledgers or None, "resume": resume, "after_round": after_round}
            result = run_task(task, data.federation, *asked, **kept)
        not_covered = [LABELS_FOUND] if self._labels_found() else []
        not_covered += [TEST_SET_ASIDE] if self.source.csv and self.source.test is not None else []
        return replace(result, config=self.described(), guarantee=result.guarantee.leaving_out(*not_covered))

    def _labels_found(self) -> bool:
        """Whether the labels there can be were read off the rows: a look that nobody paid for."""
        return self.source.labels_found or (bool(self.data().labels) and not self.source.labels)


def load(path: str | Path, **run: object) -> Experiment:
    """The run that a TOML file describes; `run` overrides keys of its [run] table."""
    path = Path(path)
    tables = tables_of(path)
    return build(tables | {"run": tables["run"] | run}, path.name, path.parent)


def tables_of(path: Path) -> Tables:
    """The tables of a run file; the run has the file's name unless it says another."""
    tables = toml.read_tables(path, TABLES)
    return tables | {"run": {"name": folder_name(path.stem)} | tables.get("run", {})}


def build(tables: Tables, file: str, folder: Path = Path()) -> Experiment:
    """The run that `tables` describe. `file` is named in errors; paths in it start from `folder`."""
    check.require("data" in tables, file, "needs a table [data]")
    schema = read_schema(tables, file, folder)
    source = read_source(tables["data"], f"{file}, [data]", folder, schema)
    bias = schema is not None or datasets.has_schema(source[0].name, source[1])
    split = bool(source[0].split) or (schema is not None and bool(schema.parties))
    task, settings = build_task(tables, file, bias, "columns" if split else "rows")
    if task.rule is not None and task.rule.base_rate is not None:
        hint = "Give a [schema], whose rows have one, or [objective] fit_intercept = true"
        column = bias or task.objective.intercept
        check.require(column, f"{file}, [algorithm]", "a base_rate needs rows with a constant column", hint=hint)
        known = schema or (Schema.bundled(source[0].name) if bias else None)
        task = replace(task, rule=replace(task.rule, constant=1.0 if known is None else constant_entry(known)))
    return Experiment(task, settings, *source, schema, file)


def build_task(tables: Tables, file: str, bias: bool = False, data_layout: Layout = "rows") -> tuple[Task, Settings]:
    """What `tables` ask for, whoever holds the rows. `file` is named in errors.

    `bias`: whether rows have a column for the intercept, which is then fitted unless the tables say otherwise;
    `data_layout`: what is split, where no method is named.
    """
    for name in ("objective", "privacy"):
        check.require(name in tables, file, f"needs a table [{name}]")
    where, run = f"{file}, [algorithm]", tables.get("run", {})
    table = tables.get("algorithm", {"name": AUTO})
    if data_layout == "columns" and table == {"name": AUTO}:
        mode = toml.named(MODES["columns"], "mode", tables["privacy"], f"{file}, [privacy]", key="mode")
        table = {"name": usual_for_columns(mode).name}
    rule = _rule(table, run, where)
    algorithm = toml.named(ALGORITHMS, "algorithm", table, where) if rule is None else None
    layout: Layout = "rows" if algorithm is None else algorithm.layout
    privacy = toml.named(MODES[layout], "mode", tables["privacy"], f"{file}, [privacy]", key="mode")
    who = tables.get("participation", {"name": Everyone.name})
    participation = toml.named(PARTICIPATION, "participation", who, f"{file}, [participation]")
    settings = toml.from_table(Settings, run, f"{file}, [run]")
    if isinstance(algorithm, MaskedMoments) and "rounds" not in run:
        settings = replace(settings, rounds=1)
    stated = settings.rounds > 0 or "rounds" not in run
    check.require(stated, f"{file}, [run]", "rounds must be a whole number >= 1", settings.rounds)
    counted = {"penalise_intercept": True} if layout == "columns" else {}
    usual = {"fit_intercept": True, **counted} if bias and "fit_intercept" not in tables["objective"] else {}
    objective = build_objective(usual | tables["objective"], f"{file}, [objective]")
    evaluate = toml.from_table(Evaluation, tables["evaluate"], f"{file}, [evaluate]") if "evaluate" in tables else None
    if algorithm is None:
        assert rule is not None
        return Task.by_rule(rule, objective, privacy, participation, settings.engine, evaluate), settings
    needed = f"needs rounds, as the constants of {algorithm.name} are given"
    check.require(settings.rounds > 0, f"{file}, [run]", needed)
    asks_someone = participation.most(settings.rounds) > 0
    check.require(asks_someone, f"{file}, [participation]", f"asks nobody in {settings.rounds} rounds; name clients")
    chosen = toml.from_table(Chosen, tables["choice"], f"{file}, [choice]") if "choice" in tables else None
    asked = algorithm, objective, privacy, participation, settings.rounds, settings.engine, evaluate
    return Task(*asked, chosen=chosen), settings


def _rule(table: Json, run: Json, where: str) -> Rule | None:
    """The rule that is to choose constants: for "auto", or where a method for rows is named without any, nor rounds."""
    name = toml.choice((AUTO, *ALGORITHMS), "algorithm", table, where)
    if name == AUTO:
        check.all_of(where, "key", table, ["name", "base_rate"])
        most = toml.fit_value(where, "rounds", run.get("rounds", 0), int)
        return toml.from_table(Rule, dict(table) | {"most": max(0, most)}, where)
    alone = table.keys() == {"name"} and "rounds" not in run and name in METHODS
    return Rule(name) if alone else None


def build_objective(table: Json, where: str) -> Objective:
    """The objective of an [objective] table, in which the options of the loss and of the penalty stand side by side."""
    if table.get("loss") == "module":
        raise check.InvalidInput(
            f"{where}: a neural model is code, which no file may bring along. Build its Module again in Python and "
            "give it the saved parameters: module.scores(X, w), or module.trained(w)"
        )
    loss = LOSSES[toml.choice(LOSSES, "loss", table, where, "loss")]
    penalty = PENALTIES[toml.choice(PENALTIES, "penalty", {"penalty": "none"} | dict(table), where, "penalty")]
    intercept = ("fit_intercept", "penalise_intercept")
    options = toml.field_names(loss) + toml.field_names(penalty)
    check.all_of(where, "key", table, ["loss", "penalty", "scale", *intercept, *options])

    def part(kind: type[Built], name: str) -> Built:
        names = toml.field_names(kind)
        return toml.from_table(kind, {key: value for key, value in table.items() if key in names}, where, name)

    scale = toml.fit_value(where, "scale", table.get("scale", "records"), str | float)
    made = part(loss, loss.name), part(penalty, penalty.name)
    with toml.placed_at(where):
        flags = {name: toml.fit_value(where, name, table[name], bool) for name in intercept if name in table}
        return Objective(*made, scale, **flags)


def folder_name(text: str) -> str:
    """`text` as the name of a run, which names a folder."""
    return re.sub(r"[^\w.-]+", "-", text).lstrip(".")[:100]
