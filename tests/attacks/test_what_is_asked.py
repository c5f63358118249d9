"""Runs that are paid for, under one stated seed: nothing that they share may show in what they have in common.

Who attacks sees the releases of several runs and knows their settings, but not the seed.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD, ADMMSharing
from sottovoce.core.check import BudgetSpent, InvalidInput
from sottovoce.core.contract import Asks, Descent, Part, ProxSteps, Site
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.train import train
from sottovoce.ledger.budget import LedgerError
from sottovoce.privacy.noise_key import NoiseKey
from sottovoce.problems.rows import Rows
from tests.cases import COLUMN_UNITS, goal, small, small_columns
from tests.local import assemble

TIGHT = sv.Proven(epsilon=1.0, delta=1e-4, clip=1e-3)  # every record is clipped: its gradient has one length
EVERYONE = np.ones(1, dtype=bool)


def answers(points: Sequence[np.ndarray], seed: int = 5, **change: Any) -> list[np.ndarray]:
    """What the first client of a run answers at these points, one for each run, in round 1."""
    given = []
    for point in points:
        place = assemble(DPSGD(**change), small(), goal(), TIGHT, Everyone(), 1, Streams(seed), None, "numpy")
        oracle, _ = place.door.open(np.array([0]), EVERYONE, 1)
        given.append(oracle.grad(point))
    return given


def test_equal_answers_to_different_questions_do_not_show_that_they_are_equal() -> None:
    """Else "some release differs" tells whether every record was clipped in both runs."""
    here, there = np.zeros((1, 4)), np.full((1, 4), 1e-12)
    place = assemble(DPSGD(), small(), goal(), TIGHT, Everyone(), 1, Streams(5), None, "numpy")
    one, other = (place.exact.gradient(w, np.array([0]), TIGHT.clip, 2, None) for w in (here, there))
    assert np.array_equal(one, other)  # the two points are so near that all slopes are clipped alike
    first, second = answers([here, there])
    assert np.linalg.norm(first - second) > 1e-3 * np.linalg.norm(first)
    first, second = answers([here, here])
    assert np.array_equal(first, second)  # the same question of the same run, played again


def test_batches_are_other_ones_for_another_question() -> None:
    drawn: list[np.ndarray] = []
    plain = NoiseKey.batch

    def noted(key: NoiseKey, *given: Any) -> np.ndarray:
        drawn.append(plain(key, *given))
        return drawn[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseKey, "batch", noted)
        answers([np.zeros((1, 4)), np.full((1, 4), 1e-12), np.zeros((1, 4))], batch=2)
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])


def test_noise_of_another_scale_is_other_noise() -> None:
    """Scores that are cut to their bound are equal whatever the target: two scales would give them away exactly."""
    privacy = replace(COLUMN_UNITS["proven, record"], score_bound=1e-6)
    drawn = []
    for length in (1.0, 2.0):
        place = assemble(ADMMSharing(), small_columns(), goal(), privacy, Everyone(), 1, Streams(5), None, "numpy")
        seen: list[Any] = []
        place.door.intercept = lambda answer, *made_of, seen=seen: seen.append(made_of) or answer
        oracle, _ = place.door.open(np.array([0]), EVERYONE, 1)
        target = np.full((1, 40), length)
        answer = oracle.fit(target, np.ones((1, 1)))
        exact, scale, _ = seen[0]
        drawn.append((answer - exact) / scale)
    assert np.linalg.norm(drawn[0] - drawn[1]) > 1.0


@pytest.mark.parametrize("start", [8e14, 1e10])
def test_local_steps_far_away_from_zero_are_refused(start: float) -> None:
    """There the iterates live on a grid coarser than the noise, and steps that contract on paper do not."""
    place = assemble(
        sv.algorithms.FedPLT(variant="B", step=0.5), small(), goal(), TIGHT, Everyone(), 1, Streams(5), None, "numpy"
    )
    oracle, _ = place.door.open(np.array([0]), EVERYONE, 1)
    far = np.full((1, 4), start)
    with pytest.raises(InvalidInput, match="or rounding shows"):
        oracle.descent(far, Descent(3, 0.5, 1.0, far))
    assert place.ledger is not None
    assert place.ledger.spent(0) == {}


@dataclass(frozen=True)
class Telltale(DPSGD):
    """Raises what a ledger would, if an exact number is large."""

    error: Any = BudgetSpent

    def client(self, state: Any, down: Any, site: Site) -> tuple[Any, Any]:
        if (np.abs(site.f.grad(down.w)) > 0.3).any():
            raise self.error("spent")
        return super().client(state, down, site)


@pytest.mark.parametrize("error", [BudgetSpent, LedgerError])
def test_an_algorithm_cannot_stop_a_run_in_the_name_of_a_ledger(error: type[Exception]) -> None:
    privacy, rounds = sv.Proven(epsilon=1.0, delta=1e-6, clip=1.0, unit="client"), []
    for size in (0.1, 1.0):
        X, y = np.full((20, 2), size), np.ones(20)
        y[0] = -1
        result = train(Telltale(error=error), sv.Federation.from_clients([(X, y)] * 2), goal(), rounds=2,
                       privacy=privacy, seed=1, measure_training=False, engine="numpy")  # fmt: skip
        rounds.append((result.rounds, result.stopped, result.guarantee.epsilon))
    assert rounds[0] == rounds[1]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": DPSGD(step=0.5)},
        {"privacy": replace(TIGHT, clip=0.5)},
        {"privacy": replace(TIGHT, epsilon=2.0)},
        {"rounds": 5},
        {"federation": small().in_float32()},
        {"federation": small(seed=4)},
    ],
    ids=["step", "clip", "epsilon", "rounds", "storage", "rows"],
)
def test_a_checkpoint_goes_on_with_its_own_task_only(change: dict[str, Any]) -> None:
    """Else rounds after it would be answered twice, with other noise, and counted once."""
    run: dict[str, Any] = {"algorithm": DPSGD(), "federation": small(), "privacy": TIGHT, "rounds": 4}
    kept: list[Any] = []

    def play(settings: dict[str, Any], **more: Any) -> sv.Result:
        own = dict(settings)
        parts = (own.pop("algorithm"), own.pop("federation"), goal())
        return train(*parts, **own, seed=3, engine="numpy", **more)

    whole = play(run, after_round=kept.append)
    assert np.array_equal(play(run, resume=kept[1]).model, whole.model)
    with pytest.raises(InvalidInput, match="another task, engine, rows or held-out records"):
        play(run | change, resume=kept[1])


def test_a_checkpoint_goes_on_with_its_own_arithmetic_only(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def play(**more: Any) -> None:
        train(DPSGD(), small(), goal(), privacy=TIGHT, rounds=4, seed=3, engine="kernel", **more)

    play(after_round=kept.append)
    play(resume=kept[1])
    monkeypatch.setattr(Rows, "arithmetic", "kernel, in another order")
    with pytest.raises(InvalidInput, match="another task, engine, rows or held-out records"):
        play(resume=kept[1])


SEEN: list[np.ndarray] = []  # what code of the algorithm was called with


class Spy(np.ndarray):
    """Public numbers whose arithmetic runs the algorithm's code."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        SEEN.extend(np.array(one) for one in inputs if not isinstance(one, Spy))
        return getattr(ufunc, method)(*(np.asarray(one) for one in inputs), **options)


