"""Replay: is what a message gives away all accounted for?

Run an algorithm on data A and keep what the oracle gave out; run it on data B with those same answers forced. Every
message the server sees must be identical, or something besides the noisy answers carried data.

The other files of this family measure *how much* is given away: `audit_ratio.py` and `audit_gaussian.py` where the
law of what is seen is known, `audit_statistics.py` from samples, `audit_one_run.py` and `audit_membership.py` from a
single training run. `auditing/audit.py` plays the game.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Data = TypeVar("Data")


@dataclass(frozen=True)
class Made:
    """What a noisy value was made of: `exact` + noise of this kind and scale, (..., rows, coordinates) and (..., 1)."""

    exact: np.ndarray
    scale: np.ndarray
    kind: str


class Tape:
    """Put in a door's `intercept`: keeps the answers that pass, or replaces them by kept ones.

    With a `client` it keeps and replaces that client's answers alone; a round must then be everyone's.
    """

    def __init__(self, forced: Sequence[np.ndarray] | None = None, client: int | None = None) -> None:
        self.answers: list[np.ndarray] = []
        self.made: list[Made | None] = []  # None where the noise did not join at the door
        self._forced = None if forced is None else iter(forced)
        self._rows = slice(None) if client is None else slice(client, client + 1)

    def __call__(self, answer: np.ndarray, exact: Any = None, scale: Any = None, kind: str = "") -> np.ndarray:
        if self._forced is not None:
            answer = answer.copy()
            answer[..., self._rows, :] = next(self._forced)
        self.answers.append(answer[..., self._rows, :].copy())
        if exact is None:
            self.made.append(None)
        else:
            scales = np.broadcast_to(scale, (*exact.shape[:-1], 1))
            self.made.append(Made(exact[..., self._rows, :].copy(), scales[..., self._rows, :].copy(), kind))
        return answer


def replays(run: Callable[[Data, Tape], Sequence[np.ndarray]], a: Data, b: Data) -> bool:
    """Whether `run` sends the same messages on `b` as on `a` when it is given the same answers."""
    tape = Tape()
    on_a = run(a, tape)
    on_b = run(b, Tape(tape.answers))
    return len(on_a) == len(on_b) and all(np.array_equal(x, y) for x, y in zip(on_a, on_b, strict=True))
