"""What the command line prints: tables, notes and JSON. Rich is imported where it is used."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from sottovoce.planning.account import Account


def console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def complain(text: str) -> None:
    typer.echo(text, err=True)


def note(text: str) -> None:
    from rich.text import Text

    console().print(Text(text))  # as it is: paths may contain what Rich takes for markup


def print_json(value: Mapping[str, Any]) -> None:
    from sottovoce.experiment.whole_files import finite

    typer.echo(json.dumps(finite(value), indent=2, allow_nan=False))


def print_table(title: str, summaries: Sequence[Mapping[str, Any]]) -> None:
    from rich import box
    from rich.filesize import decimal
    from rich.table import Table

    loss = next((name for name in ("test_loss", "objective") if any(name in summary for summary in summaries)), "loss")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("method", no_wrap=True)
    measured = any(summary.get("test_accuracy") is not None for summary in summaries)
    for heading in (*["test\naccuracy"][:measured], loss.replace("_", "\n"), "rounds", "sent\nup", "sent\ndown"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ε, per what,\nagainst whom", min_width=13)  # all of it fits 80 columns
    table.add_column("seconds", justify="right", no_wrap=True)
    for summary in summaries:
        up, down, seconds = (summary.get(name) for name in ("bytes_up", "bytes_down", "seconds"))
        table.add_row(
            summary["method"],
            *[_with_spread(summary, "test_accuracy", "{:.2%}")][:measured],
            _with_spread(summary, loss, "{:.4g}"),
            "–" if summary["rounds"] is None else str(summary["rounds"]),
            *("–" if size is None else decimal(int(size)).replace("bytes", "B") for size in (up, down)),
            _epsilon(summary),
            "–" if seconds is None else f"{seconds:.1f}",
        )
    console().print(table)


def print_comparison(said: Mapping[str, Any]) -> None:
    """One table per measure: mean, interval, and the difference to the first run, paired by seed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from sottovoce.experiment.repetitions import MEASURES, told

    runs, first = said["runs"], said["paired_with"]
    for column, words, form in MEASURES:
        if not any(column in run["measures"] for run in runs):
            continue
        private = any(not run["measures"][column]["released"] for run in runs if column in run["measures"])
        marked = " (simulation only, not released)" if private else ""
        table = Table(title=f"{words}{marked}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
        table.add_column("run", overflow="fold")
        for heading in ("mean", "95 %\ninterval", "difference", "95 %\ninterval"):
            table.add_column(heading, justify="right", no_wrap=True)
        for run in runs:
            measure = run["measures"].get(column)
            own = ("–", "–") if measure is None else told(measure, form)
            apart = None if measure is None else measure["difference"]
            table.add_row(Text(run["name"]), *own, *(("–", "–") if apart is None else told(apart, form, sign=True)))
        console().print(table)
    for run in runs:
        note(f"{run['name']}: {run['method']}, {run['rounds']} rounds, ε: {run['privacy']}")
    for setting, values in said["differ_in"].items():
        shown = ", ".join("not there" if value is None else str(value) for value in values)
        note(f"They differ in {setting}: {shown}")
    note(
        f"{said['seeds']} seeds; differences are to {first}, paired by seed. ε is of one run alone, not of all of them."
    )


def _epsilon(summary: Mapping[str, Any]) -> str:
    if summary.get("epsilon") is None:
        return summary["privacy"]
    from sottovoce.privacy.guarantee import short_unit

    return f"{summary['epsilon']:.4g} per {short_unit(summary['unit'])},\nthe server"


def _with_spread(summary: Mapping[str, Any], name: str, form: str) -> str:
    if summary.get(name) is None:
        return "–"
    spread = summary.get(f"{name}_std")
    return form.format(summary[name]) + (f"\n± {form.format(spread)}" if spread else "")


def print_catalogue(kind: str, entries: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=kind, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(ratio=1)
    for entry in entries:
        more = ", ".join(f"{name} = {default}" for name, default in entry["options"].items())
        lines = [entry["summary"], *(f"options: {more}" for _ in range(bool(more)))]
        if "modes" in entry:
            lines.append(f"privacy: {', '.join(entry['modes'])}; {entry['paper']}")
        table.add_row(Text(entry["name"]), Text("\n".join(lines)))
    screen = console()
    screen.print(table)
    screen.print()


def print_data(known: Sequence[Mapping[str, Any]], variable: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Data sets", title_justify="left")
    table.add_column("name")
    table.add_column("status")
    for heading in ("rows", "test rows", "features"):
        table.add_column(heading, justify="right")
    table.add_column("where", overflow="fold")
    for info in known:
        counts = [f"{info[name]:,}".replace(",", " ") for name in ("rows", "test_rows", "features")]
        table.add_row(info["name"], info["status"], *counts, Text(info["where"] or "–"))
    console().print(table)
    for info in known:
        if info["status"] == "missing":
            note(f"{info['name']}: {info['how_to_get']}")
    here = os.environ.get(variable)
    note(f"{variable} is {here}" if here else f"{variable}, the folder of data sets that do not travel, is not set")


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Everything a TOML file can name, with its options."""
    from sottovoce.algorithms import ALGORITHMS
    from sottovoce.core.participation import PARTICIPATION
    from sottovoce.problems import data as datasets
    from sottovoce.problems import partition
    from sottovoce.problems.losses import LOSSES
    from sottovoce.problems.penalties import PENALTIES

    def entry(name: str, thing: Any, leave_out: Sequence[str] = ()) -> dict[str, Any]:
        return {"name": name, "summary": _first_sentence(thing), "options": _options_of(thing, leave_out)}

    algorithms = [
        entry(name, kind) | {"summary": kind.summary, "modes": sorted(kind.modes), "paper": kind.paper}
        for name, kind in ALGORITHMS.items()
    ]
    told_by = {"iid": partition.iid, "random-cuts": partition.random_cuts}
    partitions = [
        entry(name, told_by.get(name, kind), leave_out=("rows", "y", "clients", "seed"))
        for name, kind in partition.PARTITIONS.items()
    ]
    for one in partitions:
        one["summary"] = one["summary"] or f"Shuffled rows in parts of {one['name']} sizes."
    partitions.append({"name": "owner", "summary": "Every row stays with its own owner.", "options": {}})
    return {
        "algorithms": algorithms,
        "losses": [entry(name, kind) for name, kind in LOSSES.items()],
        "penalties": [entry(name, kind) for name, kind in PENALTIES.items()],
        "participation": [entry(name, kind) for name, kind in PARTICIPATION.items()],
        "partitions": partitions,
        "data": [entry(info.name, getattr(datasets, info.name), ("dense",)) for info in datasets.available()],
    }


def _first_sentence(thing: Any) -> str:
    import inspect

    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _options_of(thing: Any, leave_out: Sequence[str]) -> dict[str, Any]:
    """Name -> default, "needed" where there is none; a dataclass's constructor is a function like any other."""
    import inspect

    parameters = inspect.signature(thing).parameters.values()
    return {
        parameter.name: "needed" if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
        if parameter.name not in leave_out
    }


def print_plan(said: Mapping[str, Any]) -> None:
    """What `plan_words.to_dict` gives: the settings that came last, the reasons, and what cannot be known."""
    from rich import box
    from rich.table import Table

    title = f"{said['clients']} clients, {said['rows']} rows, {said['features']} columns, made up"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("method")
    for heading in ("rounds", "clip", f"expected\n{said['measure']}", "seeds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, trial in enumerate(said["tried"][:8]):
        mark = "→ " if number == 0 else "  "
        numbers = f"{trial['rounds']}", f"{trial['clip']:.3g}", f"{trial['mean']:.1%}", f"{trial['seeds']}"
        table.add_row(mark + trial["words"], *numbers)
    console().print(table)
    for reason in said["reasons"]:
        note(f"• {reason}")
    note("What this cannot know:")
    for sentence in said["cannot_know"]:
        note(f"• {sentence}")


def print_account(result: "Account") -> None:
    from rich.table import Table

    event, per_round = result.event, result.answers_per_round
    sampled = {
        "full": "all records",
        "poisson": f"each record with probability {event.rate:.4g}",
        "fixed-size": f"{event.batch} of {event.size} records",
    }[event.sampling]
    note(
        f"{event.mechanism} noise of {event.noise_multiplier:.6g} times the sensitivity ({event.relation}, {sampled}), "
        f"{per_round} answer{'s' if per_round > 1 else ''} a round, δ = {result.delta:g}, by {result.accountant}:"
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("rounds", justify="right")
    table.add_column("ε", justify="right")
    for rounds, epsilon in result.table:
        table.add_row(str(rounds), f"{epsilon:.6g}")
    console().print(table)
    if result.affordable_rounds is not None:
        note(f"The budget lasts for {result.affordable_rounds} rounds.")
