"""Doors: the only way from an algorithm to data. Which one keeps which promise is said in one table, `DOORS`."""

from typing import Any

from sottovoce.core.contract import Asks, Layout
from sottovoce.privacy.doors.base import Door, PublishedDoor
from sottovoce.privacy.doors.client import ClientDoor
from sottovoce.privacy.doors.party import PartyDoor, ProvenPartyDoor, PublishedPartyDoor
from sottovoce.privacy.doors.proven import Ledger
from sottovoce.privacy.doors.record import RecordDoor
from sottovoce.privacy.doors.sums import ClientSums, RecordSums
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import PrivacyMode

DOORS: dict[tuple[Layout, str], type[Door]] = {  # how data are split, `PrivacyMode.promise`, and whether sums are seen
    ("rows", "none"): Door,
    ("rows", "published"): PublishedDoor,
    ("rows", "record"): RecordDoor,
    ("rows", "client"): ClientDoor,
    ("rows", "record, sums"): RecordSums,
    ("rows", "client, sums"): ClientSums,
    ("columns", "none"): PartyDoor,
    ("columns", "published"): PublishedPartyDoor,
    ("columns", "columns"): ProvenPartyDoor,
}


def open_door(
    privacy: PrivacyMode, events: tuple[Event, ...], ledger: Ledger | None, exact: Any, asks: Asks, **rest: Any
) -> Door:
    """The door that keeps this promise about `exact` (`problems/rows.py`, `problems/columns.py`)."""
    kind = DOORS[exact.layout, f"{privacy.promise}, sums" if privacy.sums else privacy.promise]
    more = {} if privacy.mode == "none" else {"privacy": privacy}
    if privacy.budget is not None:
        assert events, "a budget needs a plan"
        assert ledger is not None, "a budget needs a ledger"
        more |= {"events": events, "ledger": ledger}
    return kind(exact=exact, asks=asks, **more, **rest)
