"""Data sets encoded by the public schemas that come with the package."""

from typing import Any

from sottovoce.core.arrays import Floats
from sottovoce.problems.schema import Schema


def encoded(name: str, table: Any) -> tuple[Floats, tuple[str, ...], Schema]:
    """The rows of a table, each of length 1, the names of their columns, and the schema that encoded them."""
    schema = Schema.bundled(name)
    return schema.transform(table), tuple(schema.get_feature_names_out().tolist()), schema
