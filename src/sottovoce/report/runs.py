"""Finds, reads and checks the run folders that a report shows, and lists their settings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.experiment import saved, store
from sottovoce.experiment.result import Result

_UNITS = ("one record", "one client", "one whole client", "one column of", "one party")


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Run folders among and directly inside `folders`."""
    run_paths: list[Path] = []
    for folder in folders:
        saved.must_be_there(folder)
        inside = [folder] if (folder / store.CONFIG).exists() else sorted(folder.glob(f"*/{store.CONFIG}"))
        check.require(bool(inside), str(folder), f"is no run folder and holds none: there is no {store.CONFIG}")
        run_paths += [each if each == folder else each.parent for each in inside]
    return run_paths


def read(folder: Path) -> Result:
    """A finished run whose files hold all that a report needs, in the form that it needs."""
    result = saved.load_result(folder)
    config, guarantee = result.config, result.guarantee
    complete = isinstance(config.get("algorithm", {}).get("name"), str) and {"privacy", "run"} <= set(config)
    check.require(complete, str(folder / store.CONFIG), "must have tables [algorithm] with a name, [privacy] and [run]")
    stated = guarantee.delta is not None and any(unit in guarantee.unit for unit in _UNITS)
    where, rule = str(folder / store.GUARANTEE), "an epsilon needs a delta and a known unit"
    check.require(guarantee.epsilon is None or stated, where, rule, guarantee.unit)
    _check_history(result, str(folder / store.HISTORY))
    return result


def flat_settings(config: Json) -> dict[str, object]:
    """Every setting under the name "table.key"."""
    return {f"{table}.{key}": value for table, keys in config.items() for key, value in keys.items()}


def _check_history(result: Result, where: str) -> None:
    columns = result.history.columns
    if not columns and result.rounds == 0:
        return  # a budget that was spent before paid for no round
    try:
        rounds, run = (np.asarray(columns[name], dtype=np.int64) for name in ("round", "run"))
        for column in columns.values():
            np.asarray(column, dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise check.InvalidInput(f"{where}: must hold numbers, with a round and a run in every row ({error})") from None
    check.require(len(rounds) > 0, where, "holds no round; there is nothing to show")
    runs = 1 + int(run.max(initial=0))
    in_order = len(run) % runs == 0 and np.array_equal(run, np.tile(np.arange(runs), len(run) // runs))
    in_order = in_order and np.array_equal(rounds, np.repeat(np.unique(rounds), runs))
    check.require(bool(in_order), where, "must hold the runs of one round after the other, rounds increasing")
