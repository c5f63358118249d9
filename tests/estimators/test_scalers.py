"""Scalers do not leak: what they read, what that costs, and that ranges are made of noisy counts alone."""

import dataclasses
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import sottovoce as sv
from sottovoce.algorithms import DPSGD
from sottovoce.core.check import BudgetSpent, InvalidInput, NoGuarantee
from sottovoce.core.random.streams import Streams
from sottovoce.estimators.scalers import RowClipper
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import accounting, ranges
from sottovoce.privacy.events import Event, GridEvent
from sottovoce.privacy.noise_key import SharedNoise
from tests.cases import small

RNG = np.random.default_rng(0)
PROVEN = sv.Proven(1.0, 1e-5, 1.0)


# The private one needs a budget at which the ten rows of some checks are enough, and says so when they are not.
@parametrize_with_checks([sv.PublicScaler((-5.0, 5.0)), RowClipper(2.0), sv.PrivateScaler(1e4, random_state=0)])
def test_scikit_learn_accepts_it(estimator: Any, check: Any) -> None:
    check(estimator)


# ---------------------------------------------------------------------------------------------------------- public


def test_stated_ranges_are_all_that_counts() -> None:
    X = RNG.normal(size=(20, 2)) * [30, 3]
    stated = [(-50.0, 70.0), (0.0, 4.0)]
    one, other = sv.PublicScaler(stated).fit(X), sv.PublicScaler(stated).fit(100 * X + 7)
    assert np.array_equal(one.ranges_, other.ranges_)
    expected = np.clip((np.clip(X, [-50, 0], [70, 4]) - [10, 2]) / [60, 2], -1, 1)
    assert np.allclose(one.transform(X), expected, atol=1e-15)
    assert np.linalg.norm(one.transform(1e9 * X), axis=1).max() <= one.row_bound_ == math.sqrt(2)


def test_without_a_centre_zero_stays_zero() -> None:
    scaled = sv.PublicScaler((0, 4), centre=False).fit_transform([[0.0], [1.0], [4.0], [9.0], [-1.0]])
    assert scaled.tolist() == [[0.0], [0.25], [1.0], [1.0], [0.0]]
    assert sv.PublicScaler((-8, 4), centre=False).fit_transform([[-8.0], [4.0]]).tolist() == [[-1.0], [0.5]]


