"""Sums over clients."""

import numpy as np
import pytest

from sottovoce.core.arrays import sum_over_clients


@pytest.mark.parametrize("shape", [(300, 1), (300, 2), (3, 207, 1), (2, 50, 20), (1, 7)])
def test_a_mean_over_clients_has_the_bits_of_a_plain_sum(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape) * 10.0 ** np.random.default_rng(1).uniform(-5, 5, shape)
    for one in (x, np.asfortranarray(x), np.broadcast_to(x[..., :1, :], shape)):
        np.testing.assert_array_equal(sum_over_clients(one), one.sum(axis=-2, keepdims=True))
