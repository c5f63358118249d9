"""Estimators: scikit-learn accepts them, they reach the right optimum, and guarantees say what they leave out."""

import inspect
import itertools
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import sottovoce as sv
from sottovoce.algorithms import ADMM, DPSGD, ADMMSharing
from sottovoce.core.check import BudgetSpent, InvalidInput, NoGuarantee, PrivacyWarning
from sottovoce.estimators.scalers import RowClipper
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy import accounting
from sottovoce.problems.losses import SmoothedHinge, Softmax
from sottovoce.rules import PublicNumbers, choose

pytestmark = pytest.mark.filterwarnings("ignore:.*will be clipped away")  # most rows here are known to be short
RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, size=(400, 3))
SCORE = X @ [2.0, -1.0, 0.5] + 0.3
Y = np.where(SCORE + 0.3 * RNG.normal(size=400) > 0, "yes", "no")
THREE = np.array(["low", "middle", "high"])[np.digitize(SCORE, [-0.5, 0.8])]
OWNER = np.array(["north", "south", "west"])[RNG.integers(0, 3, size=400)]
QUICK: dict[str, Any] = {"rounds": 5, "engine": "numpy", "random_state": 0, "delta": 1e-4}
EXACT: dict[str, Any] = {"algorithm": "admm", "privacy": "none", "rounds": 150, "engine": "numpy"}
COLUMNS = sv.ProvenColumns(50.0, 1e-5, unit="record", bound=20.0, row_bound=2.0, score_bound=1.0)
DECLARED: dict[str, Any] = {"classes": ["no", "yes"], "earlier_steps": "public"}


def copy_of(model: Any) -> Any:
    return clone(model)


