"""Rules: from public numbers to constants. Closed forms, one unit for all losses, and methods that agree."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce import rules
from sottovoce.algorithms import DPSGD, FedEPM, Moments, MomentsThenGradients, NoisyGD
from sottovoce.core import moments
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import Bernoulli, Covering, KOfN, Participation, Schedule
from sottovoce.experiment.task import Task
from sottovoce.privacy import accounting
from sottovoce.problems.losses import (
    Huber,
    Logistic,
    Loss,
    SmoothedHinge,
    Softmax,
    Squared,
    WeightedLogistic,
    WeightedSoftmax,
)
from sottovoce.rules import METHODS, Descent, PublicNumbers, choose, descent

ADULT = PublicNumbers(40_000, 100, 148, 1.0, 1e-5)


def with_noise(s: float, columns: int = 148) -> PublicNumbers:
    """Numbers of one client whose one mean gradient has this noise."""
    mu = accounting.gaussian_mu(1.0, 1e-5)
    return PublicNumbers(round(1 / (mu * s)), 1, columns, 1.0, 1e-5)


def score_variance(rule: Descent) -> float:
    """Of the noise on a score, round by round, where all directions bend alike: rows of length 1, 1/(4d) in each."""
    pull = np.array([[rule.momentum, -rule.step / (4 * rule.columns)], [0.0, 0.0]])
    pull[1] = pull[0] + [0.0, 1.0]  # of velocity and model
    new = rule.rounds * (rule.step * rule.noise) ** 2 * np.ones((2, 2))
    spread = np.zeros((2, 2))
    for _ in range(rule.rounds):
        spread = pull @ spread @ pull.T + new
    return float(spread[1, 1])


def test_what_steps_add_up_to_is_what_was_walked() -> None:
    """A gradient that stays the same moves the model that far."""
    for most in (1, 2, 60):
        rule = descent(ADULT, most)
        w = v = 0.0
        for _ in range(rule.rounds):
            v = rule.momentum * v + rule.step
            w += v
        assert rule.walked == pytest.approx(w)
        assert f"add up to {w:.3g}: " in rule.words()
    assert descent(ADULT, 1).words().endswith("1 round of step 8")
    assert descent(ADULT, 1).time > 1000  # how far it should go
    long = replace(ADULT, row_bound=10.0, loss=WeightedLogistic((3.0, 3.0)))
    assert descent(long).walked == pytest.approx(descent(ADULT).walked)
    assert descent(long).shrink == pytest.approx(descent(ADULT).shrink)


@pytest.mark.parametrize("s", [0.5, 0.05, 0.02, 0.004, 0.0009, 0.0001])
def test_the_constants_of_descent_are_those_of_the_formula(s: float) -> None:
    rule = descent(with_noise(s))
    s = rule.noise
    time = min(min(15 / math.sqrt(148), 1.5) / s, max(0.008 / s**2, min(8, 0.04 / s**2)))
    assert rule.time == pytest.approx(time)
    if time <= 480:
        assert (rule.rounds, rule.momentum) == (max(1, math.ceil(time / 8)), 0.0)
        assert rule.rounds * rule.step == pytest.approx(time)
    else:
        assert (rule.rounds, rule.step) == (60, 8.0)
        assert rule.momentum == pytest.approx(min(0.9, 1 - 480 / time))
    assert rule.shrink == pytest.approx(1 / math.sqrt(1 + math.pi * score_variance(rule) / 8))
    assert rule.rounds > 1 or score_variance(rule) == pytest.approx((time * s) ** 2)
    assert rule.drowned == (0.04 / s**2 < 8)


def test_the_stated_noise_is_the_noise_of_one_mean_gradient() -> None:
    """Beside the plan of a real run: N answers of deviation multiplier times sensitivity, averaged."""
    for unit, relation in (("record", "replace-one"), ("record", "add-remove"), ("client", "replace-one")):
        public = replace(ADULT, unit=unit, relation=relation, loss=Softmax(3), row_bound=2.0)
        privacy = sv.Proven(1.0, 1e-5, public.clip_norm, unit=unit, relation=relation)  # type: ignore[arg-type]
        event = privacy.plan(NoisyGD().asks(), 1, np.full(100, 400))[0]
        reach = 1 if relation == "add-remove" else 2
        weight = 1 / 400 if unit == "record" else 1.0
        deviation = event.noise_multiplier * reach * privacy.clip * weight / math.sqrt(100)
        assert public.noise * 2 * public.slope * public.row_bound == pytest.approx(deviation, rel=1e-9)


IN_TURN = Schedule(tuple((client,) for client in range(100)))
UNEQUAL = Bernoulli([0.1] * 50 + [0.3] * 50)
ASKED = [(KOfN(10), 10), (Bernoulli(0.2), 20), (UNEQUAL, 20), (Covering(5, 20), 5), (IN_TURN, 1)]


@pytest.mark.parametrize(("who", "answers"), ASKED)
def test_fewer_answers_in_a_round_are_more_noise_on_their_mean(who: Participation, answers: int) -> None:
    """Beside the plan of a real run of 100 rounds. Clients that take turns have a whole budget for their one answer."""
    public = replace(ADULT, answers=who.answers(100), pace=who.pace)
    assert public.answers == pytest.approx(answers)
    goal, privacy = sv.Objective(sv.Logistic(), scale="records"), sv.Proven(1.0, 1e-5, 0.5)
    sizes = np.full(100, 400)
    planned = Task(NoisyGD(), goal, privacy, who, rounds=100).plan(sizes, 148, row_bound=1.0)[0]
    deviation = planned.noise_multiplier * 2 * 0.5 / 400 / math.sqrt(answers)
    assert public.noise * math.sqrt(100) == pytest.approx(deviation, rel=1e-6)
    ruled = Task.by_rule(rules.Rule(), goal, privacy, participation=who).ruled(sizes, 148, 1.0)
    assert ruled.algorithm == choose(replace(public, clip=0.5)).algorithm
    assert public.noise / ADULT.noise == pytest.approx(1 if who is IN_TURN else math.sqrt(100 / answers))


def test_longer_rows_take_shorter_steps_to_the_same_margins() -> None:
    """Rows of length R: s is the same, models are R times shorter and gradients R times longer."""
    plain, long = descent(ADULT), descent(replace(ADULT, row_bound=10.0))
    assert (plain.noise, plain.rounds, plain.momentum) == (long.noise, long.rounds, long.momentum)
    assert long.step == pytest.approx(plain.step / 100)


def test_two_classes_of_softmax_go_as_far_as_logistic() -> None:
    """Their margins differ by twice a step, for gradients that are as long."""
    soft = descent(replace(ADULT, loss=Softmax(2), columns=74))
    assert soft.step == pytest.approx(descent(ADULT).step / 2)


@pytest.mark.parametrize("loss", [WeightedLogistic((1.0, 10.0)), WeightedSoftmax(3, (1.0, 4.0, 2.0)), Softmax(4)],
                         ids=lambda loss: loss.name)  # fmt: skip
def test_the_clip_of_the_rule_is_the_one_that_follows_from_the_loss(loss: Loss) -> None:
    """A class that weighs ten times as much has gradients that are ten times as long: they are not cut off again."""
    public = replace(ADULT, loss=loss, row_bound=2.0)
    assert choose(public).clip == sv.Proven(1.0, 1e-5).clipping(loss.slope_at_zero, 2.0).clip
    soft = loss.outputs > 1
    y, margin = (np.arange(loss.outputs), np.zeros((loss.outputs, loss.outputs))) if soft else ([-1, 1], np.zeros(2))
    bends = loss.second(margin, np.asarray(y, float))
    assert public.bend == pytest.approx(np.linalg.norm(bends, 2, axis=(-2, -1)).max() if soft else bends.max())


@pytest.mark.parametrize("method", ["auto", "dp-sgd", "fedepm", "dp-admm", "fedspd-dp", "fed-plt"])
def test_equal_weights_change_nothing_but_the_length_of_steps(method: str) -> None:
    plain, heavy = (replace(ADULT, loss=WeightedLogistic((weight, weight))) for weight in (1.0, 20.0))
    one, other = choose(plain, method), choose(heavy, method)
    assert (one.rounds, one.chosen.calibration) == (other.rounds, other.chosen.calibration)
    assert (plain.noise, descent(plain).time) == (heavy.noise, descent(heavy).time)
    assert other.clip == pytest.approx(20 * one.clip)
    lengths = {"step", "rho"} if method == "fed-plt" else {"step"}
    for name in ("step", "rho", "gamma", "mu", "eta"):
        value: Any = getattr(one.algorithm, name, None)
        times = 1 / 20 if name in lengths else 20  # a length of steps, or a curvature
        if isinstance(value, float):
            assert getattr(other.algorithm, name) == pytest.approx(value * times), name


def test_a_loss_that_bends_near_its_kink_only_goes_as_far_as_one_that_bends_everywhere() -> None:
    sharp, round_ = (descent(replace(ADULT, loss=SmoothedHinge(width))) for width in (0.01, 1.0))
    assert sharp.time == round_.time
    assert replace(ADULT, loss=Huber(5.0)).clip_norm == 1.0  # labels lie in [-1, 1]


@pytest.mark.parametrize("columns", [20, 120, 400])
def test_moments_come_first_where_there_is_little_noise(columns: int) -> None:
    below, above = (choose(with_noise(share * 0.03 / columns, columns)) for share in (0.9, 1.1))
    assert isinstance(below.algorithm, MomentsThenGradients)
    assert isinstance(above.algorithm, NoisyGD)
    assert "below 0.03" in below.words()
    assert "so the steps add up to" in above.words()


@pytest.mark.parametrize("against", [{"unit": "client", "clients": 10**6, "records": 10**6}, {"smooth": False},
                                     {"answers": 0.5}, {"columns": 501}])  # fmt: skip
def test_moments_are_for_records_smooth_penalties_and_everyone(against: dict[str, Any]) -> None:
    public = replace(with_noise(1e-8), **against)
    assert isinstance(choose(public).algorithm, NoisyGD)


def test_moments_cost_no_more_than_a_gradient_and_their_ridge_is_that_of_the_formula() -> None:
    public = with_noise(1e-4)
    algorithm = choose(public).algorithm
    assert isinstance(algorithm, MomentsThenGradients)
    assert algorithm.kappa**2 == pytest.approx(1 / 8)
    noise = public.noise / algorithm.kappa / math.sqrt(algorithm.share)
    assert algorithm.ridge == pytest.approx(0.3 * math.sqrt(2 * 148) * noise)


@pytest.mark.parametrize("clip", [0.05, 0.5, 2.0])
def test_a_clip_that_is_given_cuts_rows_and_does_not_change_the_method(clip: float) -> None:
    """Rows are cut to clip/slope, and noise on their second moments is that of such rows: beside a real answer."""
    public = replace(with_noise(0.03 / 100 * 1.1, 100), clip=clip, row_bound=1.0)
    assert isinstance(choose(public).algorithm, NoisyGD)
    choice = choose(public, "moments")
    assert isinstance(choice.algorithm, Moments)
    X = np.zeros((public.records, 100))
    federation = sv.Federation.from_arrays(
        X, np.where(np.arange(len(X)) % 2, 1.0, -1.0), np.zeros(len(X)), row_bound=1.0
    )
    goal = sv.Objective(sv.Logistic(), scale="records")
    seen: list[Any] = []
    privacy = sv.Proven(1.0, 1e-5, clip)
    sv.train(choice.algorithm, federation, goal, rounds=1, privacy=privacy, seed=0, measure_training=False,
             after_round=lambda at: seen.append(at.server.m))  # fmt: skip
    _, gram = moments.split(seen[0], 100, choice.algorithm.kappa)
    assert gram.diagonal(axis1=-2, axis2=-1).std() * 0.3 * math.sqrt(200) == pytest.approx(
        choice.algorithm.ridge, rel=0.3
    )


@pytest.mark.parametrize("loss", [Logistic(), Softmax(4), Squared(), Huber(0.5)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_for_rows_gets_constants_that_it_accepts(method: str, loss: Loss) -> None:
    choice = choose(replace(ADULT, loss=loss, largest=2000), method)
    assert choice.rounds <= 300
    assert method in ("auto", choice.algorithm.name)
    assert choice.chosen.rule == method
    assert choice.words().startswith(choice.algorithm.name)


def path(algorithm: Any, rounds: int) -> np.ndarray:
    """The models of rounds without noise, on rows of two unequal clients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    federation = sv.Federation.from_arrays(X, np.sign(X[:, 0]), np.arange(60) % 2, row_bound=1.0)
    goal = sv.Objective(sv.Logistic(), scale="records")
    seen: list[np.ndarray] = []
    options: dict[str, Any] = {"rounds": rounds, "privacy": sv.NoPrivacy(), "seed": 0, "engine": "numpy"}
    sv.train(algorithm, federation, goal, **options, after_round=lambda at: seen.append(algorithm.model(at.server)))
    return np.array(seen)


