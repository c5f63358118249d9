"""`sottovoce audit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from typer import Argument, Exit, Option

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.auditing.finding import Finding
    from sottovoce.auditing.game import Game, Promise
    from sottovoce.core.contract import Method
    from sottovoce.privacy.modes import ProvenColumns

_PATHS = (
    "plain, variants, float32, kernel, secure, client, add-remove, laplace, fixed-size, poisson, columns, ledgers, "
    "resume, sums, seeds, held-out; by default plain and fixed-size, where the method has them."
)
_What = Annotated[
    str | None,
    Argument(
        metavar="METHOD|FILE.toml",
        help="A method's name, which is then attacked with worst-case canaries; or a run file, for your own data.",
    ),
]
_Unit = Annotated[str, Option(help="What is protected: record or client; column or party where columns are split.")]
_Statistic = Annotated[str, Option(help="auto: the strongest that applies. score: trusts nothing but what was seen.")]
_OneRun = Annotated[bool, Option("--one-run", help="FILE.toml: one training run, with canaries in it.")]
_Membership = Annotated[
    bool, Option("--membership", help="FILE.toml: can the final model's loss tell its rows from others?")
]
_Papers = Annotated[bool, Option("--papers", help="Every claim of the papers and every proven variant.")]
_Path = Annotated[
    list[str] | None, Option("--path", help=f"A way through the code to check; may be repeated. {_PATHS}")
]
_Out = Annotated[
    Path | None, Option(help="Where --papers writes audit.md and audit.png (default: docs), --membership its figure.")
]


def audit(
    what: _What = None,
    mode: Annotated[str, Option(help="published or proven.")] = "proven",
    epsilon: Annotated[float, Option(help="What is promised: in total (proven), a round (published).")] = 1.0,
    delta: Annotated[float, Option(help="0 for Laplace noise.")] = 1e-5,
    clip: Annotated[float, Option(help="Clip norm of proven noise.")] = 1.0,
    unit: _Unit = "record",
    relation: Annotated[str, Option(help="replace-one or add-remove.")] = "replace-one",
    rounds: Annotated[int, Option(help="Rounds of a run.")] = 20,
    clients: Annotated[int | None, Option(help="Default: 10; 1 for methods that ask for arg-mins.")] = None,
    records: Annotated[int, Option(help="Records of a client.")] = 10,
    features: Annotated[int, Option(help="Columns.")] = 5,
    observer: Annotated[str, Option(help="server (sees all messages) or sums, with the usual colluders.")] = "server",
    runs: Annotated[int, Option(help="Runs to play where something has to be sampled.")] = 20_000,
    statistic: _Statistic = "auto",
    confidence: Annotated[float, Option(help="Of a sampled bound.")] = 0.95,
    seed: Annotated[int, Option(help="Of the runs.")] = 0,
    one_run: _OneRun = False,
    canaries: Annotated[int, Option(help="How many, for --one-run.")] = 500,
    membership: _Membership = False,
    papers: _Papers = False,
    paths: _Path = None,
    all_paths: Annotated[bool, Option("--all-paths", help="All of them: a minute or two.")] = False,
    out: _Out = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """Find out how much messages reveal at least, and compare it with what is claimed. Ctrl-C: the result so far.

    Then check the code itself: is the noise of the promised size, new every time and unrelated to anything, are
    records clipped, are batches drawn as promised, is every answer charged, and does a second accountant agree?

    Exit code: 0 not refuted, 7 refuted, 8 suspicious. A paper's claim that this library says is false is refuted too
    (four of five are, with --mode published). --papers ends with 7 only if something proven is refuted.
    """
    _check_choice(what, papers, one_run, membership)
    name, file = what or "", Path(what or "")
    if papers:
        return _papers(out or Path("docs"), runs, as_json, quiet)
    if membership:
        return _membership(file, out, as_json, quiet)
    sampling = {"runs": runs, "seed": seed, "statistic": statistic, "confidence": confidence}
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.algorithms import ALGORITHMS
        from sottovoce.auditing.game import worst_case
        from sottovoce.auditing.one_run import one_run as train_with_canaries
        from sottovoce.core import check
        from sottovoce.experiment import run_file

        if name.endswith(".toml"):
            progress("reading data", 0, 0)
        if one_run:
            finding = train_with_canaries(run_file.load(file), canaries, seed, confidence, progress)
        elif name.endswith(".toml"):
            finding = _play(_game_of_file(file), sampling, paths or [], all_paths, progress, own_data=True)
        else:
            method = ALGORITHMS[check.one_of("audit", "method", name, ALGORITHMS)]()
            privacy = _promise(method, mode, epsilon, delta, clip, unit, relation, observer)
            if "products" in method.asks().kinds and privacy.mode == "proven":
                from sottovoce.auditing.products import audit_products

                finding = audit_products(cast("ProvenColumns", privacy), clients or 3, seed)
            else:
                clients = clients or (1 if "argmin" in method.asks().kinds else 10)
                game = worst_case(method, privacy, rounds, clients, records, features)
                finding = _play(game, sampling, paths or [], all_paths, progress, own_data=False)
    return _report(finding, as_json, quiet)


def _check_choice(what: str | None, papers: bool, one_run: bool, membership: bool) -> None:
    from sottovoce.core import check

    check.require(papers + one_run + membership <= 1, "audit", "takes one of --papers, --one-run, --membership")
    if papers:
        check.require(what is None, "audit", "--papers takes no method", what)
        return
    check.require(what is not None, "audit", "needs a method (see: sottovoce list), a FILE.toml, or --papers")
    is_file = (what or "").endswith(".toml")
    check.require(is_file or not (one_run or membership), "audit", "--one-run and --membership need a FILE.toml", what)


def _play(
    game: "Game", sampling: Json, paths: list[str], all_paths: bool, progress: terminal.Progress, own_data: bool
) -> "Finding":
    """Play the game, and then check the paths that were asked for."""
    from dataclasses import replace

    from sottovoce.auditing.audit import audit as play
    from sottovoce.auditing.paths import USUAL, examine, paths_of
    from sottovoce.core import check

    known = paths_of(game)
    check.all_of("audit", "path", paths, known)
    wanted = known if all_paths else paths or [path for path in USUAL if path in known]
    # The game is played with seeded noise of the same distribution. The checks are made on the secure noise itself.
    played = replace(game, privacy=replace(game.privacy, noise="seeded")) if game.privacy.secret_noise else game
    finding = play(played, **sampling, progress=progress)
    if finding.interrupted:
        return finding
    return replace(finding, checks=tuple(examine(game, wanted, sampling["seed"], own_data, progress)))


def _game_of_file(path: Path) -> "Game":
    """The game of a run file: its own data, the longest record changed."""
    from sottovoce.auditing.game import Game, relation_of
    from sottovoce.auditing.neighbours import own_record
    from sottovoce.experiment import run_file

    experiment = run_file.load(path)
    rule = "an audit of own data is for rows; columns are split here"
    federation, task = experiment.data().federation.as_rows(path.name, rule), experiment.task
    neighbours = own_record(federation, task.objective.loss, relation_of(task.privacy))
    return Game(task.algorithm, neighbours, task.objective, cast("Promise", task.privacy), task.rounds)


def _promise(
    method: "Method", mode: str, epsilon: float, delta: float, clip: float, unit: str, relation: str, observer: str
) -> "Promise":
    """What is promised; which units, relations and observers there are, the modes check."""
    from sottovoce.auditing.game import columns_promise
    from sottovoce.core import check
    from sottovoce.privacy.modes import Proven, ProvenColumns, Published

    if check.one_of("audit", "mode", mode, ("published", "proven")) == "published":
        return Published(epsilon, delta)
    of_columns = cast(Literal["party", "column", "record"], unit)
    if "products" in method.asks().kinds:
        return ProvenColumns(epsilon, delta, of_columns)
    if method.layout == "columns":
        return columns_promise(epsilon, delta, of_columns)
    of_rows, neighbours = cast(Literal["record", "client"], unit), cast(Literal["replace-one", "add-remove"], relation)
    seen, mechanism = cast(Literal["server", "sums"], observer), "gaussian" if delta else "laplace"
    return Proven(epsilon, delta, clip, of_rows, neighbours, mechanism, observer=seen)


def _report(finding: "Finding", as_json: bool, quiet: bool) -> None:
    """Print what was found, and end with the code that says it."""

    def text() -> None:
        if finding.checks:
            from sottovoce.report import audits

            audits.print_checks(finding.checks)
        tables.note(str(finding))

    lines = [finding.verdict, *(f"{one.path}\t{one.name}\t{one.verdict}" for one in finding.checks)]
    terminal.show(as_json, quiet, finding.to_dict(), lines, text)
    codes = {"refuted": terminal.REFUTED, "suspicious": terminal.SUSPICIOUS}
    if finding.verdict in codes:
        raise Exit(codes[finding.verdict])


def _papers(out: Path, runs: int, as_json: bool, quiet: bool) -> None:
    import time

    begun, rows, interrupted = time.perf_counter(), [], False
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.auditing import papers
        from sottovoce.experiment import whole_files
        from sottovoce.report import audits

        try:
            for row in papers.rows(runs, progress):
                rows.append(row)
                progress(f"{row.method:<12.12}", len(rows), 0)
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = True
    if not interrupted:
        whole_files.replace_file(out / "audit.md", audits.markdown(rows).encode())
        whole_files.replace_file(out / "audit.png", audits.figure(rows))

    def text() -> None:
        audits.print_rows(rows)
        written = "interrupted: nothing was written" if interrupted else f"written to {out / 'audit.md'} and audit.png"
        tables.note(f"{len(rows)} audits in {time.perf_counter() - begun:.0f} s; {written}")

    plain = {"rows": [row.to_dict() for row in rows], "interrupted": interrupted}
    terminal.show(as_json, quiet, plain, [f"{row.method}\t{row.claim}\t{row.verdict}" for row in rows], text)
    if any(row.refuted and row.claim.startswith("proven") for row in rows):
        raise Exit(terminal.REFUTED)


def _membership(path: Path, out: Path | None, as_json: bool, quiet: bool) -> None:
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.auditing.one_run import membership
        from sottovoce.experiment import run_file, whole_files
        from sottovoce.report import audits

        progress("reading data", 0, 0)
        curve, summary = membership(run_file.load(path), progress)
    if out is not None:
        whole_files.replace_file(out, audits.membership_figure(curve, summary))

    def text() -> None:
        tables.note(
            f"{summary['method']}: attack by the final model's loss, {summary['members']} training rows against "
            f"{summary['others']} others. Area under the curve {curve.area:.4f} (0.5: blind); true positives at 0.1 % "
            f"false ones {summary['true_positives_at_0.001']:.2%}, at 1 % {summary['true_positives_at_0.01']:.2%}."
        )
        figure = f"Figure: {out}" if out is not None else "--out roc.png draws the curve."
        tables.note(f"This is a weak attack on typical rows: a blind one is no evidence of privacy. {figure}")

    terminal.show(as_json, quiet, summary, [f"{summary['area']:.4f}"], text)
