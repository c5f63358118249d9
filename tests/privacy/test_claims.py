"""The papers' formulas, and every number of the verdicts recomputed from a canary's true recursion."""

import math
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, ndtr
from scipy.stats import binom

from sottovoce.core.check import InvalidInput
from sottovoce.privacy import paper_noise
from sottovoce.privacy.claims import CLAIMS, describe


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2)))


def root(f: Callable[[float], float], low: float, high: float) -> float:
    found = brentq(f, low, high)
    assert isinstance(found, float)
    return found


def exact_epsilon(mu: float, delta: float) -> float:
    """Written apart from the library's own: the root of the Gaussian trade-off."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return root(lambda e: gaussian_delta(mu, e) - delta, 0.0, mu**2 / 2 + 40 * mu + 1)


def dp_admm_sigma(m: int, rho: float, eta: float, epsilon: float, delta: float) -> float:
    """DP-ADMM (14) for c1 = 1: the sensitivity of Lemma 1 times the noise of the classical mechanism."""
    return 2 / (m * (rho + 1 / eta)) * paper_noise.gaussian_factor(epsilon, delta)


# Canaries. Each runs the client's own steps on two neighbouring data sets and compares what it would send.


def l2_experiment(std_is_variance: bool) -> float:
    """DP-ADMM, section VI-B at epsilon = 0.2, delta = 1e-3: all 100 iterations of one client of 400 records."""
    epsilon, delta, m, rho, squared = 0.2, 1e-3, 400, 0.1, 0.0
    for k in range(1, 101):
        eta = 1 / (0.25 + 1e-6 + 2 * math.sqrt(416 * k * math.log(1.25 / delta)) / (89 * m * epsilon))
        sigma = dp_admm_sigma(m, rho, eta, epsilon, delta)
        change = 2 / (m * (rho + 1 / eta))
        squared += float(change / (sigma**2 if std_is_variance else sigma)) ** 2
    return exact_epsilon(math.sqrt(squared), delta)


def fedspd_uploads(gradient: float, gammas: list[float], rho: float, local_steps: int) -> np.ndarray:
    """FedSPD-DP (13)-(14) in one dimension: constant gradient, x_0 = 0 throughout, no regulariser."""
    x = dual = 0.0
    sent = []
    for gamma in gammas:
        inner = []
        for _ in range(local_steps):
            x = (gamma * x + dual - gradient) / (gamma + rho)
            inner.append(x)
        mean = float(np.mean(inner))
        dual -= rho * mean
        sent.append(mean - dual / rho)
    return np.array(sent)


@cache
def fedspd_mus(gammas: tuple[float, ...], local_steps: int, batch: int, delta: float = 1e-4) -> np.ndarray:
    """How far each upload moves, in units of its noise for the claim (1, delta), when one gradient flips its sign."""
    rho, plain = 20.0, list(gammas)
    there, here = (fedspd_uploads(g / batch, plain, rho, local_steps) for g in (1.0, -1.0))
    noise = [paper_noise.fedspd_sigma(1.0, rho, gamma, local_steps, 1.0, delta) for gamma in gammas]
    return np.abs(there - here) / noise


def fedspd_round(local_steps: int) -> float:
    return exact_epsilon(fedspd_mus((350.0,), local_steps, 1)[0], 1e-4)


def fedspd_paper() -> np.ndarray:
    """The paper's constants: gamma_t of (35) with Q = 5, b = 10, p = 1, epsilon = 1, delta = 1e-4."""
    inside = 3 + 2 / 10 + 51840 * math.log(1.25e4) / (4**2 * 1.0**2)
    return fedspd_mus(tuple(2 * math.sqrt(5 * inside * t) for t in range(1, 101)), 5, 10)


def fedepm_epsilon(k0: int, uploads: int) -> float:
    """FedEPM (20), (27) with the constants of section VII, m = 50, rho = 0.5, epsilon = 0.1, c_i = 0."""
    eta = (0.02 * 50 + 1) * (0.5 + 0.1) * 1e-5
    w = np.zeros(2)
    gradients = np.array([1.0, 3.0])
    mu = 0.0
    for k in range(1, uploads * k0 + 1):
        mu = 0.05 * 1.001**k
        moved = mu * w - gradients
        w = np.sign(moved) * np.maximum(np.abs(moved) - eta / 2, 0) / (eta + mu)
    return float(abs(w[0] - w[1]) / paper_noise.fedepm_scale(2.0, 0.1, mu))


