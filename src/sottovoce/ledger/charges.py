"""What a run's ledgers were charged, as it is kept in the run's folder: enough to compute epsilon again.

One `History` per owner, or per group of owners (and runs) whose ledgers say the same:

* `Counted`: from a simulation's memory: how often each kind of answer was given, in a chain of hashes of its own;
* `Kept`: the rows of an owner's ledger file as they stand, with the chain that runs through them. Of the first row only
  the hash is told: it holds the owner's name and what the ledger keeps of the data set. Charges of the first format are
  told without their details too, which hold digests of what was asked; what they cost is told beside them;
* `Stated`: an epsilon that somebody states, where no ledger was shown.

A chain is no signature: whoever may write the folder can write another chain. It shows that a list was not edited by
hand, and, together with the seal in `experiment/store.py`, that it belongs to this config and this model.
"""

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

from sottovoce.core import check
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.ledger.chain import Entry, link
from sottovoce.ledger.memory import MemoryLedger, pack_event, unpack_event
from sottovoce.privacy.events import Event, Mechanism, Relation, Sampling

MOST_CHARACTERS = 2**19  # of the rows that a client reports, packed
_MOST_BYTES = 2**25  # of the same, unpacked
MOST_KINDS = 256  # different kinds of answer in one history: an accountant takes its time for each

Spent = dict[Event, int]


class Row(NamedTuple):
    """A row of an owner's ledger; `details` is None where they are withheld, `event` what such a charge was."""

    sequence: int
    kind: str
    time: float
    run: str | None
    round: int | None
    question: int | None
    details: str | None
    hash: str
    event: dict[str, Any] | None = None


def shown(entry: Entry) -> Row:
    """A row as it may leave its owner."""
    row = Row(*entry)
    if entry.kind == "opened":
        return row._replace(details=None)
    if entry.kind != "charge":
        return row
    event = json.loads(entry.details)["event"]
    return row if "row_bound" in event else row._replace(details=None, event=event)


# ------------------------------------------------------------------------------------------------------------ histories


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
        if any(isinstance(count, bool) or not isinstance(count, int) or count < 1 for _, count in self.entries):
            return "a count is not a whole number above 0"
        return "" if tuple(_chain(self.entries)) == self.hashes else "a charge does not match its hash"

    def to_dict(self) -> dict[str, Any]:
        charges = zip(self.entries, self.hashes, strict=True)
        told = [{"event": pack_event(event), "count": count, "hash": hash_} for (event, count), hash_ in charges]
        return {"charges": told}


def _chain(entries: Iterable[tuple[Event, int]]) -> list[str]:
    hashes = [""]
    for event, count in entries:
        hashes.append(link(hashes[-1], ("charge", count, json.dumps(pack_event(event), sort_keys=True))))
    return hashes[1:]


