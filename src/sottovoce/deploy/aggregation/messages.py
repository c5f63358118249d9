"""The messages of the protocol as bytes. Every length follows from the plan; other lengths are refused unread.

| message | bytes |
|---|---|
| S1 answer | plan digest 32, i 4, nonce 32, E_i 32, per round X_i^k 32 and commitment 32, signature 64 |
| S2 question | the S1 answers of all, in roster order |
| S2 answer, S3 question | for (of) each peer, in roster order: per round shares of b and p, 32 each; tag 16 |
| R1 answer | 8 for each number, little-endian |
| R2 question | U: one bit a client |
| R2 answer | U = whole roster: a share of b_j^k for each j, 32 each; else a signature 64 |
| R3 question | U, one bit a client; signers, one bit a client; their signatures, 64 each |
| R3 answer | for each j a share of b_j^k or p_j^k, 32 each |
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sottovoce.core import check
from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import shamir
from sottovoce.deploy.aggregation.masks import label, number
from sottovoce.deploy.aggregation.plan import DIGEST, KEY, Plan

SIGNATURE, NONCE, TAG, PLACE = 64, 32, 16, 4  # bytes; TAG: by which a sealed message is longer
SHARES = 2 * shamir.BYTES  # one of b and one of p, of one client for one round


def cut(what: str, content: bytes, *lengths: int) -> list[bytes]:
    """The parts of a message, which must have exactly the length that all of them need."""
    check.require(len(content) == sum(lengths), what, f"must have {sum(lengths)} bytes", len(content))
    ends = itertools.accumulate(lengths)
    return [content[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def pieces(what: str, content: bytes, count: int, length: int) -> list[bytes]:
    """The parts of a message that are all of one length."""
    return cut(what, content, *[length] * count)


# ------------------------------------------------------------------------------------------------------------- set-up


@dataclass(frozen=True)
class Announcement:
    """What client i announces in S1: a nonce, its box key E_i, and for each round X_i^k and a commitment to b_i^k."""

    i: int
    nonce: bytes
    box: bytes
    keys: tuple[bytes, ...]
    commitments: tuple[bytes, ...]

    def signed(self, plan: Plan, key: Ed25519PrivateKey) -> bytes:
        rounds = (part for round_ in zip(self.keys, self.commitments, strict=True) for part in round_)
        body = b"".join([plan.digest, number(self.i), self.nonce, self.box, *rounds])
        return body + key.sign(label("S1", body))

    @staticmethod
    def length(plan: Plan) -> int:
        return DIGEST + PLACE + NONCE + KEY + plan.rounds * (KEY + DIGEST) + SIGNATURE

    @classmethod
    def read(cls, plan: Plan, i: int, content: bytes) -> "Announcement":
        """What client i announced: for this plan, under its own number, signed by its pinned key."""
        who, length = f"S1 of client {i}", cls.length(plan)
        body, signature = cut(who, content, length - SIGNATURE, SIGNATURE)
        check.require(is_signed(plan.roster[i], signature, label("S1", body)), who, "must be signed by its pinned key")
        *head, rounds = cut(who, body, DIGEST, PLACE, NONCE, KEY, plan.rounds * (KEY + DIGEST))
        check.require(head[0] == plan.digest, who, "must be for the plan that this client was shown")
        check.require(head[1] == number(i), who, "must be at its place in the roster")
        parts = pieces(who, rounds, 2 * plan.rounds, KEY)
        return cls(i, head[2], head[3], tuple(parts[::2]), tuple(parts[1::2]))


def is_signed(key: bytes, signature: bytes, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except (InvalidSignature, ValueError):  # ValueError: the key is no point
        return False
    return True


def box_length(plan: Plan) -> int:
    """Of one ciphertext from one client to another."""
    return plan.rounds * SHARES + TAG


# -------------------------------------------------------------------------------------------------------------- rounds


def read_numbers(content: bytes, width: int) -> Words:
    return np.frombuffer(*cut("R1 answer", content, 8 * width), dtype="<u8").astype(np.uint64)


def set_length(plan: Plan) -> int:
    return -(-plan.n // 8)


def pack_set(plan: Plan, clients: Iterable[int]) -> bytes:
    """Bit i, from the lowest, says whether client i is in the set."""
    return sum(1 << i for i in clients).to_bytes(set_length(plan), "little")


def read_set(plan: Plan, content: bytes) -> frozenset[int]:
    cut("set of clients", content, set_length(plan))
    bits = int.from_bytes(content, "little")
    check.require(bits >> plan.n == 0, "set of clients", f"must hold clients below {plan.n} only")
    return frozenset(i for i in range(plan.n) if bits >> i & 1)


def about_set(plan: Plan, run: bytes, k: int, members: Iterable[int]) -> bytes:
    """What a client signs in R2: (run, k, U)."""
    return label("R2", run, number(k), pack_set(plan, members))


def pack_signatures(plan: Plan, members: Iterable[int], signatures: Mapping[int, bytes]) -> bytes:
    signers = sorted(signatures)
    return pack_set(plan, members) + pack_set(plan, signers) + b"".join(signatures[i] for i in signers)


def read_signatures(plan: Plan, content: bytes) -> tuple[frozenset[int], dict[int, bytes]]:
    """U and the signatures, by signer; not verified yet."""
    length, what = set_length(plan), "R3 question"
    most = 2 * length + plan.n * SIGNATURE
    check.require(2 * length <= len(content) <= most, what, f"must have {2 * length} to {most} bytes", len(content))
    members, signers = (read_set(plan, content[start : start + length]) for start in (0, length))
    signatures = pieces(what, content[2 * length :], len(signers), SIGNATURE)
    return members, dict(zip(sorted(signers), signatures, strict=True))


def pack_shares(shares: Sequence[int]) -> bytes:
    return b"".join(map(shamir.to_bytes, shares))


def read_shares(what: str, content: bytes, count: int) -> list[int]:
    shares = [shamir.from_bytes(part) for part in pieces(what, content, count, shamir.BYTES)]
    numbers = [share for share in shares if share is not None]
    check.require(len(numbers) == count, what, "must hold numbers of the field only")
    return numbers