def fed_plt_shift(
    agents: int, rounds: int, rho: float, curvature: float, step: float, tau: float, local_steps: int, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean shift and covariance of (x_1..x_N, z_1..z_N) when one record moves the first gradient by L/q = 0.1."""
    mean_of, one = np.full((agents, agents), 1 / agents), np.eye(agents)
    keep = 1 - step * (curvature + 1 / rho)
    kept = keep ** np.arange(local_steps)
    x_row = np.hstack([keep**local_steps * one, kept.sum() * step / rho * (2 * mean_of - one)])
    matrix = np.vstack([x_row, 2 * x_row])
    matrix[agents:, agents:] += one - 2 * mean_of
    twice = np.vstack([one, 2 * one])
    push = twice[:, 0] * kept.sum() * step * 0.1
    noise = twice @ twice.T * (kept**2).sum() * 2 * step * tau**2
    shift, cov = np.zeros(2 * agents), np.diag(np.repeat([spread, 0.0], agents))
    for _ in range(rounds):
        shift, cov = matrix @ shift + push, matrix @ cov @ matrix.T + noise
    return shift, cov


def fed_plt_setting(rho: float, rounds: int) -> tuple[float, float]:
    """Step and tau for the claim (1, 1e-5): moduli 0.5 and 0.75, ten local steps, clip norm 1, 20 records."""
    step = 2 / (0.5 + 0.75 + 2 / rho)
    return step, float(paper_noise.fed_plt_tau(1.0, 1e-5, 2.0, 20, 0.5, step, rounds, 10))


def fed_plt_transcript(rounds: int) -> float:
    """The coordinator knows x and z before every round: rounds of one known start, composed."""
    step, tau = fed_plt_setting(0.3, rounds)
    shift, cov = fed_plt_shift(1, 1, 0.3, 0.5, step, tau, 10, 0.0)
    return exact_epsilon(math.sqrt(rounds) * shift[0] / math.sqrt(cov[0, 0]), 1e-5)


def fed_plt_last_message(rho: float, rounds: int) -> float:
    step, tau = fed_plt_setting(rho, rounds)
    shift, cov = fed_plt_shift(10, rounds, rho, 0.5, step, tau, 10, 2 * tau**2 / 0.5)
    return exact_epsilon(shift[10] / math.sqrt(cov[10, 10]), 1e-5)


def fed_plt_clipped_model(rounds: int) -> float:
    """Loss (x - xi)^2/2, xi = +-1e4: where the iterates live the clipped gradient is constant, so no curvature."""
    tau = float(paper_noise.fed_plt_tau(1.0, 1e-5, 2.0, 20, 1.0, 0.5, rounds, 5))
    shift, cov = fed_plt_shift(1, rounds, 1.0, 0.0, 0.5, tau, 5, 2 * tau**2)
    return exact_epsilon(shift[0] / math.sqrt(cov[0, 0]), 1e-5)


def sharing_pair(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Two matrices with unit rows; one entry of one column differs, by 1."""
    low, high = math.radians(5), math.radians(-35)
    corner = [[math.cos(low), math.sin(low)], [math.cos(high), math.sin(high)], [math.sqrt(0.75), 0.5]]
    d = np.asarray(block_diag(corner, np.eye(columns - 2)))
    other = d.copy()
    other[2, 1] = -0.5
    return d, other


def sharing_release(columns: int) -> float:
    """Isotropic noise of Theorem 3's size on a release that moves by b1/sqrt(2); rho = 10, two parties, lambda = 0."""
    sigma = paper_noise.sharing_sigma(paper_noise.sharing_sensitivity(columns, 10.0, 0.0, 1.0, 2, 1.0), 1.0, 1e-5)
    return exact_epsilon(math.sqrt(0.5) / float(sigma), 1e-5)


EVIDENCE = [
    ("dp-admm", "99", lambda: paper_noise.moments_total_as_printed(10_000, 1.0, 1e-5)),
    ("dp-admm", "300", lambda: exact_epsilon(paper_noise.dp_admm_exact_mu(10_000, 1.0, 1e-5), 1e-5)),
    ("dp-admm", "1.45", lambda: l2_experiment(std_is_variance=False)),
    ("dp-admm", "10.5", lambda: l2_experiment(std_is_variance=True)),
    ("fedspd-dp", "7.1", lambda: fedspd_round(20)),
    ("fedspd-dp", "39.5", lambda: exact_epsilon(fedspd_paper()[99], 1e-4)),
    ("fedspd-dp", "527", lambda: exact_epsilon(float(np.linalg.norm(fedspd_paper())), 1e-4)),
    ("fedspd-dp", "12.5", lambda: paper_noise.moments_total(100, 1.0, 1e-4)),
    ("fed-plt", "5.3", lambda: fed_plt_transcript(1000)),
    ("fed-plt", "2.9", lambda: fed_plt_last_message(100.0, 1000)),
    ("fed-plt", "12.7", lambda: fed_plt_clipped_model(400)),
    ("fedepm", "1.2", lambda: fedepm_epsilon(12, 1)),
    ("fedepm", "12.6", lambda: fedepm_epsilon(12, 10)),
    ("admm-sharing", "6.1", lambda: sharing_release(57)),
    ("admm-sharing", "1270", lambda: sharing_release(2000)),
]
SETTINGS = {"0.1", "10000", "1000", "100", "400", "2000"}  # claimed values and set-ups, not results


def numbers(text: str) -> set[str]:
    """The decimals and the integers of two digits or more, equation numbers left out."""
    return set(re.findall(r"(?<![\w.(])\d+\.\d+|(?<![\w.(])\d{2,}(?![\w)])", text))


@pytest.mark.parametrize(("method", "printed", "compute"), EVIDENCE, ids=[f"{m} {n}" for m, n, _ in EVIDENCE])
def test_every_number_of_a_verdict_comes_out_of_the_recursion(method, printed, compute):
    decimals = len(printed.partition(".")[2])
    assert f"{compute():.{decimals}f}" == printed
    assert printed in numbers(CLAIMS[method].because)


def test_no_verdict_holds_a_decimal_that_is_not_evidence():
    for method, claim in CLAIMS.items():
        known = {printed for name, printed, _ in EVIDENCE if name == method} | SETTINGS
        stray = {n for n in numbers(claim.because) - known if "." in n or len(n) > 2}
        assert not stray, (method, stray)


# The rest of what is known about each claim.


def test_dp_admm_theorem_one_holds_up_to_one_and_fails_later():
    worst = max(
        gaussian_delta(1 / paper_noise.gaussian_factor(e, d), e) / d
        for e in np.linspace(0.02, 1, 50)
        for d in np.logspace(-9, -2, 40)
    )
    assert worst == pytest.approx(0.0136, abs=2e-4)
    excess = [gaussian_delta(1 / paper_noise.gaussian_factor(e, 1e-5), e) / 1e-5 for e in (8.4, 8.45)]
    assert excess[0] < 1 < excess[1]


def test_dp_admm_sigma_covers_the_step_it_was_made_for():
    rng = np.random.default_rng(3)
    m, rho, eta, epsilon, delta = 7, 0.1, 0.8, 0.5, 1e-5
    grads = rng.normal(size=(m, 4))
    grads /= np.linalg.norm(grads, axis=1, keepdims=True)
    other = grads.copy()
    other[2] = -grads[2]  # the worst replacement
    state = rng.normal(size=4)
    step = [(-g.mean(axis=0) + state) / (rho + 1 / eta) for g in (grads, other)]  # (12)
    mu = np.linalg.norm(step[0] - step[1]) / dp_admm_sigma(m, rho, eta, epsilon, delta)
    assert mu == pytest.approx(epsilon / math.sqrt(2 * math.log(1.25 / delta)))


def test_the_constant_of_theorem_two_is_none():
    for delta, crossing in ((1e-3, 7.1), (1e-5, 8.0), (1e-6, 8.4)):

        def gap(e: float, delta: float = delta) -> float:  # only sqrt(t) epsilon counts, so one round will do
            return exact_epsilon(
                paper_noise.dp_admm_exact_mu(1, e, delta), delta
            ) - paper_noise.moments_total_as_printed(1, e, delta)

        assert root(gap, 2, 20) == pytest.approx(crossing, abs=0.06)
    ratios = [
        exact_epsilon(paper_noise.dp_admm_exact_mu(100, e, d), d) / (10 * e)
        for e in (0.01, 0.05, 0.1, 0.2)
        for d in (1e-3, 1e-4, 1e-5, 1e-6)
    ]
    assert (min(ratios), max(ratios)) == pytest.approx((0.37, 0.83), abs=5e-3)


@pytest.mark.parametrize(("rounds", "epsilon", "delta"), [(1, 0.1, 1e-3), (100, 0.2, 1e-5), (10_000, 1.0, 1e-6)])
def test_corrected_moments_total_is_the_best_order_and_an_upper_bound(rounds, epsilon, delta):
    a = rounds * epsilon**2 / (4 * math.log(1.25 / delta))
    orders = np.exp(np.linspace(-12, 12, 200_001))
    best = np.min((a * orders * (orders + 1) + math.log(1 / delta)) / orders)
    total = paper_noise.moments_total(rounds, epsilon, delta)
    assert total == pytest.approx(best, rel=1e-6)
    assert total > exact_epsilon(paper_noise.dp_admm_exact_mu(rounds, epsilon, delta), delta)
    c0 = math.sqrt(math.log(1 / delta) / math.log(1.25 / delta))
    c0 += math.sqrt(rounds) * epsilon / (4 * math.log(1.25 / delta))
    assert total == pytest.approx(c0 * math.sqrt(rounds) * epsilon)


def newton_minimiser(rows: np.ndarray, strong: float, linear: np.ndarray) -> np.ndarray:
    """Exact minimiser of mean log(1 + exp(-a'w)) + strong/2 |w|^2 + <linear, w>."""
    w = np.zeros(rows.shape[1])
    for _ in range(50):
        p = expit(-rows @ w)
        hessian = (rows * (p * (1 - p))[:, None]).T @ rows / len(rows) + strong * np.eye(w.size)
        w = w - np.linalg.solve(hessian, -rows.T @ p / len(rows) + strong * w + linear)
    return w


def test_pvp_sensitivity_holds_for_exact_minimisers_and_is_attained():
    rng = np.random.default_rng(0)
    m, rho, ridge = 3, 0.05, 0.01
    bound = 2 / (m * (rho + ridge))  # (47)
    assert bound == pytest.approx(2 / (m * (rho + ridge)))
    worst = 0.0
    for _ in range(100):
        rows = rng.normal(size=(m, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        other = np.vstack([rows[:-1], -rows[-1:]])
        linear = 0.3 * rng.normal(size=2)
        change = newton_minimiser(rows, rho + ridge, linear) - newton_minimiser(other, rho + ridge, linear)
        worst = max(worst, float(np.linalg.norm(change)))
    assert 0.2 * bound < worst <= bound
    linear_loss = [-g / (rho + ridge) for g in (1 / m, -1 / m)]  # the slope of one record flips
    assert abs(linear_loss[0] - linear_loss[1]) == pytest.approx(bound)


@pytest.mark.parametrize("rows", [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [-1.0, 0.0]]])
@pytest.mark.parametrize(("m", "strong", "s"), [(1, 0.3, 2.0), (4, 0.1, 0.7), (2, 1.0, 1.0)])
def test_dvp_bound_covers_the_exact_density(rows, m, strong, s):
    delta, width, n = 1e-3, (6 * s + 1) / strong, 700
    axis = np.linspace(-width, width, n)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)

    def density(row: list[float]) -> np.ndarray:
        a = np.array(row)
        p = expit(-w @ a)
        grad = strong * w - p[..., None] * a / m
        determinant = strong * (strong + p * (1 - p) * (a @ a) / m)
        return np.exp(-(grad**2).sum(-1) / (2 * s**2)) / (2 * math.pi * s**2) * determinant

    one, two = density(rows[0]), density(rows[1])
    cell = (axis[1] - axis[0]) ** 2
    assert one.sum() * cell == pytest.approx(1, abs=1e-4)
    bound = paper_noise.dvp_epsilon(s, 1.0, m, strong, 0.25, delta)
    assert np.maximum(one - math.exp(bound) * two, 0).sum() * cell <= delta
    assert np.maximum(one - math.exp(bound / 4) * two, 0).sum() * cell > delta  # loose, but not by much


def test_fedspd_formulas_on_the_papers_numbers():
    q = paper_noise.fedspd_data_rate(5, 10, 326)
    assert q == pytest.approx(50 / 326)
    drawn_again = paper_noise.fedspd_data_rate(5, 10, 326, replacement=True)
    assert drawn_again == pytest.approx(1 - (325 / 326) ** 50)
    assert drawn_again < q  # Remark 2, whatever it is worth
    per_round = paper_noise.fedspd_epsilon(1.0, 100, q, 0.2)
    assert per_round == pytest.approx(math.sqrt(1 - q) / (3.04 * q * math.sqrt(0.2 * 100)))
    assert paper_noise.fedspd_total(per_round, 100, q, 0.2) == pytest.approx(1.0)
    assert paper_noise.gaussian_factor(per_round, 1e-4) == pytest.approx(9.9, abs=0.06)
    assert paper_noise.fedspd_sensitivity(2.0, 20.0, 80.0, 1) == pytest.approx(4 * 2 / 100)
    assert paper_noise.fedspd_sensitivity(2.0, 20.0, 80.0, 5) == pytest.approx(4 * 5 * 2 / (4 * 100))
    assert paper_noise.fedspd_data_rate(3, 2, 1, replacement=True) == 1.0
    with pytest.raises(InvalidInput, match="local_steps \\* batch must be <= m = 40, got 50"):
        paper_noise.fedspd_data_rate(5, 10, 40)


def test_fedspd_canaries():
    rounds = [fedspd_round(q) for q in (5, 10, 20, 50)]
    assert rounds == pytest.approx([1.75, 3.68, 7.09, 13.7], abs=0.03)
    uploads = [exact_epsilon(fedspd_paper()[t - 1], 1e-4) for t in (1, 10, 100)]
    assert uploads == pytest.approx([0.14, 11.1, 39.5], abs=0.04)


@pytest.mark.parametrize(("p", "delta", "exact", "claimed"), [(1e-3, 1e-5, 0.232, 0.215), (1e-4, 1e-6, 0.205, 0.068)])
def test_client_sampling_hides_nothing_from_who_sees_it(p, delta, exact, claimed):
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    one = from_gaussian_mechanism(
        paper_noise.gaussian_factor(1.0, delta), sampling_prob=0.5, value_discretization_interval=1e-3
    )
    times = [one, one.compose(one)]

    def excess(epsilon: float) -> float:
        seen = [binom.pmf(j, 10, p) * run.get_delta_for_epsilon(epsilon) for j, run in enumerate(times, start=1)]
        return float(sum(seen)) - delta

    assert root(excess, 0, 2) == pytest.approx(exact, abs=1e-3)
    assert paper_noise.fedspd_total(1.0, 10, 0.5, p) == pytest.approx(claimed, abs=5e-4)


def test_fed_plt_conversion_is_the_best_order():
    tau = paper_noise.fed_plt_tau(1.0, 1e-5, 2.0, 20, 0.5, 0.25, 3, 10)
    orders = 1 + np.exp(np.linspace(-3, 8, 100_001))
    rdp = paper_noise.fed_plt_rdp(1.0, 2.0, tau, 20, 0.5, 0.25, 3, 10)
    assert rdp == pytest.approx(2**2 / (0.5 * tau**2 * 20**2) * (1 - math.exp(-0.5 * 0.25 * 30 / 2)))
    assert np.min(orders * rdp + math.log(1e5) / (orders - 1)) == pytest.approx(1.0, rel=1e-6)
    assert paper_noise.fed_plt_epsilon(2.0, tau, 20, 0.5, 0.25, 3, 10, 1e-5) == pytest.approx(1.0)
    per_client = np.asarray(paper_noise.fed_plt_tau(1.0, 1e-5, 2.0, np.array([[20], [40]]), 0.5, 0.25, 3, 10))
    assert per_client[0] == pytest.approx(2 * per_client[1])


def test_fed_plt_canaries():
    assert fed_plt_setting(0.3, 100)[1] == pytest.approx(0.98, abs=5e-3)
    assert [fed_plt_transcript(k) for k in (100, 1000, 10_000)] == pytest.approx([1.45, 5.3, 22.3], abs=0.03)
    assert fed_plt_last_message(1000.0, 4000) == pytest.approx(11.6, abs=0.06)
    assert fed_plt_clipped_model(100) == pytest.approx(5.5, abs=0.06)


def test_fed_plt_rounds_attain_the_contraction_bound():
    step, tau = fed_plt_setting(0.3, 1)
    shift, cov = fed_plt_shift(1, 1, 0.3, 0.5, step, tau, 10, 0.0)
    c = 1 - step * (0.5 + 1 / 0.3)
    multiplier = tau * math.sqrt(2 / step) / 0.1
    bound = math.sqrt((1 + c) * (1 - c**10) / ((1 - c) * (1 + c**10))) / multiplier
    assert shift[0] / math.sqrt(cov[0, 0]) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("k0", "uploads", "epsilon"),
    [(4, 1, 0.40), (12, 1, 1.20), (20, 1, 2.01), (12, 10, 12.6), (12, 50, 77.9), (1, 10, 1.0), (1, 50, 5.1)],
)
def test_fedepm_canaries(k0, uploads, epsilon):
    assert fedepm_epsilon(k0, uploads) == pytest.approx(epsilon, rel=5e-3)