def test_fedepm_by_rule_is_gradient_descent() -> None:
    ours, theirs = choose(ADULT, "dp-sgd"), choose(ADULT, "fedepm")
    assert isinstance(theirs.algorithm, FedEPM)
    assert ours.rounds == theirs.rounds
    np.testing.assert_allclose(path(theirs.algorithm, 12), path(ours.algorithm, 12), rtol=1e-9)


def test_dp_admm_and_fedspd_dp_by_rule_move_like_gradient_descent_where_clients_are_alike() -> None:
    """With one gradient for all clients, a round moves the mean of their models by 1/(rho + inverse step)."""
    public = PublicNumbers(60, 2, 3, 1.0, 1e-5)
    for method in ("dp-admm", "fedspd-dp"):
        algorithm: Any = choose(public, method).algorithm
        inverse = 0.25 if method == "dp-admm" else algorithm.gamma
        step = 1 / (algorithm.rho + inverse)
        rng = np.random.default_rng(1)
        one = rng.normal(size=(30, 3))
        one /= np.linalg.norm(one, axis=1, keepdims=True) * (1 + 1e-9)
        both, y = np.vstack([one, one]), np.tile(np.sign(one[:, 0]), 2)
        federation = sv.Federation.from_arrays(both, y, np.repeat([0, 1], 30), row_bound=1.0)
        goal = sv.Objective(sv.Logistic(), scale="records")
        options: dict[str, Any] = {"privacy": sv.NoPrivacy(), "seed": 0, "engine": "numpy"}
        model = sv.train(algorithm, federation, goal, rounds=1, **options).model
        expected = sv.train(DPSGD(step=step), federation, goal, rounds=1, **options).model
        # FedSPD-DP's x_0 is the extrapolated 2 x' − x
        np.testing.assert_allclose(model, expected * (2 if method == "fedspd-dp" else 1), rtol=1e-9)


