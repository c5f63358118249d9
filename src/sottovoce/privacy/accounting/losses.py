"""Poisson batches by privacy loss distributions, which dp-accounting composes."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from sottovoce.privacy.accounting.composition import Items, is_sampled, squared_mu
from sottovoce.privacy.events import Event


def losses_epsilon(items: Items, delta: float) -> float:
    """Epsilon of Poisson-sampled and full-batch Gaussians; infinite where a grid of losses would be too coarse."""
    sampled = [(event, count) for event, count in items if is_sampled(event)]
    full = squared_mu((event, count) for event, count in items if not is_sampled(event))
    step = min(_loss_step(event) for event, _ in sampled)
    width = full / 2 + 9 * math.sqrt(full) + sum(_loss_width(event, count) for event, count in sampled)
    # The rounding of the Fourier transforms is absolute, about 1e-15 per composition (measured): delta pays for it.
    delta -= 5e-15 * sum(count for _, count in sampled)
    if delta <= 0 or width > 2e6 * step or step > 1:
        return math.inf
    from dp_accounting.pld import privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]

    whole = privacy_loss_distribution.identity(step)
    if full > 0:
        whole = whole.compose(_of_one(1 / math.sqrt(full), 1.0, step))
    for event, count in sampled:
        whole = whole.compose(_of_one(event.noise_multiplier, event.rate, step).self_compose(count))
    return float(whole.get_epsilon_for_delta(delta))


@lru_cache(maxsize=8)  # who asks what a number of answers costs asks about other numbers of them next
def _of_one(noise_multiplier: float, rate: float, step: float) -> Any:
    """The privacy loss distribution of one answer, if a record is added or removed."""
    from dp_accounting import NeighboringRelation  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld import privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]

    # dp-accounting takes the noise multiplier of un-sampled Gaussians as it is under ADD_OR_REMOVE_ONE only.
    either = NeighboringRelation.ADD_OR_REMOVE_ONE
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, value_discretization_interval=step, sampling_prob=rate, neighboring_relation=either
    )


def _loss_step(event: Event) -> float:
    """The grid of the privacy loss: 1e-3, and not much more or less than 10 000 points for one answer.

    Rounding to a grid `h` adds up to h²/6 to the variance of each loss. So where one loss spreads over less than four
    steps the grid must be finer, and where it spreads over many it may be coarser. More noise never coarsens it.
    """
    spread = event.rate * math.sqrt(math.expm1(min(event.noise_multiplier**-2, 700)))
    largest = float(_loss(event, _farthest(event)))
    return float(max(min(1e-3, spread / 4), min(spread / 10, largest / 10_000), largest / 40_000))


def _loss_width(event: Event, count: int) -> float:
    """How far the loss of `count` answers may reach: Chernoff's bound for a tail of 1e-15."""
    exponents = np.array([1, 2, 4, 8, 20]) / _loss(event, _farthest(event))
    z = np.linspace(-10, _farthest(event), 2000)
    density = (1 - event.rate) * np.exp(-(z**2) / 2) + event.rate * np.exp(-((z - 1 / event.noise_multiplier) ** 2) / 2)
    moments = np.exp(exponents[:, None] * _loss(event, z)) @ density / density.sum()
    return float(np.min((count * np.log(moments) + 35) / exponents))


def _loss(event: Event, z: float | np.ndarray) -> np.ndarray:
    """Privacy loss of one answer, `z` standard deviations from its mean without the record."""
    inverse = 1 / event.noise_multiplier
    return np.logaddexp(math.log1p(-event.rate), math.log(event.rate) + z * inverse - inverse**2 / 2)


def _farthest(event: Event) -> float:
    return 10 + 1 / event.noise_multiplier
