"""Runs of local steps of which only the end leaves: stated sensitivities and gains against searches and exact laws."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.auditing.tape import Tape
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Asks, Descent, ProxSteps
from sottovoce.core.random.streams import Streams
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import local_steps as local_runs
from sottovoce.privacy.doors import open_door
from sottovoce.privacy.doors.record import RecordDoor
from sottovoce.privacy.doors.releases import Question
from sottovoce.privacy.noise_key import NoiseKey, SharedNoise
from sottovoce.problems.losses import Huber, Logistic, Loss, Softmax
from sottovoce.problems.penalties import L1, Ball, NoPenalty
from sottovoce.problems.rows import Rows

ZERO, ASKED = np.array([0]), np.array([True])


def door(
    X: Any, y: Any, loss: Loss, privacy: sv.Proven, asks: Asks, noise: float, runs: int | None = None
) -> RecordDoor:
    rows = Rows(X, y, [0, len(y)], loss, "mean", "numpy")
    (event,) = privacy.plan(asks, 1, rows.sizes)
    events = (dataclasses.replace(event, noise_multiplier=noise),)
    ledger = MemoryLedger(Budget(1e300, privacy.delta), (1,) if runs is None else (runs, 1))
    ledger.charge = lambda *_: None  # type: ignore[method-assign]
    streams = Streams(0, runs)
    opened = open_door(privacy, events, ledger, rows, asks, key=SharedNoise(streams), clients=ZERO, row_bound=1.0)
    assert isinstance(opened, RecordDoor)
    return opened


def stated(opened: RecordDoor, spec: ProxSteps) -> np.ndarray:
    """How far one record moves the end of these steps, as the door states it."""
    return opened._prox_steps_sensitivity(spec, Question(ZERO, ASKED, 1, 0, opened.asks.only))


@pytest.mark.parametrize("q", [1, 5, 20])
@pytest.mark.parametrize(("gamma", "rho", "b"), [(350.0, 20.0, 1), (2.0, 1.0, 10)])
def test_fedspd_closed_form(q: int, gamma: float, rho: float, b: int) -> None:
    """The recursion sums up to (2G/(b rho)) [1 − c(1−c^Q)/(Q(1−c))] with c = gamma/(gamma+rho)."""
    spec = ProxSteps([gamma] * q, [gamma + rho] * q, 0.0, 0.0, NoPenalty(), average=True)
    c, one = gamma / (gamma + rho), np.array([[2.0 / b]])
    expected = 2 / (b * rho) * (1 - c * (1 - c**q) / (q * (1 - c)))
    assert local_runs.prox_steps_sensitivity(spec, one, one)[0, 0] == pytest.approx(expected)


def test_fedepm_closed_form() -> None:
    """k0 equal steps: (Dg/eta)(1 − (mu/(mu+eta))^k0), about k0 Dg/mu for small eta."""
    mu, eta, k0, dg = 0.05, 1.2e-5, 12, np.array([[1.0]])
    spec = ProxSteps([mu] * k0, [mu + eta] * k0, 0.0, 0.0, NoPenalty(), fresh=False)
    expected = (1 - (mu / (mu + eta)) ** k0) / eta
    assert local_runs.prox_steps_sensitivity(spec, dg, dg)[0, 0] == pytest.approx(expected)


features = st.tuples(st.floats(-1, 1), st.floats(-1, 1)).map(lambda v: np.array(v) / max(1.0, np.hypot(*v)))


@pytest.mark.parametrize("kind", ["fresh-convex", "fresh-bounded", "one-gradient", "laplace", "batch"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_neighbour_moves_the_end_further_than_stated(kind: str, data: st.DataObject) -> None:
    loss = data.draw(st.sampled_from([Logistic(), Huber(0.5)]))
    rows = data.draw(st.integers(2, 5))
    X = np.array([data.draw(features) for _ in range(rows)])
    y = np.array([data.draw(st.sampled_from([-1.0, 1.0])) for _ in range(rows)])
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = data.draw(features), data.draw(st.sampled_from([-1.0, 1.0]))
    steps = data.draw(st.integers(1, 6))
    keep = data.draw(st.floats(0.5, 4.0) if kind in ("fresh-convex", "batch") else st.floats(0.01, 0.1))
    rho = data.draw(st.floats(0.05, 2.0))
    h = data.draw(st.sampled_from([NoPenalty(), L1(0.05)]))
    start = np.array([data.draw(st.lists(st.floats(-3, 3), min_size=2, max_size=2))])
    one_gradient = kind in ("one-gradient", "laplace")
    where: dict[str, Any] = {"fresh": False, "at": start} if one_gradient else {}
    spec = ProxSteps([keep] * steps, [keep + rho] * steps, 0.1, 0.0, h, average=data.draw(st.booleans()), **where)
    laplace = kind == "laplace"
    privacy = sv.Proven(1.0, 0.0 if laplace else 1e-5, 0.6, mechanism="laplace" if laplace else "gaussian")
    asks = Asks.every_round(kind="prox-steps", batch=2 if kind == "batch" else 0)
    doors = [door(A, b, loss, privacy, asks, 1e-12) for A, b in ((X, y), (X2, y2))]
    ends = [d.open(ZERO, ASKED, 1)[0].prox_steps(start, spec) for d in doors]
    moved = np.linalg.norm((ends[0] - ends[1])[0], ord=1 if laplace else 2)
    assert moved <= float(stated(doors[0], spec)[0, 0]) * (1 + 1e-9) + 1e-9


def test_which_sensitivity_applies() -> None:
    X, y = np.array([[1.0, 0], [0, 1.0]]), np.array([1.0, -1.0])
    asks, privacy = Asks.every_round(kind="prox-steps"), sv.Proven(1.0, 1e-5, 0.6)
    steep = ProxSteps([2.0] * 3, [3.0] * 3, 0.0, 0.0, NoPenalty())
    flat = ProxSteps([0.05] * 3, [1.05] * 3, 0.0, 0.0, NoPenalty())
    one, bounded = np.array([[0.6]]), np.array([[1.2]])
    logistic = door(X, y, Logistic(), privacy, asks, 1.0)
    assert np.array_equal(stated(logistic, steep), local_runs.prox_steps_sensitivity(steep, one, one))
    assert np.array_equal(stated(logistic, flat), local_runs.prox_steps_sensitivity(flat, one, bounded))
    # Clipping a softmax gradient does not leave it the gradient of a convex function: the convex bound is not for it.
    softmax = door(X, np.array([0.0, 1.0]), Softmax(2), privacy, asks, 1.0)
    assert np.array_equal(stated(softmax, steep), local_runs.prox_steps_sensitivity(steep, one, bounded))


@pytest.mark.parametrize("count", [1, 10])
def test_the_end_of_a_descent_is_exactly_one_gaussian_answer(count: int) -> None:
    """A record whose clipped gradient does not change: the ends of two neighbours are Gaussians, a known shift apart,
    and the shift is what an answer with the event's noise multiplier shows. So the bound is met, and not wasted."""
    runs, noise = 5_000, 2.0
    spec = Descent(count, step=0.4, pull=0.8, centre=np.zeros((1, 2)), ridge=0.1)
    ends = []
    for sign in (1.0, -1.0):
        X, y = np.array([[1.0, 0], [0.0, 0.0]]), np.array([-sign * 1e3, 0.0])  # Huber: slope clipped, constant
        privacy, asks = sv.Proven(1.0, 1e-5, 0.6), Asks.every_round(kind="descent")
        one = door(X, y, Huber(1.0), privacy, asks, noise, runs=runs)
        assert one.events[0].mechanism == "gaussian-chain"
        start = np.zeros((runs, 1, 2))
        ends.append(one.open(ZERO, np.ones((runs, 1), dtype=bool), 1)[0].descent(start, spec)[:, 0, 0])
    c = 1 - 0.4 * 0.9
    steep = local_runs.contraction(spec, np.array([[1.0]]))[0, 0]
    assert steep == pytest.approx(c)
    shift = abs(ends[0].mean() - ends[1].mean()) / ends[0].std()
    assert shift == pytest.approx(1 / noise, rel=0.12)  # a standard error of 0.02


