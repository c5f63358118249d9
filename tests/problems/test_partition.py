import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.check import InvalidInput
from sottovoce.problems import partition

seeds = st.integers(0, 2**63)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int]:
    rows = draw(st.integers(1, 400))
    return rows, draw(st.integers(1, rows))


def _sizes(groups: np.ndarray, rows: int, clients: int) -> np.ndarray:
    """One owner per row, every client served; the sizes."""
    assert groups.shape == (rows,)
    assert np.issubdtype(groups.dtype, np.integer)
    assert groups.min() >= 0
    sizes = np.bincount(groups, minlength=clients)
    assert len(sizes) == clients
    assert sizes.min() >= 1
    return sizes


@given(counts(), seeds)
def test_iid_sizes_differ_by_at_most_one(rows_clients: tuple[int, int], seed: int):
    rows, clients = rows_clients
    sizes = _sizes(partition.iid(rows, clients, seed), rows, clients)
    assert sizes.max() - sizes.min() <= 1


@given(counts(), st.integers(1, 5), st.floats(1e-300, 1.7e308), seeds, st.data())
def test_dirichlet_leaves_nobody_short(
    rows_clients: tuple[int, int], classes: int, alpha: float, seed: int, data: st.DataObject
):
    rows, clients = rows_clients
    at_least = data.draw(st.integers(1, rows // clients))
    y = np.random.default_rng(seed).integers(classes, size=rows)
    groups = partition.dirichlet(y, clients, alpha, seed, at_least)
    assert _sizes(groups, rows, clients).min() >= at_least
    np.testing.assert_array_equal(groups, partition.dirichlet(y, clients, alpha, seed, at_least))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), seeds)
def test_by_size_keeps_sizes(sizes: list[int], seed: int):
    assert _sizes(partition.by_size(sizes, seed), sum(sizes), len(sizes)).tolist() == sizes


@given(counts(), st.floats(0, 1.7e308), seeds)
def test_lognormal_sizes_add_up(rows_clients: tuple[int, int], spread: float, seed: int):
    rows, clients = rows_clients
    sizes = partition.lognormal_sizes(rows, clients, spread, seed)
    assert sizes.shape == (clients,)
    assert sizes.sum() == rows
    assert sizes.min() >= 1


@given(counts(), seeds)
def test_random_cuts_leave_no_crumbs(rows_clients: tuple[int, int], seed: int):
    rows, clients = rows_clients
    sizes = _sizes(partition.random_cuts(rows, clients, seed), rows, clients)
    assert 100 * clients * sizes.min() > rows


@given(st.lists(st.sampled_from(["va", "cleveland", "hungarian", "10", "9"]), min_size=1, max_size=50))
def test_by_column_names_the_owner_of_each_row(values: list[str]):
    groups, names = partition.by_column(values)
    assert [names[g] for g in groups] == values
    assert list(names) == sorted(set(values))
    again, _ = partition.by_column(np.array(values, dtype=object))
    np.testing.assert_array_equal(again, groups)


OPTIONS = {"iid": {}, "dirichlet": {"alpha": 0.3, "at_least": 2}, "lognormal": {"spread": 1.0}, "random-cuts": {}}


@pytest.mark.parametrize("kind", partition.PARTITIONS)
def test_every_kind_is_shuffled_and_made_by_its_seed(kind: str):
    y = np.repeat([-1.0, 1.0], 300)
    groups = partition.make(kind, y, 20, seed=3, **OPTIONS[kind])
    _sizes(groups, 600, 20)
    np.testing.assert_array_equal(groups, partition.make(kind, y, 20, seed=3, **OPTIONS[kind]))
    assert not np.array_equal(groups, partition.make(kind, y, 20, seed=4, **OPTIONS[kind]))
    assert np.count_nonzero(np.diff(groups)) > 200  # rows in blocks would change owner about 20 times


def test_make_calls_the_function_of_that_name():
    y = np.arange(60) % 3
    for made, direct in (
        (partition.make("iid", y, 7, 5), partition.iid(60, 7, 5)),
        (partition.make("dirichlet", y, 7, 5, alpha=0.2), partition.dirichlet(y, 7, 0.2, 5)),
        (partition.make("random-cuts", y, 7, 5), partition.random_cuts(60, 7, 5)),
    ):
        np.testing.assert_array_equal(made, direct)
    sizes = np.bincount(partition.make("lognormal", y, 7, 5, spread=1.5))
    np.testing.assert_array_equal(sizes, partition.lognormal_sizes(60, 7, 1.5, 5))


def test_dirichlet_shares_have_the_variance_of_the_law():
    clients, alpha, per_class = 4, 0.5, 2000
    y = np.repeat([0, 1], per_class)
    shares = []
    for seed in range(600):
        groups = partition.dirichlet(y, clients, alpha, seed)
        shares.append([(groups[:per_class] == 0).mean(), (groups[per_class:] == 0).mean()])
    first, second = np.array(shares).T
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    for share in (first, second):
        assert share.mean() == pytest.approx(1 / clients, abs=4 * np.sqrt(variance / 600))
        assert share.var() == pytest.approx(variance, rel=0.2)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(600)


def test_dirichlet_from_one_mix_for_all_to_one_class_each():
    y = np.repeat(["a", "b"], 500)
    for alpha in (1e12, 1.7e308):
        even = partition.dirichlet(y, 10, alpha, seed=0)
        for label in "ab":
            assert np.bincount(even[y == label], minlength=10).tolist() == [50] * 10
    skewed = partition.dirichlet(y, 10, 1e-9, seed=1, at_least=20)
    sizes = np.bincount(skewed)
    assert sorted(sizes)[:8] == [20] * 8  # everybody else was topped up to the floor, and no higher
    assert sizes.sum() == 1000


