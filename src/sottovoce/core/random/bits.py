"""Streams of random bits for noise on integers: secret ones from the operating system, seeded ones for simulations.

Samplers such as `privacy/discrete_gaussian.py` take such a stream as an argument. They cannot tell the two kinds
apart: the same bits give the same integers, so a simulation shows bit for bit what a deployment would do. A seeded
stream is no secret, and `must_be_secret` refuses it wherever noise leaves a machine.

Both kinds are key streams of ChaCha20 (RFC 8439), from the package `cryptography`.
"""

import functools
import hashlib
import os
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np

from sottovoce.core import check

PIECE = 1 << 20  # words (8 MiB) after which the key or the nonce changes: far below ChaCha20's limit of 2^38 bytes
FURTHER_BITS = 256
_ZEROS = memoryview(bytes(1 << 18))  # what is encrypted: the result is the key stream itself
_SEEDS = check.Interval(0, whole=True)
_WORDS, _FURTHER = 0, 1  # the two uses of a key: no two share a nonce


class Bits(Protocol):
    """An endless row of independent uniform numbers in [0, 1), each known only as far as somebody asked.

    `words` tells the first 64 bits of the numbers that come next, `further` the 256 bits after those of one number.
    Most comparisons of a uniform number with a threshold need the first 64 bits alone. Which ones need more does not
    change the numbers that come next: `further` takes nothing from `words`.
    """

    seeded: ClassVar[bool]  # True: whoever knows the seed knows the bits

    @property
    def position(self) -> int:
        """How many words were given out: the place of the word that comes next."""
        ...

    def words(self, count: int) -> np.ndarray:
        """The next `count` words of 64 bits, as uint64. How they are split into calls makes no difference."""
        ...

    def further(self, place: int) -> int:
        """256 further bits of the number at `place`, as a whole number. Ask at most once for each place."""
        ...


class SystemBits:
    """Secret bits: each call of `words` draws a new ChaCha20 key from the operating system, and forgets it at the end.

    A call for more than 8 MiB draws another key after each 8 MiB. No key or position is kept between calls. A forked
    child, a copied object or a restored snapshot of a machine therefore has nothing that it could repeat, and threads
    may share one object. It refuses to be pickled all the same: a process makes its own.
    """

    seeded: ClassVar[bool] = False
    position = 0  # nothing can be asked for again, so places have no meaning

    def words(self, count: int) -> np.ndarray:
        filled = np.empty(count, dtype="<u8")
        for start in range(0, count, PIECE):
            _fill(filled[start : start + PIECE], _cipher(os.urandom(32), 0, _WORDS))
        return filled.astype(np.uint64, copy=False)

    def further(self, place: int) -> int:
        return int.from_bytes(os.urandom(FURTHER_BITS // 8), "little")

    def __reduce__(self) -> NoReturn:
        raise TypeError("SystemBits: secret random bits are not pickled or copied. Make a new SystemBits() instead")


class SeededBits:
    """For simulations and tests only: whoever knows the seed and the context knows every bit, and so the noise.

    The key is SHA-256 of the seed and the context. `context` says what the bits are for (run, client, round, purpose):
    streams of different contexts are as good as independent.
    """

    seeded: ClassVar[bool] = True

    def __init__(self, seed: int, context: str) -> None:
        _SEEDS.check("SeededBits", "seed", seed)
        self._key = hashlib.sha256(f"sottovoce seeded bits\0{int(seed)}\0{context}".encode()).digest()
        self._cipher: Any = None
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    def words(self, count: int) -> np.ndarray:
        filled = np.empty(count, dtype="<u8")
        done = 0
        while done < count:
            piece, used = divmod(self._position, PIECE)
            if used == 0:
                self._cipher = _cipher(self._key, piece, _WORDS)
            size = min(count - done, PIECE - used)
            _fill(filled[done : done + size], self._cipher)
            self._position += size
            done += size
        return filled.astype(np.uint64, copy=False)

    def further(self, place: int) -> int:
        stream = _cipher(self._key, place, _FURTHER).update(bytes(FURTHER_BITS // 8))
        return int.from_bytes(stream, "little")


def must_be_secret(bits: Bits) -> None:
    """Refuse a stream that is not marked as secret. Call it wherever noise protects a release in a deployment."""
    if getattr(bits, "seeded", True) is not False:
        raise check.NoGuarantee(
            f"{type(bits).__name__}: noise from a seed protects nobody, because whoever knows the seed can subtract "
            "it. Draw from SystemBits() instead"
        )


def key_stream(key: bytes, count: int) -> np.ndarray:
    """The first `count` words of the ChaCha20 key stream of a key of 32 bytes, which must serve for nothing else."""
    filled = np.empty(count, dtype="<u8")
    for piece, start in enumerate(range(0, count, PIECE)):
        _fill(filled[start : start + PIECE], _cipher(key, piece, _WORDS))
    return filled.astype(np.uint64, copy=False)


def _cipher(key: bytes, number: int, use: int) -> Any:
    """ChaCha20 at the first block of the nonce made of `number` (64 bits) and `use` (32 bits)."""
    cipher, chacha20 = _loaded()
    nonce = ((use << 64 | number) << 32).to_bytes(16, "little")  # the first 4 bytes count blocks
    return cipher(chacha20(key, nonce), mode=None).encryptor()


@functools.cache
def _loaded() -> tuple[Any, Any]:
    """`cryptography` is loaded where bits are first drawn; asking for it at each stream would take as long as these."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher, algorithms.ChaCha20


def _fill(words: np.ndarray, cipher: Any) -> None:
    """Overwrite `words` with the next bytes of the key stream."""
    target = words.view(np.uint8).data
    for start in range(0, len(target), len(_ZEROS)):
        part = target[start : start + len(_ZEROS)]
        cipher.update_into(_ZEROS[: len(part)], part)