class SpyNumber(float):
    """The same for one number."""

    def _noted(self, other: Any) -> Any:
        SEEN.append(np.array(other))
        return float(self) * other

    __mul__ = __rmul__ = _noted
    __array_ufunc__ = None  # so that NumPy leaves arithmetic with it to these


class SpyScalar(np.float32):
    """The same for a number of NumPy's."""

    _noted: Any = SpyNumber._noted
    __mul__ = __rmul__ = _noted
    __array_ufunc__ = None


class Twice(ProxSteps):
    """Says honest weights until the steps are taken."""

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[override]
        keep, total = ProxSteps.weights.func(self)
        self.__dict__["reads"] = self.__dict__.get("reads", 0) + 1
        return (keep, total) if self.__dict__["reads"] < 5 else (keep, total * 1e-6)


def spied(shape: tuple[int, ...]) -> Any:
    return np.zeros(shape).view(Spy)


def steps(shape: tuple[int, ...], kind: type[ProxSteps] = ProxSteps, **change: Any) -> ProxSteps:
    honest: dict[str, Any] = {
        "keep": [1.0], "total": [1.0], "push": np.zeros(shape), "centre": np.zeros(shape), "h": sv.L2(0.1),
    }  # fmt: skip
    return kind(**(honest | change), fresh=False)


