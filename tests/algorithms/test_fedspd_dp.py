"""FedSPD-DP against the arg-mins it claims to be, the paper's numbers, and optima found elsewhere."""

from dataclasses import replace
from math import log, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import sottovoce as sv
from sottovoce.algorithms import FedSPDDP
from sottovoce.algorithms.fedspd_dp import Client, Down, Server, Up
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Claim, Hub
from sottovoce.core.participation import Bernoulli
from sottovoce.core.random.streams import Draw, Streams
from sottovoce.privacy import accounting
from sottovoce.privacy import local_steps as local_runs
from sottovoce.problems.penalties import Box, NoPenalty, Penalty
from tests.algorithms.test_replay import UNITS, messages
from tests.cases import goal, small
from tests.reference import optimum
from tests.replay import replays

PENALTIES = (sv.L1(0.3), sv.L2(0.7), sv.ElasticNet(0.2, 0.5), Box(-0.4, 0.3), NoPenalty())
N, DIM = 5, 3


def site(k: int = 1, m: int = 326, dim: int = 162, claim: Claim | None = None, **more: Any) -> Any:
    """A client of the paper's experiment: logistic loss on normalised rows, so G = 1."""
    oracle = {"gradient_bound": 1.0, "size": np.array([[float(m)]]), "weight": np.array([[1 / m]]), "dim": dim}
    return SimpleNamespace(f=SimpleNamespace(**(oracle | {"noise_std": np.zeros((1, 1))} | more)), k=k, claim=claim)


