"""The product of two owners' tables, computed on masked tables: all that the two, a dealer and a server do, no network.

Owner a has A (n x s), owner b has B (n x t), whole numbers modulo 2^64. Each draws its own masks, and both send the
seeds of these, sealed, to a dealer that is neither of them.

    a        draws U (n x s) and W_1 (s x t);     b  draws V (n x t)
    dealer   W_2 = U'V − W_1, to b; it returns nothing else
    a → b    E = A − U                            b → a    F = B − V            sealed under pinned keys
    a        S_a = U'F + W_1                      b        S_b = E'B + W_2      so S_a + S_b = A'B
    a → server   S_a + N_a + R                    b → server   S_b + N_b − R
    server   the sum of the two: A'B + N_a + N_b

    symbol   here                     meaning
    U, V     `mask`                   uniform, of a key that both owners' fresh nonces go into
    R        `PairKey.common_mask`    uniform, known to a and b alone
    N_a      an argument of `reply`   discrete Gaussian noise of the *full* scale, each owner its own
    plan     `Attempt`                what is computed, for whom, and both nonces

**What is seen.** a sees F, uniform whatever B is. b sees E and W_2, uniform whatever A is and whatever V it chose. The
dealer sees two seeds. The server sees the noisy sum, because R hides the shares.

**Theorem.** Let an observer C be any of the server and the owners, sharing all they know, such that (i) for no honest
owner a and no b it holds both b and the dealer of (a, b); (ii) owners in C keep their row bounds; (iii) seeds, R and
noise are fresh; (iv) neighbours have the same list of ids and differ in one sample: its columns at the honest owners
and, if the owner of the labels is honest, its label. Then what C sees can be made from uniform numbers, its own tables
and, for each block that touches an honest owner a, the block + N_a: one Gaussian release of sensitivity Δ
(`core/products.py`), accounted by Theorem 2 of `privacy/accounting/discrete.py` coordinate by coordinate.
*Proof.* Blocks have independent seeds. If both owners are honest, R hides the shares and C sees their sum. If b is in C
and its dealer is not, E and W_2 are uniform and independent of A, and S_a = A'B − E'B − W_2 with B := F + V, so that C
sees A'B + N_a. Keep one honest owner's noise per block, and fix the rest. ∎ It holds up to breaking X25519, Ed25519,
ChaCha20 or SHA-256. Server and dealers may lie: a false W_2 gives a wrong model, and nothing else. Owners in C are
honest but curious: a table other than its own that an owner puts in must keep the row bounds too.

**(ii) cannot be dropped.** An owner whose rows are c times longer divides the noise on the others' columns by c.

**Rules that this file keeps**, each with the attack that it closes:

* an owner draws its masks itself. A dealer that drew U could hand out zeros, and E = A would go to b in clear;
* a share leaves with noise and R, and in no other way. Without R a server that is also the dealer takes W_1 off and has
  U'B + N_a with U known and uniform: one changed record moves that by a uniform amount;
* seeds, nonces and R are new for each pair and attempt. A mask used twice shows the difference of two tables; R used
  twice shows (U − U*)'B + noise; one U for two pairs gives A to the third owner;
* one F is answered, once. A second F under the same noise would show A'(F − F*) exactly;
* E and F are sealed under keys that the owners signed with pinned ones. A relay that is also the dealer, and could slip
  in a key of its own, would read A = E + U.

A deployment writes `Side.reply` to disk before it sends it: after a crash it sends the same bytes, or it makes a new
attempt, charged again.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Words
from sottovoce.core.random.bits import key_stream

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_LIMB, _LIMBS = 22, 3  # bits of a limb, and limbs of 64 bits
_ROWS = 512  # sums of so many products of two limbs are below 2^53: exact in floating point
_CHUNK = 8192  # rows of a mask that are drawn at a time
KEY_BYTES = NONCE_BYTES = 32
# A part of a score is a multiple of 2^-32 and at most 2^26: sums of 31 of them are below 2^63 steps.
SCORE_STEPS, LARGEST_SCORE, MOST_SCORED = 2.0**32, 2.0**26, 31
Role = Literal["first", "second"]


class Refused(check.SottovoceError):
    """The other side broke the protocol: nothing more is given out in this attempt."""


@dataclass(frozen=True)
class Attempt:
    """What is computed: the same on all sides, part of every key.

    Parameters
    ----------
    plan
        Digest of everything that was agreed on: sizes, row bounds, noise, owners, dealer.
    pair
        The numbers of the owners a < b.
    nonces
        A fresh random text of each of them, a's first.
    rows, widths
        n, and the columns of A and of B.
    """

    plan: bytes
    pair: tuple[int, int]
    nonces: tuple[bytes, bytes]
    rows: int
    widths: tuple[int, int]

    def __post_init__(self) -> None:
        check.require(0 <= self.pair[0] < self.pair[1], "Attempt", "pair must be two owners in order", self.pair)
        long = all(len(nonce) == NONCE_BYTES for nonce in self.nonces) and self.nonces[0] != self.nonces[1]
        check.require(long, "Attempt", f"nonces must be two different texts of {NONCE_BYTES} bytes")

    def context(self, purpose: str) -> bytes:
        """Different for everything that a key can be for."""
        numbers = " ".join(map(str, (*self.pair, self.rows, *self.widths)))
        parts = (b"sottovoce masked product", self.plan, *self.nonces, numbers.encode(), purpose.encode())
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def fresh_secret() -> bytes:
    """A seed or a nonce, of the operating system."""
    return os.urandom(KEY_BYTES)


def derived_key(secret: bytes, attempt: Attempt, purpose: str) -> bytes:
    """The key of a secret for one purpose in one attempt."""
    return hkdf(secret, attempt.context(purpose))


def hkdf(secret: bytes, context: bytes) -> bytes:
    """HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), KEY_BYTES, None, context).derive(secret)


