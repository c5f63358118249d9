"""Sums of moments as whole numbers on a grid: what one record moves, and where rounding is largest."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import Moments
from sottovoce.core import moments
from sottovoce.core.check import InvalidInput
from sottovoce.privacy.calibration import AnswerShape, moments_steps
from sottovoce.privacy.doors.grid_sums import in_steps, moment_sums
from sottovoce.problems.rows import Rows
from tests.privacy.test_grid_noise import oracle_of

COMPANIONS = 3  # records of the same client that both neighbours have


def integers_of_moments(X: np.ndarray, y: np.ndarray, kappa: float) -> np.ndarray:
    """Sums of moments on the grid, as the door makes them: row i of X is the last record of client i.

    Slopes are those of a logistic loss, rows are cut to length 1. The other records are the same for all clients.
    """
    rng, clients = np.random.default_rng(5), len(X)
    others = rng.standard_normal((COMPANIONS, X.shape[1]))
    table = np.concatenate([np.broadcast_to(others, (clients, *others.shape)), X[:, None]], axis=1)
    labels = np.concatenate([np.ones((clients, COMPANIONS)), y[:, None]], axis=1)
    offsets = np.arange(clients + 1) * (COMPANIONS + 1)
    rows = Rows(table.reshape(-1, X.shape[1]), labels.ravel(), offsets, sv.Logistic(), 1.0)
    return moment_sums(rows, np.arange(clients), kappa, (1.0, 0.5), np.ones((clients, 1)))


def searched(kappa: float, columns: int, pairs: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Rows of pairs of records that are as far apart as any, or nearly: unit rows at the worst angle.

    Half of them are turned a little, and a tenth are random: what lies beside the worst case may be rounded worse. Some
    are far too long; and some lie on an axis, where truncation takes nothing away.
    """
    rng = np.random.default_rng(columns)
    x, z = rng.standard_normal((2, pairs, columns))
    x[::5] = np.eye(columns)[rng.integers(columns, size=len(x[::5]))]
    x /= np.linalg.norm(x, axis=1)[:, None]
    z -= (z * x).sum(axis=1)[:, None] * x
    z /= np.linalg.norm(z, axis=1)[:, None]
    cosine = np.full(pairs, min(1.0, 0.25 / (2 * kappa**2)))
    cosine[::2] += rng.normal(scale=1e-7, size=len(cosine[::2]))
    cosine[::10] = rng.uniform(-1, 1, len(cosine[::10]))
    cosine = np.clip(cosine, -1, 1)[:, None]
    lengths = np.where(rng.random((2, pairs, 1)) < 0.2, 1e9, 1.0)
    return lengths[0] * x, lengths[1] * (cosine * x + np.sqrt(1 - cosine**2) * z)


def steps_apart(here: np.ndarray, there: np.ndarray) -> float:
    return float(np.linalg.norm((here - there).astype(float), axis=1).max())


@pytest.mark.parametrize("columns", [2, 3, 12])
@pytest.mark.parametrize("kappa", [0.1, math.sqrt(0.125), math.sqrt(0.5), 2.0])
def test_no_record_moves_the_integers_of_moments_further_than_stated(kappa: float, columns: int) -> None:
    shape, part = AnswerShape(columns, columns, 0.5), Moments(kappa=kappa).asks().parts[0]
    width = moments.width(columns, columns)
    x, other = searched(kappa, columns)
    ones = np.ones(len(x))
    here, there = integers_of_moments(x, ones, kappa), integers_of_moments(other, -ones, kappa)
    replaced = steps_apart(here, there)
    removed = steps_apart(here, integers_of_moments(0 * x, ones, kappa))  # a blank row in its place
    assert replaced <= moments_steps(part, shape, True, width)
    assert removed <= moments_steps(part, shape, False, width)
    assert replaced >= 0.999 * moments_steps(part, shape, True, width)  # the search is no idle one
    assert removed >= 0.999 * moments_steps(part, shape, False, width)


def test_rounding_moves_integers_further_than_the_numbers_move() -> None:
    """By nearly one step in a coordinate, and never by two: without √width more, sensitivities would be too small."""
    kappa, columns, pairs = 2.0, 4, 500
    x, other = searched(kappa, columns, pairs)
    ones, both = np.ones(pairs), np.concatenate([x, other])
    integers = integers_of_moments(both, np.concatenate([ones, -ones]), kappa)
    alone = Rows(both, np.concatenate([ones, -ones]), np.arange(2 * pairs + 1), sv.Logistic(), 1.0)
    exact = alone.whole_moments(np.arange(2 * pairs), 1.0, 0.5)  # whole numbers: differences of these are exact
    scale = moments.weights(columns, columns, kappa, 0.5) / math.hypot(0.5, kappa) * 2.0**-16  # 2^24 / 2^40
    moved = (exact[:pairs] - exact[pairs:]) * scale
    beyond = np.abs(integers[:pairs] - integers[pairs:] - moved)
    assert 0.9 < beyond.max() < 2
    assert np.linalg.norm(beyond, axis=1).max() < 2 * math.sqrt(moments.width(columns, columns))