class Field:
    """A gradient per client that is no constant, and a record of where it was asked."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.pull, self.asked = rng.normal(size=(N, DIM)), []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.asked.append(x)
        return np.tanh(x) + self.pull


def on_random_state(algorithm: FedSPDDP, penalty: Penalty, seed: int) -> Any:
    """One client round from a random state: the field, state and broadcast before, state and message after."""
    rng = np.random.default_rng(seed)
    field = Field(rng)
    state, down = Client(*rng.normal(size=(2, N, DIM))), Down(rng.normal(size=(1, DIM)))
    oracle = SimpleNamespace(
        grad=field, prox_steps=lambda x, spec: local_runs.take_prox_steps(lambda at, j: field(at), x, spec)
    )
    place = SimpleNamespace(
        f=oracle, penalty=penalty, k=1, claim=None, release=lambda u, noise=None, centre=None: u.copy()
    )
    after, up = algorithm.client(state, down, place)  # type: ignore[arg-type]
    return field, state, down, after, up


def lagrangian_argmin(
    x: np.ndarray, gradient: np.ndarray, lam: np.ndarray, x_0: np.ndarray, rho: float, gamma: float, penalty: Penalty
) -> np.ndarray:
    """The minimiser of (8) by SciPy. A vector is u − v with u, v >= 0, so that the l1 norm is smooth."""

    def value(z: np.ndarray) -> tuple[float, np.ndarray]:
        w = z[:DIM] - z[DIM:]
        smooth = (
            gradient @ (w - x) + lam @ (x_0 - w) + gamma / 2 * np.sum((w - x) ** 2) + rho / 2 * np.sum((w - x_0) ** 2)
        )
        slope = gradient - lam + gamma * (w - x) + rho * (w - x_0) + l2 * w
        return smooth + l1 * z.sum() + l2 / 2 * w @ w, np.concatenate([slope, -slope]) + l1

    l1 = getattr(penalty, "l1", penalty.lam if isinstance(penalty, sv.L1) else 0.0)
    l2 = getattr(penalty, "l2", penalty.lam if isinstance(penalty, sv.L2) else 0.0)
    high, low = (penalty.high, -penalty.low) if isinstance(penalty, Box) else (None, None)
    bounds = [(0, high)] * DIM + [(0, low)] * DIM
    start = np.concatenate([np.maximum(x_0, 0), np.maximum(-x_0, 0)])
    minimum = minimize(value, start, jac=True, bounds=bounds, options={"ftol": 1e-16, "gtol": 1e-11, "maxiter": 5000})
    return minimum.x[:DIM] - minimum.x[DIM:]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: penalty.name)
@pytest.mark.parametrize("variant", ["G", "P"])
def test_every_inner_step_is_the_argmin_it_claims_to_be(variant: Any, penalty: Penalty) -> None:
    rho, gamma, steps = 0.8, 1.7, 3
    algorithm = FedSPDDP(rho=rho, gamma=gamma, local_steps=steps, variant=variant)
    field, state, down, after, up = on_random_state(algorithm, penalty, seed=1)
    iterates = field.asked  # x^{t,0}, .., x^{t,Q-1}; the last one is kept, or follows from the mean
    assert len(iterates) == steps
    assert np.array_equal(iterates[0], state.x)  # line 9
    mean = (up.y + state.lam / rho + down.x) / 2  # (14) with line 16 put in
    last = after.x if variant == "G" else steps * mean - sum(iterates[1:])
    for before, new in zip(iterates, [*iterates[1:], last], strict=True):
        gradient = np.tanh(before) + field.pull
        for i in range(N):
            best = lagrangian_argmin(before[i], gradient[i], state.lam[i], down.x[0], rho, gamma, penalty)
            np.testing.assert_allclose(new[i], best, atol=3e-6)
    np.testing.assert_allclose(mean, (sum(iterates[1:]) + last) / steps, atol=1e-12)  # (13b)
    np.testing.assert_allclose(after.lam, state.lam - rho * (mean - down.x), atol=1e-12)  # line 16
    np.testing.assert_allclose(up.y, mean - after.lam / rho, atol=1e-12)  # (14)


def test_next_round_starts_from_the_last_iterate_or_from_the_release() -> None:
    field, _, _, after, up = on_random_state(FedSPDDP(rho=0.8, gamma=1.7, local_steps=3), sv.L1(0.3), seed=2)
    released = on_random_state(FedSPDDP(rho=0.8, gamma=1.7, local_steps=3, variant="P"), sv.L1(0.3), seed=2)
    np.testing.assert_allclose(up.y, released[4].y, atol=1e-13)  # the round itself is the same
    mean = (sum(field.asked[1:]) + after.x) / 3
    assert np.abs(after.x - mean).max() > 0.01  # the paper goes on from x^{t,Q}, not from the mean
    np.testing.assert_allclose(released[3].x, mean, atol=1e-14)


def test_server_step_is_the_argmin_over_everyones_last_message() -> None:
    rng, rho = np.random.default_rng(0), 0.8
    x, lam = rng.normal(size=(2, N, DIM))
    y = x - lam / rho
    answered = np.array([True, False, True, False, False])[:, None]
    hub = Hub(N, NoPenalty(), Draw(Streams(0), np.array([0]), 1), 1, answered, np.zeros((1, DIM)))
    old, new = Server(np.zeros((1, DIM)), np.where(answered, 9.0, y)), np.where(answered, y, np.nan)
    algorithm = FedSPDDP(rho=rho)
    server = algorithm.server(old, Up(new), hub)
    best = minimize(lambda x_0: (lam * (x_0 - x)).sum() + rho / 2 * ((x - x_0) ** 2).sum(), np.zeros(DIM)).x  # (6a)
    np.testing.assert_allclose(algorithm.model(server)[0], best, atol=1e-5)
    assert np.array_equal(algorithm.broadcast(server, hub).x, algorithm.model(server))


def reached(algorithm: FedSPDDP, objective: Any, data: Any, rounds: int, **options: Any) -> np.ndarray:
    return sv.train(
        algorithm, data, objective, rounds=rounds, privacy=sv.NoPrivacy(), engine="numpy", record_every=rounds, seed=0,
        **options,
    ).model  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "steps", "drawn", "loss", "penalty", "rounds"),
    [
        ("G", 1, 6, "logistic", "l1", 350),
        ("G", 4, 6, "squared", "l1", 150),
        ("G", 4, 3, "logistic", "l2", 120),
        ("G", 4, 3, "logistic", "l1", 350),
        ("G", 4, 3, "squared", "l1", 150),
        ("P", 4, 3, "logistic", "l2", 120),
        ("P", 4, 3, "logistic", "l1", 350),
        ("P", 4, 3, "squared", "l1", 150),
    ],
)
def test_noise_off_reaches_the_optimum_exactly(
    variant: Any, steps: int, drawn: int, loss: str, penalty: str, rounds: int
) -> None:
    """Unequal clients, everyone or 3 of 6."""
    algorithm = FedSPDDP(rho=0.1, gamma=0.55, local_steps=steps, variant=variant)
    data, objective = small(loss), goal(loss, penalty)
    rounds *= 2 if steps == 1 or drawn == 3 else 1
    model = reached(algorithm, objective, data, rounds, participation=sv.KOfN(drawn))
    np.testing.assert_allclose(model, optimum(data, objective), atol=1e-10, rtol=0)


@pytest.mark.parametrize("penalty", [sv.ElasticNet(0.02, 0.1), Box(-0.2, 0.1), Box(0.1, 0.4)], ids=repr)
def test_other_penalties_reach_their_optimum(penalty: Penalty) -> None:
    """Certified by the optimality condition w = prox(w − gradient), written out for the squared loss."""
    data, objective = small("squared"), goal("squared", penalty)
    w = reached(FedSPDDP(rho=0.2, gamma=0.55, local_steps=3), objective, data, 200)
    weight = np.repeat(1 / (data.n * data.sizes), data.sizes)
    gradient = data.X.T @ (weight * (data.X @ w - data.y))
    np.testing.assert_allclose(penalty.prox(w - gradient, 1.0), w, atol=1e-10, rtol=0)
    assert np.isfinite(penalty.value(w))


def test_a_model_keeps_to_its_constraint_from_the_first_round() -> None:
    """x_0 itself does not: the mean of x_i − λ_i/ρ may lie outside."""
    kept: list[Any] = []
    reached(FedSPDDP(rho=0.2, gamma=0.55), goal(penalty=Box(0.1, 0.4)), small(), 1, after_round=kept.append)
    x_0 = kept[0].server.y.mean(axis=0)
    assert (x_0 > 0.4).any() or (x_0 < 0.1).any()
    assert np.array_equal(kept[0].server.x[0], np.clip(x_0, 0.1, 0.4))


def test_the_growing_gamma_nears_the_optimum_slowly() -> None:
    algorithm, objective, data = FedSPDDP(rho=0.3, local_steps=2, d_x=8.0), goal(), small()
    best = optimum(data, objective)
    errors = [np.linalg.norm(reached(algorithm, objective, data, rounds) - best) for rounds in (30, 500)]
    assert errors[1] < 0.02 * np.linalg.norm(best)
    assert errors[1] < errors[0] / 3


def test_scale_sum_weighs_clients_by_their_rows() -> None:
    data, objective = small("squared"), goal("squared", "l2", scale="sum")
    model = reached(FedSPDDP(rho=4.0, gamma=14.0, local_steps=3), objective, data, 400)
    np.testing.assert_allclose(model, optimum(data, objective), atol=1e-10, rtol=0)


# ------------------------------------------------------------------------------------------------ the paper's numbers


@pytest.mark.parametrize("t", [1, 4, 100])
@pytest.mark.parametrize(("steps", "batch", "p", "epsilon"), [(5, 10, 0.2, 1.0), (20, 10, 0.1, 0.3), (2, 1, 1.0, 0.1)])
def test_gamma_is_the_papers(steps: int, batch: int, p: float, epsilon: float, t: int) -> None:
    algorithm, delta = FedSPDDP(rho=20.0, local_steps=steps, batch=batch, client_rate=p), 1e-4
    printed = 2 * sqrt(
        steps * p * (3 + 2 / batch + 51840 * log(1.25 / delta) / ((steps - 1) ** 2 * epsilon**2))
    ) * sqrt(t)  # (35)  # fmt: skip
    gamma = algorithm.inverse_step(site(t, claim=Claim(epsilon, delta)))
    assert np.asarray(gamma).item() == pytest.approx(printed, rel=1e-12)
    sigma = 4 * steps * sqrt(2 * log(1.25 / delta)) / ((steps - 1) * epsilon * (20 + printed))  # (20)
    noise = algorithm.noise(site(t, claim=Claim(epsilon, delta)), gamma)
    assert noise is not None
    assert noise.kind == "gaussian"
    assert np.asarray(noise.scale).item() == pytest.approx(sigma, rel=1e-12)


def test_gamma_with_one_step_other_constants_and_no_noise() -> None:
    algorithm = FedSPDDP(rho=2.0, local_steps=1, batch=0.1, client_rate=0.5, d_x=3.0, d_lambda=2.0, phi=1.5)
    quiet = 0.7**2 + 2 * 4 + 2 * 1.5**2 / 33  # a tenth of 326 records, rounded
    noise = 16 * 2.0 * 10 * 0.7**2 * log(1.25 / 1e-3) / 0.5**2  # (29)
    here = {"k": 9, "dim": 10, "gradient_bound": 0.7}
    expected = {None: quiet, Claim(0.5, 1e-3): quiet + noise}
    for claim, spread in expected.items():
        gamma = np.asarray(algorithm.inverse_step(site(claim=claim, **here))).item()
        assert gamma == pytest.approx(2 * sqrt(1 * 0.5 * spread * 9) / 3.0, rel=1e-12)
    answers = np.asarray(algorithm.inverse_step(site(noise_std=np.array([[0.3]]), **here))).item()
    assert answers == pytest.approx(2 * sqrt(0.5 * (quiet + 2 * 10 * 0.3**2) * 9) / 3.0, rel=1e-12)
    one_step = algorithm.noise(site(claim=Claim(0.5, 1e-3), **here), 5.0)
    assert one_step is not None
    assert np.asarray(one_step.scale).item() == pytest.approx(
        4 * 0.7 * sqrt(2 * log(1.25 / 1e-3)) / (0.5 * 7), rel=1e-12
    )
    summed = algorithm.noise(site(claim=Claim(0.5, 1e-3), weight=np.ones((1, 1)), **here), 5.0)
    assert summed is not None
    assert np.asarray(summed.scale / one_step.scale).item() == pytest.approx(326)


def test_condition_of_theorem_2_fails_in_the_papers_own_experiment() -> None:
    """ρ >= √γ: with the constants of section V and ε = 1 it holds in the first round only."""
    algorithm = FedSPDDP(rho=20.0, local_steps=5, batch=10, client_rate=0.2)
    first, second = (np.asarray(algorithm.inverse_step(site(t, claim=Claim(1.0, 1e-4)))).item() for t in (1, 2))
    assert sqrt(first) < 20 < sqrt(second)


def test_claims_of_a_run_are_the_papers() -> None:
    wor = FedSPDDP(local_steps=5, batch=10, client_rate=0.2)
    wr = replace(wor, replacement=True)
    q, with_replacement = 50 / 325, 1 - (1 - 1 / 325) ** 50  # (22): 32561 rows, 100 clients: the smallest has 325
    sizes = np.array([325, 326, 326])
    assert wor.data_rate(sizes) == pytest.approx(q)
    assert wr.data_rate(sizes) == pytest.approx(with_replacement)
    for algorithm, rate in ((wor, q), (wr, with_replacement)):
        total = 3.04 * rate * 0.1 * sqrt(0.2 * 100 / (1 - rate))  # (21)
        assert algorithm.claimed_total(0.1, 100, sizes) == pytest.approx(total)
        assert algorithm.epsilon_of_round(total, 100, sizes) == pytest.approx(0.1)  # (36)
    assert wr.claimed_total(1.0, 100, sizes) < wor.claimed_total(1.0, 100, sizes)  # Remark 2, as claimed
    assert replace(wor, batch=0.1).data_rate(100) == pytest.approx(0.5)
    with pytest.raises(InvalidInput, match="local_steps \\* batch must be <= m = 325"):
        replace(wor, batch=0).data_rate(sizes)


@pytest.mark.parametrize(
    ("changes", "participation", "breaks"),
    [
        ({"client_rate": 0.5}, sv.KOfN(3), ""),
        ({"client_rate": 0.5}, sv.Everyone(), "with a chance of 0.5 in it (client_rate), and of up to 1 here"),
        ({"client_rate": 0.25}, Bernoulli([0.2, 0.3, 0.2, 0.2, 0.1, 0.2]), "with a chance of 0.25 in it"),
        ({"client_rate": 0.5, "replacement": True}, sv.KOfN(3), "drawn with replacement, these were not"),
    ],
)
def test_a_run_is_told_which_claim_it_breaks(changes: Any, participation: Any, breaks: str) -> None:
    text = str(
        sv.train(
            FedSPDDP(local_steps=2, batch=0.1, **changes), small(), goal(), rounds=3, seed=1, engine="numpy",
            privacy=sv.Published(0.9, 1e-3, clip=1.0), participation=participation,
        ).guarantee
    )  # fmt: skip
    assert ("This run breaks what the claim assumes" in text) == bool(breaks)
    assert breaks in text


# -------------------------------------------------------------------------------------------------------------- noise


def first_uploads(algorithm: FedSPDDP, privacy: Any) -> np.ndarray:
    """Standard deviation over 500 runs of each client's first upload, pooled over its coordinates."""
    kept: list[Any] = []
    sv.train(algorithm, small(), goal(), rounds=1, privacy=privacy, runs=500, seed=1, engine="numpy",
             after_round=kept.append)  # fmt: skip
    return np.sqrt(kept[0].server.y.var(axis=0).mean(axis=-1))  # of 2000 numbers: a standard error of 1.6 %


