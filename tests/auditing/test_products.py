"""The audit of products of split columns: exact laws of coalitions below the promise, and bugs that it finds."""

from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.auditing.products import audit_products, coalitions, epsilon_of
from sottovoce.core import products
from sottovoce.core.products import Split
from sottovoce.privacy.discrete_noise import noised
from sottovoce.privacy.doors import party
from sottovoce.privacy.noise_key import NoiseKey, Occasion

PROMISE = sv.ProvenColumns(1.0, 1e-5)


@pytest.mark.parametrize("owners", [2, 3])
def test_every_admissible_coalition_stays_below_epsilon_and_the_worst_comes_near(owners: int) -> None:
    finding = audit_products(PROMISE, owners)
    assert finding.verdict == "not refuted"
    assert len(finding.comparisons) == 1 + owners == len(coalitions(owners))
    found = [one.lower for one in finding.comparisons]
    assert max(found) <= 1.0
    assert max(found) > 0.97  # the whole budget is used against the worst of them
    assert found[0] < max(found)  # the server alone sees two noises on what two owners compute
    assert all(check.verdict == "not refuted" for check in finding.checks)


def test_half_the_noise_would_be_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def weak(kind: Any, scale: float, numbers: np.ndarray, streams: Any = ()) -> np.ndarray:
        return noised(kind, scale / 2, numbers, streams)

    monkeypatch.setattr(party.discrete_noise, "noised", weak)
    assert audit_products(PROMISE, 2).verdict == "refuted"


def test_the_same_noise_for_two_owners_would_be_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = NoiseKey.bits

    def shared(self: NoiseKey, at: Occasion, arrays: Any) -> Any:
        return plain(self, at._replace(who=np.zeros_like(at.who), local=np.zeros_like(at.local)), arrays)

    monkeypatch.setattr(NoiseKey, "bits", shared)
    assert audit_products(PROMISE, 2).verdict == "refuted"


def test_rows_that_are_not_cut_would_be_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products.Split, "longest", lambda self, m: products.UNIT)  # c_m = 1 for every owner
    assert audit_products(PROMISE, 2).verdict == "refuted"


def test_an_owner_that_breaks_its_row_bound_divides_the_others_noise() -> None:
    """Condition (ii) of the theorem cannot be dropped: rows c times longer cost the other owner c times the budget."""
    split = Split((1, 1), (1, 1))
    honest, kappa, sigma = (0,), products.LARGEST_KAPPA, 1.25 * products.UNIT
    longest = int(np.sqrt(split.longest(0)))

    def epsilon(times: int) -> float:
        sums = [
            products.halves(split, [np.array([[x, products.STEPS // 2]]), np.array([[times * longest]])]).sum(axis=0)
            for x in (longest, -longest)
        ]
        return epsilon_of(split, kappa, sigma, sums[0] - sums[1], honest, 1e-5)

    assert epsilon(1) < 8
    assert epsilon(100) > 50 * epsilon(1)


def test_a_difference_at_a_colluding_owner_is_no_neighbour() -> None:
    split = Split((1, 1), (1, 1))
    difference = np.zeros(split.size, dtype=np.int64)
    difference[split.owners_of[0] == 1] = 1
    assert epsilon_of(split, products.LARGEST_KAPPA, 1.0, difference, (0,), 1e-5) == float("inf")
