import math
import random
from fractions import Fraction
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from sottovoce.core import check
from sottovoce.privacy.accounting import (
    accountant_name,
    affordable,
    bounds,
    calibrate,
    calibration,
    epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    renyi,
    table,
)
from sottovoce.privacy.events import Event

ADD_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE

POISSON: dict[str, Any] = {"sampling": "poisson", "relation": "add-remove", "rate": 10 / 326}
FIXED: dict[str, Any] = {"sampling": "fixed-size", "batch": 10, "size": 326}
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "poisson": POISSON,
    "fixed-size": FIXED,
    "discrete-gaussian": {"mechanism": "discrete-gaussian"},
    "gaussian-chain": {"mechanism": "gaussian-chain"},
    "laplace": {"mechanism": "laplace"},
    "randomized-response": {"mechanism": "randomized-response"},
}
CHEAP = [kind for kind in KINDS if kind != "poisson"]


def make(kind: str, noise: float) -> Event:
    return Event(**{"mechanism": "gaussian", **KINDS[kind], "noise_multiplier": noise})


def pld_epsilon(event: dp_accounting.DpEvent, delta: float, step: float = 1e-3, relation=ADD_REMOVE) -> float:
    return pld.PLDAccountant(relation, step).compose(event).get_epsilon(delta)


# ------------------------------------------------------------------------------------------- the Gaussian trade-off


@pytest.mark.parametrize("mu", [0.03, 0.3, 0.49, 0.51, 1.0, 4.0])
@pytest.mark.parametrize("eps", [0.0, 0.05, 1.0, 6.0])
def test_gaussian_delta_is_the_hockey_stick_divergence(mu, eps):
    def gap(x):
        return max(0.0, stats.norm.pdf(x - mu) - math.exp(eps) * stats.norm.pdf(x))

    crossing = eps / mu + mu / 2  # the integrand is zero before
    expected, _ = integrate.quad(gap, crossing, crossing + 12, epsabs=0, epsrel=1e-11, limit=200)
    assert gaussian_delta(mu, eps) == pytest.approx(expected, rel=1e-8, abs=0)


@pytest.mark.parametrize(
    ("mu", "delta", "expected"),  # the textbook formula, bisected with 700 digits
    [
        (1e-6, 1e-300, 3.65743125142489e-5),
        (1e-6, 1e-10, 3.363015762138e-6),
        (1e-6, 3e-7, 2.16513576083384e-7),
        (1e-3, 1e-30, 0.0106304246794033),
        (0.3, 0.1, 0.0458131857956638),
        (0.5, 1e-100, 10.6729454398096),
        (0.6, 0.2, 0.0971013133436421),
        (1, 1e-300, 37.4488479121391),
        (1, 0.38, 0.00948640596108498),
        (3, 1e-12, 25.0896273626774),
        (3, 0.5, 3.52927578093174),
        (100, 1e-30, 6145.45577831149),
        (1000, 1e-300, 537046.114378063),
        (1000, 0.5, 499999.000000333),
    ],
)
def test_gaussian_epsilon_to_twelve_digits(mu, delta, expected):
    assert gaussian_epsilon(mu, delta) == pytest.approx(expected, rel=1e-12, abs=0)
    assert gaussian_mu(expected, delta) == pytest.approx(mu, rel=1e-12, abs=0)


def test_gaussian_delta_may_underflow():
    assert gaussian_delta(1.0, 60.0) == gaussian_delta(1e-3, 1.0) == gaussian_delta(1e-6, 1e3) == 0.0
    assert gaussian_delta(1e3, 0.0) == 1.0


@pytest.mark.parametrize("t", [0.0, 0.5, 3.0, 8.0, 30.0])
def test_gaussian_delta_for_a_shift_far_below_rounding_of_the_textbook_formula(t):
    # mu -> 0 with epsilon = t mu: delta -> mu (phi(t) - t Phi(-t)), up to a relative error of order mu.
    mills = (
        stats.norm.pdf(t) - t * stats.norm.sf(t) if t < 10 else stats.norm.pdf(t) * (1 / t**2 - 3 / t**4 + 15 / t**6)
    )
    assert gaussian_delta(1e-6, t * 1e-6) == pytest.approx(1e-6 * mills, rel=1e-4, abs=0)


@settings(max_examples=200, deadline=None)
@given(log_mu=st.floats(-6, 3), log_delta=st.floats(-300, math.log10(0.5)))
@example(log_mu=-6, log_delta=-300)
@example(log_mu=3, log_delta=-300)
@example(log_mu=3, log_delta=math.log10(0.5))
def test_gaussian_inverses(log_mu, log_delta):
    mu, delta = 10**log_mu, 10**log_delta
    eps = gaussian_epsilon(mu, delta)
    assert eps >= 0
    if eps == 0:
        assert stats.norm.cdf(mu / 2) - stats.norm.cdf(-mu / 2) <= delta * (1 + 1e-9)
        return
    # A last digit of epsilon moves delta the more, the larger x = epsilon/mu is: 1e-13 x² at most.
    assert gaussian_delta(mu, eps) == pytest.approx(delta, rel=1e-10 + 1e-13 * eps, abs=0)
    assert gaussian_mu(eps, delta) == pytest.approx(mu, rel=1e-9, abs=0)


