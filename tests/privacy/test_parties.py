"""What a party gives away: charged before it is given, noise of the stated size, and nothing besides."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from sottovoce.algorithms import FDML, ADMMSharing
from sottovoce.auditing.tape import Tape
from sottovoce.core.check import BudgetSpent, InvalidInput, NoGuarantee
from sottovoce.core.clipping import clip_rows
from sottovoce.core.contract import Kept
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.label_flips import OtherFlips
from sottovoce.experiment.publishable import released
from sottovoce.experiment.train import train
from sottovoce.ledger.budget import LedgerError
from sottovoce.privacy import accounting, sensitivity
from sottovoce.privacy.doors.party import OutOfRange, bounded
from sottovoce.privacy.labels import label_event, randomised_labels
from sottovoce.privacy.modes import NoPrivacy, Proven, ProvenColumns, Published
from sottovoce.privacy.noise_key import NoiseKey, SharedNoise
from sottovoce.problems import columns
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L1, L2
from sottovoce.problems.vertical import VerticalFederation
from tests.algorithms.test_replay import messages
from tests.cases import COLUMN_UNITS, goal, small_columns
from tests.local import assemble
from tests.replay import replays

RECORD = COLUMN_UNITS["proven, record"]


def place(privacy: Any, rounds: int = 4, federation: VerticalFederation | None = None, runs: int | None = None) -> Any:
    algorithm = ADMMSharing()
    parts = (
        algorithm,
        federation or small_columns(),
        goal(),
        privacy,
        Everyone(),
        rounds,
        Streams(7, runs),
        None,
        "numpy",
    )
    assembled = assemble(*parts)
    assembled.start(algorithm)
    return assembled


def ask(simulator: Any, target: np.ndarray, k: int, rho: float = 0.3) -> np.ndarray:
    everyone = np.arange(simulator.n)
    oracle, _ = simulator.door.open(everyone, np.ones(simulator.door.shape(simulator.n), dtype=bool), k)
    return oracle.fit(target, np.full((simulator.n, 1), rho))


def shared(simulator: Any) -> Any:
    """The simulator, with noise that is not bound to the data: so that answers about two data sets can be compared."""
    simulator.door.key = SharedNoise(simulator.door.key.streams)
    return simulator


@pytest.mark.parametrize("unit", COLUMN_UNITS)
def test_noise_has_the_size_of_the_sensitivity(unit: str) -> None:
    """Over many runs answers scatter around the clipped scores by nm times the formula, coordinate by coordinate."""
    privacy, runs, rho = COLUMN_UNITS[unit], 400, 0.3
    simulator = place(privacy, runs=runs)
    target = np.random.default_rng(0).normal(size=(6, 40))
    answers = ask(simulator, target, 1, rho)
    exact = simulator.exact.predict(simulator.exact.fit(target, np.full((6, 1), rho), np.arange(6)), np.arange(6))
    noise = accounting.calibrate(20.0, 1e-3, 5, relation=simulator.door.events[0].relation)  # four rounds and a model
    mu = goal().penalty.strong / rho
    change = {
        "proven, party": sensitivity.party_scores(target),
        "proven, column": sensitivity.column_scores(target, mu, 10.0),
        "proven, record": sensitivity.record_scores(target, mu, 3.0, 10.0),
        "proven, clip": np.full((6, 1), 100.0),
    }[unit]
    standard = (answers - exact) / (noise * change)
    assert standard.std() == pytest.approx(1.0, abs=0.01)
    assert abs(standard.mean()) < 0.02


@pytest.mark.parametrize("unit", COLUMN_UNITS)
def test_the_budget_is_for_all_rounds_and_the_model_and_no_more(unit: str) -> None:
    simulator = place(COLUMN_UNITS[unit], rounds=3)
    target = np.ones((6, 40))
    for k in (1, 2, 3):
        assert simulator.door.able(np.arange(6), k).all()
        ask(simulator, target, k)
    assert not simulator.door.able(np.arange(6), 4).any()  # another round would leave nothing for the model
    kept = Kept(target=target, rho=np.full((6, 1), 0.3))
    assert simulator.door.models(kept, np.arange(6), 3) is not None
    assert simulator.ledger.epsilons() == pytest.approx(np.full(6, 20.0), rel=1e-6)
    with pytest.raises(BudgetSpent):
        simulator.door.models(kept, np.arange(6), 4)
    with pytest.raises(BudgetSpent):
        ask(simulator, target, 5)


@pytest.mark.parametrize("unit", ["proven, party", "proven, clip"])
def test_columns_that_no_fit_can_be_made_of_are_answered_with_zeros(unit: str) -> None:
    """And say nothing of other parties' answers, which stay what they were to the bit."""
    usual, whole = small_columns(), COLUMN_UNITS[unit]
    huge = VerticalFederation((usual.dense_data()[0][0] * 1e200, *usual.parts[1:]), usual.y, usual.names)
    empty = VerticalFederation((usual.dense_data()[0][0] * 0.0, *usual.parts[1:]), usual.y, usual.names)
    target = np.random.default_rng(0).normal(size=(6, 40))
    said, of_none, of_usual = (
        ask(shared(place(whole, 4, federation)), target, 1) for federation in (huge, empty, usual)
    )
    assert np.array_equal(said, of_none)
    assert np.array_equal(said[1:], of_usual[1:])
    assert not np.array_equal(said[0], of_usual[0])