def test_fedepm_first_single_step_is_as_claimed_and_a_zero_gradient_gets_no_noise():
    assert fedepm_epsilon(1, 1) == pytest.approx(0.1, rel=1e-3)
    balanced, moved = np.array([1.0, -1.0]).mean(), np.array([1.0, 1.0]).mean()
    assert paper_noise.fedepm_practical_scale(abs(balanced), 0.1, 0.05) == 0
    assert paper_noise.fedepm_practical_scale(abs(moved), 0.1, 0.05) == pytest.approx(2 / (0.1 * 0.05))


def test_sharing_lemma_one_is_beaten_by_a_pair_with_every_norm_at_most_b1():
    for columns in (2, 57):
        d, other = sharing_pair(columns)
        assert np.linalg.norm(d, axis=1) == pytest.approx(1)
        assert np.linalg.norm(other, axis=1) == pytest.approx(1)
        assert np.linalg.norm(d - other) == pytest.approx(1)
        hat, hat_other = (a @ np.linalg.pinv(a) for a in (d, other))
        _, vectors = np.linalg.eigh(hat - hat_other)
        changes = []
        for angle in np.linspace(0, math.pi, 73):
            u = vectors[:, 0] * math.cos(angle) + vectors[:, -1] * math.sin(angle)
            longest = max(1.0, *(float(np.linalg.norm(np.linalg.pinv(a) @ u)) for a in (d, other)))
            changes.append(float(np.linalg.norm((hat - hat_other) @ u)) / longest)
        assert max(changes) > math.sqrt(0.5)  # what the exact 6.1 and 1270 are computed from
    assert paper_noise.sharing_sensitivity(57, 10.0, 0.0, 1.0, 2, 1.0) == pytest.approx(0.11, abs=1e-3)
    assert paper_noise.sharing_sensitivity(2000, 10.0, 0.0, 1.0, 2, 1.0) == pytest.approx(0.003, abs=2e-4)
    assert paper_noise.sharing_sensitivity(10, 2.0, 3.0, 5.0, 4, 0.5) == pytest.approx(3 / 20 * (15 + 9 * 0.5))