# -------------------------------------------------------------------------------------------------------------- masks


def mask(seed: bytes, attempt: Attempt, name: Literal["U", "V"], start: int, rows: int) -> Words:
    """Rows `start`, start + 1, ... of U or V. Each chunk of rows has a key of its own."""
    width = attempt.widths[0 if name == "U" else 1]
    first, last = start // _CHUNK, -(-(start + rows) // _CHUNK)
    chunks = [key_stream(derived_key(seed, attempt, f"{name} {chunk}"), _CHUNK * width) for chunk in range(first, last)]
    return np.concatenate(chunks).reshape(-1, width)[start - first * _CHUNK :][:rows]


def uniform_product(secret: bytes, attempt: Attempt, purpose: str) -> Words:
    """Uniform numbers of a secret, as many as the product has."""
    rows, columns = attempt.widths
    return key_stream(derived_key(secret, attempt, purpose), rows * columns).reshape(rows, columns)


def dealt(first_seed: bytes, second_seed: bytes, attempt: Attempt) -> Words:
    """The dealer's whole part: W_2 = U'V − W_1, for b. It sees no row of anybody."""
    total = np.zeros(attempt.widths, dtype=np.uint64)
    for start in range(0, attempt.rows, _CHUNK):
        rows = min(_CHUNK, attempt.rows - start)
        total += product(mask(first_seed, attempt, "U", start, rows), mask(second_seed, attempt, "V", start, rows))
    return total - uniform_product(first_seed, attempt, "W_1")  # which hides U'V from b


def product(A: AnyArray, B: AnyArray) -> Words:
    """A'B modulo 2^64, exactly, for any 64-bit numbers.

    Numbers are cut into limbs of 22, 22 and 20 bits. Of the nine products of two limbs, six are worth less than 2^64.
    Each is a product of floating-point matrices: sums over 512 rows of products below 2^44 are below 2^53, so exact.
    """
    first, second = _limbs(A), _limbs(B)
    total = np.zeros((A.shape[1], B.shape[1]), dtype=np.uint64)
    for start in range(0, len(A), _ROWS):
        rows = slice(start, start + _ROWS)
        for i in range(_LIMBS):
            for j in range(_LIMBS - i):
                part = (first[i][rows].T @ second[j][rows]).astype(np.uint64)
                total += part << np.uint64(_LIMB * (i + j))
    return total


def _limbs(table: AnyArray) -> list[AnyArray]:
    words = as_words(table)
    low = np.uint64(2**_LIMB - 1)
    return [((words >> np.uint64(_LIMB * place)) & low).astype(np.float64) for place in range(_LIMBS)]


def as_words(table: AnyArray) -> Words:
    """Signed whole numbers modulo 2^64."""
    return table if table.dtype == np.uint64 else np.ascontiguousarray(table, dtype=np.int64).view(np.uint64)


