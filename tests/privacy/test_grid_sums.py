"""Sums of truncated gradients: compiled, by NumPy, and record by record as the definition says."""

import math

import numpy as np
import pytest

from sottovoce.core.clipping import clip_rows
from sottovoce.privacy.discrete_noise import GRID_BOUND, GRID_STEPS, to_grid
from sottovoce.privacy.doors.grid_sums import gradient_sums, moment_sums
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax, Squared
from sottovoce.problems.rows import Rows

RNG = np.random.default_rng(11)
OFFSETS = np.array([0, 5, 6, 40, 90])
X = RNG.normal(size=(90, 7)) * np.exp(3 * RNG.normal(size=(90, 1)))  # rows of very different lengths
Y = np.where(RNG.random(90) < 0.5, -1.0, 1.0)
SHARES = np.array([[1.0], [0.5], [0.25], [1.0]])


@pytest.mark.parametrize("loss", [Logistic(), Squared(), Huber(), SmoothedHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_both_engines_sum_what_the_definition_says(loss: Loss, norm: int, stored: str) -> None:
    rows = X.astype(stored)
    engines = {name: Rows(rows, Y, OFFSETS, loss, 1.0, name) for name in ("kernel", "numpy")}
    local, points = np.array([3, 0, 2]), RNG.normal(size=(2, 3, 7))
    drawn = RNG.random((2, 50 + 5 + 34)) < 0.6
    for keep in (None, drawn):
        said = {name: gradient_sums(exact, points, local, keep, 0.4, norm, SHARES) for name, exact in engines.items()}
        assert np.abs(said["kernel"] - said["numpy"]).max() <= 90  # engines agree to rounding: a step for each row
        ends = np.cumsum([50, 5, 34])
        for run in (0, 1):
            for place, client in enumerate(local):
                all_ = engines["numpy"].clipped_examples(points[run, place], int(client), 0.4, norm)
                kept = all_ if keep is None else all_[keep[run, ends[place] - len(all_) : ends[place]]]
                wanted = to_grid(kept * SHARES[client, 0], 0.4, norm).sum(axis=0)
                assert np.array_equal(said["numpy"][run, place], wanted)


@pytest.mark.parametrize("stored", ["float64", "float32"])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_moments_are_those_of_whole_rows_whatever_the_engine(loss: Loss, stored: str) -> None:
    """Against Python's own whole numbers, record by record."""
    kappa, bounds, local = 0.6, (2.0, 0.5), np.array([3, 1, 2])
    labels = Y if loss.outputs == 1 else np.arange(90.0) % 3
    tables = {name: Rows(X.astype(stored), labels, OFFSETS, loss, 1.0, name) for name in ("kernel", "numpy")}
    said = {name: moment_sums(rows, local, kappa, bounds, SHARES) for name, rows in tables.items()}
    assert np.array_equal(said["kernel"], said["numpy"])
    zeros = np.zeros(90 if loss.outputs == 1 else (90, 3))
    slopes = clip_rows(-loss.slope(zeros, labels).reshape(90, -1), bounds[1]) / bounds[1]
    x = np.trunc(clip_rows(X.astype(stored) / bounds[0], 1.0) * 2**20).astype(int).astype(object)
    s = np.trunc(slopes * 2**20).astype(int).astype(object)
    longest = math.hypot(bounds[1], kappa)
    for place, client in enumerate(local):
        own = slice(OFFSETS[client], OFFSETS[client + 1])
        gram, first = x[own].T @ x[own], s[own].T @ x[own]
        above, beside = np.triu_indices(7, 1)
        parts = (bounds[1] * first.ravel(), kappa * np.diagonal(gram), kappa * math.sqrt(2) * gram[above, beside])
        wanted = np.concatenate(parts).astype(float) / 2**40 / longest * 2**24 * SHARES[client, 0]
        # A row may be truncated differently by one in 2^20 where it was divided otherwise: 16 steps for a record.
        assert np.abs(said["numpy"][place] - wanted).max() <= 1 + 16 * 4


def test_a_record_moves_a_compiled_sum_by_no_more_than_the_bound() -> None:
    """Whatever a row is: so long that products overflow, tiny, turned around, or zeros."""
    rows = RNG.normal(size=(60, 5))
    local, points = np.arange(1), 1e3 * RNG.normal(size=(1, 5))
    for odd in (1e300, 1e-300, -1.0, 0.0):
        other = rows.copy()
        other[17] *= odd
        sums = [
            gradient_sums(
                Rows(data, Y[:60], np.array([0, 60]), Logistic(), 1.0, "kernel"),
                points, local, None, 0.5, 2, np.ones((1, 1)),
            )
            for data in (rows, other)
        ]  # fmt: skip
        assert np.linalg.norm(sums[0] - sums[1]) <= 2 * GRID_BOUND
    assert GRID_BOUND == GRID_STEPS + 1


@pytest.mark.parametrize("norm", [1, 2])
def test_a_row_that_would_be_too_long_adds_nothing_to_a_compiled_sum(norm: int) -> None:
    """No row can be, after clipping; so the limit is set where half of them are."""
    rows = Rows(X, Y, OFFSETS, Logistic(), 1.0, "kernel")
    local, points = np.arange(4), np.zeros((4, 7))
    examples = [np.trunc(rows.clipped_examples(points[0], client, 2.0, norm) * 1000.0) for client in range(4)]
    sizes = [np.abs(each).sum(axis=1) if norm == 1 else np.square(each).sum(axis=1) for each in examples]
    most = float(np.median(np.concatenate(sizes)))
    said = rows.truncated_sums(points, local, 2.0, norm, np.full(4, 1000.0), most, None)
    wanted = [each[size <= most].sum(axis=0) for each, size in zip(examples, sizes, strict=True)]
    assert said is not None
    assert np.abs(said - wanted).max() <= 2  # a product may be rounded to the other side of a whole number
    assert any((size > most).any() for size in sizes)