def test_gaussian_epsilon_ends_at_zero():
    for mu in np.random.default_rng(0).uniform(0.01, 3.0, 300):
        at_zero = gaussian_delta(mu, 0.0)
        assert all(gaussian_epsilon(mu, at_zero * (1 - k * 2**-53)) >= 0 for k in range(1, 8))


@pytest.mark.parametrize("delta", [0.99, 0.9, 1e-306])
def test_gaussian_epsilon_ends_where_rounding_hides_the_root(delta):
    for mu in np.linspace(12, 310, 150):
        assert gaussian_delta(mu, gaussian_epsilon(mu, delta) * (1 - 1e-4)) >= delta


@pytest.mark.parametrize("delta", [1 - 1e-8, 0.9999999409936915, 1 - 1e-12, 1 - 2**-53])
def test_a_delta_near_one_has_the_epsilon_of_a_smaller_one(delta):
    assert all(gaussian_epsilon(mu, delta) == gaussian_epsilon(mu, 0.99) for mu in (1.0, 12.0, 310.0, 1e9))


@pytest.mark.parametrize("mu", [1e8, 2.2e16, 1e100])
def test_gaussian_epsilon_of_hardly_any_noise(mu):
    for delta in np.random.default_rng(0).uniform(0, 1, 300):
        assert gaussian_epsilon(mu, delta) == pytest.approx(mu * mu / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("log_mu", "log_delta", "far"),
    [
        ((-3, 1), (-12, -2), 1e-12),
        ((1, 4), (-12, -1), 1e-12),
        ((-6, 3), (-300, -0.5), 1e-11),
        ((0, 2), (-0.01, 0), 0.1),
    ],
    ids=["as people have it", "little noise", "anything", "delta near one"],
)
def test_gaussian_epsilon_is_never_too_small(log_mu, log_delta, far):
    """Its delta, to 60 digits, is at most what was asked for, with no tolerance; and a little less would be too little.

    The smallest numbers have fewer digits: there epsilon is hardly more than what rounding hides.
    """

    def true_delta(epsilon):
        eps, shift = mpmath.mpf(epsilon), mpmath.mpf(mu)
        ends = (eps / shift + sign * shift / 2 for sign in (-1, 1))
        near, beyond = (mpmath.erfc(end / mpmath.sqrt(2)) / 2 for end in ends)
        return near - mpmath.exp(eps) * beyond

    rng = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(300):
            mu, delta = 10 ** rng.uniform(*log_mu), 10 ** rng.uniform(*log_delta)
            eps = gaussian_epsilon(mu, delta)
            assert true_delta(eps) <= delta
            assert eps < 1e-6 or true_delta(eps * (1 - far)) > min(delta, 0.99)


def test_gaussian_epsilon_against_a_privacy_loss_distribution():
    for mu in (0.1, 1.0, 3.0):
        exact = gaussian_epsilon(mu, 1e-5)
        assert exact < pld_epsilon(dp_accounting.GaussianDpEvent(1 / mu), 1e-5) < exact * (1 + 1e-3)


def test_published_values():
    assert gaussian_epsilon(1, 1e-5) == pytest.approx(4.3772, abs=5e-5)
    assert epsilon({Event("gaussian", 10.0): 100}, 1e-5) == pytest.approx(4.3772, abs=5e-5)
    assert gaussian_epsilon(1e4**0.5 / math.sqrt(2 * math.log(1.25e5)), 1e-5) == pytest.approx(300, abs=0.5)


# ------------------------------------------------------------------------------------- conventions of dp-accounting


def test_what_dp_accounting_means_by_a_noise_multiplier():
    # An upgrade may change these silently; our own number must not.
    one = dp_accounting.GaussianDpEvent(1.0)
    assert pld_epsilon(one, 1e-5, relation=REPLACE) == pytest.approx(9.997, abs=2e-3)  # doubles the sensitivity
    assert pld_epsilon(one, 1e-5) == pytest.approx(4.377, abs=1e-3)
    assert rdp.RdpAccountant(neighboring_relation=REPLACE).compose(one).get_epsilon(1e-5) == pytest.approx(
        4.73, abs=0.01
    )
    for relation in ("replace-one", "add-remove", "replace-client"):
        assert epsilon({Event("gaussian", 1.0, relation=relation): 1}, 1e-5) == pytest.approx(4.3772, abs=5e-5)


