"""`sottovoce status`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables


def status(
    path: Annotated[Path, Argument(metavar="PATH", help="A server's folder, a node's folder, or a NODE.toml.")],
    web: Annotated[bool, Option("--web", help="Serve a page that renews itself, for this machine alone.")] = False,
    port: Annotated[int, Option(help="With --web: where. 0: any that is free.")] = 0,
    as_json: terminal.Json = False,
) -> None:
    """Show how things stand, from files of this machine.

    At a server: who is there, the round, epsilon spent as its owners reported it, the last words of each node. At a
    node: what was asked, answered, charged and refused, and what is left.
    """
    from sottovoce.deploy import status as look
    from sottovoce.deploy.status_page import StatusPage

    now = look.of(path)
    if web:
        with StatusPage(lambda: look.of(path), port) as page:
            tables.complain("Open this address on this machine; Ctrl-C ends it:")
            echo(page.address)
            page.serve_forever()
        return
    terminal.show(as_json, False, now, [], lambda: _server(now) if now["kind"] == "server" else _node(now))


def _server(now: Json) -> None:
    up = f"is up, nodes come in at port {now['port']}" if now["up"] else "is not running"
    tables.note(f"{now['name']} {up}.")
    run = now["run"]
    if run is not None:
        why = f": {run['why']}" if run["why"] else ""
        tables.note(f"{run['folder']}: {run['state']}, round {run['round']} of {run['rounds']}{why}")
    rows = []
    for node in now["nodes"]:
        at = "" if node["round"] is None else str(node["round"])
        spent = "" if node["epsilon"] is None else f"{node['epsilon']:.4g} of {node['limit']:g}"
        rows.append([node["name"], "yes" if node["there"] else "no", at, spent, node["said"] or ""])
    headings = ["node", "there", "round", "ε spent, it says", "its last words"]
    tables.print_table(headings, rows, {"node", "its last words"})


def _node(now: Json) -> None:
    spent = f"epsilon {now['epsilon']:.4g} of {now['limit']:g} is spent (delta {now['delta']:g})"
    tables.note(f"{now['name']}: {spent}, {now['left']:.4g} is left.")
    day = "" if now["epsilon_per_day"] is None else f" of {now['epsilon_per_day']:g}"
    hour = "" if now["questions_per_hour"] is None else f" of {now['questions_per_hour']}"
    today, questions = f"epsilon {now['epsilon_today']:.4g}{day}", f"{now['questions_last_hour']}{hour}"
    tables.note(f"In 24 hours: {today}. Questions in an hour: {questions}.")
    refused = sum(each["times"] for each in now["refused"])
    since = f" since {now['since']}" if now["since"] else ""
    answers = f"{now['answered']} answered, {refused} refused"
    tables.note(f"Asked {now['asked']} times{since}: {answers}. {now['charged']} charges.")
    if now["refused"]:
        rows = [[each["code"], str(each["times"]), each["last"], each["why"]] for each in now["refused"]]
        tables.print_table(["refused", "times", "last", "why"], rows, {"refused", "last", "why"})
