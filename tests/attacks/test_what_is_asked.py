"""Runs that are paid for, under one stated seed: nothing that they share may show in what they have in common.

Who attacks sees the releases of several runs and knows their settings, but not the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD, ADMMSharing
from sottovoce.core.check import BudgetSpent, InvalidInput
from sottovoce.core.contract import Descent, Site
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.train import train
from sottovoce.ledger.budget import LedgerError
from sottovoce.privacy.noise_key import NoiseKey
from sottovoce.problems.rows import Rows
from tests.cases import COLUMN_UNITS, goal, small, small_columns
from tests.local import assemble

TIGHT = sv.Proven(epsilon=1.0, delta=1e-4, clip=1e-3)  # every record is clipped: its gradient has one length
EVERYONE = np.ones(1, dtype=bool)


def answers(points: Sequence[np.ndarray], seed: int = 5, **change: Any) -> list[np.ndarray]:
    """What the first client of a run answers at these points, one for each run, in round 1."""
    given = []
    for point in points:
        place = assemble(DPSGD(**change), small(), goal(), TIGHT, Everyone(), 1, Streams(seed), None, "numpy")
        oracle, _ = place.door.open(np.array([0]), EVERYONE, 1)
        given.append(oracle.grad(point))
    return given


def test_equal_answers_to_different_questions_do_not_show_that_they_are_equal() -> None:
    """Else "some release differs" tells whether every record was clipped in both runs."""
    here, there = np.zeros((1, 4)), np.full((1, 4), 1e-12)
    place = assemble(DPSGD(), small(), goal(), TIGHT, Everyone(), 1, Streams(5), None, "numpy")
    one, other = (place.exact.gradient(w, np.array([0]), TIGHT.clip, 2, None) for w in (here, there))
    assert np.array_equal(one, other)  # the two points are so near that all slopes are clipped alike
    first, second = answers([here, there])
    assert np.linalg.norm(first - second) > 1e-3 * np.linalg.norm(first)
    first, second = answers([here, here])
    assert np.array_equal(first, second)  # the same question of the same run, played again


def test_batches_are_other_ones_for_another_question() -> None:
    drawn: list[np.ndarray] = []
    plain = NoiseKey.batch

    def noted(key: NoiseKey, *given: Any) -> np.ndarray:
        drawn.append(plain(key, *given))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseKey, "batch", noted)
        answers([np.zeros((1, 4)), np.full((1, 4), 1e-12), np.zeros((1, 4))], batch=2)
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])


def test_noise_of_another_scale_is_other_noise() -> None:
    """Scores that are cut to their bound are equal whatever the target: two scales would give them away exactly."""
    privacy = replace(COLUMN_UNITS["proven, record"], score_bound=1e-6)
    drawn = []
    for length in (1.0, 2.0):
        place = assemble(ADMMSharing(), small_columns(), goal(), privacy, Everyone(), 1, Streams(5), None, "numpy")
        seen: list[Any] = []
        place.door.intercept = lambda answer, *made_of, seen=seen: seen.append(made_of) or answer
        oracle, _ = place.door.open(np.array([0]), EVERYONE, 1)
        target = np.full((1, 40), length)
        answer = oracle.fit(target, np.ones((1, 1)))
        exact, scale, _ = seen[0]
        drawn.append((answer - exact) / scale)
    assert np.linalg.norm(drawn[0] - drawn[1]) > 1.0


@pytest.mark.parametrize("start", [8e14, 1e10])
def test_local_steps_far_away_from_zero_are_refused(start: float) -> None:
    """There the iterates live on a grid coarser than the noise, and steps that contract on paper do not."""
    place = assemble(
        sv.algorithms.FedPLT(variant="B", step=0.5), small(), goal(), TIGHT, Everyone(), 1, Streams(5), None, "numpy"
    )
    oracle, _ = place.door.open(np.array([0]), EVERYONE, 1)
    far = np.full((1, 4), start)
    with pytest.raises(InvalidInput, match="or rounding shows"):
        oracle.descent(far, Descent(3, 0.5, 1.0, far))
    assert place.ledger is not None
    assert place.ledger.spent(0) == {}


@dataclass(frozen=True)
class Telltale(DPSGD):
    """Raises what a ledger would, if an exact number is large."""

    error: Any = BudgetSpent

    def client(self, state: Any, down: Any, site: Site) -> tuple[Any, Any]:
        if (np.abs(site.f.grad(down.w)) > 0.3).any():
            raise self.error("spent")
        return super().client(state, down, site)


@pytest.mark.parametrize("error", [BudgetSpent, LedgerError])
def test_an_algorithm_cannot_stop_a_run_in_the_name_of_a_ledger(error: type[Exception]) -> None:
    privacy, rounds = sv.Proven(epsilon=1.0, delta=1e-6, clip=1.0, unit="client"), []
    for size in (0.1, 1.0):
        X, y = np.full((20, 2), size), np.ones(20)
        y[0] = -1
        result = train(Telltale(error=error), sv.Federation.from_clients([(X, y)] * 2), goal(), rounds=2,
                       privacy=privacy, seed=1, measure_training=False, engine="numpy")  # fmt: skip
        rounds.append((result.rounds, result.stopped, result.guarantee.epsilon))
    assert rounds[0] == rounds[1]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": DPSGD(step=0.5)},
        {"privacy": replace(TIGHT, clip=0.5)},
        {"privacy": replace(TIGHT, epsilon=2.0)},
        {"rounds": 5},
        {"federation": small().in_float32()},
        {"federation": small(seed=4)},
    ],
    ids=["step", "clip", "epsilon", "rounds", "storage", "rows"],
)
def test_a_checkpoint_goes_on_with_its_own_task_only(change: dict[str, Any]) -> None:
    """Else rounds after it would be answered twice, with other noise, and counted once."""
    run: dict[str, Any] = {"algorithm": DPSGD(), "federation": small(), "privacy": TIGHT, "rounds": 4}
    kept: list[Any] = []

    def play(settings: dict[str, Any], **more: Any) -> sv.Result:
        own = dict(settings)
        parts = (own.pop("algorithm"), own.pop("federation"), goal())
        return train(*parts, **own, seed=3, engine="numpy", **more)

    whole = play(run, after_round=kept.append)
    assert np.array_equal(play(run, resume=kept[1]).model, whole.model)
    with pytest.raises(InvalidInput, match="another task, engine, rows or held-out records"):
        play(run | change, resume=kept[1])


def test_a_checkpoint_goes_on_with_its_own_arithmetic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def play(**more: Any) -> None:
        train(DPSGD(), small(), goal(), privacy=TIGHT, rounds=4, seed=3, engine="kernel", **more)

    play(after_round=kept.append)
    play(resume=kept[1])
    monkeypatch.setattr(Rows, "arithmetic", "kernel, in another order")
    with pytest.raises(InvalidInput, match="another task, engine, rows or held-out records"):
        play(resume=kept[1])