# -------------------------------------------------------------------------------------------------- sampled batches


def test_examples_of_the_privacy_notes():
    b = 10
    assert calibrate(1, 1e-5, 500, **POISSON) / b == pytest.approx(0.273, abs=5e-4)
    # dp-accounting's own search over its bound of the same theorem gives 1.14404.
    assert calibrate(1, 1e-5, 500, **FIXED) * 2 / b == pytest.approx(1.1440, abs=5e-4)
    assert calibrate(1, 1e-4, 500, **POISSON) == pytest.approx(2.35, abs=5e-3)


@pytest.mark.parametrize(("noise", "batch"), [(0.7, 10), (2.0, 10), (6.0, 10), (4.0, 250)])
def test_fixed_size_curve_is_that_of_dp_accounting(noise, batch):
    orders = [2, 3, 4.5, 8, 20, 40]
    where = [int(np.argmin(abs(renyi.ORDERS - order))) for order in orders]
    event = dp_accounting.SampledWithoutReplacementDpEvent(326, batch, dp_accounting.GaussianDpEvent(noise))
    theirs = rdp.RdpAccountant(orders, REPLACE).compose(event).rdp
    without_sampling = np.array(orders) / (2 * noise**2)
    assert (theirs > without_sampling).any() == (batch == 250)  # their bound does not notice
    ours = renyi.renyi_curve(Event("gaussian", noise, "fixed-size", batch=batch, size=326))[where]
    np.testing.assert_allclose(ours, np.minimum(theirs, without_sampling), rtol=1e-9)


def test_fixed_size_curve_keeps_its_digits_under_large_noise():
    # For large noise only the term of order 2 is left: 4 q² binomial(order, 2) (exp(1/noise²) - 1)/(order - 1).
    noise, whole = 1e6, renyi.ORDERS % 1 == 0
    expected = 2 * (10 / 326) ** 2 * renyi.ORDERS[whole] / noise**2
    np.testing.assert_allclose(renyi.renyi_curve(make("fixed-size", noise))[whole], expected, rtol=1e-5)


def renyi_divergence(p, q, order: int) -> float:
    def term(x):
        return math.exp(order * p(x) + (1 - order) * q(x))

    value, _ = integrate.quad(term, -30, 45, limit=400, epsrel=1e-11)
    return math.log(value) / (order - 1)


def mixture(rate: float, mean: float, noise: float):
    """Log density of N(0, noise²), or of N(mean, noise²) with probability `rate`."""

    def log_density(x):
        scale = math.log(noise) + 0.5 * math.log(2 * math.pi)
        ratio = (2 * mean * x - mean**2) / (2 * noise**2)
        return -(x**2) / (2 * noise**2) - scale + np.logaddexp(math.log1p(-rate), math.log(max(rate, 1e-300)) + ratio)

    return log_density


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_renyi_curves_against_quadrature(order, noise):
    at = int(np.argmin(abs(renyi.ORDERS - order)))
    poisson = renyi.renyi_curve(Event("gaussian", noise, "poisson", "add-remove", 0.1))[at]
    exact = renyi_divergence(mixture(0.1, 1, noise), mixture(0.0, 1, noise), order)
    assert poisson == pytest.approx(exact, rel=1e-7)
    fixed = renyi.renyi_curve(Event("gaussian", noise, "fixed-size", batch=1, size=10))[at]
    # Replace +1/2 by -1/2 while all other records are 0: one of the pairs the bound must cover.
    assert fixed >= renyi_divergence(mixture(0.1, 0.5, noise), mixture(0.1, -0.5, noise), order)


def test_poisson_bounds_are_ordered():
    for noise, rate, answers in [(1.0, 0.01, 300), (5.0, 0.1, 1000)]:
        event = Event("gaussian", noise, "poisson", "add-remove", rate)
        theirs = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        ours = epsilon({event: answers}, 1e-5)
        by_renyi = rdp.RdpAccountant().compose(theirs, answers).get_epsilon(1e-5)
        assert ours <= by_renyi < epsilon({Event("gaussian", noise): answers}, 1e-5)
        assert ours == pytest.approx(pld_epsilon(dp_accounting.SelfComposedDpEvent(theirs, answers), 1e-5), rel=1e-6)


def test_losses_smaller_than_the_usual_grid():
    # With steps of 1e-3 a loss of 5e-5 is mostly rounding: epsilon would come out four times too large.
    event = Event("gaussian", 20.0, "poisson", "add-remove", 1e-3)
    theirs = dp_accounting.PoissonSampledDpEvent(1e-3, dp_accounting.GaussianDpEvent(20.0))
    fine = pld_epsilon(dp_accounting.SelfComposedDpEvent(theirs, 10_000), 1e-5, step=5e-6)
    assert fine * 0.999 < epsilon({event: 10_000}, 1e-5) < fine * 1.02


