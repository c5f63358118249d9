"""DP-ADMM and its family against the paper's own formulas and numbers."""

from math import log, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import PVP
from sottovoce.core.contract import Claim
from tests.cases import goal, small


def site(k: int, m: int, epsilon: float, delta: float, penalty: Any, dim: int = 104) -> Any:
    """A client of the paper's experiment: rows of length at most 1, logistic loss."""
    oracle = SimpleNamespace(
        gradient_bound=1.0, curvature_bound=0.25, weight=np.array([[1 / m]]), size=np.array([[float(m)]]), dim=dim
    )
    return SimpleNamespace(f=oracle, k=k, claim=Claim(epsilon, delta), penalty=penalty)


@pytest.mark.parametrize("k", [1, 7, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-3), (0.1, 1e-4), (0.2, 1e-6)])
def test_step_sizes_and_noise_are_the_papers(k: int, epsilon: float, delta: float) -> None:
    m = 400
    smooth = site(k, m, epsilon, delta, sv.L2(1e-6))
    eta = float(sv.DPADMM(rho=0.1, c_w=89).step(smooth)[0, 0])
    # The sentence below (39d): (0.25 + 1e-6 + 2 sqrt(416 k ln(1.25/delta)) / (89 m eps))^-1
    assert eta == pytest.approx(
        1 / (0.25 + 1e-6 + 2 * sqrt(416 * k * log(1.25 / delta)) / (89 * m * epsilon)), rel=1e-12
    )
    rough = site(k, m, epsilon, delta, sv.L1(1e-6))
    # The sentence below (38d); it divides the share lambda/n = 10^-6 of the set-up by n once more, which we do not.
    slope, noise = 1 + 1e-6 * sqrt(104), 1664 * k * log(1.25 / delta) / (m * epsilon) ** 2
    expected = 23 / sqrt(2 * k * slope**2 + noise)
    assert float(sv.DPADMM(rho=0.1, c_w=23).step(rough)[0, 0]) == pytest.approx(expected, rel=1e-12)
    sigma = 2 * sqrt(2 * log(1.25 / delta)) / (m * epsilon * (0.1 + 1 / eta))  # (14)
    assert float(sv.DPADMM(rho=0.1).gradient_std(smooth)[0, 0] / (0.1 + 1 / eta)) == pytest.approx(sigma, rel=1e-12)


def deviation(algorithm: Any, privacy: Any, runs: int = 500) -> np.ndarray:
    """Standard deviation over many runs of each client's first upload, pooled over its coordinates."""
    kept: list[Any] = []
    sv.train(algorithm, small(), goal(), rounds=1, privacy=privacy, runs=runs, seed=1, engine="numpy",
             after_round=kept.append)  # fmt: skip
    return np.sqrt(kept[0].server.v.var(axis=0).mean(axis=-1))


@pytest.mark.parametrize("name", ["dp-admm", "pvp"])
def test_published_noise_has_the_stated_deviation(name: str) -> None:
    """A variance taken for a deviation, or a matrix normal (variance squared), would be off by far more than 8 %."""
    epsilon, delta, sizes = 0.9, 1e-3, small().sizes
    algorithm = sv.DPADMM(rho=0.3, c_w=5.0) if name == "dp-admm" else PVP(rho=0.3)
    gaussian = 2 * sqrt(2 * log(1.25 / delta)) / (sizes * epsilon)
    if name == "dp-admm":
        curvature = 0.3 + 0.25 + 0.05 + gaussian * sqrt(2 * 4) / 5.0  # rho + 1/eta, (34) at k = 1
    else:
        curvature = np.full(6, 0.3 + 0.05)  # rho + lambda/n
    measured = deviation(algorithm, sv.Published(epsilon, delta))  # of 2000 numbers: a standard error of 1.6 %
    np.testing.assert_allclose(measured, gaussian / curvature, rtol=0.08)


def test_proven_noise_on_the_gradient_is_what_the_upload_carries() -> None:
    from sottovoce.privacy import accounting

    sizes = small().sizes
    proven = sv.Proven(epsilon=2.0, delta=1e-3, clip=0.7)
    nm = accounting.calibrate(2.0, 1e-3, 1)
    gradient_noise = nm * 2 * 0.7 / sizes
    curvature = 0.3 + 0.25 + 0.05 + gradient_noise * sqrt(2 * 4) / 10.0
    measured = deviation(sv.DPADMM(rho=0.3), proven)
    np.testing.assert_allclose(measured, gradient_noise / curvature, rtol=0.08)


def test_duals_sum_to_zero_and_the_server_takes_the_mean() -> None:
    """Errata: the sum of the duals stays 0 if it starts at 0, so (10c) is the mean of the released models."""
    kept: list[Any] = []
    sv.train(sv.DPADMM(rho=0.3), small(), goal(), rounds=5, privacy=sv.Published(0.9, 1e-3), seed=1, engine="numpy",
             after_round=kept.append)  # fmt: skip
    last = kept[-1]
    gamma, w = last.clients["client.gamma"], last.clients["client.w"]
    np.testing.assert_allclose(gamma.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(last.server.w[0], w.mean(axis=0), atol=1e-12)
