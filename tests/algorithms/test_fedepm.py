"""FedEPM against brute force, its own arg-mins, a plain re-reading of Algorithm 2, and the optimum."""

from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import sottovoce as sv
from sottovoce.algorithms import FedEPM
from sottovoce.algorithms.fedepm import Client, Down, elastic_mean
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.participation import Covering, Everyone, KOfN
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.local import LocalClients
from sottovoce.privacy import accounting
from sottovoce.problems.federation import Federation
from sottovoce.problems.penalties import Ball, Box, NoPenalty, Penalty
from tests.algorithms.test_replay import UNITS, messages
from tests.cases import goal, small
from tests.local import assemble
from tests.reference import optimum
from tests.replay import replays

EXACT: dict[str, Any] = {"eta": 0.2, "lam": 0.0, "mu": 0.8, "c": 0.0, "alpha": 1.0, "k0": 4}
STEP = (1 - (0.8 / 1.0) ** 4) / 0.2  # what k0 steps of EXACT along one gradient add up to
OFF: dict[str, Any] = {"privacy": sv.NoPrivacy(), "engine": "numpy", "seed": 0}


def exact(**changes: Any) -> FedEPM:
    return FedEPM(**(EXACT | changes))


def fit(algorithm: FedEPM, federation: Federation | None = None, objective: Any = None, **options: Any) -> sv.Result:
    options = OFF | {"record_every": options["rounds"]} | options
    return sv.train(algorithm, federation or small(), objective or goal(), **options)


# ---------------------------------------------------------------------------------------------------------------- ENS


def bisection(
    a: np.ndarray, lam: np.ndarray | float, eta: float, keep: np.ndarray, penalty: Penalty | None = None
) -> np.ndarray:
    """The minimiser of Σ φ(a_i − w) + m r(w), by halving intervals on the sign of a subgradient."""
    m = keep.sum(axis=-2, keepdims=True)
    low = np.where(keep, a, np.inf).min(axis=-2, keepdims=True) - 1.0
    high = np.where(keep, a, -np.inf).max(axis=-2, keepdims=True) + 1.0
    low, high = np.minimum(low, -1.0), np.maximum(high, 1.0)
    if isinstance(penalty, Box):
        low, high, penalty = np.full_like(low, penalty.low), np.full_like(high, penalty.high), None
    for _ in range(70):
        w = (low + high) / 2
        slope = np.where(keep, lam * np.sign(w - a) + eta * (w - a), 0.0).sum(axis=-2, keepdims=True)
        if penalty is not None:
            slope = slope + m * penalty.subgradient(w)
        low, high = np.where(slope <= 0, w, low), np.where(slope >= 0, w, high)
    return (low + high) / 2


@pytest.mark.parametrize("penalty", [None, sv.L1(0.3), sv.ElasticNet(0.2, 0.4), Box(-0.4, 0.7)], ids=repr)
@pytest.mark.parametrize("m", [1, 2, 3, 5, 10])
def test_ens_is_the_minimiser(m: int, penalty: Penalty | None) -> None:
    """In each of 20 cases 2000 numbers, half of them with ties (also at 0, where an l1 norm has its corner)."""
    rng = np.random.default_rng(m)
    a = rng.normal(size=(2000, m, 1))
    a[::2] = np.rint(2 * a[::2]) / 2
    keep = rng.random((2000, m, 1)) < 0.7
    keep[:, 0] |= ~keep.any(axis=-2)
    for lam, eta, among in ((0.0, 1.0, None), (0.5, 1.0, None), (0.3, 2.0, keep), (30.0, 0.5, None), (0.25, 0.5, keep)):
        everyone = np.ones_like(keep) if among is None else among
        # Rows left out must not count, whatever stands in them.
        mean = elastic_mean(a if among is None else np.where(keep, a, np.nan), lam, eta, penalty, among)
        np.testing.assert_allclose(mean, bisection(a, lam, eta, everyone, penalty), rtol=0, atol=1e-12)