def test_delta_below_the_rounding_of_a_fourier_transform():
    event = make("poisson", 3.0)
    assert epsilon({event: 100}, 1e-5) < epsilon({event: 100}, 1e-11) < epsilon({event: 100}, 1e-13) < math.inf
    assert accountant_name({event: 100}, 1e-13).startswith("RDP")
    assert epsilon({event: 100}, 1e-100) <= gaussian_epsilon(10 / 3, 1e-100) < math.inf


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-12])
def test_almost_no_noise_is_not_affordable_whatever_the_batches(noise: float) -> None:
    """A server may name any noise. A huge cost is a number, never an overflow."""
    for batches in ({"sampling": "poisson", "relation": "add-remove", "rate": 0.1},
                    {"sampling": "fixed-size", "batch": 3, "size": 30}, {}):  # fmt: skip
        event = Event("gaussian", noise, **batches)
        assert affordable(event, 20.0, 1e-5) == 0
        assert 1e4 < epsilon({event: 1}, 1e-5) < np.inf


def test_huge_costs_are_not_computed_point_by_point():
    event = Event("gaussian", 0.1, "poisson", "add-remove", 0.5)
    assert 1e6 < epsilon({event: 10**6}, 1e-5) <= gaussian_epsilon(1e4, 1e-5)


def test_a_batch_of_everything_is_a_full_batch():
    exact = gaussian_epsilon(2.0, 1e-6)
    assert epsilon({Event("gaussian", 1.0, "poisson", "add-remove", 1.0): 4}, 1e-6) == exact
    assert epsilon({Event("gaussian", 1.0, "fixed-size", batch=7, size=7): 4}, 1e-6) == exact
    assert epsilon({Event("laplace", 1.0, "fixed-size", batch=7, size=7): 4}, 0.0) == 4.0
    # and a batch of nearly everything costs no more
    assert epsilon({Event("gaussian", 1.0, "fixed-size", batch=999, size=1000): 4}, 1e-6) <= exact


# -------------------------------------------------------------------------------------------- zCDP and pure events


@pytest.mark.parametrize("delta", [1e-200, 1e-6, 0.1])
@pytest.mark.parametrize("rho", [1e-4, 0.1, 3.0, 500.0])
def test_zcdp_conversion_is_the_best_order(rho, delta):
    orders = 1 + np.geomspace(1e-4, 1e8, 400_001)
    bounds = rho * orders + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    ours = epsilon({Event("discrete-gaussian", 1 / math.sqrt(2 * rho)): 1}, delta)
    assert ours == epsilon({Event("gaussian-chain", 1 / math.sqrt(2 * rho)): 1}, delta)
    assert ours == pytest.approx(max(0.0, bounds.min()), rel=1e-7, abs=1e-12)
    # The continuous Gaussian satisfies the same zCDP: no valid conversion can undercut it.
    assert ours >= gaussian_epsilon(math.sqrt(2 * rho), delta)


def test_zcdp_is_tighter_than_a_table_of_orders():
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.ZCDpEvent(1 / (2 * 20.0**2)), 100)
    theirs = rdp.RdpAccountant(neighboring_relation=REPLACE).compose(event).get_epsilon(1e-5)
    assert theirs * 0.999 < epsilon({Event("discrete-gaussian", 20.0): 100}, 1e-5) <= theirs


@pytest.mark.parametrize("mechanism", ["laplace", "randomized-response"])
def test_pure_events_add_up(mechanism):
    few, many = {Event(mechanism, 2.0): 3}, {Event(mechanism, 50.0): 1000}
    assert epsilon(few, 0.0) == epsilon(few, 1e-5) == 1.5
    assert epsilon(many, 0.0) == 20.0
    assert epsilon(many, 1e-5) == epsilon({Event("discrete-gaussian", 50.0): 1000}, 1e-5) < 20.0
    assert epsilon({Event("laplace", 2.0): 3, Event("randomized-response", 4.0): 2}, 0.0) == 2.0


@pytest.mark.parametrize(("answers", "each"), [(1, 1.0), (10, 0.3), (200, 0.05), (1000, 0.02)])
def test_pure_composition_covers_randomised_response(answers, each):
    # The worst pair of pure mechanisms, composed exactly: sums over the number of true answers.
    eps = epsilon({Event("laplace", 1 / each): answers}, 1e-5)
    true = np.arange(answers + 1)
    chance = 1 / (1 + math.exp(-each))
    p, q = stats.binom.pmf(true, answers, chance), stats.binom.pmf(true, answers, 1 - chance)
    assert np.maximum(p - math.exp(eps) * q, 0).sum() <= 1e-5


