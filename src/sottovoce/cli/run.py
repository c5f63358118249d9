"""`sottovoce run`."""

import shlex
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.core.round import Checkpoint
    from sottovoce.experiment.result import Result
    from sottovoce.experiment.run_file import Experiment


def run(
    file: Annotated[Path | None, Argument(metavar="FILE.toml", help="What to run.")] = None,
    out: Annotated[Path | None, Option(help="Where to save it. Default: runs/<name>-<time>.")] = None,
    resume: Annotated[Path | None, Option(metavar="DIR", help="Go on with the interrupted run in DIR.")] = None,
    seed: Annotated[int | None, Option(help="Replaces the file's seed.")] = None,
    rounds: Annotated[int | None, Option(help="Replaces the file's rounds.")] = None,
    every: Annotated[float, Option("--checkpoint-every", help="Save the state after so many seconds.")] = 2.0,
    track: Annotated[
        str | None, Option(metavar="mlflow", help="Send what may be released of the run to MLflow too.")
    ] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Train what a TOML file describes, and save the run. Ctrl-C keeps the last completed round."""
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.core import check
        from sottovoce.experiment import publishable, run_file, saved, store
        from sottovoce.report.track import Tracker

        check.positive("run", **{"--checkpoint-every": every})
        tracker = None if track is None else Tracker(track)
        changes = {name: value for name, value in {"seed": seed, "rounds": rounds}.items() if value is not None}
        if resume is None:
            experiment = run_file.load(check.given(file, "run", "needs FILE.toml, or --resume DIR"), **changes)
            folder = terminal.output_folder(out, experiment.settings.name)
        else:
            alone = file is None and out is None and not changes
            check.require(alone, "run", "--resume takes everything from its folder; give it alone")
            saved.must_be_unfinished(resume)
            experiment, folder = run_file.load(resume / store.CONFIG), nullcontext(resume)
        with terminal.ended_like_ctrl_c() as ended, folder as path:
            result = _train(experiment, path, resume is not None, every, progress, ended)
    plain = {"folder": str(path), **store.summary(result)}
    plain["not_released"] = sorted(publishable.private_columns(result) & result.history.columns.keys())
    plain["guarantee"] = result.guarantee.to_dict()
    plain["evaluations"] = [each.to_dict() for each in result.evaluations]
    if tracker is not None:
        plain["tracked"] = {"where": tracker.where, "run": tracker.log(result, path)}
    terminal.show(as_json, quiet, plain, [str(path)], lambda: _print(result, plain))


def _train(
    experiment: "Experiment",
    path: Path,
    resumed: bool,
    every: float,
    progress: terminal.Progress,
    ended: Callable[[], bool],
) -> "Result":
    """Train and save, with checkpoints on the way."""
    from sottovoce.core.check import BudgetSpent
    from sottovoce.experiment import saved, store
    from sottovoce.report import figures

    checkpoints, rounds = None, 0
    try:
        progress("reading data", 0, 0)
        experiment = experiment.chosen()
        rounds = experiment.settings.rounds
        config, data, last = experiment.described(), experiment.data().federation, None
        if resumed:
            last = saved.load_checkpoint(path, experiment.task, data, config)
        keep = checkpoints = store.Checkpoints(path, config, data, every, last)

        def after_round(checkpoint: "Checkpoint") -> None:
            keep(checkpoint)
            if ended():
                raise KeyboardInterrupt
            progress(experiment.task.algorithm.name, checkpoint.k, rounds)

        progress(experiment.task.algorithm.name, 0 if last is None else last.k, rounds)
        result = experiment.train(after_round, last)
        if result.rounds == 0:  # nothing was learnt: an untrained model is not a result
            raise BudgetSpent(f"run: no round could be done, {result.stopped}. Nothing was saved")
        progress("saving", 0, 0)
        store.save(result, path, figures.of_run(result))
        return result
    except KeyboardInterrupt:
        if checkpoints is not None:
            checkpoints.write()
        if not (path / store.CHECKPOINT).exists():
            raise
        done = f" after round {checkpoints.last.k} of {rounds}" if checkpoints and checkpoints.last else ""
        command = f"sottovoce run --resume {shlex.quote(str(path))}"
        raise terminal.Interrupted(f"Interrupted{done}. Go on with: {command}") from None


def _print(result: "Result", plain: Json) -> None:
    from sottovoce.experiment.publishable import tested_on_owners

    tables.print_summaries(result.config["run"].get("name", "run"), [plain])
    for evaluation in result.evaluations[:1]:
        tables.note(f"{evaluation}")
    for remark in result.remarks:
        tables.note(remark)
    tables.note(f"Privacy: {result.guarantee}")
    if "test_loss" in result.history.columns and tested_on_owners(result.config):
        tables.note("Test rows were set aside from the owners' own: test numbers are exact, and not for release.")
    if result.stopped:
        tables.note(f"Stopped early, {result.stopped}.")
    tables.note(f"Saved in {plain['folder']}")
    if "tracked" in plain:
        tables.note(f"Sent to MLflow at {plain['tracked']['where']}, without what was read off private rows")
