"""Products of split columns in whole numbers: bounds that hold as integers, sums that are exact, and Δ."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from sottovoce.core import products
from sottovoce.core.check import InvalidInput
from sottovoce.core.products import STEPS, UNIT, Split


def tables(split: Split, samples: int, seed: int = 0) -> list[np.ndarray]:
    """Tables of whole numbers as long as they may be."""
    rng = np.random.default_rng(seed)
    made = []
    for m, width in enumerate(split.widths):
        rows = products.whole_rows(rng.normal(size=(samples, width)), split.longest(m), 1e-3)
        if m == split.holder:
            slopes = rng.normal(size=(samples, split.outputs))
            rows = np.hstack([rows, products.whole_slopes(slopes, 1e-3)])
        made.append(rows)
    return made


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=5),
    st.integers(1, 20),
    st.integers(1, 20),
    st.floats(1e-3, 1e3),
)
def test_no_row_is_longer_than_its_share_in_whole_numbers(
    row: list[float], own: int, others: int, bound: float
) -> None:
    split = Split((len(row), 1), (own, others))
    whole = products.whole_rows(np.array([row, [0.0] * len(row)]), split.longest(0), bound)
    squares = sum(int(entry) ** 2 for entry in whole[0])
    assert squares * (own + others) <= UNIT * own
    assert not whole[1].any()  # a row of zeros stays one


def test_rows_that_fit_are_truncated_toward_zero_and_no_more() -> None:
    split = Split((3,), (1,))
    rows = np.array([[0.3, -0.4, 0.5], [-1e-7, 1e-7, 0.0], [0.6, 0.8, 0.0], [1.0, 0.0, 0.0]])
    whole = products.whole_rows(rows, split.longest(0), 1.0)
    np.testing.assert_array_equal(whole[:2], np.trunc(rows[:2] * STEPS))
    assert np.abs(whole[2:] - rows[2:] * STEPS).max() <= 2
    nothing = products.whole_rows(np.array([[np.inf, 1.0, 0.0], [np.nan, 1.0, 0.0]]), split.longest(0), 1.0)
    assert not nothing.any()


def test_a_category_counts_as_one_column_whatever_its_levels() -> None:
    split = Split(widths=(9, 41), shares=(3, 1))
    assert split.longest(0) == 3 * UNIT // 4
    assert split.reach(0) ** 2 + split.reach(1) ** 2 == pytest.approx(1.0)


@pytest.mark.parametrize(
    "split", [Split((2, 3), (1, 1)), Split((2, 1, 3), (1, 2, 3), holder=1, outputs=3), Split((4,), (1,))]
)
def test_every_product_is_there_once_and_exact(split: Split) -> None:
    made = tables(split, 100)
    joined = np.hstack(made).astype(object)
    exact = joined.T @ joined  # Python's own whole numbers
    rows, columns = split.places
    assert len(rows) == split.size == len({frozenset((int(i), int(j))) for i, j in zip(rows, columns, strict=True)})
    assert not (split.is_label[rows] & split.is_label[columns]).any()
    halves = products.halves(split, made)
    assert halves.sum(axis=0).tolist() == [int(exact[i, j]) for i, j in zip(rows, columns, strict=True)]
    for m in range(split.owners):
        assert not halves[m][~split.of_owner(m)].any()
    for a, b in split.pairs:
        block = halves[a, split.of_pair(a, b)].reshape(split.table_width(a), split.table_width(b))
        np.testing.assert_array_equal(block, made[a].astype(np.int64).T @ made[b].astype(np.int64))


def test_sums_over_many_blocks_of_rows_are_exact() -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(STEPS - 5, STEPS + 1, size=(20_001, 2), dtype=np.int32)  # as large as entries can be
    np.testing.assert_array_equal(products.gram([table]), table.astype(np.int64).T @ table.astype(np.int64))


def test_limbs_keep_all_64_bits_and_wrap() -> None:
    numbers = np.array([0, 1, -1, 2**63 - 1, -(2**63), 2**32, -(2**32) - 7])
    np.testing.assert_array_equal(products.from_limbs(products.to_limbs(numbers)), numbers)
    mask = np.array([2**63 - 5, -17, 12345, 9, -(2**62), 0, 1])
    limbs = products.to_limbs(np.stack([numbers + mask, -mask]))
    np.testing.assert_array_equal(products.opened(limbs), numbers)
    for wrong in (0.5, -1.0, 2.0**32, np.nan):
        with pytest.raises(InvalidInput, match="32 bits"):
            products.from_limbs(np.array([wrong, 0.0]))


@pytest.mark.parametrize(("samples", "sigma"), [(2**26 + 1, 1.0), (2**20, 2.0**47), (2**26, 2.0**56)])
def test_what_would_leave_64_bits_is_refused(samples: int, sigma: float) -> None:
    products.must_fit(2**26, 2.0**44, products.LARGEST_KAPPA)
    with pytest.raises(InvalidInput, match=r"2\^26|64 bits"):
        products.must_fit(samples, sigma, products.LARGEST_KAPPA)


def moved(split: Split, first: list[np.ndarray], second: list[np.ndarray], kappa: float) -> float:
    """How far the products move, each weighed by the noise on it, if one record takes another's place."""
    one, other = (products.halves(split, [part[None] for part in record]).sum(axis=0) for record in (first, second))
    return float(np.linalg.norm((one - other) / UNIT / split.noise_factors(kappa)))