# ------------------------------------------------------------------------------------------------------ mixed events


def test_different_gaussians_compose_exactly():
    spent = {Event("gaussian", 5.0): 9, Event("gaussian", 10.0): 64}
    assert epsilon(spent, 1e-5) == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-12)
    assert epsilon(dict(reversed(spent.items())), 1e-5) == epsilon(spent, 1e-5)


def test_full_and_poisson_batches_share_a_privacy_loss_distribution():
    sampled, full = make("poisson", 3.0), Event("gaussian", 4.0, relation="add-remove")
    together = epsilon({sampled: 100, full: 2}, 1e-5)
    theirs = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(sampled.rate, dp_accounting.GaussianDpEvent(3.0)), 100
            ),
            dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(4.0), 2),
        ]
    )
    assert together == pytest.approx(pld_epsilon(theirs, 1e-5), rel=1e-6)
    assert together > max(epsilon({sampled: 100}, 1e-5), epsilon({full: 2}, 1e-5))


@pytest.mark.parametrize(
    ("spent", "name"),
    [
        ({Event("gaussian", 10.0): 20, Event("laplace", 5.0): 1}, "pure DP added to the rest"),
        ({Event("gaussian", 10.0): 20, Event("laplace", 50.0): 300}, "zCDP"),
        ({Event("gaussian", 10.0): 20, Event("discrete-gaussian", 5.0): 5}, "zCDP"),
        ({make("fixed-size", 2.0): 50, Event("discrete-gaussian", 9.0): 5}, "RDP (fixed-size sampling, replace-one)"),
        ({make("poisson", 3.0): 50, Event("laplace", 2.0, relation="add-remove"): 1}, "pure DP added to the rest"),
        ({make("fixed-size", 2.0): 50, Event("laplace", 200.0): 99}, "RDP (fixed-size sampling, replace-one)"),
        (
            {make("poisson", 2.0): 50, Event("discrete-gaussian", 9.0, relation="add-remove"): 5},
            "RDP (Poisson sampling, add/remove)",
        ),
    ],
)
def test_mixed_kinds_use_the_better_of_the_valid_bounds(spent, name):
    together = epsilon(spent, 1e-5)
    parts = [epsilon({event: count}, 1e-5) for event, count in spent.items()]
    squared_mu = sum(count / event.noise_multiplier**2 for event, count in spent.items())
    as_zcdp = epsilon({Event("discrete-gaussian", squared_mu**-0.5): 1}, 1e-5)
    assert max(parts) < together <= as_zcdp * (1 + 1e-12)
    assert accountant_name(spent, 1e-5) == name
    if name == "pure DP added to the rest":
        assert together == pytest.approx(sum(parts), rel=1e-12)


def test_names():
    assert accountant_name({}) == accountant_name({make("gaussian", 1.0): 0}) == "nothing spent"
    names = {kind: accountant_name({make(kind, 3.0): 5}) for kind in KINDS}
    assert names == {
        "gaussian": "exact Gaussian trade-off",
        "poisson": "PLD (Poisson sampling, add/remove)",
        "fixed-size": "RDP (fixed-size sampling, replace-one)",
        "discrete-gaussian": "zCDP",
        "gaussian-chain": "zCDP",
        "laplace": "pure DP",
        "randomized-response": "pure DP",
    }
    assert accountant_name({Event("laplace", 50.0): 1000}, 0.0) == "pure DP"
    assert accountant_name({Event("laplace", 50.0): 1000}, 1e-5) == "zCDP"
    nearly_all = Event("gaussian", 5.0, "fixed-size", batch=300, size=326)
    assert accountant_name({nearly_all: 10}, 1e-5) == "exact Gaussian trade-off (sampling ignored)"


def test_nothing_spent_costs_nothing():
    assert epsilon({}, 1e-5) == epsilon({}, 0.0) == epsilon({make("gaussian", 1.0): 0}, 1e-5) == 0.0


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("mechanism", ["discrete-gaussian", "gaussian-chain", "laplace", "randomized-response"])
@pytest.mark.parametrize("sampling", [POISSON, FIXED])
def test_no_proof_for_sampled_batches_of_other_noise(mechanism, sampling):
    event = Event(mechanism, 2.0, **sampling)
    for ask in (
        lambda: epsilon({event: 1}, 1e-5),
        lambda: epsilon({make("gaussian", 1.0): 1, event: 1}, 1e-5),
        lambda: accountant_name({event: 1}),
        lambda: affordable(event, 1.0, 1e-5),
        lambda: calibrate(1.0, 1e-5, 10, mechanism=mechanism, **sampling),
        lambda: table(event, 1e-5, [1]),
    ):
        with pytest.raises(check.NoGuarantee, match=f"no proof covers {mechanism} noise on {event.sampling} batches"):
            ask()


