"""Discrete Gaussian noise by Theorem 2: against exact sums over integers, against 360 digits, against dp-accounting."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.auditing.second_accountant import agree, second_epsilon
from sottovoce.core import check
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.histories import Counted, Kept
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import accounting, ranges
from sottovoce.privacy.accounting.discrete import (
    closeness,
    closeness_of_sum,
    equivalent_multiplier,
    slack,
    theta,
)
from sottovoce.privacy.accounting.gaussian import gaussian_delta
from sottovoce.privacy.calibration import AnswerShape
from sottovoce.privacy.events import Event, GridEvent, make_event, pack_event

GRID = 2**24 + 1
POISSON: dict[str, Any] = {"sampling": "poisson", "relation": "add-remove", "rate": 0.03}
FIXED: dict[str, Any] = {"sampling": "fixed-size", "batch": 10, "size": 326}
SCALES = (0.7, 1.0, 2.0)


def discrete_delta(
    epsilon: float,
    scale: float,
    sensitivity: float,
    answers: int = 1,
    coordinates: int = 1,
    contributors: int = 1,
    *,
    smoothing: float,
) -> float:
    """Theorem 2 for full batches: a bound on the delta of discrete Gaussian noise at `epsilon`."""
    total = answers * slack(scale, coordinates, contributors, smoothing)
    if not 2 * total <= epsilon:
        return 1.0
    mu = math.sqrt(answers) / equivalent_multiplier(scale, sensitivity, contributors, smoothing)
    return min(1.0, math.exp(total) * gaussian_delta(mu, epsilon - 2 * total))


def grid_event(noise: float = 1.0, **more: Any) -> GridEvent:
    return GridEvent("discrete-gaussian", noise, **{"sensitivity": 2 * GRID, "coordinates": 104, **more})


def probabilities(scale: float, contributors: int = 1) -> np.ndarray:
    """Of a sum of discrete Gaussians at ..., −1, 0, 1, ..., by convolution: all terms are positive, nothing cancels."""
    z = np.arange(-math.ceil(25 * scale), math.ceil(25 * scale) + 1)
    one = np.exp(-(z**2) / (2 * scale**2))
    one /= one.sum()
    total = one
    for _ in range(contributors - 1):
        total = np.convolve(total, one)
    return total


def shifted(p: np.ndarray, by: int) -> tuple[np.ndarray, np.ndarray]:
    """The law moved by `by`, and the law itself, on the same integers."""
    return np.concatenate([np.zeros(by), p]), np.concatenate([p, np.zeros(by)])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def product(p: np.ndarray, times: int) -> np.ndarray:
    """The joint law of independent answers, flat."""
    joint = p
    for _ in range(times - 1):
        joint = np.outer(joint, p).reshape(-1)
    return joint


def smoothings(scale: float, contributors: int = 1) -> np.ndarray:
    return np.array([0.3, 0.5, 0.7, 0.9]) * scale * math.sqrt(contributors)


# ------------------------------------------------------------------------------------------------------------- lemmas


@pytest.mark.parametrize("variance", [0.08, 0.1225, 0.3, 0.49, 1.0, 2.0, 4.5, 17.0, 35.0])
def test_theta_and_b_are_upper_bounds_to_eleven_digits(variance: float) -> None:
    with mpmath.workdps(360):  # 1 + b has that many
        v = mpmath.mpf(variance)
        exact = 2 * mpmath.nsum(lambda m: mpmath.exp(-2 * mpmath.pi**2 * v * m**2), [1, 60])
        b = mpmath.log((1 + exact) / (1 - exact))
        assert exact <= mpmath.mpf(theta(variance)) <= exact * (1 + mpmath.mpf("1e-11"))
        assert b <= mpmath.mpf(closeness(variance)) <= b * (1 + mpmath.mpf("1e-11"))


def test_what_underflows_is_not_nothing() -> None:
    with mpmath.workdps(60):
        assert mpmath.mpf("1e-549") < 4 * mpmath.exp(-2 * mpmath.pi**2 * 64) < mpmath.mpf("1e-548")
    assert 0 < closeness(64.0) < 1e-300
    assert closeness_of_sum(8.0, 100) == pytest.approx(2e-274, rel=0.1)
    assert closeness_of_sum(8.0, 1) == 0.0
    assert closeness(0.03) == math.inf


@pytest.mark.parametrize("variance", [0.15, 0.3, 1.0])
def test_sums_over_integers_are_within_theta(variance: float) -> None:
    z, centres = np.arange(-40, 41), np.random.default_rng(0).uniform(-1, 1, 200)
    sums = np.exp(-((z - centres[:, None]) ** 2) / (2 * variance)).sum(axis=1) / math.sqrt(2 * math.pi * variance)
    assert np.abs(sums - 1).max() <= theta(variance)
    assert np.abs(sums - 1).max() > 0.9 * theta(variance) or variance == 1.0  # attained at whole numbers


@pytest.mark.parametrize("contributors", [2, 3, 7, 20])
@pytest.mark.parametrize("scale", [0.6, *SCALES])
def test_lemma_1_by_convolution(scale: float, contributors: int) -> None:
    sums = probabilities(scale, contributors)
    z = np.arange(len(sums)) - len(sums) // 2
    whole = np.exp(-(z**2) / (2 * contributors * scale**2))
    whole /= whole.sum()
    inside = np.abs(z) <= 12 * scale * math.sqrt(contributors)  # beyond, `probabilities` was cut off
    ratio = np.abs(np.log(sums[inside] / whole[inside])).max()
    assert ratio <= closeness_of_sum(scale, contributors) + 1e-13
    if scale == 0.6:
        assert ratio > closeness_of_sum(scale, contributors) / 20  # and it is no idle bound


def test_many_contributors_are_bounded_by_the_64th_term() -> None:
    terms = sum(closeness(0.49 * k / (k + 1)) for k in range(1, 200))
    assert terms <= closeness_of_sum(0.7, 200) <= 1.05 * terms
    assert closeness_of_sum(8.0, 2**53) < 1e-250


@pytest.mark.parametrize("scale", SCALES)
def test_lemma_2_by_integration(scale: float) -> None:
    for smoothing in smoothings(scale):
        deviation = math.sqrt(scale**2 - smoothing**2)
        g, step = np.linspace(-12 * deviation, 12 * deviation, 20_001, retstep=True)
        density = np.exp(-(g**2) / (2 * deviation**2)) / (deviation * math.sqrt(2 * math.pi)) * step
        z = np.arange(-math.ceil(25 * scale), math.ceil(25 * scale) + 1)
        given_g = np.exp(-((z - g[:, None]) ** 2) / (2 * smoothing**2))
        rounded = density @ (given_g / given_g.sum(axis=1, keepdims=True))
        inside = np.abs(z) <= 6 * scale
        ratio = np.abs(np.log(rounded[inside] / probabilities(scale)[inside])).max()
        assert ratio <= closeness(smoothing**2) + 1e-9


# ------------------------------------------------------------------------------------------------------------ theorem


@pytest.mark.parametrize("contributors", [1, 2, 5, 20])
@pytest.mark.parametrize("scale", SCALES)
def test_theorem_2_is_never_optimistic(scale: float, contributors: int) -> None:
    worst = 0.0
    for sensitivity in (1, 2, 5, 12):
        p, q = shifted(probabilities(scale, contributors), sensitivity)
        for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
            exact = hockey_stick(p, q, epsilon)
            bounds = [
                discrete_delta(epsilon, scale, sensitivity, contributors=contributors, smoothing=r)
                for r in smoothings(scale, contributors)
            ]
            if exact > 1e-12:
                worst = max(worst, exact / min(bounds))
    assert 0.9 < worst <= 1


@pytest.mark.parametrize(("answers", "coordinates"), [(3, 1), (1, 3), (2, 1)])
@pytest.mark.parametrize("scale", [0.7, 1.0])
def test_theorem_2_for_several_answers_and_coordinates(scale: float, answers: int, coordinates: int) -> None:
    """Three answers that move by (2,), or one that moves by (2, 2, 2): the same law, another sensitivity."""
    p, q = (product(each, answers * coordinates) for each in shifted(probabilities(scale), 2))
    sensitivity = 2 * math.sqrt(coordinates)
    for epsilon in (0.5, 1.0, 3.0, 8.0):
        exact = hockey_stick(p, q, epsilon)
        for r in smoothings(scale):
            assert exact <= discrete_delta(epsilon, scale, sensitivity, answers, coordinates, smoothing=r)


def test_without_the_smoothing_it_would_be_false() -> None:
    """A discrete Gaussian can have 1.2 times the delta of the continuous one with the same scale."""
    for scale, at_least in ((0.7, 1.15), (1.0, 1.1), (2.0, 1.02)):
        ratios = []
        for epsilon in np.linspace(0.1, 4, 200):
            exact = hockey_stick(*shifted(probabilities(scale), 1), epsilon)
            ratios.append(exact / gaussian_delta(1 / scale, epsilon))
        assert at_least < max(ratios) < 1.6


def poisson_delta(epsilon: float, noise: float, rate: float) -> float:
    """Of one Poisson-sampled continuous Gaussian, in closed form: the worse of the two directions.

    With the mixture M = (1 − q) N(0) + q N(1) and the blank B = N(0): (M − e^ε B)⁺ = q (N(1) − e^x B)⁺ where
    q e^x = e^ε − 1 + q, and (B − e^ε M)⁺ = (1 − (1 − q) e^ε) B − q e^ε N(1), positive where N(1)/B is small.
    """
    there = rate * gaussian_delta(1 / noise, math.log1p(math.expm1(epsilon) / rate))
    left = 1 - (1 - rate) * math.exp(epsilon)
    if left <= 0:
        return there
    ratio = left / (rate * math.exp(epsilon))  # (B − e^ε M)⁺ = q e^ε (ratio B − N(1))⁺; ratio <= 1
    blank = rate * math.exp(epsilon) * ratio * gaussian_delta(1 / noise, -math.log(ratio))
    return max(there, blank)


def test_the_closed_form_for_poisson_batches_is_right() -> None:
    x = np.linspace(-12, 13, 400_001)
    blank, moved = (np.exp(-((x - at) ** 2) / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0]) for at in (0, 1))
    mixture = 0.7 * blank + 0.3 * moved
    for epsilon in (0.1, 0.3, 1.0):
        both = hockey_stick(mixture, blank, epsilon), hockey_stick(blank, mixture, epsilon)
        assert poisson_delta(epsilon, 1.0, 0.3) == pytest.approx(max(both), rel=1e-5)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("scale", SCALES)
def test_poisson_batches_against_exact_mixtures(scale: float, rate: float) -> None:
    worst = 0.0
    for contributors, sensitivity in ((1, 1), (1, 3), (4, 2), (10, 6)):
        moved, blank = shifted(probabilities(scale, contributors), sensitivity)
        mixture = (1 - rate) * blank + rate * moved
        for epsilon in (0.2, 0.7, 2.0):
            exact = max(hockey_stick(mixture, blank, epsilon), hockey_stick(blank, mixture, epsilon))
            bounds = []
            for r in smoothings(scale, contributors):
                a = slack(scale, 1, contributors, r)
                noise = equivalent_multiplier(scale, sensitivity, contributors, r)
                bounds.append(math.exp(a) * poisson_delta(epsilon - 2 * a, noise, rate) if epsilon > 2 * a else 1.0)
            if exact > 1e-12:
                worst = max(worst, exact / min(bounds))
    assert 0.5 < worst <= 1


@pytest.mark.parametrize(
    ("event", "answers"),
    [
        (grid_event(1.25, sensitivity=8, coordinates=1), 2),
        (grid_event(3.0, sensitivity=4, coordinates=1), 2),
        (grid_event(0.9, sensitivity=10, coordinates=1, relation="add-remove", sampling="poisson", rate=0.3), 1),
        (grid_event(2.0, sensitivity=6, coordinates=1, relation="add-remove", sampling="poisson", rate=0.2), 2),
        (grid_event(2.0, sensitivity=6, coordinates=1, sampling="fixed-size", batch=1, size=3), 2),
        (grid_event(2.4, sensitivity=30, coordinates=1, contributors=20), 1),
    ],
)
def test_the_accountant_is_never_optimistic(event: GridEvent, answers: int) -> None:
    """Its epsilon, held against the exact law of whole numbers with scales of 9 to 16 grid steps."""
    by = int(event.sensitivity)
    p, q = shifted(probabilities(event.scale, event.contributors), by)
    if event.sampling == "poisson":
        p = (1 - event.rate) * q + event.rate * p
    if event.sampling == "fixed-size":  # the record is 0 or `by`, and each of the others is 0
        p = (1 - event.batch / event.size) * q + event.batch / event.size * p
    p, q = product(p, answers), product(q, answers)
    for delta in (1e-2, 1e-4, 1e-6):
        epsilon = accounting.epsilon({event: answers}, delta)
        assert max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) <= delta
        assert agree(epsilon, second_epsilon({event: answers}, delta), {event: answers})


@pytest.mark.parametrize(("noise", "sensitivity", "answers"), [(3.0, 5, 30), (5.0, 8, 100), (20.0, 1, 500)])
def test_against_the_privacy_losses_of_dp_accounting(noise: float, sensitivity: int, answers: int) -> None:
    """Exact losses of discrete Gaussians, composed: less than ours, by the 64 grid steps² of variance."""
    event = grid_event(noise, sensitivity=sensitivity, coordinates=1)
    losses: Any = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        event.scale, sensitivity=sensitivity, value_discretization_interval=1e-4
    )
    theirs = losses.self_compose(answers).get_epsilon_for_delta(1e-5)
    ours = accounting.epsilon({event: answers}, 1e-5)
    more_noise = event.scale / math.sqrt(event.scale**2 - 64)
    assert theirs * (1 - 1e-3) <= ours <= theirs * more_noise**1.5


# -------------------------------------------------------------------------------------------------------- accounting


@pytest.mark.parametrize("answers", [1, 100, 10_000])
def test_seven_per_cent_less_noise_than_zcdp(answers: int) -> None:
    by_zcdp = accounting.calibrate(1.0, 1e-5, answers, mechanism="discrete-gaussian")
    planned = accounting.with_least_noise(grid_event(), 1.0, 1e-5, answers)
    assert planned.noise_multiplier <= 0.93 * by_zcdp
    assert planned.noise_multiplier == pytest.approx(accounting.calibrate(1.0, 1e-5, answers), rel=1e-12)
    kind: dict[str, Any] = {"mechanism": "discrete-gaussian", "sensitivity": 2 * GRID, "coordinates": 104}
    assert accounting.calibrate(1.0, 1e-5, answers, **kind) == planned.noise_multiplier
    assert accounting.accountant_name({planned: answers}, 1e-5) == (
        "exact Gaussian trade-off, discrete noise by Theorem 2"
    )


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([{}, FIXED]),
    log_eps=st.floats(-2, 1.3),
    log_delta=st.floats(-12, -2),
    answers=st.integers(1, 5000),
    sensitivity=st.sampled_from([1.5, 30, 2 * GRID]),
    contributors=st.sampled_from([1, 53]),
)
def test_calibration_uses_the_budget_and_never_more(
    kind: dict[str, Any], log_eps: float, log_delta: float, answers: int, sensitivity: float, contributors: int
) -> None:
    eps, delta = 10**log_eps, 10**log_delta
    like = grid_event(100.0, sensitivity=sensitivity, contributors=contributors, **kind)
    event = accounting.with_least_noise(like, eps, delta, answers)
    assert isinstance(event, GridEvent)
    assert event.scale > 8
    cost = accounting.epsilon({event: answers}, delta)
    assert cost <= eps
    least = event.scale < 8.001 or event.noise_multiplier < 0.15
    assert least or cost == pytest.approx(eps, rel=1e-6)
    assert least or accounting.affordable(event, eps, delta) == answers


def test_random_batches_have_a_guarantee() -> None:
    for kind in (POISSON, FIXED):
        event = accounting.with_least_noise(grid_event(sensitivity=GRID, **kind), 1.0, 1e-5, 300)
        continuous = Event("gaussian", event.noise_multiplier, **kind)
        assert accounting.epsilon({event: 300}, 1e-5) == pytest.approx(
            accounting.epsilon({continuous: 300}, 1e-5), rel=1e-6
        )
        assert 0.999 < accounting.epsilon({event: 300}, 1e-5) <= 1.0
        assert accounting.affordable(event, 1.0, 1e-5) == 300
        plain = Event("discrete-gaussian", event.noise_multiplier, **kind)  # a grid that is not known has no proof
        with pytest.raises(check.NoGuarantee, match="no proof covers discrete-gaussian noise on"):
            accounting.epsilon({plain: 300}, 1e-5)


def test_one_budget_with_other_noise() -> None:
    on_grid, seeded, old = grid_event(40.0), Event("gaussian", 40.0), Event("discrete-gaussian", 40.0)
    both = accounting.epsilon({on_grid: 50, seeded: 50}, 1e-5)
    assert both == pytest.approx(accounting.epsilon({seeded: 100}, 1e-5), rel=1e-9)
    assert accounting.affordable(on_grid, both, 1e-5, {seeded: 50}) == 50
    assert accounting.epsilon({on_grid: 50, old: 50}, 1e-5) == pytest.approx(
        accounting.epsilon({old: 100}, 1e-5), rel=1e-9
    )
    planned = accounting.with_least_noise(grid_event(), 2.0, 1e-5, 20, spent={seeded: 50})
    expected = accounting.calibrate(2.0, 1e-5, 20, spent={seeded: 50})
    assert planned.noise_multiplier == pytest.approx(expected, rel=1e-9)
    with pytest.raises(check.NoGuarantee, match="different neighbouring relations"):
        accounting.epsilon({on_grid: 1, Event("gaussian", 3.0, relation="add-remove"): 1}, 1e-5)
    rest = {on_grid: 50, Event("laplace", 30.0): 1}
    assert accounting.accountant_name(rest, 1e-5) == "pure DP added to the rest, discrete noise by Theorem 2"


def test_counts_for_ranges_take_the_smaller_noise() -> None:
    """Theorem 2 costs 64 steps² of variance, and the grid of counts is coarse: with little noise zCDP is better."""
    secure = sv.Proven(3.0, 1e-5, 1.0, noise="secure")
    for features, epsilon, on_grid in ((10, 0.1, True), (1, 2.0, False)):
        plain = accounting.with_least_noise(Event("discrete-gaussian", 1.0), epsilon, 1e-6, ranges.ANSWERS)
        event = ranges.plan_counts(epsilon, 1e-6, secure, features)
        assert isinstance(event, GridEvent) == on_grid
        assert (event.noise_multiplier < 0.93 * plain.noise_multiplier) == on_grid
        assert event.noise_multiplier <= plain.noise_multiplier
        assert epsilon * (1 - 1e-6) < accounting.epsilon({event: 2}, 1e-6) <= epsilon
        if isinstance(event, GridEvent):
            assert event.scale == ranges.noise_scale(event, features)
            assert (event.sensitivity, event.coordinates) == (math.sqrt(20), 620)


@pytest.mark.parametrize(
    "spent",
    [
        {grid_event(40.0): 100},
        {grid_event(40.0, contributors=53, row_bound=2.0): 10, Event("gaussian", 30.0): 20},
        {grid_event(9.0, sensitivity=1.5, coordinates=40): 5, Event("laplace", 50.0): 2},
        {grid_event(30.0): 20, Event("discrete-gaussian", 30.0): 5},
        {grid_event(2.35, sensitivity=GRID, **POISSON): 500},
        {grid_event(1.146, **FIXED): 500},
    ],
)
def test_two_accountants_agree(spent: dict[Event, int]) -> None:
    assert agree(accounting.epsilon(spent, 1e-5), second_epsilon(spent, 1e-5), spent)


# ---------------------------------------------------------------------------------------------- events and ledgers


@pytest.mark.parametrize(
    ("privacy", "method"),
    [
        (sv.Proven(1.0, 1e-5, 1.0, noise="secure"), sv.DPADMM()),
        (sv.Proven(1.0, 1e-5, 1.0, unit="client", noise="secure"), sv.DPADMM()),
        (
            sv.ProvenColumns(1.0, 1e-5, "party", 1.0, variant="clip", model_bound=1.0, noise="secure"),
            sv.ADMMSharing(),
        ),
    ],
    ids=["record", "client", "party"],
)
def test_nobody_is_told_that_others_add_noise_too(privacy: Any, method: Any) -> None:
    """A server that names contributors would get less noise from a node that charges for all of it."""
    asks, shape = method.asks(), AnswerShape(5, 5)
    (event,) = privacy.plan(asks, 10, np.array([50]), shape=shape)
    assert isinstance(event, GridEvent)
    changes: tuple[dict[str, Any], ...] = ({}, {"contributors": 100}, {"sensitivity": event.sensitivity / 2})
    known = [privacy.is_answer(replace(event, **change), asks.parts[0], 50, None, shape) for change in changes]
    assert known == [True, False, False]


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"mechanism": "gaussian"}, "mechanism must be 'discrete-gaussian'"),
        ({"noise_multiplier": 4.0, "sensitivity": 2}, "a finite scale above 8 grid steps, got 8.0"),
        ({"noise_multiplier": 80.0, "sensitivity": 2, "contributors": 400}, "a finite scale above 8 grid steps"),
        ({"noise_multiplier": 1e300, "sensitivity": 1e300}, "a finite scale above 8 grid steps"),
        ({"sensitivity": -1.0}, "sensitivity must be > 0"),
        ({"coordinates": 0}, r"coordinates must lie in 1..2\*\*53"),
        ({"coordinates": 10**400}, r"coordinates must lie in 1..2\*\*53"),
        ({"contributors": 2.5}, r"contributors must lie in 1..2\*\*53"),
        ({"sampling": "poisson", "rate": 0.1}, "Poisson sampling needs add-remove"),
    ],
)
def test_what_no_answer_can_be_is_refused(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(check.InvalidInput, match=rule):
        replace(grid_event(40.0), **wrong)


def test_an_event_survives_json() -> None:
    events: list[Event] = [grid_event(40.0, contributors=3, row_bound=2.5), Event("discrete-gaussian", 40.0)]
    for event in events:
        again = make_event(**json.loads(json.dumps(pack_event(event))))
        assert again == event
        assert type(again) is type(event)
    assert events[0] != Event("discrete-gaussian", 40.0, row_bound=2.5)


def test_ledgers_keep_the_grid(tmp_path: Path) -> None:
    """In files, in messages, in run folders and in checkpoints; and an old charge without it costs what it did."""
    new, old = grid_event(40.0), Event("discrete-gaussian", 40.0)
    with FileLedger.create(tmp_path / "ledger", "hospital", "ab" * 32, Budget(2.0, 1e-5)) as ledger:
        for question, event in enumerate((new, new, old)):
            ledger.charge(event, run="2f" * 16, round=1, question=question, purpose="training")
        assert ledger.spent() == {new: 2, old: 1}
        assert ledger.epsilon() == accounting.epsilon({new: 2, old: 1}, 1e-5)
        kept = Kept.of(ledger.rows())
    with FileLedger.open(tmp_path / "ledger") as ledger:
        assert ledger.spent() == kept.spent() == {new: 2, old: 1}
        assert ledger.remaining(new) > accounting.affordable(old, 2.0, 1e-5) / 2
    charges = Charges((new,), 1, (kept, Counted.of({new: 2})), ((0, 1),), "2f" * 16)
    again = Charges.from_dict(json.loads(json.dumps(charges.to_dict())))
    assert again == charges
    assert [history.fault() for history in again.histories] == ["", ""]
    memory = MemoryLedger(Budget(1.0, 1e-5), (2,))
    planned = accounting.with_least_noise(new, 1.0, 1e-5, 3)
    memory.charge(planned)
    other = MemoryLedger(Budget(1.0, 1e-5), (2,))
    other.restore(memory.state())
    assert other.spent(1) == {planned: 1}
    assert other.afford(planned, 2).all()
    assert not other.afford(planned, 3).any()
