"""What a run has answered, kept on disk until it is over: a killed run goes on with the same answers, for free."""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np


class KeptAnswers:
    """The noisy answers of one run, in a file that grows with each: (round, question) -> answers of some clients.

    They were given away, so they are no secret. A record that a crash cut short counts as not kept.
    """

    _HEAD = struct.Struct("<qqqqq")  # round, question, clients, axes of the answer, bytes that follow

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = dict(self._read()) if path.exists() else {}

    def has(self, round: int, question: int) -> bool:
        return (round, question) in self._found

    def get(self, round: int, question: int, clients: np.ndarray) -> np.ndarray | None:
        of, answer = self._found.get((round, question), (None, None))
        return answer if of is not None and np.array_equal(of, clients) else None

    def put(self, round: int, question: int, clients: np.ndarray, answer: np.ndarray) -> None:
        """Durable when this returns."""
        body = np.array([*clients, *answer.shape], dtype="<i8").tobytes() + answer.astype("<f8").tobytes()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._path.open("ab") as file:
            file.write(self._HEAD.pack(round, question, len(clients), answer.ndim, len(body)) + body)
            file.flush()
            os.fsync(file.fileno())

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()  # if it was the last

    def _read(self) -> Iterator[tuple[tuple[int, int], tuple[np.ndarray, np.ndarray]]]:
        content, place = self._path.read_bytes(), 0
        while place + self._HEAD.size <= len(content):
            round, question, clients, axes, size = self._HEAD.unpack_from(content, place)
            body = content[place + self._HEAD.size : place + self._HEAD.size + size]
            if len(body) < size:
                return
            numbers = np.frombuffer(body, dtype="<i8", count=clients + axes)
            answer = np.frombuffer(body, dtype="<f8", offset=8 * (clients + axes)).reshape(numbers[clients:])
            yield (round, question), (numbers[:clients], answer)
            place += self._HEAD.size + size
