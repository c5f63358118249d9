"""Arg-mins at a proven door: found for sure where public numbers allow them, else refused before a look at the rows."""

from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import PVP
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.privacy.doors.base import ARGMIN_TOL
from sottovoce.privacy.modes import Proven
from sottovoce.privacy.sensitivity import ArgminTerms
from sottovoce.problems.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax
from sottovoce.problems.rows import Rows, argmin, subproblem
from tests.cases import goal, small
from tests.local import assemble
from tests.problems.test_rows import certificate

BOUNDED = [Logistic(), Softmax(3), Huber(0.5), SmoothedHinge(0.3)]
CAP = 1.0


def rows(loss: Loss, scale: str = "mean", engine: str = "numpy") -> Rows:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 4)) * 10.0 ** rng.uniform(-2, 2, (60, 1))
    y = rng.integers(0, 3, 60) if loss.outputs > 1 else rng.choice([-1.0, 1.0], 60)
    return Rows(X, y.astype(float), [0, 10, 60], loss, scale, engine)


def terms(of: Rows, shift: np.ndarray, pull: float) -> ArgminTerms:
    length = np.linalg.norm(shift, axis=-1, keepdims=True)
    return ArgminTerms(
        *(of.sizes[:, None], of.features, of.loss.outputs, of.weights),
        *(CAP, of.loss.lipschitz, of.loss.curvature, length, np.full((of.n_clients, 1), pull)),
    )


@pytest.mark.parametrize("loss", BOUNDED, ids=lambda loss: loss.name)
@pytest.mark.parametrize("scale", ["mean", "sum"])
@pytest.mark.parametrize("pull", [0.01, 1.0])
def test_descent_alone_reaches_the_tolerance_in_the_stated_number_of_steps(
    loss: Loss, scale: str, pull: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every other solver broken, and a tolerance as small as rounding allows."""
    of = rows(loss, scale)

    def broken(*_: Any) -> Any:
        raise np.linalg.LinAlgError("broken")

    monkeypatch.setattr(subproblem, "minimise", broken)
    monkeypatch.setattr(argmin, "MOST_PASSES", 0)
    linear = np.random.default_rng(6).normal(size=(2, of.dim))
    public = terms(of, linear, pull)
    tol = 4 * public.rounding
    assert public.certain(tol).all()
    assert tol.max() < 1e-6
    kappa = public.steep / public.pull
    steps = 3.2 * kappa * np.log(4 * kappa * np.square(public.first / tol)) + 2
    found = of.argmin(np.zeros((1, of.dim)), pull, linear, tol=tol[:, 0], row_cap=CAP, last_steps=int(steps.max()))
    assert (certificate(of, found, np.zeros((1, of.dim)), pull, linear, row_cap=CAP) <= tol[:, 0]).all()


@pytest.mark.parametrize("loss", BOUNDED, ids=lambda loss: loss.name)
def test_computed_gradients_are_as_close_to_exact_ones_as_stated(loss: Loss) -> None:
    """Against the same gradient in long double, at points as far as the bound is for."""
    wide = np.longdouble
    if np.finfo(wide).eps > 1e-18:
        pytest.skip("no longer numbers here")
    of = rows(loss, "sum")._capped(CAP)
    rng = np.random.default_rng(7)
    for pull in (0.01, 1.0):
        linear = rng.normal(size=(2, of.dim))
        public = terms(of, linear, pull)
        direction = rng.normal(size=(2, of.dim))
        w = 2 * direction / np.linalg.norm(direction, axis=1, keepdims=True) * public.first / pull
        computed = of.gradient(w) + linear + pull * w
        for i in range(2):
            X, y = of.X[of.offsets[i] : of.offsets[i + 1]].astype(wide), of.y[of.offsets[i] : of.offsets[i + 1]]
            margin = X @ w[i].astype(wide).reshape(loss.outputs, -1).T
            slope = loss.slope(margin if loss.outputs > 1 else margin[:, 0], y).reshape(len(y), -1)
            exact = (slope.T @ X).ravel() + linear[i] + wide(pull) * w[i]
            assert np.linalg.norm((computed[i] - exact).astype(float)) <= public.rounding[i, 0]


def door(privacy: Proven, federation: Any = None) -> Any:
    algorithm = PVP(rho=0.3)
    parts = (algorithm, federation or small(), goal(), privacy, Everyone(), 3, Streams(0, None), None, "numpy")
    place = assemble(*parts)
    return place.site(np.arange(6), np.ones(6, dtype=bool), 1).f, place


def test_noise_is_for_two_minimisers_and_for_what_solvers_leave() -> None:
    oracle, place = door(Proven(1.0, 1e-5, 0.5))
    made: list[Any] = []
    place.door.intercept = lambda answer, exact, scale, kind: (made.append((exact, scale)), answer)[1]
    oracle.argmin(np.zeros((1, 4)), 0.3, ridge=0.05)
    exact, scale = made[0]
    sensitivity = scale / place.door.events[0].noise_multiplier
    np.testing.assert_allclose(sensitivity, 2 * 0.5 / small().sizes[:, None] / 0.35, rtol=1e-7)
    assert (sensitivity >= (1.0 / small().sizes[:, None] + 2 * ARGMIN_TOL) / 0.35).all()
    assert (
        certificate(place.exact, exact, np.zeros((1, 4)), 0.3, ridge=0.05, row_cap=0.5 * (1 - 2.0**-50)) <= 1e-9
    ).all()


def test_no_solver_that_fails_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rows do to it: a failure that depends on them would tell something of them."""
    answers = []
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(subproblem, "minimise", lambda *_: 1 / 0)
            monkeypatch.setattr(argmin, "MOST_PASSES", 0)
        oracle, place = door(Proven(1e9, 1e-5, 1.0))
        place.door.intercept = lambda answer, exact, *_: (answers.append(exact), answer)[1]
        oracle.argmin(np.zeros((1, 4)), 0.3, linear=np.ones((6, 4)))
        assert place.ledger.epsilons().all()
    np.testing.assert_allclose(*answers, atol=1e-6)


@pytest.mark.parametrize(
    ("rho", "linear", "clip"),
    [
        (0.0, 0.0, 1.0),
        (1e-14, 0.0, 1.0),  # too badly conditioned
        (0.3, 1e12, 1.0),  # rounding of such numbers is not small beside one record
        (0.3, np.inf, 1.0),
        (0.3, 0.0, 1e9),  # rows as long as that: badly conditioned again
    ],
)
def test_what_public_numbers_do_not_prove_is_refused_before_the_charge(rho: float, linear: float, clip: float) -> None:
    oracle, place = door(Proven(1.0, 1e-5, clip))
    with pytest.raises(InvalidInput, match="Proven: an arg-min needs"):
        oracle.argmin(np.zeros((1, 4)), rho, linear=np.full((1, 4), linear))
    assert not place.ledger.epsilons().any()


def test_a_loop_that_is_too_long_for_the_proof_is_not_taken() -> None:
    of, tol = rows(Logistic(), "sum"), np.full((2, 1), 1e-3)
    assert terms(of, np.ones((2, 4)), 1e-3).certain(tol).all()
    assert not terms(of, np.ones((2, 4)), 1e-7).certain(tol).any()  # kappa = 2.5e7 and more, some 1e9 steps
