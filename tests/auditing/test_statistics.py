"""From samples to a bound: it must hold as often as it says, and come near the truth when there is much to see."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve

from sottovoce.auditing import exact as audit_exact
from sottovoce.auditing import noise as audit_noise
from sottovoce.auditing import promise as audit_promise
from sottovoce.auditing import ratio as audit_ratio
from sottovoce.auditing import score as stats
from sottovoce.auditing.one_run import curve, epsilon_from_one_run
from sottovoce.auditing.tape import Made
from sottovoce.core.check import InvalidInput
from sottovoce.privacy.accounting import gaussian_epsilon


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (7, 10), (10, 10), (123, 4000)])
def test_lower_limit_is_clopper_and_pearsons(hits: int, n: int) -> None:
    theirs = binomtest(hits, n, alternative="greater").proportion_ci(0.95, method="exact").low
    assert stats.at_least(hits, n, 0.95) == pytest.approx(theirs, abs=1e-12)


def covered(bound: Callable[[np.random.Generator], float], truth: float, times: int = 200) -> int:
    rng = np.random.default_rng(7)
    return sum(bound(rng) <= truth + 1e-9 for _ in range(times))


MU, DELTA = 1.0, 1e-3
TRUTH = gaussian_epsilon(MU, DELTA)


def ratios(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood ratios of N(MU, 1) against N(0, 1), each drawn from the first of its pair."""
    return tuple(MU**2 / 2 + MU * rng.standard_normal(n) for _ in range(2))  # type: ignore[return-value]


