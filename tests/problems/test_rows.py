"""The exact oracle: two engines against each other, plain loops, finite differences, closed forms and scikit-learn."""

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.compiling import THREADS
from sottovoce.privacy import sensitivity
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax, Squared
from sottovoce.problems.losses.base import margins
from sottovoce.problems.rows import Rows
from sottovoce.problems.rows.argmin import subproblems
from tests.exact import exact_size

LOSSES = [Logistic(), Softmax(4), Squared(), Huber(0.5), SmoothedHinge(0.7)]
SIZES = [3, 1, 1300, 2, 512, 513, 30, 1]  # clients of one row, of an odd number of rows, and of several chunks
FEATURES, WIDE = 7, 70  # the kernel takes rows of more than 64 numbers another way
ODD_ORDER = [5, 0, 7, 2]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
each_width = pytest.mark.parametrize("features", [FEATURES, WIDE])
each_engine = pytest.mark.parametrize("engine", ["numpy", "kernel"])


def labels(loss: Loss, count: int, rng: np.random.Generator) -> np.ndarray:
    if loss.code == 1:
        return rng.integers(0, loss.outputs, count).astype(float)
    return rng.choice([-1.0, 1.0], count) if loss.classification else rng.standard_normal(count)


def make(
    loss: Loss, engine: str = "numpy", sizes: list[int] = SIZES, scale: str = "mean", features: int = FEATURES
) -> Rows:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sum(sizes), features)) * rng.exponential(1.0, (sum(sizes), 1)) * np.sqrt(7 / features)
    X[0] = 0.0  # an empty row has norm 0, which the clip must survive
    return Rows(X, labels(loss, len(X), rng), np.cumsum([0, *sizes]), loss, scale, engine)


def points(rows: Rows, *leading: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((*leading, rows.dim))


def certificate(
    rows: Rows,
    w: Any,
    centre: np.ndarray,
    rho: Any,
    linear: Any = 0.0,
    ridge: float = 0.0,
    clients: Any = None,
    row_cap: float | None = None,
) -> np.ndarray:
    """Euclidean norm of the gradient of `argmin`'s objective at `w`, (..., clients)."""
    capped = rows if row_cap is None else rows._capped(row_cap)
    problems = subproblems(capped, capped.gradient, centre, rho, linear, ridge, clients)
    w, norms = np.broadcast_to(w, problems.shape), np.empty(problems.shape[:-1])
    for place, _, problem in problems:
        norms[place] = np.linalg.norm(problem.gradient(w[place]))
    return norms


def by_hand(rows: Rows, client: int, w: np.ndarray, clip: float, norm: int, keep: np.ndarray | None) -> np.ndarray:
    total = np.zeros(rows.dim)
    for place, j in enumerate(range(rows.offsets[client], rows.offsets[client + 1])):
        x, y = rows.X[j], rows.y[j : j + 1]
        margin = w.reshape(rows.loss.outputs, -1) @ x
        slope = rows.loss.slope(margin[None] if rows.loss.outputs > 1 else margin, y).ravel()
        gradient = np.outer(slope, x).ravel()
        size = np.linalg.norm(gradient, norm)
        if keep is None or keep[place]:
            total += gradient * (clip / size if size > clip else 1.0)
    return total * rows.weights[client, 0]


@every_loss
@each_width
@pytest.mark.parametrize("clients", [None, ODD_ORDER])
def test_engines_agree(loss: Loss, clients: list[int] | None, features: int) -> None:
    slow, fast = make(loss, "numpy", features=features), make(loss, "kernel", features=features)
    n = len(SIZES) if clients is None else len(clients)
    asked = int(slow.sizes[clients].sum()) if clients else len(slow.X)
    rng = np.random.default_rng(2)
    samples = [None, rng.random(asked) < 0.3, rng.random((3, asked)) < 0.3]
    for leading in [(n,), (1,), (3, n), (3, 1), (1, n)]:
        w = points(slow, *leading)
        for clip, norm in [(None, 2), (0.8, 2), (0.8, 1)]:
            for keep in samples:
                expected = slow.gradient(w, clients, clip, norm, keep)
                runs = (3,) if keep is not None and keep.ndim == 2 else leading[:-1]
                assert expected.shape == (*runs, n, slow.dim)
                found = fast.gradient(w, clients, clip, norm, keep)
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@every_loss
@each_engine
@pytest.mark.parametrize(("clip", "norm"), [(np.inf, 2), (0.6, 2), (0.6, 1)])
def test_gradient_is_the_sum_of_clipped_gradients(loss: Loss, engine: str, clip: float, norm: int) -> None:
    rows = make(loss, engine, sizes=[4, 1, 9, 600])
    w = points(rows, 4)
    keep = np.random.default_rng(3).random(len(rows.X)) < 0.5
    for sample in (None, keep):
        found = rows.gradient(w, None, None if clip == np.inf else clip, norm, sample)
        for i in range(4):
            mine = None if sample is None else sample[rows.offsets[i] : rows.offsets[i + 1]]
            np.testing.assert_allclose(found[i], by_hand(rows, i, w[i], clip, norm, mine), rtol=1e-11, atol=1e-13)


@every_loss
@pytest.mark.parametrize("norm", [1, 2])
def test_clipped_examples_sum_to_the_gradient(loss: Loss, norm: int) -> None:
    rows = make(loss, sizes=[4, 1, 9], scale="sum")
    w = points(rows, 3)
    for i in range(3):
        examples = rows.clipped_examples(w[i], i, 0.6, norm)
        assert np.all(np.linalg.norm(examples, norm, axis=1) <= 0.6 * (1 + 1e-12))
        expected = rows.gradient(w[[i]], [i], 0.6, norm)[0]
        np.testing.assert_allclose(examples.sum(axis=0), expected, rtol=1e-12, atol=1e-14)


@every_loss
@each_engine
@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_gradient_is_the_derivative_of_value(loss: Loss, engine: str, scale: str) -> None:
    rows = make(loss, engine, sizes=[5, 1, 20], scale=scale)
    w, direction, step = points(rows, 2, 3), points(rows, 2, 3, seed=5), 1e-5
    slope = (rows.value(w + step * direction) - rows.value(w - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.sum(rows.gradient(w) * direction, axis=-1), slope, rtol=1e-5, atol=1e-6)


@every_loss
def test_value_is_the_weighted_sum_of_losses(loss: Loss) -> None:
    for scale in ("mean", "sum"):
        rows = make(loss, scale=scale)
        w = points(rows, 2, len(ODD_ORDER))
        found = rows.value(w, ODD_ORDER)
        for run in range(2):
            for place, i in enumerate(ODD_ORDER):
                own = slice(rows.offsets[i], rows.offsets[i + 1])
                losses = loss.value(margins(rows.X[own], w[run, place], loss.outputs), rows.y[own])
                expected = losses.mean() if scale == "mean" else losses.sum()
                assert found[run, place] == pytest.approx(expected, rel=1e-12)
        np.testing.assert_array_equal(rows.value(w[:, :1]), rows.value(np.repeat(w[:, :1], len(SIZES), axis=1)))


@every_loss
@each_engine
@each_width
def test_a_client_alone_gets_the_same_bits(loss: Loss, engine: str, features: int) -> None:
    rows = make(loss, engine, features=features)
    w = points(rows, 3, len(SIZES))
    keep = np.random.default_rng(4).random((3, len(rows.X))) < 0.5
    together = rows.gradient(w, clip=0.8, keep=keep)
    plain, shared = rows.gradient(w), rows.gradient(w[:, :1])
    values, curvature = rows.value(w), rows.smoothness()
    for i in range(len(SIZES)):
        own = slice(rows.offsets[i], rows.offsets[i + 1])
        alone = Rows(rows.X[own].copy(), rows.y[own], [0, SIZES[i]], loss, engine=engine)
        for asked, who in ((rows, [i]), (alone, None)):
            np.testing.assert_array_equal(asked.gradient(w[:, [i]], who, 0.8, keep=keep[:, own])[:, 0], together[:, i])
            np.testing.assert_array_equal(asked.gradient(w[:, [i]], who)[:, 0], plain[:, i])
            np.testing.assert_array_equal(asked.gradient(w[:, :1], who)[:, 0], shared[:, i])
            np.testing.assert_array_equal(asked.value(w[:, [i]], who)[:, 0], values[:, i])
            assert asked.smoothness(who)[0, 0] == pytest.approx(curvature[i, 0], rel=1e-13)
    for run in range(3):
        np.testing.assert_array_equal(rows.gradient(w[run], clip=0.8, keep=keep[run]), together[run])
    same_point = np.repeat(w[:, :1], len(SIZES), axis=1)
    np.testing.assert_array_equal(rows.gradient(same_point), shared)


@each_engine
@settings(max_examples=25, deadline=None)
@example(sizes=[3, 40, 3, 32, 32, 31, 500, 3], features=7, seed=0)  # few and many rows, neighbours of one size or not
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=12),
    features=st.integers(1, 80),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_client_never_notices_the_others(engine: str, sizes: list[int], features: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((sum(sizes), features)), rng.choice([-1.0, 1.0], sum(sizes))
    rows = Rows(X, y, np.cumsum([0, *sizes]), Logistic(), engine=engine)
    w = rng.standard_normal((len(sizes), features))
    order = rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)]
    np.testing.assert_array_equal(rows.gradient(w[order], order), rows.gradient(w)[order])