def test_sharing_one_release_tells_neighbours_apart():
    rng = np.random.default_rng(1)
    d, other = sharing_pair(5)
    for _ in range(20):
        noise = np.linalg.cholesky(np.linalg.inv(d.T @ d)) @ rng.normal(size=5)
        release = d @ (rng.normal(size=5) + 100 * noise)
        left = [np.linalg.norm(release - a @ np.linalg.pinv(a) @ release) for a in (d, other)]
        assert left[0] < 1e-10 * np.linalg.norm(release) < 1e-6 < left[1]


def test_sharing_composition():
    epsilon, delta = paper_noise.sharing_total(20, 0.1, 1e-6, 1e-5)
    assert epsilon == pytest.approx(math.sqrt(40 * math.log(1e5)) * 0.1 + 2 * (math.exp(0.1) - 1))
    assert delta == pytest.approx(20e-6 + 1e-5)


# What is printed.


def test_verdicts_claim_no_more_than_was_proven():
    assert {name: claim.verdict for name, claim in CLAIMS.items()} == {
        "dp-admm": "sound",
        "pvp": "sound",
        "dvp": "not checkable",
        "dp-sgd": "sound",
        "fedspd-dp": "unsound",
        "fed-plt": "unsound",
        "fedepm": "unsound",
        "admm-sharing": "unsound",
    }
    for claim in CLAIMS.values():
        assert "Proven" in claim.instead


