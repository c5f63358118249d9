"""Who is connected to a SuperLink, read from its database: keys, and until when each counts as there.

Read only, and without Flower: its tables are those of the one version that this library works with.
"""

import sqlite3
import time
from pathlib import Path
from typing import NamedTuple


class Presence(NamedTuple):
    """One registered key."""

    there: bool
    since: str  # when it last came in; "" if it never did


def who_is_there(database: Path) -> dict[bytes, Presence] | None:
    """By public key (PEM); None if there is no database that can be read."""
    if not database.is_file():
        return None
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            asked = (
                "SELECT public_key, status, online_until, last_activated_at FROM node WHERE status != 'unregistered'"
            )
            rows = connection.execute(asked).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return None
    now = time.time()
    return {
        bytes(key): Presence(status == "online" and (until or 0) > now, since or "")
        for key, status, until, since in rows
    }
