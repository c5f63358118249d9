"""A run with private columns removed: nothing that was read off private rows, and no names of folders."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sottovoce.core.plain import Json
from sottovoce.core.round import NOT_RELEASED, History
from sottovoce.experiment.tables import Tables

if TYPE_CHECKING:
    from sottovoce.experiment.result import Result

_PATHS = (("data", "csv"), ("run", "ledgers"))
_OF_MODELS = ("test_loss", "test_accuracy")


def private_columns(result: "Result") -> set[str]:
    """Columns of a run's history that a simulation may look at and nobody else.

    Test losses are among them where test rows were set aside from the owners' own; and where columns are split and
    private: all but the last belong to models that nobody was given, and that no budget was charged for.
    """
    unreleased = result.layout == "columns" and result.guarantee.mode == "proven"
    return {*NOT_RELEASED, *(_OF_MODELS if unreleased or tested_on_owners(result.config) else ())}


def tested_on_owners(config: Json) -> bool:
    """Whether a run was tested on rows set aside from a file of the owners; data sets that have a name are public."""
    data = config.get("data", {})
    return bool(data.get("csv")) and data.get("test") is not None


def released(result: "Result") -> "Result":
    """The same run without its private columns, its config without folders."""
    private = private_columns(result)
    columns = {name: values for name, values in result.history.columns.items() if name not in private}
    metrics = {} if private & set(_OF_MODELS) else result.metrics
    return replace(result, history=History(columns), config=without_folders(result.config), metrics=metrics)


def without_folders(config: Tables) -> Tables:
    """Paths cut down to their last part, so that a config names no folder of the machine."""
    tables: dict[str, Json] = {name: dict(table) for name, table in config.items()}
    for table, key in _PATHS:
        if tables.get(table, {}).get(key):
            tables[table][key] = Path(str(tables[table][key])).name
    return tables