@pytest.mark.parametrize("method", CLAIMS)
def test_description_gives_claim_verdict_and_what_to_use_instead(method):
    claim, text = CLAIMS[method], describe(method, 0.3, 1e-5, 50)
    promised = "(0.3, 0)" if method == "fedepm" else "(0.3, 1e-05)"
    for part in (f"{promised} {claim.span}", claim.statement, claim.observer, claim.because, claim.instead):
        assert part in text
    assert ("no guarantee" in text) == (claim.verdict != "sound")
    assert ("Exact for 50 rounds" in text) == (claim.verdict == "sound")
    for assumption in claim.assumptions:
        assert assumption in text


def test_description_states_the_papers_total_in_numbers():
    assert "Paper's total for 50 rounds: (3.502, 1e-05)" in describe("dp-admm", 0.5, 1e-5, 50)
    assert "Paper's total for 50 rounds: (1, 1e-05)" in describe("fed-plt", 1.0, 1e-5, 50)
    assert "Paper's total for 20 rounds: (2.561, 2.1e-05)" in describe("admm-sharing", 0.1, 1e-6, 20)
    assert "states no total" in describe("fedepm", 0.1, 0.0, 20)
    assert "states no total" in describe("pvp", 0.1, 1e-5, 20)
    assert "needs a sampling rate" in describe("fedspd-dp", 0.1, 1e-5, 20)
    sampled = describe("fedspd-dp", 0.441, 1e-4, 100, data_rate=50 / 326, client_rate=0.2)
    assert "Paper's total for 100 rounds: (0.9994, 0.0001)" in sampled


