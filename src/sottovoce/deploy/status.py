"""What can be seen of a server and of a node while they work, from files on their own disks; nothing is changed.

At a server: who is connected, how far the run is, what each owner said last and had spent. At a node: what was asked,
answered, charged and refused, and what is left. Neither shows anything of rows: reasons are shown only where they are
made of public words (`PUBLIC`), as they were sent to the server.
"""

import re
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from functools import reduce
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.deploy import pace, progress, setup_server, wire
from sottovoce.deploy.lines import as_pem
from sottovoce.deploy.node import Node
from sottovoce.ledger import store
from sottovoce.ledger.budget import Standing
from sottovoce.ledger.chain import Chain, Entry
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event

PUBLIC = (wire.LIMITS, wire.PACE, wire.ANSWERED, wire.LATE, wire.LOST, wire.STATE, wire.BUSY, wire.BAD_ASK)
_OTHERS = {
    wire.BUDGET: "the budget is spent",
    wire.LEDGER: "the ledger cannot be read, written or trusted: node.log says why",
    wire.DISK: "the disk is full or cannot be written: node.log says more",
    wire.FAILED: "it could not answer: node.log says where",
}
_ASKED = re.compile(r"(\S+Z) experiment [0-9a-f]{32} \D*\d+: ([a-z-]+)(?:: (.*))?")
_MOST_LOG = 2**22  # bytes of the log that are read, from its end
_LAST = 8  # experiments and refusals that are listed


def of(path: Path) -> Json:
    """The status of the server or of the node at `path`: a folder, or a node's own file."""
    if (path / setup_server.FILE).is_file():
        return server_status(path)
    file = path / "node.toml" if path.is_dir() else path
    if not file.is_file():
        raise check.MissingData(f"{path}: is neither a server's folder nor a node's (nor a node's own file)")
    return node_status(file)


# ------------------------------------------------------------------------------------------------------------ a server


def server_status(folder: Path) -> Json:
    """Who is there, how far the run is, and what each owner said."""
    settings, known = setup_server.read(folder), setup_server.known_nodes(folder)
    run = progress.read(folder / progress.FILE) or {}
    up = setup_server.listens(settings.operator_port)
    there = who_is_there(folder / setup_server.STATE) if up else {}
    clients: Json = run.get("clients", {})
    nodes = []
    for name in sorted(known.keys() | clients.keys()):
        since = there.get(as_pem(known[name].openssh())) if name in known else None
        reported = clients.get(name, {})
        told = {key: reported.get(key) for key in ("round", "said", "epsilon", "limit", "delta")}
        times = {key: _clock(reported.get(key)) for key in ("when", "reported")}
        nodes.append({"name": name, "there": since is not None, "since": since or "", **told, **times})
    shown = {key: run.get(key) for key in ("state", "why", "round", "rounds", "folder")} if run else None
    if shown is not None:
        if not up and shown["state"] not in progress.ENDED:
            shown["state"] = "interrupted"  # nobody is there to go on with it
        shown |= {"began": _clock(run.get("began")), "updated": _clock(run.get("updated"))}
    place = {"address": settings.address, "port": settings.port, "operator_port": settings.operator_port}
    return {"kind": "server", "name": folder.absolute().name, "up": up, **place, "run": shown, "nodes": nodes}


def who_is_there(database: Path) -> dict[bytes, str]:
    """Who is connected, by public key (PEM), and since when, as Flower's database has it; nobody if it is not there.

    Read only, and without Flower: its tables are those of the one version that this library works with.
    """
    asked = "SELECT public_key, last_activated_at FROM node WHERE status = 'online' AND online_until > ?"
    with suppress(sqlite3.Error), _read_only(database) as connection:
        return {bytes(key): since or "" for key, since in connection.execute(asked, [time.time()])}
    return {}


def _read_only(database: Path) -> "closing[sqlite3.Connection]":
    return closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=5))


# -------------------------------------------------------------------------------------------------------------- a node


def node_status(file: Path) -> Json:
    """What was asked, answered, charged and refused, and what is left."""
    node = Node(file)
    limits, rows = node.limits, _ledger_rows(node.folder / "ledger")
    spent = _spent(rows)
    now, epsilon = time.time(), Standing(node.budget, spent).epsilon() if spent else 0.0
    recent = [row for row in rows if now - row.time < pace.DAY]
    today = _spent(recent)
    return {
        "kind": "node",
        "name": node.name,
        "epsilon": epsilon,
        "limit": limits.epsilon,
        "left": max(limits.epsilon - epsilon, 0.0),
        "delta": limits.delta,
        "epsilon_today": accounting.epsilon(today, limits.delta) if today else 0.0,
        "epsilon_per_day": limits.epsilon_per_day or None,
        "questions_last_hour": len({(row.run, row.round) for row in recent if now - row.time < pace.HOUR}),
        "questions_per_hour": limits.questions_per_hour or None,
        "charged": len(rows),
        "experiments": _experiments(rows),
        **_asked(node.folder / "node.log"),
    }


def _ledger_rows(path: Path) -> list[Entry]:
    """The charges in a ledger, their chain checked; none before the first question."""
    if not path.is_file():
        return []
    with store.clear_errors(path, 5.0):
        with _read_only(path) as connection:
            rows = store.rows(connection, "ORDER BY sequence")
        reduce(Chain.after, rows, Chain())
    return [row for row in rows if row.kind == "charge"]


def _spent(rows: list[Entry]) -> Counter[Event]:
    return Counter(row.event for row in rows)


def _experiments(rows: list[Entry]) -> list[Json]:
    """The last experiments that were answered: how many answers, from when to when."""
    times_of: dict[str, list[float]] = {}
    for row in rows:
        times_of.setdefault(row.run or "", []).append(row.time)
    return [
        {"experiment": run, "answers": len(times), "first": _clock(times[0]), "last": _clock(times[-1])}
        for run, times in list(times_of.items())[-_LAST:]
    ]


def _asked(path: Path) -> Json:
    """What the log says of questions: how many, how many answered, and the last refusals of each kind."""
    questions = [match for line in _last_lines(path) if (match := _ASKED.fullmatch(line))]
    codes = Counter(match[2] for match in questions)
    answered, last = codes.pop("answered", 0), {match[2]: match for match in questions}
    refused = [
        {"code": code, "times": times, "last": last[code][1], "why": _why(code, last[code][3] or "")}
        for code, times in codes.most_common()
    ]
    since = questions[0][1] if questions else ""
    return {"asked": len(questions), "answered": answered, "refused": refused, "since": since}


def _why(code: str, text: str) -> str:
    return wire.printable(text, 300) if code in PUBLIC else _OTHERS.get(code, "node.log says why")


def _last_lines(path: Path) -> list[str]:
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_LOG))
        lines = file.read().decode("utf-8", "replace").splitlines()
        return lines if size <= _MOST_LOG else lines[1:]
    return []


def _clock(seconds: float | None) -> str:
    """A time as text, UTC; "" for none."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if isinstance(seconds, int | float) else ""
