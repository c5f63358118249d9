"""`sottovoce server`: what the one does who carries messages between the owners of rows."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from sottovoce.cli import terminal
from sottovoce.report import tables

server = Typer(help="The server of a study: set it up, let nodes join, start it, train.")
Folder = Annotated[Path, Argument(metavar="DIR", help="The server's folder.")]


@server.command("init")
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where to write it. Must not exist.")],
    host: Annotated[
        list[str] | None,
        Option(help="Name or address under which nodes reach it; repeatable. None: this machine alone."),
    ] = None,
    port: Annotated[int, Option(help="For nodes.")] = 8700,
    operator_port: Annotated[int, Option(help="For the operator's commands, on this machine alone.")] = 8701,
    schema: Annotated[Path | None, Option(help="The study's schema; nodes then compare theirs with it.")] = None,
    days: Annotated[int, Option(help="How long its certificate is valid.")] = 365,
    compose: Annotated[bool, Option("--compose", help="Also write a file for Docker Compose.")] = False,
    as_json: terminal.Json = False,
) -> None:
    """Set up a server: certificates, ports, a systemd unit; prints the line of text that every node needs."""
    from sottovoce.deploy import setup_server
    from sottovoce.problems.schema import Schema

    digest = "" if schema is None else Schema.from_toml(schema).digest()
    line = setup_server.make(folder, host or [], port, operator_port, days, digest, compose)

    after = "Next, with the lines that they send back:", f"sottovoce server add {folder} LINE..."
    terminal.show_line(as_json, folder, line, "every node", setup_server.LINE, *after)


@server.command("add")
def add(
    folder: Folder,
    lines: Annotated[list[str], Argument(metavar="LINE...", help="Lines of nodes, or files that hold one each.")],
    as_json: terminal.Json = False,
) -> None:
    """Let nodes join, by the lines that they sent. A running server sees them within seconds."""
    from sottovoce.deploy import setup_server

    new = setup_server.add(folder, lines)

    def text() -> None:
        if new:
            fingerprints = (f"{line.fingerprint}  {line.name}" for line in new)
            tables.commands("These may join now. Make sure of their keys by telephone:", *fingerprints)
        if not new:
            tables.note("They could join before; nothing changed.")
        train, keep_up = f"sottovoce server train {folder} RUN.toml", f"sottovoce server start {folder}"
        tables.commands("Next (`start` keeps it up, `train` alone starts it for one run):", keep_up, train)

    terminal.show(as_json, False, {"added": {line.name: line.fingerprint for line in new}}, [], text)


@server.command("start")
def start(folder: Folder) -> None:
    """Serve until interrupted: nodes come in, and runs can be started."""
    from sottovoce.cli.flower import flower_environment, start_superlink
    from sottovoce.deploy import setup_server

    environment = flower_environment() | {"FLWR_HOME": str((folder / setup_server.FLOWER).absolute())}
    start_superlink(setup_server.arguments(folder, setup_server.read(folder)), environment)


@server.command("train")
def train(
    folder: Folder,
    run: Annotated[Path | None, Argument(metavar="RUN.toml", help="The run file, with a table [clients].")] = None,
    out: Annotated[Path | None, Option(help="Where the result goes. Default: DIR/runs/<name>-<time>.")] = None,
    resume: Annotated[Path | None, Option(metavar="RUN_DIR", help="Go on with a run that was stopped.")] = None,
) -> None:
    """Train what a run file describes over the nodes; starts the server for as long as that takes, if it is not up."""
    with terminal.progress(quiet=False):
        from sottovoce.core import check
        from sottovoce.deploy import training

        check.require((run is None) != (resume is None), "server train", "give either RUN.toml or --resume RUN_DIR")
        if run is not None:
            job = training.prepare(folder, run, out, f"{run.stem}-{terminal.now()}")
        else:
            job = training.resumed(folder, resume or Path())
    tables.complain(f"The result will be in {job.out}. What happens meanwhile: sottovoce status {folder}")
    with terminal.ended_like_ctrl_c():
        try:
            training.run(job, terminal.progress(quiet=False))
        except KeyboardInterrupt:
            hint = f"Go on with: sottovoce server train {folder} --resume {job.out}"
            raise terminal.Interrupted(f"Interrupted. {hint}") from None
    tables.commands("Done. See:", f"sottovoce report {job.out}")


@server.command("predict")
def predict(
    folder: Folder,
    run: Annotated[Path, Argument(metavar="RUN_DIR", help="A finished run of masked-moments of this server.")],
    ids: Annotated[Path, Argument(metavar="IDS", help="Ids of new samples, one on each line.")],
    out: Annotated[Path, Option(help="The CSV file to write. Must not exist.")] = Path("predictions.csv"),
) -> None:
    """Predict for samples whose columns are split: owners send masked parts of each score, and only sums are seen.

    Owners answer for the samples in the table [predict] of their files, as many a day as they allow.
    """
    from sottovoce.deploy import training

    with terminal.ended_like_ctrl_c():
        job = training.prediction(folder, run, ids, out, f"predict-{terminal.now()}")
        training.run(job, terminal.progress(quiet=False))
    tables.note(f"Wrote {out}.")
