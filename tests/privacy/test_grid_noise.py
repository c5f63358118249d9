"""Answers on a grid of integers: how much noise is planned for them, what one record moves, and who draws the noise."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import sottovoce as sv
from sottovoce.algorithms import ADMM, DPSGD, FedEPM, Moments, MomentsThenGradients, NoisyGD
from sottovoce.core import moments
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import ProxSteps
from sottovoce.core.participation import Everyone
from sottovoce.core.random.bits import SeededBits
from sottovoce.core.random.streams import Streams
from sottovoce.privacy import accounting
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy.calibration import AnswerShape
from sottovoce.privacy.doors.releases import Question
from sottovoce.privacy.events import Event, GridEvent
from tests.cases import goal
from tests.local import assemble

SHAPE = AnswerShape(104, 104, 0.5)
SIZES = np.full(5, 300)
PLANS: dict[str, tuple[Any, str]] = {
    "gradients": (DPSGD(), "replace-one"),
    "gradients, add-remove": (NoisyGD(), "add-remove"),
    "fixed-size batches": (DPSGD(batch=30), "replace-one"),
    "Poisson batches": (DPSGD(batch=0.1), "add-remove"),
    "moments": (Moments(), "replace-one"),
    "moments, add-remove": (Moments(), "add-remove"),
    "moments, then gradients": (MomentsThenGradients(), "replace-one"),
    "local steps": (FedEPM(variant="P"), "replace-one"),
    "arg-mins": (ADMM(), "add-remove"),
}


def planned(name: str, noise: Any = "secure") -> tuple[sv.Proven, list[int], tuple[Event, ...]]:
    """The privacy mode, how often each kind of question is asked in 20 rounds, and what an answer is."""
    algorithm: Any
    relation: Any
    algorithm, relation = PLANS[name]
    privacy = sv.Proven(1.0, 1e-5, 1.0, relation=relation, noise=noise)
    asks = algorithm.asks()
    counts = [part.rounds(20) * part.answers for part in asks.parts]
    return privacy, counts, privacy.plan(asks, 20, SIZES, shape=SHAPE)


# ----------------------------------------------------------------------------------------------------- how much noise


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_costs_its_budget_and_as_much_as_continuous_noise(name: str) -> None:
    privacy, counts, events = planned(name)
    assert all(isinstance(event, GridEvent) for event in events)
    cost = accounting.epsilon(dict(zip(events, counts, strict=True)), privacy.delta)
    assert 1 - 1e-3 < cost <= 1.0
    for event, continuous in zip(events, planned(name, "seeded")[2], strict=True):
        assert event.noise_multiplier == pytest.approx(continuous.noise_multiplier, rel=1e-5)


@pytest.mark.parametrize("name", ["gradients", "gradients, add-remove", "moments"])
def test_a_plan_has_seven_per_cent_less_noise_than_zcdp_asks_for(name: str) -> None:
    privacy, (count,), (event,) = planned(name)
    by_zcdp = accounting.calibrate(1.0, privacy.delta, count, mechanism="discrete-gaussian", relation=event.relation)
    assert event.noise_multiplier <= 0.93 * by_zcdp


def test_the_scale_is_for_what_one_unit_moves_in_grid_steps() -> None:
    bound = mechanisms.GRID_BOUND
    for name, reach in (("gradients", 2), ("gradients, add-remove", 1), ("Poisson batches", 1)):
        _, _, (event,) = planned(name)
        assert isinstance(event, GridEvent)
        assert (event.sensitivity, event.coordinates) == (reach * bound, 104)
        assert event.scale == event.noise_multiplier * reach * bound
    _, _, (event,) = planned("moments")
    assert isinstance(event, GridEvent)
    assert event.coordinates == moments.width(104, 104) == 104 + 104 * 105 // 2
    one = moments.sensitivity(math.sqrt(0.5), 0.5, True) / math.hypot(math.sqrt(0.5), 0.5)
    assert event.sensitivity == math.ceil(one * 2**24) + 2 * math.sqrt(event.coordinates)
    for name in ("local steps", "arg-mins"):  # the grid is made for what one record changes, whatever the relation
        _, _, (event,) = planned(name)
        assert isinstance(event, GridEvent)
        assert (event.sensitivity, event.coordinates) == (2**24 + 2 * math.sqrt(104), 104)
    whole = sv.Proven(1.0, 1e-5, 1.0, unit="client", noise="secure").plan(DPSGD().asks(), 20, SIZES, shape=SHAPE)
    assert isinstance(whole[0], GridEvent)
    assert (whole[0].sensitivity, whole[0].coordinates) == (2 * bound, 104)


# ------------------------------------------------------------------------------------------------ what one record moves


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("size", [1e-3, 1.0, 2.0**27, 2.0**33, 2.0**40])
def test_integers_of_a_bounded_difference_are_as_close_as_stated(size: float, norm: int) -> None:
    """Pairs of vectors of any size that are `change` apart, each coordinate chosen to be rounded apart the most."""
    rng, tries, length, change = np.random.default_rng(7), 4000, 30, np.full((1, 1), 0.7371)
    here = size * change * rng.uniform(-1, 1, (tries, length))
    each = float(change[0, 0]) / (length if norm == 1 else math.sqrt(length))
    there = here + each * (1 - 1e-15)
    integers = [mechanisms.difference_to_grid(vectors, change).astype(float) for vectors in (here, there)]
    assert all((np.abs(numbers) <= mechanisms.LARGEST_INTEGER).all() for numbers in integers)
    moved = np.where(there - here <= each, integers[1] - integers[0], 0.0).max(axis=0)  # adding rounded some further
    stated = mechanisms.difference_steps(length, norm)
    assert np.linalg.norm(moved, ord=norm) <= stated
    if size <= 1:  # the search is no idle one
        assert np.linalg.norm(moved, ord=norm) > stated - 2 * (length if norm == 1 else math.sqrt(length))


def test_truncation_moves_integers_of_a_difference_further_than_the_numbers_move() -> None:
    """Without the steps for truncation the sensitivity would be too small: d coordinates that just miss a step."""
    length = 10_000
    here, there = np.full((1, length), 1.0 - 1e-9), np.full((1, length), 1.0 + 1e-9)
    change = np.full((1, 1), float(mechanisms.GRID_STEPS))  # steps of 1
    moved = mechanisms.difference_to_grid(there, change) - mechanisms.difference_to_grid(here, change)
    assert np.linalg.norm(there - here) < 1e-6
    assert np.linalg.norm(moved) == math.sqrt(length)
    odd = mechanisms.difference_to_grid(np.array([[np.nan, np.inf, -np.inf]]), change)
    assert odd.tolist() == [[0, 2**52, -(2**52)]]


@pytest.mark.parametrize("name", ["local steps", "arg-mins"])
@pytest.mark.parametrize("noise", ["discrete", "secure"])
def test_bounded_differences_on_the_grid_are_the_exact_answers_plus_noise(name: str, noise: Any) -> None:
    """Almost without noise they are the answers of an exact oracle; with noise, they lie on the grid."""
    rng = np.random.default_rng(0)
    federation = sv.Federation.from_arrays(
        rng.uniform(-0.5, 0.5, (30, 3)), rng.choice([-1.0, 1.0], 30), np.repeat([0, 1], 15), row_bound=1.0
    )
    method: Any = PLANS[name][0]

    def answer(privacy: Any) -> np.ndarray:
        place = assemble(method, federation, goal(), privacy, Everyone(), 3, Streams(0), None, "numpy")
        oracle = place.site(np.arange(2), np.ones(2, dtype=bool), 1).f
        if name == "arg-mins":
            return oracle.argmin(np.full((1, 3), 0.3), 2.0, 0.1)
        steps = ProxSteps([3.0] * 4, [4.0] * 4, 0.3, 0.0, sv.L1(0.01), fresh=True)
        return oracle.prox_steps(np.zeros((1, 3)), steps)

    exact = answer(sv.NoPrivacy())
    np.testing.assert_allclose(answer(sv.Proven(1e9, 1e-3, 1.0, noise=noise)), exact, atol=2e-3)
    loud = answer(sv.Proven(0.01, 1e-5, 1.0, noise=noise))
    assert np.abs(loud - exact).max() > 1


def oracle_of(method: Any, privacy: sv.Proven, rows: list[int], scale: Any = "mean") -> tuple[Any, Any]:
    """The clients of a federation with so many rows each, and the oracle of the first."""
    rng, total = np.random.default_rng(1), sum(rows)
    X, y = rng.uniform(-0.5, 0.5, (total, 3)), rng.choice([-1.0, 1.0], total)
    federation = sv.Federation.from_arrays(X, y, np.repeat(np.arange(len(rows)), rows), row_bound=1.0)
    objective = sv.Objective(sv.Logistic(), sv.L2(0.01), scale=scale)
    place = assemble(method, federation, objective, privacy, Everyone(), 3, Streams(0), None, "numpy")
    return place, place.site(np.array([0]), np.ones(1, dtype=bool), 1).f


FAR = "times as large as what one record changes"
STRANGE: dict[str, tuple[ProxSteps, float, str]] = {
    "far away": (ProxSteps([1.0], [2.0], 0.0, 0.0, sv.NoPenalty()), 1e11, FAR),
    "far away, in many steps": (ProxSteps([1.0] * 9, [1.0001] * 9, 0.0, 2.0**53, sv.NoPenalty()), 2.0**53, FAR),
    "steps that stretch": (
        ProxSteps([1.5 * 2**50], [1.0], 0.0, 0.0, sv.L1(1.5 * 2**50 - 1), fresh=False, at=np.zeros((1, 3))),
        1.0,
        "needs keep <= total in every step",
    ),
}


@pytest.mark.parametrize("noise", ["seeded", "secure"])
@pytest.mark.parametrize("name", STRANGE)
def test_local_steps_in_which_rounding_shows_are_refused_before_anything_is_charged(name: str, noise: Any) -> None:
    """Start, centre and weights are the algorithm's. Each of these moved answers further than was stated."""
    steps, start, words = STRANGE[name]
    place, oracle = oracle_of(FedEPM(variant="P"), sv.Proven(1.0, 1e-3, 1.0, noise=noise), [3])
    with pytest.raises(InvalidInput, match=words):
        oracle.prox_steps(np.full((1, 3), start), steps)
    assert place.ledger is not None
    assert not place.ledger.spent(0)


