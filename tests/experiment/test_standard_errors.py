"""Standard errors: intervals hold what the same rounds give without noise, at their stated rate."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD, Moments, NoisyGD
from sottovoce.core.check import InvalidInput
from sottovoce.rules import PublicNumbers, choose

RUNS = 300


def rows(length: float = 1.0) -> sv.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 6)) / np.sqrt(np.arange(1, 7))
    X *= length * (1 - 1e-9) / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(4000) < 1 / (1 + np.exp(-4 / length * X[:, 0])), 1.0, -1.0)
    return sv.Federation.from_arrays(X, y, np.repeat([0, 1, 2], [500, 1500, 2000]), row_bound=length)


def trained(algorithm: Any, rounds: int, length: float = 1.0, **privacy: Any) -> tuple[np.ndarray, sv.Result]:
    """The model without noise (but clipped alike), and runs with it."""
    goal = sv.Objective(sv.Logistic(), sv.L2(1e-3), scale="records")
    options: dict[str, Any] = {"rounds": rounds, "seed": 0, "engine": "numpy", "measure_training": False}
    exact = sv.train(algorithm, rows(length), goal, privacy=sv.Proven(1e9, 1e-5, **privacy), **options).model
    return exact, sv.train(algorithm, rows(length), goal, privacy=sv.Proven(1.0, 1e-5, **privacy), runs=RUNS, **options)


def coverage(exact: np.ndarray, result: sv.Result, level: float) -> float:
    low, high = result.interval(level)
    return float(((low <= exact) & (exact <= high)).mean())


@pytest.mark.parametrize("length", [1.0, 3.0])
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_intervals_of_moments_hold_at_their_rate(length: float, relation: Any) -> None:
    public = PublicNumbers(4000, 3, 6, 1.0, 1e-5, row_bound=length, relation=relation)
    exact, result = trained(choose(public, "moments").algorithm, 1, length, relation=relation)
    for level in (0.5, 0.95):
        assert coverage(exact, result, level) == pytest.approx(level, abs=0.04)


@pytest.mark.parametrize(("length", "relation"), [(1.0, "replace-one"), (3.0, "add-remove")])
def test_intervals_of_moments_then_gradients_hold_at_least_at_their_rate(length: float, relation: Any) -> None:
    public = PublicNumbers(4000, 3, 6, 1.0, 1e-5, row_bound=length, relation=relation)
    choice = choose(public, "moments-then-gradients")
    exact, result = trained(choice.algorithm, choice.rounds, length, relation=relation)
    low, high = result.interval(0.95)
    assert (((low <= exact) & (exact <= high)).mean(axis=0) > 0.94).all()  # each parameter's
    apart = np.std(result.model - exact, axis=0)
    assert result.standard_errors is not None
    assert (apart > 0.35 * result.standard_errors.mean(axis=0)).all()  # and they are not idle


def test_intervals_of_moments_with_an_intercept_that_no_penalty_counts() -> None:
    public = PublicNumbers(4000, 3, 7, 1.0, 1e-5, row_bound=np.sqrt(2.0))
    goal = sv.Objective(sv.Logistic(), sv.L2(1e-2), "records", fit_intercept=True)
    method: Any = choose(public, "moments").algorithm
    options: dict[str, Any] = {"rounds": 1, "seed": 0, "engine": "numpy", "measure_training": False}
    exact = sv.train(method, rows(), goal, privacy=sv.Proven(1e9, 1e-5), **options).model
    result = sv.train(method, rows(), goal, privacy=sv.Proven(1.0, 1e-5), runs=RUNS, **options)
    for level in (0.5, 0.95):
        assert coverage(exact, result, level) == pytest.approx(level, abs=0.04)


@pytest.mark.parametrize("extra", [{}, {"momentum": 0.6}, {"average_from": 4}])
def test_intervals_of_noisy_gradient_descent_hold_at_least_at_their_rate(extra: dict[str, Any]) -> None:
    exact, result = trained(NoisyGD(step=8.0, **extra), 10)
    assert coverage(exact, result, 0.95) > 0.94
    apart = np.std(result.model - exact, axis=0)
    assert result.standard_errors is not None
    assert apart.max() > 0.4 * result.standard_errors.max()  # and they are not idle


@pytest.mark.parametrize("extra", [{}, {"momentum": 0.6}, {"average_from": 3}])
def test_one_direction_without_curvature_has_exactly_the_stated_error(extra: dict[str, Any]) -> None:
    """Brute force: all weights of the noise in the answer, by one run for each round."""
    algorithm, rounds = NoisyGD(step=2.0, **extra), 7
    factors = []
    for hit in range(rounds):
        w = v = mean = 0.0
        averaged = 0
        for k in range(1, rounds + 1):
            v = algorithm.momentum * v - algorithm.step * float(k == hit + 1)
            w += v
            if 0 < algorithm.average_from <= k:
                averaged += 1
                mean += (w - mean) / averaged
        factors.append(mean if averaged else w)
    assert algorithm.stretch(0.0, rounds) == pytest.approx(np.linalg.norm(factors))


def test_one_gradient_of_clients_and_of_records() -> None:
    for unit, clip in (("record", 0.5), ("client", 0.2)):
        exact, result = trained(NoisyGD(step=2.0), 1, unit=unit, clip=clip)
        assert result.standard_errors is not None
        shrunk = result.standard_errors[0] / (1 + 2.0 * 1e-3)  # by the prox of the penalty
        np.testing.assert_allclose(np.std(result.model - exact, axis=0), shrunk, rtol=0.2)


def test_they_are_saved_and_others_have_none(tmp_path: Path) -> None:
    result = trained(Moments(ridge=0.1), 1)[1]
    again = sv.load_result(result.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.interval()[0], result.interval()[0])
    goal = sv.Objective(sv.Logistic(), scale="records")
    options: dict[str, Any] = {"rounds": 2, "seed": 0, "engine": "numpy"}
    for method, privacy in ((DPSGD(), sv.Proven(1.0, 1e-5)), (NoisyGD(), sv.NoPrivacy())):
        other = sv.train(method, rows(), goal, privacy=privacy, **options)
        with pytest.raises(InvalidInput, match="standard errors are known for noisy-gd, moments"):
            other.interval()