def test_ens_special_cases() -> None:
    a = np.random.default_rng(0).normal(size=(3, 7, 4))
    np.testing.assert_allclose(elastic_mean(a, 0.0, 0.3), a.mean(axis=-2, keepdims=True), atol=1e-15)
    assert np.array_equal(elastic_mean(a, 1e6, 0.3), np.median(a, axis=-2, keepdims=True))  # an odd number: one median
    assert np.array_equal(elastic_mean(a[:, :1], 0.7, 0.3), a[:, :1])
    assert np.array_equal(elastic_mean(a, 0.2, 0.3)[1], elastic_mean(a[1], 0.2, 0.3))


# ------------------------------------------------------------------------------------------------------ the local step


def one_round(algorithm: FedEPM, states: np.ndarray, w: np.ndarray, k: int, objective: Any = None) -> np.ndarray:
    """Every client's next model from any state, any broadcast and in any round, without noise."""
    place = assemble(algorithm, small(), objective or goal(), sv.NoPrivacy(), Everyone(), 9, Streams(0), None, "numpy")
    place.start(algorithm)
    place._states = Client(states)
    exchange = place.exchange(algorithm, Down(w), np.ones(6, dtype=bool), k)
    assert exchange is not None
    return exchange.up.z


def gradient(w: np.ndarray, ridge: float = 0.05) -> np.ndarray:
    """Of every client's logistic loss, ridge included, written out."""
    federation = small()
    rows = [(federation.X[i:j], federation.y[i:j]) for i, j in pairwise(federation.offsets)]
    return np.stack([X.T @ (-y / (1 + np.exp(y * (X @ w)))) / len(y) for X, y in rows]) + ridge * w


@pytest.mark.parametrize("variant", ["G", "P"])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_the_arg_min_it_claims_to_be(seed: int, variant: Any) -> None:
    rng = np.random.default_rng(seed)
    states, w = rng.normal(size=(6, 4)), rng.normal(size=(1, 4))
    lam, eta, alpha, c, k = 0.2, 0.3, 1.1, 0.4, 4
    uploads = one_round(FedEPM(eta, lam, 0.8, c, alpha, k0=1, variant=variant), states, w, k)
    g = gradient(w[0])
    mu = 0.8 * (1 + c * np.square(states - w).sum(axis=-1)) * alpha**k
    for i, j in np.ndindex(6, 4):

        def surrogate(x: float, i: int = i, j: int = j) -> float:  # (23), one coordinate
            away = x - w[0, j]
            return g[i, j] * away + mu[i] / 2 * (x - states[i, j]) ** 2 + lam * abs(away) + eta / 2 * away**2

        best: Any = minimize_scalar(surrogate, bounds=(-9, 9), method="bounded", options={"xatol": 1e-10})
        assert surrogate(float(uploads[i, j])) <= best.fun + 1e-15
        assert uploads[i, j] == pytest.approx(best.x, abs=1e-6)


@pytest.mark.parametrize("variant", ["G", "P"])
def test_local_steps_follow_one_gradient(variant: Any) -> None:
    rng = np.random.default_rng(5)
    states, w = rng.normal(size=(6, 4)), rng.normal(size=(1, 4))
    uploads = one_round(exact(variant=variant), states, w, 3)
    kept = 0.8**4  # (mu/(eta + mu))^k0
    np.testing.assert_allclose(uploads, w + kept * (states - w) - STEP * gradient(w[0]), atol=1e-14)


