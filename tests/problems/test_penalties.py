import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from sottovoce.core.check import InvalidInput
from sottovoce.problems.penalties import L1, L2, PENALTIES, Ball, Box, ElasticNet, NoPenalty, Penalty, shrink

FINITE = [NoPenalty(), L1(0.3), L2(0.7), ElasticNet(0.2, 1.5)]
SETS = [Box(-0.5, 2.0), Box(0.0, math.inf), Ball(1.3)]
ALL = [*FINITE, *SETS]
every = pytest.mark.parametrize("penalty", ALL, ids=str)
every_finite = pytest.mark.parametrize("penalty", FINITE, ids=str)
every_set = pytest.mark.parametrize("penalty", SETS, ids=str)
STEPS = (1e-6, 1e-2, 1.0, 1e2, 1e6)


def inside(penalty: Penalty, rng, *shape: int) -> np.ndarray:
    w = rng.standard_normal(shape)
    if isinstance(penalty, Box):
        return penalty.low + rng.random(shape) * (min(penalty.high, 5.0) - penalty.low)
    if isinstance(penalty, Ball):
        return w * penalty.radius * rng.random((*shape[:-1], 1)) / np.linalg.norm(w, axis=-1, keepdims=True)
    return w


# the contract


def test_names_and_table():
    names = ["none", "l1", "l2", "elastic-net", "box", "ball"]
    assert list(PENALTIES) == names
    assert [PENALTIES[name].name for name in names] == names


@pytest.mark.parametrize(
    ("penalty", "smooth", "finite", "strong", "curvature", "bound"),
    [
        (NoPenalty(), True, True, 0.0, 0.0, 0.0),
        (L1(0.3), False, True, 0.0, math.inf, 0.9),
        (L2(0.7), True, True, 0.7, 0.7, math.inf),
        (ElasticNet(0.2, 1.5), False, True, 1.5, math.inf, math.inf),
        (Box(-1, 1), False, False, 0.0, math.inf, 0.0),
        (Ball(2.0), False, False, 0.0, math.inf, 0.0),
    ],
    ids=str,
)
def test_stated_constants(penalty, smooth, finite, strong, curvature, bound):
    assert penalty.smooth is smooth
    assert penalty.finite is finite
    assert penalty.strong == strong
    assert penalty.curvature == curvature
    assert penalty.subgradient_bound(9) == pytest.approx(bound)


@every
def test_frozen_and_comparable(penalty):
    assert penalty == dataclasses.replace(penalty)
    assert hash(penalty) == hash(dataclasses.replace(penalty))
    with pytest.raises(dataclasses.FrozenInstanceError):
        penalty.lam = 3.0
    assert L1(1.0) != L1(2.0)


# values and subgradients


def test_values():
    w = np.array([3.0, -4.0])
    assert NoPenalty().value(w) == 0.0
    assert L1(0.5).value(w) == 3.5
    assert L2(0.5).value(w) == 6.25
    assert ElasticNet(0.5, 2.0).value(w) == 28.5
    assert [Box(-4, 3).value(w), Box(-3.9, 3).value(w), Box(-4, 2.9).value(w)] == [0.0, math.inf, math.inf]
    assert [Ball(5.0).value(w), Ball(4.999).value(w)] == [0.0, math.inf]


@every_finite
def test_subgradient_is_the_derivative_off_the_kinks(penalty):
    rng = np.random.default_rng(1)
    w = rng.standard_normal(6)
    assert np.abs(w).min() > 1e-3
    numeric = [(penalty.value(w + e) - penalty.value(w - e)) / 2e-6 for e in 1e-6 * np.eye(6)]
    assert_allclose(penalty.subgradient(w), numeric, atol=1e-8)


@every
def test_subgradient_inequality_with_strong_convexity(penalty):
    rng = np.random.default_rng(2)
    w, other = inside(penalty, rng, 300, 5), inside(penalty, rng, 300, 5)
    if penalty.finite:
        w[::2, :2] = 0.0  # at the kinks as well
    linear = penalty.value(w) + np.sum(penalty.subgradient(w) * (other - w), axis=-1)
    gap = penalty.value(other) - linear
    quadratic = 0.5 * np.square(other - w).sum(axis=-1)
    assert (gap >= penalty.strong * quadratic - 1e-12).all()
    if penalty.smooth:
        assert (gap <= penalty.curvature * quadratic + 1e-12).all()