def test_exact_total_is_rounded_up_and_outranks_the_paper():
    for epsilon, rounds in ((0.1, 100), (1.0, 10_000), (3.0, 7)):
        text = describe("dp-admm", epsilon, 1e-5, rounds)
        found = re.search(r"if all of that holds: \(([\d.]+), 1e-05\)", text)
        assert found
        truth = exact_epsilon(paper_noise.dp_admm_exact_mu(rounds, epsilon, 1e-5), 1e-5)
        assert truth <= float(found[1]) <= truth + 1.01e-3
        assert ("too small here" in text) == (rounds == 10_000)
        assert ("outside the theorem" in text) == (epsilon > 1)
    assert "holds: (0, 1e-05)" in describe("dp-sgd", 0.1, 1e-5, 0)


def test_a_method_without_a_claim_is_called_not_private():
    assert "not private" in describe("fedavg", 1.0, 1e-5, 10)


def test_wrong_input_is_refused():
    with pytest.raises(InvalidInput, match=r"delta must lie in \(0, 1\), got 0"):
        describe("dp-admm", 0.1, 0.0, 10)
    with pytest.raises(InvalidInput, match="epsilon must be > 0"):
        describe("fedepm", 0.0, 0.0, 10)
    with pytest.raises(InvalidInput, match="rounds must be a whole number"):
        describe("fedepm", 0.1, 0.0, -1)
    with pytest.raises(InvalidInput, match="data_rate must lie in"):
        paper_noise.fedspd_total(0.1, 10, 1.0)