@pytest.mark.parametrize("steps", [1, 4])
def test_published_noise_has_the_stated_deviation(steps: int) -> None:
    algorithm = FedSPDDP(rho=0.3, gamma=0.6, local_steps=steps)
    sigma = 4 * sqrt(2 * log(1.25 / 1e-3)) / (0.9 * (0.3 + 0.6)) * (1 if steps == 1 else steps / (steps - 1))  # (20)
    np.testing.assert_allclose(first_uploads(algorithm, sv.Published(0.9, 1e-3)), sigma, rtol=0.08)


def test_published_keeps_hidden_state_without_noise() -> None:
    """As in the paper, whose flaw it is: noise is on the message alone."""
    algorithm = FedSPDDP(rho=0.3, gamma=0.6, local_steps=2)
    states = []
    for privacy in (sv.NoPrivacy(), sv.Published(0.9, 1e-3)):
        kept: list[Any] = []
        sv.train(algorithm, small(), goal(), rounds=1, privacy=privacy, seed=1, engine="numpy",
                 after_round=kept.append)  # fmt: skip
        states.append(kept[0])
    assert np.array_equal(states[0].clients["client.x"], states[1].clients["client.x"])
    assert np.array_equal(states[0].clients["client.lam"], states[1].clients["client.lam"])
    assert not np.allclose(states[0].server.y, states[1].server.y)