def test_relations_do_not_mix():
    one, other = Event("gaussian", 3.0), Event("gaussian", 3.0, relation="replace-client")
    with pytest.raises(check.NoGuarantee, match=r"different neighbouring relations \(replace-client, replace-one\)"):
        epsilon({one: 1, other: 1}, 1e-5)
    with pytest.raises(check.NoGuarantee, match="different neighbouring relations"):
        affordable(one, 1.0, 1e-5, {other: 1})
    with pytest.raises(check.NoGuarantee, match="different neighbouring relations"):
        epsilon({make("poisson", 3.0): 1, make("fixed-size", 3.0): 1}, 1e-5)
    assert epsilon({one: 1, other: 0}, 1e-5) == epsilon({one: 1}, 1e-5)
    assert affordable(one, 1.0, 1e-5, {other: 0}) == affordable(one, 1.0, 1e-5)


def test_invalid_input():
    event = make("gaussian", 3.0)
    for delta in (0.0, 1.0, -1e-5, math.nan):
        with pytest.raises(check.InvalidInput, match=r"epsilon: delta must lie in \(0, 1\)"):
            epsilon({event: 1}, delta)
        with pytest.raises(check.InvalidInput, match="delta must lie"):
            affordable(event, 1.0, delta)
        with pytest.raises(check.InvalidInput, match="delta must lie"):
            affordable(make("discrete-gaussian", 3.0), 1.0, delta)
        with pytest.raises(check.InvalidInput, match="calibrate: delta must lie"):
            calibrate(1.0, delta, 10)
    with pytest.raises(check.InvalidInput, match="delta must lie"):
        epsilon({Event("laplace", 1.0): 1, event: 1}, 0.0)
    for count in (-1, 1.5, True):
        with pytest.raises(check.InvalidInput, match="count must be a whole number >= 0"):
            epsilon({event: count}, 1e-5)  # pyright: ignore[reportArgumentType]
        with pytest.raises(check.InvalidInput, match="count must be a whole number >= 0"):
            affordable(event, 1.0, 1e-5, {event: count})  # pyright: ignore[reportArgumentType]
    with pytest.raises(check.InvalidInput, match="calibrate: epsilon must be > 0"):
        calibrate(0.0, 1e-5, 10)
    with pytest.raises(check.InvalidInput, match="calibrate: answers must be a whole number >= 1"):
        calibrate(1.0, 1e-5, 0)
    with pytest.raises(check.InvalidInput, match="Poisson sampling needs add-remove"):
        calibrate(1.0, 1e-5, 10, sampling="poisson", rate=0.1)
    with pytest.raises(check.InvalidInput, match="budget_epsilon must be > 0"):
        affordable(event, 0.0, 1e-5)


# ------------------------------------------------------------------------------------------------------ monotonicity


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(CHEAP),
    noise=st.floats(0.3, 200),
    count=st.integers(1, 5000),
    log_delta=st.floats(-40, -1),
    more=st.floats(1.0, 3.0),
    answers=st.integers(0, 500),
)
def test_more_noise_fewer_answers_and_larger_delta_never_cost_more(kind, noise, count, log_delta, more, answers):
    delta = 10**log_delta
    base = epsilon({make(kind, noise): count}, delta)
    slack = 1 + 1e-9
    assert epsilon({make(kind, noise * more): count}, delta) <= base * slack
    assert epsilon({make(kind, noise): count + answers}, delta) * slack >= base
    assert epsilon({make(kind, noise): count}, min(delta * more, 0.5)) <= base * slack


@settings(max_examples=8, deadline=None)
@given(
    noise=st.floats(1.0, 20),
    rate=st.floats(0.005, 0.9),
    count=st.integers(1, 2000),
    log_delta=st.floats(-14, -2),
    more=st.floats(1.0, 2.0),
)
@example(noise=4.0, rate=0.01, count=1000, log_delta=-5, more=1.2)
def test_poisson_batches_are_monotone_too(noise, rate, count, log_delta, more):
    delta = 10**log_delta
    assume(count / noise**2 < 400)

    def cost(noise: float, rate: float, count: int, delta: float) -> float:
        return epsilon({Event("gaussian", noise, "poisson", "add-remove", rate): count}, delta)

    base = cost(noise, rate, count, delta)
    slack = 1 + 1e-4  # of Fourier transforms: delta pays for their rounding, which is not monotone
    assert cost(noise * more, rate, count, delta) <= base * slack
    assert cost(noise, rate / more, count, delta) <= base * slack
    assert cost(noise, rate, max(1, int(count / more)), delta) <= base * slack
    assert cost(noise, rate, count, min(delta * more, 0.5)) <= base * slack
    assert base <= epsilon({Event("gaussian", noise): count}, delta) * slack


