"""Keys and masks: X25519, HKDF-SHA256 and ChaCha20. Masks are vectors of integers modulo 2^64.

Every key is derived for one purpose, which its label names, and from what fixes its place: the plan or the run, the
round, the clients. All fields after the name have fixed lengths, so no two places have the same label.
"""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import shamir
from sottovoce.deploy.aggregation.plan import Plan
from sottovoce.privacy.masked_products import hkdf

_FIRST_BLOCK = bytes(16)  # of ChaCha20: counter and nonce are 0, as every key is used for one stream


def label(name: str, *fields: bytes) -> bytes:
    """What is derived, signed or hashed, and where it belongs."""
    return b"sottovoce sums 1 " + name.encode() + b"\0" + b"".join(fields)


def number(value: int) -> bytes:
    """A round or a client in a label."""
    return value.to_bytes(4, "big")


def derived(secret: bytes, name: str, *fields: bytes) -> bytes:
    """A key of 32 bytes."""
    return hkdf(secret, label(name, *fields))


def key_stream(key: bytes, width: int) -> Words:
    """PRG: `width` integers modulo 2^64 that only `key` tells apart from uniform ones."""
    stream = Cipher(ChaCha20(key, _FIRST_BLOCK), mode=None).encryptor().update(bytes(8 * width))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def pair_key(plan: Plan, k: int, i: int, p: int) -> X25519PrivateKey:
    """The X25519 pair of client i for round k, HKDF(p_i^k)."""
    secret = derived(shamir.to_bytes(p), "pair key", plan.digest, number(k), number(i))
    return X25519PrivateKey.from_private_bytes(secret)


def commitment(plan: Plan, k: int, i: int, b: int) -> bytes:
    """What the server holds a rejoined b_i^k against. It says nothing of b, which has 255 random bits."""
    return hashlib.sha256(label("own mask", plan.digest, number(k), number(i), shamir.to_bytes(b))).digest()


def own_mask(run: bytes, k: int, i: int, b: int, width: int) -> Words:
    """PRG(HKDF(b_i^k))."""
    return key_stream(derived(shamir.to_bytes(b), "own mask", run, number(k), number(i)), width)


def pair_mask(run: bytes, k: int, i: int, j: int, private: X25519PrivateKey, other: bytes, width: int) -> Words:
    """± PRG(HKDF(X25519(p_i^k, X_j^k), run, k, {i, j})): what client i adds, client j subtracts.

    Raises ValueError where `other` is a point of small order, with which no key can be agreed on.
    """
    shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    mask = key_stream(derived(shared, "pair mask", run, number(k), number(min(i, j)), number(max(i, j))), width)
    return mask if i < j else np.negative(mask)  # modulo 2^64


def box_key(run: bytes, sender: int, receiver: int, private: X25519PrivateKey, other: bytes) -> bytes:
    """HKDF(X25519(e_i, E_j), run, i→j): the key of one ciphertext."""
    shared = private.exchange(X25519PublicKey.from_public_bytes(other))
    return derived(shared, "box", run, number(sender), number(receiver))
