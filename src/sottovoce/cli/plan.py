"""`sottovoce plan`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show

NUMBERS, FIGURE, RUN_FILE = "plan.json", "plan.png", "run.toml"
_MOST_CLIENTS = 100_000


def plan(
    clients: Annotated[int, typer.Option(help="How many clients there are.")],
    rows: Annotated[int, typer.Option(help="Rows each of them has.")],
    features: Annotated[int, typer.Option(help="Columns, without the label.")],
    epsilon: Annotated[float, typer.Option(help="Total budget of the whole run.")],
    delta: Annotated[float, typer.Option(help="Of the whole run.")] = 1e-5,
    target: Annotated[
        float | None, typer.Option(help="Accuracy (R²) to reach with the fewest rounds, e.g. 0.8.")
    ] = None,
    best: Annotated[float, typer.Option(help="Accuracy (R²) you believe in without privacy.")] = 0.85,
    loss: Annotated[str, typer.Option(help="As in a run file: logistic, softmax, squared, huber, ...")] = "logistic",
    classes: Annotated[int, typer.Option(help="For softmax.")] = 0,
    lam: Annotated[float, typer.Option(help="Strength of an l2 penalty.")] = 1e-6,
    unit: Annotated[str, typer.Option(help="What is protected: record or client.")] = "record",
    row_bound: Annotated[float, typer.Option(help="Length to which longer rows will be scaled down.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the made-up rows and the noise.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Where to save it. Default: runs/plan-<time>.")] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Choose method, rounds, step, clip and noise without touching private data, and say what to expect.

    Everything is tried on made-up rows of the same shape: a forecast, not a promise.
    """
    with terminal.exit_codes():
        from typing import cast

        from sottovoce.core import check
        from sottovoce.experiment import run_file, whole_files
        from sottovoce.planning import forecast as plans
        from sottovoce.planning import words as plan_words
        from sottovoce.report import figures as plot

        check.whole("plan", clients=clients, rows=rows)
        check.require(clients <= _MOST_CLIENTS, "plan", f"clients must be at most {_MOST_CLIENTS}", clients)
        table: dict[str, Any] = {"loss": loss, "penalty": "l2", "lam": lam} | ({"classes": classes} if classes else {})
        goal = run_file.build_objective(table, "plan")
        default = Path("runs") / f"plan-{terminal.now()}"
        with whole_files.reserved(out) if out else whole_files.reserved(default, numbered=True) as path:
            with terminal.progress(quiet) as progress:
                chosen = plans.choose(
                    [rows] * clients,
                    features,
                    epsilon=epsilon,
                    delta=delta,
                    objective=goal,
                    unit=cast(Any, unit),
                    row_bound=row_bound,
                    best=best,
                    target=target,
                    seed=seed,
                    progress=progress,
                )
                chosen = plans.forecast(chosen, progress)
            said = plan_words.to_dict(chosen)
            with whole_files.new_folder(path) as folder:
                whole_files.write_json(folder / NUMBERS, said)
                (folder / RUN_FILE).write_text(chosen.run_file(), encoding="utf-8")
                plot.plan(said, folder / FIGURE)
        if as_json:
            show.print_json({"folder": str(path), **said})
        elif quiet:
            typer.echo(str(path))
        else:
            show.print_plan(said)
            show.note(f"Saved in {path}: {RUN_FILE} to run, {FIGURE}, {NUMBERS}. {plans.TO_DO}")
