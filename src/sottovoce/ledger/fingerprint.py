"""The hash of a data set by which a ledger knows it."""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check


def fingerprint(*arrays: ArrayLike | None) -> str:
    """SHA-256 (hex) of the arrays' bytes, shapes and types: the same for the same data set, else different.

    It stays with the data's owner: whoever has it can confirm a guessed data set. See `FileLedger.create`.
    """
    digest = hashlib.sha256()
    for number, value in enumerate(arrays):
        if value is None:
            digest.update(b"none;")
            continue
        array = np.ascontiguousarray(value)
        rule = f"array {number} must have a plain type (numbers or text of fixed width)"
        check.require(not array.dtype.hasobject and array.dtype.itemsize > 0, "fingerprint", rule, str(array.dtype))
        digest.update(f"{array.dtype.str}{np.shape(value)};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
