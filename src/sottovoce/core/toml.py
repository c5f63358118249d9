"""Plain values as TOML text that `tomllib` reads back as the same values."""

import json
import re
from collections.abc import Mapping

import numpy as np

from sottovoce.core.check import InvalidInput, shown


def toml_key(key: str) -> str:
    """A key, in quotation marks if it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def toml_value(value: object) -> str:
    """Text, a number, a truth value, or a list or table of these, on one line."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(each)}" for key, each in value.items()) + "}"
    rule = "a value must be text, a number, true, false, or a list or table of these"
    raise InvalidInput(f"TOML: {rule}, got {shown(value)}")


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
