"""What Flower starts: the server's half of a run; and a client's half, for Flower's own simulation alone.

The app that `sottovoce app` writes calls `server_app`. On other machines no app of a server is ever started: there
`sottovoce node start` answers (`node_process.py`). In Flower's simulation all clients are on this machine, and
`client_app` finds client i by the folder SOTTOVOCE_NODES, in which it has i/node.toml.
"""

import logging
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable import inflatable_utils

from sottovoce.core import check
from sottovoce.core.round import Checkpoint
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.flower.app_folder import IDS
from sottovoce.deploy.flower.post import FlowerPost
from sottovoce.deploy.flower.records import log, reply_to
from sottovoce.deploy.multiplied_remote import predict_ids
from sottovoce.deploy.node import Node
from sottovoce.deploy.progress import Progress
from sottovoce.deploy.server import serve
from sottovoce.experiment import tables
from sottovoce.experiment.run_file import TABLES

NODES = "SOTTOVOCE_NODES"
_HALF_A_REPLY = 15.0  # seconds to wait for the rest of one


def client_app() -> ClientApp:
    """Flower's client half, in its simulation: finds a client's `Node` and passes on what it says."""
    app = ClientApp()

    @app.query()
    def reply(message: Message, context: Context) -> Message:
        return reply_to(message, lambda question: _node(context).reply_to(question))

    return app


def _node(context: Context) -> Node:
    hint = "This app's client half is for Flower's simulation; on other machines run: sottovoce node start node.toml"
    check.require(NODES in os.environ, "app", f"{NODES} must name the folder of all clients", hint=hint)
    return Node(Path(os.environ[NODES]) / str(int(context.node_config["partition-id"])) / "node.toml")


def server_app(run_file: str | Path) -> ServerApp:
    """Flower's server half: trains what `run_file` describes, or goes on with it."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        _log_to_stdout()
        _fetch_replies_sooner()
        path, config = Path(run_file), context.run_config
        deployment = Deployment.build(tables.read_tables(path, TABLES), path.name)
        name, folder = str(config["experiment"]), Path(str(config["folder"]))
        file = str(config.get("progress", ""))
        names, rounds = deployment.clients.names, deployment.settings.rounds
        post = FlowerPost(grid, names, deployment.clients.deadline)
        progress = Progress(Path(file) if file else None, post, names, rounds, folder)

        def after_round(done: Checkpoint) -> None:
            log.info("round %d of %d done (%.1f s in all)", done.k, rounds, done.seconds)
            progress.after_round(done.k)

        try:
            if IDS in config:
                ids, out = Path(str(config[IDS])), Path(str(config["predictions"]))
                log.info("wrote %d predictions to %s", predict_ids(deployment, name, progress, folder, ids, out), out)
                progress.ended()
                return
            result = serve(deployment, name, progress, folder, after_round)
        except check.SottovoceError as error:
            log.error("stopped: %s", error)
            progress.ended(str(error), done=False)
            raise
        progress.ended(result.stopped)
        end = f"Stopped early, {result.stopped}." if result.stopped else "All rounds done."
        log.info("saved in %s. %s", folder, end)
        log.info("Privacy: %s", result.guarantee)

    return app


def _fetch_replies_sooner() -> None:
    """A reply is announced before all of it is there. Flower's server looks again after a second; ours, sooner.

    The rest of it may never come: its node was killed. Replies of others wait behind it, so it is given up after a
    while; it is asked for again, and the pieces that came are not sent a second time.
    """
    quick = partial(inflatable_utils.pull_objects, initial_backoff=0.05, max_time=_HALF_A_REPLY)
    vars(import_module("flwr.superlink.grid.http_grid"))["pull_objects"] = quick


def _log_to_stdout() -> None:
    """Print this library's log where Flower collects a server's output; what it refuses comes without a traceback."""

    def without_traceback(record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], check.SottovoceError):
            record.exc_info = None
        return True

    logging.getLogger("flwr").addFilter(without_traceback)
    log.setLevel(logging.INFO)
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stdout))