def stated(place: Any) -> list[np.ndarray]:
    """What the door says of its noise, once it answers: the answer, and the scale."""
    seen: list[np.ndarray] = []

    def listen(answer: np.ndarray, exact: np.ndarray, scale: np.ndarray, kind: str) -> np.ndarray:
        seen.extend((answer, np.asarray(scale)))
        return answer

    place.door.intercept = listen
    return seen


@pytest.mark.parametrize("noise", ["seeded", "discrete"])
def test_a_client_s_noise_does_not_depend_on_other_clients(noise: Any) -> None:
    """A client of 5 rows keeps enough of each step, one of 200 does not; neither changes the other's answer."""
    privacy, steps = sv.Proven(1.0, 1e-3, 1.0, noise=noise), ProxSteps([2.0] * 4, [3.0] * 4, 0.0, 0.0, sv.L1(0.1))
    scales = []
    for rows in ([5], [5, 200], [5, 7]):
        place, oracle = oracle_of(FedEPM(variant="P"), privacy, rows, "sum")
        seen = stated(place)
        oracle.prox_steps(np.zeros((1, 3)), steps)
        scales.append(seen[1])
    assert np.array_equal(scales[0], scales[1])
    assert np.array_equal(scales[0], scales[2])


def test_almost_no_change_has_noise_of_normal_numbers() -> None:
    """A pull of 1e305 leaves a change below the smallest normal number, and its sign would be given away."""
    signs = []
    for _ in range(40):
        _, oracle = oracle_of(ADMM(), sv.Proven(1.0, 1e-3, 1e-8, noise="secure"), [4])
        signs.append(np.copysign(1.0, oracle.argmin(np.zeros((1, 3)), 1e305, 0.0)))
    assert np.abs(np.mean(signs, axis=0)).max() < 0.9  # of fair coins 38 of 40 are alike with a chance of 1e-8


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_on_the_ends_of_local_steps_has_the_stated_scale(mechanism: Any) -> None:
    """In the L1 norm truncation adds 2 d steps, not 2 √d. And the answer lies on the grid."""
    privacy = sv.Proven(1.0, 1e-3 if mechanism == "gaussian" else 0.0, 1.0, mechanism=mechanism, noise="secure")
    place, oracle = oracle_of(FedEPM(variant="P"), privacy, [4])
    seen = stated(place)
    oracle.prox_steps(np.zeros((1, 3)), ProxSteps([1.0], [2.0], 0.0, 0.0, sv.NoPenalty()))
    (event,), change = place.door.events, 2 / 4 / 2  # one of four records is replaced; the step is divided by total
    longer = 2 * (3 if mechanism == "laplace" else math.sqrt(3)) / 2**24
    assert float(seen[1][0, 0]) == pytest.approx(event.noise_multiplier * change * (1 + longer), rel=1e-12)
    steps = seen[0] / (change / 2**24)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-2)