def test_many_hidden_steps_cost_a_bounded_amount() -> None:
    c = np.array([[0.9]])
    gains = [float(local_runs.chain_gain(c, n)[0, 0]) for n in (1, 2, 10, 1000)]
    assert gains[0] == pytest.approx(1.0)
    assert all(a < b <= np.sqrt(n) for a, b, n in zip(gains, gains[1:], (2, 10, 1000), strict=False))
    assert gains[-1] == pytest.approx(np.sqrt(1.9 / 0.1))


def test_preconditions_are_enforced() -> None:
    X, y = np.array([[1.0, 0], [0, 1.0]]), np.array([1.0, -1.0])
    privacy = sv.Proven(1.0, 1e-5, 0.6)
    ok = door(X, y, Logistic(), privacy, Asks.every_round(kind="descent"), 1.0)
    oracle = ok.open(ZERO, ASKED, 1)[0]
    with pytest.raises(NoGuarantee, match=r"must contract, got a factor of 1\.625"):
        oracle.descent(np.zeros((1, 2)), Descent(3, step=2.1, pull=1.0, centre=np.zeros((1, 2))))
    ok.row_bound = None
    with pytest.raises(NoGuarantee, match="promise a row_bound"):
        ok.open(ZERO, ASKED, 1)[0].descent(np.zeros((1, 2)), Descent(3, step=0.1, pull=1.0, centre=np.zeros((1, 2))))
    with pytest.raises(InvalidInput, match="declared 'descent' and asked for 'gradient'"):
        oracle.grad(np.zeros((1, 2)))
    cases: list[tuple[Loss, sv.Proven, Asks, str]] = [
        (Softmax(2), privacy, Asks.every_round(kind="descent"), "a convex loss of one margin"),
        (Logistic(), privacy, Asks.every_round(kind="descent", batch=1), "all records"),
        (
            Logistic(),
            sv.Proven(1.0, 0.0, 0.6, mechanism="laplace"),
            Asks.every_round(kind="descent"),
            "no laplace noise",
        ),
        (
            Logistic(),
            sv.Proven(1.0, 1e-5, 0.6, noise="secure"),
            Asks.every_round(kind="descent"),
            "no secure",
        ),
    ]
    for loss, mode, asks, message in cases:
        labels = np.array([0.0, 1.0]) if loss.name == "softmax" else y
        with pytest.raises(NoGuarantee, match=message):
            door(X, labels, loss, mode, asks, 1.0)
    pure = door(
        X, y, Logistic(), sv.Proven(1.0, 0.0, 0.6, mechanism="laplace"), Asks.every_round(kind="prox-steps"), 1.0
    )
    with pytest.raises(NoGuarantee, match="Ball may stretch L1"):
        pure.open(ZERO, ASKED, 1)[0].prox_steps(np.zeros((1, 2)), ProxSteps([1.0], [2.0], 0.0, 0.0, Ball(1.0)))
    odd = door(X, y, Logistic(), privacy, Asks.every_round(kind="prox-steps"), 1.0).open(ZERO, ASKED, 1)[0]
    with pytest.raises(NoGuarantee, match="nothing is known about the prox of Stretching"):
        odd.prox_steps(np.zeros((1, 2)), ProxSteps([1.0], [2.0], 0.0, 0.0, Stretching()))
    long = door(X, y, Logistic(), privacy, Asks.every_round(kind="prox-steps"), 1.0).open(ZERO, ASKED, 1)[0]
    with pytest.raises(InvalidInput, match="at most 4096"):
        long.prox_steps(np.zeros((1, 2)), ProxSteps([1.0] * 5000, [2.0] * 5000, 0.0, 0.0, NoPenalty()))