def record(split: Split, numbers: np.ndarray) -> list[np.ndarray]:
    """A record of any numbers, cut as the owners cut it."""
    parts, start = [], 0
    for m, width in enumerate(split.widths):
        own = numbers[start : start + width]
        whole = products.whole_rows(own[None] / max(np.linalg.norm(own), 1e-9), split.longest(m), 1.0)[0]
        start += width
        if m == split.holder:
            slopes = numbers[start : start + split.outputs]
            start += split.outputs
            slopes = slopes / max(np.linalg.norm(slopes), 1e-9)
            whole = np.concatenate([whole, products.whole_slopes(slopes[None], 1.0)[0]])
        parts.append(whole)
    return parts


@pytest.mark.parametrize("kappa2", [0.05, 0.5])
@pytest.mark.parametrize("split", [Split((2, 2), (1, 1)), Split((1, 2, 1), (1, 2, 1), 2, outputs=3)])
def test_no_record_moves_the_products_further(split: Split, kappa2: float) -> None:
    """A search over pairs of records, from two starts, comes near Δ and never above it."""
    kappa = min(np.sqrt(kappa2), products.LARGEST_KAPPA)
    delta, width = products.products_sensitivity(kappa), split.starts[-1]
    rng, best = np.random.default_rng(0), 0.0

    def distance(numbers: np.ndarray) -> float:
        return moved(split, record(split, numbers[:width]), record(split, numbers[width:]), kappa)

    for _ in range(2):
        start = rng.normal(size=2 * width)
        start[width:] = np.where(rng.random(width) < 0.5, start[:width], start[width:])
        found = minimize(lambda x: -distance(x), start, method="Nelder-Mead", options={"maxiter": 400})
        best = max(best, -found.fun)
    assert best <= delta  # no slack: the integers keep the bound themselves
    assert best >= 0.93 * delta


def test_the_bound_is_attained_by_a_label_and_by_a_row() -> None:
    """κ² <= 1/8: a flipped label moves b by 1. κ² = 1/2: rows at an angle of cosine 1/4 reach 1.25."""
    split, row = Split((1, 1), (1, 1)), np.array([1.0, 1.0, 1.0])
    flipped = [record(split, row * [1, sign, 1]) for sign in (1.0, -1.0)]
    assert moved(split, *flipped, kappa=0.125**0.5) == pytest.approx(1.0, abs=1e-4)
    wide, cosine = Split((2, 2), (1, 1)), 0.25
    angle = np.array([cosine, np.sqrt(1 - cosine**2)])
    pair = record(wide, np.array([1, 0, 1.0, 1, 0])), record(wide, np.array([*angle, -1.0, *angle]))
    assert moved(wide, *pair, kappa=0.5**0.5) == pytest.approx(1.25, abs=1e-4)


def test_noise_scales_make_one_gaussian_release() -> None:
    split, kappa = Split((2, 1), (1, 1), outputs=2), 0.5**0.5
    rows, columns = split.places
    factors = split.noise_factors(kappa)
    np.testing.assert_allclose(factors[rows == columns], np.sqrt(2))
    assert set(factors[rows != columns].tolist()) == {1.0}
    assert split.noises().tolist() == [1 if a == b else 2 for a, b in zip(*split.owners_of, strict=True)]
    assert split.size == len(list(itertools.combinations_with_replacement(range(3), 2))) + 3 * 2