def test_lognormal_sizes_have_the_spread():
    sizes = partition.lognormal_sizes(10**8, 4000, 0.7, seed=0)
    assert np.log(sizes).std() == pytest.approx(0.7, rel=0.04)
    assert abs(((np.log(sizes) - np.log(sizes).mean()) ** 3).mean()) < 0.05  # symmetric on the log scale
    even = partition.lognormal_sizes(1003, 10, 0.0, seed=0)
    assert sorted(even) == [100] * 7 + [101] * 3


def test_lognormal_sizes_round_the_largest_remainders_up():
    weights = np.exp(np.random.default_rng(2).standard_normal(8))
    shares = 42 * weights / weights.sum()  # of the rows beyond the first one each
    extra = partition.lognormal_sizes(50, 8, 1.0, seed=2) - 1
    up = extra > shares
    assert 0 < up.sum() < 8
    assert np.abs(extra - shares).max() < 1
    assert (shares % 1)[up].min() > (shares % 1)[~up].max()


def _cut_sizes(rows: int, clients: int, draws: int) -> Counter:
    made = (np.bincount(partition.random_cuts(rows, clients, seed)) for seed in range(draws))
    return Counter(tuple(int(size) for size in sizes) for sizes in made)


@pytest.mark.parametrize(("rows", "clients"), [(7, 3), (220, 2)])
def test_random_cuts_are_uniform_over_admissible_cuts(rows: int, clients: int):
    cuts = itertools.combinations(range(1, rows), clients - 1)
    parts = [tuple(np.diff([0, *cut, rows]).tolist()) for cut in cuts]
    admissible = [sizes for sizes in parts if min(sizes) > 0.01 * rows / clients]
    draws = 20 * len(admissible)
    seen = _cut_sizes(rows, clients, draws)
    assert set(seen) == set(admissible)
    chi_square = sum((seen[sizes] - 20) ** 2 / 20 for sizes in admissible)
    freedom = len(admissible) - 1
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_random_cuts_serve_thousands_of_clients():
    sizes = _sizes(partition.random_cuts(10**6, 5000, seed=0), 10**6, 5000)
    assert sizes.min() == 3  # 0.01 * 200 = 2 is not enough
    assert sizes.max() > 5 * sizes.mean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.iid(3, 4, 0), "iid: clients must be <= rows = 3 so that everyone has a row, got 4"),
        (lambda: partition.iid(3, 0, 0), "iid: clients must be a whole number >= 1, got 0"),
        (lambda: partition.iid(0, 1, 0), "iid: rows must be a whole number >= 1, got 0"),
        (lambda: partition.iid(3, 2, -1), "iid: seed must be a whole number >= 0, got -1"),
        (lambda: partition.iid(3, 2.5, 0), "iid: clients must be a whole number >= 1, got 2.5"),  # pyright: ignore[reportArgumentType]
        (lambda: partition.dirichlet([1, 2], 1, 0.0, 0), "dirichlet: alpha must be > 0, got 0.0"),
        (lambda: partition.dirichlet([1, 2], 1, float("inf"), 0), "dirichlet: alpha must be > 0, got inf"),
        (lambda: partition.dirichlet([1, 2, 3], 2, 1.0, 0, 2), "2 clients of at_least=2 need 4 rows, got 3"),
        (lambda: partition.dirichlet([1, 2], 1, 1.0, 0, 0), "at_least must be a whole number >= 1, got 0"),
        (lambda: partition.dirichlet([[1, 2]], 1, 1.0, 0), r"dirichlet: needs one value per row, got \(1, 2\)"),
        (lambda: partition.by_size([3, 0], 0), r"by_size: sizes must be a list of whole numbers >= 1"),
        (lambda: partition.by_size([1.5], 0), "by_size: sizes must be a list of whole numbers"),
        (lambda: partition.by_size([], 0), "by_size: sizes must be a list of whole numbers"),
        (lambda: partition.lognormal_sizes(9, 3, -0.1, 0), "lognormal_sizes: spread must be >= 0, got -0.1"),
        (lambda: partition.lognormal_sizes(2, 3, 0.1, 0), "lognormal_sizes: clients must be <= rows"),
        (lambda: partition.random_cuts(2, 3, 0), "random_cuts: clients must be <= rows"),
        (lambda: partition.by_column([]), "by_column: needs one value per row"),
        (lambda: partition.by_column([1.0, float("nan")]), "by_column: needs a value in every row, got NaN"),
        (
            lambda: partition.by_column(np.array(["a", None])),
            "needs numbers, or text in every row, got 'NoneType, str'",
        ),
        (lambda: partition.make("idd", [1, 2], 1, 0), "partition: unknown kind 'idd'. Did you mean 'iid'"),
        (lambda: partition.make("iid", [1, 2], 1, 0, alpha=1), "iid: takes no option 'alpha'"),
        (lambda: partition.make("dirichlet", [1, 2], 1, 0, alfa=1), "unknown option 'alfa'. Did you mean 'alpha'"),
        (lambda: partition.make("dirichlet", [1, 2], 1, 0), "dirichlet: needs the option 'alpha'"),
        (lambda: partition.make("lognormal", [1, 2], 1, 0), "lognormal: needs the option 'spread'"),
    ],
)
def test_errors_say_what_to_change(call, message: str):
    with pytest.raises(InvalidInput, match=message):
        call()