class Stretching(NoPenalty):
    """Not a penalty: its "prox" multiplies by ten."""

    def prox(self, v: np.ndarray, step: Any) -> np.ndarray:
        return 10 * v


def test_no_two_answers_share_noise() -> None:
    """Same seed, round and number of the question: noise is bound to the exact answer, so it differs with that."""
    X, y, start = np.array([[0.6, 0.2], [-0.4, 0.9]]), np.array([1.0, -1.0]), np.zeros((1, 2))
    privacy = sv.Proven(1.0, 1e-5, 0.6)
    steps = door(X, y, Logistic(), privacy, Asks.every_round(kind="prox-steps"), 1.0)
    steps.key = NoiseKey(steps.key.streams, np.zeros((1, 2), dtype=np.uint64))
    spec = ProxSteps([1.0] * 2, [2.0] * 2, 0.0, 0.0, NoPenalty())
    specs = [
        *(spec, dataclasses.replace(spec, h=L1(0.01)), dataclasses.replace(spec, h=L1(0.02))),
        *(dataclasses.replace(spec, average=True), dataclasses.replace(spec, total=[2.0, 3.0])),
        *(dataclasses.replace(spec, keep=[1.0] * 3, total=[2.0] * 3), dataclasses.replace(spec, push=1.0), spec),
    ]
    noises = []
    for one in specs:
        steps.intercept = tape = Tape()
        steps.open(ZERO, ASKED, 1)[0].prox_steps(start, one)
        (made,) = tape.made
        assert made is not None
        noises.append(((tape.answers[0] - made.exact) / made.scale)[0])
    assert np.array_equal(noises[0], noises[-1])  # the same answer again
    for a, b in itertools.combinations(noises[:-1], 2):
        assert np.abs(a - b).min() > 1e-3