# ------------------------------------------------------------------------------------- calibration and what is left


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(CHEAP),
    log_eps=st.floats(-2, 1.5),
    log_delta=st.floats(-12, -2),
    answers=st.integers(1, 10_000),
)
def test_calibration_uses_the_budget_and_never_more(kind, log_eps, log_delta, answers):
    eps, delta = 10**log_eps, 10**log_delta
    noise = calibrate(eps, delta, answers, **KINDS[kind])
    cost = epsilon({make(kind, noise): answers}, delta)
    assert cost <= eps
    assert cost == pytest.approx(eps, rel=1e-6) or noise < 0.15
    assert affordable(make(kind, noise), eps, delta) == answers or noise < 0.15


@pytest.mark.parametrize("spent", [{}, {Event("gaussian", 40.0): 3}], ids=["alone", "beside others"])
def test_what_is_affordable_costs_no_more_than_the_budget_to_the_last_bit(spent):
    """Whoever chose the noise: at multipliers around that at which the last answer just fits."""
    left = gaussian_mu(1.0, 1e-5) ** 2 - sum(count / event.noise_multiplier**2 for event, count in spent.items())
    for answers in (1, 7, 100, 12_345):
        for step in range(-60, 60):
            event = Event("gaussian", math.sqrt(answers / left) * (1 + step * 2e-14))
            most = affordable(event, 1.0, 1e-5, spent)
            assert epsilon({**spent, event: most}, 1e-5) <= 1.0 < epsilon({**spent, event: most + 1}, 1e-5)


@pytest.mark.parametrize("delta", [0.9, 0.99, 0.991, 0.9999, 1 - 1e-12])
def test_a_plan_uses_its_budget_where_delta_is_near_one(delta):
    for answers in (1, 100, 10**6):
        event = Event("gaussian", calibrate(1.0, delta, answers))
        assert affordable(event, 1.0, delta) == answers
    assert affordable(Event("gaussian", 2000.0), 1.0, delta) >= 10**6


@pytest.mark.parametrize("kind", ["laplace", "randomized-response"])
def test_pure_epsilons_are_never_too_small(kind):
    rng = np.random.default_rng(0)
    for _ in range(2000):
        spent = {Event(kind, 10 ** rng.uniform(-1, 3)): int(rng.integers(1, 1000)) for _ in range(rng.integers(1, 4))}
        exact = sum(Fraction(count) / Fraction(event.noise_multiplier) for event, count in spent.items())
        assert exact <= Fraction(epsilon(spent, 0.0)) <= exact * (1 + Fraction(1, 2**52))


def test_zcdp_epsilons_are_never_too_small():
    """At the best order to 50 digits: any order gives a bound, but none a smaller one."""
    rng = np.random.default_rng(0)
    with mpmath.workdps(50):
        for _ in range(400):
            noise, count, delta = 10 ** rng.uniform(-1, 9), int(rng.integers(1, 1000)), 10 ** rng.uniform(-12, -1)
            rho, goal = mpmath.mpf(count) / mpmath.mpf(noise) ** 2 / 2, -mpmath.log(mpmath.mpf(delta))
            above = mpmath.sqrt(goal / rho)
            for _ in range(60):  # Newton's method for rho a² + log(1 + a) = log(1/delta)
                step = (rho * above**2 + mpmath.log1p(above) - goal) / (2 * rho * above + 1 / (1 + above))
                above = above - step if step < above else above / 2
            best = rho * (1 + above) + mpmath.log(above / (1 + above)) + (goal - mpmath.log1p(above)) / above
            found = epsilon({Event("discrete-gaussian", noise): count}, delta)
            assert max(0, best) <= found <= max(0, best) * (1 + mpmath.mpf("2e-11")) + mpmath.mpf("1e-13")


def test_a_plan_fits_where_nearly_all_of_the_budget_was_spent_before():
    spent = {Event("discrete-gaussian", 3.0): 5}
    for room in (1e-9, 1e-10, 3e-11):
        budget = epsilon(spent, 1e-5) * (1 + room)
        noise = calibrate(budget, 1e-5, 1000, spent=spent, mechanism="discrete-gaussian")
        assert affordable(Event("discrete-gaussian", noise), budget, 1e-5, spent) == 1000


def test_sums_are_rounded_up_to_a_number_or_to_infinity():
    third = Fraction(1, 3)
    assert math.nextafter(bounds._rounded_up(third), 0.0) < third <= bounds._rounded_up(third)
    assert bounds._rounded_up(Fraction(1, 4)) == 0.25
    assert bounds._rounded_up(Fraction(10) ** 400) == math.inf


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 3.0])
def test_epsilon_is_zero_only_where_it_is(mu):
    at_zero = math.erf(mu / math.sqrt(8))
    with mpmath.workdps(60):
        exact = mpmath.erf(mpmath.mpf(mu) / mpmath.sqrt(8))
        for step in range(-8, 9):
            delta = at_zero * (1 + step * 2**-52)
            assert gaussian_epsilon(mu, delta) > 0 or exact <= delta


