"""What a client knows of its set-up and of the current round, on disk before anything that follows from it is sent."""

from dataclasses import dataclass, field

from sottovoce.core import check
from sottovoce.deploy.aggregation.messages import cut, pack_set, read_set, set_length
from sottovoce.deploy.aggregation.plan import DIGEST, Plan
from sottovoce.deploy.aggregation.store import Store

ANNOUNCED, SHARED, READY = 1, 2, 3  # S1, S2, S3 were answered
FILE = "state"
OF_STAGE = {ANNOUNCED: "announced", SHARED: "shared"}  # the file that the next step of the set-up needs
_NOTHING = bytes(DIGEST)
_VERSION = 1


@dataclass(frozen=True)
class State:
    """How far a client is.

    Parameters
    ----------
    stage
        ANNOUNCED, SHARED or READY.
    plan, attempt
        The digest of the plan, and how the server calls this attempt to agree on it.
    run
        SHA-256 of the plan and all S1 messages; known from S2 on.
    k
        The last round in which it uploaded; 0 before the first.
    question
        SHA-256 of what it was asked in that round.
    signed
        The set it signed, or gave shares for, in that round.
    given
        Whether it gave shares in that round.
    reply
        What it sent last in that round and sends again to the same question: its masked upload; once it gave shares,
        those.
    """

    stage: int
    plan: bytes
    attempt: bytes
    run: bytes = _NOTHING
    k: int = 0
    question: bytes = _NOTHING
    signed: frozenset[int] | None = field(default=None)
    given: bool = False
    reply: bytes = field(default=b"", repr=False)

    def write(self, store: Store, plan: Plan) -> None:
        """Put it on disk."""
        small = bytes([_VERSION, self.stage, self.given, self.signed is not None]) + self.k.to_bytes(4, "big")
        digests = self.plan + self.attempt + self.run + self.question
        store.write(FILE, small + digests + pack_set(plan, self.signed or ()) + self.reply)

    @classmethod
    def read(cls, store: Store, plan: Plan) -> "State | None":
        """What is on disk; None if nothing is, or if it belongs to another plan."""
        content = store.read(FILE)
        if content is None or content[8 : 8 + DIGEST] != plan.digest:
            return None
        head = 8 + 4 * DIGEST + set_length(plan)
        parts = cut("state of sums", content[:head], 4, 4, *[DIGEST] * 4, set_length(plan))
        version, stage, gave_shares, signed = parts[0]
        check.require(version == _VERSION, "state of sums", f"must be of version {_VERSION}", version)
        members, k = read_set(plan, parts[6]) if signed else None, int.from_bytes(parts[1], "big")
        return cls(stage, parts[2], parts[3], parts[4], k, parts[5], members, bool(gave_shares), content[head:])


def secrets_of(k: int) -> str:
    """The file with the client's own secrets for round k, and the public keys of all; until its upload."""
    return f"secrets-{k:06d}"


def shares_of(k: int) -> str:
    """The file with all clients' shares for round k; until it gave them or a later round began."""
    return f"shares-{k:06d}"


def sweep(store: Store, state: State | None) -> None:
    """Delete what is no longer needed at this state, also what a crash left behind."""
    for name in list(store.names()):
        if state is None or not _is_needed(name, state):
            store.delete(name)


def _is_needed(name: str, state: State) -> bool:
    kind, _, k = name.partition("-")
    first = {"secrets": state.k + 1, "shares": state.k + 1 if state.given else state.k}
    return int(k) >= first[kind] if kind in first and k.isdigit() else name in (FILE, OF_STAGE.get(state.stage))