# --------------------------------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, repr=False)
class PairKey:
    """What two owners share in one attempt and nobody else has.

    `secret` is X25519 of an owner's own key and of the other owner's, which no server may choose: a deployment draws
    them for one attempt, and owners sign them with keys that are *pinned* (`deploy/announcing.py`).
    """

    secret: bytes
    attempt: Attempt

    def common_mask(self) -> Words:
        """R."""
        return uniform_product(self.secret, self.attempt, "R")

    def sealed(self, sender: Role, chunk: int, plain: bytes) -> bytes:
        """One chunk of E or F, for the other owner's eyes alone. Seal each chunk of an attempt once."""
        return self._box(sender).encrypt(chunk.to_bytes(12, "big"), plain, self.attempt.context(f"{sender} {chunk}"))

    def unsealed(self, sender: Role, chunk: int, box: bytes) -> bytes:
        """What the other owner sealed; refuses everything else."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._box(sender).decrypt(chunk.to_bytes(12, "big"), box, self.attempt.context(f"{sender} {chunk}"))
        except InvalidTag:
            pass
        raise Refused("masked products: a masked table was not sealed by the owner whose key is pinned")

    def _box(self, sender: Role) -> "ChaCha20Poly1305":
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(derived_key(self.secret, self.attempt, f"box of {sender}"))


# ---------------------------------------------------------------------------------------------------------- two owners


@dataclass(repr=False)
class Side:
    """One owner in one attempt. It gives out its masked table and one noisy, masked share: nothing else.

    Parameters
    ----------
    role
        "first": a. "second": b.
    key
        What the two owners share in this attempt, and what is computed in it.
    table
        The owner's own whole numbers, (rows, columns).
    seed
        Of its masks, drawn for this attempt (`fresh_secret`); it is sent, sealed, to the dealer.
    """

    role: Role
    key: PairKey
    table: AnyArray
    seed: bytes = field(default_factory=fresh_secret)

    def __post_init__(self) -> None:
        self.attempt, place = self.key.attempt, 0 if self.role == "first" else 1
        shape = (self.attempt.rows, self.attempt.widths[place])
        check.require(self.table.shape == shape, "masked products", f"the table must be {shape}", self.table.shape)
        self._total: Words = np.zeros(self.attempt.widths, dtype=np.uint64)
        self._next_row = 0
        self._replied: Words | None = None

    def masked(self, start: int, rows: int) -> Words:
        """Rows of E = A − U, or of F = B − V: the same bytes whenever they are asked for."""
        name: Literal["U", "V"] = "U" if self.role == "first" else "V"
        return as_words(self.table[start : start + rows]) - mask(self.seed, self.attempt, name, start, rows)

    def receive(self, other: Words) -> None:
        """The next rows of the other owner's masked table, in order and each once."""
        width = self.attempt.widths[1 if self.role == "first" else 0]
        fits = other.dtype == np.uint64 and other.ndim == 2 and other.shape[1] == width
        rows = len(other) if fits else 0
        if not 0 < rows <= self.attempt.rows - self._next_row or self._replied is not None:
            raise Refused("masked products: one masked table of the agreed size is answered, and once")
        part = slice(self._next_row, self._next_row + rows)
        if self.role == "first":
            self._total += product(mask(self.seed, self.attempt, "U", part.start, rows), other)
        else:
            self._total += product(other, self.table[part])
        self._next_row += rows

    def reply(self, noise: AnyArray, from_dealer: Words | None = None) -> Words:
        """S_a + N_a + R, or S_b + N_b − R: what the server gets. Once; a second call gives the same again.

        `from_dealer`: W_2, at the second owner. The noise must be fresh, of the full scale, and used nowhere else.
        """
        if self._replied is not None:
            return self._replied
        if self._next_row != self.attempt.rows:
            raise Refused("masked products: the other owner's masked table is not complete")
        second = self.role == "second"
        check.require((from_dealer is not None) == second, "masked products", "W_2 goes to the second owner")
        each = noise.shape == self.attempt.widths and noise.dtype.kind in "iu"
        check.require(each, "masked products", "every entry needs noise of its own, in whole numbers", noise.shape)
        if from_dealer is not None and (from_dealer.shape, from_dealer.dtype) != (self.attempt.widths, np.uint64):
            raise Refused("masked products: what the dealer sent is not of the agreed size")
        other = uniform_product(self.seed, self.attempt, "W_1") if from_dealer is None else from_dealer
        common = self.key.common_mask()
        share = self._total + other + as_words(noise)
        self._replied = share - common if second else share + common
        self._total = np.zeros_like(self._total)
        return self._replied


# ---------------------------------------------------------------------------------------------- scores of new samples


def masked_scores(scores: Floats, own: int, secrets: Mapping[int, bytes], query: bytes) -> Words:
    """Owner `own`'s part x_m w_m of the scores of new samples, masked: only the sum over all owners can be read.

    A score is a use of the model and not covered by any budget; masks keep an owner's part of it from a predictor who
    is no owner. (Of two owners, the one who predicts learns the other's part.)

    Parameters
    ----------
    secrets
        What this owner shares with each other one, by its number: X25519 of keys that both drew for this question.
    query
        A digest of what is asked and of a fresh nonce of *every* owner. Under the same one twice, the difference of two
        replies would show.
    """
    within = np.clip(np.nan_to_num(scores), -LARGEST_SCORE, LARGEST_SCORE)  # also where a product was too large
    masked = as_words(np.rint(within * SCORE_STEPS).astype(np.int64))
    for other, secret in secrets.items():
        pair = f"{min(own, other)} {max(own, other)}".encode()
        key = hkdf(secret, b"sottovoce masked scores" + len(query).to_bytes(4, "big") + query + pair)
        stream = key_stream(key, scores.size).reshape(scores.shape)
        masked = masked + stream if own < other else masked - stream
    return masked


def opened_scores(parts: Sequence[Words]) -> Floats:
    """The scores, from the masked parts of all owners."""
    total = functools.reduce(lambda one, other: one + other, parts)  # modulo 2^64
    return total.view(np.int64).astype(np.float64) / SCORE_STEPS
