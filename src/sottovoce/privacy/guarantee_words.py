"""What guarantees say of noise, units and observers, and what they do not cover, by the names of settings."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from sottovoce.core.products import dealer_of
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
NOT_COVERED = (
    "hyper-parameters, clip norms, encodings, scalers and stopping times that were chosen by looking at private data",
    "several records of one person: one record is the unit; k of them cost k times the epsilon and more than k deltas",
    "training losses and accuracies on private rows: the history of a simulation shows them, a deployment must not",
    "the number of records of each client",
    "refusals: that labels and row bounds passed their checks",
    "timing and message sizes",
)
_NOT_COVERED_SPLIT = tuple(text for text in NOT_COVERED if not text.startswith("the number of records"))
NOT_COVERED_COLUMNS = (
    *_NOT_COVERED_SPLIT,
    "which samples the parties have in common, how many there are, and how many columns each party has",
    "losses and accuracies of rounds before the last: the models they belong to were never released",
)
NOT_COVERED_PRODUCTS = (
    *_NOT_COVERED_SPLIT,
    "being on the list of samples, and how many there are: neighbours have the same list",
    "the score of a new sample that is asked for: whoever asks sees it, and of two owners the one who asks learns the "
    "other's part of it",
    "how many columns each owner has",
)
PRODUCTS_UNIT = "one record: all columns of one sample at all owners, and its label, replaced by any others"
COORDINATOR = "the coordinator"
Dealers = Mapping[tuple[int, int], str]  # who deals masks to each pair of owners


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


def dealers_of(names: Sequence[str]) -> Dealers:
    """Who deals to each pair of owners by default: the coordinator, or from three owners on another owner."""
    chosen = {pair: dealer_of(pair, len(names)) for pair in itertools.combinations(range(len(names)), 2)}
    return {pair: COORDINATOR if dealer is None else names[dealer] for pair, dealer in chosen.items()}


def observer_of_products(names: Sequence[str], dealers: Dealers) -> str:
    """Against whom a run holds that asked for products of split columns: who may share what with whom."""
    if len(names) == 1:
        return OBSERVER
    if COORDINATOR in dealers.values():
        return (
            "the coordinator alone, who deals the masks and opens the sums, or any one owner alone, with all that it "
            "sees; an owner that colludes with the coordinator is not covered"
        )
    by_dealer: dict[str, list[str]] = {}
    for (a, b), dealer in dealers.items():
        by_dealer.setdefault(dealer, []).append(f"{names[a]} and {names[b]}")
    dealing = "; ".join(f"{dealer} deals to {', to '.join(pairs)}" for dealer, pairs in by_dealer.items())
    return (
        "the server and any one owner, who share all that they see; an owner that colludes with the dealer of a pair "
        f"it belongs to is not covered ({dealing})"
    )
