"""One training run of a server's folder: the app is written, the server started if it is not up, and the run followed.

What is started is Flower's own `flwr run`, in a process of its own, with the settings in the server's folder.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Progress
from sottovoce.deploy import progress, setup_server, wire
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.flower import app_folder
from sottovoce.deploy.multiplied_remote import read_ids
from sottovoce.experiment import run_file, store
from sottovoce.experiment.tables import to_toml

_PROGRAM = (sys.executable, "-m", "sottovoce")
_PATIENCE = 120.0  # seconds for a server to start, on a busy machine too


class RunStopped(check.SottovoceError):
    """A run ended without a result, for a reason that its progress names."""


@dataclass(frozen=True)
class Job:
    """One run: the app that is started, and where its result goes."""

    folder: Path
    app: Path
    out: Path
    trains: bool = True


def prepare(folder: Path, file: Path, out: Path | None, name: str) -> Job:
    """Write the app of a new run. Everything that can be wrong with the run file is found here."""
    setup_server.read(folder)
    deployment = Deployment.build(run_file.tables_of(file), file.name, file.parent)
    known = setup_server.known_nodes(folder)
    missing = [who for who in deployment.clients.names if who not in known]
    hint = f"Add it first: sottovoce server add {folder} LINE"
    who = ", ".join(map(repr, missing))
    check.require(not missing, file.name, f"[clients] names {who}, whose line was not added", hint=hint)
    name = run_file.folder_name(name)
    out = (out or folder / setup_server.RUNS / name).absolute()
    app = (folder / setup_server.APPS / name).absolute()
    hint = f"Choose another --out; or go on with it: sottovoce server train {folder} --resume {out}"
    check.require(not out.exists() or not any(out.iterdir()), str(out), "there is a run already", hint=hint)
    app_folder.write(app, to_toml(deployment.tables), out, progress=str((folder / progress.FILE).absolute()))
    return Job(folder, app, out)


def prediction(folder: Path, run: Path, ids: Path, out: Path, name: str) -> Job:
    """Write the app that predicts for a file of ids by the model of a finished run."""
    before = resumed(folder, run)
    there = (run / store.MODEL).exists()
    check.require(there, str(run), "holds no finished run", hint=f"Go on with: server train {folder} --resume {run}")
    check.require(not out.exists(), str(out), "there is such a file already. Choose another name")
    read_ids(ids)
    text = (before.app / "sottovoce_app" / "run.toml").read_text(encoding="utf-8")
    rule = "predictions between machines are for masked-moments; use sottovoce predict on rows with all columns"
    check.require(tomllib.loads(text)["algorithm"]["name"] == "masked-moments", str(run), rule)
    app = (folder / setup_server.APPS / name).absolute()
    files = {"progress": folder / progress.FILE, app_folder.IDS: ids, "predictions": out}
    settings = {key: str(path.absolute()) for key, path in files.items()}
    app_folder.write(app, text, before.out, experiment=app_folder.config_of(before.app)["experiment"], **settings)
    return Job(folder, app, out.absolute(), trains=False)


def resumed(folder: Path, out: Path) -> Job:
    """A run that was started from this folder before."""
    setup_server.read(folder)
    for app in sorted((folder / setup_server.APPS).glob("*/pyproject.toml"), reverse=True):
        config = app_folder.config_of(app.parent)
        if Path(config["folder"]) == out.absolute() and app_folder.IDS not in config:
            return Job(folder, app.parent.absolute(), out.absolute())
    raise check.MissingData(f"{out}: no run of {folder} goes there. Its runs: {folder / setup_server.RUNS}")


def run(job: Job, waiting: contextlib.AbstractContextManager[Progress]) -> None:
    """Start it, and show what its server says until it ends; an interruption stops it there too.

    `waiting` is told what goes on until the server says something.
    """
    settings = setup_server.read(job.folder)
    with contextlib.ExitStack() as stack:
        with waiting as report:
            if not setup_server.listens(settings.operator_port):
                report("starting the server", 0, 0)
                stack.enter_context(_server(job.folder, settings))
            report("starting the run", 0, 0)
            began = time.time()
            number = _started(job)
        try:
            _flower(job.folder, "log", number)
        except BaseException:
            _flower(job.folder, "stop", number, captured=True)
            raise
    last = progress.read(job.folder / progress.FILE)
    if last is None or last["updated"] < began - 1:
        last = {"state": "", "why": "its server said nothing"}
    if last["state"] != progress.DONE:
        why = last["why"] or "its server ended before it said why"
        hint = f". Go on with: sottovoce server train {job.folder} --resume {job.out}" if job.trains else ""
        raise RunStopped(f"the run has no result: {why}{hint}")


def _started(job: Job) -> str:
    """Hand the app to the server; the number that Flower gives the run."""
    done = _flower(job.folder, "run", str(job.app), "--format", "json", captured=True)
    number = re.search(r'"run-id": "?(\d+)', done.stdout)
    if number is None:
        output = wire.printable(" ".join((done.stdout + done.stderr).split()), 500)
        raise RunStopped(f"Flower did not start the run: {output}")
    return number[1]


@contextlib.contextmanager
def _server(folder: Path, settings: setup_server.ServerSettings) -> Iterator[None]:
    """This folder's server, for as long as a run takes; its words go to server.log."""
    path = folder / "server.log"
    with path.open("ab") as log:
        process = subprocess.Popen([*_PROGRAM, "server", "start", str(folder)], stdout=log, stderr=log)
    try:
        until = time.monotonic() + _PATIENCE
        while not setup_server.listens(settings.operator_port):
            if process.poll() is not None or time.monotonic() > until:
                raise RunStopped(f"the server did not start: {path} says why")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def _flower(
    folder: Path, command: str, what: str, *more: str, captured: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run one of Flower's own commands about the server of this folder."""
    words = [*_PROGRAM, "flower", command, what, setup_server.CONNECTION, *more]
    environment = {**os.environ, "FLWR_HOME": str((folder / setup_server.FLOWER).absolute())}
    return subprocess.run(words, env=environment, check=False, capture_output=captured, text=True)
