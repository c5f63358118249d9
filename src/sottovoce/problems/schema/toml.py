"""A schema as TOML.

[schema]
owner = "hospital"
drop = ["id"]
missing_values = ["?"]

[schema.label]
column = "ill"
classes = ["no", "yes"]

[schema.parties]         only where columns are split; the first party has the label
bank = ["age", "income"]
shop = ["sex", "admitted"]

[schema.columns]
age = {range = [0, 100], waves = 8}
income = {range = [0, 1000000], log = true, missing = true}
sex = {levels = ["Female", "Male"]}
admitted = {dates = ["2015-01-01", "2025-12-31"], weekday = true}
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from sottovoce.core import check
from sottovoce.core.files import read_bytes, utf8
from sottovoce.core.plain import Json
from sottovoce.core.toml import parse_toml
from sottovoce.problems.schema.columns import Category, Column, Date, Number, OneHot
from sottovoce.problems.schema.label import Label

_LARGEST_FILE = 4 * 2**20  # bytes
Table = TypeVar("Table")
Built = TypeVar("Built")
_KEYS = ("owner", "drop", "missing_values", "bias", "parties", "label", "columns")


def read(source: str | Path) -> tuple[Json, str]:
    """The contents of [schema] in a TOML file, or in TOML text (which has several lines), and its name for errors."""
    is_text = isinstance(source, str) and "\n" in source
    where = "schema" if is_text else str(source)
    check.require(isinstance(source, str | Path), "Schema", f"must be TOML text or a path, got {check.shown(source)}")
    tables = parse_toml(str(source) if is_text else file_text(Path(source)), where)
    rule = "must hold the table [schema], with [schema.columns] below it"
    check.require(isinstance(tables.get("schema"), dict), where, rule)
    check.all_of(where, "table", tables, ["schema"])
    return tables["schema"], f"{where}, [schema]"


def parts(tables: Json, where: str) -> tuple[dict[str, Column], Json]:
    """The columns and the other arguments of `Schema` from the contents of [schema]."""
    place = where.removesuffix("]")
    check.all_of(where, "key", tables, _KEYS)
    for name in ("label", "columns", "parties"):
        rule = f"{name} must be a table, {place[place.rfind('[') :]}.{name}]"
        check.require(isinstance(tables.get(name, {}), Mapping), where, rule)
    check.require(bool(tables.get("columns")), where, "needs a table [schema.columns]")
    arguments: Json = {name: tables[name] for name in _KEYS[:5] if name in tables}
    if "label" in tables:
        arguments["label"] = placed(f"{place}.label]", _label, tables["label"])
    columns = {
        name: placed(f"{place}.columns.{name}]", read_column, table) for name, table in tables["columns"].items()
    }
    return columns, arguments


def read_column(table: object) -> Column:
    """The column that a TOML table describes: one of its keys says of which kind it is."""
    if not isinstance(table, Mapping):
        raise check.InvalidInput(f"a column: must be a table, got {check.shown(table)}")
    kinds = {kind.key: kind for kind in (Number, Category, Date, OneHot)}
    keys = [key for key in kinds if key in table]
    rule = "needs one of range = [low, high], levels = [...], dates = [first, last], one_hot = [columns]"
    if len(keys) != 1:
        raise check.InvalidInput(f"a column {rule}")
    key = keys[0]
    options = {name: value for name, value in table.items() if name != key}
    declared = inspect.signature(kinds[key]).parameters.values()
    known = [each.name for each in declared if each.default is not each.empty]
    check.all_of(f"a column with {key}", "key", options, [key, *known])
    values = table[key]
    if not isinstance(values, list):
        raise check.InvalidInput(f"a column: {key} must be a list, got {check.shown(values)}")
    if key in ("range", "dates"):
        check.require(len(values) == 2, "a column", f"{key} must hold two values", len(values))
    return kinds[key](*values, **options)


def _label(table: Json) -> Label:
    check.all_of("label", "key", table, ("column", "classes", "range"))
    check.require("column" in table, "label", "needs column = the name of a column")
    return Label(table["column"], table.get("classes", ()), table.get("range"))


def placed(where: str, build: Callable[[Table], Built], table: Table) -> Built:
    try:
        return build(table)
    except check.InvalidInput as error:
        message = str(error)
    raise check.InvalidInput(f"{where}: {message}")


def file_text(path: Path) -> str:
    """The text of a small file."""
    return utf8(str(path), read_bytes(path, _LARGEST_FILE), "TOML")