def test_rounding_of_the_largest_sums_of_moments_is_within_two_steps() -> None:
    """Of 2^22 records, whose sums floating point no longer holds exactly: against fractions."""
    rng, most = np.random.default_rng(4), 0.0
    for _ in range(500):
        slope, kappa, share = rng.uniform(0.01, 3), rng.uniform(0.01, 3), rng.choice([1.0, rng.uniform(0.001, 1)])
        steps = moments.weights(1, 2, kappa, slope) / math.hypot(slope, kappa) * 2.0**-16 * share
        totals, record = rng.integers(2**61, 2**62, 4), rng.integers(-(2**41), 2**41, 4)
        moved = in_steps(totals + record, steps) - in_steps(totals, steps)
        for got, one, factor in zip(moved.tolist(), record.tolist(), steps.tolist(), strict=True):
            most = max(most, abs(float(got - one * Fraction(factor))))
    assert 0.9 < most < 1 + 2.0**-5


@pytest.mark.parametrize("loss", [sv.Logistic(), sv.Softmax(3), sv.Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    ("row_bound", "kappa", "companions"), [(0.37, 0.2, 1), (3.3, math.sqrt(0.5), 40), (77.7, 1.7, 300)]
)
def test_no_record_moves_moments_further_whatever_bounds_and_weights(
    loss: Any, row_bound: float, kappa: float, companions: int
) -> None:
    """Row bounds, slopes and weights that are no powers of two; records at and far beyond their bound; companions."""
    rng, pairs, columns = np.random.default_rng(6), 60, 3
    width, slope = moments.width(columns * loss.outputs, columns), min(loss.slope_at_zero, 0.83)
    classes = [0.0, 1.0, 2.0] if loss.outputs > 1 else [-9.0, 9.0] if loss.name == "squared" else [-1.0, 1.0]
    part, shape = Moments(kappa=kappa).asks().parts[0], AnswerShape(columns * loss.outputs, columns, slope)
    x, other = (row_bound * rows for rows in searched(kappa, columns, pairs))
    others, labels = rng.standard_normal((companions, columns)) * row_bound, rng.choice(classes, companions)

    def integers(last: np.ndarray, label: float, share: float) -> np.ndarray:
        table = np.concatenate([np.broadcast_to(others, (pairs, *others.shape)), last[:, None]], axis=1)
        offsets, own = np.arange(pairs + 1) * (companions + 1), np.tile([*labels, label], pairs)
        rows = Rows(table.reshape(-1, columns), own, offsets, loss, row_bound)
        return moment_sums(rows, np.arange(pairs), kappa, (row_bound, slope), np.full((pairs, 1), share))

    replaced, removed = (moments_steps(part, shape, reach, width) for reach in (True, False))
    for share in (1.0, 1 / 3, 0.7654321):
        here, there = integers(x, classes[0], share), integers(other, classes[-1], share)
        blank = steps_apart(here, integers(0 * x, 1.0, share))
        assert steps_apart(here, there) <= replaced
        assert 0.99 * share * removed < blank <= removed  # the search is no idle one


def test_more_records_than_moments_have_room_for_are_refused_before_anything_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moments, "MOST_RECORDS", 3)
    method = Moments()
    for noise in ("discrete", "secure"):
        place, oracle = oracle_of(method, sv.Proven(1.0, 1e-3, 1.0, noise=noise), [4])
        with pytest.raises(InvalidInput, match="records of each client"):
            oracle.moments(method.kappa, method.asks().parts[0].slope_bound)
        assert place.ledger is not None
        assert not place.ledger.spent(0)


def test_whole_rows_and_slopes_are_never_longer_than_their_bound() -> None:
    """A record alone: its second moments have the trace |x|², its first |x| |s|, which whole numbers hold exactly."""
    rng, columns = np.random.default_rng(3), 5
    X = rng.standard_normal((400, columns))
    X[:100] /= np.linalg.norm(X[:100], axis=1)[:, None]
    X[100:] *= 10.0 ** rng.integers(-5, 100, (300, 1)).astype(float)
    y = rng.standard_normal(400) * 3
    rows = Rows(X, y, np.arange(401), sv.Squared(), 1.0)
    exact = rows.whole_moments(np.arange(400), 1.0, 0.7).astype(object)  # Python's whole numbers
    squares = exact[:, columns : 2 * columns].sum(axis=1)
    assert 0.99999 * moments.STEPS**2 < max(squares) <= moments.STEPS**2
    firsts = (exact[:, :columns] ** 2).sum(axis=1)
    assert all(first <= square * moments.STEPS**2 for first, square in zip(firsts, squares, strict=True))