@every_finite
def test_strong_modulus_is_attained(penalty):
    w, other = np.array([1.0, 2.0]), np.array([1.5, 3.0])  # in one orthant the l1 part is linear
    gap = penalty.value(other) - penalty.value(w) - penalty.subgradient(w) @ (other - w)
    assert gap == pytest.approx(0.5 * penalty.strong * np.sum((other - w) ** 2), abs=1e-14)


def test_sign_is_zero_at_zero():
    assert_array_equal(L1(2.0).subgradient(np.array([-1.0, 0.0, 3.0])), [-2.0, 0.0, 2.0])
    assert_array_equal(ElasticNet(2.0, 1.0).subgradient(np.array([-1.0, 0.0, 3.0])), [-3.0, 0.0, 5.0])


@pytest.mark.parametrize("dim", [1, 4, 100])
def test_l1_bound_is_never_exceeded_and_attained(dim):
    rng = np.random.default_rng(3)
    sizes = np.linalg.norm(L1(0.3).subgradient(rng.standard_normal((50, dim))), axis=-1)
    assert sizes.max() == pytest.approx(L1(0.3).subgradient_bound(dim), rel=1e-14)


@every_set
def test_a_set_has_zero_subgradient_inside_and_none_outside(penalty):
    rng = np.random.default_rng(4)
    w = inside(penalty, rng, 4, 3)
    assert_array_equal(penalty.subgradient(w), np.zeros((4, 3)))
    w[1] = -7.0
    assert_array_equal(penalty.value(w), [0.0, math.inf, 0.0, 0.0])
    with pytest.raises(InvalidInput, match=r"only inside the set, got 1 vectors outside it\. Project them with `prox`"):
        penalty.subgradient(w)


# prox


