"""The rows of an owner's ledger on their way to a server, which does not trust them."""

import base64
import json
import zlib
from collections.abc import Sequence

from sottovoce.core import check
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.ledger.chain import Entry, link
from sottovoce.ledger.histories import MOST_KINDS, Kept, Row, read_row, shown

MOST_CHARACTERS = 2**19  # of the rows that a client reports, packed
_MOST_BYTES = 2**25  # of the same, unpacked


def pack_rows(entries: Sequence[Entry]) -> str:
    """The rows of a ledger as short text; "" where there are too many for one message.

    Each hash follows from the one before, so only the last one and those of rows without details are sent.
    """
    rows = [shown(entry) for entry in entries]
    sent = [row if row.details is None else row._replace(hash="") for row in rows]
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
        rows = [read_row(dict(zip(Row._fields, row, strict=True))) for row in packed["rows"]]
        for place, row in enumerate(rows):
            if place and row.details is not None:
                rows[place] = row._replace(hash=link(rows[place - 1].hash, (*row[:6], row.details)))
        kept = Kept(tuple(rows))
        fault = kept.fault() or ("" if kept.end == packed["end"] else "its last row is not the one it names")
        fault = fault or ("" if len(kept.spent()) <= MOST_KINDS else "it has too many kinds of answers")
    except (SottovoceError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error) as error:
        raise InvalidInput(f"charges: cannot be read ({type(error).__name__})") from None
    check.require(not fault, "charges", fault)
    return kept
