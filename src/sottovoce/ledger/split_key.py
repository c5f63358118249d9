"""The secret key that decides which records an owner holds out, in a file of its own (`core/histogram.py`)."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Collection
from pathlib import Path

from sottovoce.core.files import sync_folder
from sottovoce.ledger.budget import LedgerError

KEY = "held-out.key"
_LENGTH = 32


def split_key(path: Path, used: Collection[str]) -> bytes:
    """The key in this file, made on first use. `used`: digests of the keys by which records were held out before.

    Another key would hold out other records: some that earlier runs trained on. So a key that is gone, or that is not
    the one that was used, is refused.
    """
    if not path.exists():
        if used:
            raise LedgerError(f"{path}: is gone, and records were held out by it. Put it back")
        _write_once(path, os.urandom(_LENGTH))
    key = path.read_bytes()
    if len(key) != _LENGTH:
        raise LedgerError(f"{path}: must hold {_LENGTH} bytes. Put it back as it was")
    if set(used) - {digest_of(key)}:
        raise LedgerError(f"{path}: is not the key by which records were held out before. Put that one back")
    return key


def digest_of(*keys: bytes) -> str:
    """SHA-256 (hex) of one or more keys: it tells nothing of them, and no others have it."""
    return hashlib.sha256(b"".join(hashlib.sha256(key).digest() for key in keys)).hexdigest()


def _write_once(path: Path, content: bytes) -> None:
    """A whole and durable file that its owner alone can read; of two writers the first wins."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)