# Nothing is expected to fail. With noise, checks that compare two fits hold because a seed makes noise repeatable, and
# none wants a score: few rows under a real budget make a poor model, which the tag `poor_score` declares.
@pytest.mark.filterwarnings("ignore::sottovoce.core.check.PrivacyWarning", "ignore:.*will be clipped away")
@parametrize_with_checks(
    [
        sv.FederatedClassifier("admm", privacy="none", rounds=3, engine="numpy"),
        sv.FederatedRegressor("admm", privacy="none", rounds=3, engine="numpy"),
        sv.FederatedClassifier(epsilon=100.0, rounds=5, engine="numpy", random_state=0),
        sv.FederatedRegressor(epsilon=100.0, rounds=5, engine="numpy", random_state=0),
        sv.FederatedClassifier(engine="numpy"),
        sv.FederatedRegressor(engine="numpy"),
        sv.VerticalClassifier(privacy="none", rounds=30),
        sv.VerticalClassifier(epsilon=50.0),
        sv.VerticalRegressor(epsilon=50.0),
        sv.VerticalClassifier(
            privacy=sv.ProvenColumns(50.0, 1e-5, unit="record", bound=20.0, row_bound=2.0, score_bound=0.3),
            rounds=5,
            random_state=0,
        ),
    ]
)
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning", "ignore::sottovoce.core.check.PrivacyWarning")
@pytest.mark.parametrize(
    ("estimator", "why"),
    [
        # a record, a column and a party differ in cost by orders of magnitude: nobody can choose for the user
        (sv.VerticalClassifier(privacy=None), "privacy must be 'proven'"),  # type: ignore[arg-type]
        # ranges that were not stated would have to be read from the private rows
        (sv.PublicScaler(), "ranges must be stated"),
        # an epsilon of 0.1 does not find ranges in the checks' 10 to 200 rows: it refuses rather than guess
        (sv.PrivateScaler(), "noise would drown the counts"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_defaults_that_scikit_learn_cannot_check(estimator: Any, why: str) -> None:
    """Each of these fails by its own refusal and by nothing else; with the parameter stated all checks pass."""
    failed = [one["exception"] for one in check_estimator(estimator, on_fail=None) if one["status"] == "failed"]
    assert len(failed) > 20
    for error in failed:
        chain = (error, error.__cause__, error.__context__)
        assert any(why in str(each) for each in chain), repr(error)


@pytest.mark.parametrize(
    ("kind", "positional"),
    [
        (sv.FederatedClassifier, ["algorithm"]),
        (sv.FederatedRegressor, ["algorithm"]),
        (sv.VerticalClassifier, ["parties", "algorithm"]),
        (sv.PublicScaler, ["ranges"]),
        (sv.PrivateScaler, ["epsilon", "delta"]),
        (sv.RowClipper, ["bound"]),
    ],
)
def test_every_parameter_is_explained(kind: Any, positional: list[str]) -> None:
    parameters = inspect.signature(kind).parameters
    assert [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD] == positional
    assert set(kind().get_params()) == parameters.keys()
    shared = sv.FederatedClassifier if kind is sv.FederatedRegressor else kind  # whose docstring refers to the other
    text = f"{kind.__doc__}{shared.__doc__}"
    explained = {name for line in re.findall(r"^    (\w+(?:, \w+)*)$", text, re.M) for name in line.split(", ")}
    assert parameters.keys() <= explained


# ------------------------------------------------------------------------------------------------ the right optimum


@pytest.mark.parametrize("y", [Y, THREE], ids=["two classes", "three"])
@pytest.mark.parametrize("intercept", [False, True])
def test_without_noise_it_is_logistic_regression(y: np.ndarray, intercept: bool) -> None:
    model = sv.FederatedClassifier(**EXACT, penalty=sv.L2(0.01), fit_intercept=intercept).fit(X, y)
    other = LogisticRegression(C=1 / (0.01 * len(X)), fit_intercept=intercept, tol=1e-10, max_iter=10_000).fit(X, y)
    assert np.array_equal(model.classes_, other.classes_)
    assert model.coef_.shape == (1 if len(other.classes_) == 2 else 3, 3)
    assert np.allclose(model.coef_, other.coef_, atol=2e-5)
    if len(other.classes_) == 2:  # of several classes the intercepts are known up to a common number
        assert np.allclose(model.intercept_, other.intercept_, atol=2e-5)
        assert np.allclose(model.decision_function(X), other.decision_function(X), atol=1e-4)
    assert np.allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-5)
    assert np.array_equal(model.predict(X), other.predict(X))


def test_the_intercept_is_penalised_if_asked() -> None:
    model = sv.FederatedClassifier(**EXACT, penalty=sv.L2(0.01), penalise_intercept=True).fit(X, Y)
    wide = np.column_stack([X, np.ones(len(X))])
    other = LogisticRegression(C=1 / (0.01 * len(X)), fit_intercept=False, tol=1e-10, max_iter=10_000).fit(wide, Y)
    assert np.allclose(np.append(model.coef_, model.intercept_), other.coef_[0], atol=2e-5)
    saved = model.result_  # predicts rows that need no column of ones
    assert np.allclose(saved.scores(X), model.decision_function(X), rtol=1e-12)


def test_every_record_counts_the_same() -> None:
    groups = np.where(np.arange(400) < 50, "small", "large")
    model = sv.FederatedClassifier(**EXACT, penalty=sv.L2(0.01), fit_intercept=False).fit(X, Y, groups=groups)
    other = LogisticRegression(C=1 / (0.01 * 400), fit_intercept=False, tol=1e-10).fit(X, Y)
    assert np.allclose(model.coef_, other.coef_, atol=2e-5)


def test_without_noise_it_is_ridge_regression() -> None:
    y = 500 + 100 * SCORE
    model = sv.FederatedRegressor(**EXACT, penalty=sv.L2(0.01), y_range=(0, 1000)).fit(X, y)
    other = Ridge(alpha=0.01 * len(X)).fit(X, (y - 500) / 500)
    assert np.allclose(model.coef_, 500 * other.coef_, atol=1e-3)
    assert model.intercept_ == pytest.approx(500 + 500 * other.intercept_, abs=1e-3)
    assert np.allclose(model.predict(X), 500 + 500 * other.predict(X), atol=1e-2)
    assert model.score(X, y) > 0.99


def test_two_margins_of_softmax_are_one_of_logistic() -> None:
    model = sv.FederatedClassifier(**EXACT, loss="softmax", penalty=sv.L2(0.01)).fit(X, Y)
    # |w1|² + |w2|² with w2 = -w1 is half of |w2 - w1|²
    other = sv.FederatedClassifier(**EXACT, penalty=sv.L2(0.005)).fit(X, Y)
    assert model.coef_.shape == (1, 3)
    assert np.allclose(model.coef_, other.coef_, atol=1e-4)
    assert np.allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize(("loss", "y", "winner"), [("logistic", Y, 1), ("softmax", Y, 0), ("softmax", THREE, 0)])
def test_equal_scores_are_decided_as_a_saved_run_decides_them(loss: str, y: np.ndarray, winner: int) -> None:
    model = sv.FederatedClassifier(**EXACT, loss=loss, penalty=sv.L2(0.01), fit_intercept=False).fit(X, y)
    nothing = np.zeros((1, 3))
    assert model.predict(nothing)[0] == model.classes_[winner]
    assert model.result_.predict(nothing)[0] == (winner if loss == "softmax" else 2 * winner - 1)
    assert pickle.loads(pickle.dumps(model)).predict(nothing)[0] == model.classes_[winner]


def test_hinges_have_no_probabilities() -> None:
    model = sv.FederatedClassifier(**EXACT, loss=SmoothedHinge(0.5), penalty=sv.L2(0.01)).fit(X, Y)
    assert model.score(X, Y) > 0.85
    assert not hasattr(model, "predict_proba")
    assert hasattr(sv.FederatedClassifier(), "predict_proba")


def test_preparation_is_applied_before_predicting() -> None:
    raw = 50 + 40 * X
    steps = [sv.PublicScaler((10, 90)), RowClipper(1.0)]
    model = sv.FederatedClassifier(**EXACT, prepare=steps).fit(raw, Y)
    by_hand = sv.FederatedClassifier(**EXACT, row_bound=1.0)
    scaled = make_pipeline(*steps).fit_transform(raw)
    assert np.allclose(scaled, X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None], atol=1e-12)
    assert np.allclose(model.coef_, by_hand.fit(scaled, Y).coef_, atol=1e-9)
    assert np.array_equal(model.predict(raw), by_hand.predict(scaled))


# ------------------------------------------------------------------------------------------------- what it promises


def test_the_budget_is_what_was_asked_for() -> None:
    model = sv.FederatedClassifier(epsilon=0.7, **QUICK).fit(X, Y, groups=OWNER)
    assert model.guarantee_.epsilon == pytest.approx(0.7, rel=1e-6)
    assert (model.guarantee_.delta, len(model.guarantee_.epsilon_of_client)) == (1e-4, 3)
    assert model.rounds_ <= 5
    own = sv.FederatedClassifier(DPSGD(), privacy=sv.Proven(0.5, 1e-3, 2.0, relation="add-remove"), **QUICK)
    assert own.fit(X, Y, groups=OWNER).guarantee_.epsilon == pytest.approx(0.5, rel=1e-6)
    published = sv.FederatedClassifier(epsilon=0.5, privacy="published", **QUICK).fit(X, Y, groups=OWNER)
    assert published.guarantee_.epsilon is None
    assert "dp-admm" in str(published.guarantee_).lower()
    exact = sv.FederatedClassifier(privacy="none", **QUICK).fit(X, Y)
    assert str(exact.guarantee_) == "No privacy: exact answers were sent in the clear."


def test_it_says_what_is_not_covered() -> None:
    model = sv.FederatedClassifier(**QUICK).fit(X, Y)
    text = str(model.guarantee_)
    for words in ("read off the private labels", "before fit, which is not known here", "groups was not given"):
        assert words in text
        assert any(words in sentence for sentence in model.guarantee_.not_covered)
    assert text.endswith(".")
    assert not text.endswith("..")
    declared = str(sv.FederatedClassifier(**QUICK, **DECLARED).fit(X, Y, groups=OWNER).guarantee_)
    assert declared == text[: text.index("; the set of class labels")] + "."


def test_earlier_steps_are_not_guessed_from_private_rows() -> None:
    """Rows that look scaled by their own numbers, and others: the same words, and no warning (warnings are errors)."""
    said = [sv.FederatedClassifier(**QUICK).fit(rows, Y).guarantee_.not_covered for rows in (X, scaled(100 + X))]
    assert said[0] == said[1]
    assert any("scaling by private maxima, means or deviations is a leak" in words for words in said[0])
    declared = sv.FederatedClassifier(**QUICK, earlier_steps="public").fit(scaled(X), Y)
    assert not any("private maxima" in words for words in declared.guarantee_.not_covered)


def scaled(rows: np.ndarray) -> np.ndarray:
    return StandardScaler().fit_transform(rows)


def test_ranges_and_training_share_one_budget(tmp_path: Path) -> None:
    raw, y = np.repeat(X, 30, axis=0) * [1, 50, 1000], np.repeat(Y, 30)
    groups = np.arange(len(y)) % 3
    same: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, **DECLARED, **{k: QUICK[k] for k in ("rounds", "engine")}}
    model = sv.FederatedClassifier(**same, prepare=sv.PrivateScaler(0.5), random_state=0, ledgers=tmp_path)
    model.fit(raw, y, groups=groups)
    assert model.guarantee_.epsilon == pytest.approx(1.0, rel=1e-6)
    assert model.score(raw, y) > 0.85
    with FileLedger.open(tmp_path / "0001.ledger") as ledger:
        assert sorted(ledger.spent().values()) == [2, 5]
        assert ledger.epsilon() == pytest.approx(1.0, rel=1e-6)
        assert [receipt.round for receipt in ledger.receipts()] == [0, 0, 1, 2, 3, 4, 5]
    # in memory the same numbers; and the same fit again is a new run, for which nothing is left
    memory = copy_of(model).set_params(ledgers=None).fit(raw, y, groups=groups)
    assert np.array_equal(memory.coef_, model.coef_)
    assert memory.guarantee_.epsilon == pytest.approx(1.0, rel=1e-6)
    for state in (0, 1):
        with pytest.raises(BudgetSpent):
            copy_of(model).set_params(random_state=state).fit(raw, y, groups=groups)
    message = "nothing was trained; after round 0: every client's budget is spent. Earlier fits .*change_budget"
    with pytest.raises(BudgetSpent, match=message):
        copy_of(model).set_params(prepare=sv.PublicScaler((-1000, 1000))).fit(raw, y, groups=groups)


