"""Labels where columns are split: what the server may ask of them, and labels that are randomised before training."""

import math
import secrets
from fractions import Fraction

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import LabelOracle
from sottovoce.core.loss import Loss
from sottovoce.core.random.streams import SERVER, Purpose
from sottovoce.privacy.events import Event
from sottovoce.privacy.noise_key import NoiseKey, Occasion, parts_digests


def label_event(epsilon: float) -> Event:
    """What flipping the labels is. It costs `epsilon`, or less in the last bit where no number has its inverse."""
    noise = 1 / epsilon
    fits = not 0 < noise < math.inf or 1 / Fraction(noise) <= epsilon
    return Event("randomized-response", noise if fits else math.nextafter(noise, math.inf))


def label_key(key: NoiseKey, y: np.ndarray) -> NoiseKey:
    """The key of label flips: bound to the same settings, and to the labels alone, wherever they are."""
    return NoiseKey(key.streams, parts_digests([y]))


def label_oracle(loss: Loss, y: np.ndarray, weight: float) -> LabelOracle:
    """What the server may ask of the labels: functions, which hold them. l(z) = weight Σ_i loss(z_i, y_i).

    `y` is (samples,), or (runs, 1, samples) where each run has drawn its own.
    """

    def prox(v: np.ndarray, rho: np.ndarray) -> np.ndarray:
        if v.ndim < 3:
            return loss.prox(v, y, rho / weight)
        # One run after the other: an iterative prox goes on until all of its numbers are there, and no run's last bit
        # may depend on the others.
        of_run = [y] * len(v) if y.ndim == 1 else y
        return np.stack([loss.prox(a, b, c / weight) for a, b, c in zip(v, of_run, rho, strict=True)])

    def slope(scores: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        labels = y
        if rows is not None:
            at = rows.astype(np.int64)
            labels = y[at] if y.ndim == 1 else np.take_along_axis(y, at, axis=-1)
        return weight * loss.slope(scores, labels)

    return LabelOracle(prox, slope, weight * loss.curvature, weight * loss.strong, y.shape[-1])


def randomised_labels(y: np.ndarray, epsilon: float, key: NoiseKey | None) -> np.ndarray:
    """Each label −1 or +1 flipped with probability 1/(1 + e^epsilon): epsilon-private, once and for all.

    `key`: for seeded flips, which are bound to the labels as noise is to an answer; None for secure ones.

    Secure flips compare 64 random bits of the operating system with the probability rounded up to a 64-bit fraction,
    which can only add privacy.
    """
    signed = bool(np.isin(y, (-1.0, 1.0)).all())
    check.require(signed, "label_epsilon", "randomised response is for labels -1 and +1")
    chance = (1.0 + (1.0 + epsilon) * 2.0**-50) / (1.0 + np.exp(min(epsilon, 700.0)))  # above what rounding takes
    if key is None:
        bits = np.frombuffer(secrets.token_bytes(8 * len(y)), dtype=np.uint64)
        return np.where(bits < np.uint64(min(int(chance * 2**64) + 2**12, 2**63)), -y, y)
    drawn = key.uniform(Occasion(np.array([SERVER]), np.array([0]), 0, Purpose.RELEASE), y[None])
    flipped = np.where(drawn < min(chance + 2.0**-52, 0.5), -y, y)  # draws have 52 bits: never less than the chance
    return flipped[0] if flipped.ndim == 2 else flipped
