"""`sottovoce audit`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show

_PATHS = (
    "plain, variants, float32, kernel, secure, client, add-remove, laplace, fixed-size, poisson, columns, ledgers, "
    "resume, seeds; by default plain and fixed-size, where the method has them."
)
_WHAT = "A method's name, which is then attacked with worst-case canaries; or a run file, for your own data."


def audit(
    what: Annotated[str | None, typer.Argument(metavar="METHOD|FILE.toml", help=_WHAT)] = None,
    mode: Annotated[str, typer.Option(help="published or proven.")] = "proven",
    epsilon: Annotated[float, typer.Option(help="What is promised: in total (proven), a round (published).")] = 1.0,
    delta: Annotated[float, typer.Option(help="0 for Laplace noise.")] = 1e-5,
    clip: Annotated[float, typer.Option(help="Clip norm of proven noise.")] = 1.0,
    unit: Annotated[
        str, typer.Option(help="What is protected: record or client; column or party where columns are split.")
    ] = "record",
    relation: Annotated[str, typer.Option(help="replace-one or add-remove.")] = "replace-one",
    rounds: Annotated[int, typer.Option(help="Rounds of a run.")] = 20,
    clients: Annotated[int | None, typer.Option(help="Default: 10; 1 for methods that ask for arg-mins.")] = None,
    records: Annotated[int, typer.Option(help="Records of a client.")] = 10,
    features: Annotated[int, typer.Option(help="Columns.")] = 5,
    runs: Annotated[int, typer.Option(help="Runs to play where something has to be sampled.")] = 20_000,
    statistic: Annotated[
        str, typer.Option(help="auto: the strongest that applies. score: trusts nothing but what was seen.")
    ] = "auto",
    confidence: Annotated[float, typer.Option(help="Of a sampled bound.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the runs.")] = 0,
    one_run: Annotated[bool, typer.Option("--one-run", help="FILE.toml: one training run, canaries in it.")] = False,
    canaries: Annotated[int, typer.Option(help="How many, for --one-run.")] = 500,
    membership: Annotated[
        bool, typer.Option("--membership", help="FILE.toml: can the final model's loss tell its rows from others?")
    ] = False,
    papers: Annotated[
        bool, typer.Option("--papers", help="Every claim of the papers and every proven variant.")
    ] = False,
    paths: Annotated[
        list[str] | None, typer.Option("--path", help="What to look at noise on; may be given again. " + _PATHS)
    ] = None,
    all_paths: Annotated[bool, typer.Option("--all-paths", help="All of them: a minute or two.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where --papers writes audit.md and audit.png (default: docs), --membership its figure."),
    ] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Measure from below what messages give away, and hold it against what is claimed. Ctrl-C: the result so far.

    Then look at the code itself: is the noise of the promised size, new every time and unrelated to anything, are
    records clipped, are batches drawn as promised, is every answer charged, and does a second accountant agree?

    Exit code: 0 not refuted, 7 refuted, 8 suspicious. A paper's claim that this library says is false is refuted too
    (four of five are, with --mode published). --papers ends with 7 only if something proven is refuted.
    """
    with terminal.exit_codes():
        from sottovoce.core import check

        check.require(
            sum((papers, one_run, membership)) <= 1, "audit", "takes one of --papers, --one-run, --membership"
        )
        if papers:
            check.require(what is None, "audit", "--papers takes no method", what)
            _papers(out or Path("docs"), runs, as_json, quiet)
            return
        check.require(what is not None, "audit", "needs a method (see: sottovoce list), a FILE.toml, or --papers")
        assert what is not None
        is_file = what.endswith(".toml")
        check.require(
            is_file or not (one_run or membership), "audit", "--one-run and --membership need a FILE.toml", what
        )
        if membership:
            _membership(Path(what), out, as_json, quiet)
            return
        with terminal.progress(quiet) as progress:
            if one_run:
                from sottovoce.auditing import single as audit_single
                from sottovoce.experiment import run_file

                found = audit_single.one_run(run_file.load(Path(what)), canaries, seed, confidence, progress)
            else:
                shape = {"clients": clients, "records": records, "features": features}
                promise = (mode, epsilon, delta, clip, unit, relation)
                game = _of_file(Path(what)) if is_file else _of_method(what, promise, rounds, **shape)
                how = (runs, seed, statistic, confidence)
                found = _played(game, how, paths, all_paths, is_file, progress)
        _tell(found, as_json, quiet)


def _played(game: Any, how: tuple[Any, ...], paths: list[str] | None, every: bool, is_file: bool, progress: Any) -> Any:
    """The game, and then the checks of the paths that were asked for."""
    from dataclasses import replace

    from sottovoce.auditing import audit as audits
    from sottovoce.auditing import paths as audit_paths
    from sottovoce.core import check

    known = audit_paths.paths_of(game)
    for path in paths or ():
        check.one_of("audit", "path", path, known)
    wanted = known if every else paths or [path for path in audit_paths.USUAL if path in known]
    runs, seed, statistic, confidence = how
    # Secure noise follows the same law; the checks look at it as it is.
    secure = getattr(game.privacy, "noise", "seeded") == "secure"
    played = replace(game, privacy=replace(game.privacy, noise="seeded")) if secure else game
    found = audits.audit(played, runs, seed, statistic, confidence, progress)
    if found.interrupted:
        return found
    checks = audit_paths.examine(game, wanted, seed, own_data=is_file, progress=progress)
    return replace(found, checks=tuple(checks))