def test_what_ranges_cost_is_missing_from_training() -> None:
    """Rows of nearly 0 have no gradient, so the model is noise alone; and the squared mu of Gaussians add up."""
    raw, y, groups = np.repeat(X, 30, axis=0), np.repeat(Y, 30), np.arange(12_000) % 3
    nearly_0 = sv.PublicScaler((-1e9, 1e9))

    def noise(*steps: Any) -> float:
        models = [
            sv.FederatedClassifier(
                DPSGD(), delta=1e-5, rounds=1, engine="numpy", prepare=[*steps, nearly_0], random_state=seed, **DECLARED
            ).fit(raw, y, groups=groups)
            for seed in range(40)
        ]
        return float(np.std([model.coef_ for model in models]))

    whole, ranges = (accounting.gaussian_mu(epsilon, 1e-5) for epsilon in (1.0, 0.9))
    expected = 1 / np.sqrt(1 - (ranges / whole) ** 2)
    assert expected > 2
    # each deviation is of 120 numbers, known to 6 %
    assert noise(sv.PrivateScaler(0.9, 1e-5)) / noise() == pytest.approx(expected, rel=0.3)


def test_a_rule_chooses_method_rounds_and_clip() -> None:
    options: dict[str, Any] = QUICK | {"rounds": None, "epsilon": 0.7, "prepare": RowClipper(2.0)}
    model = sv.FederatedClassifier("auto", **options).fit(X, Y, groups=OWNER)
    length = float(np.sqrt(5))  # of a row of length 2 with its intercept
    public = PublicNumbers(400, 3, 4, 0.7, 1e-4, row_bound=length, largest=OWNER.tolist().count("west"))
    expected = choose(public)
    assert (model.algorithm_, model.rounds_, model.chosen_) == (expected.algorithm, expected.rounds, expected.chosen)
    assert model.result_.config["privacy"]["clip"] == pytest.approx(length / 2)
    assert model.result_.config["choice"]["why"] in expected.words()
    same: dict[str, Any] = options | {"rounds": model.rounds_, "clip": expected.clip}
    by_hand = sv.FederatedClassifier(expected.algorithm, **same)
    assert np.array_equal(model.coef_, by_hand.fit(X, Y, groups=OWNER).coef_)
    assert model.guarantee_.epsilon == pytest.approx(0.7, rel=1e-6)


def test_auto_is_the_default_and_asks_for_at_most_the_stated_rounds() -> None:
    options: dict[str, Any] = {"epsilon": 50.0, "delta": 1e-4, "prepare": RowClipper(1.0), "random_state": 0}
    models = [sv.FederatedClassifier(**options, rounds=rounds) for rounds in (9, None)]
    assert models[0].algorithm == "auto"
    few, free = (model.fit(X, Y, groups=OWNER) for model in models)
    assert (few.rounds_, few.algorithm_.name) == (9, "noisy-gd")
    assert free.algorithm_.name == "moments-then-gradients"


def test_a_method_that_is_named_alone_gets_its_constants_by_rule() -> None:
    options: dict[str, Any] = QUICK | {"prepare": RowClipper(2.0)}
    ruled = sv.FederatedClassifier("dp-sgd", **{**options, "rounds": None}).fit(X, Y, groups=OWNER)
    assert ruled.chosen_ is not None
    assert ruled.algorithm_ == choose(PublicNumbers(400, 3, 4, 1.0, 1e-4, row_bound=np.sqrt(5)), "dp-sgd").algorithm
    stated = sv.FederatedClassifier("dp-sgd", **options).fit(X, Y, groups=OWNER)
    assert (stated.algorithm_, stated.chosen_) == (DPSGD(), None)


def test_the_rule_is_for_what_ranges_leave() -> None:
    """The squared mu of Gaussians add up; what a rule is asked about is the rest."""
    many, y, groups = np.repeat(X, 30, axis=0), np.repeat(Y, 30), np.arange(12_000) % 3
    noises = []
    for steps in (sv.PublicScaler((-1, 1)), sv.PrivateScaler(0.9, 1e-5)):
        options: dict[str, Any] = QUICK | {"delta": 1e-5, "prepare": steps}
        model = sv.FederatedClassifier("auto", **options).fit(many, y, groups=groups)
        assert model.chosen_ is not None
        noises.append(float(model.chosen_.why.split("s = ")[1].split(",")[0]))
    whole, ranges = (accounting.gaussian_mu(epsilon, 1e-5) for epsilon in (1.0, 0.9))
    assert noises[1] / noises[0] == pytest.approx(whole / np.sqrt(whole**2 - ranges**2), rel=0.01)


def test_probabilities_are_less_sure_for_the_noise_in_the_model() -> None:
    model = sv.FederatedClassifier(prepare=RowClipper(2.0), **QUICK).fit(X, Y, groups=OWNER)
    assert model.chosen_ is not None
    assert 0 < model.chosen_.calibration < 1
    log_odds = np.log(model.predict_proba(X)[:, 1] / model.predict_proba(X)[:, 0])
    np.testing.assert_allclose(log_odds, model.chosen_.calibration * model.decision_function(X), rtol=1e-9)
    by_result = model.result_.predict_proba(model._steps.apply(X))
    np.testing.assert_allclose(by_result, model.predict_proba(X), rtol=1e-12)


