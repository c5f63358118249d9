"""`sottovoce flower`: Flower's own commands, with what this library wants as their defaults."""

import os
import shutil
import sys
from pathlib import Path

import typer

from sottovoce.cli import terminal

_DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; a round waits for it several times
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # what is installed is what runs
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray, of Flower's simulation, then stays on loopback on Linux too
    "RAY_USAGE_STATS_ENABLED": "0",
}
# With these a SuperLink opens ports of its own to all the world, past --host and --fleet.
_NEVER = ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API")


def flower(context: typer.Context) -> None:
    """Run a Flower command with telemetry, update checks and downloads off: superlink, supernode, run, ls, log, ...

    Everything after its name goes to Flower as it is. Variables you have set yourself are left alone, but
    for two (FLWR_INTERNAL_GRPC_CONTROL_API, FLWR_INTERNAL_GRPC_FLEET_API) that would open ports past the options below.

    superlink has one option more, --fleet HOST:PORT: nodes of other machines come in there, and reach nothing but what
    nodes need. All else (starting runs, registering nodes) stays on this machine's loopback, at --host and --port.
    """
    with terminal.exit_codes():
        from sottovoce.core import check
        from sottovoce.core.check import MissingData

        check.require(len(context.args) > 0, "flower", "needs a command of Flower, such as superlink, supernode or run")
        name, *rest = context.args
        beside = str(Path(sys.executable).parent)
        folders = os.pathsep.join([beside, os.environ.get("PATH", "")])  # it starts programs of its own
        for variable in _NEVER:
            os.environ.pop(variable, None)
        environment = {**_DEFAULTS, **os.environ, "PATH": folders}
        # `flwr` has command groups of these names: supernode register, list, ...
        alone = not rest or rest[0].startswith("-")
        if name == "superlink" and alone:
            from sottovoce.deploy.flower import superlink

            os.environ.update(environment)
            superlink.start(rest)
            return
        program = "flower-supernode" if name == "supernode" and alone else "flwr"
        found = shutil.which(program, path=folders)
        if found is None:
            raise MissingData(f"{program} is not installed. Install it with: pip install 'sottovoce[flower]'")
        sys.stdout.flush()
        os.execve(found, [program, *(context.args if program == "flwr" else rest)], environment)
