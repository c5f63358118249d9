"""`sottovoce run`."""

import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def run(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.toml", help="What to run.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to save it. Default: runs/<name>-<time>.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the interrupted run in DIR.")] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the file's seed.")] = None,
    rounds: Annotated[int | None, typer.Option(help="In place of the file's rounds.")] = None,
    every: Annotated[float, typer.Option("--checkpoint-every", help="Save the state every so many seconds.")] = 2.0,
    track: Annotated[
        str | None, typer.Option(metavar="mlflow", help="Send what may be released of the run to MLflow too.")
    ] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Train what a TOML file describes, and save the run. Ctrl-C keeps the last completed round."""
    with terminal.exit_codes():
        tracker = None if track is None else _tracker(track)
        path, result = _train(file, out, resume, {"seed": seed, "rounds": rounds}, every, quiet)
        from sottovoce.experiment import store
        from sottovoce.experiment.publishable import private_columns, tested_on_owners

        summary, guarantee = store.summary(result), result.guarantee
        summary["not_released"] = sorted(private_columns(result) & result.history.columns.keys())
        tracked = {} if tracker is None else {"tracked": {"where": tracker.where, "run": tracker.log(result, path)}}
        if as_json:
            show.print_json({"folder": str(path), **summary, "guarantee": guarantee.to_dict(), **tracked})
        elif quiet:
            typer.echo(str(path))
        else:
            show.print_table(f"{result.config['run'].get('name', 'run')}", [summary])
            show.note(f"Privacy: {guarantee}")
            if "test_loss" in result.history.columns and tested_on_owners(result.config):
                show.note("Test rows were set aside from the owners' own: test numbers are exact, and not for release.")
            if result.stopped:
                show.note(f"Stopped early, {result.stopped}.")
            show.note(f"Saved in {path}")
            if tracker is not None:
                show.note(f"Sent to MLflow at {tracker.where}, without what was read off private rows")


def _tracker(name: str) -> Any:
    from sottovoce.report.track import Tracker

    return Tracker(name)


def _train(
    file: Path | None, out: Path | None, resume: Path | None, changes: Mapping[str, Any], every: float, quiet: bool
) -> tuple[Path, Any]:
    from sottovoce.core import check
    from sottovoce.experiment import run_file, saved, store, whole_files
    from sottovoce.report import figures

    changes = {name: value for name, value in changes.items() if value is not None}
    if resume is None:
        check.require(file is not None, "run", "needs FILE.toml, or --resume DIR")
        assert file is not None
        todo = run_file.load(file, **changes)
        name = f"{todo.settings.name}-{terminal.now()}"
        place = whole_files.reserved(out) if out else whole_files.reserved(Path("runs") / name, numbered=True)
    else:
        alone = file is None and out is None and not changes
        check.require(alone, "run", "--resume takes everything from its folder; give it alone")
        saved.must_be_unfinished(resume)
        todo, place = run_file.load(resume / store.CONFIG), nullcontext(resume)
    with place as path, terminal.progress(quiet) as progress:
        keep = None
        try:
            progress("reading data", 0, 0)
            config, rows, done = todo.described(), todo.data().federation, None
            if resume is not None:
                done = saved.load_checkpoint(path, todo.task, rows, config)
            keep = store.Checkpoints(path, config, rows, every, done)

            def after_round(checkpoint: Any) -> None:
                keep(checkpoint)
                progress(todo.task.algorithm.name, checkpoint.k, todo.settings.rounds)

            result = todo.train(after_round, done)
            if result.rounds == 0:  # nothing was learnt: an untrained model is not a result
                raise check.BudgetSpent(f"run: no round could be done, {result.stopped}. Nothing was saved")
            return store.save(result, path, figures.of_run(result)), result
        except KeyboardInterrupt:
            if keep is not None:
                keep.write()
            if not (path / store.CHECKPOINT).exists():
                raise
            when = f" after round {keep.last.k} of {todo.settings.rounds}" if keep and keep.last else ""
            again = f"sottovoce run --resume {shlex.quote(str(path))}"
            raise terminal.Interrupted(f"Interrupted{when}. Go on with: {again}") from None