def test_the_intercept_leans_on_a_public_base_rate_where_noise_exceeds_signal() -> None:
    """By logit(p) d s²/(d s² + 0.02), whatever the rows say; and nowhere else."""
    options: dict[str, Any] = QUICK | {"epsilon": 0.02, "prepare": RowClipper(1.0)}
    plain = sv.FederatedClassifier(**options).fit(X, Y, groups=OWNER)
    leaning = sv.FederatedClassifier(base_rate=0.1, **options).fit(X, Y, groups=OWNER)
    assert plain.chosen_ is not None
    assert "with 400 records at epsilon = 0.02 a constant prediction may do as well" in plain.chosen_.warning
    assert plain.chosen_.warning in repr(plain.result_)
    spread = 4 * PublicNumbers(400, 3, 4, 0.02, 1e-4).noise ** 2
    expected = -np.log(9) * spread / (spread + 0.02)
    assert leaning.algorithm_.lean == pytest.approx(expected, rel=1e-9)  # type: ignore[attr-defined]
    options["epsilon"] = 20.0
    same = [sv.FederatedClassifier(base_rate=rate, **options).fit(X, Y, groups=OWNER) for rate in (None, 0.1)]
    assert np.array_equal(same[0].intercept_, same[1].intercept_)


def test_other_settings_other_noise() -> None:
    """One seed and two ways to prepare must not share noise: the difference of the two would be exact."""
    steps = (sv.PublicScaler((-1e9, 1e9)), sv.PublicScaler((-1.1e9, 1e9)), RowClipper(1e-9), RowClipper(1.1e-9))
    models = [sv.FederatedClassifier(DPSGD(), prepare=step, **QUICK, **DECLARED).fit(X, Y).coef_ for step in steps]
    models.append(sv.FederatedClassifier(DPSGD(), prepare=steps[0], fit_intercept=False, **QUICK).fit(X, Y).coef_)
    apart = np.array([[np.abs(a - b).max() / np.abs(a).max() for b in models] for a in models])
    assert (apart[~np.eye(5, dtype=bool)] > 0.01).all()  # shared noise would leave differences of 1e-9
    again = sv.FederatedClassifier(DPSGD(), prepare=steps[0], **QUICK, **DECLARED).fit(X, Y)
    assert np.array_equal(again.coef_, models[0])


