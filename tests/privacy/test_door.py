"""The door: what it lets through, what it charges, and what it refuses."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.algorithms import ADMM, DPSGD, FedAvg, fedavg
from sottovoce.core.check import BudgetSpent, InvalidInput, NoGuarantee
from sottovoce.core.clipping import clip_rows
from sottovoce.core.contract import Asks, Site
from sottovoce.core.participation import Everyone, KOfN
from sottovoce.core.random.streams import Streams
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import accounting
from sottovoce.privacy import discrete_noise as mechanisms
from sottovoce.privacy.doors import open_door
from sottovoce.privacy.doors.base import Door
from sottovoce.privacy.doors.releases import Question, Sealed
from sottovoce.privacy.events import Event
from sottovoce.privacy.noise_key import SharedNoise
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax, Squared
from sottovoce.problems.rows import Rows
from tests.cases import goal, small
from tests.local import assemble

ASKED = np.array([True])
ZERO = np.array([0])


def door(
    X: np.ndarray, y: np.ndarray, loss: Loss, privacy: Any, asks: Asks | None = None, noise: float = 1e-12
) -> Door:
    """A door to one client whose noise is next to nothing, so that an answer shows what the noise would cover."""
    rows = Rows(X, y, [0, len(y)], loss, "mean", "numpy")
    asks = asks or Asks.every_round()
    (event,) = privacy.plan(asks, 1, rows.sizes)
    events = (dataclasses.replace(event, noise_multiplier=noise),)
    ledger = MemoryLedger(Budget(1e300, privacy.delta), (1,))
    ledger.charge = lambda *_: None  # type: ignore[method-assign]
    return open_door(privacy, events, ledger, rows, asks, key=SharedNoise(Streams(0)), clients=ZERO)


records = st.tuples(
    st.lists(st.floats(-30, 30, allow_nan=False), min_size=3, max_size=3), st.integers(0, 1), st.floats(-20, 20)
)


def labelled(loss: Loss, sign: int, number: float) -> float:
    if isinstance(loss, Softmax):
        return float(sign)
    return float(2 * sign - 1) if loss.classification else number


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "loss", [Logistic(), Softmax(2), Squared(), Huber(0.5), SmoothedHinge(0.3)], ids=lambda l: l.name
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_neighbour_moves_a_gradient_further_than_stated(
    loss: Loss, mechanism: Any, relation: Any, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(records, min_size=1, max_size=4))
    other = data.draw(records)
    w = np.array([data.draw(st.lists(st.floats(-1e3, 1e3), min_size=3 * loss.outputs, max_size=3 * loss.outputs))])
    privacy = sv.Proven(1.0, 0.0 if mechanism == "laplace" else 1e-5, 0.8, relation=relation, mechanism=mechanism)
    X, y = np.array([r[0] for r in rows]), np.array([labelled(loss, r[1], r[2]) for r in rows])
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = (other[0], labelled(loss, other[1], other[2])) if relation == "replace-one" else (0.0, y[0])
    ask = [door(A, b, loss, privacy).open(ZERO, ASKED, 1)[0].grad(w) for A, b in ((X, y), (X2, y2))]
    moved = np.linalg.norm((ask[0] - ask[1])[0], ord=1 if mechanism == "laplace" else 2)
    stated = (2 if relation == "replace-one" else 1) * 0.8 / len(y)
    assert moved <= stated * (1 + 1e-9) + 1e-9


def test_the_stated_sensitivity_is_reached() -> None:
    """Two opposite records far beyond the clip: a bound that is never met would waste noise."""
    privacy = sv.Proven(1.0, 1e-5, 0.8)
    X, y = np.array([[50.0, 0, 0], [0, 0, 0]]), np.array([1.0, -1.0])
    X2 = -X
    ask = [door(A, y, Logistic(), privacy).open(ZERO, ASKED, 1)[0].grad(np.zeros((1, 3))) for A in (X, X2)]
    assert np.linalg.norm(ask[0] - ask[1]) == pytest.approx(2 * 0.8 / 2)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_neighbour_moves_an_arg_min_further_than_stated(data: st.DataObject) -> None:
    loss = data.draw(st.sampled_from([Logistic(), Huber(0.5), SmoothedHinge(0.3)]))
    rows, other = data.draw(st.lists(records, min_size=1, max_size=4)), data.draw(records)
    rho, ridge = data.draw(st.floats(0.05, 5.0)), data.draw(st.sampled_from([0.0, 0.1]))
    X, y = np.array([r[0] for r in rows]), np.array([labelled(loss, r[1], r[2]) for r in rows])
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = other[0], labelled(loss, other[1], other[2])
    centre = np.array([data.draw(st.lists(st.floats(-3, 3), min_size=3, max_size=3))])
    ask = [
        door(A, b, loss, sv.Proven(1.0, 1e-5, 0.8), Asks.every_round(kind="argmin"))
        .open(ZERO, ASKED, 1)[0]
        .argmin(centre, rho, 0.0, ridge)
        for A, b in ((X, y), (X2, y2))
    ]
    assert np.linalg.norm(ask[0] - ask[1]) <= (2 * 0.8 / len(y) + 2e-9) / (rho + ridge) * (1 + 1e-9) + 1e-10


def _site(algorithm: Any, privacy: Any, runs: int | None = None, k: int = 1, **options: Any) -> Site:
    place = assemble(algorithm, small(), goal(**options), privacy, Everyone(), 3, Streams(0, runs), None, "numpy")
    shape = (6,) if runs is None else (runs, 6)
    return place.site(np.arange(6), np.ones(shape, dtype=bool), k)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
def test_noise_has_the_stated_deviation(mechanism: Any, relation: Any) -> None:
    delta = 0.0 if mechanism == "laplace" else 1e-4
    privacy = sv.Proven(2.0, delta, 0.5, relation=relation, mechanism=mechanism)
    site = _site(DPSGD(), privacy, runs=2000)
    reach = 2 if relation == "replace-one" else 1
    unit = np.sqrt(2) * 3 / 2.0 if mechanism == "laplace" else np.sqrt(3) / accounting.gaussian_mu(2.0, 1e-4)
    expected = unit * reach * 0.5 / small().sizes
    np.testing.assert_allclose(site.f.noise_std[:, 0], expected, rtol=1e-9)
    answers = site.f.grad(np.zeros((1, 4)))
    measured = np.sqrt(answers.var(axis=0).mean(axis=-1))
    np.testing.assert_allclose(measured, expected, rtol=0.05)


@pytest.mark.parametrize(("kind", "deviation"), [("gaussian", 1.0), ("laplace", np.sqrt(2))])
def test_discrete_noise(kind: Any, deviation: float) -> None:
    zeros = np.zeros(20_000, np.int64)
    draws = mechanisms.noised(kind, 5e4, zeros)
    assert draws.dtype == np.int64
    assert draws.std() == pytest.approx(5e4 * deviation, rel=0.04)
    assert abs(draws.mean()) < 5e4 * deviation * 5 / np.sqrt(20_000)
    assert not np.array_equal(draws, mechanisms.noised(kind, 5e4, zeros)), "secure noise is never seeded"
    # OpenDP's own bound agrees with ours: rho = 1/(2 nm²), epsilon = 1/nm
    cost = mechanisms._measurement(kind, 5e4).map(d_in=10_000)
    assert cost == pytest.approx(1 / (2 * 5.0**2) if kind == "gaussian" else 1 / 5.0)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_beyond_64_bits_hides_the_numbers_all_the_same(kind: Any) -> None:
    """Noise that was cut off and then added would wrap around, and what left would be the numbers themselves."""
    for numbers in (np.full(50, 123_456), np.full(50, -123_456)):
        left = mechanisms.noised(kind, 1e27, numbers)
        assert set(left.tolist()) <= {-(2**63), 2**63 - 1}


def test_a_clip_norm_without_a_grid_is_refused() -> None:
    with pytest.raises(InvalidInput, match="clip must be above 1e-200"):
        mechanisms.to_grid(np.zeros(2), 1e-305)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_the_grid_only_shrinks(values: list[float]) -> None:
    v = clip_rows(np.array(values), 0.3)
    grid = mechanisms.to_grid(v, 0.3)
    assert np.linalg.norm(grid.astype(float)) <= mechanisms.GRID_BOUND
    back = grid * (0.3 / mechanisms.GRID_STEPS)
    assert (np.abs(back) <= np.abs(v) + 1e-18).all()
    np.testing.assert_allclose(back, v, atol=0.3 / mechanisms.GRID_STEPS)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_secure_answers_are_the_clipped_mean_plus_noise(mechanism: Any) -> None:
    delta = 0.0 if mechanism == "laplace" else 1e-3
    tiny = sv.Proven(1e9, delta, 0.4, mechanism=mechanism, noise="secure")
    exact = sv.Proven(1e9, delta, 0.4, mechanism=mechanism)
    w = np.full((1, 4), 0.2)
    secure, seeded = (_site(DPSGD(), privacy).f.grad(w) for privacy in (tiny, exact))
    np.testing.assert_allclose(secure, seeded, atol=2e-4)
    loud = _site(DPSGD(), sv.Proven(1.0, delta, 0.4, mechanism=mechanism, noise="secure"))
    measured = np.concatenate(
        [(loud_site.f.grad(w) - seeded) / loud.f.noise_std for loud_site in _many(mechanism, delta)]
    )
    assert measured.std() == pytest.approx(1.0, rel=0.2)  # six standard errors, of 1200 Laplace numbers


def _many(mechanism: Any, delta: float) -> list[Site]:
    return [_site(DPSGD(), sv.Proven(1.0, delta, 0.4, mechanism=mechanism, noise="secure")) for _ in range(50)]


def parts(thing: Any) -> list[Any]:
    """What an object holds by name: the values of its dictionary, of its slots and of a container."""
    held = list(getattr(thing, "__dict__", {}).values())
    for kind in type(thing).__mro__:
        held += [getattr(thing, name) for name in getattr(kind, "__slots__", ()) if hasattr(thing, name)]
    if isinstance(thing, dict | list | tuple | set):
        held += list(thing.values() if isinstance(thing, dict) else thing)
    return held


@pytest.mark.parametrize("unit", ["record", "client"])
def test_rows_are_not_reachable_from_a_site(unit: Any) -> None:
    """Follow everything a site holds, and what that holds: functions are where it ends, and no data turns up."""
    rows = len(small().X)
    queue, seen = [_site(sv.DPADMM(), sv.Proven(1.0, 1e-5, 1.0, unit=unit))], []
    while queue:
        thing = queue.pop()
        if any(thing is other for other in seen):
            continue
        seen.append(thing)
        assert not isinstance(thing, Rows | Door | sv.Federation), type(thing)
        if isinstance(thing, np.ndarray):
            assert rows not in thing.shape
            assert thing.base is None or rows not in np.shape(thing.base)
        else:
            queue += parts(thing)
    assert len(seen) > 20, "the walk did not get anywhere"


def test_public_numbers_do_not_depend_on_data_in_proven_mode() -> None:
    for privacy in (sv.Proven(1.0, 1e-5, 1.0), sv.Proven(1.0, 1e-5, 1.0, unit="client")):
        for bound in (1.0, None):
            numbers = []
            for seed in (3, 4):
                fed = dataclasses.replace(small(seed=seed), row_bound=bound)
                place = assemble(sv.DPADMM(), fed, goal(), privacy, Everyone(), 3, Streams(0), None, "numpy")
                f = place.site(np.arange(6), np.ones(6, dtype=bool), 1).f
                numbers.append(
                    [f.noise_std, f.gradient_bound, f.curvature_bound, f.smoothness(), f.strong_convexity(), f.size]
                )
            for a, b in zip(*numbers, strict=True):
                assert np.array_equal(a, b)


@dataclasses.dataclass(frozen=True)
class Greedy(FedAvg):
    """Declares one answer a round and takes two."""

    def client(self, state: Any, down: Any, site: Site) -> Any:
        site.f.grad(down.w)
        return super().client(state, down, site)


@dataclasses.dataclass(frozen=True)
class Eager(FedAvg):
    """Looks at data before the first round."""

    def init_client(self, site: Site) -> Any:
        site.f.grad(site.zeros)
        return super().init_client(site)


@dataclasses.dataclass(frozen=True)
class Sideways(FedAvg):
    """Uploads something that did not pass through release."""

    def client(self, state: Any, down: Any, site: Site) -> Any:
        _, up = super().client(state, down, site)
        return state, type(up)(up.w + 0.0)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (Greedy(), "declared 1 answers for round 1 and asked for one more"),
        (Eager(), "declared 0 answers for round 0"),
        (Sideways(), "field 'w' did not pass through site.release"),
    ],
)
def test_an_algorithm_cannot_take_more_than_it_declared(algorithm: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sv.train(algorithm, small(), goal(), rounds=2, privacy=sv.Proven(1.0, 1e-5, 1.0), seed=0, engine="numpy")


@pytest.mark.parametrize("runs", [None, 2])
def test_a_question_that_does_not_fit_is_refused_before_it_is_charged(runs: int | None) -> None:
    place = assemble(
        DPSGD(), small(), goal(), sv.Proven(1.0, 1e-5, 1.0), Everyone(), 4, Streams(5, runs), None, "numpy"
    )
    active = np.ones(place.streams.shape(place.n), dtype=bool)
    oracle, _ = place.door.open(np.arange(place.n), active, 1)
    with pytest.raises(InvalidInput, match="another axis"):
        oracle.grad(np.zeros((*active.shape[:-1], 1, 1, place.dim)))
    assert isinstance(place.ledger, MemoryLedger)
    assert not place.ledger.spent(0)
    assert oracle.grad(np.zeros((*active.shape[:-1], 1, place.dim))).shape == (*active.shape, place.dim)
    assert sum(place.ledger.spent(0).values()) == 1


def test_epsilon_is_exactly_what_was_asked_for() -> None:
    for algorithm, rounds in ((sv.DPADMM(), 7), (FedAvg(local_steps=3), 5), (ADMM(), 2)):
        result = sv.train(algorithm, small(), goal(), rounds=rounds, privacy=sv.Proven(1.5, 1e-4, 1.0), seed=0)
        assert result.guarantee.epsilon == pytest.approx(1.5, rel=1e-6)
        assert max(result.guarantee.epsilon_of_client) <= 1.5
        assert min(result.guarantee.epsilon_of_client) == pytest.approx(1.5, rel=1e-6)  # all were asked the same
        assert result.history["epsilon"][-1] == pytest.approx(1.5, rel=1e-6)
        assert (np.diff(result.history["epsilon"]) > 0).all()


def test_who_is_asked_less_spends_less() -> None:
    result = sv.train(
        sv.DPADMM(), small(), goal(), rounds=8, privacy=sv.Proven(1.0, 1e-4, 1.0), participation=KOfN(3), seed=4
    )
    spent = np.array(result.guarantee.epsilon_of_client)
    (event,) = sv.Proven(1.0, 1e-4, 1.0).plan(Asks.every_round(), 8, small().sizes)
    possible = [accounting.epsilon({event: n}, 1e-4) for n in range(9)]
    assert np.ptp(spent) > 0
    assert all(min(abs(value - p) for p in possible) < 1e-9 for value in spent)
    assert spent.max() < 1.0
    assert "least asked client" in str(result.guarantee)


def test_a_client_whose_budget_is_spent_falls_silent_and_training_goes_on() -> None:
    privacy = sv.Proven(1.0, 1e-4, 1.0, participations=3)
    result = sv.train(sv.DPADMM(), small(), goal(), rounds=12, privacy=privacy, participation=KOfN(3), seed=4)
    assert result.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert result.history["answered"].min() < 3
    alone = sv.train(sv.DPADMM(), small(), goal(), rounds=12, privacy=privacy, seed=4)
    assert alone.rounds == 3
    assert "after round 3: every client's budget is spent" in alone.stopped


def test_the_ledger_refuses_before_the_answer() -> None:
    place = assemble(DPSGD(), small(), goal(), sv.Proven(1.0, 1e-4, 1.0), Everyone(), 2, Streams(0), None, "numpy")
    for k in (1, 2):
        place.site(np.arange(6), np.ones(6, dtype=bool), k).f.grad(np.zeros((1, 4)))
    given: list[np.ndarray] = []
    place.door.intercept = lambda answer, *_: given.append(answer) or answer
    place.door.exact.gradient = lambda *_: given.append(np.zeros(0))
    with pytest.raises(BudgetSpent, match="budget does not hold this answer; nothing was computed"):
        place.site(np.arange(6), np.ones(6, dtype=bool), 3).f.grad(np.zeros((1, 4)))
    assert given == []


def test_the_same_answer_has_new_noise_whenever_it_is_given() -> None:
    """Clients with the same rows, asked the same in two rounds and twice in each: nobody's noise comes again."""
    X, y = np.array([[0.5, 0.2], [-0.1, 0.4]]), np.array([1.0, -1.0])
    same = sv.Federation.from_clients([(X, y)] * 3, row_bound=1.0)
    parts = (FedAvg(local_steps=2), same, goal(), sv.Proven(1.0, 1e-4, 1.0), Everyone(), 2, Streams(0))
    place, given = assemble(*parts, None, "numpy"), []
    for k in (1, 2):
        oracle = place.site(np.arange(3), np.ones(3, dtype=bool), k).f
        given += [oracle.grad(np.zeros((1, 2))) for _ in range(2)]
    vectors = np.concatenate(given)
    assert len(np.unique(vectors[:, 0])) == len(np.unique(vectors[:, 1])) == 12