def test_discrete_laplace_noise_from_a_seed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Laplace noise is 'seeded' or 'secure'"):
        sv.Proven(1.0, 0.0, 1.0, mechanism="laplace", noise="discrete")


vectors = arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(1, 5)), elements=st.floats())


@given(vectors, st.sampled_from([1, 2]))
def test_a_sum_on_the_grid_is_the_sum_of_integers(table: np.ndarray, norm: int) -> None:
    """Whatever the numbers: also of those that are too long, infinite or no numbers, which count as 0."""
    integers = mechanisms.to_grid(table, 0.7, norm)
    assert (np.linalg.norm(integers.astype(float), ord=norm, axis=1) <= mechanisms.GRID_BOUND).all()
    total = mechanisms.grid_sum(table, 0.7, norm)
    assert total.dtype == np.int64
    assert np.array_equal(total, integers.sum(axis=0))


def test_an_answer_over_a_batch_is_divided_by_the_share_drawn() -> None:
    """All records of a client are equal, so the mean over a batch of fixed size is the mean over all."""
    X = np.repeat(np.eye(3)[[0, 1]], [8, 20], axis=0)
    y = np.repeat([1.0, -1.0], [8, 20])
    federation = sv.Federation.from_arrays(X, y, np.repeat([0, 1], [8, 20]), row_bound=1.0)
    for noise in ("discrete", "secure"):
        privacy = sv.Proven(1e9, 1e-3, 1.0, noise=noise)
        method = DPSGD(batch=4)
        place = assemble(method, federation, goal(), privacy, Everyone(), 3, Streams(0), None, "numpy")
        answer = place.site(np.arange(2), np.ones(2, dtype=bool), 1).f.grad(np.zeros((1, 3)))
        np.testing.assert_allclose(answer, [[-0.5, 0, 0], [0, 0.5, 0]], atol=2e-2)


