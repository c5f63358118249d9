"""What a server and a client say to each other, as plain values: text, numbers, and arrays as shapes and bytes.

Whatever carries it (`flower/`, `gate.py`) only moves it: `taken_apart` and `put_together` are all it needs to know.
Arrays stay bytes until the one who reads them has said how large they may be, so nothing that came from outside is
decoded, or given memory, by what it says of itself.

A further kind of message is one more class here, named in `QUESTIONS` or `REPLIES`; `Node.reply_to` answers questions.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from sottovoce.core import check, codec, shapes
from sottovoce.core.files import utf8
from sottovoce.core.plain import Json
from sottovoce.core.round import State
from sottovoce.experiment.tables import fit_value, from_table
from sottovoce.ledger.histories import MOST_CHARACTERS

FORMAT = 3  # of messages; another one is refused
Packed = dict[str, tuple[tuple[int, ...], bytes]]  # by name: shape, and little-endian float64
MOST_ARRAYS = 64
MOST_BYTES = 2**30  # of all arrays of a message
LONGEST_TEXT = 2**20  # of all texts in a message
LONGEST_TERMS = 1 << 16

# What is asked: one round of the algorithm; and where columns are split, a party's model after the last round, or one
# of the two questions about labels. After the last round of rows: counts of held-out records.
ROUND, MODEL, PROX, SLOPE, HISTOGRAM = "round", "model", "prox", "slope", "histogram"
# Where the server sees sums only, the steps of a protocol take the place of a round (`aggregation/`): S1, S2, S3 of a
# set-up, then R1, R2, R3 of each round.
ANNOUNCE, SHARE, RECEIVE = "sums-announce", "sums-share", "sums-receive"
UPLOAD, STAND_FOR, REVEAL = "sums-upload", "sums-stand-for", "sums-reveal"
SUMS = (ANNOUNCE, SHARE, RECEIVE, UPLOAD, STAND_FOR, REVEAL)
# Where products of split columns are asked for, these steps come before the round (`multiplying.py`).
BEGIN, AGREE, DEAL = "products-begin", "products-agree", "products-deal"
SEND, TAKE, FORGET = "products-send", "products-take", "products-forget"
PRODUCTS = (BEGIN, AGREE, DEAL, SEND, TAKE, FORGET)
# After it, scores of new samples (`scoring.py`).
SCORING = SCORE_BEGIN, SCORES = "scores-begin", "scores"

WHATS = (ROUND, MODEL, PROX, SLOPE, HISTOGRAM, *SUMS, *PRODUCTS, *SCORING)

# Why a client did not answer. What is said beside it never depends on data.
BUDGET, LIMITS, ANSWERED, LATE, LOST, STATE = "budget", "limits", "answered", "late", "lost", "state"
LEDGER, DISK, BUSY, FAILED, BAD_ASK, PACE = "ledger", "disk", "busy", "failed", "bad-ask", "pace"
SET_UP = "set-up"  # what sums need was not agreed on, or is gone: it must be set up again
# Why the server counts a client as silent.
ABSENT, TIMEOUT, UNREACHABLE, BAD_ANSWER = "absent", "timeout", "unreachable", "bad-answer"


@dataclass(frozen=True)
class Message:
    """What all kinds of message have."""

    format: int = field(default=FORMAT, kw_only=True)
    arrays: ClassVar[str] = ""  # the field with arrays

    def __post_init__(self) -> None:
        kind = type(self).__name__
        must_be_known(kind, self.format)
        check.fields(self, kind)


@dataclass(frozen=True)
class Hello(Message):
    """Asks a client who it is and where its ledger stands; a `Status` answers it."""


@dataclass(frozen=True)
class Ask(Message):
    """One round's question to one client.

    Parameters
    ----------
    experiment
        Names the training run; a client keeps its state under it.
    client, k
        The client's number, and the round, from 1.
    task
        The tables [objective], [algorithm], [privacy], [participation], [evaluate] and [run] as TOML.
    events
        What an answer of each kind is and how much noise it carries, as a JSON list; "" where there is no budget.
    row_bound
        What no client's row is longer than; 0 where nothing is promised.
    what
        One of WHATS.
    down
        The broadcast, this client's rows of it; or the question about labels; or the bytes of a step of SUMS,
        PRODUCTS or scores.
    run
        Of SUMS: the name of the run that was set up, 64 hex digits; "" in S1 and S2, where it has none yet. Of
        PRODUCTS, and of the round after them: what the owners agreed on; "" in the first two steps.
    """

    experiment: str
    client: check.WholeOrZero
    k: check.Whole
    task: str
    events: str = ""
    row_bound: check.NonNegative = 0.0
    what: str = ROUND
    down: Packed = field(default_factory=dict, repr=False)
    run: str = ""
    arrays: ClassVar[str] = "down"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.require(is_hex(self.experiment, 16), "Ask", "experiment must be 32 hex digits")
        check.require(max(self.client, self.k) < 2**31, "Ask", "client and k must be < 2**31")
        check.one_of("Ask", "what", self.what, WHATS)
        check.require(not self.run or is_hex(self.run), "Ask", "run must be 64 hex digits")
        check.require(len(self.task) + len(self.events) <= LONGEST_TEXT, "Ask", f"must be at most {LONGEST_TEXT} long")

    def digest(self) -> str:
        """The same for the same question to the last bit, and for no other."""
        digest = hashlib.sha256(f"{self.identity()};{self.what};{self.k};{self.run};".encode())
        for name, (shape, data) in sorted(self.down.items()):
            digest.update(f"{name} {shape} {len(data)};".encode() + data)
        return digest.hexdigest()

    def identity(self) -> str:
        """What must not change from one round of an experiment to the next."""
        parts = (self.experiment, self.client, self.task, self.events, self.row_bound)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Reply(Message):
    """An answer (`code` is "", `up` holds it), or why there is none."""

    code: str = ""
    why: str = ""
    up: Packed = field(default_factory=dict, repr=False)
    arrays: ClassVar[str] = "up"

    def reason(self) -> str:
        """Code and reason for a log."""
        return f"{printable(self.code, 40)}: {printable(self.why, 300)}"


@dataclass(frozen=True)
class Status(Message):
    """What a client says of itself: its name, its public numbers, and where its ledger stands."""

    name: str
    size: check.Whole
    columns: check.Whole
    epsilon: check.NonNegative  # spent, in this and all earlier runs
    limit: check.Positive  # the most it will ever spend
    delta: check.NonNegative
    spent: str = "[]"  # on what: a list of [event, how often], as JSON
    labels: bool = True  # whether it has any
    order: str = ""  # where columns are split: SHA-256 of its salted sample ids, whose order its rows are in
    charges: str = ""  # the rows of its ledger (`ledger/charges.py`); "" where they are too many for a message

    def __post_init__(self) -> None:
        super().__post_init__()
        check.require(len(self.charges) <= MOST_CHARACTERS, "Status", f"charges must be at most {MOST_CHARACTERS} long")
        check.require(0 < len(self.name) <= 200 and self.name.isprintable(), "Status", "name must be one line of text")
        check.require(not self.order or is_hex(self.order), "Status", "order must be 64 hex digits")


def is_hex(text: object, length: int = 32) -> bool:
    """Whether these are so many bytes, as hex digits."""
    return isinstance(text, str) and len(text) == 2 * length and set(text) <= set("0123456789abcdef")


def must_be_known(kind: str, format_: object) -> None:
    """Refuse a message of a format that this library does not use. Messages of the first format name none."""
    hint = "Install the same version of sottovoce on both sides"
    check.require(format_ == FORMAT, kind, f"must be a message of format {FORMAT}", format_, hint)


Question = Hello | Ask
Response = Reply | Status
QUESTIONS, REPLIES = (Hello, Ask), (Reply, Status)
Kind = TypeVar("Kind", bound=Message)


def taken_apart(message: Message) -> tuple[Json, bytes]:
    """A message as plain values, which say its kind and how its arrays lie in the bytes beside them."""
    values = dict(vars(message))
    packed: Packed = values.pop(message.arrays, {})
    kind = type(message).__name__.lower()
    layout = [[name, list(shape), len(data)] for name, (shape, data) in packed.items()]
    return values | {"kind": kind, "layout": json.dumps(layout)}, b"".join(data for _, data in packed.values())


def put_together(values: Mapping[str, object], data: bytes, *kinds: type[Kind]) -> Kind:
    """The message of one of these kinds that was taken apart; each value must be of the type it declares."""
    values = dict(values)
    layout, known = values.pop("layout", "[]"), {kind.__name__.lower(): kind for kind in kinds}
    kind = known[check.one_of("message", "kind", str(values.pop("kind", ""))[:40], tuple(known))]
    texts = sum(len(value) for value in values.values() if isinstance(value, str | bytes | list))
    check.require(texts <= LONGEST_TEXT, kind.__name__, "holds texts that are too long")
    check.require(len(data) <= MOST_BYTES, kind.__name__, f"must have at most {MOST_BYTES} bytes of arrays", len(data))
    message = read(kind, {name: value for name, value in values.items() if name != kind.arrays})
    return replace(message, **{kind.arrays: _arrays(str(layout), data)}) if kind.arrays else message


def _arrays(layout: str, data: bytes) -> Packed:
    """Arrays as they came, not decoded: shapes and bytes."""
    arrays: Packed = {}
    start, view, rule = 0, memoryview(data), "arrays must be described by names, shapes and lengths"
    try:
        described = json.loads(layout[:LONGEST_TEXT])
        few = len(described) <= MOST_ARRAYS
        check.require(few, "message", f"must have at most {MOST_ARRAYS} arrays", len(described))
        for name, shape, length in described:
            check.require(isinstance(length, int) and length >= 0, "message", rule)
            arrays[str(name)] = (tuple(int(each) for each in shape), bytes(view[start : start + length]))
            start += length
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, check.SottovoceError):
            raise
        raise check.InvalidInput(f"message: {rule}") from None
    check.require(start == len(data), "message", "must have the bytes that its arrays are said to have", len(data))
    return arrays


def read(kind: type[Kind], values: Json) -> Kind:
    """A message from the plain values in it, each of the type it declares; arrays are put in later."""
    must_be_known(kind.__name__, values.get("format", 1))
    return from_table(kind, values, kind.__name__)


def pack(message: State) -> Packed:
    """The arrays of a message as bytes."""
    arrays = codec.to_arrays(message)
    return {name: (array.shape, np.ascontiguousarray(array, dtype="<f8").tobytes()) for name, array in arrays.items()}


def unpack(packed: Packed, kind: type[codec.Message], allowed: Mapping[str, Sequence[int]]) -> codec.Message:
    """A message of one client from what came in; whatever is not of the allowed widths is refused unread."""
    shapes.fitting_widths(kind, allowed, {name: shape for name, (shape, _) in packed.items()})
    arrays = {}
    for name, (shape, data) in packed.items():
        check.require(len(data) == 8 * math.prod(shape), kind.__name__, f"{name} must have 8 bytes a number", len(data))
        arrays[name] = np.frombuffer(data, dtype="<f8").astype(np.float64).reshape(shape)
    return codec.from_arrays(kind, arrays)


def printable(text: str, longest: int) -> str:
    """Words of others for a log or a terminal, however long they are and whatever characters they hold."""
    text = text[:longest]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def of_bytes(content: bytes) -> Packed:
    """Bytes that are no array: a step of SUMS, PRODUCTS or scores."""
    return {"content": ((len(content),), content)}


def bytes_of(packed: Packed) -> bytes:
    """The bytes of such a message."""
    check.require(set(packed) == {"content"}, "message", "must hold bytes called 'content'", len(packed))
    return packed["content"][1]


def read_terms(who: str, content: bytes, kinds: Sequence[object], rule: str) -> list[Any]:
    """The values of a JSON list, which must be of these types, one each; anything else is refused by `rule`."""
    check.require(len(content) <= LONGEST_TERMS, who, f"the terms must be at most {LONGEST_TERMS} bytes long")
    with suppress(ValueError, TypeError, RecursionError):  # what they say may quote the content
        values = json.loads(utf8(who, content, "terms"))
        return [fit_value(who, "terms", value, kind) for value, kind in zip(values, kinds, strict=True)]
    raise check.InvalidInput(f"{who}: {rule}")


def weight(packed: Mapping[str, tuple[object, bytes]]) -> int:
    """Bytes of arrays in a message."""
    return sum(len(data) for _, data in packed.values())
