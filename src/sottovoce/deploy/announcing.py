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
from typing import ClassVar, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation.messages import SIGNATURE, cut, is_signed
from sottovoce.deploy.keys import read_signing_key
from sottovoce.deploy.limits import Limits, Refused, kept_from_servers
from sottovoce.privacy.masked_products import KEY_BYTES, NONCE_BYTES


@dataclass(frozen=True)
class PinnedOwners:
    """What [sums] and [products] of an owner's own file have in common.

    Parameters
    ----------
    key
        The file with the Ed25519 key by which it signs (`sottovoce node key`).
    owners
        Public keys by name, 64 hex digits each: all with whom it has to do, itself among them.
    """

    key: str
    owners: dict[str, str] = field(default_factory=dict)
    table: ClassVar[str]  # the name of the table

    def __post_init__(self) -> None:
        for name, key in self.owners.items():
            rule = f"the key of {name!r} must be 64 hex digits"
            check.require(wire.is_hex(key), self.table, rule, hint="Ask its owner for it")
        check.require(len(set(self.owners.values())) == len(self.owners), self.table, "two owners have the same key")

    def check_known(self, names: Sequence[str]) -> None:
        """Refuse owners whose keys it does not know."""
        unknown = wire.printable(str([name for name in names if name not in self.owners][:3]), 200)
        Limits.allow(unknown == "[]", f"{self.table} with {unknown}, whose keys it does not know")

    def read_key(self, home: Path) -> Ed25519PrivateKey:
        """Its own key, in a file that is named as seen from `home`."""
        with kept_from_servers():
            return read_signing_key(home / Path(self.key).expanduser())


@dataclass(frozen=True)
class Products(PinnedOwners):
    """[products] of an owner's own file: with whom it multiplies, and who may deal to it."""

    table: ClassVar[str] = "products"

    def signing_key(self, name: str, home: Path, names: Sequence[str]) -> Ed25519PrivateKey:
        """Its own key; refuses owners whose keys it does not know, and a key that is not its own (that of `name`)."""
        self.check_known(names)
        private = self.read_key(home)
        public = private.public_key().public_bytes_raw().hex()
        Limits.allow(self.owners.get(name) == public, "its key is not the one that [products.owners] names")
        return private

    def pinned(self, names: Sequence[str]) -> list[str]:
        """The public keys of these owners; "" for one that it does not know."""
        return [self.owners.get(name, "") for name in names]


class Announced(NamedTuple):
    """What an owner said: its nonces, end to end, its fresh key, and its signature of them."""

    nonces: bytes
    public: bytes
    signature: bytes


def length(nonces: int) -> int:
    """Bytes of an announcement with so many nonces."""
    return NONCE_BYTES * nonces + KEY_BYTES + SIGNATURE


def about(purpose: str, *parts: bytes | str | int) -> bytes:
    """A digest of what an announcement is for, different for everything that there is."""
    plain = [part.hex() if isinstance(part, bytes) else part for part in parts]
    return hashlib.sha256(f"sottovoce {purpose} {json.dumps(plain)}".encode()).digest()


def announced(signing: Ed25519PrivateKey, of: bytes, place: int, nonces: bytes, private: bytes) -> bytes:
    """The announcement of the owner with number `place`; `private`: 32 random bytes, its fresh key. `of`: `about`."""
    body = nonces + X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return body + signing.sign(_signed(of, place, body))


def read(
    pinned: Sequence[str], of: bytes, everyone: bytes, nonces: Sequence[int], own_place: int, own_announcement: bytes
) -> list[Announced]:
    """What all owners announced, in order; refuses what is not signed by the key that is pinned for its place.

    `nonces`: how many of them each owner announces. Its own announcement must be among them, at its own place.
    """
    announcements = parsed(everyone, nonces)
    for place, (own_nonces, public, signature) in enumerate(announcements):
        true = is_signed(bytes.fromhex(pinned[place]), signature, _signed(of, place, own_nonces + public))
        check.require(true, "announcements", "each must be signed by the key that is pinned for its owner")
    if b"".join(announcements[own_place]) != own_announcement:
        raise Refused(wire.SET_UP, "announcements: it has announced something else; begin again")
    return announcements


def parsed(everyone: bytes, nonces: Sequence[int]) -> list[Announced]:
    """The same, whoever signed them: of what was read before."""
    parts = zip(cut("announcements", everyone, *map(length, nonces)), nonces, strict=True)
    return [Announced(*cut("announcements", part, NONCE_BYTES * n, KEY_BYTES, SIGNATURE)) for part, n in parts]


def shared(private: bytes, other: bytes) -> bytes:
    """What two owners' fresh keys have in common, and nobody else has."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # a point of small order
        raise check.InvalidInput("announcements: no key can be agreed on with what an owner announced") from None


def _signed(of: bytes, place: int, body: bytes) -> bytes:
    return b"sottovoce announcement " + of + place.to_bytes(4, "big") + body