def test_a_look_at_data_that_fails_is_charged_all_the_same() -> None:
    """Else it could be tried again and again, and that it fails may be due to the data."""
    place = assemble(DPSGD(), small(), goal(), sv.Proven(1.0, 1e-4, 1.0), Everyone(), 2, Streams(0), None, "numpy")

    def failing(*_: Any) -> np.ndarray:
        raise MemoryError

    place.door.exact.gradient = failing
    for k, refused in ((1, MemoryError), (2, MemoryError), (3, BudgetSpent)):
        with pytest.raises(refused):
            place.site(np.arange(6), np.ones(6, dtype=bool), k).f.grad(np.zeros((1, 4)))


def test_client_level_uploads_stay_near_a_public_centre() -> None:
    privacy = sv.Proven(1e9, 1e-4, 0.05, unit="client")
    kept: list[Any] = []
    sv.train(FedAvg(step=50.0), small(), goal(), rounds=1, privacy=privacy, seed=0, after_round=kept.append)
    assert np.linalg.norm(kept[0].server.w) <= 0.05 + 1e-4
    result = sv.train(FedAvg(), small(), goal(), rounds=4, privacy=sv.Proven(1.0, 1e-4, 0.5, unit="client"), seed=0)
    assert result.guarantee.unit == "one whole client, its data replaced by any other"
    assert result.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert result.charges is not None
    assert {event.relation for event in result.charges.events()} == {"replace-client"}


