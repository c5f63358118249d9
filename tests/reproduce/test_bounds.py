"""What theorems are measured on: problems that meet their assumptions; constants against other ways to get them."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import sottovoce as sv
from sottovoce.algorithms import ADMMSharing
from sottovoce.algorithms.fed_plt_rates import contraction
from sottovoce.core.round import Checkpoint
from sottovoce.problems.penalties import Penalty
from sottovoce.reproduce import admm_sharing, bounds, bounds_penalty, bounds_sharing, theorems
from sottovoce.reproduce.experiment import Table
from sottovoce.reproduce.verdicts import bounded
from sottovoce.solvers import Gradient


def test_rows_have_the_length_that_constants_assume() -> None:
    owned = bounds.federation(length=10.0)
    np.testing.assert_allclose(np.linalg.norm(owned.X, axis=1), 10.0)
    assert owned.n == 5
    assert len({tuple(np.sign(np.linalg.lstsq(*part, rcond=None)[0])) for part in owned.data()}) > 1  # clients differ


@pytest.mark.parametrize("penalty", [sv.L2(0.01), sv.L1(0.01), sv.Ball(2.0)])
def test_the_minimiser_is_that_of_scipy(penalty: Penalty) -> None:
    objective = sv.Objective(sv.Logistic(), penalty)
    rows = bounds.as_rows(bounds.federation(), objective)
    found = bounds.minimiser(rows, objective, 0.26)

    def value(w: np.ndarray) -> float:
        return float(rows.value(w[None]).mean() + (penalty.value(w) if penalty.finite else 0.0))

    inside = [{"type": "ineq", "fun": lambda w: 4.0 - w @ w}] if isinstance(penalty, sv.Ball) else []
    other = minimize(value, found + 0.1, constraints=inside, method="SLSQP", options={"ftol": 1e-12, "maxiter": 500})
    assert value(found) <= other.fun + 1e-9
    np.testing.assert_allclose(found, other.x, atol=2e-3)


def test_rho_of_theorem_2_is_the_least_that_its_condition_allows() -> None:
    q, p, epsilon, rounds, d = 4, 0.4, 10.0, 500, 5
    rho, spread = bounds.least_rho(q, p, epsilon, rounds, d)

    def gamma(rho: float) -> float:
        noise = 16 * rho * d * np.log(1.25 / bounds.DELTA) / ((q - 1) ** 2 * epsilon**2)
        c = 1 + 2 * (2 * bounds.BETA) ** 2 + noise  # (27) with G = 1 and phi = 0
        return 2 * np.sqrt(q * p * c * rounds) / (2 * bounds.RADIUS)

    assert gamma(rho) <= rho**2
    assert gamma(0.95 * rho) > (0.95 * rho) ** 2
    assert spread == pytest.approx((gamma(rho) * bounds.RADIUS) ** 2 / (q * p * rounds))


def test_the_printed_matrix_is_right_only_where_rho_is_one() -> None:
    """Both forms agree at rho = 1; for other units of the model only one of them stays the same."""
    one = contraction(Gradient(5), 1.0, 0.5, 2.0)
    np.testing.assert_allclose(bounds.printed(one, 1.0, 0.5), one.matrix)
    scaled = contraction(Gradient(5), 0.01, 50.0, 200.0)  # the same problem, model in other units
    np.testing.assert_allclose(scaled.matrix, one.matrix)
    assert bounds.printed(scaled, 0.01, 50.0)[0, 1] == pytest.approx(one.matrix[0, 1] / 100)


def test_of_proposition_3_it_is_s_that_fails() -> None:
    """With chi alone corrected the first round is still above the bound; with S alone it is below."""
    found = Table.of(bounds.fed_plt("3: accelerated steps", 10.0, 3, 1))
    first = {form: float(rows["share"][0]) for (form,), rows in found.each("form")}
    assert set(first) == {bounds.AS_PRINTED, *bounds.ONE_ONLY, bounds.CORRECTED}
    assert first[bounds.AS_PRINTED] > first[bounds.ONE_ONLY[0]] > 1
    assert first[bounds.CORRECTED] < first[bounds.ONE_ONLY[1]] < 1


def test_parallel_updates_diverge_where_assumption_1_holds() -> None:
    """Equal columns, L/rho = 1/2: the plain iteration converges for M = 2 only (2/(3M - 4) is 1, then 1/4)."""
    for case, converges in zip(bounds_sharing.CASES, (True, False, True, True), strict=True):
        found = Table.of(bounds_sharing.sharing(case, 60))
        assert bounded("measured", "bound")(found).same is converges
        assert (found["measured"][-1] < 1e-10) is np.bool_(converges)


def test_a_bound_on_fedspd_dp_that_is_loose_for_the_average() -> None:
    found = Table.of(bounds.fedspd_dp(local_steps=4, active=0.4, epsilon=10.0, rounds=20, runs=4))
    assert set(found["against"]) == {"last model", "average model", "average model, order"}
    average = found.where(against="average model")
    assert bounded("measured", "bound")(average).same
    last = found.where(against="last model")
    assert (last["apart"] > average["apart"]).mean() > 0.5
    assert (average["apart"] <= average["measured"] + 1e-12).all()
    order = found.where(against="average model, order")
    assert (order["bound"] < average["bound"]).all()
    assert order["bound"][0] / order["bound"][-1] == pytest.approx(np.sqrt(20))


def test_rounds_until_half() -> None:
    """8 times fewer for twice the local steps: a cube. As many: none."""
    table = Table.of({"local_steps": [1, 1, 2, 2], "measured": [100, 116, 13, 14], "bound": 1.0, "against": "halved"})
    table = Table.of({**table.columns, "epsilon": theorems.NOISY, "rho_times": 1.0})
    found = theorems._halved(table)
    assert found.same
    assert found.measured.endswith("Q = 1: 108 ± 8, Q = 2: 13.5 ± 0.5; as 1/Q^3.0, where (31) itself has 1/Q^0.0")
    assert not theorems._halved(Table({**table.columns, "measured": np.array([100, 116, 100, 116])})).same


def test_the_round_in_which_it_is_halved_lies_between_recorded_ones() -> None:
    options: dict[str, Any] = {"local_steps": 4, "epsilon": 1e4, "rounds": 150, "runs": 2}
    found = Table.of(bounds.fedspd_dp_halved(**options))
    rows = Table.of(bounds.fedspd_dp(active=1.0, **options)).where(against="average model", run=0)
    below = rows["round"][rows["measured"] <= rows["measured"][0] / 2]
    above = rows["round"][rows["measured"] > rows["measured"][0] / 2]
    assert above.max() < found["measured"][0] <= below.min()
    assert found["bound"] == pytest.approx([19 / 4] * 2, rel=1e-4)  # C without noise: 1 + 2 d_λ², d_λ = 3
    assert np.isinf(bounds.fedspd_dp_halved(**{**options, "rounds": 20})["measured"]).all()


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_falls_of_fedepm_s_lagrangian_add_up(epsilon: float) -> None:
    """From its start, where all models are 0, to its end; and what is compared with them are the squares."""
    found = Table.of(bounds.fedepm(epsilon, rounds=5, runs=20))
    end, first = found.at_end(), found.where(round=1)
    assert sorted(set(found["round"].tolist())) == [1, 2, 3, 4, 5]
    falls = [rows["bound"][0] for _, rows in found.each("round")]
    r, scale = 0.25, 2 * np.sqrt(5) / 50 * bounds.ALPHA**8 / (epsilon * 0.25) if epsilon else 0.0
    once, twice = bounds.ALPHA * scale, (bounds.ALPHA * scale) ** 2  # φ_{i,-1}
    noise = 4 * 5 * 0.05 * once / 0.01 + 8 * 5 * 0.1 * twice / (bounds.ALPHA**2 - 1)
    start = 5 * (np.log(2) + r / (2 * 0.01) + 2 * noise)
    assert sum(falls) == pytest.approx(start - np.mean(end["value"] + end["added"]))
    weight = (r * bounds.ALPHA**bounds.K0 + bounds.ETA - r) / (2 * bounds.K0)  # in the first round w has not moved
    assert np.mean(first["measured"]) == pytest.approx(weight * np.mean(first["moved"]))


def test_the_penalty_is_exact_from_its_threshold_on() -> None:
    """From there the optimum is a minimum of the penalised problem; FedEPM gets to it only without the threshold."""
    half, whole, none = (bounds_penalty.exact(times, 1.0, rounds=60) for times in (0.5, 1.0, 0.0))
    assert half["star"] == whole["lam"] == 2 * half["lam"]
    assert half["miss"] > 0.1
    assert whole["miss"] < 1e-9
    assert none["distance"] < 0.01 < 0.5 < half["distance"] < whole["distance"]


def test_section_vii_has_a_penalty_below_its_threshold() -> None:
    found = bounds_penalty.section_vii(50, 0.5, partitions=1)
    assert found["lam"] == pytest.approx((0.02 * 50 + 1) * 0.6 * 1e-5 / 2)
    table = Table.of({"m": 50, **found})
    assert theorems._meets_11(table).same is False
    assert theorems._meets_11(Table.of({"m": 50, **found, "lam": 1.0})).same is True


@pytest.mark.parametrize(("added", "earlier", "same"), [(1e-4, 2.0, True), (1e-2, 2.0, False), (1e-4, 2.1, False)])
def test_one_limit_is_near_and_no_longer_changes(added: float, earlier: float, same: bool) -> None:
    rows = {"epsilon": 1.0, "round": [1, 80, 100], "value": [5.0, earlier, 2.0], "added": added}
    assert theorems._one_limit(Table.of(rows)).same is same


# --------------------------------------------------------------------------------------------------------- ADMM sharing


def test_the_set_like_gisette() -> None:
    X, y, X_test, y_test = admm_sharing.like_gisette(0, 3000, 100, 300)
    assert X.shape == (3000, 300)
    assert X_test.shape == (100, 300)
    assert set(y) == set(y_test) == {-1.0, 1.0}
    centred = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)  # some pixels are always empty
    score = np.abs(centred.T @ (y - y.mean())) / np.sqrt(len(y))  # about |N(0, 1)| for a probe
    assert (score > 3.5).sum() > 20
    assert np.median(np.sort(score)[:150]) < 1.0
    again, other = (admm_sharing.like_gisette(draw, 3000, 100, 300)[0] for draw in (0, 1))
    np.testing.assert_array_equal(X, again)
    assert np.abs(np.corrcoef(X[:50].ravel(), other[:50].ravel())[0, 1]) < 0.9  # another draw has no row of this one
    assert not set(map(tuple, X)) & set(map(tuple, other))


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_a_level_is_the_sigma_of_the_first_party(share: float) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 123)), np.where(rng.random(30) < 0.5, 1.0, -1.0)
    epsilon, noise = admm_sharing.claimed_epsilon("a9a", 30, 0.7, share), []
    sv.train(
        ADMMSharing(rho=share * 0.5 / 30, b1=admm_sharing.B1),
        sv.VerticalFederation.from_columns(X, y, admm_sharing.SPLITS["a9a"]),
        sv.Objective(sv.Logistic(), sv.L2(1 / 30)),
        rounds=1,
        privacy=sv.Published(epsilon, admm_sharing.DELTA),
        seed=0,
        after_round=lambda checkpoint: noise.append(_noise(checkpoint)),
    )
    np.testing.assert_allclose(noise[0], [0.7, 0.7 * 66 / 57])


def _noise(checkpoint: Checkpoint) -> np.ndarray:
    return checkpoint.clients["client.noise"].ravel()
