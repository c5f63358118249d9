"""What owners of split columns and their server agree on before they multiply, and how messages are laid out.

No key and no row is here. Tables travel in chunks of rows, each at most `CHUNK_BYTES` long, whatever a table's size.

    step             to                what it carries                       what comes back
    products-begin   every owner       a name for the attempt, the owners,   fresh nonces, one for each of its pairs,
                                       who deals to which pair               a fresh key, signed (`announcing.py`)
    products-agree   every owner       what everybody announced              a digest of all that is agreed on; for each
                                                                             of its pairs a seed, sealed for the dealer
    products-deal    a pair's dealer   both seeds                            W_2, sealed for the second owner
    products-send    an owner          which pair, which chunk               that chunk of its masked table, sealed; as
                                                                             the last one a signed digest of them all
    products-take    the other owner   the chunk; or W_2                     nothing
    round            every owner       nothing                               its noisy, masked share of all products
    products-forget  every owner       nothing: the result is saved          nothing; it has deleted its secrets

The coordinator deals to two owners, and is sent their seeds as they are; with more owners it never deals.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sottovoce.core import check
from sottovoce.core.products import Split, dealer_of
from sottovoce.deploy import announcing, wire
from sottovoce.deploy.aggregation.messages import SIGNATURE, TAG
from sottovoce.privacy.masked_products import KEY_BYTES, NONCE_BYTES, Attempt, Role

COORDINATOR = -1  # the number of a dealer that is no owner
FROM_DEALER = 2**32 - 1  # W_2 travels as the chunk of this number
SIGNED = 2**32 - 2  # and so does the signed digest of a masked table
CHUNK_BYTES = 1 << 23
SEALED_SEED = KEY_BYTES + TAG
SIGNED_DIGEST = 32 + SIGNATURE
_NUMBER = 4  # bytes of the number of a pair or a chunk


@dataclass(frozen=True)
class Terms:
    """Who multiplies what with whom, and who deals, in one attempt.

    Parameters
    ----------
    split, samples
        Who has how many columns, and how many samples there are.
    attempt
        A name for it, 64 hex digits, of the server's choice: no secret follows from it.
    names, dealers
        Of the owners, in order; of each of `split.pairs` the number of its dealer.
    """

    split: Split
    samples: int
    attempt: str
    names: tuple[str, ...]
    dealers: tuple[int, ...]

    def __post_init__(self) -> None:
        check.require(wire.is_hex(self.attempt), "products", "an attempt must be named by 64 hex digits")
        owners = self.split.owners
        distinct = len(set(self.names)) == len(self.names) == owners
        check.require(distinct, "products", f"needs the names of {owners} different owners")
        check.require(len(self.dealers) == len(self.split.pairs), "products", "every pair of owners needs a dealer")
        for pair, dealer in zip(self.split.pairs, self.dealers, strict=True):
            others = [m for m in range(owners) if m not in pair] or [COORDINATOR]
            rule = "the dealer of a pair must be another owner, and of two owners the coordinator"
            check.require(dealer in others, "products", rule)

    def packed(self) -> bytes:
        return json.dumps([self.attempt, self.names, self.dealers]).encode()

    @classmethod
    def read(cls, split: Split, samples: int, content: bytes) -> "Terms":
        rule = "the terms must be a name, the owners and the dealers"
        attempt, names, dealers = wire.read_terms("products", content, (str, tuple[str, ...], tuple[int, ...]), rule)
        return cls(split, samples, attempt, names, dealers)

    def pairs_of(self, m: int) -> list[int]:
        """The numbers of the pairs that owner m is in."""
        return [number for number, pair in enumerate(self.split.pairs) if m in pair]

    def other(self, number: int, m: int) -> int:
        """The owner that owner m multiplies with in this pair."""
        a, b = self.split.pairs[number]
        return b if m == a else a

    def role(self, number: int, m: int) -> Role:
        return "first" if self.split.pairs[number][0] == m else "second"

    def digest(self, settings: bytes, keys: Sequence[str], order: str, everyone: bytes) -> bytes:
        """SHA-256 of all that is agreed on: a part of every key, so owners who differ cannot read each other.

        `settings`: of the experiment; `keys`: of the owners, as pinned; `order`: names the order of the samples;
        `everyone`: what all owners announced.
        """
        return announcing.about("products", settings, self.packed(), *keys, order, everyone)

    @property
    def nonce_counts(self) -> list[int]:
        """How many nonces each owner announces: one for each of its pairs."""
        return [len(self.pairs_of(m)) for m in range(self.split.owners)]

    def attempt_of(self, number: int, agreed: bytes, announced: Sequence[announcing.Announced]) -> Attempt:
        """What one pair computes; `announced`: by all owners."""
        a, b = pair = self.split.pairs[number]
        starts = [NONCE_BYTES * self.pairs_of(m).index(number) for m in pair]
        nonces = [announced[m].nonces[start : start + NONCE_BYTES] for m, start in zip(pair, starts, strict=True)]
        widths = self.split.table_width(a), self.split.table_width(b)
        return Attempt(agreed, (a, b), (nonces[0], nonces[1]), self.samples, widths)

    def seed_lengths(self, m: int) -> list[int]:
        """Bytes of the seeds that owner m sends to the dealers of its pairs: the coordinator's are not sealed."""
        return [KEY_BYTES if self.dealers[n] == COORDINATOR else SEALED_SEED for n in self.pairs_of(m)]

    def chunk_rows(self, m: int) -> int:
        """Rows of owner m's table that travel together."""
        return max(1, min(CHUNK_BYTES // (8 * self.split.table_width(m)), self.samples))

    def chunks(self, m: int) -> int:
        return -(-self.samples // self.chunk_rows(m))

    def rows_in(self, m: int, chunk: int) -> tuple[int, int]:
        """Where a chunk of owner m's table starts, and how many rows it has."""
        check.require(0 <= chunk < self.chunks(m), "products", "there is no such chunk")
        start = chunk * self.chunk_rows(m)
        return start, min(self.chunk_rows(m), self.samples - start)

    def box_length(self, number: int, m: int, chunk: int) -> int:
        """Bytes of a chunk of owner m's masked table as it travels, or of its digest; or of W_2, which m receives."""
        if chunk == FROM_DEALER:
            a, b = self.split.pairs[number]
            sealed = self.dealers[number] != COORDINATOR
            return 8 * self.split.table_width(a) * self.split.table_width(b) + (TAG if sealed else 0)
        if chunk == SIGNED:
            return SIGNED_DIGEST + TAG
        return 8 * self.rows_in(m, chunk)[1] * self.split.table_width(m) + TAG


def usual_dealers(split: Split) -> tuple[int, ...]:
    """Who deals if nobody chooses."""
    chosen = (dealer_of(pair, split.owners) for pair in split.pairs)
    return tuple(COORDINATOR if dealer is None else dealer for dealer in chosen)


def pack_place(*numbers: int) -> bytes:
    """Which pair, and which chunk."""
    return b"".join(number.to_bytes(_NUMBER, "big") for number in numbers)


def read_place(content: bytes, pairs: int) -> tuple[int, int, bytes]:
    """Pair, chunk, and what follows them."""
    check.require(len(content) >= 2 * _NUMBER, "products", "a message must say of which pair and chunk it is")
    pair, chunk = (int.from_bytes(content[start : start + _NUMBER], "big") for start in (0, _NUMBER))
    check.require(pair < pairs, "products", "there is no such pair of owners")
    return pair, chunk, content[2 * _NUMBER :]