@pytest.mark.parametrize("unit", COLUMN_UNITS)
@pytest.mark.parametrize(
    ("rho", "size", "words"),
    [
        (1e61, 1.0, "rho must be from 1e-60 to 1e\\+60"),
        (1e-61, 1.0, "rho must be"),
        (np.nan, 1.0, "rho must be"),
        (1.0, 1e61, "the target's largest entry must be"),
        (1.0, np.inf, "the target's largest entry must be"),
    ],
)
def test_what_is_out_of_range_is_refused_before_the_charge(unit: str, rho: float, size: float, words: str) -> None:
    simulator = place(COLUMN_UNITS[unit])
    with pytest.raises(OutOfRange, match=words):
        ask(simulator, np.full((6, 40), size), 1, rho)
    assert not simulator.ledger.epsilons().any()


def test_more_columns_than_can_be_fitted_are_refused_before_the_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = place(COLUMN_UNITS["proven, clip"])
    monkeypatch.setattr(columns, "MOST", 0)
    with pytest.raises(InvalidInput, match="Split its columns over several parties"):
        ask(simulator, np.ones((6, 40)), 1)
    assert not simulator.ledger.epsilons().any()


def test_what_is_not_declared_is_not_answered() -> None:
    simulator = place(RECORD)
    oracle, _ = simulator.door.open(np.arange(6), np.ones(6, dtype=bool), 1)
    oracle.fit(np.ones((6, 40)), np.ones((6, 1)))
    with pytest.raises(InvalidInput, match="declared 1 answers"):
        oracle.fit(np.ones((6, 40)), np.ones((6, 1)))
    for question in (oracle.predict, oracle.adjoint):
        with pytest.raises(InvalidInput, match="declared 'fit'"):
            question(np.ones((6, 40)))
    closed, _ = simulator.door.open(np.arange(6), np.ones(6, dtype=bool), 0)
    with pytest.raises(InvalidInput):
        closed.fit(np.ones((6, 40)), np.ones((6, 1)))


def test_targets_are_projected_and_data_clipped() -> None:
    privacy = replace(RECORD, bound=1.0, row_bound=0.2)
    simulator = place(privacy)
    assert max(float(np.linalg.norm(party.D, axis=1).max()) for party in simulator.exact.parties) <= 0.2
    kept = Kept(target=np.full((6, 40), 50.0), rho=np.ones((6, 1)))
    small_target = Kept(target=clip_rows(np.full((6, 40), 50.0), 1.0), rho=np.ones((6, 1)))
    np.testing.assert_array_equal(
        simulator.door.looked_at(kept, np.arange(6)), simulator.door.looked_at(small_target, np.arange(6))
    )


