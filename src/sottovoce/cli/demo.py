"""`sottovoce demo`: one real data set, one budget, three private methods and two observers, and what is best."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, cast

from typer import Option

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables

TABLES: dict[str, Json] = {
    "data": {"name": "adult", "encoding": "schema", "clients": 100, "partition": "iid", "test": 5222, "seed": 0},
    "objective": {"loss": "logistic", "penalty": "l2", "lam": 1e-6},
    "privacy": {"mode": "proven", "epsilon": 1.0, "delta": 1e-5},
    # At this size the compiled kernel saves about as much as its first compilation costs.
    "run": {"seed": 0, "name": "demo", "engine": "numpy", "record_every": 10},
}
METHODS = ("auto", "dp-admm", "dp-sgd")  # constants by rule, from sizes and the budget (`sottovoce.rules`)
SUMMED = "noisy-gd"  # the method that is also shown where only sums are seen
FIGURE, NUMBERS = "comparison.png", "comparison.json"


def demo(
    out: Annotated[Path | None, Option(help="Where to save it. Default: runs/demo-<time>.")] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Train on the Adult data that comes with the package: 100 clients, total ε = 1, δ = 1e-5 per record."""
    with terminal.output_folder(out, "demo") as path, terminal.progress(quiet, as_json) as progress:
        summaries = run(path, progress)

    def text() -> None:
        tables.print_summaries("Adult: 40 000 rows of 100 clients, 5 222 public test rows", summaries)
        proven = [one for one in summaries if one.get("epsilon") is not None]
        for promise in sorted({f"δ = {one['delta']:g}, {one['unit']}; {one['observer']}" for one in proven}):
            tables.note(f"ε is the total of the whole run: {promise}.")
        for one in proven:
            tables.note(f"{one['method']}: {' '.join(one['why'])}")
        tables.note(f"Saved in {path}; a picture is in {path / FIGURE}")

    terminal.show(as_json, quiet, {"folder": str(path), "methods": summaries}, [str(path)], text)


def run(path: Path, progress: terminal.Progress) -> list[Json]:
    """Train, compare, and save everything under `path`, all of it or nothing; one summary per method."""
    from sottovoce.core.round import Checkpoint
    from sottovoce.experiment import optimum, run_file, store, whole_files
    from sottovoce.privacy.modes import Proven
    from sottovoce.report import figures
    from sottovoce.rules import Rule

    first = run_file.build(TABLES, "demo")
    progress("reading data", 0, 0)
    data = first.data()
    assert data.test is not None
    progress(optimum.NAME, 0, 0)
    model, best = optimum.optimum(data.federation, first.task.objective, data.test)
    summaries, histories = [best], {}
    trained: list[tuple[str, Literal["server", "sums"]]] = [*((name, "server") for name in METHODS), (SUMMED, "sums")]
    with whole_files.new_folder(path) as folder:
        for name, observer in trained:
            privacy = replace(cast(Proven, first.task.privacy), observer=observer)
            experiment = first.with_task(replace(first.task, rule=Rule(name), privacy=privacy)).chosen()

            def report(checkpoint: Checkpoint, experiment: run_file.Experiment = experiment) -> None:
                progress(experiment.task.algorithm.name, checkpoint.k, experiment.settings.rounds)

            result = experiment.train(after_round=report)
            method = experiment.task.algorithm.name + (", sums" if observer == "sums" else "")
            store.save(result, folder / method.replace(", ", "-"))
            summaries.append(store.summary(result) | {"method": method, "why": result.remarks})
            histories[method] = result.history
        title = "Adult, 100 clients: total ε = 1, δ = 1e-5 per record"
        files = {
            f"{optimum.NAME}.npz": whole_files.npz_bytes({"model": model}),
            NUMBERS: whole_files.json_bytes({"methods": summaries}),
            FIGURE: figures.convergence(histories, best, "optimum, no privacy", title),
        }
        whole_files.write_files(folder, files)
    return summaries