def test_client_level_uploads_are_clipped_around_the_centre_and_not_around_zero() -> None:
    privacy = sv.Proven(1e9, 1e-4, 0.05, unit="client")
    place = assemble(FedAvg(), small(), goal(), privacy, Everyone(), 3, Streams(0), None, "numpy")
    centre = Sealed(np.tile([3.0, -4.0, 0.0, 0.0], (6, 1)))
    _, release = place.door.open(np.arange(6), np.ones(6, dtype=bool), 1, [centre])
    moved = np.linspace(0.01, 1.0, 6)[:, None] * np.array([0.0, 0.0, 1.0, 0.0])  # the first by less than the clip norm
    away = release(centre.given + moved, None, centre.given) - centre.given
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), [0.01, *[0.05] * 5], atol=1e-3)


@dataclasses.dataclass(frozen=True)
class Failing(FedAvg):
    """Fails as soon as it sees a gradient that is not zero."""

    def client(self, state: Any, down: Any, site: Site) -> Any:
        if site.f.grad(down.w).any():
            raise ValueError("a gradient")
        return super().client(state, down, site)


def test_client_level_rounds_that_fail_are_charged_and_noised_like_others() -> None:
    privacy = sv.Proven(1.0, 1e-4, 0.5, unit="client")
    place = assemble(Failing(), small(), goal(), privacy, Everyone(), 3, Streams(0), None, "numpy")
    place.start(Failing())
    down = fedavg.Down(np.ones((6, 4)))
    exchange = place.exchange(Failing(), down, np.ones(6, dtype=bool), 1)
    assert exchange is not None
    noise = np.sqrt(3) / accounting.gaussian_mu(1.0, 1e-4) * 2 * 0.5
    assert (exchange.up.w - 1.0).std() == pytest.approx(noise, rel=0.5)  # of 24 numbers
    assert [sum(place.ledger.spent(client).values()) for client in range(6)] == [1] * 6  # type: ignore[union-attr]