@pytest.mark.parametrize("unit", ["proven, record", "proven, clip"])
def test_scores_are_clipped_before_they_get_noise(unit: str) -> None:
    loose, heard = COLUMN_UNITS[unit], []
    tight = replace(loose, score_bound=0.01) if unit == "proven, record" else replace(loose, bound=0.01)
    for privacy in (loose, tight):
        simulator = place(privacy)
        simulator.door.intercept = lambda answer, exact, *_: heard.append(exact) or answer
        ask(simulator, np.random.default_rng(0).normal(size=(6, 40)), 1)
    sizes = [np.abs(one).max(axis=1) if unit == "proven, record" else np.linalg.norm(one, axis=1) for one in heard]
    assert sizes[0].min() > 0.015  # so that there is something to clip
    np.testing.assert_allclose(sizes[1], 0.01, rtol=1e-9)


def test_bounds_hold_for_columns_and_sparse_parts_too() -> None:
    from scipy.sparse import csr_array

    parts: list[Any] = [np.arange(12.0).reshape(4, 3), csr_array(np.arange(8.0).reshape(4, 2))]
    for privacy, axis in ((COLUMN_UNITS["proven, column"], 0), (RECORD, 1)):
        bound = privacy.column_bound if axis == 0 else privacy.row_bound
        for before, after in zip(parts, bounded(parts, privacy), strict=True):
            dense, was = (x if isinstance(x, np.ndarray) else x.toarray() for x in (after, before))
            lengths, old = np.linalg.norm(dense, axis=axis), np.linalg.norm(was, axis=axis)
            assert (lengths <= bound).all()
            np.testing.assert_allclose(lengths, np.minimum(old, bound))


@pytest.mark.parametrize("unit", ["proven, party", "proven, column", "proven, record"])
def test_model_noise_has_the_size_of_its_sensitivity(unit: str) -> None:
    privacy, runs = COLUMN_UNITS[unit], 2000
    simulator = place(privacy, runs=runs)
    target, rho = np.random.default_rng(0).normal(size=(6, 40)), np.full((6, 1), 0.3)
    stacked = Kept(target=np.broadcast_to(target, (runs, 6, 40)), rho=np.broadcast_to(rho, (runs, 6, 1)))
    noisy = simulator.door.models(stacked, np.arange(6), 4)
    exact, mu = simulator.exact.fit(target, rho, np.arange(6)), goal().penalty.strong / 0.3
    change = sensitivity.record_model(target, mu, 3.0) if "record" in unit else sensitivity.party_model(target, mu)
    standard = (noisy - exact) / (simulator.door.events[0].noise_multiplier * change)
    assert standard.std() == pytest.approx(1.0, abs=0.02)


# ------------------------------------------------------------------------------ bounds of the floating-point result

PROMISES: dict[str, ProvenColumns] = {
    "party": ProvenColumns(1.0, 1e-5, unit="party", bound=50.0),
    "column": ProvenColumns(1.0, 1e-5, unit="column", bound=50.0, column_bound=3e9),
    "record": ProvenColumns(1.0, 1e-5, unit="record", bound=50.0, row_bound=3e9, score_bound=0.9),
}


def answers(parts: list[np.ndarray], privacy: ProvenColumns, target: np.ndarray, mu: float) -> Any:
    """What one party answers and the model it gives out before noise, each with the sensitivity its noise was for."""
    federation = VerticalFederation.from_arrays(parts, np.where(np.arange(len(target)) % 2 == 0, 1.0, -1.0))
    door, made, rho = place(privacy, federation=federation).door, [], np.array([[goal().penalty.strong / mu]])

    def keep(answer: np.ndarray, exact: np.ndarray, scale: np.ndarray, kind: str) -> np.ndarray:
        made.append((exact[0].copy(), float(np.ravel(scale)[0]) / door.events[0].noise_multiplier))
        return answer

    door.intercept = keep
    oracle, _ = door.open(np.arange(1), np.ones(1, dtype=bool), 1)
    oracle.fit(target[None], rho)
    door.models(Kept(target=target[None], rho=rho), np.arange(1), 4)
    return made