def plain_fedepm(algorithm: FedEPM, masks: list[np.ndarray]) -> np.ndarray:
    """Algorithm 2 read aloud: one client, one coordinate, one iteration after the other."""
    sizes, lam, eta, k0 = small().sizes, algorithm.threshold, algorithm.eta, algorithm.k0
    mu_0 = 0.05 if algorithm.mu is None else algorithm.mu
    clients, z, w, k = np.zeros((6, 4)), np.zeros((6, 4)), np.zeros(4), 0
    for mask in masks:
        g = gradient(w)
        for _ in range(k0):
            for i in np.flatnonzero(mask):
                mu = mu_0 * (1 + algorithm.c * sum((clients[i] - w) ** 2)) * algorithm.alpha ** (k + 1)
                mu = mu / sizes[i] if algorithm.by_size else mu
                for j in range(4):
                    t = mu * (clients[i, j] - w[j]) - g[i, j]
                    shrunk = t - lam if t > lam else t + lam if t < -lam else 0.0
                    clients[i, j] = w[j] + shrunk / (eta + mu)
            k += 1
        z[mask] = clients[mask]
        w = bisection(z, lam, eta, np.ones((6, 1), dtype=bool))[0]
    return w


@pytest.mark.parametrize("by_size", [False, True])
@pytest.mark.parametrize("participation", [Everyone(), Covering(2, 4)], ids=["everyone", "covering"])
def test_a_run_is_algorithm_2(by_size: bool, participation: Any) -> None:
    algorithm = FedEPM(eta=0.3, lam=0.04, mu=25.0 if by_size else 2.0, c=0.3, alpha=1.05, k0=3, by_size=by_size)
    masks = [mask for _, mask in zip(range(8), participation.masks(6, Streams(4)), strict=False)]
    result = fit(algorithm, rounds=8, participation=participation, seed=4)
    np.testing.assert_allclose(result.model, plain_fedepm(algorithm, masks), atol=1e-12)
    assert np.linalg.norm(result.model) > 0.1


# -------------------------------------------------------------------------------------------------------- the optimum


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("variant", ["G", "P"])
def test_the_optimum_is_reached_though_half_the_clients_are_silent(variant: Any, penalty: str) -> None:
    """With lam = 0 and alpha = 1, for unequal clients. Everyone in every round: a row of cases.py."""
    objective, rounds = goal(penalty=penalty), 600 if penalty == "l1" else 250
    result = fit(exact(variant=variant), objective=objective, rounds=rounds, participation=Covering(3, 4))
    np.testing.assert_allclose(result.model, optimum(small(), objective), atol=1e-10)


@pytest.mark.parametrize("penalty", [Box(-0.4, 0.3), sv.ElasticNet(0.01, 0.02), Ball(0.5), sv.L1(0.02)], ids=repr)
@pytest.mark.parametrize("lam", [0.0, 0.002])
def test_penalties_that_the_server_handles(penalty: Penalty, lam: float) -> None:
    """The result is a fixed point of proximal gradient descent, but for the 2 lam that a tied client may be off."""
    algorithm, objective = exact(lam=lam), goal(penalty=penalty)
    if lam > 0 and isinstance(penalty, Ball):
        with pytest.raises(InvalidInput, match="lam=0"):
            fit(algorithm, objective=objective, rounds=1)
        return
    w = fit(algorithm, objective=objective, rounds=400).model
    atol = 1e-10 + 2 * lam
    np.testing.assert_allclose(penalty.prox(w - gradient(w, ridge=0.0).mean(axis=0), 1.0), w, atol=atol)
    assert np.linalg.norm(w) > 0.3


def test_the_optimum_of_summed_losses() -> None:
    """There f_i is steeper the more records a client has, and so is mu if it is left out: a long way round, if any."""
    objective = goal(scale="sum")
    model = fit(FedEPM(eta=2.0, lam=0.0, c=0.0, alpha=1.0, k0=4), objective=objective, rounds=600).model
    np.testing.assert_allclose(model, optimum(small(), objective), atol=1e-10)


@pytest.mark.parametrize("lam_over_eta", [0.05, 0.5])
def test_the_papers_penalty_comes_near(lam_over_eta: float) -> None:
    """lam = eta/2 with eta of section VII, and with the default one."""
    best = optimum(small(), goal())
    for eta in (FedEPM.as_in_paper(6, 1.0).eta, FedEPM.eta):
        model = fit(FedEPM(eta, lam_over_eta * eta, alpha=1.0, c=0.0), rounds=200).model
        assert np.linalg.norm(model - best) < 1e-2 * np.linalg.norm(best)


