"""Bounds hold exactly for the floating-point result: compared with rational numbers, for vectors made to break them."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.core import clipping
from sottovoce.privacy import discrete_noise as mechanisms
from tests.exact import exact_size

SMALLEST = 5e-324


def within(vector: np.ndarray, bound: float | Fraction, norm: int) -> bool:
    """Whether the exact norm of these floating-point numbers is at most `bound`."""
    return exact_size(vector, norm) <= Fraction(bound) ** norm


def adversarial(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    spread = 10.0 ** rng.uniform(-320, 300, (20, count)) * rng.choice([-1.0, 1.0], (20, count))
    near = rng.normal(size=(200, count))
    near /= np.linalg.norm(near, axis=1, keepdims=True)  # as long as the bound, but for rounding
    special = [
        np.full(count, SMALLEST),
        np.full(count, 1.7e308),
        np.full(count, 2.0**-540),  # its square underflows
        np.where(np.arange(count) == 0, 1e300, 1e-300),
        np.where(np.arange(count) % 2 == 0, 1 + 2.0**-52, -1.0),
    ]
    return [*spread, *near, *special]


@pytest.mark.parametrize("count", [1, 2, 3, 50, 5000])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("clip", [1.0, 0.1, 1e-150, 1e-300, 1e300])
def test_the_exact_norm_of_a_clipped_vector_is_at_most_the_bound(count: int, norm: int, clip: float) -> None:
    some = adversarial(count) if count < 100 else adversarial(count)[20:25]
    with np.errstate(over="ignore"):
        vectors = np.array([scale * vector for vector in some for scale in (1.0, clip)])
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    clipped = clipping.clip_rows(vectors, clip, norm)
    assert all(within(row, Fraction(clip), norm) for row in clipped)


@pytest.mark.parametrize("norm", [1, 2])
@settings(max_examples=200, deadline=None)
@given(
    vector=arrays(np.float64, st.integers(1, 9), elements=st.floats(width=64, allow_nan=True, allow_infinity=True)),
    clip=st.floats(1e-300, 1e300),
)
def test_whatever_the_vector(norm: int, vector: np.ndarray, clip: float) -> None:
    clipped = clipping.clip_rows(vector, clip, norm)
    assert within(clipped, Fraction(clip), norm)
    if not np.isfinite(vector).all():
        assert not clipped.any()
    elif within(vector, Fraction(clip) * (1 - Fraction(2) ** -38), norm) and clip >= 1e-270:
        np.testing.assert_array_equal(clipped, vector)  # what needs no clipping stays as it is


def test_what_is_clipped_keeps_its_direction_and_nearly_all_of_the_bound() -> None:
    for vector in adversarial(3)[20:]:
        clipped = clipping.clip_rows(vector * 1.0, 1e-3)
        if not within(vector, 1e-3, 2):
            scaled = vector / np.abs(vector).max()
            np.testing.assert_allclose(clipped, 1e-3 * scaled / np.linalg.norm(scaled), rtol=1e-11)


def test_every_vector_may_have_its_own_bound() -> None:
    vectors, clips = np.array([[3.0, 4.0], [3.0, 4.0], [np.nan, 1.0]]), np.array([[1.0], [10.0], [1.0]])
    clipped = clipping.clip_rows(vectors, clips)
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [3.0, 4.0], [0.0, 0.0]], rtol=1e-11)


@pytest.mark.parametrize("count", [1, 4, 40])
def test_the_exact_distance_from_a_centre_is_at_most_the_radius(count: int) -> None:
    rng = np.random.default_rng(3)
    for size in (1.0, 1e-60, 1e60, 1e-200):
        u = size * rng.normal(size=(100, count))
        away = u * rng.uniform(-3, 3, (100, 1)) * 10.0 ** rng.uniform(-3, 9, (100, 1))
        radius = np.linalg.norm(u, axis=1, keepdims=True) / 2
        for points in (u, np.zeros_like(u), u + away, np.full_like(u, np.nan), np.full_like(u, np.inf)):
            inside = clipping.into_ball(points, u / 2, radius)
            for row, middle, most in zip(inside, u / 2, radius[:, 0], strict=True):
                square = sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(row, middle, strict=True))
                assert square <= Fraction(float(most)) ** 2


def test_sparse_vectors_are_clipped_like_dense_ones() -> None:
    rng = np.random.default_rng(4)
    dense = 10.0 ** rng.uniform(-200, 200, (30, 1)) * rng.normal(size=(30, 8)) * (rng.random((30, 8)) < 0.5)
    rows, columns = np.nonzero(dense)
    entries = clipping.clip_entries(dense[rows, columns], rows, 30, 8, 0.7)
    np.testing.assert_allclose(entries, clipping.clip_rows(dense, 0.7)[rows, columns], rtol=1e-15)
    for row in range(30):
        assert within(entries[rows == row], Fraction(0.7), 2)


ROWS: dict[str, np.ndarray] = {
    "plain": np.array([[3.0, -4.0, 12.0]]),
    "denormal": np.array([[SMALLEST, SMALLEST, 0.0]]),  # its computed norm is too small by a third
    "huge": np.full((1, 3), 1.7e308),
    "empty": np.zeros((1, 3)),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("clip", [1e-199, 0.3, 1e300])
def test_a_slope_within_its_cap_times_its_row_is_within_the_bound(row: str, clip: float) -> None:
    X = ROWS[row]
    with np.errstate(over="ignore"):
        norms = np.abs(X).max(axis=1) * np.sqrt(np.square(X / (np.abs(X).max() or 1.0)).sum(axis=1))
    cap = float(clipping.slope_caps(norms, clip, 3)[0])
    exact = [Fraction(cap) * Fraction(float(x)) for x in X[0]]
    assert sum(x * x for x in exact) <= Fraction(clip) ** 2
    if row == "plain":
        assert cap == pytest.approx(clip / 13.0, rel=1e-11)
    if row == "empty":
        assert cap == 0.0


def test_caps_in_float32_are_float32_numbers_that_leave_the_room_of_the_proof() -> None:
    """Also where a cap is too large or too small for float32: there it is the largest number, or 0."""
    rng, limits = np.random.default_rng(0), np.finfo(np.float32)
    caps = np.concatenate([10.0 ** rng.uniform(-320, 308, 5000), rng.uniform(0.5, 2.0, 5000), [0.0, 1.7e308, 1e-39]])
    smaller = clipping.caps_in_float32(caps)
    assert (smaller == smaller.astype(np.float32)).all()
    assert (smaller <= float(limits.max)).all()
    assert ((smaller == 0) | (smaller >= float(limits.tiny))).all()
    assert all(
        Fraction(after) <= Fraction(cap) * (1 - Fraction(1, 2**18)) for after, cap in zip(smaller, caps, strict=True)
    )
    usual = (caps > 1e-37) & (caps < 1e38)
    assert (smaller[usual] >= caps[usual] * (1 - 2.0**-17)).all()


def test_slopes_are_cut_off_at_their_caps() -> None:
    slopes = np.array([5.0, -5.0, 0.5, np.nan, np.inf, -np.inf, 1.0])[:, None]
    caps = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])[:, None]
    np.testing.assert_array_equal(clipping.clamp(slopes, caps, 2)[:, 0], [1.0, -1.0, 0.5, 0.0, 1.0, -1.0, 0.0])


@pytest.mark.parametrize("norm", [1, 2])
def test_grid_integers_keep_their_bound_whatever_they_are_made_of(norm: int) -> None:
    clip = 0.3
    bad = [np.array([np.nan, 1.0]), np.array([np.inf, 0.0]), np.array([1e300, 1.0]), np.array([0.3, 0.3])]
    for vectors in [clipping.clip_rows(np.array(adversarial(4)), clip, norm), np.array(bad)]:
        for row in mechanisms.to_grid(vectors, clip, norm):
            numbers: list[Any] = [abs(int(number)) for number in row]
            most = mechanisms.GRID_BOUND
            assert sum(numbers) <= most if norm == 1 else sum(n * n for n in numbers) <= most**2
    on_the_bound = mechanisms.to_grid(np.array([[clip, 0.0]]), clip, norm)
    assert on_the_bound.tolist() == [[mechanisms.GRID_STEPS, 0]]