def test_client_level_noise_has_the_stated_deviation() -> None:
    privacy = sv.Proven(2.0, 1e-4, 0.5, unit="client")
    site = _site(FedAvg(), privacy, runs=2000)
    released = site.release(np.zeros((2000, 6, 4)), centre=site.zeros)
    assert released.std() == pytest.approx(np.sqrt(3) / accounting.gaussian_mu(2.0, 1e-4) * 2 * 0.5, rel=0.02)


def test_batches_follow_the_relation() -> None:
    sizes = small().sizes
    removed = sv.Proven(1.0, 1e-4, 1.0, relation="add-remove")
    (poisson,) = removed.plan(Asks.every_round(batch=0.3), 20, sizes)
    (full,) = removed.plan(Asks.every_round(), 20, sizes)
    assert poisson == Event("gaussian", poisson.noise_multiplier, "poisson", "add-remove", 0.3)
    assert poisson.noise_multiplier < full.noise_multiplier
    (fixed,) = sv.Proven(1.0, 1e-4, 1.0).plan(Asks.every_round(batch=2), 20, sizes)
    assert (fixed.sampling, fixed.batch, fixed.size) == (
        "fixed-size",
        2,
        3,
    )  # the smallest client's share is the largest
    with pytest.raises(NoGuarantee, match="no proof for discrete-gaussian noise on random batches"):
        sv.Proven(1.0, 1e-4, 1.0, noise="secure").plan(Asks.every_round(batch=2), 20, sizes)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_batches_are_drawn_anew_for_every_question(relation: Any) -> None:
    """A batch that comes again is no secret: sampling would then hide nothing, and it is charged as if it did."""
    X, privacy = np.eye(12), sv.Proven(1.0, 1e-4, 1.0, relation=relation)  # a coordinate for each record
    asks = Asks.every_round(answers=2, batch=4)
    one = door(X, np.resize([1.0, -1.0], 12), Logistic(), privacy, asks)
    drawn = set()
    for k in range(1, 6):
        oracle = one.open(ZERO, ASKED, k)[0]
        drawn |= {tuple(np.abs(oracle.grad(np.zeros((1, 12)))[0]) > 1e-6) for _ in range(2)}
    assert len(drawn) > 7  # of ten; two of them are alike with a probability of 2e-3


