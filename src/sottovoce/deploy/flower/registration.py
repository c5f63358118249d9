"""Who may join a SuperLink: the public keys in a folder, NAME.pub each, and nobody else.

They are registered before the SuperLink answers its first request, and the folder is looked at again every few seconds:
a new key is let in, one that is gone is let in no more. (Flower's own way is a command for each key, once the
SuperLink runs.) A key that was removed cannot come back: its client makes a new one.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sottovoce.deploy.lines import as_pem

if TYPE_CHECKING:
    from flwr.server.superlink.linkstate import LinkState

log = logging.getLogger("sottovoce")
_EVERY = 2.0  # seconds


def keep_up(states: "Callable[[], LinkState]", folder: Path) -> None:
    """Register the keys in `folder` now, and go on looking. `states`: a SuperLink's own access to its state."""
    refused: set[bytes] = set()  # contents of files that cannot be let in, each told once
    last_error: list[str] = []

    def look() -> None:
        try:
            _match(states(), folder, refused)
            last_error.clear()
        except Exception as error:  # of Flower's database too; who may join stays as it was
            if str(error) not in last_error:
                last_error[:] = [str(error)]
                log.error("%s: who may join stays as it was (%s: %s)", folder, type(error).__name__, error)

    def go_on() -> None:
        while True:
            time.sleep(_EVERY)
            look()

    look()
    threading.Thread(target=go_on, daemon=True, name="who may join").start()


def _match(state: "LinkState", folder: Path, refused: set[bytes]) -> None:
    """Make the SuperLink's list of nodes that of the folder."""
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
    from flwr.supercore.constant import NodeStatus

    wanted: dict[bytes, Path] = {}
    for path in sorted(folder.glob("*.pub")):
        content = path.read_bytes()
        try:
            wanted[as_pem(content)] = path
        except Exception:  # of many kinds
            if content not in refused:
                refused.add(content)
                log.error("%s: is no public key, and was left out", path)
    here = [NodeStatus.REGISTERED, NodeStatus.ONLINE, NodeStatus.OFFLINE]
    known = {bytes(node.public_key): node for node in state.get_node_info(statuses=here)}
    for key, path in wanted.items():
        if key in known or key in refused:
            continue
        try:
            state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, HEARTBEAT_DEFAULT_INTERVAL, name=path.stem)
            log.info("%s may join", path.stem)
        except ValueError:
            refused.add(key)
            log.error("%s: its key was removed before; let it make a new one, and add that", path.stem)
    for key, node in known.items():
        if key not in wanted:
            state.delete_node(NOOP_FLWR_AID, node.node_id)
            log.info("%s may not join any more", node.name or node.node_id)
