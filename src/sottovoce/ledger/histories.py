"""What one owner was charged, as it is kept in a run's folder: enough to compute epsilon again.

A history is one of three:

* `Counted`, from a simulation's memory: how often each kind of answer was given, with a hash chain of its own;
* `Kept`: the rows of an owner's ledger file, with the chain that runs through them. The first row is shown as a hash
  only: it holds the owner's name and a hash of the data set;
* `Stated`: an epsilon that somebody states, where no ledger was shown.

A chain is no signature: whoever may write the folder can write another chain. It shows that a list was not edited by
hand, and, together with the seal in `experiment/store.py`, that it belongs to this config and this model.
"""

import base64
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.ledger.chain import Entry, link
from sottovoce.privacy.events import Event, Mechanism, Relation, Sampling, make_event, pack_event

MOST_CHARACTERS = 2**19  # of the rows that a client reports, packed
_MOST_BYTES = 2**25  # of the same, unpacked
MOST_KINDS = 256  # different kinds of answer in one history: an accountant takes its time for each

Spent = dict[Event, int]


@dataclass(frozen=True)
class Counted:
    """How often each kind of answer was charged, and the hashes that say so."""

    entries: tuple[tuple[Event, int], ...]
    hashes: tuple[str, ...] = ()

    @classmethod
    def of(cls, spent: Mapping[Event, int]) -> "Counted":
        return cls(tuple(spent.items()), tuple(_chain(spent.items())))

    def spent(self) -> Spent:
        return dict(self.entries)

    @property
    def end(self) -> str:
        return self.hashes[-1] if self.hashes else ""

    def fault(self) -> str:
        """Why this is not an untouched list; "" if nothing speaks against it."""
        if len(dict(self.entries)) != len(self.entries):
            return "a kind of answer is listed twice"
        if any(type(count) is not int or count < 1 for _, count in self.entries):
            return "a count is not a whole number above 0"
        return "" if tuple(_chain(self.entries)) == self.hashes else "a charge does not match its hash"

    def to_dict(self) -> Json:
        pairs = zip(self.entries, self.hashes, strict=True)
        return {"charges": [{"event": pack_event(event), "count": n, "hash": hash_} for (event, n), hash_ in pairs]}


def _chain(entries: Iterable[tuple[Event, int]]) -> list[str]:
    hashes = [""]
    for event, count in entries:
        hashes.append(link(hashes[-1], ("charge", count, json.dumps(pack_event(event), sort_keys=True))))
    return hashes[1:]


@dataclass(frozen=True)
class Kept:
    """The rows of an owner's ledger file; the details of the first are withheld, ""."""

    rows: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Kept":
        return cls(tuple(row._replace(details="") if row.kind == "opened" else row for row in entries))

    def spent(self, run: str | None = None) -> Spent:
        """What all runs were charged, or one of them."""
        return dict(Counter(event for name, event in self._events if run in (None, name)))

    @property
    def end(self) -> str:
        return self.rows[-1].hash if self.rows else ""

    def fault(self) -> str:
        """Why this is not an untouched ledger; "" if nothing speaks against it."""
        if not self.rows or (self.rows[0].kind, self.rows[0].details) != ("opened", ""):
            return "its first row is missing, or says more than a hash"
        keys = [(row.run, row.round, row.question) for row in self.rows if row.kind == "charge"]
        if len(set(keys)) < len(keys):
            return "an answer is charged twice under one name"
        for before, row in zip(self.rows, self.rows[1:], strict=False):
            if row.sequence != before.sequence + 1 or self.rows[0].sequence != 0:
                return f"row {before.sequence + 1} is missing"
            if not row.details:
                return f"row {row.sequence} withholds what it says, which only the first may"
            if link(before.hash, row[:-1]) != row.hash:
                return f"row {row.sequence} does not match its hash: it, or a row before it, was changed"
            if row.kind not in ("charge", "budget") or row.time < before.time:
                return f"row {row.sequence} cannot stand there"
        return ""

    def to_dict(self) -> Json:
        return {"rows": [row._asdict() | {"details": row.details or None} for row in self.rows]}

    @cached_property
    def _events(self) -> list[tuple[str | None, Event]]:
        """The run and the event of each charge."""
        charges = (row for row in self.rows if row.kind == "charge")
        return [(row.run, known_event(json.loads(row.details)["event"])) for row in charges]


