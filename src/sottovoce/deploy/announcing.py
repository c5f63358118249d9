"""What owners of split columns tell each other when they begin something together: fresh nonces and a fresh key each.

An owner signs them with its Ed25519 key, of which the others have pinned the public half. The server carries what they
announce, and can neither change it nor slip in a key of its own. Fresh X25519 keys are thrown away when what they were
made for is over, so who gets hold of an owner's files later cannot read what was sealed before.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from sottovoce.core import check
from sottovoce.deploy.aggregation.messages import cut, is_signed
from sottovoce.deploy.keys import check_pinned, read_signing_key
from sottovoce.deploy.limits import Limits
from sottovoce.deploy.refusals import kept_from_servers
from sottovoce.deploy.wire import printable
from sottovoce.privacy.masked_products import KEY_BYTES, NONCE_BYTES

SIGNATURE = 64


@dataclass(frozen=True)
class Place:
    """Who an owner is, where its things are, and what it allows."""

    name: str
    home: Path  # where its own file is
    folder: Path  # where it keeps what it must remember
    order: str  # names the order of its samples
    limits: Limits


@dataclass(frozen=True)
class Products:
    """[products] of an owner's own file.

    Parameters
    ----------
    key
        The file with the Ed25519 key by which it signs (`sottovoce node key`).
    owners
        Public keys by name, 64 hex digits each: all with whom it multiplies or who may deal to it, itself among them.
    """

    key: str
    owners: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_pinned("products", self.owners)

    def signing_key(self, place: Place, names: Sequence[str]) -> Ed25519PrivateKey:
        """Its own key; refuses owners whose keys it does not know, and a key that is not its own."""
        unknown = [each for each in names if each not in self.owners]
        Limits.allow(not unknown, f"products with {printable(str(unknown[:3]), 200)}, whose keys it does not know")
        with kept_from_servers():
            private = read_signing_key(place.home / Path(self.key).expanduser())
        public = private.public_key().public_bytes_raw().hex()
        Limits.allow(self.owners.get(place.name) == public, "its key is not the one that [products.owners] names")
        return private

    def pinned(self, names: Sequence[str]) -> list[str]:
        """The public keys of these owners; "" for one that it does not know."""
        return [self.owners.get(name, "") for name in names]


class Announced(NamedTuple):
    """What an owner said: its nonces, end to end, and its fresh key."""

    nonces: bytes
    public: bytes


def length(nonces: int) -> int:
    """Bytes of an announcement with so many nonces."""
    return NONCE_BYTES * nonces + KEY_BYTES + SIGNATURE


def about(purpose: str, *parts: bytes | str | int) -> bytes:
    """A digest of what an announcement is for, different for everything that there is."""
    plain = [part.hex() if isinstance(part, bytes) else part for part in parts]
    return hashlib.sha256(f"sottovoce {purpose} {json.dumps(plain)}".encode()).digest()


def announced(signing: Ed25519PrivateKey, of: bytes, place: int, nonces: bytes, private: bytes) -> bytes:
    """The announcement of the owner with number `place`; `private`: 32 random bytes, its fresh key. `of`: `about`."""
    body = nonces + _private(private).public_key().public_bytes_raw()
    return body + signing.sign(_signed(of, place, body))


def read(pinned: Sequence[str], of: bytes, everyone: bytes, nonces: Sequence[int]) -> list[Announced]:
    """What all owners announced, in order; refuses what is not signed by the key that is pinned for its place.

    `nonces`: how many of them each owner announces.
    """
    parts = cut("announcements", everyone, *(length(count) for count in nonces))
    for place, content in enumerate(parts):
        body, signature = content[:-SIGNATURE], content[-SIGNATURE:]
        true = is_signed(bytes.fromhex(pinned[place]), signature, _signed(of, place, body))
        check.require(true, "announcements", "each must be signed by the key that is pinned for its owner")
    return parsed(everyone, nonces)


def parsed(everyone: bytes, nonces: Sequence[int]) -> list[Announced]:
    """The same of what was read before."""
    announcements, start = [], 0
    for count in nonces:
        middle = start + NONCE_BYTES * count
        announcements.append(Announced(everyone[start:middle], everyone[middle : middle + KEY_BYTES]))
        start += length(count)
    return announcements


def shared(private: bytes, other: bytes) -> bytes:
    """What two owners' fresh keys have in common, and nobody else has."""
    try:
        return _private(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # a point of small order
        raise check.InvalidInput("announcements: no key can be agreed on with what an owner announced") from None


def _private(key: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(key)


def _signed(of: bytes, place: int, body: bytes) -> bytes:
    return b"sottovoce announcement " + of + place.to_bytes(4, "big") + body
