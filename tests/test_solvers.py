from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.core.random.streams import Draw, Streams
from sottovoce.solvers import SOLVERS, Accelerated, Gradient, Local, Noisy, PerAgent, Solver, Stochastic, make

CURVATURE = np.array([1.0, 3.0, 7.0, 10.0])
BEST = np.array([1.0, -2.0, 0.5, 3.0])
WHO = np.arange(3)


def gradient(w: np.ndarray) -> np.ndarray:
    return CURVATURE * (w - BEST)


def draw(who: np.ndarray = WHO, runs: int | None = None) -> Draw:
    return Draw(Streams(7, runs), who, 1)


def start(clients: int = 3) -> np.ndarray:
    return np.zeros((clients, 4))


def test_gradient_descent_is_its_closed_form() -> None:
    left = Gradient(6, 0.15).solve(gradient, start(), 1.0, 10.0) - BEST
    np.testing.assert_allclose(left, np.tile(-BEST * (1 - 0.15 * CURVATURE) ** 6, (3, 1)), atol=1e-14)


def test_the_default_step_is_the_one_with_the_least_worst_error() -> None:
    default = Gradient().length(Local(1.0, 10.0, None, None))
    worst = {step: np.abs(1 - step * CURVATURE).max() for step in np.linspace(0.15, 0.2, 2001)}
    assert default == pytest.approx(min(worst, key=lambda step: worst[step]), abs=1e-4)
    assert np.abs(1 - default * CURVATURE).max() == pytest.approx(9 / 11)


def test_accelerated_steps_by_hand() -> None:
    beta = (np.sqrt(10) - 1) / (np.sqrt(10) + 1)
    u1 = start()[0] - gradient(start()[0]) / 10
    w1 = u1 + beta * (u1 - start()[0])
    u2 = w1 - gradient(w1) / 10
    np.testing.assert_allclose(Accelerated(1).solve(gradient, start(1), 1.0, 10.0)[0], w1, rtol=1e-14)
    np.testing.assert_allclose(Accelerated(2).solve(gradient, start(1), 1.0, 10.0)[0], u2 + beta * (u2 - u1))


def test_accelerated_keeps_the_corrected_bound_of_lemma_7() -> None:
    """Distance to the minimiser <= √(1+κ) (1−1/√κ)^{ℓ/2}, for many quadratics and for a logistic problem."""
    rng = np.random.default_rng(0)
    curvature = np.exp(rng.uniform(0, np.log(100), size=(50, 8)))
    curvature[:, 0], curvature[:, 1] = 1.0, 100.0
    for steps in (1, 3, 10, 30, 100):
        left = Accelerated(steps).solve(lambda w: curvature * w, np.ones((50, 8)), 1.0, 100.0)
        share = np.linalg.norm(left, axis=1) / np.sqrt(8)
        assert (share <= np.sqrt(101) * 0.9 ** (steps / 2)).all()
    assert share.max() < np.abs(1 - 2 / 101 * curvature).max() ** 100 / 1000  # far ahead of gradient descent


def test_accelerated_as_printed_diverges() -> None:
    """Fed-PLT (12) prints the moduli of f; the problem that is solved is f + |w − v|²/(2ρ), which is steeper."""
    pull = 100.0

    def steep(w: np.ndarray) -> np.ndarray:
        return gradient(w) + pull * w

    assert np.abs(Accelerated(20).solve(steep, np.ones((1, 4)), 1.0, 10.0)).max() > 1e6
    solved = Accelerated(20).solve(steep, np.ones((1, 4)), 1.0 + pull, 10.0 + pull)
    np.testing.assert_allclose(solved[0], CURVATURE * BEST / (CURVATURE + pull), atol=1e-8)


def test_noise_has_the_stated_deviation_after_every_step() -> None:
    solver = Noisy(3, 0.1, noise_std=(0.5, 1.0, 2.0))
    ends = solver.solve(gradient, start(), 1.0, 10.0, draw(runs=4000), WHO)
    assert ends.shape == (4000, 3, 4)
    kept = (1 - 0.1 * CURVATURE)[None, :]
    expected = np.array([[0.5], [1.0], [2.0]]) * np.sqrt(1 + kept**2 + kept**4)
    np.testing.assert_allclose(ends.std(axis=0), expected, rtol=0.05)
    quiet = Gradient(3, 0.1).solve(gradient, start(), 1.0, 10.0)
    np.testing.assert_allclose(ends.mean(axis=0), quiet, atol=0.15)
    assert np.array_equal(Noisy(3, 0.1).solve(gradient, start(), 1.0, 10.0, draw()), quiet)