def test_a_wider_spread_of_sizes_takes_shorter_steps() -> None:
    """gamma must exceed half the smoothness of the largest client."""
    algorithm: Any = choose(replace(ADULT, largest=2000), "fedspd-dp").algorithm
    assert algorithm.gamma == pytest.approx(0.25 * 2000 / 400 / 2)


def test_at_most_the_rounds_that_are_allowed() -> None:
    assert choose(ADULT, most=7).rounds == 7
    assert isinstance(choose(with_noise(1e-6), most=20).algorithm, NoisyGD)
    assert isinstance(choose(with_noise(1e-6), most=21).algorithm, MomentsThenGradients)


def test_what_no_rule_is_for_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown method"):
        choose(ADULT, "admm-sharing")
    with pytest.raises(InvalidInput, match="two classes"):
        replace(ADULT, loss=Softmax(3), base_rate=0.2)
    with pytest.raises(InvalidInput, match=r"base_rate must lie in \(0, 1\)"):
        replace(ADULT, base_rate=1.0)


NO_NUMBERS = [{"clip": -1.0}, {"clip": 0}, {"constant": 0.0}, {"unit": "x"}, {"relation": "x"}, {"largest": -1},
              {"answers": 0.0}, {"pace": 1.5}, {"records": 0}, {"epsilon": 0.0}, {"delta": 1.0},
              {"loss": "x"}]  # fmt: skip


