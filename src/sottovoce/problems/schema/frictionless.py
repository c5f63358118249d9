"""Frictionless Table Schema (JSON): bounds, enums and missing values become a schema.

A field with an enum (or a boolean) is a category, a number or integer with minimum and maximum a number, a date with
minimum and maximum a date. A field that is not `required` may be missing. The primary key is dropped: it says who a row
is, and nothing else. The format has no word for a label or an owner, so these are named beside it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.problems.schema.columns import Category, Column, Date, Number
from sottovoce.problems.schema.label import Label
from sottovoce.problems.schema.toml import file_text, placed

_NUMBERS, _DATES = ("number", "integer", "year"), ("date", "datetime")


def parts(source: object, label: str, owner: str, drop: Sequence[str]) -> tuple[dict[str, Column], Json]:
    """The columns and the other arguments of `Schema`."""
    where, content = _content(source)
    fields = content.get("fields")
    listed = isinstance(fields, list) and bool(fields) and all(isinstance(each, dict) for each in fields)
    check.require(listed, where, "must be a Table Schema: an object with a list of fields")
    assert isinstance(fields, list)
    named = all(isinstance(each.get("name"), str) and each["name"] for each in fields)
    check.require(named, where, "every field must have a name")
    by_name = {each["name"]: each for each in fields}
    for what, name in (("label", label), *([("owner", owner)] if owner else []), *(("drop", each) for each in drop)):
        check.one_of(where, f"column for {what}", name, by_name)
    key = content.get("primaryKey", [])
    dropped = dict.fromkeys([*drop, *([key] if isinstance(key, str) else key)])
    missing = [each["value"] if isinstance(each, dict) else each for each in content.get("missingValues", [""])]
    features = [name for name in by_name if name not in (label, owner, *dropped)]
    columns = {name: placed(f"{where}, field {name!r}", _column, by_name[name]) for name in features}
    return columns, {
        "label": placed(f"{where}, field {label!r}", _label, by_name[label]),
        "owner": owner,
        "drop": [name for name in dropped if name not in (label, owner)],
        "missing_values": [each for each in missing if each != ""],
    }


def _content(source: object) -> tuple[str, Json]:
    """The Table Schema, and its name for errors. A data package is taken apart if it has one table."""
    where, content = "Table Schema", source
    if isinstance(source, str | Path):
        where = Path(source).name
        try:
            content = json.loads(file_text(Path(source)))
        except (json.JSONDecodeError, RecursionError):
            raise check.InvalidInput(f"{where}: must be JSON") from None
    resources = content.get("resources") if isinstance(content, Mapping) else None
    if isinstance(resources, list):
        check.require(len(resources) == 1, where, "a data package must describe one table here", len(resources))
        content = resources[0].get("schema") if isinstance(resources[0], dict) else None
    if not isinstance(content, Mapping):
        raise check.InvalidInput(f"{where}: must be a Table Schema, got {check.shown(content)}")
    return where, dict(content)


def _column(field: Json) -> Column:
    kind, limits = field.get("type", "string"), _limits(field)
    gaps = not limits.get("required", False)
    levels = _levels(field)
    if levels is not None:
        return Category(*levels, missing=gaps)
    check.require(kind in (*_NUMBERS, *_DATES), "it", "needs an enum: the values that there can be. Or drop it")
    bounded = "minimum" in limits and "maximum" in limits
    check.require(bounded, "it", "needs a minimum and a maximum, stated without looking at the rows. Or drop it")
    low, high = limits["minimum"], limits["maximum"]
    if kind in _NUMBERS:
        return Number(low, high, missing=gaps)
    form = field.get("format", "default")
    return Date(str(low)[:10], str(high)[:10], form="" if form in ("default", "any") else form, missing=gaps)


def _label(field: Json) -> Label:
    limits, levels = _limits(field), _levels(field)
    if levels is not None:
        return Label(field["name"], levels)
    bounded = "minimum" in limits and "maximum" in limits
    check.require(bounded, "the label", "needs an enum of its classes, or a minimum and a maximum")
    return Label(field["name"], range=(limits["minimum"], limits["maximum"]))


def _limits(field: Json) -> Json:
    limits = field.get("constraints", {})
    check.require(isinstance(limits, Mapping), "it", "constraints must be an object")
    return limits


def _levels(field: Json) -> list[object] | None:
    levels = _limits(field).get("enum", field.get("categories"))
    if levels is None and field.get("type") == "boolean":
        values = (field.get("falseValues", ["false"]), field.get("trueValues", ["true"]))
        return [value[0] if isinstance(value, list) and value else value for value in values]
    if levels is None:
        return None
    check.require(isinstance(levels, list), "it", f"enum must be a list, got {check.shown(levels)}")
    return [each.get("value") if isinstance(each, dict) else each for each in levels]
