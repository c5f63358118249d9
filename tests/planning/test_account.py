import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.check import InvalidInput, PrivacyWarning
from sottovoce.planning.account import account
from sottovoce.privacy.calibration import AnswerShape
from tests.cases import goal, small


def test_noise_for_a_budget_and_back() -> None:
    planned = account(epsilon=1.0, delta=1e-5, rounds=100)
    assert planned.event.noise_multiplier == pytest.approx(37.3063, rel=1e-5)  # √100 / mu*, mu* = 0.268051
    assert planned.epsilon == pytest.approx(1.0, rel=1e-6)
    assert planned.affordable_rounds == 100
    assert account(noise=planned.event.noise_multiplier, delta=1e-5, rounds=100).epsilon == planned.epsilon
    lasts = account(noise=planned.event.noise_multiplier, epsilon=2.0, delta=1e-5, rounds=1).affordable_rounds
    assert lasts is not None
    within, beyond = (account(noise=planned.event.noise_multiplier, delta=1e-5, rounds=lasts + more) for more in (0, 1))
    assert within.epsilon <= 2.0 < beyond.epsilon


def test_table_grows_and_ends_at_the_rounds_asked_for() -> None:
    result = account(noise=10.0, delta=1e-5, rounds=150, answers_per_round=3)
    rounds, costs = zip(*result.table, strict=True)
    assert rounds == (1, 2, 5, 10, 20, 50, 100, 150)
    assert (np.diff(costs) > 0).all()
    assert costs[-1] == account(noise=10.0, delta=1e-5, rounds=450).epsilon


def test_batches_name_their_accountant() -> None:
    options = {"noise": 2.0, "delta": 1e-5, "rounds": 50, "batch": 10, "size": 400}
    poisson = account(relation="add-remove", **options)
    fixed = account(**options)
    assert "PLD" in poisson.accountant
    assert "RDP" in fixed.accountant
    assert poisson.epsilon < account(noise=2.0, delta=1e-5, rounds=50, relation="add-remove").epsilon


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 5}, "give a noise multiplier, an epsilon, or both"),
        ({"rounds": 0, "noise": 1.0}, "rounds must be a whole number >= 1"),
        ({"rounds": 5, "noise": -1.0}, "noise_multiplier must be > 0"),
        ({"rounds": 5, "noise": 1.0, "batch": 3}, "batch needs the number of records"),
    ],
)
def test_bad_input(options: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        account(delta=1e-5, **options)


def test_a_large_delta_is_warned_about() -> None:
    with pytest.warns(PrivacyWarning, match=r"delta = 0\.05 is not below 1/size for client '5' with 47 records"):
        sv.train(sv.DPADMM(), small(), goal(), rounds=1, privacy=sv.Proven(1.0, 0.05, 1.0), seed=0)


def test_discrete_noise_of_known_length_costs_what_a_run_is_charged() -> None:
    """Theorem 2 needs the number of coordinates, and 8 % less noise than zCDP."""
    told, unknown = (
        account(epsilon=1.0, delta=1e-5, rounds=20, mechanism="discrete-gaussian", coordinates=number)
        for number in (104, None)
    )
    privacy = sv.Proven(1.0, 1e-5, 1.0, noise="secure")
    (event,) = privacy.plan(sv.DPSGD().asks(), 20, np.full(5, 300), shape=AnswerShape(104, 104, 0.5))
    assert told.event.noise_multiplier == pytest.approx(event.noise_multiplier, rel=1e-9)
    assert told.event.noise_multiplier < 0.93 * unknown.event.noise_multiplier
    assert "Theorem 2" in told.accountant
    with pytest.raises(InvalidInput, match="coordinates are for mechanism 'discrete-gaussian', got 'gaussian'"):
        account(epsilon=1.0, delta=1e-5, rounds=20, coordinates=104)
