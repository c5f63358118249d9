import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, special

from sottovoce.core.check import InvalidInput
from sottovoce.problems.losses import (
    LOSSES,
    Huber,
    Logistic,
    Loss,
    SmoothedHinge,
    Softmax,
    Squared,
    WeightedLogistic,
    WeightedSoftmax,
)

SIGNED = [Logistic(), SmoothedHinge(), SmoothedHinge(0.3), WeightedLogistic((0.5, 3.0))]
SCALAR = [*SIGNED, Squared(), Huber(), Huber(0.7)]
SEVERAL = [Softmax(2), Softmax(5), WeightedSoftmax(3, (1.0, 4.0, 0.2))]
ALL = [*SCALAR, *SEVERAL]
every = pytest.mark.parametrize("loss", ALL, ids=str)
every_scalar = pytest.mark.parametrize("loss", SCALAR, ids=str)
EPS = np.finfo(float).eps


def root(function, low: float, high: float) -> float:
    found = optimize.root_scalar(function, bracket=(low, high), method="brentq", xtol=1e-14)
    assert found.converged
    return found.root


def draw_labels(loss: Loss, rng, rows: int) -> np.ndarray:
    if isinstance(loss, Softmax):
        return rng.integers(0, loss.classes, rows).astype(float)
    return rng.choice([-1.0, 1.0], rows) if loss.classification else 2.0 * rng.standard_normal(rows)


def draw_margins(loss: Loss, rng, *shape: int) -> np.ndarray:
    return 3.0 * rng.standard_normal(shape + ((loss.outputs,) if loss.outputs > 1 else ()))


def kink_distance(loss: Loss, margin, y):
    """How far each row is from a point where the second derivative jumps."""
    if isinstance(loss, Huber):
        return np.abs(np.abs(margin - y) - loss.width)
    if isinstance(loss, SmoothedHinge):
        gap = 1.0 - y * margin
        return np.minimum(np.abs(gap), np.abs(gap - loss.width))
    return np.full(len(y), np.inf)


def central_difference(function, margin, h: float):
    """Derivative along each output, stacked on a last axis; a scalar loss has only one."""
    if margin.ndim == 1:
        return (function(margin + h) - function(margin - h)) / (2 * h)
    shifts = h * np.eye(margin.shape[-1])
    return np.stack([(function(margin + s) - function(margin - s)) / (2 * h) for s in shifts], axis=-1)


def assert_prox_is_stationary(loss: Loss, v, y, rho):
    """rho (z - v) + slope(z) is 0 up to what rounding of z, v and y alone does to it."""
    z = loss.prox(v, y, rho)
    slope = loss.slope(z, y)
    if loss.outputs == 1:
        noise = rho * (np.abs(z) + np.abs(v)) + np.abs(slope) + loss.second(z, y) * (np.abs(z) + np.abs(y))
    else:
        noise = rho * (np.abs(z) + np.abs(v)) + np.abs(slope) * (1 + np.abs(z).max(axis=-1, keepdims=True))
        noise = noise.max(axis=-1, keepdims=True)
    assert (np.abs(rho * (z - v) + slope) <= 1e-14 * noise + 1e-300).all()


# the contract


def test_names_codes_and_table():
    expected = ["logistic", "softmax", "squared", "huber", "smoothed-hinge", "weighted-logistic", "weighted-softmax"]
    assert list(LOSSES) == expected
    assert [LOSSES[name].name for name in expected] == expected
    assert [LOSSES[name].code for name in expected] == [0, 1, 2, 3, 4, -1, -1]
    assert [LOSSES[name].classification for name in expected] == [True, True, False, False, True, True, True]


def test_outputs_and_parameter():
    assert [loss.outputs for loss in (*SCALAR, *SEVERAL)] == [1] * len(SCALAR) + [2, 5, 3]
    assert [Logistic().parameter, Squared().parameter, Softmax(3).parameter] == [0.0, 0.0, 0.0]
    assert Huber(0.7).parameter == 0.7
    assert SmoothedHinge(2).parameter == 2.0


