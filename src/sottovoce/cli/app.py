"""`sottovoce app`."""

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show

_SERVER = '''"""The server's half, as `run.toml` describes it. All of it is in the installed package."""

from pathlib import Path

from sottovoce.deploy.flower.app import server_app

app = server_app(Path(__file__).with_name("run.toml"))
'''
_CLIENT = '''"""The client's half. Its data, limits and ledger are named in a file of its own, and nowhere here."""

from sottovoce.deploy.flower.app import client_app

app = client_app()
'''


def app(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the app. Must not exist.")],
    config: Annotated[Path, typer.Option(help="The run file, with a table [clients].")],
    out: Annotated[
        Path | None, typer.Option(help="Where the server keeps the run: checkpoint, then result. Default: runs/<name>.")
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Share out the rows of [data] too: client i gets DIR/i/node.toml, for a try in Flower's simulation.",
        ),
    ] = None,
    as_json: terminal.Json = False,
) -> None:
    """Write a Flower app that trains across machines what a TOML file describes. `sottovoce flower run DIR` starts it.

    Noise comes from the clients' operating systems unless the file asks for seeded noise. Starting the app again goes
    on with the same experiment from its last round; a new experiment is a new app.

    With --nodes the file's [data] stands for the clients, all on this machine: see docs/deploy.md, section 7.
    """
    with terminal.exit_codes():
        from sottovoce.core import check
        from sottovoce.deploy import split_to_nodes as share_out
        from sottovoce.deploy.deployment import Deployment
        from sottovoce.experiment import run_file
        from sottovoce.experiment.tables import read_tables, to_toml

        tables = read_tables(config, run_file.TABLES)
        tables["run"] = {"name": run_file.folder_name(config.stem)} | tables.get("run", {})
        all_here = None if nodes is None else run_file.build(tables, config.name, config.parent)
        if all_here is not None:
            tables["clients"] = all_here.data().federation.clients_table() | tables.get("clients", {})
        deployment = Deployment.build(tables, config.name, config.parent)
        runs = (out or Path("runs") / f"{deployment.settings.name}-{terminal.now()}").resolve()
        inside = runs == folder.resolve() or folder.resolve() in runs.parents
        check.require(not inside, "app", "--out must not be inside DIR, which is sent to the clients", str(runs))
        if all_here is not None and nodes is not None:
            share_out.write(nodes, all_here, deployment.task)
        name = write(folder, to_toml(deployment.tables), runs)
        if as_json:
            show.print_json({"folder": str(folder), "experiment": name, "out": str(runs)})
        else:
            if nodes is not None:
                show.note(f"Shared out the rows to {len(deployment.clients.names)} clients in {nodes}.")
            show.note(f"Wrote the app {folder} (experiment {name}). Its result will be in {runs}, on the server.")
            show.note(f"Start it with: sottovoce flower run {folder} <connection> --stream")


def write(folder: Path, run_file: str, runs: Path) -> str:
    """The app's files, all or none; returns the name of its experiment."""
    import secrets
    from importlib import metadata

    from sottovoce.experiment import whole_files
    from sottovoce.experiment.tables import to_toml

    name = secrets.token_hex(16)
    try:
        needs = [f"{package}=={metadata.version(package)}" for package in ("sottovoce", "flwr")]
    except metadata.PackageNotFoundError as error:
        from sottovoce.core.check import MissingData

        raise MissingData("app: Flower is not installed. Install it with: pip install 'sottovoce[flower]'") from error
    tables = {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": "sottovoce-app",
            "version": "1.0.0",
            "description": "One training run over data that stays with its owners",
            "license": "Apache-2.0",
            "dependencies": needs,
        },
    }
    flower_tables = {
        "app": {"publisher": "sottovoce"},
        "app.components": {
            "serverapp": "sottovoce_app.server_app:app",
            "clientapp": "sottovoce_app.client_app:app",
        },
        "app.config": {"experiment": name, "folder": str(runs)},
    }
    blocks = [to_toml({"x": table}).replace("[x]", f"[tool.flwr.{key}]", 1) for key, table in flower_tables.items()]
    with whole_files.new_folder(folder) as made:
        package = made / "sottovoce_app"
        package.mkdir()
        for path, text in (
            (made / "pyproject.toml", "\n".join([to_toml(tables), *blocks])),
            (package / "__init__.py", ""),
            (package / "server_app.py", _SERVER),
            (package / "client_app.py", _CLIENT),
            (package / "run.toml", run_file),
        ):
            path.write_text(text, encoding="utf-8")
    return name