def test_a_plan_fits_where_functions_differ_in_their_last_bits(monkeypatch):
    """On another machine an answer may seem to cost a little more."""
    plans = [Event("gaussian", calibrate(1.0, 1e-5, answers)) for answers in range(1, 200)]
    monkeypatch.setattr(calibration, "cost", lambda *given: bounds.cost(*given) * (1 + 1e-12))
    assert [affordable(event, 1.0, 1e-5) for event in plans] == [*range(1, 200)]


def test_calibrated_noise_has_few_digits():
    """So a plan has the same noise on machines whose functions differ in their last bits: draws are bound to it."""
    for answers in range(1, 100):
        noise = calibrate(1.0, 1e-5, answers)
        assert noise == float(f"{noise:.9e}")
        assert (
            math.sqrt(answers) / gaussian_mu(1.0, 1e-5)
            < noise
            < math.sqrt(answers) / gaussian_mu(1.0, 1e-5) * (1 + 2e-9)
        )


def test_calibrated_gaussian_affords_exactly_the_plan():
    draw = random.Random(0)
    for answers in [*range(1, 150), *draw.sample(range(150, 10_001), 150), 10**6, 10**8]:
        for eps, delta in ((1.0, 1e-5), (0.1, 1e-8), (12.0, 1e-3)):
            event = Event("gaussian", calibrate(eps, delta, answers))
            assert affordable(event, eps, delta) == answers
            used = draw.randrange(answers + 1)
            assert affordable(event, eps, delta, {event: used}) == answers - used
            assert affordable(event, eps, delta, {event: answers + 1}) == 0


@pytest.mark.parametrize(("eps", "delta", "answers", "rate"), [(1.0, 1e-5, 300, 0.03), (0.2, 1e-6, 2000, 0.05)])
def test_calibrated_poisson_batches_afford_exactly_the_plan(eps, delta, answers, rate):
    noise = calibrate(eps, delta, answers, sampling="poisson", relation="add-remove", rate=rate)
    event = Event("gaussian", noise, "poisson", "add-remove", rate)
    assert eps * (1 - 1e-4) < epsilon({event: answers}, delta) <= eps < epsilon({event: answers + 1}, delta)
    assert affordable(event, eps, delta) == answers
    assert affordable(event, eps, delta, {event: 100}) == answers - 100


def test_no_noise_is_asked_for_less_than_nothing():
    # delta = 0.3 covers ten answers at rate 1 % whatever they say.
    assert 0 < calibrate(1.0, 0.3, 10, sampling="poisson", relation="add-remove", rate=0.01) <= 0.1


def test_pure_calibration_without_delta():
    for mechanism in ("laplace", "randomized-response"):
        for answers in (1, 3, 7, 49, 1000):
            event = Event(mechanism, calibrate(0.7, 0.0, answers, mechanism=mechanism))
            assert answers / 0.7 <= event.noise_multiplier <= answers / 0.7 * (1 + 2e-9)
            assert epsilon({event: answers}, 0.0) <= 0.7
            assert affordable(event, 0.7, 0.0) == answers
            assert affordable(event, 0.7, 0.0, {event: answers}) == 0


def test_affordable_after_other_events():
    event, other = Event("gaussian", 30.0), Event("gaussian", 12.0)
    for spent, budget in [
        ({other: 3}, 2.0),
        ({Event("laplace", 8.0): 2}, 2.0),
        ({Event("discrete-gaussian", 12.0): 3, other: 1}, 2.0),
        ({make("fixed-size", 4.0): 40}, 2.0),
        ({other: np.int64(3)}, 2.0),
    ]:
        more = affordable(event, budget, 1e-5, spent)
        assert more > 0
        assert epsilon({**spent, event: more}, 1e-5) <= budget
        assert epsilon({**spent, event: more + 1}, 1e-5) > budget
    assert affordable(event, 2.0, 1e-5, {Event("laplace", 0.4): 1}) == 0
    assert affordable(make("fixed-size", 4.0), 1.0, 1e-5, {Event("gaussian", 0.5): 1}) == 0


def test_affordable_stops_at_the_most_asked_for():
    for kind in KINDS:
        assert affordable(make(kind, 1e4), 5.0, 1e-5, at_most=7) == 7
        assert affordable(make(kind, 1e4), 5.0, 1e-5, at_most=0) == 0


def test_table():
    event = make("fixed-size", 3.0)
    assert table(event, 1e-5, [0, 1, 100]) == [(n, epsilon({event: n}, 1e-5)) for n in (0, 1, 100)]