def test_steps_weigh_all_coordinates_alike() -> None:
    """Weights of their own for coordinates would stretch distances that the bound takes for kept."""
    for bad in (np.array([[1.0, 2.0]]), np.array([1.0, 2.0])):
        with pytest.raises(InvalidInput, match="total must be numbers, or one number per client"):
            local_runs.prox_steps_sensitivity(ProxSteps([1.0], [bad], 0.0, 0.0, NoPenalty()), np.ones(1), np.ones(1))
    for keep, total in ((-1.0, 2.0), (1.0, 0.0), (1.0, 1e-70), (1e130, 2.0), (np.nan, 2.0)):
        with pytest.raises(InvalidInput, match="needs 0 <= keep"):
            local_runs.prox_steps_sensitivity(ProxSteps([keep], [total], 0.0, 0.0, NoPenalty()), np.ones(1), np.ones(1))


def test_rounding_to_large_numbers_does_not_show_through_noise() -> None:
    """Near 2^54 numbers are 4 apart: what differs by less must not be rounded to one side before it is noisy."""
    y, centre = np.array([1.0, -1.0]), np.full((1, 2), 2.0**54)
    answers = []
    for X in (np.array([[0.6, 0.2], [-0.4, 0.9]]), np.array([[-0.6, 0.2], [-0.4, 0.9]])):
        far = door(X, y, Logistic(), sv.Proven(1.0, 1e-5, 0.6), Asks.every_round(kind="prox-steps"), 20.0, runs=400)
        spec = ProxSteps([0.1], [0.2], 0.0, centre, NoPenalty(), fresh=False, at=np.zeros((1, 2)))
        oracle = far.open(ZERO, np.ones((400, 1), dtype=bool), 1)[0]
        answers.append(oracle.prox_steps(np.broadcast_to(centre, (400, 1, 2)), spec) - centre)
        with pytest.raises(InvalidInput, match="or rounding shows"):
            far.open(ZERO, np.ones((400, 1), dtype=bool), 2)[0].prox_steps(
                np.broadcast_to(centre, (400, 1, 2)), dataclasses.replace(spec, centre=0.0)
            )
    assert np.unique(answers[0]).size > 3  # noise decides to which of the numbers there an answer is rounded
    assert abs((answers[0] > 0).mean() - (answers[1] > 0).mean()) < 0.2
