"""`sottovoce flower`: Flower's own commands, with what this library wants as their defaults."""

import os
import shutil
import sys
from pathlib import Path

import typer

from sottovoce.run import terminal

_PROGRAMS = {"superlink": "flower-superlink", "supernode": "flower-supernode"}
_DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; a round waits for it several times
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # what is installed is what runs
}


def flower(context: typer.Context) -> None:
    """Run a Flower command with telemetry, update checks and downloads off: superlink, supernode, run, ls, log, ...

    Everything after its name goes to Flower as it is. Variables you have set yourself are left alone.
    """
    with terminal.exit_codes():
        from sottovoce.core import check
        from sottovoce.core.check import MissingData

        check.require(len(context.args) > 0, "flower", "needs a command of Flower, such as superlink, supernode or run")
        name, *rest = context.args
        # `flwr` has a command group of the same name: supernode register, list, ...
        command = rest[:1] and not rest[0].startswith("-")
        program = "flwr" if command else _PROGRAMS.get(name, "flwr")
        beside = Path(sys.executable).with_name(program)
        found = str(beside) if beside.exists() else shutil.which(program)
        if found is None:
            raise MissingData(f"{program} is not installed. Install it with: pip install 'sottovoce[flower]'")
        folder = os.pathsep.join([str(beside.parent), os.environ.get("PATH", "")])  # it starts programs of its own
        environment = {**_DEFAULTS, **os.environ, "PATH": folder}
        sys.stdout.flush()
        os.execve(found, [program, *(context.args if program == "flwr" else rest)], environment)