def _tell(found: Any, as_json: bool, quiet: bool) -> None:
    """Print what was found, and end with the code that says it."""
    if as_json:
        show.print_json(found.to_dict())
    elif quiet:
        typer.echo(found.verdict)
        for one in found.checks:
            typer.echo(f"{one.path}\t{one.name}\t{one.verdict}")
    else:
        if found.checks:
            from sottovoce.report import audits as audit_show

            audit_show.print_checks(found.checks)
        show.note(str(found))
    codes = {"refuted": terminal.REFUTED, "suspicious": terminal.SUSPICIOUS}
    if found.verdict in codes:
        raise typer.Exit(codes[found.verdict])


def _of_file(path: Path) -> Any:
    """The game of a run file: its own data, the longest record changed."""
    from sottovoce.auditing import audit as audits
    from sottovoce.auditing.neighbours import own_record
    from sottovoce.core import check
    from sottovoce.experiment import run_file
    from sottovoce.problems.federation import Federation

    todo = run_file.load(path)
    federation, privacy = todo.data().federation, todo.task.privacy
    by_rows = isinstance(federation, Federation)
    check.require(by_rows, path.name, "an audit of own data is for rows; columns are split here")
    assert isinstance(federation, Federation)
    neighbours = own_record(federation, todo.task.objective.loss, getattr(privacy, "relation", "replace-one"))
    promise: Any = privacy
    return audits.Game(todo.task.algorithm, neighbours, todo.task.objective, promise, todo.settings.rounds)


def _of_method(
    name: str, promise: tuple[Any, ...], rounds: int, clients: int | None, records: int, features: int
) -> Any:
    """The game of a method with its usual constants against a worst-case canary."""
    from sottovoce.algorithms import ALGORITHMS
    from sottovoce.auditing import audit as audits
    from sottovoce.core import check
    from sottovoce.core.contract import VerticalAlgorithm
    from sottovoce.privacy.modes import Proven, Published

    mode, epsilon, delta, clip, unit, relation = promise
    method = ALGORITHMS[check.one_of("audit", "method", name, ALGORITHMS)]()
    check.one_of("audit", "mode", mode, ("published", "proven"))
    privacy: Any = Published(epsilon, delta)
    if mode == "proven" and isinstance(method, VerticalAlgorithm):
        privacy = audits.columns_promise(epsilon, delta, unit)
    elif mode == "proven":
        noise: Any = "laplace" if delta == 0 else "gaussian"
        privacy = Proven(epsilon, delta, clip, unit, relation, noise)
    if clients is None:
        clients = 1 if method.asks().only.kind == "argmin" else 10
    return audits.worst_case(method, privacy, rounds, clients, records, features)


def _papers(out: Path, runs: int, as_json: bool, quiet: bool) -> None:
    import time

    from sottovoce.auditing import papers as audit_papers
    from sottovoce.experiment import whole_files
    from sottovoce.report import audits as audit_show

    begun, rows = time.perf_counter(), []
    interrupted = False
    with terminal.progress(quiet) as progress:
        try:
            for row in audit_papers.rows(runs, progress):
                rows.append(row)
                progress(f"{row.method:<12.12}", len(rows), 0)
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = True
    if not interrupted:
        whole_files.replace_file(out / "audit.md", audit_show.markdown(rows).encode())
        whole_files.replace_file(out / "audit.png", audit_show.figure(rows))
    if as_json:
        show.print_json({"rows": [row.to_dict() for row in rows], "interrupted": interrupted})
    elif quiet:
        for row in rows:
            typer.echo(f"{row.method}\t{row.claim}\t{row.verdict}")
    else:
        audit_show.print_rows(rows)
        took = f"{len(rows)} audits in {time.perf_counter() - begun:.0f} s"
        written = "interrupted: nothing was written" if interrupted else f"written to {out / 'audit.md'} and audit.png"
        show.note(f"{took}; {written}")
    if any(row.refuted and row.claim.startswith("proven") for row in rows):
        raise typer.Exit(terminal.REFUTED)


def _membership(path: Path, out: Path | None, as_json: bool, quiet: bool) -> None:
    from sottovoce.auditing import single as audit_single
    from sottovoce.experiment import run_file, whole_files
    from sottovoce.report import audits as audit_show

    with terminal.progress(quiet) as progress:
        curve, summary = audit_single.membership(run_file.load(path), progress)
    if out is not None:
        whole_files.replace_file(out, audit_show.membership_figure(curve, summary))
    if as_json:
        show.print_json(summary)
        return
    if quiet:
        typer.echo(f"{summary['area']:.4f}")
        return
    show.note(
        f"{summary['method']}: attack by the final model's loss, {summary['members']} training rows against "
        f"{summary['others']} others. Area under the curve {curve.area:.4f} (0.5: blind); true positives at 0.1 % "
        f"false ones {summary['true_positives_at_0.001']:.2%}, at 1 % {summary['true_positives_at_0.01']:.2%}."
    )
    show.note(
        "This is a weak attack on typical rows: a blind one is no evidence of privacy."
        + (f" Figure: {out}" if out is not None else " --out roc.png draws the curve.")
    )