@every
def test_frozen_and_comparable(loss):
    assert loss == dataclasses.replace(loss)
    assert hash(loss) == hash(dataclasses.replace(loss))
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.width = 3.0
    assert Huber(1.0) != Huber(2.0)


def test_the_base_class_cannot_be_used():
    with pytest.raises(TypeError, match="abstract"):
        Loss()  # pyright: ignore[reportAbstractUsage]


# values, against formulas written elsewhere


def test_logistic_value_is_log_loss():
    from sklearn.metrics import log_loss

    rng = np.random.default_rng(1)
    margin, y = 3 * rng.standard_normal(50), rng.choice([-1.0, 1.0], 50)
    ours = Logistic().value(margin, y)
    assert_allclose(ours.mean(), log_loss(y, special.expit(margin), labels=[-1, 1]), rtol=1e-12)
    assert_allclose(ours, -special.log_expit(y * margin), rtol=1e-13)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_softmax_value_is_log_loss(classes):
    from sklearn.metrics import log_loss

    rng = np.random.default_rng(2)
    margin, y = 3 * rng.standard_normal((40, classes)), rng.integers(0, classes, 40).astype(float)
    ours = Softmax(classes).value(margin, y)
    assert_allclose(ours.mean(), log_loss(y, special.softmax(margin, axis=-1), labels=np.arange(classes)), rtol=1e-12)
    picked = special.log_softmax(margin, axis=-1)[np.arange(40), y.astype(int)]
    assert_allclose(ours, -picked, rtol=1e-12)


def test_two_class_softmax_is_logistic_in_the_difference():
    rng = np.random.default_rng(3)
    margin, y = 5 * rng.standard_normal((60, 2)), rng.integers(0, 2, 60).astype(float)
    difference, sign = margin[:, 1] - margin[:, 0], 2 * y - 1
    assert_allclose(Softmax(2).value(margin, y), Logistic().value(difference, sign), rtol=1e-13)
    assert_allclose(Softmax(2).slope(margin, y)[:, 1], Logistic().slope(difference, sign), rtol=1e-12)


def test_huber_value_is_scipys():
    rng = np.random.default_rng(4)
    margin, y = 3 * rng.standard_normal(50), rng.standard_normal(50)
    for width in (0.3, 1.0, 2.5):
        assert_allclose(Huber(width).value(margin, y), special.huber(width, margin - y), rtol=1e-13)


def test_huber_slope_vanishes_at_sklearns_fit():
    from sklearn.linear_model import HuberRegressor

    rng = np.random.default_rng(5)
    rows = rng.standard_normal((80, 3))
    y = rows @ [1.0, -2.0, 0.5] + rng.standard_t(2, 80)
    fit = HuberRegressor(epsilon=1.35, alpha=0.0, fit_intercept=False, tol=1e-10).fit(rows, y)
    residual_slope = Huber(1.35 * fit.scale_).slope(rows @ fit.coef_, y)
    assert np.abs(residual_slope).max() > 0.5  # so that the sum below is zero by balance
    assert_allclose(residual_slope @ rows / 80, 0.0, atol=1e-5)


def test_smoothed_hinge_is_near_the_hinge():
    from sklearn.metrics import hinge_loss

    rng = np.random.default_rng(6)
    margin, y = 2 * rng.standard_normal(50), rng.choice([-1.0, 1.0], 50)
    assert_allclose(SmoothedHinge(1e-9).value(margin, y).mean(), hinge_loss(y, margin), atol=1e-8)
    assert_allclose(
        SmoothedHinge(0.5).value(np.array([2.0, 1.0, 0.75, 0.5, -1.0]), np.ones(5)), [0, 0, 0.0625, 0.25, 1.75]
    )