# ----------------------------------------------------------------------------------------------------- who draws noise


def test_a_user_can_choose_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("our own sampler")

    monkeypatch.setattr(mechanisms, "draw", refuse)
    numbers = np.full(4000, 10**9)
    with pytest.raises(AssertionError, match="our own sampler"):
        mechanisms.noised("gaussian", 1e6, numbers)
    monkeypatch.setenv("SOTTOVOCE_SAMPLER", "opendp")
    noise = mechanisms.noised("gaussian", 1e6, numbers) - numbers
    assert noise.std() == pytest.approx(1e6, rel=0.08)
    streams = [SeededBits(0, "a simulation")]
    seeded = mechanisms.noised("gaussian", 1e6, numbers[None, :50], streams)  # seeded noise is always our own
    monkeypatch.setenv("SOTTOVOCE_SAMPLER", "own")
    again = mechanisms.noised("gaussian", 1e6, numbers[None, :50], [SeededBits(0, "a simulation")])
    assert np.array_equal(seeded, again)


def test_a_sampler_that_nobody_knows_is_refused_before_anything_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOTTOVOCE_SAMPLER", "numpy")
    privacy, method = sv.Proven(1.0, 1e-3, 1.0, noise="secure"), DPSGD()
    federation = sv.Federation.from_arrays(np.eye(3), np.array([1, 1, -1.0]), np.zeros(3, int), row_bound=1.0)
    place = assemble(method, federation, goal(), privacy, Everyone(), 3, Streams(0), None, "numpy")
    with pytest.raises(InvalidInput, match="SOTTOVOCE_SAMPLER: unknown sampler 'numpy'"):
        place.site(np.arange(1), np.ones(1, dtype=bool), 1).f.grad(np.zeros((1, 3)))
    assert place.ledger is not None
    assert not place.ledger.spent(0)


@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize("features", [14, 104])
def test_a_record_has_the_same_integers_whoever_else_is_in_its_batch(features: int, outputs: int) -> None:
    """Else truncation turns the last bits of the others into whole grid steps that no sensitivity counts."""
    rng, size = np.random.default_rng(1), 121
    X = rng.normal(size=(size, features)) / np.sqrt(features)
    y = rng.integers(0, outputs, size).astype(float) if outputs > 1 else np.where(rng.random(size) < 0.5, -1.0, 1.0)
    y[:2] = (0.0, 1.0) if outputs > 1 else (-1.0, 1.0)
    loss: Any = sv.Softmax(outputs) if outputs > 1 else sv.Logistic()
    privacy = sv.Proven(1.0, 1e-5, 0.01, relation="add-remove", noise="discrete")
    place = assemble(sv.DPSGD(batch=0.5), sv.Federation.from_clients([(X, y)]), sv.Objective(loss), privacy, Everyone(),
                     1, Streams(0), None, "numpy")  # fmt: skip
    w = rng.normal(size=(1, features * outputs))
    question = Question(np.array([0]), np.ones(1, dtype=bool), 1, 0, place.task.algorithm.asks().only)

    def sums(kept: np.ndarray) -> np.ndarray:
        place.door.drawn = lambda question: kept
        return place.door._grid_gradient(w, question)[0]

    batch = rng.random(size) < 0.5
    for one in np.flatnonzero(batch)[:20]:
        alone = np.arange(size) == one
        assert np.array_equal(sums(batch), sums(batch & ~alone) + sums(alone))
