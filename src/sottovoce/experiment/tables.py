"""TOML <-> dataclasses: the tables of run files, node files and saved runs.

A name is looked up in its registry and the dataclass is built from its own fields, so that a new algorithm, loss or
penalty needs no line here.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import read_bytes, utf8
from sottovoce.core.plain import Json
from sottovoce.core.toml import parse_toml
from sottovoce.core.toml import to_toml as to_toml
from sottovoce.experiment.task import Task
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import WithIntercept

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_LARGEST_FILE = 16 * 2**20  # bytes of TOML; a recorded schedule of a long run is the only large thing in one
Built = TypeVar("Built")
Tables = dict[str, Json]
_hints = cache(get_type_hints)


def describe_task(task: Task) -> Tables:
    """The tables of a task as plain values: [data] and [run] left out."""
    return {
        "objective": describe_objective(task.objective),
        "algorithm": {"name": task.algorithm.name, **plain_fields(task.algorithm)},
        "privacy": {"mode": task.privacy.mode, **plain_fields(task.privacy)},
        "participation": {"name": task.participation.name, **plain_fields(task.participation)},
        **({} if task.evaluate is None else {"evaluate": plain_fields(task.evaluate)}),
        **({} if task.chosen is None else {"choice": plain_fields(task.chosen)}),
    }


def describe_objective(objective: Objective) -> Json:
    """The table [objective], in which the options of the loss and of the penalty stand side by side."""
    loss, penalty, intercept = objective.loss, objective.penalty, {}
    if isinstance(penalty, WithIntercept):
        intercept = {"fit_intercept": True, "penalise_intercept": penalty.penalised}
        penalty = penalty.penalty
    parts = {"loss": loss.name, **plain_fields(loss), "penalty": penalty.name, **plain_fields(penalty)}
    return {**parts, "scale": objective.scale, **intercept}


def plain_fields(thing: object) -> Json:
    """The fields of a dataclass as TOML values; None and empty values are left out: TOML cannot express them."""
    values = {name: getattr(thing, name) for name in field_names(thing)}
    plain = {name: _plain(value) for name, value in values.items() if value is not None}
    return {name: value for name, value in plain.items() if value not in ("", [], {})}


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if isinstance(value, bool | int | float | str) else repr(value)


# ---------------------------------------------------------------------------------------------- TOML -> dataclasses


def read_tables(path: Path, known: Collection[str]) -> Tables:
    """The tables of a TOML file, not interpreted yet."""
    hint = f"To go on with a run use: sottovoce run --resume {path}"
    check.require(not path.is_dir(), str(path), "is a folder, not a TOML file", hint=hint)
    tables = parse_toml(utf8(str(path), read_bytes(path, _LARGEST_FILE), "TOML"), str(path))
    for name, table in tables.items():
        check.one_of(path.name, "table", name, known)
        check.require(isinstance(table, dict), path.name, f"{name} must be a table, [{name}]", table)
    return tables


def named(registry: Mapping[str, type[Built]], what: str, table: Json, where: str, key: str = "name") -> Built:
    """The object a table describes: a registered name and the fields of its dataclass."""
    name = choice(registry, what, table, where, key)
    return from_table(registry[name], {k: v for k, v in table.items() if k != key}, where, name, also=(key,))


def choice(registry: Collection[str], what: str, table: Json, where: str, key: str = "name") -> str:
    check.require(key in table, where, f"needs {key} = one of {', '.join(registry)}")
    return check.one_of(where, what, table[key], registry)


def from_table(kind: type[Built], table: Json, where: str, name: str = "", also: Sequence[str] = ()) -> Built:
    """`kind` from its fields, with the types it declares; errors name the place that the values came from."""
    hints, declared = _hints(kind), fields(cast("type[DataclassInstance]", kind))
    check.all_of(where, "key", table, [*also, *(each.name for each in declared)])
    for each in declared:
        needed = each.default is MISSING and each.default_factory is MISSING
        check.require(each.name in table or not needed, where, f"{name or 'this table'} needs {each.name} = ...")
    # Defaults go the same way, so that what is written down and read again is the same: a 0 may stand for 0.0.
    usual = {each.name: each.default for each in declared if each.default not in (MISSING, None)}
    values = {key: fit_value(where, key, value, hints[key]) for key, value in (usual | dict(table)).items()}
    with placed_at(where):
        return kind(**values)


@contextmanager
def placed_at(where: str) -> Iterator[None]:
    """Errors about values in a file begin with their place there; a table is not named twice."""
    try:
        yield
    except (check.InvalidInput, check.MissingData, check.NoGuarantee) as error:
        table = re.search(r"\[(\w+)\]$", where)
        message = str(error).removeprefix(f"{table[1]}: ") if table else str(error)
        raise type(error)(f"{where}: {message}") from None


def field_names(kind: object) -> list[str]:
    """The fields of a dataclass, or of one of its objects."""
    return [each.name for each in fields(cast("DataclassInstance", kind))]


_WORDS: dict[type, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def fit_value(where: str, name: str, value: object, hint: object) -> Any:
    """`value` as the type `hint` (whole numbers serve as numbers, lists as tuples), or an error that says which."""
    try:
        return _as(value, hint)
    except TypeError as error:
        raise check.InvalidInput(f"{where}: {name} must be {error}, got {value!r}") from None


def _as(value: object, hint: object) -> object:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        reasons = []
        for kind in kinds:
            try:
                return _as(value, kind)
            except TypeError as error:
                reasons.append(str(error))
        raise TypeError(" or ".join(reasons))
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
    assert isinstance(hint, type)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise TypeError(_WORDS.get(hint, hint.__name__))
    return value


def parameters(function: Callable[..., object], leave_out: Collection[str]) -> Json:
    """Names and types of a function's options."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.annotation for parameter in parameters if parameter.name not in leave_out}
