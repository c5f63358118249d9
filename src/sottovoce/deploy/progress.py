"""How far a run is, as its server knows it: a small file that is replaced after every exchange.

It holds what the server was told: who answered, why others did not, and what each owner's ledger had spent when it
last said so. It is for people to read; no decision depends on it.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.deploy import wire
from sottovoce.deploy.remote import NO_REPLY, Post
from sottovoce.experiment import whole_files

FILE = "progress.json"  # in a server's folder
DONE, STOPPED = ENDED = ("done", "stopped")


class Progress:
    """The file of one run, and a `Post` that writes into it what it hears."""

    def __init__(self, path: Path | None, post: Post, names: tuple[str, ...], rounds: int, out: Path) -> None:
        self._path, self._post, self._names = path, post, names
        self._clients: dict[str, Json] = {name: {"said": "", "when": None, "round": None} for name in names}
        self._run: Json = {"state": "waiting for nodes", "why": "", "round": 0, "rounds": rounds, "folder": str(out)}
        self._run["began"] = time.time()
        self._write()

    def ask(self, asks: Mapping[int, wire.Ask], deadline: float) -> Mapping[int, wire.Reply]:
        self._run["state"] = "training"
        replies = self._post.ask(asks, deadline)
        for client, ask in asks.items():
            reply = replies.get(client, NO_REPLY)
            message = reply.reason() if reply.code else "answered"
            self._clients[self._names[client]] |= {"said": message, "when": time.time(), "round": ask.k}
        self._write()
        return replies

    def statuses(self, wait: float) -> Mapping[int, wire.Status]:
        met = self._post.statuses(wait)
        for client, status in met.items():
            spent = {"epsilon": status.epsilon, "limit": status.limit, "delta": status.delta, "reported": time.time()}
            self._clients[self._names[client]] |= spent
        self._write()
        return met

    def after_round(self, k: int) -> None:
        self._run["round"] = k
        self._write()

    def ended(self, why: str = "", done: bool = True) -> None:
        """The run is over: with a result, or for a reason."""
        self._run |= {"state": DONE if done else STOPPED, "why": wire.printable(why, 2000)}
        self._write()

    def _write(self) -> None:
        value = self._run | {"updated": time.time(), "clients": self._clients}
        with suppress(check.SottovoceError):  # a full disk stops the run where it must, and not here
            if self._path is not None:
                whole_files.replace_file(self._path, whole_files.json_bytes(value))


def read(path: Path) -> Json | None:
    """What a run's file says; None if there is none that can be read."""
    with suppress(check.SottovoceError, RecursionError):
        value = whole_files.read_json(path)
        return value if {"state", "updated", "clients"} <= value.keys() else None
    return None
