"""Masked moments: one round over split columns: the model, its penalties and errors, what a deployment would open."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

import sottovoce as sv
from sottovoce.algorithms import MaskedMoments
from sottovoce.algorithms.masked_moments import Up
from sottovoce.auditing.tape import Tape
from sottovoce.core import products
from sottovoce.core import round as loop
from sottovoce.core.check import BudgetSpent, InvalidInput, NoGuarantee, SottovoceError
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.parties import whole_tables
from sottovoce.experiment.saved import load_result
from sottovoce.experiment.train import train
from sottovoce.privacy import accounting
from sottovoce.privacy import masked_products as mp
from sottovoce.privacy.events import GridEvent
from sottovoce.problems.vertical import VerticalFederation
from tests.local import assemble
from tests.reference import in_a_box
from tests.replay import replays

PROVEN = sv.ProvenColumns(1.0, 1e-5)


def data(loss: str = "logistic", owners: int = 3, samples: int = 400, seed: int = 0, holder: int = 1) -> Any:
    """Rows of entries in [-1, 1] and labels that follow them."""
    rng = np.random.default_rng(seed)
    widths = [2, 3, 1][:owners]
    X = rng.uniform(-1, 1, size=(samples, sum(widths)))
    score = X @ rng.normal(size=sum(widths)) + 0.2 * rng.normal(size=samples)
    labels = {
        "logistic": np.where(score > 0, 1.0, -1.0),
        "squared": np.clip(score / 4, -1, 1),
        "softmax": np.argmax(X @ rng.normal(size=(sum(widths), 3)), axis=1).astype(float),
    }
    return VerticalFederation.from_columns(X, labels[loss], widths, names=["x", "y", "z"][:owners], holder=holder)


def goal(loss: str = "logistic", penalty: Any = None) -> sv.Objective:
    losses = {"logistic": sv.Logistic(), "squared": sv.Squared(), "softmax": sv.Softmax(3)}
    return sv.Objective(losses[loss], sv.L2(0.01) if penalty is None else penalty)


def trained(federation: Any, objective: sv.Objective, privacy: Any = None, **more: Any) -> Any:
    options: dict[str, Any] = {"rounds": 1, "seed": 0, "privacy": privacy or sv.NoPrivacy()}
    return train(more.pop("algorithm", MaskedMoments()), federation, objective, **(options | more))


def server_of(samples: int, objective: sv.Objective) -> Any:
    """The server's side of a round that three owners answered."""
    make: Any = loop.Hub
    return make(3, objective.penalty, None, 1, np.ones((3, 1), bool), np.zeros((1, samples)))


def joined(federation: Any) -> np.ndarray:
    return np.hstack(federation.parts)


# -------------------------------------------------------------------------------------------------- without noise


def test_for_a_squared_loss_it_is_the_ridge_regression() -> None:
    federation = data("squared")
    X, y = joined(federation), federation.y
    exact = np.linalg.solve(X.T @ X / len(y) + 0.01 * np.eye(6), X.T @ y / len(y))
    np.testing.assert_allclose(trained(federation, goal("squared")).model, exact, atol=2e-5)  # entries have 18 bits


def test_for_a_logistic_loss_it_is_newtons_first_step_and_softmax_of_two_classes_agrees() -> None:
    federation = data()
    X, y, n = joined(federation), federation.y, len(federation.y)
    exact = np.linalg.solve(X.T @ X / (4 * n) + 0.01 * np.eye(6), X.T @ (y / 2) / n)
    np.testing.assert_allclose(trained(federation, goal()).model, exact, atol=2e-4)
    two = replace(federation, y=(y + 1) / 2)
    soft = trained(two, sv.Objective(sv.Softmax(2), sv.L2(0.02))).model.reshape(2, 6)
    np.testing.assert_allclose(soft[1] - soft[0], exact, atol=2e-4)


def test_several_classes_are_predicted_by_summed_scores_of_the_parties() -> None:
    federation = data("softmax", samples=3000)
    result = trained(federation, goal("softmax"), test=(list(federation.parts), federation.y))
    assert np.mean(result.predict(list(federation.parts)) == federation.y) > 0.8
    partial = [result.partial_scores(m, part) for m, part in enumerate(federation.parts)]
    np.testing.assert_allclose(np.sum(partial, axis=0), result.scores(list(federation.parts)), atol=1e-12)
    assert result.scores(list(federation.parts)).shape == (3000, 3)


