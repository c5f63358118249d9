"""Everything that can be wrong with a node, looked at before it joins: one line each, with how to fix it.

What is said here is for the owner of the rows, on its own machine.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from sottovoce.core import check
from sottovoce.deploy.lines import Connection
from sottovoce.deploy.node import Node
from sottovoce.deploy.services import NO_FLOWER

State = Literal["good", "look", "bad"]  # "look": it works, but is it meant?
_SPENT = 0.01  # share of the budget below which it counts as spent: no run is worth that little


class Item(NamedTuple):
    """What was looked at, how it is, and in a sentence what was found or how to fix it."""

    name: str
    state: State
    text: str


def items(file: Path, ask_server: bool = True) -> Iterator[Item]:
    """One after the other, so that somebody who waits sees them. Without a file that can be read there is only one."""
    try:
        node = Node(file)
    except check.SottovoceError as error:
        yield Item("file", "bad", str(error))
        return
    budget = node.budget
    yield Item("file", "good", f"{node.name}, with limits: epsilon {budget.epsilon:g} at delta {budget.delta:g}")
    yield _item("rights", lambda: _rights(node))
    rows = _item("rows", lambda: _rows(node))
    yield rows
    if rows.state != "bad":
        yield _item("labels", lambda: _labels(node))
        yield _item("budget", lambda: _budget(node))
        if node.limits.scores_per_day:
            yield _item("new samples", lambda: f"{len(node.new_rows)} that it may be asked about")
    if ask_server:
        yield from _server(file)


def _item(name: str, look: Callable[[], Item | str]) -> Item:
    """What a look at one thing gives; an error of this library is a sentence already, of others the kind is told."""
    try:
        item = look()
    except check.SottovoceError as error:
        return Item(name, "bad", str(error))
    except OSError as error:
        return Item(name, "bad", f"{error.filename}: {(error.strerror or 'cannot be read').lower()}")
    return Item(name, "good", item) if isinstance(item, str) else item


def _rights(node: Node) -> str:
    """The folder is closed to others, and can be written."""
    if not node.folder.exists():
        return f"{node.folder} will be made, closed to others"
    node.home.open()
    probe = node.folder / "write-probe"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        owner = f"Give it to the account that runs the node: chown -R $USER {node.folder}"
        raise check.InvalidInput(f"{node.folder}: cannot be written ({error.strerror}). {owner}") from None
    return f"{node.folder} is closed to others, and can be written"


def _rows(node: Node) -> str:
    rows = node.rows
    by = f", prepared by the schema {node.schema_digest[:16]}..." if node.schema_digest else ""
    return f"{len(rows.X)} rows, {rows.X.shape[1]} columns{by}"


def _labels(node: Node) -> Item:
    """Every class that is declared occurs; that no other does was seen when the rows were read."""
    rows = node.rows
    texts, declared = set(rows.labels), rows.declared
    if not texts:
        return Item("labels", "good", "none here: another party holds them")
    if not declared:
        return Item("labels", "good", "numbers")
    absent = [label for label in declared if label not in texts]
    if absent:
        who = ", ".join(map(repr, absent))
        return Item("labels", "look", f"no row has the label {who}. If that cannot be, see how the file spells it")
    return Item("labels", "good", f"each of {', '.join(map(repr, declared))} occurs")


def _budget(node: Node) -> Item:
    status = node.inspect()
    node.close()
    left = max(status.limit - status.epsilon, 0.0)
    spent = f"epsilon {status.epsilon:.4g} of {status.limit:g} is spent, {left:.4g} is left (delta {status.delta:g})"
    if left < _SPENT * status.limit:
        hint = "Raise epsilon in [limits], if you want to give away more about these rows; else take no further part"
        return Item("budget", "bad", f"{spent}. {hint}")
    return Item("budget", "good", spent)


def _server(file: Path) -> Iterator[Item]:
    """Whether the server answers, is the right one, knows the key, and has the same time."""
    try:
        connection = Connection.read(file)
        from sottovoce.deploy.flower.line import probe

        answer = probe(connection)
    except ModuleNotFoundError:
        yield Item("server", "bad", NO_FLOWER)
        return
    except check.SottovoceError as error:
        hint = ". Is it up (there: sottovoce server start DIR), and does its firewall let this machine through?"
        yield Item("server", "bad", f"{error}{hint if 'cannot be reached' in str(error) else ''}")
        return
    yield Item("server", "good", f"{connection.address} answers, and its certificate is the right one")
    if answer.clock:
        yield Item("clock", "bad", answer.clock)
        return  # a signature of another time is refused, whoever signs
    yield Item("clock", "good", "as the server's, within seconds")
    if answer.known:
        yield Item("key", "good", "the server knows it")
    else:
        line = Path(connection.key).with_name("line")
        yield Item("key", "bad", f"the server does not know it. Send {line} to whoever runs the server, for: "
                   "sottovoce server add DIR LINE")  # fmt: skip
