"""Dataclasses -> TOML: what a run was, in plain values.

Knows neither `train` nor the files it is started from, so that both can use it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Algorithm
from sottovoce.core.participation import Participation
from sottovoce.privacy.modes import Privacy, VerticalPrivacy
from sottovoce.problems.federation import Federation
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import VerticalFederation

Tables = dict[str, dict[str, Any]]


def describe(
    algorithm: Algorithm[Any, Any, Any, Any],
    federation: Federation | VerticalFederation,
    objective: Objective,
    privacy: Privacy | VerticalPrivacy,
    participation: Participation,
    engine: str,
) -> Tables:
    """The tables of a run on arrays, as plain values: enough to know what was done, without the rows themselves."""
    data = _vertical(federation) if isinstance(federation, VerticalFederation) else _horizontal(federation)
    return {
        "data": data,
        "objective": {
            "loss": objective.loss.name,
            **plain_fields(objective.loss),
            "penalty": objective.penalty.name,
            **plain_fields(objective.penalty),
            "scale": objective.scale,
        },
        "algorithm": {"name": algorithm.name, **plain_fields(algorithm)},
        "privacy": {"mode": privacy.mode, **plain_fields(privacy)},
        "participation": {"name": participation.name, **plain_fields(participation)},
        "run": {"engine": engine},
    }


def _horizontal(federation: Federation) -> dict[str, Any]:
    rows, columns = federation.X.shape
    data = {
        "source": "arrays",
        "clients": federation.n,
        "rows": int(rows),
        "columns": int(columns),
        "smallest_client": int(federation.sizes.min()),
        "largest_client": int(federation.sizes.max()),
    }
    if federation.X.dtype == np.float32:
        data["stored"] = "float32"
    return data if federation.row_bound is None else data | {"row_bound": float(federation.row_bound)}


def _vertical(federation: VerticalFederation) -> dict[str, Any]:
    split = list(federation.widths)
    return {"source": "arrays", "rows": federation.samples, "split": split, "holder": federation.holder}


def plain_fields(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass as TOML values; what is None or empty is left out, TOML has no word for it."""
    given = {field.name: getattr(thing, field.name) for field in fields(thing)}
    plain = {name: _plain(value) for name, value in given.items() if value is not None}
    return {name: value for name, value in plain.items() if value not in ("", [], {})}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if isinstance(value, bool | int | float | str) else repr(value)


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of text, numbers, truth values, lists and tables as TOML that `tomllib` reads back as the same values."""
    blocks = []
    for name, table in tables.items():
        lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items()]
        blocks.append("\n".join([f"[{_toml_key(name)}]", *lines, ""]))
    return "\n".join(blocks)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(each) for each in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml_value(each)}" for key, each in value.items()) + "}"
    raise InvalidInput(f"TOML: a value must be text, a number, true, false, or a list or table of these, got {value!r}")


def _toml_text(text: str) -> str:
    # JSON's escapes are TOML's, but TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