def test_another_bound_other_noise() -> None:
    """A bound that differs in the eighth digit asks for steps that do: with one noise the models would be as near."""
    options: dict[str, Any] = {"prepare": sv.PublicScaler((-1, 1)), **QUICK, **DECLARED}
    bounds = (None, 2.45, 2.4500001)
    models = [sv.FederatedClassifier(row_bound=each, **options).fit(X, Y, groups=OWNER).coef_ for each in bounds]
    for one, other in itertools.combinations(models, 2):
        assert np.abs(one - other).max() > 0.01
    trained = []
    for bound in bounds:
        rows = sv.Federation.from_arrays(X, np.where(Y == "yes", 1, -1), OWNER, row_bound=bound)
        goal = sv.Objective(sv.Logistic(), sv.L2(0.01))
        same: dict[str, Any] = {"privacy": sv.Proven(1.0, 1e-4, 1.0), "rounds": 3, "seed": 0, "engine": "numpy"}
        trained.append(sv.train(sv.DPADMM(), rows, goal, **same).model)
    for one, other in itertools.combinations(trained, 2):
        assert np.abs(one - other).max() > 0.01


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_other_data_other_noise(kind: str) -> None:
    """The folds of a cross-validation share a seed. The noise here is all there is: if shared, models would agree."""
    model: Any = sv.FederatedClassifier(DPSGD(), prepare=sv.PublicScaler((-1e9, 1e9)), **QUICK, **DECLARED)
    if kind == "columns":
        quiet = sv.ProvenColumns(0.01, 1e-5, unit="record", bound=20.0, row_bound=2.0, score_bound=1.0)
        model = sv.VerticalClassifier([1, 2], privacy=quiet, rounds=3, penalty=sv.L2(1.0), random_state=0, **DECLARED)

    def fitted(X: np.ndarray, y: np.ndarray, **groups: Any) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            return copy_of(model).fit(X, y, **groups).coef_

    moved, flipped = X.copy(), Y.copy()
    moved[0, 0] += 1e-9
    flipped[0] = "no" if Y[0] == "yes" else "yes"
    found = [fitted(X, Y), fitted(moved, Y), fitted(X, flipped)]
    if kind == "rows":
        found += [fitted(X, Y, groups=np.arange(400) // 200), fitted(X, Y, groups=np.arange(400) // 201)]
    apart = np.array([[np.abs(a - b).max() / np.abs(a).max() for b in found] for a in found])
    assert (apart[~np.eye(len(found), dtype=bool)] > 0.1).all()
    assert np.array_equal(fitted(X, Y), found[0])


def test_a_pickle_holds_no_seed_and_no_rows() -> None:
    seed: dict[str, Any] = {"random_state": 1_234_567_891}
    unseeded: dict[str, Any] = {"random_state": None}
    model = sv.FederatedClassifier(**(QUICK | seed)).fit(X, Y, groups=OWNER)
    stored = pickle.dumps(model)
    assert (1_234_567_891).to_bytes(4, "little") not in stored
    fresh = sv.FederatedClassifier(**(QUICK | seed))
    assert (1_234_567_891).to_bytes(4, "little") in pickle.dumps(copy_of(fresh))  # how workers of a search get it
    for secret in (X[0, 0], X[17, 2]):
        assert np.float64(secret).tobytes() not in stored
    assert b"north" not in stored
    loaded = pickle.loads(stored)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.guarantee_ == model.guarantee_
    assert loaded.random_state is None
    one, other = (sv.FederatedClassifier(**(QUICK | unseeded)).fit(X, Y).coef_ for _ in range(2))
    assert not np.allclose(one, other)


@pytest.mark.filterwarnings("ignore:.*was fitted before")
@pytest.mark.parametrize("kept", [False, True], ids=["memory", "ledgers"])
def test_a_pickled_search_holds_no_seed(kept: bool, tmp_path: Path) -> None:
    """It keeps the estimator that it was given, unfitted, beside the one that was fitted with its seed."""
    seed = 1_234_567_891
    options: dict[str, Any] = QUICK | {"random_state": seed, "ledgers": tmp_path if kept else None}
    scaler = sv.PrivateScaler(1e3, random_state=seed)
    pipeline = make_pipeline(scaler, sv.FederatedClassifier(**options))
    search: Any = GridSearchCV(pipeline, {"federatedclassifier__clip": [1.0]}, cv=2)
    assert pickle.dumps(search).count(seed.to_bytes(4, "little")) > 0
    if kept:
        search = pipeline.fit(X, Y)
    else:
        search.fit(X, Y)
    assert seed.to_bytes(4, "little") not in pickle.dumps(search)
    assert seed.to_bytes(4, "little") not in pickle.dumps(copy_of(search))
    options |= {"privacy": "none", "ledgers": None}
    open_ = sv.FederatedClassifier(**options).fit(X, Y)
    assert pickle.loads(pickle.dumps(open_)).random_state == seed  # nothing to hide


# --------------------------------------------------------------------------------------------- cross-validation etc.


def test_cross_validation_warns_that_each_fit_spends() -> None:
    model = sv.FederatedClassifier(**QUICK)
    with pytest.warns(PrivacyWarning, match="was fitted before, each fit spends epsilon = 1 of its own"):
        scores = cross_val_score(model, X, Y, cv=3, params={"groups": OWNER})
    assert scores.mean() > 0.6
    exact = sv.FederatedClassifier(privacy="none", **QUICK)
    assert cross_val_score(exact, X, Y, cv=3).mean() > 0.8  # warnings are errors: none here


def test_copies_in_other_processes_warn_too() -> None:
    """There nobody can count the fits together, so each of them says it."""
    model = sv.FederatedClassifier(**QUICK)
    copy = pickle.loads(pickle.dumps(copy_of(model)))  # as a worker gets it
    with pytest.warns(
        PrivacyWarning, match="is a copy, and others may be fitted elsewhere, each fit spends epsilon = 1"
    ):
        copy.fit(X, Y, groups=OWNER)
    fitted = pickle.loads(pickle.dumps(model.fit(X, Y, groups=OWNER)))  # warnings are errors: none here
    with pytest.warns(PrivacyWarning, match="is a copy, and others may be fitted elsewhere"):
        fitted.fit(X, Y, groups=OWNER)
    pickle.loads(pickle.dumps(sv.FederatedClassifier(**QUICK))).fit(X, Y, groups=OWNER)  # no copy of anything


def test_workers_of_a_cross_validation_are_heard(capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings do not cross from a worker process, but what it prints to stderr is seen."""
    model = sv.FederatedClassifier(**QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("always", PrivacyWarning)
        cross_val_score(model, X, Y, cv=2, params={"groups": OWNER}, n_jobs=2)
    assert "each fit spends epsilon = 1 of its own" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore:.*was fitted before")
@pytest.mark.parametrize("routing", [False, True])
def test_groups_reach_fit(routing: bool) -> None:
    model = sv.FederatedClassifier(**QUICK)
    pipeline: Any = make_pipeline(sv.PrivateScaler(100.0, random_state=0), model)
    with config_context(enable_metadata_routing=routing):
        found = cross_validate(model, X, Y, cv=3, params={"groups": OWNER}, return_estimator=True)
        assert [len(one.guarantee_.epsilon_of_client) for one in found["estimator"]] == [3, 3, 3]
        if routing:  # one owner is left out of each fit
            found = cross_validate(model, X, Y, cv=GroupKFold(3), params={"groups": OWNER}, return_estimator=True)
            assert [len(one.guarantee_.epsilon_of_client) for one in found["estimator"]] == [2, 2, 2]
            pipeline.fit(X, Y, groups=OWNER)
        else:  # the splitter and the estimator are told separately, as docs/sharp-edges.md says
            found = cross_validate(
                model, X, Y, groups=OWNER, params={"groups": OWNER}, cv=LeaveOneGroupOut(), return_estimator=True
            )
            assert [len(one.guarantee_.epsilon_of_client) for one in found["estimator"]] == [2, 2, 2]
            pipeline.fit(X, Y, privatescaler__groups=OWNER, federatedclassifier__groups=OWNER)
    assert len(pipeline[0].guarantee_.epsilon_of_client) == len(pipeline[-1].guarantee_.epsilon_of_client) == 3
    assert "before fit, which is not known" in str(pipeline[-1].guarantee_)  # it cannot see the scaler before it


def test_clones_have_the_parameters() -> None:
    model = sv.FederatedClassifier(ADMM(rho=0.7), prepare=[sv.PublicScaler((0, 1)), RowClipper()], penalty=sv.L1(0.1))
    copy = copy_of(model)
    assert isinstance(model.prepare, list)
    assert copy.algorithm == ADMM(rho=0.7)
    assert copy.prepare[0].ranges == (0, 1)
    assert copy.prepare[0] is not model.prepare[0]
    assert repr(copy) == repr(model)


# -------------------------------------------------------------------------------------------------- what it is given


def test_frames() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["age", "height", "weight"])
    frame["hospital"], frame["ill"] = OWNER, Y
    features = frame[["age", "height", "weight"]]
    by_name = sv.PublicScaler({"weight": (-1, 1), "height": (-1, 1), "age": (-1, 1)})
    model = sv.FederatedClassifier(prepare=by_name, **QUICK).fit(features, frame["ill"], groups=frame["hospital"])
    plain = sv.FederatedClassifier(prepare=sv.PublicScaler((-1, 1)), **QUICK).fit(X, Y, groups=OWNER)
    assert model.feature_names_in_.tolist() == ["age", "height", "weight"]
    assert np.array_equal(model.coef_, plain.coef_)
    assert np.array_equal(model.predict(features), plain.predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(features[["height", "age", "weight"]])
    message = r"column 'hospital' of X must hold numbers, and row 0 holds text \(400 such rows\)\. Give prepare=Schema"
    with pytest.raises(InvalidInput, match=message):
        sv.FederatedClassifier(**QUICK).fit(frame.drop(columns="ill"), frame["ill"], groups=frame["hospital"])
    table = pytest.importorskip("pyarrow").Table.from_pandas(features)  # another kind of frame
    assert sv.FederatedClassifier(**QUICK).fit(table, Y).feature_names_in_.tolist() == ["age", "height", "weight"]


def test_frames_of_polars() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"age": X[:, 0], "height": X[:, 1], "weight": X[:, 2], "hospital": OWNER, "ill": Y})
    features, ranges = frame.select("age", "height", "weight"), {"age": (-1, 1), "height": (-1, 1), "weight": (-1, 1)}
    model = sv.FederatedClassifier(prepare=sv.PublicScaler(ranges), **QUICK)
    model.fit(features, frame["ill"], groups=frame["hospital"])
    plain = sv.FederatedClassifier(prepare=sv.PublicScaler((-1, 1)), **QUICK).fit(X, Y, groups=OWNER)
    assert model.feature_names_in_.tolist() == list(ranges)
    assert np.array_equal(model.coef_, plain.coef_)
    assert np.array_equal(model.predict(features), plain.predict(X))
    with pytest.raises(InvalidInput, match="column 'hospital' of X must hold numbers"):
        copy_of(plain).fit(frame.drop("ill"), frame["ill"], groups=frame["hospital"])
    gaps = features.with_columns(weight=pl.Series([None, *X[1:, 2].tolist()]))
    with pytest.raises(InvalidInput, match="column 'weight' of X must hold finite numbers, and row 0 contains NaN"):
        copy_of(plain).fit(gaps, frame["ill"])
    with pytest.raises(InvalidInput, match=r"row 0 has none \(1 such rows\)"):
        copy_of(plain).fit(features, frame["ill"], groups=pl.Series([None, *OWNER[1:].tolist()]))


def test_declared_classes() -> None:
    model = sv.FederatedClassifier(classes=["yes", "no", "perhaps"], **QUICK).fit(X, Y, groups=OWNER)
    assert model.classes_.tolist() == ["no", "perhaps", "yes"]
    assert model.predict_proba(X).shape == (400, 3)
    assert model.coef_.shape == (3, 3)
    first, count = np.flatnonzero(Y == "yes")[0], (Y == "yes").sum()
    message = (
        rf"declared classes \['maybe', 'no'\], and row {first} has another label \({count} such rows\)\. Declare it"
    )
    with pytest.raises(InvalidInput, match=message):
        sv.FederatedClassifier(classes=["no", "maybe"], **QUICK).fit(X, Y)
    for declared in (["no", "yes"], None):
        with pytest.raises(InvalidInput, match=r"y holds one class only\. Add rows of another class; shuffle"):
            sv.FederatedClassifier(classes=declared, **QUICK).fit(X, np.full(400, "yes"))
    with pytest.raises(InvalidInput, match=r"classes must name two labels or more"):
        sv.FederatedClassifier(classes=["yes"], **QUICK).fit(X, Y)
    numbers = sv.FederatedClassifier(classes=[0, 1], **QUICK).fit(X, (Y == "yes").astype(int))
    assert set(numbers.predict(X).tolist()) <= {0, 1}


def refused(**options: Any) -> sv.FederatedClassifier:
    return sv.FederatedClassifier(**(QUICK | options)).fit(X, Y, groups=OWNER)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "dpadmm"}, "FederatedClassifier: unknown algorithm 'dpadmm'. Did you mean 'dp-admm'?"),
        ({"privacy": "prven"}, "Did you mean 'proven'?"),
        (
            {"privacy": 1.0},
            "privacy must be for rows of many owners, such as Proven(epsilon=1.0, delta=1e-5, clip=1.0), got",
        ),
        ({"privacy": COLUMNS}, "privacy must be for rows of many owners, such as Proven(epsilon=1.0"),
        ({"penalty": 0.1}, "penalty must be an object"),
        ({"loss": "squared"}, "unknown loss 'squared'. Known: logistic, softmax"),
        ({"loss": Softmax(5)}, "loss must fit 2 classes"),
        ({"prepare": StandardScaler()}, "prepare takes PublicScaler, PrivateScaler and RowClipper"),
        ({"prepare": [sv.PrivateScaler(), RowClipper(), sv.PrivateScaler()]}, "one PrivateScaler at most, got 2"),
        ({"privacy": "none", "prepare": sv.PrivateScaler()}, "PrivateScaler needs privacy 'proven'"),
        ({"prepare": sv.PrivateScaler(0.1)}, "noise would drown the counts"),
        ({"privacy": "none", "ledgers": "folder"}, "ledgers are for privacy 'proven'"),
        ({"row_bound": 0.1}, "row_bound promises that no row is longer"),
        ({"earlier_steps": "none"}, "unknown earlier_steps 'none'"),
        ({"base_rate": 1.5}, "base_rate must lie in (0, 1)"),
        ({"base_rate": 0.1, "fit_intercept": False}, "base_rate needs fit_intercept=True"),
        ({"base_rate": 7.0, "algorithm": DPSGD()}, "base_rate must lie in (0, 1)"),
        ({"base_rate": 7.0, "privacy": "none"}, "base_rate must lie in (0, 1)"),
        ({"base_rate": 0.1, "algorithm": DPSGD()}, "base_rate is for constants that a rule chooses"),
        ({"base_rate": 0.1, "algorithm": "noisy-gd", "rounds": 3}, "base_rate is for constants that a rule chooses"),
        ({"base_rate": 0.1, "algorithm": "dp-sgd", "rounds": None}, "base_rate is for 'auto' and 'noisy-gd'"),
        ({"base_rate": 0.1, "privacy": "none"}, "a base_rate is leant on where noise is proven, got 'none'"),
        ({"base_rate": 0.1, "privacy": "published"}, "a base_rate is leant on where noise is proven, got 'published'"),
        ({"privacy": sv.Proven(1.0, 0.0, 1.0, mechanism="laplace")}, "rules: are for Gaussian noise, got 'laplace'"),
        ({"rounds": 0}, "rounds must be a whole number >= 1"),
        ({"epsilon": "1"}, "epsilon must be a number > 0, got '1'"),
        ({"delta": None}, "delta must be a number and lie in (0, 1), got None"),
        ({"classes": "ill"}, "classes must be a list of labels, such as ['ill', 'well'], got 'ill'"),
        ({"algorithm": "fed-plt"}, "prepare=PublicScaler(...) or row_bound=... of an estimator"),
        ({"algorithm": "fedepm"}, "prepare=PublicScaler(...) or row_bound=... of an estimator"),
        ({"algorithm": "fdml"}, "fdml is for columns of many owners. Use VerticalClassifier, or one of admm, dp-admm"),
        ({"algorithm": sv.DPADMM}, "algorithm must be an object, got a class. Give DPADMM()"),
        (
            {"prepare": {"age": (0, 120)}},
            "PrivateScaler and RowClipper, or a Schema by itself, got dict. Give PublicScaler(ranges)",
        ),
        ({"algorithm": ADMMSharing()}, "admm-sharing is for columns of many owners"),
        ({"random_state": np.random.default_rng(0)}, "Of a Generator give a number, random_state=int(rng.integers("),
        ({"random_state": -1}, "random_state: must be None, a whole number >= 0 or a RandomState, got -1"),
        ({"epsilon": 20.0, "prepare": sv.PrivateScaler(20.0, 1e-4)}, "ranges would take nearly all of epsilon = 20"),
        ({"epsilon": -1.0}, "epsilon must be > 0"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        refused(**options)
    assert message in str(error.value)


@pytest.mark.parametrize("prepare", [None, sv.PublicScaler((-1, 1)), sv.RowClipper(1.0)], ids=repr)
def test_sparse_rows_give_the_same_model(prepare: Any) -> None:
    from scipy.sparse import csr_array, csr_matrix

    thin = np.where(np.abs(X) < 0.4, 0.0, X)
    options: dict[str, Any] = QUICK | {"prepare": prepare}
    dense = sv.FederatedClassifier(**options).fit(thin, Y, groups=OWNER)
    for kind in (csr_array, csr_matrix):
        sparse = sv.FederatedClassifier(**options).fit(kind(thin), Y, groups=OWNER)
        np.testing.assert_array_equal(sparse.coef_, dense.coef_)
        np.testing.assert_array_equal(sparse.decision_function(kind(thin)), dense.decision_function(thin))
    numbers = sv.FederatedRegressor(**QUICK, y_range=(-1, 1)).fit(csr_array(thin), thin[:, 0], groups=OWNER)
    assert numbers.predict(csr_array(thin)).shape == (400,)
    table: Any = csr_array(thin)
    fed = sv.Federation.from_arrays(table, np.ones(400), OWNER)
    np.testing.assert_array_equal(fed.X, sv.Federation.from_arrays(thin, np.ones(400), OWNER).X)


def test_a_fit_without_groups_warns_once() -> None:
    model = sv.FederatedClassifier(**QUICK)
    with pytest.warns(UserWarning, match="fit was given no groups"):
        model.fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.filterwarnings("error", "fit was given")
        sv.FederatedClassifier(**model.get_params()).fit(X, Y)
        sv.FederatedClassifier(**QUICK).fit(X, Y, groups=OWNER)
        sv.FederatedClassifier(**EXACT).fit(X, Y)


def test_wrong_data() -> None:
    from scipy.sparse import csr_array

    model = sv.FederatedClassifier(**QUICK)
    with pytest.raises(InvalidInput, match="a heavier one would show"):
        model.fit(X, Y, sample_weight=np.ones(400))
    model.fit(X, Y, sample_weight=None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'group'"):
        model.fit(X, Y, group=OWNER)
    small = csr_array((10, 2**27))
    with pytest.raises(InvalidInput, match="sparse rows are trained on as dense ones, of at most 268,435,456 entries"):
        model.fit(small, Y[:10])
    with pytest.raises(InvalidInput, match=r"got text\. .*groups=frame\['owner'\]"):
        model.fit(X, Y, groups="hospital")
    with pytest.raises(InvalidInput, match="groups must have one entry per row"):
        model.fit(X, Y, groups=OWNER[:-1])
    with pytest.raises(InvalidInput, match=r"columns are split here, so no row has an owner\. Say .* parties="):
        sv.VerticalClassifier(privacy="none").fit(X, Y, groups=OWNER)
    with pytest.raises(InvalidInput, match=r"y must hold the label of each row, got text\. Give .* frame\['label'\]"):
        model.fit(X, "ill")
    with pytest.raises(InvalidInput, match=r"y must hold numbers, and row 0 holds text \(400 such rows\)\. Convert"):
        sv.FederatedRegressor(**QUICK).fit(X, Y)
    with pytest.raises(InvalidInput, match="y_range must be"):
        sv.FederatedRegressor(y_range=(1, 0), **QUICK).fit(X, SCORE)
    with pytest.raises(NoGuarantee, match="unit is a whole client"):
        refused(privacy=sv.Proven(1.0, 1e-4, 1.0, unit="client"), algorithm="dp-fedavg", prepare=sv.PrivateScaler(1.0))


@pytest.mark.parametrize("model", [sv.FederatedClassifier(**QUICK), sv.VerticalClassifier(privacy="none")])
def test_no_error_quotes_an_entry(model: Any) -> None:
    """Errors travel further than rows do."""
    words = X.astype(object)
    words[7, 1] = "Anna Rossi"
    coded = words.copy()
    coded[7, 1] = b"Anna Rossi"
    for rows in (words, words.tolist(), tuple(map(tuple, words.tolist())), coded, coded.tolist(), coded.astype(bytes)):
        with pytest.raises(InvalidInput, match=r"column \d of X must hold numbers, and row \d holds text") as error:
            model.fit(rows, Y)
        assert "Rossi" not in str(error.value)
    with pytest.raises(InvalidInput, match="labels in y must be of the kind of classes_, text or numbers"):
        copy_of(model).fit(X, Y == "yes").score(X, ["Anna Rossi", *Y[1:]])
    with pytest.raises(InvalidInput, match=r"labels must be all text or all numbers, and y holds both") as error:
        model.fit(X, np.array([1871, *Y[1:]], dtype=object))
    assert "1871" not in str(error.value)
    huge = X.copy()
    huge[5, 1] = 1.2345e123
    with pytest.raises(
        InvalidInput, match=r"entries of X must be at most 1e\+100 in size\. Is one of them a mark"
    ) as error:
        model.fit(huge, Y)
    assert "1.2345" not in str(error.value)


def test_gaps_are_named_and_not_to_be_imputed() -> None:
    """An imputer, which scikit-learn recommends here, learns from private rows."""
    from scipy.sparse import csr_array

    pd = pytest.importorskip("pandas")
    gaps = X.copy()
    gaps[[7, 30], 2] = np.nan
    frame = pd.DataFrame(gaps, columns=["age", "height", "weight"])
    exact = sv.VerticalClassifier(privacy="none", rounds=2)
    words = r"of X must hold finite numbers, and row 7 contains NaN \(2 such rows\)\. Drop these rows, or fill .* leak$"
    cases = [(sv.FederatedClassifier(**QUICK), gaps, "2"), (sv.FederatedClassifier(**QUICK), frame, "'weight'")]
    cases += [(sv.FederatedRegressor(**QUICK), frame.convert_dtypes(), "'weight'"), (exact, csr_array(gaps), "2")]
    for model, rows, name in cases:
        with pytest.raises(InvalidInput, match=f"^{type(model).__name__}: column {name} {words}"):
            model.fit(rows, X[:, 0] if isinstance(model, sv.FederatedRegressor) else Y)
    with pytest.raises(InvalidInput, match=f"column 2 {words}"):
        copy_of(exact).fit(X, Y).predict(gaps)
    labels = [[gap if row in (7, 30) else y for row, y in enumerate(Y.tolist())] for gap in (None, pd.NA)]
    labels.append(np.where(np.isnan(gaps[:, 2]), np.nan, Y.astype(object)))  # type: ignore[arg-type]
    for model, y in [(sv.FederatedRegressor, gaps[:, 2]), *((sv.FederatedClassifier, each) for each in labels)]:
        with pytest.raises(InvalidInput, match=r": y contains NaN or nothing, first in row 7 \(2 such rows\)\. Drop"):
            model(**QUICK).fit(X, y)


@pytest.mark.filterwarnings("ignore:.*fit was given no groups")
@pytest.mark.filterwarnings("error")
def test_what_is_not_stated_of_sizes_is_said_whatever_the_rows_hold() -> None:
    """A warning that came with large numbers alone would tell of private rows."""
    columns, y_range = (
        r": nothing is stated about the sizes of columns, .*PublicScaler",
        r": no range of y .*Give y_range",
    )
    for size in (1e-3, 1.0, 100.0):
        with pytest.warns(UserWarning, match=columns):
            sv.FederatedClassifier(**QUICK).fit(size * X, Y)
        with pytest.warns(UserWarning, match=y_range):
            sv.FederatedRegressor(**QUICK, prepare=RowClipper()).fit(X, size * SCORE)
        # none here
        sv.FederatedClassifier(**QUICK, prepare=RowClipper()).fit(size * X, Y)
        sv.FederatedClassifier(**QUICK, row_bound=1000.0).fit(size * X, Y)
        sv.FederatedClassifier(**QUICK, earlier_steps="public").fit(size * X, Y)
        sv.FederatedClassifier(**QUICK, privacy="none").fit(size * X, Y)
        sv.FederatedRegressor(**QUICK, y_range=(-400, 400), row_bound=1000.0).fit(X, size * SCORE)


# ---------------------------------------------------------------------------------------------------- columns split

PARTIES = {"bank": [2, 0], "shop": [1]}


@pytest.mark.parametrize("parties", [None, [1, 2], PARTIES], ids=["one", "widths", "by number"])
def test_split_columns_reach_the_same_optimum(parties: Any) -> None:
    model = sv.VerticalClassifier(parties, privacy="none", rounds=200, penalty=sv.L2(0.01)).fit(X, Y)
    wide = np.column_stack([X, np.ones(len(X))])
    other = LogisticRegression(C=1 / (0.01 * len(X)), fit_intercept=False, tol=1e-10).fit(wide, Y)
    assert np.allclose(np.append(model.coef_, model.intercept_), other.coef_, atol=1e-4)
    assert np.array_equal(model.predict(X), other.predict(wide))


def test_split_columns_with_a_guarantee(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["age", "height", "weight"])
    model = sv.VerticalClassifier(
        {"bank": ["weight", "age"], "shop": ["height"]},
        privacy=COLUMNS,
        rounds=5,
        penalty=sv.L2(1.0),
        holder="shop",
        ledgers=tmp_path,
        random_state=0,
    ).fit(frame, Y)
    assert model.guarantee_.epsilon == pytest.approx(50.0, rel=1e-6)
    assert "Labels are NOT protected" in str(model.guarantee_)
    assert "read off the private labels" in str(model.guarantee_)
    assert len(list(tmp_path.glob("*.ledger"))) == 2
    assert model.score(frame, Y) > 0.7
    with pytest.raises(BudgetSpent, match=r"VerticalClassifier: nothing was trained; .*change_budget"):
        copy_of(model).set_params(random_state=1).fit(frame, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privacy": None}, "privacy must be 'proven' (with epsilon and delta), ProvenColumns(...)"),
        ({"privacy": sv.Proven(1.0, 1e-5, 1.0)}, "privacy must be 'proven' (with epsilon and delta)"),
        ({"privacy": "published"}, "unknown privacy 'published'"),
        ({"parties": [1, 1]}, "parties must add up to the 3 columns of X"),
        (
            {"parties": {"a": [0, 1], "b": [1, 2]}},
            "each of the 3 columns of X must belong to one party, and 1 is held twice",
        ),
        (
            {"parties": {"a": ["age"], "b": [1, 2]}},
            "parties['a'] must name columns of X, and its entry 0 is none. There are: 0, 1, 2",
        ),
        ({"parties": {"a": [0, 1, 2], "b": []}}, "each party must hold a column, and 'b' holds none"),
        ({"parties": {"a": []}}, "each of the 3 columns of X must belong to one party, and 0 is held by nobody"),
        ({"parties": [1, 3]}, "parties must add up to the 3 columns of X"),
        ({"parties": 2}, "parties must be {name: columns} or whole numbers >= 1"),
        ({"parties": PARTIES, "holder": "bnk"}, "Did you mean 'bank'?"),
        (
            {"algorithm": "dp-admm"},
            "dp-admm is for rows of many owners. Use FederatedClassifier, or one of admm-sharing",
        ),
        ({"algorithm": "sharing"}, "unknown algorithm 'sharing'. Did you mean 'admm-sharing'?"),
        ({"loss": "softmax"}, "Use masked-moments"),
        ({"loss": "squared"}, "unknown loss 'squared'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_parameters_of_split_columns(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        sv.VerticalClassifier(**({"privacy": "none", "rounds": 5} | options)).fit(X, Y)
    assert message in str(error.value)


# --------------------------------------------------------------------------------------------- quality on private rows


def test_score_privately_says_how_good_the_model_is_on_held_out_records() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, size=(3000, 2))
    y = np.where(X[:, 0] > X[:, 1], "sick", "well")
    made = sv.FederatedClassifier(
        "noisy-gd", epsilon=4.0, delta=1e-5, prepare=sv.PublicScaler((0, 1)), classes=["sick", "well"],
        earlier_steps="public", evaluate=sv.Evaluation(share=0.2), random_state=0,
    )  # fmt: skip
    model = made.fit(X, y, groups=np.arange(3000) % 3)
    found = model.score_privately()
    assert found is model.score_privately()  # asked once, at the fit
    assert found.records == 600
    accuracy = found.estimates["accuracy"]
    assert accuracy.low <= model.score(X, y) + 0.05
    assert accuracy.high - accuracy.low < 0.1
    assert model.guarantee_.epsilon == pytest.approx(4.0)
    assert "noisy counts of held-out records" in str(model.guarantee_)


def test_score_privately_without_held_out_records_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Fit again with evaluate=True"):
        sv.FederatedClassifier().score_privately()