@pytest.mark.parametrize(("relation", "name"), [("add-remove", "PLD"), ("replace-one", "RDP")])
def test_batches_are_accounted_per_client(relation: Any, name: str) -> None:
    """Four records of 20 and of 47 are different shares: the smaller client spends the budget, the larger less."""
    federation = small()
    kept = federation.offsets[3]
    two = sv.Federation(federation.X[kept:], federation.y[kept:], federation.offsets[3:] - kept, ("a", "b", "c"), 1.0)
    privacy = sv.Proven(1.0, 1e-4, 1.0, relation=relation)
    result = sv.train(DPSGD(batch=4), two, goal(), rounds=20, privacy=privacy, seed=0, record_every=20)
    spent = result.guarantee.epsilon_of_client
    assert 0.98 < spent[0] <= 1.0
    assert spent[0] > spent[1] > spent[2]
    assert name in result.guarantee.accountant


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("batch", [0.3, 2])
def test_batches_have_the_stated_law(relation: Any, batch: float) -> None:
    """Every record is drawn with its client's rate; fixed-size batches have exactly that size; the mean is unbiased."""
    sizes, runs = small().sizes, 4000
    place = assemble(DPSGD(batch=batch), small(), goal(), sv.Proven(1.0, 1e-4, 1.0, relation=relation), Everyone(), 3,
                     Streams(0, runs), None, "numpy")  # fmt: skip
    seen: list[np.ndarray] = []
    plain = place.exact.gradient
    place.exact.gradient = lambda w, c, clip, norm, keep, quick: seen.append(keep) or plain(w, c, clip, norm, keep)
    answers = place.site(np.arange(6), np.ones((runs, 6), dtype=bool), 1).f.grad(np.zeros((1, 4)))
    rates = place.door.rates(batch)[:, 0]
    np.testing.assert_allclose(seen[0].mean(axis=0), np.repeat(rates, sizes), atol=5 * 0.5 / np.sqrt(runs))
    door: Any = place.door
    one = (2 if relation == "replace-one" else 1) * 1.0 / sizes / rates  # a drawn record counts 1/rate times
    np.testing.assert_allclose(
        door.noise_std(np.arange(6), door.asks.only)[:, 0], door.events[0].noise_multiplier * one, rtol=1e-9
    )
    counts = np.add.reduceat(seen[0], np.cumsum([0, *sizes[:-1]]), axis=1)
    assert (relation == "add-remove") != bool((counts == np.rint(rates * sizes)).all())
    exact = plain(np.zeros((1, 4)), None, 1.0)
    spread = answers.std(axis=0) / np.sqrt(runs)
    assert (np.abs(answers.mean(axis=0) - exact) < 5 * spread).all()


