"""What all clients of a set-up must agree on before anything is shared."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from sottovoce.core import check

MOST_CLIENTS = 1000
MOST_ROUNDS = 100  # of one set-up; a longer run sets up again
DIGEST = KEY = 32  # bytes of a SHA-256 digest, and of a public key


@dataclass(frozen=True)
class Plan:
    """The numbers of a set-up. Its digest is in every signature, key and ciphertext, by way of `run`.

    Parameters
    ----------
    settings
        SHA-256 of all else that is asked: method, noise per client, grid, clip. It is the same for all clients.
    roster
        The pinned Ed25519 public keys of the clients, in the order of their numbers. A client takes them from its own
        file, never from the server.
    least
        The fewest clients whose sum may be opened.
    colluders
        t: at most so many clients share what they know with the server.
    rounds, first
        How many rounds the secrets of this set-up are for, and the number of the first of them.
    """

    settings: bytes
    roster: tuple[bytes, ...]
    least: Annotated[int, check.Interval(2, whole=True)]
    colluders: check.WholeOrZero
    rounds: check.Whole
    first: check.Whole = 1

    def __post_init__(self) -> None:
        who, n = "plan of sums", len(self.roster)
        check.require(len(self.settings) == DIGEST, who, f"settings must be a digest of {DIGEST} bytes")
        check.require(2 <= n <= MOST_CLIENTS, who, f"must have 2 to {MOST_CLIENTS} clients", n)
        check.require(all(len(key) == KEY for key in self.roster), who, f"keys must have {KEY} bytes")
        check.require(len(set(self.roster)) == n, who, "no key may occur twice: one owner would count as two clients")
        check.fields(self, who)
        check.require(self.least <= n, who, f"least must be at most the number of clients ({n})", self.least)
        rule = f"colluders must be below least ({self.least}): the honest clients' noise hides each of them"
        check.require(self.colluders < self.least, who, rule, self.colluders)
        check.require(self.quorum <= n, who, f"the quorum must be at most {n}", self.quorum, "Lower colluders")
        check.require(self.rounds <= MOST_ROUNDS, who, f"rounds must be at most {MOST_ROUNDS}", self.rounds)
        check.require(self.last < 2**31, who, "rounds must be < 2**31", self.last)

    @property
    def n(self) -> int:
        """The number of clients on the roster."""
        return len(self.roster)

    @property
    def quorum(self) -> int:
        """Q, of signatures and of shares: two sets cannot both have so many, as each honest client signs one."""
        return (self.n + self.colluders) // 2 + 1

    @property
    def last(self) -> int:
        """The number of the last round."""
        return self.first + self.rounds - 1

    @cached_property
    def everyone(self) -> frozenset[int]:
        """The whole roster."""
        return frozenset(range(self.n))

    @cached_property
    def digest(self) -> bytes:
        """The same for the same plan with the same pinned keys, and for no other."""
        numbers = (self.n, self.least, self.colluders, self.rounds, self.first)
        content = b"".join(number.to_bytes(8, "big") for number in numbers) + self.settings + b"".join(self.roster)
        return hashlib.sha256(b"sottovoce sums 1 plan\0" + content).digest()