@pytest.mark.parametrize("width", [0.3, 1.0, 2.0])
def test_smoothed_hinge_is_the_envelope_of_the_hinge(width):
    grid = np.linspace(-6, 6, 120_001)
    for t in (-2.3, -0.4, 0.2, 0.65, 0.99, 1.7):
        envelope = np.min(np.maximum(0, 1 - grid) + (grid - t) ** 2 / (2 * width))
        assert_allclose(SmoothedHinge(width).value(np.array([-t]), np.array([-1.0])), [envelope], atol=1e-7)


def test_squared_value():
    assert_array_equal(Squared().value(np.array([3.0, -1.0]), np.array([1.0, -1.0])), [2.0, 0.0])


# derivatives, against finite differences


@every
def test_slope_is_the_derivative_of_value(loss):
    rng = np.random.default_rng(7)
    margin, y = draw_margins(loss, rng, 200), draw_labels(loss, rng, 200)
    numeric = central_difference(lambda m: loss.value(m, y), margin, 1e-6)
    assert_allclose(loss.slope(margin, y), numeric, atol=5e-6)  # h/2 times curvature next to a kink


@every
def test_second_is_the_derivative_of_slope(loss):
    rng = np.random.default_rng(8)
    margin, y = draw_margins(loss, rng, 200), draw_labels(loss, rng, 200)
    clear = kink_distance(loss, margin, y) > 1e-4
    assert clear.sum() > 190
    margin, y = margin[clear], y[clear]
    numeric = central_difference(lambda m: loss.slope(m, y), margin, 1e-5)
    assert_allclose(loss.second(margin, y), numeric, atol=1e-8)


@given(st.floats(-40, 40), st.sampled_from([-1.0, 1.0]))
def test_logistic_derivatives_in_closed_form(margin, y):
    m, labels = np.array([margin]), np.array([y])
    assert_allclose(Logistic().slope(m, labels), -y * special.expit(-y * m), rtol=1e-14)
    assert_allclose(Logistic().second(m, labels), special.expit(m) * special.expit(-m), rtol=1e-14)


@pytest.mark.parametrize(
    ("loss", "kinks", "y"),
    [(Huber(0.5), [-0.5, 0.5], [0.0, 0.0]), (SmoothedHinge(0.5), [1.0, 0.5], [1.0, 1.0])],
    ids=str,
)
def test_at_a_kink_second_is_the_larger_one_and_slope_is_continuous(loss, kinks, y):
    kinks, y = np.array(kinks), np.array(y)
    assert_array_equal(loss.second(kinks, y), [loss.curvature] * 2)
    assert_allclose(loss.slope(kinks - 1e-12, y), loss.slope(kinks + 1e-12, y), atol=1e-11)


# stated constants: never exceeded, and attained


def sizes_of_second(loss: Loss, margin, y):
    second = loss.second(margin, y)
    return (
        (second, second)
        if loss.outputs == 1
        else (np.linalg.eigvalsh(second)[:, 0], np.linalg.norm(second, 2, (-2, -1)))
    )


@every
def test_constants_are_bounds(loss):
    rng = np.random.default_rng(9)
    for scale in (0.01, 1.0, 30.0):
        margin, y = scale * draw_margins(loss, rng, 300), draw_labels(loss, rng, 300)
        smallest, largest = sizes_of_second(loss, margin, y)
        assert largest.max() <= loss.curvature * (1 + 1e-12)
        assert smallest.min() >= loss.strong - 1e-12
        slope = loss.slope(margin, y)
        size = np.abs(slope) if loss.outputs == 1 else np.linalg.norm(slope, axis=-1)
        assert size.max() <= loss.lipschitz * (1 + 1e-12)


