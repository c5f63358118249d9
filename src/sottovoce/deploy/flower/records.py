"""Messages of `wire.py` as Flower's records and back: one record of values, and more for arrays that are large.

Each record is a piece of a message that travels and is stored by itself, so a message has as few as it can: small
arrays travel beside the values.
"""

import logging
from collections.abc import Callable

from flwr.app import ConfigRecord, Message, RecordDict

from sottovoce.core import check
from sottovoce.deploy import wire

log = logging.getLogger("sottovoce")
KIND = "query"  # of all our messages, as Flower sorts them; which of `wire.py` they are is among their values
_SAID, _BYTES, _PART = "said", "bytes", 2**22  # bytes in one record; our SuperLink takes pieces of 8 MiB
_MOST_PARTS = wire.MOST_BYTES // _PART
_ERRORS = {  # Flower's numbers for what it puts in place of a reply, in words
    1: "its node is no node of this library: it tried to start an app",
    2: "its node is no node of this library: an app failed there",
    3: "the question is gone: it was older than the deadline, or the server was started anew",
    4: "its answer came too late, or was lost when the server was started anew",
    5: "its node was not connected any more",
    7: "its node is no node of this library: it could not read an app",
    8: "its node is no node of this library: an app ended there",
}


def to_records(message: wire.Message) -> RecordDict:
    """The records of a message."""
    values, data = wire.taken_apart(message)
    parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
    if len(parts) < 2:
        return RecordDict({_SAID: ConfigRecord({**values, _BYTES: data})})
    more = {f"{_BYTES}{number}": ConfigRecord({_BYTES: part}) for number, part in enumerate(parts)}
    return RecordDict({_SAID: ConfigRecord(values), **more})


def from_records(records: RecordDict, *kinds: type[wire.Kind]) -> wire.Kind:
    """The message of one of these kinds that was put into records; anything else is refused."""
    values_record = records.get(_SAID)
    check.require(isinstance(values_record, ConfigRecord), "message", f"needs a record {_SAID!r} of values")
    values = {str(name): value for name, value in dict(values_record).items()}  # type: ignore[arg-type]
    check.require(len(records) <= 1 + _MOST_PARTS, "message", f"must have at most {_MOST_PARTS} parts", len(records))
    more = [records.get(f"{_BYTES}{number}") for number in range(len(records) - 1)]
    arrays = [part.get(_BYTES) if isinstance(part, ConfigRecord) else None for part in more]
    parts = [part for part in (values.pop(_BYTES, b""), *arrays) if isinstance(part, bytes)]
    check.require(len(parts) == 1 + len(more), "message", "must have the bytes of its arrays in its records")
    return wire.put_together(values, b"".join(parts), *kinds)


def reply_to(message: Message, work: Callable[[wire.Question], wire.Response]) -> Message:
    """The reply to a message: what `work` says to the question in it. Of an error only a code is told."""
    try:
        reply = work(from_records(message.content, *wire.QUESTIONS))
    except Exception as error:
        readable = isinstance(error, check.SottovoceError)
        words = str(error) if readable else "not told, for it may quote rows"  # only ours are known not to
        log.error("%s: %s", type(error).__name__, wire.printable(words, 1000))
        why = "its own file or the question cannot be read" if readable else "it could not answer"
        reply = wire.Reply(wire.FAILED, why)
    return Message(to_records(reply), reply_to=message)


def replied(message: Message) -> wire.Response:
    """What came back: a reply or a status; or why it cannot be read."""
    if not message.has_content():
        code = message.error.code
        why = _ERRORS.get(code, "Flower could not deliver the message")
        return wire.Reply(wire.UNREACHABLE, f"{why} (Flower's error {code})")
    try:
        return from_records(message.content, *wire.REPLIES)
    except check.SottovoceError as error:
        return wire.Reply(wire.BAD_ANSWER, str(error)[:300])