def test_proven_noise_in_the_gradient_is_what_the_upload_carries() -> None:
    sizes, proven = small().sizes, sv.Proven(epsilon=2.0, delta=1e-3, clip=0.7)
    noise = accounting.calibrate(2.0, 1e-3, 1) * 2 * 0.7 / sizes
    algorithm = FedSPDDP(rho=0.3, gamma=0.6, local_steps=1)
    # y_1 = 2 x_1, and the prox of l2 with weight 0.05 divides by rho + gamma + 0.05 in all.
    np.testing.assert_allclose(first_uploads(algorithm, proven), 2 * noise / (0.3 + 0.6 + 0.05), rtol=0.08)


@pytest.mark.parametrize("steps", [1, 4])
def test_proven_noise_on_the_average_has_the_sensitivity_of_the_average(steps: int) -> None:
    """Dx = (2C/(m rho)) (1 − c(1−c^Q)/(Q(1−c))), c = gamma/(gamma+rho), for a record that is in every step."""
    rho, gamma, clip = 0.3, 0.6, 0.7
    c = gamma / (gamma + rho)
    change = 2 * clip / (small().sizes * rho) * (1 - c * (1 - c**steps) / (steps * (1 - c)))
    noise = accounting.calibrate(2.0, 1e-3, 1) * change
    algorithm = FedSPDDP(rho=rho, gamma=gamma, local_steps=steps, variant="P")
    measured = first_uploads(algorithm, sv.Proven(epsilon=2.0, delta=1e-3, clip=clip))
    np.testing.assert_allclose(measured, 2 * noise, rtol=0.08)