@pytest.mark.parametrize("per_client", [(1, 4, 2), np.array([[1], [4], [2]])], ids=["by number", "rows"])
def test_own_steps_per_client(per_client: Any) -> None:
    points = []

    def listening(w: np.ndarray) -> np.ndarray:
        points.append(w)
        return gradient(w)

    solver = Gradient(per_client, (0.05, 0.1, 0.15))
    together = solver.solve(listening, start(), 1.0, 10.0, None, WHO)
    assert solver.answers == len(points) == 4
    for client, (steps, step) in enumerate(zip((1, 4, 2), (0.05, 0.1, 0.15), strict=True)):
        alone = Gradient(steps, step).solve(gradient, start(1), 1.0, 10.0)
        assert np.array_equal(together[client], alone[0])
    assert np.array_equal(points[1][0], points[3][0])  # it rests where it stopped


def test_numbers_follow_the_client_not_its_place() -> None:
    solver = Gradient((1, 4, 2), (0.05, 0.1, 0.15))
    everyone = solver.solve(gradient, start(), 1.0, 10.0, None, WHO)
    some = solver.solve(gradient, start(2), 1.0, 10.0, None, np.array([2, 0]))
    assert np.array_equal(some, everyone[[2, 0]])


def test_own_rule_per_client() -> None:
    rules = (Gradient(3), Accelerated(5), Noisy(2, noise_std=0.1), Gradient(3), Accelerated(7))
    who, asked = np.arange(5), []

    def counting(w: np.ndarray) -> np.ndarray:
        asked.append(w)
        return gradient(w)

    solver = PerAgent(rules)
    smooth = np.array([[10.0], [11.0], [12.0], [13.0], [14.0]])
    together = solver.solve(counting, start(1), 1.0, smooth, draw(who), who)
    assert len(asked) == solver.answers == 7
    for i, rule in enumerate(rules):
        if not isinstance(rule, Noisy):
            alone = rule.solve(gradient, start(1), 1.0, smooth[i : i + 1])
            assert np.array_equal(together[i], alone[0])
        here = np.array([i])
        itself = solver.solve(gradient, start(1), 1.0, smooth[i : i + 1], draw(here), here)
        assert np.array_equal(together[i], itself[0])  # the same random numbers, alone or among others


@dataclass(frozen=True)
class Momentum(Solver):
    name: ClassVar[str] = "momentum"

    def advance(self, w: np.ndarray, memory: np.ndarray, g: np.ndarray, local: Local) -> tuple[np.ndarray, np.ndarray]:
        return w - 0.1 * g + 0.3 * (w - memory), w


def test_a_solver_of_ones_own_is_one_method() -> None:
    solved = Momentum(100).solve(gradient, start(), 1.0, 10.0)
    np.testing.assert_allclose(solved, np.tile(BEST, (3, 1)), atol=1e-6)
    mixed = PerAgent((Gradient(3), Momentum(4), Gradient(3))).solve(gradient, start(), 1.0, 10.0, None, WHO)
    assert np.array_equal(mixed[1], Momentum(4).solve(gradient, start(), 1.0, 10.0)[1])


def test_make_by_name() -> None:
    assert set(SOLVERS) == {"gradient", "accelerated", "stochastic", "noisy"}
    assert make("gradient", 3, step=None, batch=0) == Gradient(3)
    assert make("stochastic", 3, step=0.1, batch=5) == Stochastic(3, 0.1, batch=5)
    assert make(Accelerated(4), 3) == Accelerated(4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Gradient(0), "Gradient: steps must be a whole number >= 1, got 0"),
        (lambda: Gradient(3, -0.1), "Gradient: step must be > 0, got -0.1"),
        (lambda: Gradient((3, 0)), "Gradient: steps must be a whole number >= 1"),
        (lambda: Stochastic(3), "Stochastic: batch must be > 0, got 0"),
        (lambda: Noisy(3, noise_std=-1.0), "Noisy: noise_std must be >= 0, got -1.0"),
        (lambda: PerAgent(()), "PerAgent: needs one solver per client"),
        (lambda: PerAgent((Gradient(1), Gradient(1, batch=3))), r"same batch, got \[0, 3\]"),
        (lambda: PerAgent((Gradient((1, 2)),)), "steps of each solver must be one number"),
        (lambda: make("gradent", 3), "unknown solver 'gradent'. Did you mean 'gradient'"),
        (lambda: make("accelerated", 3, step=0.1), "Solver 'accelerated': unknown option 'step'"),
        (lambda: Gradient(2).solve(gradient, start(), 0.0, np.inf), "row_bound=...*or give step=..."),
        (lambda: Accelerated(2).solve(gradient, start(), 0.0, np.inf), "row_bound=...*solver='gradient' with a step"),
        (lambda: Gradient((2, 3)).solve(gradient, start(), 1.0, 10.0), "who=site.who"),
        (lambda: Gradient((2, 3)).solve(gradient, start(), 1.0, 10.0, None, WHO), "for each of 3 clients, got 2"),
        (lambda: Noisy(2).solve(gradient, start(), 1.0, 10.0), "rng=site.rng"),
    ],
)
def test_errors_say_what_to_do(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        wrong()
