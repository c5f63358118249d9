"""Counts of held-out records are audited: honest ones pass, and each planted mistake is seen."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPADMM, DPSGD, NoisyGD
from sottovoce.auditing.audit import audit, worst_case
from sottovoce.auditing.held_out import EVALUATION, held_out_game
from sottovoce.auditing.paths import examine, paths_of
from sottovoce.auditing.promise import gaussian_mu

PROMISE = sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0)


@pytest.mark.parametrize("method", [NoisyGD(), DPADMM(), DPSGD(batch=2)], ids=lambda method: method.name)
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_the_true_code_is_not_refuted(method: Any, relation: Any) -> None:
    checks = examine(worst_case(method, replace(PROMISE, relation=relation), rounds=3), ["held-out"])
    assert {check.verdict for check in checks} == {"not refuted"}
    names = {check.name for check in checks}
    assert {"counts", "what one record changes", "what it changes in training", "answers charged"} <= names


def test_who_has_this_path() -> None:
    assert "held-out" in paths_of(worst_case(NoisyGD(), PROMISE, rounds=3))
    assert "held-out" not in paths_of(worst_case(NoisyGD(), replace(PROMISE, unit="client"), rounds=3))


def half_the_noise(place: Any) -> None:
    door = place.door
    plain = door.noisy

    def noisy(exact: np.ndarray, scale: Any, *rest: Any) -> np.ndarray:
        return plain(exact, scale / 2 if exact.shape[-1] > 3 else scale, *rest)

    door.noisy = noisy


def counted_twice(place: Any) -> None:
    plain = place.door.held.counts
    object.__setattr__(place.door.held, "counts", lambda *asked: 2 * plain(*asked))


def trained_on(place: Any) -> None:
    """Held-out records take part in training after all: the first of each client."""
    held = place.door.held
    place.exact.X[place.exact.offsets[:-1]] = held.X[held.offsets[:-1]]


def not_charged(place: Any) -> None:
    plain = place.door.charge
    place.door.charge = lambda question, costs: None if question.part.kind == "histogram" else plain(question, costs)


@pytest.mark.parametrize(
    ("tamper", "refuted"),
    [
        (half_the_noise, "noise that the code states"),
        (counted_twice, "counts"),
        (trained_on, "what it changes in training"),
        (not_charged, "answers charged"),
    ],
)
def test_planted_mistakes_are_seen(tamper: Any, refuted: str) -> None:
    game = replace(worst_case(NoisyGD(), PROMISE, rounds=3), tamper=tamper)
    checks = examine(game, ["held-out"])
    assert refuted in {check.name for check in checks if check.verdict == "refuted"}


def test_the_game_finds_no_more_than_the_share_of_the_counts() -> None:
    """All that the held-out record moves are the counts, which have a fifth of mu²."""
    found = audit(held_out_game(worst_case(NoisyGD(), PROMISE, rounds=3), 0), runs=64)
    assert found.verdict == "not refuted"
    mu = np.sqrt(EVALUATION.share) * gaussian_mu(1.0, 1e-5)
    assert 0 < found.worst.lower < 1.0
    assert gaussian_mu(found.worst.lower, 1e-5) <= mu * (1 + 1e-6)