def nearly_parallel(rng: np.random.Generator, samples: int, width: int) -> np.ndarray:
    """Long columns that differ in their last digits: normal equations of these lose all digits if mu is small."""
    near = 10.0 ** rng.uniform(-9, -5, (1, width)) * rng.normal(size=(samples, width))
    return 10.0 ** rng.uniform(3, 9) * (rng.normal(size=(samples, 1)) + near)


@pytest.mark.parametrize("unit", PROMISES)
@pytest.mark.parametrize("shape", [(6, 3), (4, 6)])
def test_no_neighbour_moves_a_computed_fit_further_than_its_noise_is_for(unit: str, shape: tuple[int, int]) -> None:
    """Also where the solver is far off: fits once moved by five times what the algebra of exact ones says."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(60):
        D = nearly_parallel(rng, *shape)
        E = nearly_parallel(rng, *shape)
        if unit == "column":
            E[:, 1:] = D[:, 1:]
        elif unit == "record":
            E[1:] = D[1:]
        target, mu = rng.normal(size=shape[0]), 10.0 ** rng.uniform(-12, 0)
        for (one, stated), (other, again) in zip(
            *(answers([X], PROMISES[unit], target, mu) for X in (D, E)), strict=True
        ):
            assert stated == again
            change = np.linalg.norm(one - other)
            assert change <= stated * (1 + 1e-15)
            worst = max(worst, change / stated)
    assert worst > 0.6


def test_the_algebra_of_exact_fits_does_not_hold_for_computed_ones() -> None:
    """Why scores are moved into a ball: without it they leave it by far."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        D, target = nearly_parallel(rng, 6, 3), rng.normal(size=6)
        fit = columns.Columns([D], L2(1.0))
        rho = np.array([[10.0 ** rng.uniform(0, 12)]])
        scores = fit.predict(fit.fit(target[None], rho, np.arange(1), False), np.arange(1))[0]
        worst = max(worst, np.linalg.norm(scores - target / 2) / np.linalg.norm(target / 2))
    assert worst > 1.1


@pytest.mark.parametrize("bound", [1.0, 1e9])
def test_finer_sensitivities_only_where_public_numbers_prove_them(bound: float) -> None:
    """The columns themselves are the same, and short: only the promise differs."""
    D, target, mu = np.random.default_rng(1).normal(size=(6, 2)) / 10, np.arange(6.0), 4.0
    column = answers([D], replace(PROMISES["column"], column_bound=bound), target, mu)
    record = answers([D], replace(PROMISES["record"], row_bound=bound, score_bound=0.1), target, mu)
    size = float(np.linalg.norm(target))
    if bound == 1.0:
        assert column[0][1] == pytest.approx(size / 5, rel=1e-10)
        assert record[0][1] == pytest.approx(float(sensitivity.record_scores(target, mu, 1.0, 0.1)[0]), rel=1e-10)
        assert record[1][1] == pytest.approx(float(sensitivity.record_model(target, mu, 1.0)[0]), rel=1e-10)
    else:
        assert column[0][1] == size
        assert record[0][1] == pytest.approx(0.2 * np.sqrt(6), rel=1e-12)
        assert record[1][1] == pytest.approx(size / 2, rel=1e-15)


def test_shortened_parts_keep_their_bound_exactly() -> None:
    from scipy.sparse import csr_array

    rng = np.random.default_rng(2)
    part = rng.normal(size=(40, 7)) * 10.0 ** rng.uniform(-9, 9, (40, 1))
    for privacy in (replace(RECORD, row_bound=0.1), replace(COLUMN_UNITS["proven, column"], column_bound=0.1)):
        stored: list[Any] = [part, csr_array(part)]
        for given_part in stored:
            after = bounded([given_part], privacy)[0]
            dense = after if isinstance(after, np.ndarray) else after.toarray()
            for vector in dense.T if privacy.row_bound is None else dense:
                assert sum(Fraction(float(x)) ** 2 for x in vector) <= Fraction(0.1) ** 2