def test_a_large_penalty_never_leaves_the_start() -> None:
    """Errata: (11) makes the minimisers of (7) right, and the iteration useless."""
    lam = float(np.abs(gradient(np.zeros(4))).max())
    assert np.array_equal(fit(exact(lam=lam), rounds=30).model, np.zeros(4))
    assert np.any(fit(exact(lam=0.1 * lam), rounds=30).model)


def test_only_messages_of_all_clients_give_the_optimum() -> None:
    """The reason for (19): a client's model stays away from the mean by −∇f_i/eta, and only all of that is 0."""
    errors = {}
    for over in ("all", "uploaded"):
        model = fit(exact(over=over), rounds=300, participation=KOfN(3)).model
        errors[over] = np.linalg.norm(model - optimum(small(), goal()))
    assert errors["all"] < 1e-10
    assert errors["uploaded"] > 1e-2


def test_constants_of_the_paper() -> None:
    algorithm = FedEPM.as_in_paper(50, 0.5, k0=8)
    assert algorithm.eta == pytest.approx(2 * 0.6e-5)
    assert algorithm.threshold == pytest.approx(0.6e-5)
    assert (algorithm.mu, algorithm.c, algorithm.alpha, algorithm.k0) == (0.05, 1e-8, 1.001, 8)
    assert algorithm.by_size


def test_growth_ends_before_numbers_do() -> None:
    algorithm = exact(alpha=1.5)
    states = np.random.default_rng(0).normal(size=(6, 4))
    np.testing.assert_allclose(one_round(algorithm, states, np.zeros((1, 4)), 10**6), states, rtol=1e-12)


# ------------------------------------------------------------------------------------------------------------ privacy


def first_round(algorithm: FedEPM, privacy: Any, runs: int = 500) -> Checkpoint:
    kept: list[Checkpoint] = []
    fit(algorithm, rounds=1, privacy=privacy, runs=runs, seed=1, after_round=kept.append)
    return kept[0]


def deviation(z: np.ndarray) -> np.ndarray:
    """Standard deviation over the runs, pooled over coordinates: of 2000 numbers, 2.5 % off at most for Laplace."""
    return np.sqrt(z.var(axis=0).mean(axis=-1))


@pytest.mark.parametrize("equation", [27, 39])
@pytest.mark.parametrize("by_size", [False, True])
def test_published_noise_has_the_stated_deviation(equation: Any, by_size: bool) -> None:
    epsilon, alpha, k0, mu_0, sizes = 0.4, 1.1, 3, 0.7, small().sizes
    algorithm = FedEPM(0.3, 0.01, mu_0, c=0.0, alpha=alpha, k0=k0, by_size=by_size, noise=equation)
    after = first_round(algorithm, sv.Published(epsilon))
    mu = mu_0 * alpha**k0  # never divided by the number of records
    size = 2 * np.abs(gradient(np.zeros(4))).sum(axis=-1) if equation == 39 else 2 * sqrt(4) / sizes
    np.testing.assert_allclose(deviation(after.server.z), sqrt(2) * size / (epsilon * mu), rtol=0.1)
    # As in the paper, what a client keeps has no noise: that is what its proof overlooks.
    kept = after.clients["client.w"]
    assert np.ptp(kept, axis=0).max() == 0
    np.testing.assert_allclose(np.median(after.server.z, axis=0), kept[0], atol=0.3 * np.max(size / mu / epsilon))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("lam", [0.0, 0.01])