@pytest.mark.parametrize("penalty", [*FINITE, Box(-0.5, 2.0)], ids=str)
@pytest.mark.parametrize("step", [0.1, 1.0, 10.0])
def test_separable_prox_against_minimize_scalar(penalty, step):
    rng = np.random.default_rng(5)
    v = 3 * rng.standard_normal(20)
    bounds = (penalty.low, penalty.high) if isinstance(penalty, Box) else (-12.0, 12.0)
    for vi, wi in zip(v, penalty.prox(v, step), strict=True):
        found: Any = optimize.minimize_scalar(
            lambda w, vi=vi: float(penalty.value(np.array([w]))) + (w - vi) ** 2 / (2 * step),
            bounds=bounds,
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert wi == pytest.approx(found.x, abs=2e-5)


def test_ball_prox_against_a_constrained_minimiser():
    rng = np.random.default_rng(6)
    for v in 2 * rng.standard_normal((6, 4)):
        found = optimize.minimize(
            lambda w, v=v: np.sum((w - v) ** 2),
            np.zeros(4),
            constraints={"type": "ineq", "fun": lambda w: 1.3**2 - np.sum(w**2)},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        assert_allclose(Ball(1.3).prox(v, 0.7), found.x, atol=1e-5)


def test_elastic_net_prox_is_sklearns_fit_on_the_identity():
    from sklearn.linear_model import ElasticNet as Reference

    v = 2 * np.random.default_rng(7).standard_normal(10)
    fit = Reference(alpha=0.05, l1_ratio=0.3, fit_intercept=False, tol=1e-12).fit(np.eye(10), v)
    ours = ElasticNet(l1=10 * 0.05 * 0.3, l2=10 * 0.05 * 0.7).prox(v, 1.0)
    assert_allclose(ours, fit.coef_, atol=1e-10)
    assert_array_equal(ours == 0.0, fit.coef_ == 0.0)


@given(st.floats(-1e6, 1e6), st.floats(-6, 6), st.floats(-3, 3), st.floats(-3, 3))
def test_residual_lies_in_the_subdifferential(v, log_step, log_l1, log_l2):
    # v - w must be step * (l1 [sign of w, or anything in [-1, 1] at 0] + l2 w)
    step, l1, l2 = 10.0**log_step, 10.0**log_l1, 10.0**log_l2
    for penalty, a, b in ((L1(l1), l1, 0.0), (L2(l2), 0.0, l2), (ElasticNet(l1, l2), l1, l2), (NoPenalty(), 0.0, 0.0)):
        w = float(penalty.prox(np.array([v]), step)[0])
        size = abs(v) + step * (a + b * abs(w)) + 1e-280
        if w == 0.0:
            assert abs(v) <= step * a + 1e-14 * size
        else:
            assert abs(v - w - step * (a * math.copysign(1.0, w) + b * w)) <= 1e-14 * size


def test_l1_prox_gives_exact_zeros():
    assert_array_equal(L1(1.0).prox(np.array([-0.5, 0.5, 0.49, 2.0, -2.0]), 0.5), [0.0, 0.0, 0.0, 1.5, -1.5])


@every_set
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_projection_lands_inside_stays_there_and_makes_an_obtuse_angle(penalty, scale):
    rng = np.random.default_rng(8)
    v = scale * rng.standard_normal((500, 40))
    w = penalty.prox(v, 0.1)
    assert_array_equal(penalty.value(w), np.zeros(500))
    assert_allclose(penalty.prox(w, 0.1), w, rtol=1e-14)
    already = penalty.value(v) == 0.0
    assert_allclose(w[already], v[already], rtol=1e-14)
    angle = np.sum((v - w) * (inside(penalty, rng, 500, 40) - w), axis=-1)
    assert (angle <= 1e-12 * np.square(v).sum(axis=-1)).all()


@every_set
def test_projection_lands_inside_in_single_precision(penalty):
    v = (1e3 * np.random.default_rng(9).standard_normal((200, 1000))).astype(np.float32)
    w = penalty.prox(v, 0.1)
    assert w.dtype == np.float32
    assert_array_equal(penalty.value(w), np.zeros(200))


@pytest.mark.parametrize("penalty", [Box(-0.1, 2.0), Ball(0.1)], ids=str)
def test_the_slack_is_tiny(penalty):
    w = np.array([-0.1, 0.0])
    assert penalty.value(w * (1 + 5e-13)) == 0.0
    assert penalty.value(w * (1 + 2e-12)) == math.inf


@every
@pytest.mark.parametrize("step", STEPS)
def test_prox_is_firmly_nonexpansive(penalty, step):
    rng = np.random.default_rng(10)
    for scale in (1e-3, 1.0, 1e3):
        v, u = scale * rng.standard_normal((2, 200, 5))
        moved, apart = penalty.prox(v, step) - penalty.prox(u, step), v - u
        assert (np.sum(moved * (apart - moved), axis=-1) >= -1e-13 * np.square(apart).sum(axis=-1)).all()


@every
def test_prox_beats_its_neighbours(penalty):
    rng = np.random.default_rng(11)
    v = 2 * rng.standard_normal((100, 4))
    for step in STEPS:
        w = penalty.prox(v, step)

        def objective(x, step=step):
            return penalty.value(x) + np.square(x - v).sum(axis=-1) / (2 * step)

        best = objective(w)
        assert np.isfinite(best).all()
        for size in (1e-3, 0.1, 10.0):
            other = penalty.prox(w + size * rng.standard_normal(w.shape), 1e-12)  # stays in the set
            assert (objective(other) >= best * (1 - 1e-12)).all()


@every
def test_prox_does_not_touch_its_argument(penalty):
    v = np.array([[3.0, -2.0], [0.1, 0.2]])
    kept = v.copy()
    out = penalty.prox(v, 0.5)
    out[:] = 99.0
    assert_array_equal(v, kept)


# leading axes


@every
def test_leading_axes_are_independent_vectors(penalty):
    rng = np.random.default_rng(12)
    w, steps = inside(penalty, rng, 3, 2, 5), np.array([[0.1], [4.0]])
    v = 3 * rng.standard_normal((3, 2, 5))
    values, subgradients, proxes = penalty.value(w), penalty.subgradient(w), penalty.prox(v, steps)
    assert values.shape == (3, 2)
    assert subgradients.shape == proxes.shape == (3, 2, 5)
    for i in range(3):
        for j in range(2):
            assert_allclose(values[i, j], penalty.value(w[i, j]), rtol=1e-14)
            assert_array_equal(subgradients[i, j], penalty.subgradient(w[i, j]))
            assert_allclose(proxes[i, j], penalty.prox(v[i, j], float(steps[j, 0])), rtol=1e-14)


# bad input


@every
@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf])
def test_step_must_be_positive(penalty, step):
    name = type(penalty).__name__
    with pytest.raises(InvalidInput, match=f"^{name}: step must be finite and > 0, got {step}"):
        penalty.prox(np.ones(3), step)
    with pytest.raises(InvalidInput, match=f"^{name}: step must be finite and > 0, got {step}"):
        penalty.prox(np.ones((2, 3)), np.array([[1.0], [step]]))