def test_a_penalty_of_someone_else_is_no_ridge() -> None:
    class Mine(L2):
        pass

    Mine.__module__ = L2.__module__
    hidden = L2(0.05)
    object.__setattr__(hidden, "prox", lambda v, step: v)
    for penalty in (Mine(0.05), hidden):
        with pytest.raises(NoGuarantee, match="variant 'ridge' is proven for an L2 penalty"):
            RECORD.check(ADMMSharing().asks(), penalty)
    RECORD.check(ADMMSharing().asks(), L2(0.05))


# -------------------------------------------------------------------------------------------------- what a result says


def trained(privacy: Any, **options: Any) -> Any:
    federation = small_columns()
    given: dict[str, Any] = {"seed": 1} | options
    return train(ADMMSharing(), federation, goal(), rounds=3, privacy=privacy, **given)


@pytest.mark.parametrize("unit", COLUMN_UNITS)
def test_the_guarantee_says_what_is_covered_and_that_labels_are_not(unit: str) -> None:
    stated = trained(COLUMN_UNITS[unit]).guarantee
    assert stated.epsilon == pytest.approx(20.0, rel=1e-6)
    word = {"proven, party": "party", "proven, column": "column"}.get(unit, "record")
    assert f"per {word}," in stated.short
    assert "Labels are NOT protected" in stated.text
    assert "scores of new rows by the noisy models are covered" in stated.text
    assert "labels" in stated.not_covered


def test_a_record_at_all_parties_costs_more_and_the_guarantee_says_how_much() -> None:
    result = trained(RECORD)
    noise = accounting.calibrate(20.0, 1e-3, 4)
    together = accounting.gaussian_epsilon(np.sqrt(6 * 4) / noise, 1e-3)
    assert f"all 6 parties: ({together:.6g}, 0.001)" in result.guarantee.text


def test_private_labels_are_flipped_once_at_the_stated_rate() -> None:
    y = np.where(np.arange(20_000) % 3 == 0, 1.0, -1.0)
    for key in (SharedNoise(Streams(3)), None):
        flipped = randomised_labels(y, 1.0, key)
        share = (flipped != y).mean()
        assert share == pytest.approx(1 / (1 + np.e), abs=0.012)
    simulator = place(replace(RECORD, label_epsilon=1.0))
    scores = np.zeros((1, 40))
    first = simulator.labels.slope(scores)
    assert np.array_equal(first, simulator.labels.slope(scores))
    assert not np.array_equal(np.sign(-first[0]), small_columns().y)
    stated = trained(replace(RECORD, label_epsilon=1.0)).guarantee
    assert "Labels: (1, 0) for one label" in stated.text
    assert "labels" not in stated.not_covered


def test_the_broadcast_gives_every_label_away() -> None:
    """Why the guarantee says so: after one round the sign of -y_i is the label of sample i."""
    kept: list[Any] = []
    federation = small_columns()
    train(ADMMSharing(), federation, goal(), rounds=2, privacy=NoPrivacy(), seed=1, after_round=kept.append)
    assert np.array_equal(np.sign(-kept[0].server.y[0]), federation.y)


def test_prediction_without_a_released_model_is_refused() -> None:
    result = trained(replace(RECORD, model=False))
    assert result.model.size == 0
    assert "(no model was released)" in result.guarantee.text
    with pytest.raises(NoGuarantee, match="no model was released"):
        result.predict(small_columns().parts)
    assert result.guarantee.epsilon == pytest.approx(20.0, rel=1e-6)  # all of it went into the rounds


def test_models_in_a_result_are_noisy_and_not_what_trained() -> None:
    loud, quiet = trained(RECORD), trained(replace(RECORD, epsilon=1e18))
    assert np.linalg.norm(loud.model - quiet.model) > 0.1


def test_ledgers_on_disk_outlive_the_run(tmp_path: Any) -> None:
    options: dict[str, Any] = {"ledgers": tmp_path}
    first = trained(RECORD, **options)
    assert first.guarantee.epsilon == pytest.approx(20.0, rel=1e-6)
    for seed in (1, 2):  # a run that is started again pays again, and nothing is left
        other = trained(RECORD, **(options | {"seed": seed}))
        assert other.rounds == 0
        assert "budget is spent" in other.stopped