def test_proven_noise(mechanism: Any, lam: float) -> None:
    """Both variants: of a change of the gradient, STEP times as much arrives at the upload (lam = 0)."""
    delta = 0.0 if mechanism == "laplace" else 1e-3
    privacy = sv.Proven(epsilon=2.0, delta=delta, clip=0.7, mechanism=mechanism)
    unit = 1.0 if mechanism == "gaussian" else sqrt(2)
    noise = unit * accounting.calibrate(2.0, delta, 1, mechanism=mechanism) * 2 * 0.7 / small().sizes * STEP
    for variant in ("G", "P"):
        after = first_round(exact(lam=lam, variant=variant), privacy)
        assert np.array_equal(after.clients["client.w"], after.server.z)  # nothing is hidden
        # Variant P adds its noise after the soft threshold, G before it, where it shrinks a little.
        measured, slack = deviation(after.server.z), 0.1 if lam == 0 or variant == "P" else 0.2
        np.testing.assert_allclose(measured, noise, rtol=slack)


def test_variant_p_takes_its_mu_from_what_was_released() -> None:
    """In the second round |w_i − w| is no longer 0: the sensitivity is that of the mu frozen at its start."""
    algorithm = exact(c=0.5, alpha=1.2, variant="P")
    privacy = sv.Proven(epsilon=50.0, delta=1e-3, clip=0.7)
    place = assemble(algorithm, small(), goal(), privacy, Everyone(), 2, Streams(3, runs=800), None, "numpy")
    place.start(algorithm)
    rng = np.random.default_rng(0)
    states, w = 0.5 * rng.normal(size=(6, 4)), 0.5 * rng.normal(size=(1, 4))
    place._states = Client(np.broadcast_to(states, (800, 6, 4)).copy())
    exchange = place.exchange(algorithm, Down(np.broadcast_to(w, (800, 1, 4))), np.ones((800, 6), dtype=bool), 2)
    assert exchange is not None
    one = accounting.calibrate(50.0, 1e-3, 2) * 2 * 0.7 / small().sizes
    change, distance = 0.0, np.square(states - w).sum(axis=-1)
    for step in (5, 6, 7, 8):
        mu = 0.8 * (1 + 0.5 * distance) * 1.2**step
        change = (mu * change + one) / (0.2 + mu)
    np.testing.assert_allclose(deviation(exchange.up.z), change, rtol=0.08)


@pytest.mark.parametrize(
    "unit", [unit for unit, mode in UNITS.items() if isinstance(mode, sv.Proven) and unit != "secure" and not mode.sums]
)
def test_replay_holds_for_variant_p(unit: str) -> None:
    algorithm = FedEPM(eta=0.2, mu=0.8, c=0.1, variant="P")
    a, b = small(seed=3), small(seed=4)
    assert replays(lambda federation, tape: messages(algorithm, federation, UNITS[unit], tape), a, b)


def test_replay_holds_with_the_default_constants() -> None:
    a, b = small(seed=3), small(seed=4)
    assert replays(lambda federation, tape: messages(FedEPM(c=0.1), federation, UNITS["laplace"], tape), a, b)


@pytest.mark.parametrize("privacy", [sv.NoPrivacy(), sv.Published(0.5), sv.Proven(9.0, 1e-3, 1.0)])
def test_a_run_in_a_stack_equals_the_run_alone(privacy: Any) -> None:
    """As in algorithms/test_contract.py, with lam, c and alpha at work."""
    options: dict[str, Any] = {"rounds": 7, "privacy": privacy, "participation": KOfN(2), "seed": 5}
    alone, stacked = fit(FedEPM(c=0.1), **options), fit(FedEPM(c=0.1), runs=3, **options)
    assert np.array_equal(stacked.model[0], alone.model)
    assert not np.array_equal(stacked.model[0], stacked.model[1])


def test_refusals() -> None:
    with pytest.raises(NoGuarantee, match="variant='G'"):
        fit(FedEPM(variant="P"), rounds=1, privacy=sv.Published(1.0))
    federation = small()
    unbounded = Federation.from_arrays(federation.X, federation.y, np.repeat(np.arange(6), federation.sizes))
    with pytest.raises(InvalidInput, match="give mu"):
        fit(FedEPM(), unbounded, rounds=1, privacy=sv.Proven(1.0, 1e-3, 1.0))
    assert fit(FedEPM(mu=1.0), unbounded, rounds=1, privacy=sv.Proven(1.0, 1e-3, 1.0)).rounds == 1
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"by_size": True}, "needs mu"),
        ({"eta": 0.0}, "eta"),
        ({"lam": -1.0}, "lam"),
        ({"alpha": 0.9}, "alpha"),
        ({"noise": 28}, "noise"),
        ({"over": "some"}, "over"),
        ({"variant": "Q"}, "variant"),
    ]
    for bad, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            FedEPM(**bad)


