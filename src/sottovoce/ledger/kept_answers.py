"""The answers of a run, kept on disk until it is over: a run that was killed goes on and resends them for free."""

import contextlib
import hashlib
import os
import struct
from pathlib import Path

import numpy as np


class KeptAnswers:
    """The noisy answers of one run, in a file that grows with each: (round, question) -> answers of some clients.

    They have left already, so they are no secret; but terms of sums have left in a sum only, with a share of the noise
    each. Only simulations keep answers here, on a machine that has all rows anyway: no node does. A record that a crash
    cut short counts as not kept.
    """

    _HEAD = struct.Struct("<qqqqq16s")  # round, question, clients, axes of the answer, bytes that follow, their digest

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        if path.exists():
            length = self._read(path.read_bytes())
            os.truncate(path, length)  # what follows was cut short: the next record must not join it

    def has(self, round: int, question: int) -> bool:
        return (round, question) in self._answers

    def get(self, round: int, question: int, clients: np.ndarray) -> np.ndarray | None:
        asked, answer = self._answers.get((round, question), (None, None))
        return answer if asked is not None and np.array_equal(asked, clients) else None

    def put(self, round: int, question: int, clients: np.ndarray, answer: np.ndarray) -> None:
        """Durable when this returns."""
        body = np.array([*clients, *answer.shape], dtype="<i8").tobytes() + answer.astype("<f8").tobytes()
        digest = hashlib.sha256(body).digest()[:16]
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._path.open("ab") as file:
            file.write(self._HEAD.pack(round, question, len(clients), answer.ndim, len(body), digest) + body)
            file.flush()
            os.fsync(file.fileno())

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()  # if it was the last

    def _read(self, content: bytes) -> int:
        """Read all records up to the first that is not whole, and return how many bytes they fill."""
        place = 0
        while place + self._HEAD.size <= len(content):
            round, question, clients, axes, size, digest = self._HEAD.unpack_from(content, place)
            end = place + self._HEAD.size + size
            body = content[place + self._HEAD.size : end]
            if size < 0 or len(body) < size or hashlib.sha256(body).digest()[:16] != digest:
                break
            numbers = np.frombuffer(body, dtype="<i8", count=clients + axes)
            answer = np.frombuffer(body, dtype="<f8", offset=8 * (clients + axes)).reshape(numbers[clients:])
            self._answers[round, question] = numbers[:clients], answer
            place = end
        return place