@dataclasses.dataclass(frozen=True)
class OwnCentre(FedAvg):
    """Releases around its own, un-noised model."""

    def client(self, state: Any, down: Any, site: Site) -> Any:
        w = down.w - site.f.grad(down.w)
        return state, fedavg.Up(site.release(w, centre=w))


@dataclasses.dataclass(frozen=True)
class AfterTheDoor(FedAvg):
    """Writes into what was released."""

    def client(self, state: Any, down: Any, site: Site) -> Any:
        _, up = super().client(state, down, site)
        up.w[...] = site.f.grad(down.w)
        return state, up


@dataclasses.dataclass(frozen=True)
class IntoTheBroadcast(FedAvg):
    """Writes into what the server said."""

    def client(self, state: Any, down: Any, site: Site) -> Any:
        down.w[...] += site.f.grad(down.w).mean(axis=-2, keepdims=True)
        return super().client(state, down, site)


@pytest.mark.parametrize(
    ("algorithm", "error", "message"),
    [
        (OwnCentre(), InvalidInput, "the centre must be public"),
        (AfterTheDoor(), ValueError, "read-only"),
        (IntoTheBroadcast(), ValueError, "read-only"),
    ],
)
def test_nothing_passes_beside_a_release(algorithm: Any, error: type[Exception], message: str) -> None:
    privacy = sv.Proven(1.0, 1e-4, 0.5, unit="client")
    with pytest.raises(error, match=message):
        sv.train(algorithm, small(), goal(), rounds=2, privacy=privacy, seed=0, engine="numpy")


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=5),
    st.sampled_from([1e-180, 1e-9, 0.3, 1e9]),
)
def test_a_clipped_vector_keeps_its_bound_whatever_it_was(values: list[float], clip: float) -> None:
    clipped = clip_rows(np.array(values), clip)
    top = np.abs(clipped).max()
    assert np.isfinite(clipped).all()
    assert top * np.linalg.norm(clipped / (top or 1.0)) <= clip * (1 + 1e-9)