@every
def test_constants_are_attained(loss):
    y, weight = np.array([1.0]), max(getattr(loss, "class_weight", (1.0,)))
    if isinstance(loss, Softmax):
        tie = np.full((1, loss.classes), -50.0)
        tie[0, :2] = 0.0
        wrong = 50.0 * np.eye(loss.classes)[:1]
        assert_allclose(np.linalg.norm(loss.slope(wrong, y)), loss.lipschitz, rtol=1e-12)
        assert_allclose(np.linalg.norm(loss.slope(wrong, y)), weight * math.sqrt(2), rtol=1e-12)
        assert_allclose(sizes_of_second(loss, tie, y)[1], weight * 0.5, rtol=1e-12)
        assert loss.curvature == weight * 0.5
        return
    centre = np.array([0.0]) if isinstance(loss, Logistic) else np.array([1.0])
    assert_allclose(loss.second(centre, y), loss.curvature, rtol=1e-15)
    far = np.abs(loss.slope(np.array([-1e4]), y))
    if math.isinf(loss.lipschitz):
        assert far > 1e3
    else:
        assert_allclose(far, loss.lipschitz, rtol=1e-12)


def test_constants_as_stated():
    assert (Logistic().curvature, Logistic().lipschitz, Logistic().strong) == (0.25, 1.0, 0.0)
    assert (Squared().curvature, Squared().lipschitz, Squared().strong) == (1.0, math.inf, 1.0)
    assert (Huber(0.7).curvature, Huber(0.7).lipschitz, Huber(0.7).strong) == (1.0, 0.7, 0.0)
    assert (SmoothedHinge(0.5).curvature, SmoothedHinge(0.5).lipschitz, SmoothedHinge(0.5).strong) == (2.0, 1.0, 0.0)


# extreme margins


@every
def test_huge_margins_neither_overflow_nor_warn(loss):
    rng = np.random.default_rng(10)
    y = draw_labels(loss, rng, 40)
    margin = 1e4 * np.sign(draw_margins(loss, rng, 40))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        results = [loss.value(margin, y), loss.slope(margin, y), loss.second(margin, y), loss.prox(margin, y, 1e-3)]
    assert all(np.isfinite(result).all() for result in results)
    weights = loss._of(y) if isinstance(loss, WeightedLogistic | WeightedSoftmax) else 1.0
    if isinstance(loss, Softmax):
        plain = special.logsumexp(margin, axis=-1) - margin[np.arange(40), y.astype(int)]
        assert_allclose(results[0], weights * plain)
    elif isinstance(loss, Logistic):
        assert_array_equal(results[0], weights * np.maximum(0.0, -y * margin))


def test_tiny_losses_keep_their_digits():
    one = np.array([1.0])
    for t in (40.0, 200.0, 700.0):
        assert_allclose(Logistic().value(np.array([t]), one), math.exp(-t), rtol=1e-13)
        assert_allclose(Logistic().slope(np.array([t]), one), -math.exp(-t), rtol=1e-13)
        assert_allclose(Logistic().second(np.array([-t]), one), math.exp(-t), rtol=1e-13)
        margin = np.array([[0.0, t, 0.0]])
        assert_allclose(Softmax(3).value(margin, one), 2 * math.exp(-t), rtol=1e-13)
        assert_allclose(Softmax(3).slope(margin, one)[0], np.array([1, -2, 1]) * math.exp(-t), rtol=1e-13)


# prox


@every_scalar
@pytest.mark.parametrize("rho", [0.05, 1.0, 20.0])
def test_prox_against_minimize_scalar(loss, rho):
    rng = np.random.default_rng(11)
    v, y = 4 * rng.standard_normal(25), draw_labels(loss, rng, 25)
    for vi, yi, zi in zip(v, y, loss.prox(v, y, rho), strict=True):
        found: Any = optimize.minimize_scalar(
            lambda z, vi=vi, yi=yi: float(loss.value(np.array([z]), np.array([yi]))[0] + rho / 2 * (z - vi) ** 2)
        )
        assert zi == pytest.approx(found.x, abs=2e-6 * (1 + abs(vi)))