@dataclass(frozen=True)
class Stated:
    """An epsilon that was stated without showing a ledger, and why."""

    epsilon: float
    word: str

    def spent(self) -> None:
        return None

    @property
    def end(self) -> str:
        return link("", ("stated", self.epsilon, self.word))

    def fault(self) -> str:
        return ""

    def to_dict(self) -> Json:
        return {"stated": {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None, "word": self.word}}


History = Counted | Kept | Stated


def added(spent: Iterable[Mapping[Event, int]]) -> Spent:
    """Charges of several histories together."""
    return dict(sum(map(Counter, spent), Counter[Event]()))


# ------------------------------------------------------------------------------------------ reading what is not trusted


def read_history(packed: Json) -> History:
    """What `to_dict` of a history gave, from a file that anybody may have written."""
    (kind, content), *others = packed.items()
    if others:
        raise ValueError("a history has one key")
    if kind == "charges":
        for charge in content:
            _refuse_other_keys(charge, ("event", "count", "hash"))
        entries = tuple((known_event(charge["event"]), whole(charge["count"])) for charge in content)
        return Counted(entries, tuple(str(charge["hash"]) for charge in content))
    if kind == "rows":
        return Kept(tuple(map(_read_row, content)))
    if kind == "stated":
        _refuse_other_keys(content, ("epsilon", "word"))
        return Stated(math.inf if content["epsilon"] is None else float(content["epsilon"]), str(content["word"]))
    raise ValueError(f"a history of kind {kind!r}")


def _read_row(packed: Json) -> Entry:
    _refuse_other_keys(packed, Entry._fields)
    withheld: Json = {"details": ""} if packed["details"] is None else {}
    row = Entry(**packed | withheld)
    for number in (row.sequence, row.round or 0, row.question or 0):
        whole(number)
    texts: list[object] = [row.kind, row.hash, row.run or "", row.details]
    if not all(isinstance(text, str) for text in texts) or type(row.time) is not float:
        raise ValueError("a row has a value of another type than it must")
    return row


def known_event(packed: Json) -> Event:
    """An event of a known kind, with numbers about batches only if it draws such batches."""
    event = make_event(**packed)
    kinds = (event.mechanism, Mechanism), (event.sampling, Sampling), (event.relation, Relation)
    known = all(name in get_args(kind) for name, kind in kinds)
    batches = {"full": (1.0, 0, 0), "poisson": (event.rate, 0, 0), "fixed-size": (1.0, event.batch, event.size)}
    if not known or (event.rate, event.batch, event.size) != batches[event.sampling]:
        raise ValueError(f"no answer is {event}")
    return event


def whole(value: object) -> int:
    """`value`, which must be a whole number >= 0."""
    if type(value) is not int or value < 0:
        raise ValueError("a whole number >= 0 is needed")
    return value


def _refuse_other_keys(packed: Json, known: Sequence[str]) -> None:
    if not set(packed) <= set(known):
        raise ValueError(f"unknown key {min(set(packed) - set(known))!r}")


# --------------------------------------------------------------------------------------- rows on their way to a server


def pack_rows(entries: Sequence[Entry]) -> str:
    """The rows of a ledger as short text; "" where there are too many for one message.

    Each hash follows from the one before, so only the first and the last one are sent.
    """
    rows = Kept.of(entries).rows
    # A null ends each row: format 3 of messages has it.
    sent = [(*row[:-2], row.details or None, "" if row.details else row.hash, None) for row in rows]
    content = json.dumps({"rows": sent, "end": rows[-1].hash}, separators=(",", ":"))
    text = base64.b64encode(zlib.compress(content.encode(), 9)).decode()
    return text if len(text) <= MOST_CHARACTERS else ""


def unpack_rows(text: str) -> Kept:
    """What `pack_rows` gave, from somebody who is not trusted: InvalidInput if it is not a whole ledger."""
    try:
        reader = zlib.decompressobj()
        raw = reader.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        if not reader.eof:
            raise ValueError("it is too long, or cut off")
        packed = json.loads(raw)
        rows = [_read_row(dict(zip(Entry._fields, row[:-1], strict=True))) for row in packed["rows"]]
        for place, row in enumerate(rows):
            if place and row.details:
                rows[place] = row._replace(hash=link(rows[place - 1].hash, row[:-1]))
        kept = Kept(tuple(rows))
        fault = kept.fault() or ("" if kept.end == packed["end"] else "its last row is not the one it names")
        fault = fault or ("" if len(kept.spent()) <= MOST_KINDS else "it has too many kinds of answers")
    except (check.SottovoceError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise check.InvalidInput(f"charges: cannot be read ({type(error).__name__})") from None
    check.require(not fault, "charges", fault)
    return kept
