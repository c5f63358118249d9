"""Sums of truncated gradients: compiled, by NumPy, and record by record as the definition says."""

import numpy as np
import pytest

from sottovoce.privacy.discrete_noise import GRID_BOUND, GRID_STEPS, to_grid
from sottovoce.privacy.doors.grid_sums import gradient_sums, moment_sums
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Squared
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
def test_moments_are_summed_alike_by_both_engines_and_record_by_record(stored: str) -> None:
    kappa, bounds, local = 0.6, (2.0, 0.5), np.array([3, 1, 2])
    said = {
        name: moment_sums(Rows(X.astype(stored), Y, OFFSETS, Logistic(), 1.0, name), local, kappa, bounds, SHARES, 35)
        for name in ("kernel", "numpy")
    }
    assert np.abs(said["kernel"] - said["numpy"]).max() <= 90
    rows = Rows(X.astype(stored), Y, OFFSETS, Logistic(), 1.0, "numpy")
    for place, client in enumerate(local):
        records = rows.moments_of_records(int(client), kappa, *bounds) * SHARES[client, 0]
        assert np.array_equal(said["numpy"][place], to_grid(records, float(np.hypot(0.5, kappa))).sum(axis=0))


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