@pytest.mark.parametrize("rho", [0.05, 1.0, 20.0])
def test_softmax_prox_against_minimize(rho):
    rng = np.random.default_rng(12)
    loss, v, y = Softmax(4), 4 * rng.standard_normal((8, 4)), rng.integers(0, 4, 8).astype(float)
    z = loss.prox(v, y, rho)
    for i in range(8):
        label = int(y[i])
        found = optimize.minimize(
            lambda x, i=i, label=label: special.logsumexp(x) - x[label] + rho / 2 * np.sum((x - v[i]) ** 2),
            v[i],
            jac=lambda x, i=i, label=label: special.softmax(x) - np.eye(4)[label] + rho * (x - v[i]),
            method="BFGS",
            options={"gtol": 1e-9},
        )
        assert_allclose(z[i], found.x, atol=1e-7 * (1 + 1 / rho))


def test_logistic_prox_against_a_root_finder_in_the_offset():
    # u = t - a solves log(rho u) + log(1 + exp(a + u)) = 0: another equation, with no cancellation in u
    rng = np.random.default_rng(13)
    a = np.concatenate([[0.0], rng.choice([-1.0, 1.0], 150) * 10.0 ** rng.uniform(-6, 2.5, 150)])
    rho = 10.0 ** rng.uniform(-6, 6, 151)
    ours = Logistic().prox(-a, -np.ones(151), rho)
    for ai, ri, zi in zip(a, rho, ours, strict=True):
        log_u = root(
            lambda s, ai=ai, ri=ri: math.log(ri) + s + np.logaddexp(0, ai + math.exp(s)),
            -math.log(ri) - max(ai, 0) - 40,
            -math.log(ri),
        )
        assert_allclose(-zi, ai + math.exp(log_u), rtol=0, atol=1e-13 * (abs(ai) + math.exp(log_u)))


@every_scalar
@settings(max_examples=150, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(-6, 6), st.floats(-20, 20))
def test_prox_is_stationary_for_extreme_v_and_rho(loss, v, log_rho, target):
    y = np.array([math.copysign(1.0, target) if loss.classification else target])
    assert_prox_is_stationary(loss, np.array([v]), y, 10.0**log_rho)


@every
def test_prox_is_stationary_on_a_grid_of_scales(loss):
    rng = np.random.default_rng(14)
    rows = 400
    shape = np.shape(draw_margins(loss, rng, rows))
    v = rng.choice([-1.0, 0.0, 1.0], shape) * 10.0 ** rng.uniform(-6, 6, shape)
    rho = 10.0 ** rng.uniform(-6, 6, (rows,) + (1,) * (len(shape) - 1))
    y = draw_labels(loss, rng, rows)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert_prox_is_stationary(loss, v, y, rho)


@every
def test_prox_beats_its_neighbours(loss):
    rng = np.random.default_rng(15)
    v, y = draw_margins(loss, rng, 60), draw_labels(loss, rng, 60)
    for rho in (1e-6, 1e-2, 1.0, 1e3, 1e6):
        z = loss.prox(v, y, rho)

        def objective(x, rho=rho):
            distance = np.square(x - v) if loss.outputs == 1 else np.square(x - v).sum(axis=-1)
            return loss.value(x, y) + rho / 2 * distance

        best = objective(z)
        for size in (1e-3, 0.1, 10.0):
            other = objective(z + size * rng.standard_normal(z.shape))
            assert (other > best - 4 * EPS * (1 + np.abs(best))).all()


def test_two_class_softmax_prox_is_a_logistic_prox():
    # the mean of the two margins stays, the difference sees half the rho
    rng = np.random.default_rng(16)
    v = rng.choice([-1.0, 1.0], (300, 2)) * 10.0 ** rng.uniform(-3, 3, (300, 2))
    y, rho = rng.integers(0, 2, 300).astype(float), 10.0 ** rng.uniform(-6, 6, 300)
    z = Softmax(2).prox(v, y, rho[:, None])
    size = np.abs(v).max(axis=-1) + np.abs(z).max(axis=-1)
    difference = Logistic().prox(v[:, 1] - v[:, 0], 2 * y - 1, rho / 2)
    assert (np.abs(z[:, 1] - z[:, 0] - difference) <= 1e-13 * size).all()
    assert (np.abs(z.sum(axis=-1) - v.sum(axis=-1)) <= 1e-13 * size).all()