def test_labels_have_a_ledger_of_their_own(tmp_path: Any) -> None:
    """Flipped anew for another run, they would be given away twice: all runs have the same flips, for life."""
    privacy = replace(RECORD, epsilon=5.0, label_epsilon=1.0)
    for seed in (1, 2):
        run = trained(privacy, ledgers=tmp_path / "files", seed=seed)
        assert "Labels: (1, 0) for one label" in run.guarantee.text
    with pytest.raises(OtherFlips, match=r"randomised before, for other rows or with another label_epsilon than 0\.1"):
        trained(replace(privacy, label_epsilon=0.1), ledgers=tmp_path / "files")
    (tmp_path / "files" / "labels" / "flips.npz").unlink()
    with pytest.raises(LedgerError, match="is gone, and labels were randomised by it"):
        trained(privacy, ledgers=tmp_path / "files")


def test_losses_of_models_that_were_never_given_out_do_not_leave() -> None:
    federation = small_columns()
    test = (federation.parts, federation.y)
    for privacy, leave in ((RECORD, False), (NoPrivacy(), True)):
        result = trained(privacy, test=test)
        assert {"test_loss", "test_accuracy"} <= set(result.history.columns)
        assert ("test_loss" in released(result).history.columns) == leave
        assert ("test_accuracy" in released(result).history.columns) == leave


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unit": "column", "bound": 1.0}, "needs column_bound"),
        ({"unit": "record", "bound": 1.0, "row_bound": 1.0}, "needs score_bound"),
        ({"unit": "party", "bound": 1.0, "row_bound": 1.0}, "has no row_bound"),
        ({"unit": "party", "bound": 1.0, "variant": "clip"}, "needs model_bound"),
        ({"unit": "person", "bound": 1.0}, "unknown unit"),
    ],
)
def test_a_promise_needs_exactly_its_own_bounds(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ProvenColumns(1.0, 1e-5, **fields)


def test_noise_on_scores_needs_a_bound() -> None:
    with pytest.raises(InvalidInput, match=r"admm-sharing needs bound, the norm .* root of the number of samples"):
        train(ADMMSharing(), small_columns(), goal(), rounds=1, privacy=ProvenColumns(1.0, 1e-5))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"unit": "party"}, "needs bound, the norm .* square root of the number of samples"),
        ({"unit": "record", "bound": 9.0}, "needs row_bound, the length .* square root of its number of columns"),
        ({"unit": "record", "bound": 9.0, "row_bound": 1.0}, "needs score_bound, the size .* Try 0.3"),
        ({"unit": "column", "bound": 9.0}, "needs column_bound, the length"),
        ({"unit": "party", "bound": 9.0, "variant": "clip"}, "needs model_bound, the norm .* Try 1"),
        ({"unit": "party", "bound": 9.0, "row_bound": 1.0}, "has no row_bound, got 1.0. Leave it out"),
    ],
    ids=str,
)
def test_what_a_bound_is_is_said_where_it_is_missing(given: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        ProvenColumns(1.0, 1e-5, **given)


def test_what_no_proof_covers_is_refused() -> None:
    federation = small_columns()
    with pytest.raises(NoGuarantee, match="proven for an L2 penalty"):
        train(ADMMSharing(), federation, Objective(Logistic(), L1(0.1)), rounds=1, privacy=RECORD)
    with pytest.raises(NoGuarantee, match="fdml: has no 'proven' variant"):
        train(FDML(), federation, goal(), rounds=1, privacy=RECORD)
    with pytest.raises(InvalidInput, match="ProvenColumns"):
        train(ADMMSharing(), federation, goal(), rounds=1, privacy=Proven(1.0, 1e-5, 1.0))
    result = train(
        ADMMSharing(), federation, Objective(Logistic(), L1(0.1)), rounds=2, privacy=COLUMN_UNITS["proven, clip"]
    )
    assert result.guarantee.epsilon is not None


# ---------------------------------------------------------------------------------- the published noise, in one message


def test_one_published_message_tells_neighbours_apart() -> None:
    """One entry of one column differs. What the door itself sends lies in the column space of the data that sent it."""
    federation, runs = small_columns(), 200
    other = [part.copy() for part, _ in federation.dense_data()]
    other[2][0, 1] += 0.5
    neighbour = VerticalFederation.from_arrays(other, federation.y)
    spaces = [np.linalg.svd(f.dense_data()[2][0], full_matrices=False)[0] for f in (federation, neighbour)]
    target = np.random.default_rng(0).normal(size=(6, 40))
    guesses = []
    for truth in (federation, neighbour):
        simulator = place(Published(1.0, 1e-5), federation=truth, runs=runs)
        oracle, _ = simulator.door.open(np.arange(6), np.ones((runs, 6), dtype=bool), 1)
        sent = oracle.fit(target, np.full((6, 1), 0.3), np.full((6, 1), 5.0))[:, 2]
        outside = [np.linalg.norm(sent - sent @ basis @ basis.T, axis=-1) for basis in spaces]
        guesses.append(outside[0] < outside[1])
    assert guesses[0].all()  # always told that it was the data set ...
    assert not guesses[1].any()  # ... and always that it was the neighbour


def test_published_noise_is_that_of_theorem_3_and_the_verdict_is_printed() -> None:
    simulator = place(Published(0.5, 1e-5), runs=3000)
    oracle, _ = simulator.door.open(np.arange(6), np.ones((3000, 6), dtype=bool), 1)
    sent = oracle.fit(np.ones((6, 40)), np.full((6, 1), 0.3), np.full((6, 1), 2.0))[:, 2]
    basis = np.linalg.svd(small_columns().dense_data()[2][0], full_matrices=False)[0]
    inside = (sent - sent.mean(axis=0)) @ basis
    np.testing.assert_allclose(np.cov(inside.T), 4.0 * np.eye(3), atol=0.35)
    text = trained(Published(0.5, 1e-5)).guarantee.text
    assert "UNSOUND: no guarantee" in text
    assert "shows every label" in text


def test_published_with_an_l1_penalty_is_refused() -> None:
    with pytest.raises(InvalidInput, match="second derivative"):
        train(ADMMSharing(), small_columns(), Objective(Logistic(), L1(0.1)), rounds=1, privacy=Published(1.0, 1e-5))


class Peeping(ADMMSharing):
    """Leaky: mixes exact scores into what it sends."""

    def client(self, state: Any, down: Any, site: Any) -> Any:
        after, up = super().client(state, down, site)
        exact = np.stack([part.sum(axis=1) for part, _ in PEEPED[0].dense_data()])[site.who]
        r = site.release(up.r + 0.01 * exact)
        return replace(after, r=r), replace(up, r=r)


PEEPED: list[VerticalFederation] = []


def test_replay_catches_a_method_that_looks_past_the_door() -> None:
    def run(federation: VerticalFederation, tape: Tape) -> list[np.ndarray]:
        PEEPED[:] = [federation]
        return messages(Peeping(), federation, RECORD, tape)

    assert not replays(run, small_columns(3), small_columns(4))


def test_no_privacy_says_so() -> None:
    assert trained(NoPrivacy()).guarantee.epsilon is None
    assert L2(1.0).strong == 1.0


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0, 30.0, 36.0, 36.9, 100.0, 1000.0])
def test_seeded_flips_are_at_least_as_frequent_as_charged(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws have 52 bits, and a half more: the share of those that flip is counted, as whole numbers."""

    def grid(number: int) -> float:
        return (number + 0.5) / 2**52

    def flips(number: int) -> bool:
        monkeypatch.setattr(NoiseKey, "uniform", lambda *given: np.array([[grid(number)]]))
        key = NoiseKey(Streams(0), np.zeros((1, 2), np.uint64))
        return bool(randomised_labels(np.ones(1), epsilon, key)[0] < 0)

    low, high = -1, 2**52  # the last that flips, and the first that does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if flips(middle) else (low, middle)
    least = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
    assert low + 1 >= least * 2**52
    assert low + 1 <= least * 2**52 * (1 + 1e-12) + 2
    assert accounting.affordable(label_event(epsilon), epsilon, 0.0) == 1
