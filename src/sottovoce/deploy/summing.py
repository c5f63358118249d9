"""Sums at a client: the owner's own word on it, and the protocol's steps as questions of one experiment.

    [sums]         key = "north.sums.key" (`sottovoce node key`); least, colluders: what the owner insists on
    [sums.owners]  north = "...", south = "...", ...: the public keys of all owners, as they told each other

The keys in this table are pinned: a server can name clients, and never say by which key they are known. Below `least`
clients, or where fewer `colluders` are reckoned with than the owner does, nothing is answered.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, cast

from sottovoce.core import check
from sottovoce.core.arrays import Words
from sottovoce.core.files import utf8
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation import messages
from sottovoce.deploy.aggregation.client import Client
from sottovoce.deploy.aggregation.plan import Plan
from sottovoce.deploy.aggregation.store import Folder
from sottovoce.deploy.announcing import PinnedOwners
from sottovoce.deploy.assignment import Assignment
from sottovoce.deploy.limits import Limits, Refused, bad_ask
from sottovoce.experiment import whole_files
from sottovoce.experiment.task import Task
from sottovoce.privacy.modes import Proven

_ATTEMPT, _ROUNDS = 32, 4  # bytes of an S1 question before the names
_LONGEST_NAMES = 2**18


@dataclass(frozen=True)
class Sums(PinnedOwners):
    """[sums] of a client's own file: who may be on a roster.

    Parameters
    ----------
    least
        The fewest clients in a sum that its owner accepts. None: all owners that are named here.
    colluders
        So many of the others may share what they know with the server, in its owner's eyes. None: a third of all,
        rounded up.
    """

    least: int | None = None
    colluders: int | None = None
    table: ClassVar[str] = "sums"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.whole("sums", at_least=2, least=self.fewest)
        check.whole("sums", at_least=0, colluders=self.distrusted)
        rule = f"least must be at most the number of owners ({len(self.owners)}), and above colluders"
        check.require(self.distrusted < self.fewest <= len(self.owners), "sums", rule, self.fewest)

    @property
    def fewest(self) -> int:
        """`least`, with its default."""
        return len(self.owners) if self.least is None else self.least

    @property
    def distrusted(self) -> int:
        """`colluders`, with its default."""
        return -(-len(self.owners) // 3) if self.colluders is None else self.colluders

    def check_plan(self, least: int, colluders: int, names: tuple[str, ...]) -> None:
        """Refuse sums that show more than the owner accepts, or with clients whose keys it does not know."""
        Limits.allow(least >= self.fewest, f"sums of {least} clients are asked for, and {self.fewest} must be in one")
        why = f"{colluders} colluders are reckoned with, and {self.distrusted} must be"
        Limits.allow(colluders >= self.distrusted, why)
        self.check_known(names)


class Summing:
    """The protocol at one client, for one experiment."""

    def __init__(self, table: Sums | None, home: Path, folder: Path, ask: wire.Ask, assignment: Assignment) -> None:
        """`home`: where the client's own file is; `folder`: where it keeps what belongs to this experiment."""
        self._sums, self._home, self._folder, self._ask = Limits.given(table, "sums"), home, folder, ask
        self._rounds, (self._least, self._colluders) = assignment.task.rounds, stated_in(assignment.task)
        self._run, self._question = bytes.fromhex(ask.run), bytes.fromhex(ask.digest())

    def step(self) -> bytes:
        """The answer to any question of the protocol but an upload."""
        ask = self._ask
        with bad_ask("sums: "):
            content = wire.bytes_of(ask.down)
            if ask.what == wire.ANNOUNCE:
                return self._announce(content)
            client = self._client
            if ask.what == wire.SHARE:
                return client.share(content)
            if ask.what == wire.RECEIVE:
                client.receive(self._run, content)
                return b""
            if ask.what == wire.STAND_FOR:
                return client.stand_for(self._run, ask.k, messages.read_set(client.plan, content))
            return client.reveal(self._run, ask.k, *messages.read_signatures(client.plan, content))

    def uploaded(self) -> bytes | None:
        """What it uploaded before to this very question; None if the round is still to come."""
        with bad_ask("sums: "):
            return self._client.uploaded(self._run, self._ask.k, self._question)

    def upload(self, width: int, numbers: Callable[[], Words]) -> bytes:
        """The masked numbers, which `numbers` charges for and computes once all is checked."""
        return self._client.upload(self._run, self._ask.k, self._question, width, numbers)

    def _announce(self, content: bytes) -> bytes:
        """S1. Who is on the roster, and for how many rounds, is kept beside what the protocol keeps."""
        check.require(_ATTEMPT + _ROUNDS < len(content) <= _LONGEST_NAMES, "S1 question", "has a wrong length")
        attempt, rounds = content[:_ATTEMPT], int.from_bytes(content[_ATTEMPT : _ATTEMPT + _ROUNDS], "big")
        names = tuple(utf8("S1 question", content[_ATTEMPT + _ROUNDS :], "names").split("\n"))
        first, last = self._ask.k, self._rounds
        check.require(first + rounds - 1 <= last, "S1 question", f"goes beyond the {last} rounds of this experiment")
        kept = {"names": list(names), "rounds": rounds, "first": first}
        plan = self._plan(names, rounds, first)
        whole_files.replace_file(self._folder / "roster.json", whole_files.json_bytes(kept))
        return self._with(plan).announce(attempt)

    @cached_property
    def _client(self) -> Client:
        """The client as the last S1 question described it."""
        file = self._folder / "roster.json"
        if not file.exists():
            raise Refused(wire.SET_UP, "sums: it has agreed on no set-up; set up again")
        kept = whole_files.read_json(file)
        return self._with(self._plan(tuple(kept["names"]), kept["rounds"], kept["first"]))

    def _with(self, plan: Plan) -> Client:
        return Client(plan, self._sums.read_key(self._home), Folder(self._folder / "secrets"))

    def _plan(self, names: tuple[str, ...], rounds: int, first: int) -> Plan:
        """What it agrees to, in its owner's limits. The keys are those of its own file."""
        self._sums.check_plan(self._least, self._colluders, names)
        keys = tuple(bytes.fromhex(self._sums.owners[name]) for name in names)
        return Plan(settings_of(self._ask), keys, self._least, self._colluders, rounds, first)


def stated_in(task: Task) -> tuple[int, int]:
    """`least` and `colluders` of a task whose observer sees sums."""
    privacy = cast(Proven, task.privacy)  # no other mode has sums
    if privacy.least is None or privacy.colluders is None:
        raise Refused(wire.BAD_ASK, "sums: least and colluders must be stated")
    return privacy.least, privacy.colluders


def settings_of(ask: wire.Ask) -> bytes:
    """SHA-256 of all that is asked in an experiment: the same for all of its clients."""
    return hashlib.sha256(repr((ask.experiment, ask.task, ask.events, ask.row_bound)).encode()).digest()


def roster_question(attempt: bytes, rounds: int, names: tuple[str, ...]) -> bytes:
    """The S1 question: who is on the roster, and for how many rounds secrets are made."""
    return attempt + rounds.to_bytes(_ROUNDS, "big") + "\n".join(names).encode()