def test_softmax_prox_of_many_tied_classes():
    # all rivals equal by symmetry: with the gap s a rival has p = 1/(K-1+exp(s)), and rho s = K p
    classes, rho = 1000, 1e-4
    z = Softmax(classes).prox(np.full((1, classes), 7.0), np.array([3.0]), rho)[0]
    gap = root(lambda s: rho * s - classes / (classes - 1 + math.exp(s)), 0.0, 50.0)
    others = np.delete(z, 3)
    assert_allclose(others, others[0], rtol=0, atol=1e-13)
    assert_allclose(z[3] - others[0], gap, rtol=1e-12)


def test_softmax_prox_with_a_rho_per_class():
    rng = np.random.default_rng(17)
    loss, v, y = Softmax(4), 3 * rng.standard_normal((30, 4)), rng.integers(0, 4, 30).astype(float)
    rho = 10.0 ** rng.uniform(-3, 3, (30, 4))
    assert_prox_is_stationary(loss, v, y, rho)


@every
def test_prox_is_firmly_nonexpansive(loss):
    rng = np.random.default_rng(18)
    y = draw_labels(loss, rng, 200)
    for rho in (1e-3, 1.0, 1e3):
        v, w = draw_margins(loss, rng, 200), draw_margins(loss, rng, 200)
        moved, apart = loss.prox(v, y, rho) - loss.prox(w, y, rho), v - w
        slack = moved * (apart - moved)
        slack = slack if loss.outputs == 1 else slack.sum(axis=-1)
        assert slack.min() >= -1e-13
        assert np.abs(moved).max() > 0.0


@every
def test_prox_tends_to_v_for_large_rho(loss):
    rng = np.random.default_rng(19)
    v, y = draw_margins(loss, rng, 30), draw_labels(loss, rng, 30)
    assert_allclose(loss.prox(v, y, 1e12), v, atol=1e-10)


# leading axes


@every
def test_leading_axes_are_independent_problems(loss):
    rng = np.random.default_rng(20)
    margin, y = draw_margins(loss, rng, 3, 2, 11), draw_labels(loss, rng, 11)
    rho = np.array([[0.1], [2.0]]) if loss.outputs == 1 else np.array([[[0.1]], [[2.0]]])
    stacked = {
        "value": loss.value(margin, y),
        "slope": loss.slope(margin, y),
        "second": loss.second(margin, y),
        "predict": loss.predict(margin),
        "prox": loss.prox(margin, y, rho),
    }
    tail = () if loss.outputs == 1 else (loss.outputs,)
    assert stacked["value"].shape == (3, 2, 11)
    assert stacked["slope"].shape == stacked["prox"].shape == (3, 2, 11, *tail)
    assert stacked["second"].shape == (3, 2, 11, *tail, *tail)
    assert stacked["predict"].shape == (3, 2, 11)
    for i in range(3):
        for j in range(2):
            one = margin[i, j]
            assert_allclose(stacked["value"][i, j], loss.value(one, y), rtol=1e-14)
            assert_allclose(stacked["slope"][i, j], loss.slope(one, y), rtol=1e-14)
            assert_allclose(stacked["second"][i, j], loss.second(one, y), rtol=1e-14)
            assert_allclose(stacked["predict"][i, j], loss.predict(one), rtol=0)
            assert_allclose(stacked["prox"][i, j], loss.prox(one, y, (0.1, 2.0)[j]), rtol=1e-12, atol=1e-13)


# predictions and labels