@each_engine
@pytest.mark.parametrize("features", [1, 7])
def test_clients_of_many_rows_are_added_up_each_for_itself(engine: str, features: int) -> None:
    sizes = [600, 5000, 3, 600, 1500, 1100]  # up to ten parts, which are added up for several clients in one go
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((sum(sizes), features)), rng.choice([-1.0, 1.0], sum(sizes))
    rows = Rows(X, y, np.cumsum([0, *sizes]), Logistic(), engine=engine)
    w = rng.standard_normal((2, len(sizes), features))
    together = rows.gradient(w)
    for i in range(len(sizes)):
        own = slice(rows.offsets[i], rows.offsets[i + 1])
        alone = Rows(X[own], y[own], [0, sizes[i]], Logistic(), engine=engine)
        np.testing.assert_array_equal(alone.gradient(w[:, [i]])[:, 0], together[:, i])
        terms = Logistic().slope(X[own] @ w[1, i], y[own])[:, None] * X[own]
        exact = [math.fsum(column) / sizes[i] for column in terms.T]
        np.testing.assert_allclose(together[1, i], exact, rtol=0, atol=1e-14)


@each_engine
@pytest.mark.parametrize("features", [3, 70])
def test_values_of_float32_rows_are_computed_in_float64(engine: str, features: int) -> None:
    rng = np.random.default_rng(9)
    X, y = 1e3 * rng.standard_normal((900, features)).astype(np.float32), rng.choice([-1.0, 1.0], 900)
    w = rng.standard_normal((2, 2, features))
    found, expected = (Rows(x, y, [0, 250, 900], Logistic(), engine=engine).value(w) for x in (X, X.astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@each_engine
@pytest.mark.parametrize("loss", [Logistic(), Softmax(4)])
def test_blocks_do_not_show(loss: Loss, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make(loss, engine)
    w = points(whole, 4, len(SIZES))
    expected, value = whole.gradient(w, clip=1.0), whole.value(w)
    monkeypatch.setattr("sottovoce.problems.rows.stored.BLOCK", 100)
    monkeypatch.setattr("sottovoce.problems.rows.oracle.LOSSES_AT_ONCE", 7)
    monkeypatch.setattr("sottovoce.problems.rows.gradients.MARGINS_AT_ONCE", 20)
    monkeypatch.setattr("sottovoce.problems.rows.gradients.SPARE", 100)
    pieces = make(loss, engine)
    np.testing.assert_array_equal(pieces.gradient(w, clip=1.0), expected)
    np.testing.assert_array_equal(pieces.value(w), value)
    back = np.arange(len(SIZES))[::-1]
    np.testing.assert_array_equal(pieces.gradient(w[:, ::-1], back, clip=1.0), expected[:, ::-1])
    np.testing.assert_array_equal(pieces.value(w[:, ::-1], back), value[:, ::-1])


@every_loss
@each_width
@each_engine
def test_threads_do_not_show(loss: Loss, features: int, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a bit, and not by a warning: one of the points is so far away that margins overflow."""
    rows = make(loss, engine, features=features)
    w = points(rows, 2, len(SIZES))
    w[1, 0] = 1e308
    monkeypatch.setattr("sottovoce.problems.rows.stored.BLOCK", 8 * features)
    rows = Rows(rows.X, rows.y, rows.offsets, loss, engine=engine)
    assert engine == "kernel" or len(rows.active(None).blocks) > 2
    monkeypatch.setattr("sottovoce.core.compiling.THREADS_PAY_FROM", 0)
    answers = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(THREADS, "most", threads)
        with np.errstate(all="ignore"):  # the value at that point is not a number
            answers.append((rows.gradient(w, clip=0.8), rows.value(w)))
    for gradient, value in answers[1:]:
        np.testing.assert_array_equal(gradient, answers[0][0])
        np.testing.assert_array_equal(value, answers[0][1])


@pytest.mark.parametrize("features", [20, 200])
def test_quick_margins_are_as_exact_as_float32_and_keep_the_bound(features: int) -> None:
    """Also at points so far away that a margin overflows, or is no number: the answer is finite and bounded."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, features)).astype(np.float32)
    y, clip = np.where(rng.random(100) < 0.5, 1.0, -1.0), 0.6 * features**0.5  # some rows are cut, others not
    rows = Rows(X, y, np.arange(101), Logistic(), "sum", "kernel")
    w = rng.normal(size=(100, features)) / features**0.5
    quick, exact = rows.gradient(w, clip=clip, quick=True), rows.gradient(w, clip=clip)
    assert 0 < np.abs(quick - exact).max() < 1e-5 * clip
    assert (exact == rows.gradient(w, clip=clip)).all()
    huge = w.copy()
    huge[0], huge[1, 0], huge[2, 0] = 1e38, np.inf, np.nan
    bound = Fraction(clip) ** 2
    for point in (w, huge, 1e300 * w):
        answer = rows.gradient(point, clip=clip, quick=True)
        assert all(sum(Fraction(number) ** 2 for number in row) <= bound for row in answer)
    double = Rows(X.astype(np.float64), y, np.arange(101), Logistic(), "sum", "kernel")
    assert (double.gradient(w, clip=clip, quick=True) == double.gradient(w, clip=clip)).all()


@pytest.mark.parametrize(("stored", "exact"), [("float64", 1e-11), ("float32", 1e-5)])
def test_the_kernel_counts_every_number_of_a_row_once_however_long_it_is(stored: str, exact: float) -> None:
    """The last vector of a row begins early: numbers that are in two vectors must not count twice, nor any be left."""
    rng = np.random.default_rng(0)
    for features in (1, 2, 3, 4, 5, 7, 13, 20, 31, 32, 33, 47, 63, 64, 65, 79, 80, 104, 128):
        X, y = rng.normal(size=(9, features)).astype(stored), np.where(rng.random(9) < 0.5, 1.0, -1.0)
        by_kernel, by_numpy = (Rows(X, y, [0, 1, 9], Logistic(), "sum", engine) for engine in ("kernel", "numpy"))
        w = rng.normal(size=(2, features))
        answer, expected = by_kernel.gradient(w, clip=0.9, quick=True), by_numpy.gradient(w, clip=0.9)
        np.testing.assert_allclose(answer, expected, rtol=exact, atol=exact)


@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_the_rows_of_a_batch_are_clipped_as_all_rows_are(stored: str) -> None:
    """The kernel takes them one by one, not in blocks."""
    rng = np.random.default_rng(0)
    X, y, keep = (
        rng.normal(size=(40, 20)).astype(stored),
        np.where(rng.random(40) < 0.5, 1.0, -1.0),
        rng.random(40) < 0.4,
    )
    by_kernel, by_numpy = (Rows(X, y, [0, 10, 40], Logistic(), "sum", engine) for engine in ("kernel", "numpy"))
    w, exact = rng.normal(size=(2, 20)), 1e-11 if stored == "float64" else 1e-5
    for clip in (0.3, None):
        expected = by_numpy.gradient(w, clip=clip, keep=keep)
        answer = by_kernel.gradient(w, clip=clip, keep=keep, quick=True)
        np.testing.assert_allclose(answer, expected, rtol=exact, atol=exact)
    alone = Rows(X, y, range(41), Logistic(), "sum", "kernel")
    each = alone.gradient(np.repeat(w, [10, 30], axis=0), clip=0.3, keep=np.ones(40, bool), quick=True)
    assert 0.29 < np.linalg.norm(each, axis=1).max() <= 0.3


def largest_moves(norm: int, blank: bool) -> Fraction:
    """How far one of a few float32 rows moves their quick sum at most, in clip norms (norm 2: the square of it).

    Rows point the same way or against it, and are cut at the clip norm or a little below: rounding then counts most.
    """
    rng, clip, worst = np.random.default_rng(0), 0.7, Fraction()
    for features in (1, 2, 3):
        sizes = rng.integers(1, 9, 500)  # each client is a trial of its own
        offsets, clients = np.concatenate([[0], np.cumsum(sizes)]), np.repeat(np.arange(500), sizes)
        X = rng.normal(size=(500, features))[clients] * rng.choice([-1.0, 1.0], (len(clients), 1))
        X = (X * rng.uniform(1.0, 1.0 + 2.0**-20, X.shape)).astype(np.float32)
        y = rng.choice([-1e9, 1e9, 0.0], len(X), p=[0.45, 0.45, 0.1]) * rng.uniform(0.0, 1.0, len(X)).round()
        other, other_y, places = X.copy(), y.copy(), offsets[:-1] + np.arange(500) % sizes
        if blank:
            other[places] = 0.0
        else:
            other_y[places] = -y[places]
        sums = [
            Rows(table, labels, offsets, Squared(), "sum", "kernel").gradient(
                np.zeros((500, features)), clip=clip, norm=norm, quick=True
            )
            for table, labels in ((X, y), (other, other_y))
        ]
        for one, another in zip(*(part.tolist() for part in sums), strict=True):
            moved = [Fraction(a) - Fraction(b) for a, b in zip(one, another, strict=True)]
            size = sum(map(abs, moved)) if norm == 1 else sum(number**2 for number in moved)
            worst = max(worst, size / Fraction(clip) ** norm)
    return worst


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("blank", [False, True])
def test_no_row_moves_a_sum_of_float32_terms_further_than_stated(
    norm: int, blank: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four terms are summed in float32, and each change of one moves the rounding of the other three."""
    stated = (1 if blank else 2) ** norm  # few rows: nothing is added for rounding in float64
    assert stated * (1 - Fraction(1, 2**14)) < largest_moves(norm, blank) <= stated
    monkeypatch.setattr("sottovoce.core.clipping.caps_in_float32", lambda caps: caps)
    assert largest_moves(norm, blank) > stated  # so the room that caps leave is needed


@pytest.mark.parametrize("norm", [1, 2])
def test_a_thread_that_takes_denormal_numbers_for_0_does_not_loosen_a_clip(
    norm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms of rows may be computed in such a thread, and their sums in another one."""
    X = np.full((2, 128), 2.0**-127, np.float32)
    X[:, 0] = 2.0**-126
    flushed = np.where(np.abs(X) < np.finfo(np.float32).tiny, 0.0, X.astype(np.float64))
    monkeypatch.setattr(Rows, "norms", lambda *_: iter([np.linalg.norm(flushed, norm, axis=1)]))
    rows = Rows(X, [1e9, -1e9], [0, 1, 2], Squared(), "sum", "kernel")
    for quick in (True, False):
        answer = rows.gradient(np.zeros((1, 128)), clip=0.7, norm=norm, quick=quick)
        assert all(exact_size(row, norm) <= Fraction(0.7) ** norm for row in answer)


@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_several_runs_sum_the_same_rows_by_fours_as_one(stored: str) -> None:
    """They take as many rows at a time as stay in the nearest cache, so a client has several such blocks."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(403, 20)).astype(stored), np.where(rng.random(403) < 0.5, 1.0, -1.0)
    rows, w = Rows(X, y, [0, 403], Logistic(), engine="kernel"), rng.normal(size=(3, 1, 20))
    together = rows.gradient(w, clip=0.8, quick=True)
    for run in range(3):
        np.testing.assert_array_equal(together[run], rows.gradient(w[run], clip=0.8, quick=True))


def test_clips_too_small_or_large_for_float32_are_kept_in_float64() -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32), np.ones(8)
    rows = Rows(X, y, [0, 8], Logistic(), "sum", "kernel")
    for clip in (2.0**-61, 2.0**61):
        quick, exact = (rows.gradient(np.ones((1, 5)), clip=clip, quick=quick) for quick in (True, False))
        np.testing.assert_array_equal(quick, exact)


@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_the_slope_of_a_row_is_the_same_bits_wherever_it_stands(stored: str) -> None:
    """A record that is left out moves the others to other places of a block: their slopes must not change."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(50, 40)), np.eye(50)]).astype(stored)  # a column for each row shows its slope
    w = np.hstack([rng.normal(size=(1, 40)), np.zeros((1, 50))])

    def slopes(first: int, offsets: list[int]) -> np.ndarray:
        rows = Rows(X[first:], np.ones(50 - first), offsets, Logistic(), "sum", "kernel")
        return rows.gradient(w, quick=True)[:, 40 + first :].sum(axis=0)

    alone = slopes(0, list(range(51)))
    for first in (0, 1, 2, 17):
        np.testing.assert_array_equal(slopes(first, [0, 50 - first]), alone[first:])


@pytest.mark.parametrize("stored", ["float64", "float32"])
def test_how_many_rows_a_pass_takes_together_changes_no_bit(monkeypatch: pytest.MonkeyPatch, stored: str) -> None:
    """Rows of a large client are taken together, and so are small clients: no answer may depend on it."""
    from sottovoce.problems import kernels
    from sottovoce.problems.rows import gradients

    features, rng = 70, np.random.default_rng(0)
    rows = Rows(
        rng.normal(size=(900, features)).astype(stored), np.where(rng.random(900) < 0.5, 1.0, -1.0), [0, 1, 40, 900],
        Logistic(), "mean", "kernel",
    )  # fmt: skip
    w = rng.normal(size=(2, 3, features))

    def answers() -> list[np.ndarray]:
        gradients_of = [rows.gradient(w[:1] if quick else w, clip=0.9, quick=quick) for quick in (True, False)]
        return [*gradients_of, rows.value(w)]

    found = []
    for together in (4, 16, 256):
        monkeypatch.setattr(kernels, "rows_at_once", lambda stored, width, together=together: together)
        for name in ("_loop", "_margins_loop"):  # which keep what they were told first
            monkeypatch.setattr(gradients, name, getattr(gradients, name).__wrapped__)
        found.append(answers())
        assert gradients._loop(stored, features, stored, 0, False)[1] == together
        monkeypatch.undo()
    for others in found[1:]:
        for other, expected in zip(others, found[0], strict=True):
            np.testing.assert_array_equal(other, expected)


def test_the_exponential_is_the_exponential() -> None:
    from sottovoce.problems.slopes import _exp

    x = np.concatenate([np.linspace(-708, 709, 5001), np.random.default_rng(0).standard_normal(5000)])
    found = np.array([_exp(one) for one in x])
    np.testing.assert_allclose(found, np.exp(x), rtol=5e-16)
    assert _exp(1e308) == _exp(709.0)
    assert _exp(-np.inf) == _exp(-708.0)
    assert np.isnan(_exp(np.nan))


def test_the_exponential_of_float32_numbers_is_right_to_their_last_digits() -> None:
    from sottovoce.problems.slopes import _exp_in_float32

    x = np.random.default_rng(0).uniform(-87.0, 88.0, 4000).astype(np.float32)
    found = np.array([_exp_in_float32(one) for one in x])
    assert (found == found.astype(np.float32)).all()
    assert np.abs(found / np.exp(x.astype(np.float64)) - 1.0).max() < 2.0**-22
    assert _exp_in_float32(np.float32(np.inf)) == _exp_in_float32(np.float32(88.0)) < np.inf
    assert _exp_in_float32(np.float32(-np.inf)) == _exp_in_float32(np.float32(-87.0)) > 0.0
    assert np.isnan(_exp_in_float32(np.float32(np.nan)))


def test_plan_covers_every_row_once() -> None:
    from sottovoce.problems.kernels import ROWS_PER_CHUNK, TASKS, plan

    sizes = np.array([1, 5000, 2, 512, 513, *[3] * 300])
    starts = np.cumsum(sizes) - sizes + 10
    chunks, tasks, folds, places = plan(starts, sizes)
    covered = np.concatenate([np.arange(low, high) for low, high in chunks[:, :2].tolist()])
    np.testing.assert_array_equal(covered, 10 + np.arange(sizes.sum()))
    np.testing.assert_array_equal(chunks[:, 3], chunks[:, 0] - 10)
    assert np.max(chunks[:, 1] - chunks[:, 0]) <= ROWS_PER_CHUNK
    assert sorted(chunks[:, 4]) == list(range(places))
    assert tasks[0] == 0
    assert tasks[-1] == len(chunks)
    assert len(tasks) == TASKS + 1
    assert np.all(np.diff(tasks) >= 0)
    assert [(clients.tolist(), later.shape[1] + 1) for clients, later in folds] == [([4], 2), ([1], 10)]


@every_loss
@each_engine
@pytest.mark.parametrize("norm", [1, 2])
@given(w=arrays(np.float64, (2, 4 * 3), elements=st.floats(-1e300, 1e300)))
@settings(max_examples=20, deadline=None)
def test_clip_bounds_the_answer_wherever_the_point_is(loss: Loss, engine: str, norm: int, w: np.ndarray) -> None:
    """Margins may overflow; a bound that fails there is no bound."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((5, 3)) * np.array([1.0, 1e-200, 1e3, 1e150, 1.0])[:, None]
    y = labels(loss, 5, rng)
    if not loss.classification:
        y[1] = 1e300  # a huge slope times a tiny row is still a huge gradient
    rows = Rows(X, y, [0, 1, 5], loss, "sum", engine)
    gradient = rows.gradient(w[:, : rows.dim], clip=0.5, norm=norm)
    size = np.linalg.norm(gradient, norm, axis=-1)
    assert np.all(size <= 0.5 * rows.sizes * (1 + 1e-12))


@each_engine
def test_inputs_are_left_alone_and_may_be_read_only(engine: str) -> None:
    rng = np.random.default_rng(7)
    X, y, offsets = rng.standard_normal((9, 3)), rng.choice([-1.0, 1.0], 9), np.array([0, 4, 9])
    w, keep, clients = rng.standard_normal((2, 2, 3)), rng.random((2, 9)) < 0.5, np.array([0, 1])
    given_arrays = [X, y, offsets, w, keep, clients]
    copies = [array.copy() for array in given_arrays]
    for array in given_arrays:
        array.flags.writeable = False
    rows = Rows(X, y, offsets, Logistic(), engine=engine)
    assert np.shares_memory(rows.X, X)
    rows.gradient(w, clients, 1.0, 1, keep)
    rows.value(w, clients)
    rows.argmin(w, 1.0, clients=clients, row_cap=1.0)
    for array, copy in zip(given_arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    by_columns = Rows(np.asfortranarray(X), y, offsets, Logistic(), engine=engine)
    np.testing.assert_array_equal(by_columns.gradient(w), rows.gradient(w))


@each_engine
def test_a_changed_list_of_clients_is_noticed(engine: str) -> None:
    rows = make(Squared(), engine)
    w, who = points(rows, 1), np.array([2, 5])
    rows.gradient(w, who)
    who[0] = 3
    np.testing.assert_array_equal(rows.gradient(w, who), rows.gradient(w)[[3, 5]])


@every_loss
@each_engine
def test_nobody_asked(loss: Loss, engine: str) -> None:
    rows = make(loss, engine)
    assert rows.gradient(points(rows, 1), []).shape == (0, rows.dim)
    assert rows.gradient(points(rows, 3, 1), [], keep=np.zeros(0, bool)).shape == (3, 0, rows.dim)
    assert rows.value(points(rows, 3, 1), []).shape == (3, 0)
    assert rows.argmin(points(rows, 1), 1.0, clients=[]).shape == (0, rows.dim)


def test_engine_is_chosen_by_the_size_of_the_data_alone() -> None:
    loss, y = Squared(), np.zeros(2000)
    assert Rows(np.zeros((2000, 999)), y, [0, 2000], loss).engine == "numpy"
    assert Rows(np.zeros((2000, 1000)), y, [0, 2000], loss).engine == "kernel"
    assert Rows(np.zeros((2000, 500)), y, [0, 2000], Softmax(2)).engine == "kernel"


def test_small_problems_never_load_the_compiler() -> None:
    code = (
        "import numpy as np, sys\n"
        "from sottovoce.problems.rows import Rows\n"
        "from sottovoce.problems.losses import Squared\n"
        "assert 'scipy' not in sys.modules\n"
        "Rows(np.eye(3), np.ones(3), [0, 3], Squared()).gradient(np.zeros((1, 3)))\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@every_loss
def test_curvature_constants(loss: Loss) -> None:
    rows = make(loss, sizes=[3, 20, 1, 3, 7, 50], scale="mean")
    gram = [rows.X[a:b].T @ rows.X[a:b] / (b - a) for a, b in zip(rows.offsets, rows.offsets[1:], strict=False)]
    eigenvalues = np.array([np.sort(np.linalg.eigvals(g).real) for g in gram])
    np.testing.assert_allclose(rows.smoothness()[:, 0], loss.curvature * eigenvalues[:, -1], rtol=1e-10)
    strong = loss.strong * eigenvalues[:, 0]
    np.testing.assert_allclose(rows.strong_convexity()[:, 0], strong, rtol=1e-8, atol=1e-13)
    assert np.all(rows.strong_convexity() >= 0.0)
    np.testing.assert_array_equal(make(loss, sizes=[3, 20, 1, 3, 7, 50]).smoothness([4, 1]), rows.smoothness([4, 1]))
    w, step = points(rows, 6, 6), 0.1 * points(rows, 6, 6, seed=12)
    change = np.linalg.norm(rows.gradient(w + step) - rows.gradient(w), axis=-1)
    assert np.all(change <= rows.smoothness()[:, 0] * np.linalg.norm(step, axis=-1) * (1 + 1e-9))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(2), Squared()], ids=lambda loss: loss.name)
def test_smoothness_is_attained(loss: Loss) -> None:
    rows = make(loss, sizes=[3, 20])  # at w = 0, where these losses bend most
    for i in range(2):
        top = np.linalg.svd(rows.X[rows.offsets[i] : rows.offsets[i + 1]])[2][0]
        step = 1e-4 * (top if loss.outputs == 1 else np.concatenate([top, -top]) / np.sqrt(2))
        change = rows.gradient(step[None], [i]) - rows.gradient(-step[None], [i])
        assert np.linalg.norm(change) == pytest.approx(2e-4 * rows.smoothness([i])[0, 0], rel=1e-6)


def test_argmin_is_ridge_regression() -> None:
    rng = np.random.default_rng(8)
    for scale in ("mean", "sum"):
        rows = make(Squared(), sizes=[3, 40, 1], scale=scale)
        centre, linear, rho, ridge = points(rows, 2, 3), points(rows, 3, seed=9), rng.uniform(0.1, 2.0, (3, 1)), 0.3
        found = rows.argmin(centre, rho, linear, ridge)
        for i in range(3):
            X, y = rows.X[rows.offsets[i] : rows.offsets[i + 1]], rows.y[rows.offsets[i] : rows.offsets[i + 1]]
            weight = rows.weights[i, 0]
            system = weight * X.T @ X + (ridge + rho[i]) * np.eye(FEATURES)
            for run in range(2):
                right = weight * X.T @ y - linear[i] + rho[i] * centre[run, i]
                np.testing.assert_allclose(found[run, i], np.linalg.solve(system, right), rtol=1e-9, atol=1e-11)
        assert np.max(certificate(rows, found, centre, rho, linear, ridge)) <= 1e-9


def test_argmin_needs_no_pull_where_the_rows_suffice() -> None:
    rows = make(Squared(), sizes=[3, 40])
    X, y = rows.X[3:], rows.y[3:]
    found = rows.argmin(np.zeros((1, rows.dim)), 0.0, clients=[1])
    np.testing.assert_allclose(found[0], np.linalg.lstsq(X, y)[0], rtol=1e-9)
    with pytest.raises(InvalidInput, match="ridge \\+ rho must be > 0"):
        rows.argmin(np.zeros((1, rows.dim)), 0.0, clients=[0])


def test_argmin_is_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    rows = make(Logistic(), sizes=[5, 200], scale="sum")
    X, y = rows.X[5:], rows.y[5:]
    model = LogisticRegression(C=1 / 0.7, fit_intercept=False, tol=1e-12, solver="newton-cholesky").fit(X, y)
    found = rows.argmin(np.zeros((1, rows.dim)), 0.5, ridge=0.2, clients=[1])
    np.testing.assert_allclose(found[0], model.coef_[0], atol=1e-8)


def test_argmin_is_multinomial_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    rows = make(Softmax(4), sizes=[5, 200], scale="sum")
    X, y = rows.X[5:], rows.y[5:]
    model = LogisticRegression(C=1 / 0.7, fit_intercept=False, tol=1e-12, solver="newton-cholesky").fit(X, y)
    found = rows.argmin(np.zeros((1, rows.dim)), 0.7, clients=[1])
    np.testing.assert_allclose(found[0], model.coef_.ravel(), atol=1e-8)


@every_loss
@pytest.mark.parametrize("pull", [1e-4, 1.0])
def test_argmin_meets_its_certificate(loss: Loss, pull: float) -> None:
    rows = make(loss, sizes=[4, 30, 1, 600])
    centre, linear = points(rows, 2, 1), 0.1 * points(rows, 3, seed=10)
    clients, ridge = [3, 0, 2], 0.5 * pull
    found = rows.argmin(centre, pull, linear, ridge, clients, tol=1e-10)
    assert found.shape == (2, 3, rows.dim)
    # the same gradient from the other code path
    gradient = rows.gradient(found, clients) + linear + ridge * found + pull * (found - centre)
    assert np.max(np.linalg.norm(gradient, axis=-1)) <= 1.1e-10
    assert np.max(certificate(rows, found, centre, pull, linear, ridge, clients)) <= 1e-10
    elsewhere = rows.gradient(centre, clients) + linear + ridge * centre
    norms = certificate(rows, centre, centre, pull, linear, ridge, clients)
    np.testing.assert_allclose(norms, np.linalg.norm(elsewhere, axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(rows.argmin(centre[1], pull, linear[[1]], ridge, [0], tol=1e-10)[0], found[1, 1])
    again = rows.argmin(centre, pull, linear, ridge, clients, start=found, tol=1e-9)
    np.testing.assert_array_equal(again, found)


def test_row_cap_scales_long_rows_down() -> None:
    rows = make(Logistic(), sizes=[6, 50])
    norms = np.linalg.norm(rows.X, axis=1, keepdims=True)
    capped = Rows(rows.X * np.minimum(1.0, 0.5 / np.maximum(norms, 1e-300)), rows.y, rows.offsets, rows.loss)
    centre = points(rows, 2)
    found = rows.argmin(centre, 0.1, row_cap=0.5)
    np.testing.assert_allclose(found, capped.argmin(centre, 0.1), atol=1e-8)
    assert np.max(certificate(rows, found, centre, 0.1, row_cap=0.5)) <= 1e-9
    assert np.min(certificate(rows, found, centre, 0.1)) > 1e-4


def test_arg_mins_that_are_not_stiff_are_found_for_all_at_once() -> None:
    rows = make(Logistic())
    start = points(rows, rows.n_clients)
    for pull, at_once in ((10.0, True), (1e-4, False)):
        problems = subproblems(rows, rows.gradient, start, pull, 0.0, 0.0, None)
        found, arrived = problems.descend(start, 1e-10)
        assert arrived.all() == at_once == arrived.any()
        np.testing.assert_array_less(certificate(rows, found, start, pull)[arrived], 1e-10)
        answer = rows.argmin(start, pull, tol=1e-10)
        assert np.max(certificate(rows, answer, start, pull)) <= 1e-10


def test_argmin_says_when_it_fails() -> None:
    rows = make(Logistic(), sizes=[6, 50])
    with pytest.raises(SottovoceError, match=r"client 1 stopped at a gradient longer than tol = .* one scale"):
        rows.argmin(points(rows, 1), 1e12, clients=[1], tol=1e-15)
    with pytest.raises(InvalidInput, match=r"must be finite.*diverged"):
        rows.argmin(np.full((1, rows.dim), np.nan), 1.0)
    with pytest.raises(InvalidInput, match="rho must be finite and >= 0"):
        rows.argmin(points(rows, 1), -1.0)
    with pytest.raises(InvalidInput, match="broadcast"):
        rows.argmin(points(rows, 3), 1.0)


def test_margins_of_every_shape() -> None:
    rng = np.random.default_rng(11)
    X = rng.standard_normal((6, 3))
    w = rng.standard_normal((2, 5, 12))
    several = margins(X, w, 4)
    assert several.shape == (2, 5, 6, 4)
    np.testing.assert_allclose(several[1, 2], X @ w[1, 2].reshape(4, 3).T, rtol=1e-14)
    np.testing.assert_allclose(margins(X, w[0, 0, :3], 1), X @ w[0, 0, :3], rtol=1e-14)
    with pytest.raises(InvalidInput, match="margins: w must end"):
        margins(X, w, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 2, 2, 4]}, "every client must have at least one row, and client 1 has none"),
        ({"offsets": [0, 3]}, "offsets must go from 0 to the number of rows, 4"),
        ({"offsets": [0.0, 4.0]}, "whole numbers"),
        ({"y": np.ones(3)}, "a label for each of 4 rows, got 3"),
        ({"X": np.full((4, 2), np.nan)}, "X must be finite"),
        ({"X": np.ones((4, 0))}, "at least one column"),
        ({"engine": "kernl"}, "Did you mean 'kernel'"),
        ({"scale": "total"}, "unknown scale 'total'"),
    ],
)
def test_bad_data_is_refused(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"X": np.ones((4, 2)), "y": np.ones(4), "offsets": [0, 1, 4], "loss": Logistic()}
    with pytest.raises(InvalidInput, match=message):
        Rows(**(good | change))


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"w": np.zeros(2)}, "w must have shape \\(\\[runs,\\] 2 or 1, 2\\)"),
        ({"w": np.zeros((3, 2))}, "w must have shape"),
        ({"w": np.zeros((1, 1, 1, 2))}, "w must have shape"),
        ({"clients": [0, 2]}, "numbers 0..1, got \\[2\\]"),
        ({"clients": [-1]}, "numbers 0..1"),
        ({"clients": [True, False]}, "client numbers"),
        ({"clip": 0.0}, "clip must be > 0"),
        ({"clip": 1.0, "norm": 3}, "norm must be 1 or 2"),
        ({"keep": np.ones(4)}, "keep must be booleans"),
        ({"keep": np.ones(3, bool)}, "keep must have shape \\(\\[runs,\\] 4\\)"),
        ({"w": np.zeros((2, 1, 2)), "keep": np.ones((3, 4), bool)}, "keep must have shape"),
    ],
)
def test_bad_questions_are_refused(question: dict[str, Any], message: str) -> None:
    rows = Rows(np.ones((4, 2)), np.ones(4), [0, 1, 4], Logistic())
    with pytest.raises(InvalidInput, match=message):
        rows.gradient(**{"w": np.zeros((1, 2)), **question})


def test_data_stay_out_of_print() -> None:
    assert repr(make(Logistic())) == "Rows(8 clients, 2362 x 7, Logistic(), engine='numpy')"


@each_engine
@each_width
def test_clip_holds_where_a_reordered_product_overflows(engine: str, features: int) -> None:
    X = np.zeros((1, features))
    X[0, 0] = 0.1
    rows = Rows(X, np.zeros(1), [0, 1], Squared(), engine=engine)
    w = np.full((1, features), 1.7e308)
    assert rows.gradient(w, clip=100.0)[0, 0] == pytest.approx(100.0)


# ------------------------------------------------------------------------------ bounds of the floating-point result

BAD_POINTS = [0.0, 1.0, -1e-300, 1e150, 1.7e308, np.nan, np.inf]


def bad_rows(stored: str, features: int) -> np.ndarray:
    """Denormal, huge, mixed and nearly cancelling rows, and many whose norm a rounding error decides about."""
    rng = np.random.default_rng(0)
    largest, smallest = float(np.finfo(stored).max), float(np.finfo(stored).smallest_subnormal)
    plain = rng.normal(size=(40, features)) * 10.0 ** rng.uniform(-6, 6, (40, 1))
    kinds = [np.zeros(features), np.full(features, smallest), np.full(features, 0.9 * largest)]
    kinds += [np.where(np.arange(features) == 0, 0.9 * largest, smallest), np.where(np.arange(features) % 2, 1.0, -1.0)]
    return np.concatenate([plain, kinds]).astype(stored)


@every_loss
@each_engine
@each_width
@pytest.mark.parametrize("stored", ["float64", "float32"])
@pytest.mark.parametrize("norm", [1, 2])
def test_no_row_passes_the_clip_by_a_rounding_error(
    loss: Loss, engine: str, features: int, stored: str, norm: int
) -> None:
    """With a client for each row, so that what is returned is a single clipped gradient, in exact arithmetic."""
    X = bad_rows(stored, features)
    rng = np.random.default_rng(1)
    y = labels(loss, len(X), rng)
    if not loss.classification:
        y[::3] *= 1e300
    rows = Rows(X, y, np.arange(len(X) + 1), loss, "sum", engine)
    for clip in (0.7, 1e-100):
        for size in BAD_POINTS:
            with np.errstate(over="ignore", invalid="ignore"):
                w = size * rng.normal(size=(1, rows.dim))
            gradient = rows.gradient(w, clip=clip, norm=norm)
            bound = Fraction(clip) if norm == 1 else Fraction(clip) ** 2
            assert all(exact_size(row, norm) <= bound for row in gradient)
            if size == 1.0:
                examples = np.concatenate([rows.clipped_examples(w[0], i, clip, norm) for i in range(len(X))])
                assert all(exact_size(row, norm) <= bound for row in examples)
                assert np.linalg.norm(examples[:40], norm, axis=1).max() >= clip * (1 - 1e-11)  # and nearly reaches it


@pytest.mark.parametrize(("engine", "size"), [("numpy", 20_000), ("kernel", 400_000)])
def test_neighbours_sums_are_no_further_apart_than_stated_however_they_are_rounded(engine: str, size: int) -> None:
    """One record turned into its opposite, in long sums that cancel: it moves the rounding of all that follow."""
    clip, worst = 0.7, Fraction()

    def total(y: np.ndarray, label: float) -> tuple[Fraction, Rows]:
        y[1000] = label  # not in the kernel's first chunk, which is added last
        rows = Rows(np.eye(1, 2).repeat(size, axis=0), y, [0, size], Squared(), "sum", engine)
        return Fraction(rows.gradient(np.zeros((1, 2)), clip=clip)[0, 0]), rows

    signs = np.where(np.arange(size) < size // 2, 1.0, -1.0)
    for seed in range(10):
        y = np.random.default_rng(seed).uniform(0.0, 1.0, size) * signs
        worst = max(worst, abs(total(y, 1e9)[0] - total(y, -1e9)[0]))
    rows = total(signs, 1e9)[1]
    assert worst > 2 * clip  # so that without a term for rounding the sensitivity would be too small
    assert worst <= 2 * clip * float(sensitivity.sum_rounding(rows.sizes[:, None], rows.roundings, 2)[0, 0])