@pytest.mark.parametrize("change", NO_NUMBERS, ids=str)
def test_fields_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"PublicNumbers: .*{next(iter(change))}"):
        replace(ADULT, **change)


@pytest.mark.parametrize("method", METHODS)
def test_noise_that_exceeds_signal_is_told_whatever_the_method_and_its_rounds(method: str) -> None:
    few = replace(with_noise(0.1), loss=Huber(0.2) if method == "noisy-gd" else Logistic())
    choice = choose(few, method)
    assert method != "noisy-gd" or choice.rounds > 1
    assert "a constant prediction may do as well" in choice.chosen.warning
    assert not choose(with_noise(0.05), method).chosen.warning


@pytest.mark.parametrize("loss", [Softmax(3), Squared()], ids=lambda loss: loss.name)
def test_other_losses_are_learnt_by_rule(loss: Loss) -> None:
    """Near what is possible without noise, where the budget is large."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-9)
    scores = X @ rng.normal(size=(5, loss.outputs))
    y = scores.argmax(axis=1) if loss.classification else scores[:, 0] / np.abs(scores).max()
    federation = sv.Federation.from_arrays(X, y, np.arange(6000) % 3, row_bound=1.0)
    goal = sv.Objective(loss, sv.L2(1e-6), scale="records")
    result = sv.train("auto", federation, goal, privacy=sv.Proven(3.0, 1e-5), seed=0)
    predicted = result.predict(X)
    quality = (predicted == y).mean() if loss.classification else 1 - np.var(predicted - y) / np.var(y)
    assert quality > 0.9
    assert result.config["choice"]["rule"] == "auto"
    assert result.guarantee.epsilon == pytest.approx(3.0, rel=1e-6)


def test_the_library_has_the_rules_as_a_name() -> None:
    assert sv.rules is rules
