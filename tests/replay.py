"""Replay: do the noisy answers explain everything that a message reveals?

Run an algorithm on data A and keep what the oracle answered; run it on data B with the same answers forced. Every
message to the server must be identical. Otherwise something besides the noisy answers carried data.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from sottovoce.auditing.tape import Tape

Data = TypeVar("Data")


def replays(run: Callable[[Data, Tape], Sequence[np.ndarray]], a: Data, b: Data) -> bool:
    """Whether `run` sends the same messages on `b` as on `a` when it gets the same answers."""
    tape = Tape()
    on_a = run(a, tape)
    on_b = run(b, Tape(tape.answers))
    return len(on_a) == len(on_b) and all(np.array_equal(x, y) for x, y in zip(on_a, on_b, strict=True))
