"""What guarantees say of noise, units and observers, by the names of settings."""

from collections.abc import Iterable

from sottovoce.privacy.events import Event, contributors_of
from sottovoce.privacy.modes import PrivacyMode

OBSERVER = "the server and anyone else who sees every message and the model"
SUMS_BEFORE = "; but of answers that earlier runs charged as terms of sums, every opened sum and masked message alone"
OBSERVER_OF_SUMS = (
    "the server, at most {colluders} of the other clients who share what they know with it, and anyone else who sees "
    "every opened sum, every masked message and the model; as long as at least {least} of the {roster} clients are in "
    "every sum, and nobody breaks X25519, ChaCha20, SHA-256 or Ed25519"
)
NOISE = {
    "seeded": "simulation: pseudo-random, repeatable, in floating point; this holds for the mechanism, not against "
    "someone who knows the seed",
    "forgotten": "pseudo-random, in floating point, of a seed that the operating system drew and that is kept nowhere; "
    "this holds for the mechanism, not against someone who can read this machine's memory while it runs",
    "forgotten discrete": "discrete, pseudo-random, of a seed that the operating system drew and that is kept nowhere; "
    "this holds for the mechanism, not against someone who can read this machine's memory while it runs",
    "discrete": "simulation: discrete noise, pseudo-random and repeatable; this holds for the mechanism, not against "
    "someone who knows the seed",
    "secure": "discrete noise from the operating system's generator",
}
UNITS = {
    ("record", "replace-one"): "one record of one client, replaced by any other",
    ("record", "add-remove"): "one record of one client, there or blank (how many there are is public)",
    ("client", "replace-one"): "one whole client, its data replaced by any other",
}
COLUMN_UNITS = {
    "party": "all columns of one party, replaced by any others",
    "column": "one column of one party, replaced by any other",
    "record": "one record's entries at one party, replaced by any others",
}


def short_unit(unit: str) -> str:
    """The unit of a guarantee in one word."""
    known = ("column of", "record", "client", "party")  # the smallest that is named
    return next((word for word in known if f"one {word}" in unit.replace("whole ", "")), "unit").removesuffix(" of")


def observer_of(privacy: PrivacyMode, events: Iterable[Event]) -> str:
    """Against whom these charges hold: those of earlier runs may hold only against somebody who saw sums."""
    if privacy.sums:
        return OBSERVER_OF_SUMS.format(**vars(privacy))
    return OBSERVER + SUMS_BEFORE if any(contributors_of(event) > 1 for event in events) else OBSERVER


def of_sums(observer: str) -> bool:
    """Whether an observer, as a guarantee names it, sees only sums of messages, of this or of earlier runs."""
    return "every opened sum" in observer