def test_a_client_that_diverged_still_keeps_its_bound() -> None:
    federation = small("squared")
    X = federation.X.copy()
    X[: federation.offsets[1]] *= 1e3
    wild = dataclasses.replace(federation, X=X, row_bound=None)
    privacy = sv.Proven(1e6, 1e-4, 0.5, unit="client")
    kept: list[Any] = []
    with np.errstate(all="ignore"):
        sv.train(FedAvg(step=1.0, local_steps=60), wild, goal("squared"), rounds=1, privacy=privacy, seed=0,
                 measure_training=False, after_round=kept.append)  # fmt: skip
    assert np.linalg.norm(kept[0].server.w) < 0.51


@pytest.mark.parametrize("engine", ["numpy", "kernel"])
def test_softmax_gradients_whose_squares_underflow_are_clipped(engine: Any) -> None:
    X, w = np.array([[1.0, 1e90]]), np.array([[391.0, 0.0, 0.0, 0.0]])
    rows = Rows(X, [0.0], [0, 1], Softmax(2), "mean", engine)
    slope = 1e-170  # about exp(-391): its square is zero in floating point
    assert np.abs(rows.gradient(w)).max() > slope * 1e89
    for clip in (1e-82, 1e-90):
        clipped = rows.gradient(w, None, clip)[0]
        top = np.abs(clipped).max()
        assert top * np.linalg.norm(clipped / top) <= clip * (1 + 1e-9)


def test_published_arg_mins_honour_the_clip() -> None:
    """PVP's noise is for gradients of at most `clip`: then the arg-min must not see longer ones."""
    from sottovoce.algorithms import PVP

    federation = small()
    moved = dataclasses.replace(federation, X=federation.X.copy(), y=federation.y.copy())
    moved.y[0] *= -1
    ends = []
    for fed in (federation, moved):
        place = assemble(
            PVP(), fed, goal(), sv.Published(0.5, 1e-3, clip=0.01), Everyone(), 1, Streams(0), None, "numpy"
        )
        ends.append(place.site(np.arange(6), np.ones(6, dtype=bool), 1).f.argmin(np.zeros((1, 4)), 0.1)[0])
    assert np.linalg.norm(ends[0] - ends[1]) <= 2 * 0.01 / 3 / 0.1 + 1e-7


def test_a_published_run_that_breaks_its_claim_gets_no_verdict() -> None:
    good = sv.train(DPSGD(), small(), goal(), rounds=2, privacy=sv.Published(0.5, 1e-3), seed=0)
    assert "Verdict: sound" in str(good.guarantee)
    batches = sv.train(DPSGD(batch=1), small(), goal(), rounds=2, privacy=sv.Published(0.5, 1e-3), seed=0)
    unbounded = dataclasses.replace(small(), row_bound=None)
    read_off = sv.train(DPSGD(), unbounded, goal(), rounds=2, privacy=sv.Published(0.5, 1e-3), seed=0)
    for result in (batches, read_off):
        assert "no guarantee" in str(result.guarantee)
        assert "This run breaks what the claim assumes" in str(result.guarantee)
        assert "Exact for" not in str(result.guarantee)


