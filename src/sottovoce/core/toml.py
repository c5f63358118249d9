"""Plain values as TOML text that `tomllib` reads back as the same values, and back."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from sottovoce.core.check import InvalidInput, shown
from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Json


def toml_key(key: str) -> str:
    """A key, in quotation marks if it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def toml_value(value: object) -> str:
    """Text, a number, a truth value, or a list or table of these, on one line."""
    if isinstance(value, np.generic):
        value = cast(object, value.item())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, cast(Sequence[object], value)))}]"
    if isinstance(value, Mapping):
        table = cast(Mapping[str, object], value)
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(each)}" for key, each in table.items()) + "}"
    rule = "a value must be text, a number, true, false, or a list or table of these"
    raise InvalidInput(f"TOML: {rule}, got {shown(value)}")


def to_toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Tables as TOML. Of a table that holds a table of tables, every table stands under a title of its own."""
    blocks: list[tuple[str, Mapping[str, object]]] = []
    for name, table in tables.items():
        tables_inside = _tables_in(table)
        below = tables_inside if any(_tables_in(inner) for inner in tables_inside.values()) else {}
        blocks.append((toml_key(name), {key: value for key, value in table.items() if key not in below}))
        blocks += [(f"{toml_key(name)}.{toml_key(key)}", value) for key, value in below.items()]
    return "\n".join(
        "\n".join([f"[{title}]", *(f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()), ""])
        for title, table in blocks
    )


def parse_toml(text: str, where: str) -> Json:
    """The tables of a TOML text; `where` is named in the error if it is none."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{where}: must be TOML ({error})") from None


def packaged_toml(package: str, name: str) -> Json:
    """The tables of a TOML file that comes with this library, in `sottovoce.<package>`."""
    return parse_toml(packaged_text(package, name), name)


def _tables_in(table: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    return {key: cast(Mapping[str, object], value) for key, value in table.items() if isinstance(value, Mapping)}


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
