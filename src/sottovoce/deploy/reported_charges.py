"""What clients on other machines say their ledgers were charged, and what a server makes of it.

A client may say anything. What it shows is read within bounds, must be a whole chain, and must cost what it says it
spent; else its own number is taken as its word, and `sottovoce verify` says whose word that is.
"""

import json
from collections.abc import Sequence

import numpy as np

from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.deploy.remote import log
from sottovoce.deploy.wire import Status, printable
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.histories import MOST_KINDS, Counted, History, Stated, unpack_rows
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event, make_event
from sottovoce.privacy.guarantee import Statement
from sottovoce.privacy.modes import PrivacyMode

SILENT = "it did not report at the end: this is the limit it had named"
NOT_SHOWN = "it says what it spent, and did not show its ledger in a way that can be checked"
LABELS = "the label holder randomises labels once for life and keeps that in a ledger of its own"
Report = tuple[str, Status | None, float]  # a client's name, what it said at the end, and the limit it had named
_CLOSE = 1e-9  # relative: the same accountant on the same charges


def charged(
    privacy: PrivacyMode, planned: tuple[Event, ...], rounds: int, run: str, reports: Sequence[Report]
) -> Charges:
    """The charges of a deployed run, in the order of the clients."""
    _, delta = privacy.budget or (0.0, 0.0)
    histories = [
        Stated(limit, SILENT) if status is None else _checked(status, delta, name) for name, status, limit in reports
    ]
    on_labels = getattr(privacy, "label_epsilon", None)
    labels = None if on_labels is None else Stated(float(on_labels), LABELS)
    return Charges(planned, rounds, tuple(histories), (tuple(range(len(histories))),), run, labels)


def _checked(status: Status, delta: float, name: str) -> History:
    """A client's ledger as it shows it; its word where that cannot be checked."""
    try:
        kept: History = unpack_rows(status.charges) if status.charges else _counts(status.spent)
        epsilon = _epsilon(kept, delta)
        if abs(epsilon - status.epsilon) <= _CLOSE * max(epsilon, status.epsilon) and status.delta == delta:
            return kept
        why = "its charges do not cost what it says it spent"
    except InvalidInput as error:
        why = str(error)
    log.warning("%s: what it spent is taken at its word: %s", name, printable(why, 200))
    return Stated(max(float(status.epsilon), 0.0), NOT_SHOWN)


def _counts(text: str) -> Counted:
    """How often it answered what, where its ledger has too many rows for a message."""
    try:
        spent = {make_event(**packed): int(count) for packed, count in json.loads(text)}
        history = Counted.of(spent)
        fault = history.fault() or ("" if len(spent) <= MOST_KINDS else "it has too many kinds of answers")
    except (SottovoceError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"charges: cannot be read ({type(error).__name__})") from None
    if fault:
        raise InvalidInput(f"charges: {fault}")
    return history


def _epsilon(history: History, delta: float) -> float:
    if isinstance(history, Stated):
        return history.epsilon
    try:
        return accounting.epsilon(history.spent(), delta)
    except (SottovoceError, ArithmeticError) as error:  # of kinds that do not add up
        raise InvalidInput(f"charges: {error}") from None


def shown_by(charges: Charges, delta: float, kinds: tuple[str, ...]) -> Statement:
    """What is known of a deployed run."""
    epsilons = np.array([_epsilon(charges.of(owner), delta) for owner in range(charges.owners)])
    accountant = accounting.accountant_name(dict.fromkeys(charges.planned, charges.rounds), delta)
    return Statement(epsilons, accountant, charges, kinds, lasting=True, deployed=True)


def together(privacy: PrivacyMode, charges: Charges) -> float | None:
    """The epsilon of all parties' answers for a record that changes at every party; None if one showed nothing."""
    if privacy.budget is None or getattr(privacy, "unit", "") != "record":
        return None
    if any(isinstance(history, Stated) for history in charges.histories):
        return None
    try:
        return accounting.epsilon(charges.of_all_owners()[0], privacy.budget[1])
    except (SottovoceError, ArithmeticError):  # of kinds that do not add up with one another
        return None