def test_a_bound_that_is_assumed_sets_the_noise_and_clips_nothing() -> None:
    def place(**bounds: float) -> Any:
        privacy = sv.Published(0.5, 1e-3, **bounds)
        return assemble(DPSGD(), small(), goal(), privacy, Everyone(), 1, Streams(0), None, "numpy").site(
            np.arange(6), np.ones(6, dtype=bool), 1
        )

    exact, assumed, clipped = place(), place(assume=0.01), place(clip=0.01)
    w = np.zeros((1, 4))
    np.testing.assert_array_equal(assumed.f.grad(w), exact.f.grad(w))
    assert np.abs(clipped.f.grad(w)).max() < np.abs(exact.f.grad(w)).max()
    assert assumed.f.gradient_bound == clipped.f.gradient_bound == 0.01
    for bounds, met in (
        ({"assume": 0.01}, False),
        ({"assume": 0.01, "clip": 0.1}, False),
        ({"assume": 1, "clip": 1}, True),
    ):
        run = sv.train(DPSGD(), small(), goal(), rounds=2, privacy=sv.Published(0.5, 1e-3, **bounds), seed=0)
        assert ("Verdict: sound" in str(run.guarantee)) is met
        assert ("nothing enforces it" in str(run.guarantee)) is not met


def test_the_accountant_named_is_the_one_that_gives_the_number() -> None:
    """15 of 20 records: the bound that ignores sampling is the smaller one, and it is the one to be named."""
    federation = small(unequal=False)
    result = sv.train(DPSGD(batch=15), federation, goal(), rounds=30, privacy=sv.Proven(1.0, 1e-4, 1.0), seed=0)
    assert result.guarantee.accountant == "exact Gaussian trade-off (sampling ignored)"


def test_the_noise_is_not_within_an_algorithms_reach() -> None:
    from sottovoce.core.random.normal import normal
    from sottovoce.core.random.streams import Purpose

    site = _site(DPSGD(), sv.Proven(1.0, 1e-4, 1.0))
    answer, exact = site.f.grad(np.zeros((1, 4))), _site(DPSGD(), sv.NoPrivacy()).f.grad(np.zeros((1, 4)))
    noise = (answer - exact) / site.f.noise_std
    guess = normal(site.rng._streams.bits(site.who, 1, Purpose.NOISE, 4))
    assert np.abs(noise - guess).max() > 0.1


def test_a_federation_made_in_any_way_is_checked() -> None:
    federation = small()
    with pytest.raises(InvalidInput, match=r"no row is longer than 0\.1"):
        dataclasses.replace(federation, row_bound=0.1)
    with pytest.raises(InvalidInput, match=r"entries of X must be at most 1e\+100"):
        dataclasses.replace(federation, X=federation.X * 1e200, row_bound=None)


def test_zeros_stay_zero() -> None:
    """They are public, and may be the centre of a release: what is written into them would leave as it is."""
    zeros = _site(DPSGD(), sv.Proven(1.0, 1e-5, 1.0, unit="client")).zeros
    base: Any = zeros
    while isinstance(base, np.ndarray):
        with pytest.raises(ValueError, match="WRITEABLE"):
            base.flags.writeable = True
        base = base.base
    assert not zeros.any()


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])  # batches of a fixed size, and record by record
@pytest.mark.parametrize("engine", ["numpy", "kernel"])
def test_a_client_that_draws_all_its_records_answers_alike_alone_and_beside_others(engine: Any, relation: Any) -> None:
    """To the last bit: its noise is bound to that."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.1, 0.1, (220, 40)), np.where(np.arange(220) % 2, 1.0, -1.0)
    federation = sv.Federation.from_clients([(X[:20], y[:20]), (X[20:], y[20:])], row_bound=1.0)
    privacy = sv.Proven(2.0, 1e-5, relation=relation)
    place = assemble(DPSGD(batch=50), federation, goal(), privacy, Everyone(), 3, Streams(0), engine=engine)
    w = rng.normal(size=(1, place.dim))

    def question(*clients: int) -> Question:
        return Question(np.array(clients), np.ones(len(clients), dtype=bool), 1, 0, place.door.part_at(1), (w,))

    assert place.door.drawn(question(0, 1))[:20].all()
    assert not place.door.drawn(question(0, 1)).all()
    alone, beside = (place.door.exact_gradient(w, question(*who), 0.5) for who in ((0,), (0, 1)))
    np.testing.assert_array_equal(alone[0], beside[0])


def test_the_numbers_of_clients_that_a_door_draws_by_cannot_be_changed() -> None:
    from sottovoce.experiment.local import LocalClients

    place = assemble(DPSGD(), small(), goal(), sv.Proven(2.0, 1e-5), Everyone(), 3, Streams(0))
    numbers = np.arange(place.n) + 7
    task, streams = place.task, place.streams
    node = LocalClients.of(task, place.federation, place.ledger, streams, place.door.events, clients=numbers)
    for who in (place.door.clients, node.door.clients, node.site(place._everyone, ASKED.repeat(place.n), 1).who):
        with pytest.raises(ValueError, match="read-only"):
            who[0] = 5
    numbers[0] = 5
    assert node.door.clients[0] == 7