# ----------------------------------------------------------------------------------------------------------- stopping


def first_settled(kept: list[Checkpoint], tolerance: float) -> np.ndarray:
    """For each run the first round after which the last four models are alike."""
    models = np.stack([checkpoint.server.w.reshape(-1, 4) for checkpoint in kept])
    moved = np.stack([np.linalg.norm(models[3:] - models[3 - back : -back], axis=-1) for back in (1, 2, 3)]).max(axis=0)
    settled = moved < tolerance * np.linalg.norm(models[3:], axis=-1)
    return np.where(settled.any(axis=0), 4 + settled.argmax(axis=0), 10**6)


def test_stops_when_models_settle() -> None:
    kept: list[Checkpoint] = []
    algorithm = exact(tolerance=1e-6)
    result = fit(algorithm, rounds=400, record_every=50, after_round=kept.append)
    assert 10 < result.rounds < 200
    assert first_settled(kept, 1e-6) == [result.rounds]
    assert result.stopped.startswith(f"after round {result.rounds}: ")
    assert result.history["round"][-1] == result.rounds  # recorded, though it is not a multiple of 50
    for checkpoint in (kept[-1], kept[-5]):
        resumed = fit(algorithm, rounds=400, record_every=50, resume=checkpoint)
        assert (resumed.rounds, resumed.stopped) == (result.rounds, result.stopped)
        assert np.array_equal(resumed.model, result.model)
    assert fit(exact(), rounds=200).stopped == ""


def test_runs_stop_together() -> None:
    kept: list[Checkpoint] = []
    result = fit(exact(tolerance=0.02), rounds=100, participation=KOfN(4), runs=4, after_round=kept.append)
    settled = first_settled(kept, 0.02)
    assert settled.max() == result.rounds < 100
    assert settled.min() < result.rounds


def test_nothing_but_the_servers_state_decides_when_to_stop() -> None:
    """In a private run the rule reads noisy models: the same whatever the private rows measured."""
    options: dict[str, Any] = {"rounds": 60, "privacy": sv.Proven(3e3, 1e-3, 1.0), "seed": 2}
    measured = fit(exact(tolerance=0.1), **options)
    unmeasured = fit(exact(tolerance=0.1), measure_training=False, **options)
    assert measured.stopped
    assert measured.rounds == unmeasured.rounds < 60


def test_simulator_is_asked_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """k0 local steps, one pass over the data."""
    asked = []
    plain = LocalClients.start

    def start(self: LocalClients, algorithm: Any) -> None:
        gradient_of = self.exact.gradient
        self.exact.gradient = lambda *given: asked.append(1) or gradient_of(*given)
        plain(self, algorithm)

    monkeypatch.setattr(LocalClients, "start", start)
    for variant in ("G", "P"):
        asked.clear()
        fit(FedEPM(k0=7, variant=variant), rounds=5)
        assert len(asked) == 5


def test_smooth_and_no_penalty_stay_out_of_the_server_step() -> None:
    """The ridge is part of f_i, as in section VII: it enters the clients' gradients and nothing else."""
    rng = np.random.default_rng(2)
    states, w = rng.normal(size=(6, 4)), rng.normal(size=(1, 4))
    with_ridge = one_round(exact(), states, w, 1)
    without = one_round(exact(), states, w, 1, goal(penalty=NoPenalty()))
    np.testing.assert_allclose(with_ridge - without, np.broadcast_to(-STEP * 0.05 * w, (6, 4)), atol=1e-14)