def seen(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Three numbers a run; the shift of size MU is spread over two of them."""
    sides = rng.standard_normal((2, n, 3)) * [1.0, 5.0, 2.0]
    sides[0] += np.array([0.6, 0.0, 1.6]) * MU
    return sides[0], sides[1]


def test_bounds_hold_as_often_as_they_say() -> None:
    """At least 95 % of the time; 200 tries leave a tolerance of three standard deviations."""
    least = 200 * 0.95 - 3 * math.sqrt(200 * 0.05 * 0.95)
    assert covered(lambda rng: stats.epsilon_from_ratios(*ratios(rng, 300), DELTA), TRUTH) >= least
    assert covered(lambda rng: stats.epsilon_from_seen(*seen(rng, 300), DELTA), TRUTH) >= least
    fair = math.e / (1 + math.e)
    assert covered(lambda rng: stats.epsilon_from_guesses(rng.binomial(40, fair), 40, 400, 0.0), 1.0) >= least
    assert covered(lambda rng: epsilon_from_one_run(rng.binomial(40, fair), 40, 60, 0.0), 1.0) >= least


def test_bounds_come_near_the_truth() -> None:
    rng = np.random.default_rng(3)
    assert 0.8 * TRUTH < stats.epsilon_from_ratios(*ratios(rng, 20_000), DELTA) < TRUTH
    assert 0.5 * TRUTH < stats.epsilon_from_seen(*seen(rng, 40_000), DELTA) < TRUTH


def test_a_ratio_that_is_infinite_separates() -> None:
    first = np.where(np.arange(400) % 4 == 0, np.inf, 0.1)
    assert stats.epsilon_from_ratios(first, np.zeros(400), 1e-3) == math.inf
    assert stats.epsilon_from_ratios(first, np.zeros(400), 0.5) < math.inf  # an event rarer than delta shows nothing


def test_little_to_see_shows_nothing() -> None:
    rng = np.random.default_rng(0)
    same = rng.standard_normal((2, 2000, 2))
    assert stats.epsilon_from_seen(same[0], same[1], 0.0) < 0.4
    assert stats.epsilon_from_seen(same[0][:20], same[1][:20], 0.0) == 0.0
    assert stats.epsilon_from_guesses(0, 0, 100, 0.0) == 0.0
    assert stats.epsilon_from_guesses(3, 3, 100, 0.5) == 0.0


def test_a_direction_in_which_one_side_stands_still_is_found() -> None:
    """Noise that was used twice: the difference of two numbers has none on one side."""
    rng = np.random.default_rng(1)
    noise, coin = 10 * rng.standard_normal((2, 4000)), np.where(rng.random(4000) < 0.5, -0.5, 1.5)
    first = np.stack([noise[0], noise[0] + coin], axis=1)
    second = np.stack([noise[1], noise[1]], axis=1)
    assert stats.epsilon_from_seen(first, second, 1e-5) > 4


@pytest.mark.parametrize("guesses", [20, 100])
def test_one_run_without_delta_is_clopper_and_pearson(guesses: int) -> None:
    right = guesses - 3
    share = float(stats.at_least(right, guesses))
    bound = epsilon_from_one_run(right, guesses, 2 * guesses, 0.0)
    assert bound == pytest.approx(math.log(share / (1 - share)), abs=1e-4)
    weaker = epsilon_from_one_run(right, guesses, 2 * guesses, 1e-4)
    assert 0 < weaker < bound
    assert epsilon_from_one_run(right, guesses, 2 * guesses, 0.1) == 0.0
    assert epsilon_from_one_run(guesses // 2, guesses, guesses, 0.0) == 0.0
    with pytest.raises(InvalidInput, match="right <= guesses <= canaries"):
        epsilon_from_one_run(5, 4, 10, 0.0)


@pytest.mark.parametrize(("right", "guesses", "canaries", "delta"), [(90, 100, 500, 1e-5), (30, 31, 400, 1e-4)])
def test_one_run_with_delta_is_where_the_papers_p_value_is_met(
    right: int, guesses: int, canaries: int, delta: float
) -> None:
    """The p-value of Steinke et al., by loops over their sums: at the bound it is what the confidence leaves."""
    bound = epsilon_from_one_run(right, guesses, canaries, delta, 0.9)
    chance = math.exp(bound) / (1 + math.exp(bound))
    law = [math.comb(guesses, k) * chance**k * (1 - chance) ** (guesses - k) for k in range(guesses + 1)]
    lucky = max(sum(law[right - i : right]) / i for i in range(1, right + 1))
    assert sum(law[right:]) + 2 * canaries * delta * lucky == pytest.approx(0.1, rel=1e-3)


# Known laws.


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_log_ratio_is_that_of_the_densities(kind: str) -> None:
    from scipy.stats import laplace, norm

    rng = np.random.default_rng(2)
    x, a, b = rng.standard_normal((3, 6, 1, 4))
    here, there = Made(a, np.full((6, 1, 1), 0.7), kind), Made(b, np.full((6, 1, 1), 1.3), kind)
    law = {"gaussian": norm, "laplace": laplace}[kind]
    true = (law.logpdf(x, a, 0.7) - law.logpdf(x, b, 1.3)).sum(axis=(1, 2))
    np.testing.assert_allclose(audit_ratio.log_ratio(x, here, there), true, rtol=1e-12)


def test_exact_values_of_constant_shifts() -> None:
    there = Made(np.zeros((5, 1, 2)), np.full((5, 1, 1), 2.0), "gaussian")
    here = Made(np.full((5, 1, 2), 3.0), there.scale, "gaussian")
    sizes = audit_ratio.shifts([here, here], [there, there])
    assert sizes is not None
    assert sizes == pytest.approx(math.hypot(1.5, 1.5))
    assert audit_ratio.exact_epsilon("gaussian", sizes, 1e-5) == pytest.approx(gaussian_epsilon(3.0, 1e-5))
    assert audit_ratio.exact_epsilon("gaussian", sizes, 0.0) == math.inf
    assert audit_ratio.exact_epsilon("laplace", sizes, 0.0) == pytest.approx(sizes.sum())
    assert audit_ratio.exact_epsilon("laplace", sizes, 1e-3) is None
    rough = Made(here.exact + np.arange(5)[:, None, None] * 1e-3, here.scale, "gaussian")
    assert audit_ratio.shifts([rough], [there]) is None
    silent = Made(np.zeros((5, 1, 2)), np.zeros((5, 1, 1)), "gaussian")
    assert audit_ratio.shifts([silent], [there]) == pytest.approx(math.inf)
    assert audit_ratio.shifts([silent], [silent]) == pytest.approx(0.0)
    assert audit_ratio.log_ratio(silent.exact, silent, there) == pytest.approx(math.inf)
    assert audit_ratio.log_ratio(silent.exact, silent, silent) == pytest.approx(0.0)


def test_noise_that_is_not_as_stated_is_noticed() -> None:
    rng = np.random.default_rng(4)
    exact, scale = np.zeros((64, 1, 5)), np.full((64, 1, 1), 3.0)
    made = [Made(exact, scale, "gaussian")] * 3
    fresh = [3 * rng.standard_normal((64, 1, 5)) for _ in range(3)]
    assert audit_ratio.noise_is_as_stated(fresh, made)
    assert not audit_ratio.noise_is_as_stated([fresh[0], fresh[1], fresh[0]], made)
    assert not audit_ratio.noise_is_as_stated([x / 2 for x in fresh], made)
    laplace = [Made(exact, scale, "laplace")] * 3
    assert not audit_ratio.noise_is_as_stated(fresh, laplace)
    assert audit_ratio.noise_is_as_stated([3 * rng.laplace(size=(64, 1, 5)) for _ in range(3)], laplace)


def test_distance_of_two_gaussians() -> None:
    rng = np.random.default_rng(5)
    columns, shift = rng.standard_normal((9, 4)), rng.standard_normal(4)
    true = math.sqrt(shift @ np.linalg.solve(columns.T @ columns, shift))
    assert audit_exact.distance(shift, columns) == pytest.approx(true)
    twice = np.concatenate([columns, columns[:, :1]], axis=1)  # the first number is sent again
    assert audit_exact.distance(np.append(shift, shift[0]), twice) == pytest.approx(true)
    assert audit_exact.distance(np.append(shift, shift[0] + 1), twice) == math.inf
    assert audit_exact.distance(np.append(shift, 1.0), np.pad(columns, ((0, 0), (0, 1)))) == math.inf
    assert audit_exact.distance(np.zeros(4), columns) == 0.0
    flat = columns.copy()
    flat[:, 3] = 0.0
    assert audit_exact.same_support(np.zeros(4), columns, 2 * columns)
    assert not audit_exact.same_support(np.zeros(4), columns, flat)
    assert audit_exact.same_support(np.array([1.0, 0, 0, 0]), flat, flat[::-1])
    assert not audit_exact.same_support(np.array([0.0, 0, 0, 1]), flat, flat)


def test_tails_of_coins_and_noise() -> None:
    steps, rate = np.array([900, -400, 1200, 300]), 0.3
    thresholds = np.array([-1.0, 0.0, 1.7])
    brute = np.zeros(3)
    for coins in itertools.product((0, 1), repeat=4):
        weight = math.prod(rate if coin else 1 - rate for coin in coins)
        brute += weight * ndtr(np.dot(coins, steps) * audit_exact.STEP - thresholds)
    np.testing.assert_allclose(audit_exact._tail(steps, rate, thresholds), brute, rtol=1e-10)


def test_scores_against_secret_batches() -> None:
    here = np.array([[0.4, 0.0], [0.0, 0.3]])
    always = audit_exact.epsilon_of_scores(here, -here, 1.0, 1e-5)
    assert 0.98 * gaussian_epsilon(1.0, 1e-5) < always <= gaussian_epsilon(1.0, 1e-5)
    assert audit_exact.epsilon_of_scores(here, -here, 0.1, 1e-5) < always
    assert audit_exact.epsilon_of_scores(here, here, 0.5, 1e-5) == 0.0


def test_membership_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(6)
    members, others = np.round(rng.normal(0.5, 1, 300), 1), np.round(rng.normal(size=200), 1)  # with ties
    truth, scores = np.repeat([1, 0], [300, 200]), np.concatenate([members, others])
    found = curve(members, others)
    assert found.area == pytest.approx(roc_auc_score(truth, scores))
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    np.testing.assert_allclose(found.false_positives, false)
    np.testing.assert_allclose(found.true_positives, true)
    assert found.at(0.1) == pytest.approx(true[false <= 0.1].max())
    with pytest.raises(InvalidInput, match="at least one score"):
        curve(members, np.array([]))


# Noise and batches as they were drawn.

SHAPE = (6, 5, 4, 3)  # runs, questions, clients, coordinates


def honest(rng: np.random.Generator, kind: str, runs: int = SHAPE[0]) -> np.ndarray:
    shape = (runs, *SHAPE[1:])
    return rng.laplace(size=shape) if kind == "laplace" else rng.standard_normal(shape)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_honest_noise_looks_bad_as_seldom_as_stated(kind: str) -> None:
    """Each test at its own level of 5 %: 200 tries leave a tolerance of four standard deviations."""
    rng, bad = np.random.default_rng(5), {}
    for _ in range(200):
        z = honest(rng, kind)
        for one in audit_noise.of_noise(z, rng.standard_normal((6, 1, 4, 3)), kind):
            bad[one.name] = bad.get(one.name, 0) + (one.p < 0.05)
    assert max(bad.values()) <= 200 * 0.05 + 4 * math.sqrt(200 * 0.05 * 0.95)
    assert len(bad) == 11


WRONG: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "size of the noise": lambda z: 0.7 * z,
    "size of the noise, per client and coordinate": lambda z: z * np.where(np.arange(3) == 1, 0.3, 1.0),
    "size of the noise, per question": lambda z: z * np.where(np.arange(5) == 2, 0.3, 1.0)[:, None, None],
    "mean of the noise": lambda z: z + 1.5,
    "distribution of the noise": np.abs,
    "noise used more than once": lambda z: np.concatenate([z[:-1], -z[:1]]),
    "noise of different runs": lambda z: np.concatenate([z.reshape(2, -1, 4, 3), -z.reshape(2, -1, 4, 3)]),
    "noise of different rounds and questions": lambda z: z[:, [0, 1, 2, 3, 1]],
    "noise of different clients": lambda z: z * np.array([1, 1, 0, 0])[:, None] + z[:, :, ::-1] * [[0], [0], [1], [1]],
    "noise of different coordinates": lambda z: z[..., [0, 1, 1]],
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_each_test_sees_what_it_is_for(name: str, kind: str) -> None:
    z = WRONG[name](honest(np.random.default_rng(1), kind, runs=30))
    found = {one.name: one.p for one in audit_noise.of_noise(z, np.ones((1, 1, 1, 1)), kind)}
    assert found[name] < 1e-6


def test_noise_along_the_answer_is_seen() -> None:
    rng = np.random.default_rng(2)
    z, answers = honest(rng, "gaussian", runs=30), rng.standard_normal((30, *SHAPE[1:]))
    along = audit_noise.with_answer(np.abs(z) * np.sign(answers), answers)
    assert along is not None
    assert along.p < 1e-9
    assert audit_noise.with_answer(z, np.zeros(z.shape)) is None  # an answer of nothing tells nothing


def drawn_batches(rng: np.random.Generator, fixed: bool, shape: tuple[int, ...] = (20, 6, 2, 10)) -> np.ndarray:
    """A fifth of ten records."""
    draws = rng.random(shape)
    return draws <= np.sort(draws, axis=-1)[..., 1:2] if fixed else draws < 0.2


@pytest.mark.parametrize("fixed", [False, True])
def test_honest_batches_look_bad_as_seldom_as_stated(fixed: bool) -> None:
    rng, bad = np.random.default_rng(6), {}
    for _ in range(200):
        for one in audit_noise.of_batches(drawn_batches(rng, fixed), 0.2, fixed):
            bad[one.name] = bad.get(one.name, 0) + (one.p < 0.05)
    assert max(bad.values()) <= 200 * 0.05 + 4 * math.sqrt(200 * 0.05 * 0.95)
    assert len(bad) == 5


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("share of records drawn", lambda drawn: drawn | np.roll(drawn, 1, axis=-1)),
        ("share of records drawn", lambda drawn: drawn & (np.arange(10) > 0)),
        ("batches of different rounds and questions", lambda drawn: drawn[:, [0, 1, 2, 3, 4, 0]]),
        ("batches of different runs", lambda drawn: drawn[[*range(10), *range(10)]]),
        ("batches of different clients", lambda drawn: drawn[:, :, [0, 0]]),
    ],
)
def test_wrong_batches_are_seen(fixed: bool, name: str, wrong: Callable[[np.ndarray], np.ndarray]) -> None:
    shape = (20, 40 if "runs" in name else 6, 2, 10)
    drawn = wrong(drawn_batches(np.random.default_rng(3), fixed, shape))
    assert {one.name: one.p for one in audit_noise.of_batches(drawn, 0.2, fixed)}[name] < 1e-6


def test_sizes_of_batches_are_told_apart() -> None:
    rng = np.random.default_rng(4)
    assert audit_noise.sizes(drawn_batches(rng, True), 0.2, fixed=False).p < 1e-9
    assert audit_noise.sizes(drawn_batches(rng, False), 0.2, fixed=True).p == 0.0


def test_promised_sensitivities_are_the_librarys() -> None:
    """Written twice: for the audit from the proofs, for the doors in `sensitivity.py` and `local_runs.py`."""
    from sottovoce.core.contract import Descent, ProxSteps
    from sottovoce.privacy import local_steps as local_runs
    from sottovoce.privacy import sensitivity
    from sottovoce.privacy.modes import ProvenColumns
    from sottovoce.problems.penalties import L2

    rng = np.random.default_rng(8)
    u, mu = rng.standard_normal((2, 7)), np.array([[0.3], [2.0]])
    record = ProvenColumns(1.0, 1e-5, "record", bound=1.0, row_bound=0.7, score_bound=0.2)
    column = ProvenColumns(1.0, 1e-5, "column", bound=1.0, column_bound=1.3)
    party = ProvenColumns(1.0, 1e-5, "party", bound=1.0)
    for mine, theirs in (
        (audit_promise.scores_sensitivity(record, u, mu), sensitivity.record_scores(u, mu, 0.7, 0.2)),
        (audit_promise.scores_sensitivity(column, u, mu), sensitivity.column_scores(u, mu, 1.3)),
        (audit_promise.scores_sensitivity(party, u, mu), sensitivity.party_scores(u)),
        (audit_promise.model_sensitivity(record, u, mu), sensitivity.record_model(u, mu, 0.7)),
        (audit_promise.model_sensitivity(party, u, mu), sensitivity.party_model(u, mu)),
    ):
        assert mine == pytest.approx(theirs, rel=1e-12)
    one, most = np.array([[0.1], [0.2]]), np.array([[2.0], [2.0]])
    for average in (False, True):
        spec = ProxSteps([1.0, 2.0, 3.0], [1.5, 2.5, 4.0], 0.0, 0.0, L2(1.0), average=average)
        for absorbed in (False, True):
            later = one if absorbed else most
            theirs = local_runs.prox_steps_sensitivity(spec, one, later)
            assert audit_promise.prox_sensitivity(spec, one, later) == pytest.approx(theirs, rel=1e-12)
    chain = Descent(4, 0.3, 0.5, np.zeros((1, 1)), 0.1)
    c = local_runs.contraction(chain, np.array([[1.0]]))
    samples = np.zeros(200_000)
    noise = np.random.default_rng(9).standard_normal((4, 200_000)) * local_runs.chain_gain(c, 4)[0, 0] * 0.1
    for step in noise:
        samples = samples - 0.3 * (step + 0.6 * samples)
    wanted = audit_promise.chain_deviation(chain, np.array([[0.1]]), np.array([[1.0]]))
    assert samples.std() == pytest.approx(float(wanted[0, 0]), rel=0.01)