def test_ranges_by_name() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [20.0, 80.0], "height": [1.5, 2.0]})
    scaler = sv.PublicScaler({"height": (1.0, 2.0), "age": (0, 100), "not here": (0, 1)}).fit(frame)
    assert scaler.ranges_.tolist() == [[0, 100], [1, 2]]
    assert np.asarray(scaler.get_feature_names_out()).tolist() == ["age", "height"]
    with pytest.raises(InvalidInput, match=r"every column; there is none for 'height'\. State one"):
        sv.PublicScaler({"age": (0, 100)}).fit(frame)
    with pytest.raises(InvalidInput, match=r"low must be < high, both finite, in the range of column 'height'"):
        sv.PublicScaler({"age": (0, 100), "height": (2, 1)}).fit(frame)
    with pytest.raises(InvalidInput, match="need named columns"):
        sv.PublicScaler({"age": (0, 100)}).fit(frame.to_numpy())


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (None, "must be stated"),
        ((1.0, 0.0), "low must be < high, both finite, in the range of column 0"),
        ([(0, 1), (0, np.inf)], "in the range of column 1"),
        ([(0, 1)], r"must be 2 pairs \(low, high\)"),
        ("0..1", "must be 2 pairs"),
    ],
)
def test_wrong_ranges(stated: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sv.PublicScaler(stated).fit(np.zeros((3, 2)))


def test_whatever_prepare_takes_is_at_hand() -> None:
    assert sv.RowClipper is RowClipper
    assert sv.PublicScaler.__module__ == sv.PrivateScaler.__module__ == RowClipper.__module__


def test_rows_are_only_ever_shortened() -> None:
    X = RNG.normal(size=(50, 3))
    clipped = RowClipper(1.5).fit_transform(X)
    lengths = np.linalg.norm(X, axis=1)
    assert np.allclose(clipped, X * np.minimum(1, 1.5 / lengths)[:, None], rtol=1e-14)
    assert (lengths > 1.5).any()
    assert (lengths < 1.5).any()
    with pytest.raises(InvalidInput, match="bound must be > 0"):
        RowClipper(0.0).fit(X)


# --------------------------------------------------------------------------------------------------------- private


class Free:
    """A ledger that lets everything pass."""

    def charge(self, *_: Any) -> None: ...
    def afford(self, *_: Any) -> np.ndarray:
        return np.ones(1, dtype=bool)


def counts(X: np.ndarray, edges: np.ndarray, event: Event, **options: Any) -> np.ndarray:
    """Of two owners, a third of the rows and the rest."""
    options = {"ledger": Free(), "key": SharedNoise(Streams(0))} | options
    return ranges.noisy_counts(X, np.array([0, len(X) // 3, len(X)]), edges, 0, event, **options)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_sensitivity_is_the_largest_change_of_counts(mechanism: Any, relation: Any) -> None:
    event = Event(mechanism, 1e-12, relation=relation)
    edges, X = np.tile([-1.0, 0.0, 1.0], (4, 1)), RNG.normal(size=(9, 4))
    whole, changes = counts(X, edges, event), []
    for _ in range(300):
        other = X.copy()
        other[RNG.integers(9)] = 3 * RNG.normal(size=4)
        moved = counts(other, edges, event) - whole
        if relation == "add-remove":  # a blank lies in no cell: what is added is what the new record counts
            moved = np.maximum(np.rint(moved), 0)
        changes.append(np.linalg.norm(moved.reshape(-1), 1 if mechanism == "laplace" else 2))
    bound = ranges.sensitivity(event, 4)
    assert max(changes) == pytest.approx(bound)
    moved = 8 if relation == "replace-one" else 4
    assert bound == pytest.approx(moved if mechanism == "laplace" else math.sqrt(moved))


@pytest.mark.parametrize(
    ("mechanism", "secure"),
    [("gaussian", False), ("laplace", False), ("discrete-gaussian", True), ("laplace", True)],
)
def test_noise_has_the_scale_that_is_accounted(mechanism: Any, secure: bool) -> None:
    X, edges = RNG.normal(size=(90, 20)), np.tile(np.linspace(-2, 2, 49), (20, 1))
    event = Event(mechanism, 3.0)
    key = None if secure else SharedNoise(Streams(0))
    noise = counts(X, edges, event, key=key) - counts(X, edges, Event("gaussian", 1e-12))
    scale = 3.0 * (40.0 if mechanism == "laplace" else math.sqrt(40))
    assert ranges.noise_scale(event, 20) == pytest.approx(scale)
    deviation = scale * (math.sqrt(2) if mechanism == "laplace" else 1)
    assert noise.size == 2000
    assert noise.std() == pytest.approx(deviation, rel=0.12)  # 1/sqrt(2·2000) is 1.6 %, Laplace 2.5 %
    assert abs(noise.mean()) < 5 * deviation / math.sqrt(2000)
    halves = noise[0].reshape(-1), noise[1].reshape(-1)
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.2  # owners draw their own


def test_two_answers_cost_the_budget_at_every_owner() -> None:
    for delta, mechanism in ((1e-6, "gaussian"), (0.0, "laplace")):
        event = ranges.plan_counts(0.3, delta, PROVEN, 2)
        assert event.mechanism == mechanism
        assert accounting.epsilon({event: 2}, delta) == pytest.approx(0.3, rel=4e-9)
    assert ranges.plan_counts(0.3, 1e-6, sv.Proven(1, 1e-5, 1, noise="secure"), 2).mechanism == "discrete-gaussian"
    X, groups = RNG.normal(size=(30_000, 2)), RNG.integers(0, 3, size=30_000)
    scaler = sv.PrivateScaler(0.5, random_state=0).fit(X, groups=groups)
    assert scaler.guarantee_.epsilon == pytest.approx(0.5, rel=4e-9)
    assert len(scaler.guarantee_.epsilon_of_client) == 3
    assert "one record of one client" in str(scaler.guarantee_)
    ledger = MemoryLedger(Budget(1.0, 1e-5), (3,))
    federation = sv.Federation.from_arrays(X, np.zeros(len(X)), groups)
    sv.PrivateScaler(0.5).ask(federation, PROVEN, ledger, 0)
    assert [sum(ledger.spent(client).values()) for client in range(3)] == [2, 2, 2]


def test_ranges_of_an_unknown_sampler_are_refused_before_anything_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups, ledger = (
        RNG.normal(size=(30_000, 2)),
        RNG.integers(0, 3, size=30_000),
        MemoryLedger(Budget(1, 1e-5), (3,)),
    )
    federation = sv.Federation.from_arrays(X, np.zeros(len(X)), groups)
    monkeypatch.setenv("SOTTOVOCE_SAMPLER", "numpy")
    with pytest.raises(InvalidInput, match="unknown sampler"):
        sv.PrivateScaler(0.5).ask(federation, sv.Proven(1, 1e-5, 1, noise="secure"), ledger, 0)
    assert not any(ledger.spent(client) for client in range(3))


def test_ranges_are_made_of_the_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay: other data, the same answers, the same ranges; and the second question is about the first answer."""
    X, groups = RNG.normal(size=(30_000, 2)) * [1, 100], RNG.integers(0, 3, size=30_000)
    real, asked, answers = ranges.noisy_counts, [], []

    def record(values: Any, offsets: Any, edges: Any, question: int, *rest: Any) -> np.ndarray:
        asked.append(edges)
        answers.append(real(values, offsets, edges, question, *rest))
        return answers[-1]

    def replay(values: Any, offsets: Any, edges: Any, question: int, *rest: Any) -> np.ndarray:
        assert np.array_equal(edges, asked[question])
        return answers[question]

    monkeypatch.setattr(ranges, "noisy_counts", record)
    first = sv.PrivateScaler(0.5, random_state=0).fit(X, groups=groups)
    monkeypatch.setattr(ranges, "noisy_counts", replay)
    second = sv.PrivateScaler(0.5, random_state=1).fit(1e6 * RNG.normal(size=X.shape), groups=groups)
    assert np.array_equal(first.ranges_, second.ranges_)
    assert len(answers) == 2


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_ranges_hold_nearly_all_and_are_not_much_too_wide(delta: float) -> None:
    columns = {
        "centred": RNG.normal(size=40_000),
        "huge": 1e7 * RNG.uniform(size=40_000),
        "small": 1e-3 * RNG.uniform(-1, 1, size=40_000),
        "indicator": (RNG.uniform(size=40_000) < 0.4).astype(float),
        "far from 0": 150 + 25 * RNG.uniform(size=40_000),
        "outliers": np.where(RNG.uniform(size=40_000) < 1e-4, 1e6, RNG.uniform(size=40_000)),
        "constant": np.full(40_000, 3.0),
    }
    X, groups = np.column_stack(list(columns.values())), RNG.integers(0, 3, size=40_000)
    scaler = sv.PrivateScaler(2.0 if delta == 0 else 1.0, delta, random_state=0).fit(X, groups=groups)
    for (name, column), (low, high) in zip(columns.items(), scaler.ranges_, strict=True):
        assert np.mean((low <= column) & (column <= high)) > 0.97, name
        least, most = np.quantile(column, [0.001, 0.999])  # a few outliers in 40 000 do not set the scale
        cell = 2.0 ** np.ceil(np.log2(max(abs(least), abs(most)))) / 8
        assert least - cell <= low < high <= most + cell, name
    assert scaler.ranges_[1].tolist() == [0.0, 5 * 2**24 / 8]
    assert np.abs(scaler.transform(X)).max() <= 1


def test_secure_noise_and_unequal_owners() -> None:
    X = RNG.normal(size=(8000, 1))
    groups = np.repeat([0, 1, 2], [10, 1990, 6000])
    scaler = sv.PrivateScaler(1.0, noise="secure").fit(X, groups=groups)
    assert "operating system" in scaler.guarantee_.noise
    low, high = scaler.ranges_[0]
    assert -4 <= low <= -1.5
    assert 1.5 <= high <= 4


def test_a_seed_draws_other_noise_for_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the folds of a cross-validation."""
    drawn: list[Any] = []
    monkeypatch.setattr(
        ranges, "find_ranges", lambda X, _, __, ___, ____, key: drawn.append(tuple(key.rows.ravel())) or np.eye(1, 2)
    )
    X = RNG.normal(size=(1000, 1))
    for rows, groups in ((X, None), (X, None), (X[1:], None), (X, np.arange(1000) % 2)):
        sv.PrivateScaler(1.0, random_state=0).fit(rows, groups=groups)
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_a_pickle_of_it_holds_no_seed() -> None:
    scaler, seed = sv.PrivateScaler(1e4, random_state=1_234_567_891), (1_234_567_891).to_bytes(4, "little")
    assert seed in pickle.dumps(scaler)  # how workers of a search get it
    stored = pickle.dumps(scaler.fit(RNG.normal(size=(100, 1))))
    assert seed not in stored
    assert np.array_equal(pickle.loads(stored).ranges_, scaler.ranges_)


def test_one_owner_of_all_rows_is_said() -> None:
    """As in a pipeline whose groups went to the estimator alone."""
    X, scaler = RNG.normal(size=(1000, 1)), sv.PrivateScaler(1.0)
    for groups, said in ((None, True), (np.arange(1000) % 2, False)):
        guarantee = scaler.fit(X, groups=groups).guarantee_
        assert ("owners among themselves: groups was not given" in str(guarantee)) == said


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_epsilon_it_recommends_is_enough(delta: float) -> None:
    X = RNG.normal(size=(900, 13))
    with pytest.raises(InvalidInput, match=r"Give it epsilon = [\d.e+]+, scale fewer") as error:
        sv.PrivateScaler(0.1, delta).fit(X)
    found = re.search(r"epsilon = ([\d.e+]+)", str(error.value))
    assert found
    enough = float(found[1])
    sv.PrivateScaler(enough, delta).fit(X)
    with pytest.raises(InvalidInput, match="noise would drown"):
        sv.PrivateScaler(0.8 * enough, delta).fit(X)


def test_gaps_are_not_to_be_imputed() -> None:
    with pytest.raises(
        InvalidInput,
        match=r"RowClipper: column 1 of X .*, and row 2 contains NaN \(1 such rows\)",
    ):
        RowClipper().fit([[0.0, 1.0], [1.0, 0.0], [1.0, np.nan]])


def test_refused_before_anything_is_asked() -> None:
    federation = sv.Federation.from_arrays(RNG.normal(size=(900, 13)), np.zeros(900), np.arange(900) % 4)
    ledger = MemoryLedger(Budget(1.0, 1e-5), (4,))
    with pytest.raises(InvalidInput, match=r"noise would drown the counts: 13 features, 4 owners with 900 records"):
        sv.PrivateScaler(0.1).ask(federation, PROVEN, ledger, 0)
    large = sv.Federation.from_arrays(RNG.normal(size=(9000, 1)), np.zeros(9000), np.arange(9000) % 4)
    with pytest.raises(BudgetSpent, match="Nothing was asked"):
        sv.PrivateScaler(1.5).ask(large, PROVEN, ledger, 0)
    assert ledger.spent(0) == {}
    with pytest.raises(NoGuarantee, match="unit is a whole client"):
        sv.PrivateScaler(0.5).ask(large, sv.Proven(1.0, 1e-5, 1.0, unit="client"), ledger, 0)
    with pytest.raises(InvalidInput, match="delta must be 0 where the whole budget has none"):
        ranges.plan_counts(0.5, 1e-6, sv.Proven(1.0, 0.0, 1.0, mechanism="laplace"), 2)
    mistakes: tuple[dict[str, Any], ...] = ({"epsilon": 0.0}, {"delta": -1.0}, {"noise": "none"})
    for wrong in mistakes:
        with pytest.raises(InvalidInput, match="PrivateScaler"):
            sv.PrivateScaler(**wrong).fit(np.zeros((10, 1)))


# ---------------------------------------------------------------------------------- one budget for both, accounting


def test_noise_beside_what_was_spent() -> None:
    """Gaussians add their squared mu: what is left of the budget has a closed form."""
    scaler = Event("gaussian", accounting.calibrate(0.3, 1e-6, 2))
    mu = accounting.gaussian_mu(1.0, 1e-5)
    left = mu**2 - 2 / scaler.noise_multiplier**2
    noise = accounting.calibrate(1.0, 1e-5, 50, spent={scaler: 2})
    assert noise == pytest.approx(math.sqrt(50 / left), rel=2e-9)
    assert accounting.epsilon({scaler: 2, Event("gaussian", noise): 50}, 1e-5) <= 1.0
    assert accounting.affordable(Event("gaussian", noise), 1.0, 1e-5, spent={scaler: 2}) == 50


@pytest.mark.parametrize(
    ("spent", "kind"),
    [
        (Event("laplace", 5.0), {"mechanism": "gaussian"}),
        (Event("laplace", 5.0), {"mechanism": "laplace"}),
        (Event("discrete-gaussian", 20.0), {"mechanism": "discrete-gaussian"}),
        (Event("gaussian", 20.0), {"sampling": "fixed-size", "batch": 10, "size": 100}),
        (
            Event("gaussian", 20.0, relation="add-remove"),
            {"sampling": "poisson", "relation": "add-remove", "rate": 0.3},
        ),
    ],
    ids=["pure then Gaussian", "pure", "discrete", "fixed-size", "Poisson"],
)
def test_noise_beside_other_kinds(spent: Event, kind: dict[str, Any]) -> None:
    delta = 0.0 if kind.get("mechanism") == "laplace" else 1e-5
    noise = accounting.calibrate(1.0, delta, 6, spent={spent: 2}, **kind)
    alone = accounting.calibrate(1.0, delta, 6, **kind)
    assert noise > alone
    full: dict[str, Any] = {"mechanism": "gaussian", "noise_multiplier": noise, **kind}
    together = accounting.epsilon({spent: 2, Event(**full): 6}, delta)
    assert 0.999 <= together <= 1.0
    less = dataclasses.replace(Event(**full), noise_multiplier=0.999 * noise)
    assert accounting.epsilon({spent: 2, less: 6}, delta) > 1.0


def test_open_ledgers_have_the_budget_of_the_run() -> None:
    federation, goal = small(), sv.Objective(sv.Logistic())
    for budget in (Budget(2.0, 1e-5), Budget(1.0, 1e-3)):
        with pytest.raises(InvalidInput, match="open ledgers must have the budget of the run"):
            sv.train(
                DPSGD(), federation, goal, rounds=1, privacy=PROVEN, ledgers=MemoryLedger(budget, (6,)), engine="numpy"
            )


@pytest.mark.parametrize(
    ("privacy", "enough", "too_much"),
    [
        # the noise of Gaussians is 1/sqrt(1 - (mu of ranges / mu of all)²) times as large, of Laplace 1/(1 - share)
        (PROVEN, 0.99, 0.999),
        (sv.Proven(1.0, 1e-5, 1.0, noise="secure"), 0.97, 0.999),
        (sv.Proven(1.0, 0.0, 1.0, mechanism="laplace"), 0.89, 0.91),
    ],
    ids=["seeded", "secure", "pure"],
)
def test_ranges_must_leave_something_for_training(privacy: Any, enough: float, too_much: float) -> None:
    sv.PrivateScaler(enough, privacy.delta).leaves(privacy, 2)
    for epsilon in (too_much, 1.0, 2.0):
        with pytest.raises(InvalidInput, match=r"nearly all of epsilon = 1, .* PrivateScaler\(epsilon=0\.25\)"):
            sv.PrivateScaler(epsilon, privacy.delta).leaves(privacy, 2)
    if privacy.delta and privacy.noise == "seeded":  # the same epsilon at a smaller delta is less
        sv.PrivateScaler(1.0, 1e-6).leaves(privacy, 2)


def test_nothing_is_left_beside_too_much() -> None:
    with pytest.raises(BudgetSpent, match="spent before the first answer"):
        accounting.calibrate(1.0, 1e-5, 5, spent={Event("laplace", 0.5): 1})
    with pytest.raises(NoGuarantee, match="different neighbouring relations"):
        accounting.calibrate(1.0, 1e-5, 5, spent={Event("gaussian", 50.0, relation="add-remove"): 1})


def test_secure_counts_of_many_features_take_the_smaller_noise_by_themselves() -> None:
    """The scaler tells how many features there are, so that what it is charged is what leaves most for training."""
    X, groups = RNG.normal(size=(9_000, 10)), RNG.integers(0, 3, size=9_000)
    secure = sv.Proven(1.0, 1e-5, 1.0, noise="secure")
    federation, ledger = sv.Federation.from_arrays(X, np.zeros(len(X)), groups), MemoryLedger(Budget(1.0, 1e-5), (3,))
    sv.PrivateScaler(0.1, 1e-6).ask(federation, secure, ledger, None)
    (event,) = ledger.spent(0)
    assert isinstance(event, GridEvent)
    assert event == ranges.plan_counts(0.1, 1e-6, secure, 10)