def test_state_of_variant_p_follows_from_what_was_sent() -> None:
    """x_i and λ_i rebuilt by someone who sees broadcasts and messages, and no data."""
    rho, kept = 0.3, []
    algorithm = FedSPDDP(rho=rho, gamma=0.6, local_steps=3, variant="P")
    sv.train(algorithm, small(), goal(), rounds=6, privacy=sv.Proven(5.0, 1e-3, clip=1.0), seed=1, engine="numpy",
             participation=sv.KOfN(3), after_round=kept.append)  # fmt: skip
    sent, x, lam = np.zeros((6, 4)), np.zeros((6, 4)), np.zeros((6, 4))
    for checkpoint in kept:
        x_0, y = sent.mean(axis=0), checkpoint.server.y
        fresh = (y != sent).any(axis=1)
        assert fresh.sum() == 3
        x[fresh] = (y + lam / rho + x_0)[fresh] / 2
        lam[fresh] -= rho * (x - x_0)[fresh]
        sent = y
        np.testing.assert_allclose(checkpoint.clients["client.x"], x, atol=1e-12)
        np.testing.assert_allclose(checkpoint.clients["client.lam"], lam, atol=1e-12)


@pytest.mark.parametrize(
    "unit", [unit for unit, mode in UNITS.items() if isinstance(mode, sv.Proven) and unit != "secure" and not mode.sums]
)
@pytest.mark.parametrize("batch", [0, 2])
def test_variant_p_replays(unit: str, batch: int) -> None:
    algorithm = FedSPDDP(rho=0.3, gamma=0.6, local_steps=3, batch=batch, variant="P")
    assert replays(lambda data, tape: messages(algorithm, data, UNITS[unit], tape), small(seed=3), small(seed=4))


