"""`sottovoce plan`."""

from pathlib import Path
from typing import Annotated, Literal, cast

from typer import Option

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables

NUMBERS, FIGURE, RUN_FILE = "plan.json", "plan.png", "run.toml"
_MOST_CLIENTS = 100_000
_SHOWN = 8  # of the settings that were tried
_Target = Annotated[float | None, Option(help="Accuracy (R²) that you want to reach, e.g. 0.8.")]
_Balance = Annotated[float | None, Option(help="Share of the second of two classes, if publicly known.")]
_Loss = Annotated[str, Option(help="As in a run file: logistic, softmax, squared, huber, ...")]


def plan(
    clients: Annotated[int, Option(help="How many clients there are.")],
    rows: Annotated[int, Option(help="Rows each of them has.")],
    features: Annotated[int, Option(help="Columns, without the label.")],
    epsilon: Annotated[float, Option(help="Total budget of the whole run.")],
    delta: Annotated[float, Option(help="Of the whole run.")] = 1e-5,
    target: _Target = None,
    best: Annotated[float, Option(help="Accuracy (R²) that you expect without privacy.")] = 0.85,
    loss: _Loss = "logistic",
    classes: Annotated[int, Option(help="For softmax.")] = 0,
    lam: Annotated[float, Option(help="Strength of an l2 penalty.")] = 1e-6,
    unit: Annotated[str, Option(help="What is protected: record or client.")] = "record",
    observer: Annotated[str, Option(help="Who must learn nothing: server (sees all messages) or sums.")] = "server",
    least: Annotated[int | None, Option(help="For sums: clients that every sum is over. Default: all.")] = None,
    colluders: Annotated[
        int | None, Option(help="For sums: clients that may share what they know. Default: a third.")
    ] = None,
    row_bound: Annotated[float, Option(help="Length to which longer rows will be scaled down.")] = 1.0,
    balance: _Balance = None,
    seed: Annotated[int, Option(help="Of the synthetic rows and the noise.")] = 0,
    out: Annotated[Path | None, Option(help="Where to save it. Default: runs/plan-<time>.")] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Say which method, rounds and constants a rule chooses, without touching private data, and what to expect.

    The choice follows from sizes and the budget; what to expect, from synthetic rows of the same shape: a forecast, not
    a promise.
    """
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.core import check
        from sottovoce.experiment import run_file, whole_files
        from sottovoce.planning import forecast, words
        from sottovoce.planning.problem import Problem
        from sottovoce.privacy.modes import Proven
        from sottovoce.report import figures

        check.whole("plan", clients=clients, rows=rows)
        check.require(clients <= _MOST_CLIENTS, "plan", f"clients must be at most {_MOST_CLIENTS}", clients)
        table = {"loss": loss, "penalty": "l2", "lam": lam} | ({"classes": classes} if classes else {})
        objective = run_file.build_objective(table, "plan")
        # Which units and observers there are, `Proven` checks.
        of_what, seen_by = cast(Literal["record", "client"], unit), cast(Literal["server", "sums"], observer)
        privacy = Proven(epsilon, delta, unit=of_what, observer=seen_by, least=least, colluders=colluders)
        problem = Problem([rows] * clients, features, privacy, objective, row_bound, best, target, seed, balance)
        with terminal.output_folder(out, "plan") as path:
            chosen = forecast.forecast(forecast.choose(problem, progress), progress)
            numbers = words.to_dict(chosen)
            files = {NUMBERS: whole_files.json_bytes(numbers), RUN_FILE: chosen.run_file().encode()}
            whole_files.write_folder(path, files | {FIGURE: figures.plan(numbers)})
    terminal.show(as_json, quiet, {"folder": str(path), **numbers}, [str(path)], lambda: _print(numbers, path))


def _print(numbers: Json, path: Path) -> None:
    """The settings that came last, the reasons, and what cannot be known."""
    from sottovoce.planning.problem import TO_DO

    title = f"{numbers['clients']} clients, {numbers['rows']} synthetic rows, {numbers['features']} columns"
    cells = []
    for place, trial in enumerate(numbers["tried"][:_SHOWN]):
        method = f"{'  ' if place else '→ '}{trial['words']}"
        auc = "" if trial["auc"] is None else f"{trial['auc']:.3f}"
        constants = f"{trial['rounds']}", f"{trial['clip']:.3g}"
        cells.append([method, *constants, f"{trial['mean']:.1%}", auc, f"{trial['seeds']}"])
    headings = ["method", "rounds", "clip", f"expected\n{numbers['measure']}", "expected\nAUC", "seeds"]
    tables.print_table(headings, cells, {"method"}, title)
    for reason in numbers["reasons"]:
        tables.note(f"• {reason}")
    tables.note("What this cannot know:")
    for sentence in numbers["cannot_know"]:
        tables.note(f"• {sentence}")
    tables.note(f"Saved in {path}: {RUN_FILE} to run, {FIGURE}, {NUMBERS}. {TO_DO}")
