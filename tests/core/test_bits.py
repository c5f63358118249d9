"""Streams of random bits: secret ones never repeat, seeded ones do and are refused where noise must be secret."""

import copy
import hashlib
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.random import bits as module
from sottovoce.core.random.bits import SeededBits, SystemBits, must_be_secret


def _chacha20_block(key: bytes, nonce: bytes) -> bytes:
    """One block of ChaCha20 as RFC 8439 writes it, in plain Python. The counter is the first 4 bytes of `nonce`."""
    first = [int.from_bytes(part, "little") for part in (b"expa", b"nd 3", b"2-by", b"te k")]
    first += [int.from_bytes((key + nonce)[i : i + 4], "little") for i in range(0, 48, 4)]
    x = list(first)

    def mix(a: int, b: int, c: int, d: int) -> None:
        for into, other, moved, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[into] = (x[into] + x[other]) & 0xFFFFFFFF
            turned = x[moved] ^ x[into]
            x[moved] = (turned << turn | turned >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            mix(column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            places = [4 * row + (diagonal + row) % 4 for row in range(4)]
            mix(places[0], places[1], places[2], places[3])
    return b"".join(((a + b) & 0xFFFFFFFF).to_bytes(4, "little") for a, b in zip(x, first, strict=True))


def test_seeded_bits_are_chacha20_under_a_hashed_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 8)  # words in one block: each has another nonce
    key = hashlib.sha256(b"sottovoce seeded bits\x007\0client 3, round 5").digest()
    bits = SeededBits(7, "client 3, round 5")
    numbers = [number.to_bytes(8, "little") for number in range(3)]
    expected = b"".join(_chacha20_block(key, bytes(4) + number + bytes(4)) for number in numbers)
    assert bits.words(24).astype("<u8").tobytes() == expected
    further = _chacha20_block(key, bytes(4) + numbers[2] + bytes([1, 0, 0, 0]))
    assert bits.further(2) == int.from_bytes(further[:32], "little")


def test_seeded_bits_do_not_depend_on_how_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 11)
    whole = SeededBits(1, "a").words(100)
    bits, parts = SeededBits(1, "a"), []
    for size in (0, 1, 10, 11, 12, 33, 0, 30, 3):
        assert bits.position == sum(map(len, parts))
        bits.further(bits.position)
        parts.append(bits.words(size))
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.uint64
    assert len(set(whole.tolist())) == 100


def test_other_seeds_contexts_and_places_give_other_bits() -> None:
    streams = [SeededBits(1, "2"), SeededBits(12, ""), SeededBits(1, ""), SeededBits(1, "\x002"), SeededBits(2, "1")]
    words = [int(word) for bits in streams for word in bits.words(4)]
    further = [bits.further(place) for bits in streams for place in range(3)]
    assert len(set(words)) == len(words)
    assert len(set(further)) == len(further)


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_seeds_are_whole_numbers(seed: Any) -> None:
    with pytest.raises(InvalidInput, match="seed must be a whole number"):
        SeededBits(seed, "a")


def test_secret_bits_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64)  # four keys in one call
    one, other = SystemBits(), SystemBits()
    words = np.concatenate([one.words(256), one.words(256), other.words(256), one.words(0)])
    assert len(set(words.tolist())) == 768
    assert len({one.further(0), one.further(0), other.further(0)}) == 3


def test_bits_are_uniform() -> None:
    for bits in (SystemBits(), SeededBits(0, "uniform")):
        words = bits.words(200_000)
        ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=np.int64)
        assert np.abs(ones - 100_000).max() < 7 * np.sqrt(50_000)


def test_a_forked_child_does_not_repeat_its_parent() -> None:
    """The parent draws before and after it forks; both processes draw from the same object."""
    code = """
import os
from sottovoce.core.random.bits import SystemBits
bits = SystemBits()
print(bits.words(4).tolist(), flush=True)
child = os.fork()
print([*bits.words(4).tolist(), bits.further(0)], flush=True)
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print(bits.words(4).tolist())
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    numbers = [int(number) for number in printed.replace("[", " ").replace("]", " ").replace(",", " ").split()]
    assert len(numbers) == 4 + 5 + 5 + 4
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secret_bits_are_not_copied(leave: Any) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        leave(SystemBits())


def test_only_secret_bits_protect_a_release() -> None:
    must_be_secret(SystemBits())
    with pytest.raises(NoGuarantee, match="SeededBits: noise from a seed protects nobody"):
        must_be_secret(SeededBits(0, "a"))
    unmarked: Any = object()
    with pytest.raises(NoGuarantee):
        must_be_secret(unmarked)


def test_texts_do_not_show_the_seed() -> None:
    bits = SeededBits(918273645, "a")
    assert "918273645" not in repr(bits)
    assert 918273645 not in vars(bits).values()