def test_ball_refuses_a_step_per_coordinate():
    with pytest.raises(InvalidInput, match=r"^Ball: step must be one number per vector, got \(3,\)"):
        Ball(1.0).prox(np.ones(3), np.array([1.0, 2.0, 3.0]))


@every
def test_dim_must_be_whole(penalty):
    with pytest.raises(InvalidInput, match=f"^{type(penalty).__name__}: dim must be a whole number >= 1, got 0"):
        penalty.subgradient_bound(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L1(-1.0), r"^L1: lam must be > 0, got -1\.0$"),
        (lambda: L2(0.0), r"^L2: lam must be > 0, got 0\.0$"),
        (lambda: L2(math.nan), r"^L2: lam must be > 0, got nan$"),
        (lambda: ElasticNet(-1.0, 1.0), r"^ElasticNet: l1 must be > 0, got -1\.0$"),
        (lambda: ElasticNet(0.0, 1.0), r"^ElasticNet: l1 and l2 must be > 0, got \(0\.0, 1\.0\)\. Use L2 alone$"),
        (lambda: ElasticNet(1.0, 0.0), r"^ElasticNet: l1 and l2 must be > 0, got \(1\.0, 0\.0\)\. Use L1 alone$"),
        (lambda: Box(1.0, 1.0), r"^Box: low must be < high, got \(1\.0, 1\.0\)$"),
        (lambda: Box(math.nan, 1.0), r"^Box: low must be < high, got \(nan, 1\.0\)$"),
        (lambda: Box("0", "1"), r"^Box: low must be a number, got '0'\. Use -inf or inf"),  # pyright: ignore
        (lambda: Ball(0.0), r"^Ball: radius must be > 0, got 0\.0$"),
    ],
)
def test_parameters_are_checked(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize("shape", [(60, 80), (2, 40, 70)])
def test_shrink_is_the_argmin_and_the_same_compiled(shape: tuple[int, ...]) -> None:
    import numba  # noqa: F401 (arrays of this size take the compiled way once it is loaded)

    rng = np.random.default_rng(2)
    x, g = rng.normal(size=shape), rng.normal(size=shape[::-1]).T  # the second is not contiguous
    keep, total = rng.uniform(0, 3, (*shape[:-1], 1)), rng.uniform(0.1, 3, (*shape[:-1], 1))
    z = shrink(x, keep, g, 0.7, total)

    def goal(z: np.ndarray) -> np.ndarray:
        return total / 2 * z**2 - z * (keep * x - g) + 0.7 * np.abs(z)

    assert 100 < np.count_nonzero(z) < z.size - 100
    for step in (1e-5, -1e-5, 0.3, -0.3):
        assert (goal(z) < goal(z + step)).all()
    parts = [
        shrink(x[..., i : i + 9, :], keep[..., i : i + 9, :], g[..., i : i + 9, :], 0.7, total[..., i : i + 9, :])
        for i in range(0, shape[-2], 9)
    ]
    assert_array_equal(z, np.concatenate(parts, axis=-2))
    one = shrink(x, 0.5, g, 0.7, np.array([[2.0]]))
    assert_array_equal(one, shrink(x, np.full_like(keep, 0.5), g, 0.7, np.full_like(total, 2.0)))
    assert_allclose(one, L1(0.7).prox((0.5 * x - g) / 2, 0.5), atol=1e-15)
