"""What a server is told of an error at a client: a code and a sentence that do not depend on data."""

from collections.abc import Iterator
from contextlib import contextmanager

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.limits import Refused
from sottovoce.experiment.whole_files import StoreError
from sottovoce.ledger.budget import LedgerError
from sottovoce.privacy.doors.party import OutOfRange

_SENTENCES = {
    wire.LEDGER: "its ledger cannot be read, written or trusted; its owner has to look at it",
    wire.DISK: "its disk is full or cannot be written; nothing was answered",
    wire.FAILED: "it could not answer; its own log says why",
}


def sentence_for(error: Exception) -> tuple[str, str]:
    """A code and a sentence for the server. Unexpected error texts are never forwarded: they may contain data."""
    if isinstance(error, Refused):
        return error.code, str(error)
    if isinstance(error, OutOfRange):  # about the server's own numbers
        return wire.BAD_ASK, str(error)
    if isinstance(error, check.BudgetSpent):
        return wire.BUDGET, "its privacy budget is spent"
    if isinstance(error, LedgerError):
        return wire.LEDGER, _SENTENCES[wire.LEDGER]
    if isinstance(error, StoreError) or (isinstance(error, OSError) and not isinstance(error, check.SottovoceError)):
        return wire.DISK, _SENTENCES[wire.DISK]
    return wire.FAILED, _SENTENCES[wire.FAILED]


@contextmanager
def bad_ask(what: str = "", *kinds: type[Exception]) -> Iterator[None]:
    """Tell the server what cannot be read in its question: no data is in that. `kinds`: besides `InvalidInput`."""
    try:
        yield
    except (check.InvalidInput, *kinds) as error:
        raise Refused(wire.BAD_ASK, f"{what}{str(error)[:300]}") from None


@contextmanager
def kept_from_servers() -> Iterator[None]:
    """What is wrong with an owner's own files is for its log: a server is told that it failed, and nothing of them."""
    try:
        yield
    except check.InvalidInput as error:
        raise check.MissingData(str(error)) from None