def test_predict():
    for loss in SIGNED:
        assert_array_equal(loss.predict(np.array([-0.1, 0.0, -0.0, 3.0])), [-1.0, 1.0, 1.0, 1.0])
    assert_array_equal(Softmax(3).predict(np.array([[0.0, 2.0, 1.0], [5.0, 2.0, 5.0]])), [1.0, 0.0])
    for loss in (Squared(), Huber()):
        assert_array_equal(loss.predict(np.array([-0.1, 7.0])), [-0.1, 7.0])
    assert all(loss.predict(np.zeros((4, 2))).dtype == np.float64 for loss in (*SIGNED, Softmax(2), Squared()))


@every
def test_good_labels_become_floats(loss):
    labels = loss.check_labels([1, 1, 1])
    assert labels.dtype == np.float64
    assert_array_equal(labels, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("loss", SIGNED, ids=str)
def test_signed_labels(loss):
    name = type(loss).__name__
    with pytest.raises(InvalidInput, match=rf"^{name}: labels must be -1 or \+1, and 2 of 3 are .*2\*y-1 for labels 0"):
        loss.check_labels([0, 1, 0])
    with pytest.raises(InvalidInput, match=r"and 1 of 4 are neither\. Code one class as -1"):
        loss.check_labels([-1, 1, 2, 1])


def test_softmax_labels():
    with pytest.raises(InvalidInput, match=r"^Softmax: labels must be whole numbers 0\.\.2, and 2 of 4 .*from 0"):
        Softmax(3).check_labels([0, 3, 2, 4])
    with pytest.raises(InvalidInput, match=r"and 1 of 2 are not"):
        Softmax(2).check_labels([-1, 1])
    with pytest.raises(InvalidInput, match=r"and 1 of 2 are not"):
        Softmax(2).check_labels([0.5, 1])


@every
def test_labels_must_be_finite_numbers_in_one_axis(loss):
    name = type(loss).__name__
    with pytest.raises(InvalidInput, match=f"^{name}: labels must be finite, and the entry at \\(1,\\) is not"):
        loss.check_labels([1.0, math.nan])
    with pytest.raises(InvalidInput, match=rf"^{name}: labels must be numbers, and there is str at \(0,\)\.") as error:
        loss.check_labels(["spam", "ham"])
    assert "spam" not in str(error.value)
    with pytest.raises(InvalidInput, match=rf"^{name}: labels must be numbers, and there is bytes at \(1,\)\."):
        loss.check_labels([1.0, b"ham"])
    with pytest.raises(InvalidInput, match=f"^{name}: labels must have 1 axes"):
        loss.check_labels([[1.0], [1.0]])


@every
def test_one_class_only(loss):
    if loss.classification:
        with pytest.raises(InvalidInput, match=f"^{type(loss).__name__}: .*one class only, all 3 labels are the same"):
            loss.check_both_classes(np.ones(3))
        with pytest.raises(InvalidInput, match="one class only, there are no labels"):
            loss.check_both_classes(np.ones(0))
    else:
        loss.check_both_classes(np.ones(3))
    loss.check_both_classes(np.array([1.0, 0.0 if loss.outputs > 1 else -1.0, 1.0]))


@every
@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf])
def test_rho_must_be_positive(loss, rho):
    v = draw_margins(loss, np.random.default_rng(0), 2)
    with pytest.raises(InvalidInput, match=f"^{type(loss).__name__}: rho must be finite and > 0, got {rho}"):
        loss.prox(v, np.ones(2), rho)


def test_parameters_are_checked():
    with pytest.raises(InvalidInput, match=r"^Softmax: classes must be a whole number >= 2, got 1$"):
        Softmax(1)
    with pytest.raises(InvalidInput, match=r"^Huber: width must be > 0, got -1\.0$"):
        Huber(-1.0)
    with pytest.raises(InvalidInput, match=r"^SmoothedHinge: width must be > 0, got 0$"):
        SmoothedHinge(0)