def ask(how: str, oracle: Any, shape: tuple[int, ...]) -> np.ndarray:
    zeros, spy, number = np.zeros(shape), spied(shape), SpyNumber
    scalar: Any = SpyScalar(0.1)
    match how:
        case "gradient":
            return oracle.grad(spy)
        case "push" | "centre":
            return oracle.prox_steps(zeros, steps(shape, **{how: spy}))
        case "start":
            return oracle.prox_steps(spy, steps(shape))
        case "total":
            return oracle.prox_steps(zeros, steps(shape, total=[number(1.0)]))
        case "penalty":
            return oracle.prox_steps(zeros, steps(shape, h=sv.L2(number(0.1))))
        case "scalar":
            return oracle.prox_steps(zeros, steps(shape, h=sv.L2(scalar)))
        case "subclass":
            return oracle.prox_steps(zeros, steps(shape, Twice))
        case "descent":
            return oracle.descent(spy, Descent(2, number(0.001), number(0.0), spy, number(0.1)))
        case _:
            return oracle.argmin(spy, number(1.0), spy, number(0.1))


KIND = {"gradient": "gradient", "descent": "descent", "argmin": "argmin"}


@pytest.mark.parametrize("engine", ["numpy", "kernel"])
@pytest.mark.parametrize(
    "how", ["gradient", "push", "start", "centre", "total", "penalty", "scalar", "subclass", "descent", "argmin"]
)
def test_code_of_the_algorithm_never_runs_with_exact_numbers(how: str, engine: str) -> None:
    """Numbers of types of its own are public, and computed with; and a question means what it did when it was paid."""
    kind: Any = KIND.get(how, "prox-steps")
    asks = Asks.every_round(1, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DPSGD, "asks", lambda self: asks)
        privacy = replace(TIGHT, clip=1.0)
        data = replace(small(), row_bound=10.0)
        place = assemble(DPSGD(), data, goal(), privacy, Everyone(), 3, Streams(5), None, engine)
    exact: list[np.ndarray] = []
    plain_gradient = Rows.gradient

    def noted(rows: Rows, *given: Any, **named: Any) -> np.ndarray:
        exact.append(plain_gradient(rows, *given, **named))
        return exact[-1].copy()

    answers = []
    everyone, active = np.arange(place.n), np.ones(place.n, dtype=bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "gradient", noted)
        oracle, _ = place.door.open(everyone, active, 1)
        SEEN.clear()
        answers.append(ask(how, oracle, (place.n, place.dim)))
    for number in SEEN:  # none is made of what was computed: all are public zeros
        assert not np.abs(number).max(initial=0.0) > 0 or number.ndim == 0, how
    assert exact or how == "argmin"
    if how in ("push", "subclass"):  # it is the answer to the same question, honestly put
        oracle, _ = place.door.open(everyone, active, 1)
        shape = (place.n, place.dim)
        assert np.array_equal(answers[0], oracle.prox_steps(np.zeros(shape), steps(shape)))


class SpyBatch(float):
    """A size of batches that makes spies of what is computed with it."""

    def __mul__(self, other: Any) -> Any:
        return (float(self) * np.asarray(other)).view(Spy)

    __rmul__ = __mul__
    __array_ufunc__ = None


def test_code_in_a_declaration_never_runs_with_exact_numbers() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DPSGD, "asks", lambda self: Asks((Part(batch=SpyBatch(0.5)),)))
        SEEN.clear()
        train(DPSGD(), small(), goal(), privacy=sv.Proven(1.0, 1e-5, 1.0), rounds=2, seed=3, engine="numpy")
    assert not SEEN


@pytest.mark.parametrize("honest", range(1, 9))
def test_noise_is_planned_for_what_is_asked_though_a_declaration_changes(honest: int) -> None:
    """It says small batches so many times, which need little noise, and then all records."""
    batches = itertools.chain(itertools.repeat(2, honest), itertools.repeat(0))

    def play(declared: Any) -> sv.Result:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DPSGD, "asks", declared)
            return train(
                DPSGD(batch=2), small(), goal(), privacy=sv.Proven(1.0, 1e-5, 1.0), rounds=8, seed=3, engine="numpy"
            )

    changing = play(lambda self: Asks((Part(batch=next(batches)),))).model
    steady = [play(lambda self, batch=batch: Asks((Part(batch=batch),))).model for batch in (0, 2)]
    assert any(np.array_equal(changing, model) for model in steady)
