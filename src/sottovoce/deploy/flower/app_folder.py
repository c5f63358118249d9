"""Writes the folder of a Flower app: a few lines of code that call the installed package, and the run file."""

import secrets
import tomllib
from importlib import metadata
from pathlib import Path

from sottovoce.core.check import MissingData
from sottovoce.core.plain import Json
from sottovoce.deploy.services import NO_FLOWER
from sottovoce.experiment import store, whole_files
from sottovoce.experiment.tables import to_toml

_SERVER = '''"""The server's half, as `run.toml` describes it. All of its code is in the installed package."""

from pathlib import Path

from sottovoce.deploy.flower.app import server_app

app = server_app(Path(__file__).with_name("run.toml"))
'''
_CLIENT = '''"""The client's half, for Flower's simulation alone: elsewhere `sottovoce node start` answers."""

from sottovoce.deploy.flower.app import client_app

app = client_app()
'''
IDS = "ids"  # in an app's settings: it predicts for these, and trains nothing


def config_of(app: Path) -> Json:
    """The settings in an app's folder: its experiment, and where its result goes."""
    with (app / "pyproject.toml").open("rb") as file:
        return tomllib.load(file).get("tool", {}).get("flwr", {}).get("app", {}).get("config", {})


def left_off(app: Path) -> str:
    """Where the run of this app stands, if it was begun on this machine and is not at its end; else ""."""
    config = config_of(app)
    runs = Path(str(config.get("folder", "")))
    if "experiment" not in config or not (runs / store.CHECKPOINT).is_file() or (runs / store.MODEL).exists():
        return ""
    done = int(whole_files.read_arrays(runs / store.CHECKPOINT)["k"])
    return f"The run stopped after round {done}, which is kept in {runs}."


def write(folder: Path, run_file: str, runs: Path, **settings: str) -> str:
    """Write the app's files, all or none; returns the name of its experiment.

    `runs` is where the result will be. `settings`: progress, the file that says how far it is (`progress.py`); and to
    predict, the name of a finished experiment, ids, a file of those to predict for, and predictions, the file to write.
    """
    config = {"experiment": secrets.token_hex(16), "folder": str(runs), "progress": ""} | settings
    try:
        needs = [f"{package}=={metadata.version(package)}" for package in ("sottovoce", "flwr")]
    except metadata.PackageNotFoundError as error:
        raise MissingData(f"app: {NO_FLOWER}") from error
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
        "app.components": {"serverapp": "sottovoce_app.server_app:app", "clientapp": "sottovoce_app.client_app:app"},
        "app.config": config,
    }
    blocks = [to_toml({"x": table}).replace("[x]", f"[tool.flwr.{key}]", 1) for key, table in flower_tables.items()]
    package = {"__init__.py": "", "server_app.py": _SERVER, "client_app.py": _CLIENT, "run.toml": run_file}
    files = {"pyproject.toml": "\n".join([to_toml(tables), *blocks])}
    files |= {f"sottovoce_app/{name}": text for name, text in package.items()}
    with whole_files.new_folder(folder) as made:
        (made / "sottovoce_app").mkdir()
        whole_files.write_files(made, {name: text.encode() for name, text in files.items()})
    return config["experiment"]
