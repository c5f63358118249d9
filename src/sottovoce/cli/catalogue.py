"""`sottovoce list`."""

import inspect
from collections.abc import Callable, Sequence

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables


def list_(as_json: terminal.Json = False, quiet: terminal.Quiet = False) -> None:
    """Name every algorithm, loss, penalty, participation rule, partition and data set, with their options."""
    kinds = catalogue()

    def text() -> None:
        for kind, entries in kinds.items():
            rows = [[tables.emphasised(entry["name"]), _described(entry)] for entry in entries]
            tables.print_table(["", ""], rows, {""}, kind)

    lines = [f"{kind} {entry['name']}" for kind, entries in kinds.items() for entry in entries]
    terminal.show(as_json, quiet, kinds, lines, text)


def _described(entry: Json) -> str:
    lines = [entry["summary"]]
    if entry["options"]:
        lines.append("options: " + ", ".join(f"{name} = {default}" for name, default in entry["options"].items()))
    if "modes" in entry:
        lines.append(f"privacy: {', '.join(entry['modes'])}; {entry['paper']}")
    return "\n".join(lines)


def catalogue() -> dict[str, list[Json]]:
    """Everything a TOML file can name, with its options."""
    from sottovoce.algorithms import ALGORITHMS
    from sottovoce.core.participation import PARTICIPATION
    from sottovoce.problems import data, losses, partition, penalties

    partitions = [_entry(name, kind, partition.NO_OPTIONS) for name, kind in partition.PARTITIONS.items()]
    partitions.append({"name": "owner", "summary": "Every row stays with its own owner.", "options": {}})
    return {
        "algorithms": [
            _entry(name, kind) | {"summary": kind.summary, "modes": sorted(kind.modes), "paper": kind.paper}
            for name, kind in ALGORITHMS.items()
        ],
        "losses": [_entry(name, kind) for name, kind in losses.LOSSES.items()],
        "penalties": [_entry(name, kind) for name, kind in penalties.PENALTIES.items()],
        "participation": [_entry(name, kind) for name, kind in PARTICIPATION.items()],
        "partitions": partitions,
        "data": [_entry(name, loader, ("dense",)) for name, loader in data.LOADERS.items()],
    }


def _entry(name: str, function: Callable[..., object], leave_out: Sequence[str] = ()) -> Json:
    """The first paragraph of its docstring, and its options: name -> default, "needed" where there is none."""
    options = {
        parameter.name: "needed" if parameter.default is parameter.empty else parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in leave_out
    }
    summary = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    return {"name": name, "summary": summary, "options": options}
