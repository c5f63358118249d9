"""The rows of an owner's ledger, the hash chain through them, and the head file that says which row is the last.

Each row's hash covers its own content and the hash of the row before, so a row cannot be changed, dropped or moved
without breaking every hash after it. A chain cannot show by itself that its *end* is missing. Therefore a second file
beside the ledger, the head `<ledger>.head`, says which row is the last.

**Order of writing.** The head is made durable *before* the row, and carries the whole row it promises. So after a
crash the head is either equal to the ledger or ahead by exactly one row, and that row can be put in: an answer that
was charged but perhaps never given is counted. An answer that was given is never left out. Once the row is known to be
durable (when the ledger is closed or opened) the head is *settled*: it is written again without the row, and from then
on a missing last row means that the ledger was cut off, not that a process crashed.

A chain is no signature. Whoever can write both files can rewrite the history, or put back older copies of both
together, and nothing in them will show it. An owner who must rule that out keeps a copy of the head file elsewhere.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from sottovoce.core.check import SottovoceError
from sottovoce.core.files import sync_folder
from sottovoce.core.plain import Json
from sottovoce.ledger.budget import Budget, LedgerError, Standing
from sottovoce.privacy.events import Event, make_event

VERSION = 3  # of the format; a ledger of another one is refused
HOW_TO_FIX = (
    "Put back the newest copies of the ledger and its head file; an older copy would forget budget that is spent. "
    "Nothing is answered on this ledger"
)


class BrokenLedger(LedgerError):
    """A ledger's rows, or its head file, are not those that were written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {HOW_TO_FIX}")


def step(name: str) -> None:
    """Called between the steps of a write, for tests that kill the process there. Does nothing."""


Key = tuple[str | None, int | None, int | None]  # run, round, question: the name of an answer


class Entry(NamedTuple):
    """One row. Kinds: "opened" (row 0: owner, data set, budget), "charge" (one answer), "budget" (a new budget)."""

    sequence: int
    kind: str
    time: float
    run: str | None
    round: int | None
    question: int | None
    details: str
    hash: str

    @property
    def event(self) -> Event:
        """What a charge was for."""
        return make_event(**json.loads(self.details)["event"])

    @property
    def purpose(self) -> str:
        """Why it was asked, in the words of the one who charged."""
        return json.loads(self.details)["purpose"]


class AlreadyCharged(SottovoceError):
    """This question was charged before. Resend the stored answer, or, if there is none, ask (and pay) anew."""

    def __init__(self, row: Entry) -> None:
        self.row = row
        answer = f"run {row.run!r}, round {row.round}, question {row.question}"
        hint = "Resend the stored answer, or ask a new question"
        super().__init__(f"ledger: {answer} was charged before (row {row.sequence}). {hint}")


def link(previous_hash: str, content: tuple[object, ...]) -> str:
    """The hash of a row with this content (all fields but the hash) after a row with that hash."""
    text = json.dumps([previous_hash, *content], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def bind(salt: str, dataset: str) -> str:
    """What a ledger keeps of a data set's fingerprint. With the salt, two ledgers of one data set cannot be matched."""
    return hashlib.sha256(f"{salt}:{dataset}".encode()).hexdigest()


class Head(NamedTuple):
    """The last row there must be; `promised` is that row itself until it is known to be in the ledger."""

    sequence: int
    hash: str
    promised: Entry | None = None


@dataclass(frozen=True)
class Chain:
    """The rows read so far: the last one, and what all of them say. `after` accepts only the row that comes next."""

    sequence: int = -1
    hash: str = ""
    time: float = 0.0
    opened: Json = field(default_factory=Json)
    budget: Budget | None = None
    spent: Mapping[Event, int] = field(default_factory=dict[Event, int])

    @property
    def standing(self) -> Standing:
        assert self.budget is not None  # row 0 brings one
        return Standing(self.budget, self.spent)

    def next(self, kind: str, now: float, details: Json, key: Key = (None, None, None)) -> Entry:
        """The row to append. If the clock was set back, it gets the time of the last row."""
        text = json.dumps(details, sort_keys=True, separators=(",", ":"))
        content = (self.sequence + 1, kind, float(max(now, self.time)), *key, text)
        return Entry(*content, link(self.hash, content))

    def after(self, entry: Entry) -> "Chain":
        """The chain with one more row; a BrokenLedger if that is not its next row."""
        if entry.sequence != self.sequence + 1:
            raise BrokenLedger(f"row {self.sequence + 1} is missing")
        if link(self.hash, entry[:-1]) != entry.hash:
            raise BrokenLedger(f"row {entry.sequence} does not match its hash: it, or a row before it, was changed")
        try:
            changes = self._changes(entry.kind, json.loads(entry.details))
        except (KeyError, TypeError, ValueError, SottovoceError) as error:
            raise BrokenLedger(f"row {entry.sequence} has content that this version cannot read ({error})") from error
        return replace(self, sequence=entry.sequence, hash=entry.hash, time=entry.time, **changes)

    def _changes(self, kind: str, details: Json) -> Json:
        """The fields that a row of this kind changes."""
        if kind == "charge" and self.sequence >= 0:
            event = make_event(**details["event"])
            return {"spent": {**self.spent, event: self.spent.get(event, 0) + 1}}
        budget = Budget(details["epsilon"], details["delta"])
        if kind == "budget" and self.sequence >= 0:
            return {"budget": budget}
        if kind == "opened" and self.sequence < 0 and details["version"] == VERSION:
            return {"budget": budget, "opened": details}
        raise ValueError(f"a row of kind {kind!r} cannot stand here")

    def missing_row(self, head: Head) -> Entry | None:
        """The row that `head` promises and a crash kept out, if any; a BrokenLedger if the two do not fit together."""
        rows, promised = self.sequence + 1, head.promised
        counted = f"it holds {rows} rows, its head file counts {head.sequence + 1}"
        if head.sequence == self.sequence and head.hash == self.hash:
            return None
        if head.sequence == self.sequence:
            raise BrokenLedger("its last row is not the one its head file names: one of the two was replaced")
        if head.sequence < self.sequence:
            raise BrokenLedger(f"{counted}: the head is too old")
        if head.sequence > rows or promised is None:
            raise BrokenLedger(f"{counted}: rows at its end were cut off, or an older copy was put back")
        if promised.sequence != rows or not promised.hash == head.hash == link(self.hash, promised[:-1]):
            raise BrokenLedger("its head file does not continue its last row: one of the two was replaced")
        return promised


def head_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".head")


def read_head(ledger: Path) -> Head:
    path = head_path(ledger)
    try:
        raw = json.loads(path.read_bytes())
        promised = None if raw["promised"] is None else Entry(*raw["promised"])
        return Head(int(raw["sequence"]), str(raw["hash"]), promised)
    except FileNotFoundError:
        raise BrokenLedger(f"its head file {path.name} is missing") from None
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenLedger(f"its head file {path.name} is damaged ({error})") from error


def write_head(ledger: Path, head: Head) -> None:
    """Replace the head file; when this returns, the new one survives a power cut. Needs the ledger's lock."""
    path = head_path(ledger)
    fresh = path.with_name(path.name + ".new")  # under the lock one name is enough, and the next write replaces it
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(json.dumps(head._asdict()).encode())
        file.flush()
        step("head written")
        os.fsync(file.fileno())
    step("head synced")
    os.replace(fresh, path)
    step("head renamed")
    sync_folder(path.parent)
    step("head durable")