def test_penalties_are_chosen_afterwards_and_agree_with_other_solvers() -> None:
    from sklearn.linear_model import Lasso

    federation = data("squared")
    X, y, n = joined(federation), federation.y, len(federation.y)
    result = trained(federation, goal("squared"))
    lasso = Lasso(alpha=0.02, fit_intercept=False, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(result.with_penalty(sv.L1(0.02)).model, lasso.coef_, atol=2e-5)
    for low, high in ((0.0, 10.0), (-0.05, 0.1)):  # non-negative, and a box
        box = in_a_box(X, y, low, high)
        np.testing.assert_allclose(result.with_penalty(sv.Box(low, high)).model, box, atol=3e-5)
    for lam in (1e-3, 0.1, 1.0):
        exact = np.linalg.solve(X.T @ X / n + lam * np.eye(6), X.T @ y / n)
        refitted = result.with_penalty(sv.L2(lam))
        np.testing.assert_allclose(refitted.model, exact, atol=2e-5)
        assert refitted.objective.penalty == sv.L2(lam)


def test_the_columns_of_one_owner_alone_are_free() -> None:
    federation = data("squared", owners=2, holder=0)
    result = trained(federation, sv.Objective(sv.Squared(), sv.L2(0.01), fit_intercept=True, penalise_intercept=True),
                     test=(list(federation.parts), federation.y))  # fmt: skip
    X = np.column_stack([federation.parts[1], np.ones(400)])  # the second owner's columns, and the constant one
    exact = np.linalg.solve(X.T @ X / 400 + 0.01 * np.eye(4), X.T @ federation.y / 400)
    alone = result.alone(1).model
    np.testing.assert_allclose(alone[[3, 4, 5, 2]], exact, atol=3e-5)
    assert not alone[:2].any()
    assert {"test_r2_x_alone", "test_r2_y_alone"} <= result.metrics.keys()
    assert "test r2 x alone" in repr(result)


# ------------------------------------------------------------------------- the very integers that a deployment opens


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_masked_tables_give_bit_for_bit_what_the_simulator_sums(loss: str) -> None:
    """Three owners, real masks, dealers that are other owners: the masks cancel."""
    federation, streams = data(loss), Streams(4)
    place: Any = assemble(MaskedMoments(), federation, goal(loss), PROVEN, Everyone(), 1, streams)
    method: Any = place.task.algorithm
    outcome = loop.train(method, place, 1, goal(loss).penalty, Everyone(), streams)
    simulated: Any = outcome.server

    split, tables = method.split, whole_tables(place.task, federation)
    again: Any = assemble(MaskedMoments(), federation, goal(loss), PROVEN, Everyone(), 1, streams)
    oracle, _ = again.door.open(np.arange(3), np.ones(3, dtype=bool), 1)
    noise = products.from_limbs(oracle.products(method.kappa)) - products.halves(split, tables)
    uploads = products.halves(split, tables) + noise
    keys = [X25519PrivateKey.generate() for _ in range(3)]
    for a, b in split.pairs:
        assert products.dealer_of((a, b), 3) == 3 - a - b
        widths = split.table_width(a), split.table_width(b)
        attempt = mp.Attempt(b"plan", (a, b), (mp.fresh_secret(), mp.fresh_secret()), federation.samples, widths)
        agreed = [mp.PairKey(keys[m].exchange(keys[o].public_key()), attempt) for m, o in ((a, b), (b, a))]
        first, second = (
            mp.Side("first", agreed[0], tables[a]),
            mp.Side("second", agreed[1], tables[b]),
        )
        second.receive(first.masked(0, federation.samples))
        first.receive(second.masked(0, federation.samples))
        here = split.of_pair(a, b)
        dealt = mp.dealt(first.seed, second.seed, attempt)
        uploads[a, here] = first.reply(noise[a, here].reshape(widths)).view(np.int64).ravel()
        uploads[b, here] = second.reply(noise[b, here].reshape(widths), dealt).view(np.int64).ravel()
    hub = server_of(federation.samples, goal(loss))
    opened = method.server(method.init_server(hub), Up(products.to_limbs(uploads)), hub)
    np.testing.assert_array_equal(opened.sums, simulated.sums)
    np.testing.assert_array_equal(opened.w, simulated.w)


def test_every_owner_adds_the_full_noise_to_all_that_it_has_a_part_in() -> None:
    federation, runs = data(), 400
    place: Any = assemble(MaskedMoments(), federation, goal(), PROVEN, Everyone(), 1, Streams(1, runs))
    method, event = place.task.algorithm, place.door.events[0]
    split = method.split
    oracle, _ = place.door.open(np.arange(3), np.ones((runs, 3), dtype=bool), 1)
    answers = products.from_limbs(oracle.products(method.kappa))
    noise = answers - products.halves(split, whole_tables(place.task, federation))
    assert isinstance(event, GridEvent)
    assert event.scale == pytest.approx(method.noise * products.UNIT, rel=1e-9)
    assert accounting.epsilon({event: 1}, 1e-5) <= 1.0
    for m in range(3):
        own = split.of_owner(m)
        assert not noise[:, m, ~own].any()
        standard = noise[:, m, own] / (event.scale * split.noise_factors(method.kappa)[own])
        assert np.abs(standard.mean(axis=0)).max() < 5 / np.sqrt(runs)
        assert np.abs(standard.std(axis=0) - 1).max() < 5 / np.sqrt(2 * runs)
    flat = (noise / event.scale).reshape(runs, -1)
    pairs: Any = np.corrcoef(flat[:, flat.any(axis=0)].T)
    assert np.abs(pairs - np.eye(len(pairs))).max() < 6 / np.sqrt(runs)  # no two numbers share noise


def test_noise_is_new_when_the_rows_or_the_labels_of_an_owner_change() -> None:
    federation = data()
    flipped = replace(federation, y=np.where(np.arange(400) == 7, -federation.y, federation.y))

    def noise(given: Any) -> np.ndarray:
        place: Any = assemble(MaskedMoments(), given, goal(), PROVEN, Everyone(), 1, Streams(1))
        oracle, _ = place.door.open(np.arange(3), np.ones(3, dtype=bool), 1)
        method = place.task.algorithm
        exact = products.halves(method.split, whole_tables(place.task, given))
        return products.from_limbs(oracle.products(method.kappa)) - exact

    one, other = noise(federation), noise(flipped)
    own = data().holder
    assert not (one[own] == other[own])[one[own] != 0].any()
    np.testing.assert_array_equal(one[0], other[0])  # who changed nothing draws the same again
    np.testing.assert_array_equal(one, noise(federation))


def test_replay_holds() -> None:
    def run(federation: Any, tape: Tape) -> list[np.ndarray]:
        place: Any = assemble(MaskedMoments(), federation, goal(), PROVEN, Everyone(), 1, Streams(3))
        place.door.intercept = tape
        outcome = loop.train(place.task.algorithm, place, 1, goal().penalty, Everyone(), Streams(3))
        server: Any = outcome.server
        return [server.sums, outcome.model]

    a, b = data(seed=1), data(seed=2)
    assert replays(run, a, b)
    assert not np.array_equal(run(a, Tape())[0], run(b, Tape())[0])


# ----------------------------------------------------------------------------------------------------- with noise


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_standard_errors_are_the_spread_over_the_noise(loss: str) -> None:
    federation = data(loss, samples=60_000)
    result = trained(federation, goal(loss, sv.L2(0.05)), sv.ProvenColumns(2.0, 1e-5), runs=300, measure_training=False)
    spread = result.model.std(axis=0)
    assert result.standard_errors is not None
    stated = np.sqrt(np.square(result.standard_errors).mean(axis=0))
    np.testing.assert_allclose(stated, spread, rtol=0.2)


def test_standard_errors_of_another_penalty_and_of_none_that_has_kinks() -> None:
    result = trained(data(), goal(penalty=sv.L2(0.05)), PROVEN)
    stiff = result.with_penalty(sv.L2(5.0))
    assert (stiff.standard_errors < result.standard_errors).all()
    np.testing.assert_array_equal(result.with_penalty(sv.L2(0.05)).standard_errors, result.standard_errors)
    assert result.with_penalty(sv.L1(0.1)).standard_errors is None
    low, high = result.interval()
    assert ((low < result.model) & (result.model < high)).all()


def test_a_sum_that_no_honest_owners_can_have_stops_the_run() -> None:
    federation = data()
    place: Any = assemble(MaskedMoments(), federation, goal(), PROVEN, Everyone(), 1, Streams(0))
    method, n = place.task.algorithm, federation.samples
    hub = server_of(n, goal())
    split = method.split
    most = split.largest_entries(n) + 80 * method.noise * products.UNIT * split.noise_factors(method.kappa)
    uploads = np.zeros((3, split.size), dtype=np.int64)
    for place_of in (0, split.size - 1):
        uploads[0, place_of] = int(most[place_of])
        method.server(method.init_server(hub), Up(products.to_limbs(uploads)), hub)
        uploads[0, place_of] = -int(most[place_of] * (1 + 1e-6))
        with pytest.raises(SottovoceError, match="stays charged"):
            method.server(method.init_server(hub), Up(products.to_limbs(uploads)), hub)
        uploads[0, place_of] = 0


def test_without_one_of_the_owners_nothing_is_opened() -> None:
    federation = data()
    with pytest.warns(UserWarning, match="all owners"):
        result = trained(federation, goal(), PROVEN, participation=sv.KOfN(2))
    assert not result.model.any()


def test_it_is_charged_before_it_is_answered_and_once() -> None:
    federation = data()
    place: Any = assemble(MaskedMoments(), federation, goal(), PROVEN, Everyone(), 1, Streams(0))
    seen: list[str] = []
    charge, exact = place.ledger.charge, place.exact.products
    place.ledger.charge = lambda *a, **k: (seen.append("charge"), charge(*a, **k))
    place.exact.products = lambda local: (seen.append("exact"), exact(local))[1]
    place.door.intercept = lambda answer, *made: (seen.append("given"), answer)[1]
    loop.train(place.task.algorithm, place, 1, goal().penalty, Everyone(), Streams(0))
    assert seen == ["exact", "charge", "given"]
    oracle, _ = place.door.open(np.arange(3), np.ones(3, dtype=bool), 1)
    with pytest.raises(BudgetSpent, match="nothing was computed"):
        oracle.products(place.task.algorithm.kappa)
    assert seen == ["exact", "charge", "given"]


def test_an_unknown_sampler_is_refused_before_products_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are on a grid whatever the noise; here it is seeded."""
    place: Any = assemble(MaskedMoments(), data(), goal(), PROVEN, Everyone(), 1, Streams(0))
    oracle, _ = place.door.open(np.arange(3), np.ones(3, dtype=bool), 1)
    monkeypatch.setenv("SOTTOVOCE_SAMPLER", "numpy")
    with pytest.raises(InvalidInput, match="SOTTOVOCE_SAMPLER: unknown sampler 'numpy'"):
        oracle.products(place.task.algorithm.kappa)
    assert not any(place.ledger.spent(owner) for owner in range(3))


# --------------------------------------------------------------------------------------------- what is promised


@pytest.mark.parametrize(
    ("privacy", "reason"),
    [
        (lambda: sv.ProvenColumns(1.0, 1e-5, unit="label"), "label alone needs as much noise as a record"),  # type: ignore[arg-type]
        (lambda: sv.ProvenColumns(1.0, 1e-5, unit="column"), "one column moves products"),
        (lambda: sv.ProvenColumns(1.0, 1e-5, unit="party"), "as large as they are"),
        (lambda: sv.ProvenColumns(1.0, 1e-5, unit="column", bound=1.0, column_bound=1.0), "not for masked-moments"),
        (lambda: sv.ProvenColumns(1.0, 1e-5, label_epsilon=1.0), "labels are covered already"),
        (lambda: sv.ProvenColumns(1.0, 1e-5, bound=1.0, row_bound=1.0, score_bound=1.0), "clips no scores"),
        (lambda: sv.Published(1.0, 1e-5), "no 'published' variant"),
        (lambda: sv.ProvenColumns(1e-4, 1e-9), "too much noise"),
    ],
)
def test_what_no_proof_covers_is_refused_with_the_reason(privacy: Any, reason: str) -> None:
    with pytest.raises((NoGuarantee, InvalidInput), match=reason):
        trained(data(), goal(), privacy())


def test_admm_sharing_still_says_which_bounds_it_needs() -> None:
    with pytest.raises(InvalidInput, match="admm-sharing needs bound"):
        trained(data(), goal(), PROVEN, algorithm=sv.ADMMSharing(), rounds=2)


@pytest.mark.parametrize("owners", [2, 3])
def test_the_guarantee_names_dealer_and_coalitions_and_what_is_not_covered(owners: int) -> None:
    said = trained(data(owners=owners, holder=0), goal(), PROVEN).guarantee
    assert said.epsilon == pytest.approx(1.0, abs=1e-6)
    assert "all columns of one sample at all owners, and its label" in said.unit
    expected = {2: "an owner that colludes with the coordinator is not covered", 3: "z deals to x and y"}[owners]
    assert expected in said.observer
    for text in ("keep their row bounds", "being on the list", "how many there are", "score of a new sample"):
        assert text in said.text
    assert "NOT protected" not in said.text
    assert "floating point" not in said.text
    assert "sums of products only" in said.short


def test_a_record_that_changes_at_all_owners_costs_once() -> None:
    result = trained(data(), goal(), PROVEN)
    assert result.guarantee.together is None
    assert result.guarantee.epsilon_of_client == pytest.approx((1.0,) * 3, abs=1e-6)


@pytest.mark.parametrize("noise", ["seeded", "discrete", "secure"])
def test_noise_is_discrete_in_every_mode(noise: Any) -> None:
    result = trained(data(), goal(), sv.ProvenColumns(1.0, 1e-5, noise=noise))
    assert "discrete noise" in result.guarantee.noise
    assert np.isfinite(result.model).all()


def test_a_saved_run_keeps_its_sums_and_refits(tmp_path: Any) -> None:
    federation = data(owners=2, holder=0)
    result = trained(federation, goal(), PROVEN, test=(list(federation.parts), federation.y))
    loaded: Any = load_result(result.save(tmp_path / "run"))
    np.testing.assert_array_equal(loaded.sums, result.sums)
    np.testing.assert_array_equal(loaded.with_penalty(sv.L2(0.3)).model, result.with_penalty(sv.L2(0.3)).model)
    np.testing.assert_array_equal(loaded.alone(1).model, result.alone(1).model)
    assert loaded.metrics == result.metrics


def test_products_are_asked_with_the_declared_kappa_or_not_at_all() -> None:
    """Another one would get noise that was made for this one."""
    place: Any = assemble(MaskedMoments(kappa=0.3), data(), goal(), PROVEN, Everyone(), 1, Streams(0))
    oracle, _ = place.door.open(np.arange(3), np.ones(3, dtype=bool), 1)
    with pytest.raises(InvalidInput, match="kappa that was declared"):
        oracle.products(0.7)
    assert not place.ledger.spent(0)


def test_ledgers_count_over_runs_and_hold_one_kind_of_answer(tmp_path: Any) -> None:
    federation = data(owners=2, holder=0)
    first = trained(federation, goal(), PROVEN, ledgers=tmp_path / "ledgers")
    assert first.guarantee.epsilon == pytest.approx(1.0, abs=1e-6)
    again = trained(federation, goal(), PROVEN, ledgers=tmp_path / "ledgers", seed=1)
    assert again.rounds == 0  # the budget of every owner is spent
    larger = trained(federation, goal(), replace(PROVEN, epsilon=2.0), ledgers=tmp_path / "ledgers", seed=1)
    assert larger.rounds == 0
    assert "noise is chosen for the whole epsilon, and the ledgers hold answers of earlier runs" in larger.stopped
    with pytest.raises(NoGuarantee, match="there is no model, its one round was not asked for"):
        larger.scores(federation.parts)
    bounds = sv.ProvenColumns(1.0, 1e-5, bound=20.0, row_bound=2.0, score_bound=1.0)
    with pytest.raises(NoGuarantee, match="do not add up"):
        trained(federation, goal(), bounds, algorithm=sv.ADMMSharing(), ledgers=tmp_path / "ledgers")
    trained(federation, goal(), bounds, algorithm=sv.ADMMSharing(), ledgers=tmp_path / "others")
    with pytest.raises(NoGuarantee, match="ledgers of their own"):
        trained(federation, goal(), PROVEN, ledgers=tmp_path / "others")
