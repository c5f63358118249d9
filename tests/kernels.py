"""Compile the loops that tests call, as a part of setting up: ``python -m tests.kernels``.

Numba keeps the machine code beside the files (`core/compiling.py`) and takes it only if they have not changed since. So
nothing depends on this having run: a test compiles what is missing or out of date, as it does what is not listed here.
"""

import numpy as np

from sottovoce.auditing.neighbours import Linear
from sottovoce.core.random import compiled
from sottovoce.problems import shrink_kernel
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax, Squared
from sottovoce.problems.rows import Rows

# Rows of so many numbers are taken in different ways.
SHORTEST, NARROW, MIDDLE, BORDER, WIDE, VERY_WIDE = 3, 7, 40, 64, 70, 200
EVERY = (Logistic(), Squared(), Huber(), SmoothedHinge())
LINEAR = Linear()  # of audits


def gradients(loss: Loss, stored: str, features: int, batches: bool = False, quick: bool = False) -> Rows:
    rows = Rows(np.ones((2, features), stored), np.ones(2), [0, 2], loss, engine="kernel")
    rows.gradient(np.zeros((1, rows.dim)), keep=np.ones(2, bool) if batches else None, quick=quick)
    rows.value(np.zeros((1, rows.dim)))
    return rows


def main() -> None:
    for make in (compiled.fill, compiled.normal, compiled.noisy, compiled.hashes, shrink_kernel.shrink):
        make()
    for stored in ("float64", "float32"):
        for loss in EVERY:
            gradients(loss, stored, WIDE)
            rows = gradients(loss, stored, NARROW)
            for norm in (1, 2):
                rows.truncated_sums(np.zeros((1, rows.dim)), np.arange(1), 1.0, norm, np.ones(1), 1.0, None)
        gradients(Softmax(4), stored, NARROW)
        for features in (MIDDLE, BORDER, VERY_WIDE):
            gradients(Logistic(), stored, features)
        gradients(Logistic(), stored, NARROW, batches=True)
    for loss in EVERY:
        gradients(loss, "float64", SHORTEST)
        for features in (NARROW, WIDE):
            gradients(loss, "float64", features, batches=True)
    gradients(Logistic(), "float64", SHORTEST, batches=True)
    for features in (SHORTEST, NARROW):
        gradients(LINEAR, "float64", features)
    gradients(LINEAR, "float64", SHORTEST, batches=True)
    for features in (SHORTEST, NARROW, MIDDLE, WIDE, VERY_WIDE):
        gradients(Logistic(), "float32", features, quick=True)
    gradients(Logistic(), "float32", NARROW, batches=True, quick=True)
    for features in (SHORTEST, WIDE):
        gradients(Squared(), "float32", features, quick=True)


if __name__ == "__main__":
    main()
