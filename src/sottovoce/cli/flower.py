"""`sottovoce flower`: Flower's own commands, with defaults that suit this library."""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables

_DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # seconds; the start of a run waits for it
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # what is installed is what runs
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray, of Flower's simulation, then stays on loopback on Linux too
    "RAY_USAGE_STATS_ENABLED": "0",
}
# With these a SuperLink opens more ports to everyone, whatever --host and --fleet say.
_NEVER = ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API")


def flower_environment() -> dict[str, str]:
    """What Flower's programs are started with: the defaults above, and our own programs where it looks for them."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    kept = {name: value for name, value in os.environ.items() if name not in _NEVER}
    return {**_DEFAULTS, **kept, "PATH": folders}


def flower(context: typer.Context) -> None:
    """Run a Flower command with telemetry, update checks and downloads off: superlink, run, supernode register, ls, ...

    Everything after its name is passed on to Flower unchanged. Variables you have set yourself are kept, except two
    (FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API) that would open ports past the options below.

    superlink has one more option, --fleet HOST:PORT: nodes on other machines connect there, and reach nothing but what
    nodes need. All else (starting runs, registering nodes) stays on this machine's loopback, at --host and --port.

    A SuperNode of Flower runs whatever a server sends, and is not started: `sottovoce node start` takes its place.
    """
    from sottovoce.core import check
    from sottovoce.deploy.services import NO_FLOWER

    check.require(len(context.args) > 0, "flower", "needs a command of Flower, such as superlink or run")
    name, *rest = context.args
    environment = flower_environment()
    alone = not rest or rest[0].startswith("-")  # else it is a command of `flwr`: supernode register, list, ...
    if name == "superlink" and alone:
        start_superlink(rest, environment)
        return
    hint = "Start this library's own node in its place: sottovoce node start node.toml"
    check.require(name != "supernode" or not alone, "flower", "a SuperNode runs whatever a server sends it", hint=hint)
    executable = shutil.which("flwr", path=environment["PATH"])
    if executable is None:
        raise check.MissingData(NO_FLOWER)
    sys.stdout.flush()
    if name == "run" and "--stream" in rest:
        _watched([executable, *context.args], environment)
    os.execve(executable, ["flwr", *context.args], environment)


def start_superlink(arguments: list[str], environment: dict[str, str]) -> None:
    """Become a SuperLink of Flower."""
    from sottovoce.deploy.flower import superlink

    os.environ.clear()
    os.environ.update(environment)
    superlink.start(arguments)


def _watched(command: list[str], environment: dict[str, str]) -> None:
    """Let a run tell what it does, and say at the end how to go on with one that has stopped, or was killed."""
    import subprocess

    from sottovoce.deploy.flower import app_folder

    with subprocess.Popen(command, env=environment) as process:
        while process.returncode is None:
            with suppress(KeyboardInterrupt):  # which it got as well, and it ends by itself
                process.wait()
    app = next((Path(word) for word in command[2:] if (Path(word) / "pyproject.toml").is_file()), None)
    left = "" if app is None else app_folder.left_off(app)
    if left:
        tables.complain(f"{left} To go on from there: sottovoce flower {' '.join(command[1:])}")
    raise typer.Exit(process.returncode or (terminal.NOT_ENDED if left else terminal.DONE))
