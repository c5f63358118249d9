"""Checking what a message gives away.

Replay: run an algorithm on data A and keep what the oracle gave out; run it on data B with those same answers
forced. Every message the server sees must be identical, or something besides the noisy answers carried data.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

Data = TypeVar("Data")


class Tape:
    """Put in a door's `intercept`: keeps the answers that pass, or replaces them by kept ones."""

    def __init__(self, forced: Sequence[np.ndarray] | None = None) -> None:
        self.answers: list[np.ndarray] = []
        self._forced = None if forced is None else iter(forced)

    def __call__(self, answer: np.ndarray) -> np.ndarray:
        if self._forced is not None:
            answer = next(self._forced).copy()
        self.answers.append(answer.copy())
        return answer


def replays(run: Callable[[Data, Tape], Sequence[np.ndarray]], a: Data, b: Data) -> bool:
    """Whether `run` sends the same messages on `b` as on `a` when it is given the same answers."""
    tape = Tape()
    on_a = run(a, tape)
    on_b = run(b, Tape(tape.answers))
    return len(on_a) == len(on_b) and all(np.array_equal(x, y) for x, y in zip(on_a, on_b, strict=True))
