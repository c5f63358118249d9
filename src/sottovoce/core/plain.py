"""The types of plain values, in a file that imports nothing heavy: the help of the command line needs them too."""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]  # an object of JSON, or a table of TOML
Columns = dict[str, list[Any]]  # a table: one value per row under each name
Progress = Callable[[str, int, int], None]  # progress(what is done, how much of it, of how much)


def silent(what: str, done: int, of: int) -> None:
    """Show no progress."""
