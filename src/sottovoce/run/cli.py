"""The command line. Heavy modules are imported inside the commands: `sottovoce --help` answers at once.

What a program may want to read goes to stdout, everything else (progress, notes, errors) to stderr.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.run import show

DONE, INTERNAL, BAD_INPUT, MISSING, NO_PRIVACY, NOT_WRITTEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
_EXIT_CODES = """Exit codes:
0    done
1    internal error (SOTTOVOCE_DEBUG=1 shows where)
2    bad input
3    a file or a data set is missing
4    no privacy guarantee supports what was asked, or a budget is spent
5    something cannot be written (full disk, no permission)
130  interrupted"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # this file decides what an error looks like
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one model over data that stays with its owners, with privacy guarantees that are true.",
    epilog=_EXIT_CODES,
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes: results only, one per line.")]


def main() -> None:
    """The console entry."""
    import warnings

    warnings.showwarning = lambda message, *_: show.complain(f"warning: {message}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that knows no ε shall not end a run
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        show.complain("Interrupted.")
        sys.exit(INTERRUPTED)


def _version(wanted: bool) -> None:
    if wanted:
        import sottovoce

        typer.echo(f"sottovoce {sottovoce.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself; the text is in `app`."""


@app.command(epilog="Example: sottovoce demo --out runs/first")
def demo(
    out: Annotated[Path | None, typer.Option(help="Where to save it. Default: runs/demo-<time>.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on the Adult data that comes with the package: 100 clients, total ε = 1, δ = 1e-5 per record."""
    with _exit_codes():
        from sottovoce.run import demo as shown
        from sottovoce.run import store

        folder = store.reserved(out) if out else store.reserved(Path("runs") / f"demo-{_now()}", numbered=True)
        with folder as path, _progress(quiet) as progress:
            summaries = shown.run(path, progress)
        if as_json:
            show.print_json({"folder": str(path), "methods": summaries})
        elif quiet:
            typer.echo(str(path))
        else:
            show.print_table("Adult: 40 000 rows of 100 clients, 5 222 public test rows", summaries)
            proven = [one for one in summaries if one.get("epsilon") is not None]
            for said in sorted({f"δ = {one['delta']:g}, {one['unit']}; {one['observer']}" for one in proven}):
                show.note(f"ε is the total of the whole run: {said}.")
            show.note(f"Saved in {path}; a picture is in {path / 'comparison.png'}")


@app.command(epilog="Examples: sottovoce run examples/adult.toml --rounds 50 · sottovoce run --resume runs/adult-...")
def run(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.toml", help="What to run.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to save it. Default: runs/<name>-<time>.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the interrupted run in DIR.")] = None,
    seed: Annotated[int | None, typer.Option(help="In place of the file's seed.")] = None,
    rounds: Annotated[int | None, typer.Option(help="In place of the file's rounds.")] = None,
    every: Annotated[float, typer.Option("--checkpoint-every", help="Save the state every so many seconds.")] = 2.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train what a TOML file describes, and save the run. Ctrl-C keeps the last completed round."""
    with _exit_codes():
        path, result = _train(file, out, resume, {"seed": seed, "rounds": rounds}, every, quiet)
        from sottovoce.run import store

        summary, guarantee = store.summary(result), result.guarantee
        if as_json:
            show.print_json({"folder": str(path), **summary, "guarantee": guarantee.to_dict()})
        elif quiet:
            typer.echo(str(path))
        else:
            show.print_table(f"{result.config['run'].get('name', 'run')}", [summary])
            show.note(f"Privacy: {guarantee}")
            if result.stopped:
                show.note(f"Stopped early, {result.stopped}.")
            show.note(f"Saved in {path}")


def _train(
    file: Path | None, out: Path | None, resume: Path | None, changes: Mapping[str, Any], every: float, quiet: bool
) -> tuple[Path, Any]:
    from sottovoce.core import check
    from sottovoce.run import experiment, store

    changes = {name: value for name, value in changes.items() if value is not None}
    if resume is None:
        check.require(file is not None, "run", "needs FILE.toml, or --resume DIR")
        assert file is not None
        todo = experiment.load(file, **changes)
        name = f"{todo.settings.name}-{_now()}"
        place = store.reserved(out) if out else store.reserved(Path("runs") / name, numbered=True)
    else:
        alone = file is None and out is None and not changes
        check.require(alone, "run", "--resume takes everything from its folder; give it alone")
        store.must_be_unfinished(resume)
        todo, place = experiment.load(resume / store.CONFIG), nullcontext(resume)
    with place as path, _progress(quiet) as progress:
        keep = None
        try:
            progress("reading data", 0, 0)
            config, rows, done = todo.described(), todo.data().federation, None
            if resume is not None:
                done = store.load_checkpoint(path, todo.algorithm, rows, todo.objective, config)
            keep = store.Checkpoints(path, config, rows, every, done)

            def after_round(checkpoint: Any) -> None:
                keep(checkpoint)
                progress(todo.algorithm.name, checkpoint.k, todo.settings.rounds)

            result = todo.train(after_round, done)
            if result.rounds == 0:  # nothing was learnt: an untrained model is not a result
                raise check.BudgetSpent(f"run: no round could be done, {result.stopped}. Nothing was saved")
            return store.save(result, path, figure=True), result
        except KeyboardInterrupt:
            if keep is not None:
                keep.write()
            if not (path / store.CHECKPOINT).exists():
                raise
            when = f" after round {keep.last.k} of {todo.settings.rounds}" if keep and keep.last else ""
            again = f"sottovoce run --resume {shlex.quote(str(path))}"
            raise _Interrupted(f"Interrupted{when}. Go on with: {again}") from None


@app.command("list", epilog="Example: sottovoce list --json")
def list_(as_json: Json = False, quiet: Quiet = False) -> None:
    """Name every algorithm, loss, penalty, participation rule, partition and data set, with their options."""
    with _exit_codes():
        kinds = show.catalogue()
        if as_json:
            show.print_json(kinds)
        elif quiet:
            for kind, entries in kinds.items():
                for entry in entries:
                    typer.echo(f"{kind} {entry['name']}")
        else:
            for kind, entries in kinds.items():
                show.print_catalogue(kind, entries)


@app.command(epilog="Example: SOTTOVOCE_DATA=~/data sottovoce data")
def data(as_json: Json = False, quiet: Quiet = False) -> None:
    """Say which data sets are bundled, which were found, and how to get the rest."""
    with _exit_codes():
        from dataclasses import asdict

        from sottovoce.problems import datasets

        known = [asdict(info) for info in datasets.available()]
        if as_json:
            show.print_json({"folder": os.environ.get(datasets.FOLDER_VARIABLE), "data": known})
        elif quiet:
            for info in known:
                typer.echo(f"{info['name']} {info['status']}")
        else:
            show.print_data(known, datasets.FOLDER_VARIABLE)


@app.command(
    epilog="Examples: sottovoce account --epsilon 1 --rounds 100 · sottovoce account --noise 37 --rounds 100 "
    "· sottovoce account --noise 2 --batch 10 --size 400 --relation add-remove --epsilon 1"
)
def account(
    noise: Annotated[
        float | None, typer.Option(help="Noise multiplier: deviation (Laplace: scale) / sensitivity.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total budget; alone, the noise it needs is computed.")] = None,
    delta: Annotated[float, typer.Option(help="Of the whole run; 0 for Laplace noise.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Rounds a client takes part in.")] = 100,
    answers: Annotated[int, typer.Option(help="Oracle answers a round, e.g. local steps.")] = 1,
    mechanism: Annotated[str, typer.Option(help="gaussian, discrete-gaussian or laplace.")] = "gaussian",
    relation: Annotated[str, typer.Option(help="replace-one, add-remove or replace-client.")] = "replace-one",
    batch: Annotated[int, typer.Option(help="Records drawn for each answer; 0: all.")] = 0,
    size: Annotated[int, typer.Option(help="Records a client has; needed with --batch.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """What noise costs, what a budget needs, and how many rounds it lasts: for one client, with a table over rounds."""
    with _exit_codes():
        from typing import cast, get_args

        from sottovoce.core import check
        from sottovoce.privacy.events import Mechanism, Relation
        from sottovoce.run import account as accounts

        check.one_of("account", "mechanism", mechanism, ("gaussian", "discrete-gaussian", "laplace"))
        check.one_of("account", "relation", relation, get_args(Relation))
        result = accounts.account(
            noise=noise,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            answers_per_round=answers,
            mechanism=cast(Mechanism, mechanism),
            relation=cast(Relation, relation),
            batch=batch,
            size=size,
        )
        if as_json:
            show.print_json(result.to_dict())
        elif quiet:
            typer.echo(f"{result.epsilon:.6g}" if noise is not None else f"{result.event.noise_multiplier:.6g}")
        else:
            show.print_account(result)


# ---------------------------------------------------------------------------------------------------- errors, progress


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C, with a sentence on how to go on."""


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Every refusal is one sentence on stderr and a number that says which kind it was."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # the reader of our output is gone: nothing to say
        raise
    except KeyboardInterrupt as error:
        show.complain(str(error) or "Interrupted. Nothing was saved.")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        code = _code(error)
        if code == INTERNAL and os.environ.get("SOTTOVOCE_DEBUG") == "1":
            raise
        hint = " (an error of the program: please report it; SOTTOVOCE_DEBUG=1 shows where)"
        said = f"{type(error).__name__}: {error}" if code == INTERNAL else str(error)
        show.complain(f"error: {said}{hint if code == INTERNAL else ''}")
        raise typer.Exit(code) from None


def _code(error: Exception) -> int:
    from sottovoce.core.check import BudgetSpent, InvalidInput, MissingData, NoGuarantee, SottovoceError

    kinds = (
        (MissingData, MISSING),
        (InvalidInput, BAD_INPUT),
        (NoGuarantee, NO_PRIVACY),
        (BudgetSpent, NO_PRIVACY),
        (SottovoceError, NOT_WRITTEN),  # what is left: a folder or a ledger
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), INTERNAL)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, if someone is looking: progress(what, done, of how many), 0 for "not known"."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    screen = show.console(stderr=True)
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[what] = bar.add_task(what, total=of or None)
            bar.update(tasks[what], completed=done)

        yield progress


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