@pytest.mark.parametrize("variant", ["G", "P"])
def test_batches_replay_and_keep_to_the_budget(variant: Any) -> None:
    algorithm = FedSPDDP(rho=0.3, gamma=None, local_steps=2, batch=2, client_rate=0.5, variant=variant)
    a, b = small(seed=3), small(seed=4)
    assert replays(lambda data, tape: messages(algorithm, data, UNITS["replace-one"], tape), a, b)
    privacy = sv.Proven(epsilon=3.0, delta=1e-3, clip=1.0)
    result = sv.train(algorithm, a, goal(), rounds=4, privacy=privacy, seed=1, engine="numpy")
    assert result.guarantee.epsilon is not None
    assert 2.9 < result.guarantee.epsilon <= 3.0
    assert result.rounds == 4


# ----------------------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_is_refused() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"rho": 0.0}, "rho must be > 0, got 0.0"),
        ({"gamma": -1.0}, "gamma must be > 0"),
        ({"local_steps": 0}, "local_steps must be a whole number >= 1"),
        ({"batch": -1}, "batch must be >= 0"),
        ({"client_rate": 1.5}, r"client_rate must lie in \(0, 1\], got 1.5"),
        ({"variant": "Q"}, "unknown variant 'Q'"),
    ]
    for fields, message in bad:
        with pytest.raises(InvalidInput, match=f"FedSPDDP: {message}"):
            FedSPDDP(**fields)
    quick: dict[str, Any] = {"rounds": 1, "engine": "numpy", "seed": 0}
    with pytest.raises(NoGuarantee, match="Published needs variant='G'"):
        sv.train(FedSPDDP(variant="P"), small(), goal(), privacy=sv.Published(1.0, 1e-3), **quick)
    with pytest.raises(InvalidInput, match="Give gamma = a constant"):
        sv.train(FedSPDDP(), small("squared"), goal("squared"), privacy=sv.NoPrivacy(), **quick)


def test_a_published_run_prints_the_papers_total() -> None:
    """(21) with q from (22): the run knows its batches, so the claim can be stated in full."""
    algorithm = FedSPDDP(rho=0.3, gamma=0.6, local_steps=2, batch=0.1, client_rate=0.5)
    result = sv.train(algorithm, small(unequal=False), goal(), rounds=9, privacy=sv.Published(0.9, 1e-3), seed=0)
    total = algorithm.claimed_total(0.9, 9, small(unequal=False).sizes)
    assert f"({total:.4g}, 0.001)" in str(result.guarantee)
    full = sv.train(FedSPDDP(rho=0.3, gamma=0.6), small(), goal(), rounds=2, privacy=sv.Published(0.9, 1e-3), seed=0)
    assert "none was given" in str(full.guarantee)