@dataclass(frozen=True)
class Kept:
    """The rows of an owner's ledger file."""

    rows: tuple[Row, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Kept":
        return cls(tuple(shown(entry) for entry in entries))

    def spent(self) -> Spent:
        return dict(self._spent)

    @cached_property
    def _spent(self) -> Spent:
        return _counted(self._events())

    def spent_in(self, run: str) -> Spent:
        """What one run was charged."""
        return _counted(self._events(run))

    @property
    def end(self) -> str:
        return self.rows[-1].hash if self.rows else ""

    @property
    def withheld(self) -> int:
        """How many charges are of the first format, whose details are not told: no hash can be checked for them."""
        return sum(row.kind == "charge" and row.details is None for row in self.rows)

    def fault(self) -> str:
        """Why this is not an untouched ledger; "" if nothing speaks against it."""
        if not self.rows or (self.rows[0].kind, self.rows[0].details) != ("opened", None):
            return "its first row is missing, or says more than a hash"
        newer = max((row.sequence for row in self.rows if row.kind == "format"), default=0)
        keys = [(row.run, row.round, row.question) for row in self.rows if row.kind == "charge"]
        if len(set(keys)) < len(keys):
            return "an answer is charged twice under one name"
        for before, row in zip(self.rows, self.rows[1:], strict=False):
            if row.sequence != before.sequence + 1 or self.rows[0].sequence != 0:
                return f"row {before.sequence + 1} is missing"
            if row.details is None:
                if row.kind != "charge" or row.sequence > newer:
                    return f"row {row.sequence} withholds what it says, which only charges of the first format may"
            elif link(before.hash, (*row[:6], row.details)) != row.hash or row.event is not None:
                return f"row {row.sequence} does not match its hash: it, or a row before it, was changed"
            if row.kind not in ("charge", "budget", "format") or row.time < before.time:
                return f"row {row.sequence} cannot stand there"
        return ""

    def to_dict(self) -> dict[str, Any]:
        return {"rows": [{k: v for k, v in row._asdict().items() if k != "event" or v} for row in self.rows]}

    def _events(self, run: str | None = None) -> Iterable[Event]:
        for row in self.rows:
            if row.kind == "charge" and run in (None, row.run):
                yield _event(row.event or {} if row.details is None else json.loads(row.details)["event"])


def _counted(events: Iterable[Event]) -> Spent:
    spent: Spent = {}
    for event in events:
        spent[event] = spent.get(event, 0) + 1
    return spent


@dataclass(frozen=True)
class Stated:
    """No ledger was shown: an epsilon, and whose word it is."""

    epsilon: float
    word: str

    def spent(self) -> None:
        return None

    @property
    def end(self) -> str:
        return link("", ("stated", self.epsilon, self.word))

    def fault(self) -> str:
        return ""

    def to_dict(self) -> dict[str, Any]:
        return {"stated": {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None, "word": self.word}}


History = Counted | Kept | Stated


# -------------------------------------------------------------------------------------------------------- a whole run


@dataclass(frozen=True)
class Charges:
    """All charges that a guarantee is about.

    Parameters
    ----------
    planned
        What an answer to each kind of question of this run was planned to be; with unequal batches, that of the
        largest share.
    run
        The name of this run in the owners' ledgers; "" in memory.
    rounds
        How many rounds were done.
    histories, who
        The distinct histories, and which is whose: one list per repetition, one number per owner.
    labels
        Where columns are split and labels randomised: the history of the labels.
    """

    planned: tuple[Event, ...]
    rounds: int
    histories: tuple[History, ...]
    who: tuple[tuple[int, ...], ...]
    run: str = ""
    labels: History | None = None

    @classmethod
    def in_memory(
        cls, planned: tuple[Event, ...], rounds: int, ledger: MemoryLedger, labels: History | None = None
    ) -> "Charges":
        spent, who = ledger.histories()
        return cls(planned, rounds, tuple(map(Counted.of, spent)), tuple(map(tuple, who.tolist())), labels=labels)

    @classmethod
    def on_disk(
        cls,
        planned: tuple[Event, ...],
        rounds: int,
        histories: Sequence[History],
        run: str,
        labels: History | None = None,
    ) -> "Charges":
        return cls(planned, rounds, tuple(histories), (tuple(range(len(histories))),), run, labels)

    @property
    def owners(self) -> int:
        return len(self.who[0])

    @property
    def repetitions(self) -> int:
        return len(self.who)

    def of(self, owner: int, repetition: int = 0) -> History:
        return self.histories[self.who[repetition][owner]]

    def events(self) -> list[Event]:
        """Every kind of answer in any history, the planned ones first."""
        kinds = dict.fromkeys(self.planned)
        for history in self.histories:
            kinds |= dict.fromkeys(history.spent() or ())
        return list(kinds)

    def answers(self) -> int:
        """The most answers that one owner was charged for (in one repetition)."""
        return max((sum((history.spent() or {}).values()) for history in self.histories), default=0)

    def of_all_repetitions(self) -> Spent:
        """The most that any owner was charged in all repetitions together: of each kind of answer by itself."""
        columns = {tuple(sorted(column)) for column in zip(*self.who, strict=True)}
        most: Spent = {}
        for column in columns:
            for event, count in added(self.histories[place].spent() or {} for place in column).items():
                most[event] = max(most.get(event, 0), count)
        return most

    def of_all_owners(self) -> list[Spent]:
        """What all owners together were charged in each repetition; each distinct sum once."""
        rows = {tuple(sorted(row)) for row in self.who}
        return [added(self.histories[place].spent() or {} for place in row) for row in sorted(rows)]

    def ends(self) -> list[str]:
        """The last hash of every chain."""
        return [history.end for history in (*self.histories, *([self.labels] if self.labels else []))]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        planned = [pack_event(event) for event in self.planned]
        return {
            "run": self.run,
            "rounds": self.rounds,
            **({"event": planned[0]} if len(planned) == 1 else {"events": planned}),
            "histories": [history.to_dict() for history in self.histories],
            "who": [list(owners) for owners in self.who],
            "labels": None if self.labels is None else self.labels.to_dict(),
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> "Charges":
        """What `to_dict` gave, from a file that anybody may have written."""
        try:
            histories = tuple(map(_history, said["histories"]))
            who = tuple(tuple(map(_whole, owners)) for owners in said["who"])
            labels = None if said["labels"] is None else _history(said["labels"])
            planned = tuple(map(_event, said["events"] if "events" in said else [said["event"]]))
            made = cls(planned, _whole(said["rounds"]), histories, who, str(said["run"]), labels)
            kinds = max((len(history.spent() or ()) for history in histories), default=0)
        except (SottovoceError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"charges: cannot be read ({type(error).__name__}: {error})") from None
        places = {place for owners in who for place in owners}
        fits = who and who[0] and len({len(owners) for owners in who}) == 1 and places == set(range(len(histories)))
        check.require(bool(fits), "charges", "every owner must have one history, and every history an owner")
        rule = f"at most {MOST_KINDS} kinds of answer may stand in one history"
        check.require(kinds <= MOST_KINDS, "charges", rule, kinds)
        return made


def charges_of(ledger: Any, planned: tuple[Event, ...], rounds: int, labels: History | None = None) -> Charges:
    """The charges in a simulation's memory (`MemoryLedger`) or in the owners' files (`OwnerLedgers`)."""
    if isinstance(ledger, MemoryLedger):
        return Charges.in_memory(planned, rounds, ledger, labels)
    return Charges.on_disk(planned, rounds, [Kept.of(rows) for rows in ledger.rows()], ledger.run, labels)


def added(spent: Iterable[Mapping[Event, int]]) -> Spent:
    """Charges of several histories together."""
    total: Spent = {}
    for one in spent:
        for event, count in one.items():
            total[event] = total.get(event, 0) + count
    return total


def _history(said: Mapping[str, Any]) -> History:
    (kind, content), *more = said.items()
    if more:
        raise ValueError("a history has one key")
    if kind == "charges":
        for one in content:
            _only(one, ("event", "count", "hash"))
        entries = tuple((_event(one["event"]), _whole(one["count"])) for one in content)
        return Counted(entries, tuple(str(one["hash"]) for one in content))
    if kind == "rows":
        return Kept(tuple(map(_row, content)))
    if kind == "stated":
        _only(content, ("epsilon", "word"))
        return Stated(math.inf if content["epsilon"] is None else float(content["epsilon"]), str(content["word"]))
    raise ValueError(f"a history of kind {kind!r}")


def _row(said: Mapping[str, Any]) -> Row:
    _only(said, Row._fields)
    row = Row(**said)
    numbers = [_whole(number) for number in (row.sequence, row.round or 0, row.question or 0)]
    texts = [row.kind, row.hash, row.run or "", row.details or ""]
    if len(numbers) < 3 or not all(isinstance(text, str) for text in texts) or not isinstance(row.time, float):
        raise ValueError("a row has a value of another type than it must")
    return row


def _event(packed: Mapping[str, Any]) -> Event:
    """An event from outside: of kinds that there are, with nothing said of batches that it does not draw."""
    event = unpack_event(packed)
    kinds = (event.mechanism, Mechanism), (event.sampling, Sampling), (event.relation, Relation)
    known = all(name in get_args(kind) for name, kind in kinds)
    batches = {"full": (1.0, 0, 0), "poisson": (event.rate, 0, 0), "fixed-size": (1.0, event.batch, event.size)}
    if not known or (event.rate, event.batch, event.size) != batches[event.sampling]:
        raise ValueError(f"no answer is {event}")
    return event


def _only(said: Mapping[str, Any], known: Sequence[str]) -> None:
    if not set(said) <= set(known):
        raise ValueError(f"unknown key {min(set(said) - set(known))!r}")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number >= 0 is needed")
    return value


# --------------------------------------------------------------------------------------- rows on their way to a server


def pack_rows(entries: Sequence[Entry]) -> str:
    """The rows of a ledger as short text; "" where there are too many for one message.

    Hashes follow from one another, so only the last one and those of rows without details are sent.
    """
    rows = [shown(entry) for entry in entries]
    told = [row if row.details is None else row._replace(hash="") for row in rows]
    content = json.dumps({"rows": told, "end": rows[-1].hash}, separators=(",", ":"))
    text = base64.b64encode(zlib.compress(content.encode(), 9)).decode()
    return text if len(text) <= MOST_CHARACTERS else ""


def unpack_rows(text: str) -> Kept:
    """What `pack_rows` gave, from somebody who is not trusted: InvalidInput if it is not a whole ledger."""
    try:
        reader = zlib.decompressobj()
        raw = reader.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        if not reader.eof:
            raise ValueError("it is too long, or cut off")
        said = json.loads(raw)
        rows = [_row(dict(zip(Row._fields, row, strict=True))) for row in said["rows"]]
        for place, row in enumerate(rows):
            if place and row.details is not None:
                rows[place] = row._replace(hash=link(rows[place - 1].hash, (*row[:6], row.details)))
        kept = Kept(tuple(rows))
        fault = kept.fault() or ("" if kept.end == said["end"] else "its last row is not the one it names")
        fault = fault or ("" if len(kept.spent()) <= MOST_KINDS else "it has too many kinds of answers")
    except (SottovoceError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise InvalidInput(f"charges: cannot be read ({type(error).__name__})") from None
    check.require(not fault, "charges", fault)
    return kept
