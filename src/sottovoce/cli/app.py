"""`sottovoce app`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from sottovoce.cli import terminal
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.experiment.run_file import Experiment
    from sottovoce.experiment.tables import Tables


def app(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where to write the app. Must not exist.")],
    config: Annotated[Path, Option(help="The run file, with a table [clients].")],
    out: Annotated[
        Path | None, Option(help="Where the server keeps the run: checkpoint, then result. Default: runs/<name>.")
    ] = None,
    nodes: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Also share out the rows of [data]: client i gets DIR/i/node.toml, for a test in Flower's simulation.",
        ),
    ] = None,
    as_json: terminal.Json = False,
) -> None:
    """Write a Flower app that trains across machines what a TOML file describes. `sottovoce flower run DIR` starts it.

    Noise comes from the clients' operating systems unless the file asks for seeded noise. Starting the app again
    continues the same experiment from its last round; a new experiment is a new app.

    With --nodes all clients are on this machine, and their rows come from the file's [data]: see docs/deploy.md,
    section 12.
    """
    with terminal.progress(False, as_json):
        from sottovoce.core import check
        from sottovoce.deploy import setup_node
        from sottovoce.deploy.deployment import Deployment
        from sottovoce.deploy.flower import app_folder
        from sottovoce.experiment import run_file
        from sottovoce.experiment.tables import to_toml

        settings = run_file.tables_of(config)
        all_rows = None if nodes is None else run_file.build(settings, config.name, config.parent)
        if all_rows is not None:
            data = all_rows.data()
            settings["clients"] = data.federation.clients_table() | settings.get("clients", {})
            settings |= {} if data.schema is None else {"schema": data.schema.to_tables()}
            settings |= _written_out(settings, all_rows)
        deployment = Deployment.build(settings, config.name, config.parent)
        runs = (out or Path("runs") / f"{deployment.settings.name}-{terminal.now()}").resolve()
        inside = runs == folder.resolve() or folder.resolve() in runs.parents
        check.require(not inside, "app", "--out must not be inside DIR, which is sent to the clients", str(runs))
        if all_rows is not None and nodes is not None:
            setup_node.split_to_nodes(nodes, all_rows, deployment.task)
        name = app_folder.write(folder, to_toml(deployment.tables), runs)

    def text() -> None:
        if nodes is not None:
            tables.note(f"Shared out the rows to {len(deployment.clients.names)} clients in {nodes}.")
        tables.note(f"Wrote the app {folder} (experiment {name}). Its result will be in {runs}, on the server.")
        tables.commands("Start it with:", f"sottovoce flower run {folder} <connection> --stream")

    terminal.show(as_json, False, {"folder": str(folder), "experiment": name, "out": str(runs)}, [], text)


def _written_out(settings: "Tables", run: "Experiment") -> "Tables":
    """What follows from the sizes of clients, which a server does not know: constants, rounds, weights of records."""
    from sottovoce.experiment.tables import describe_task

    run = run.chosen()
    settled = describe_task(run.task.settled(run.task.objective.on(run.data().federation)))
    clip = {"clip": settled["privacy"]["clip"]} if "clip" in settled["privacy"] else {}
    return {name: settled[name] for name in ("objective", "algorithm", "choice") if name in settled} | {
        "privacy": settings["privacy"] | clip,  # noise is secure unless the file says otherwise
        "run": settings["run"] | {"rounds": run.settings.rounds},
    }
