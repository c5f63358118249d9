"""Auditing with one training run: many canaries, each put in or left out by a coin, and guesses about the coins.

Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023), Theorem 5.2 and its appendix. For
models that are too expensive to be trained thousands of times. The bound is weaker than what many runs give.
"""

import math

import numpy as np

from sottovoce.auditing.statistics import CONFIDENCE
from sottovoce.core import check


def epsilon_from_one_run(
    right: int, guesses: int, canaries: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """A lower bound on epsilon from `right` of `guesses` about `canaries` fair coins that one run was to hide.

    At most e^epsilon/(1 + e^epsilon) of the guesses can be right on average, whichever canaries they are made on; for
    delta = 0 this is Clopper and Pearson's bound on that share.
    """
    fits = 0 <= right <= guesses <= canaries
    check.require(fits, "audit", "right <= guesses <= canaries must hold", (right, guesses, canaries))
    if guesses == 0 or _surprise(right, guesses, canaries, delta, 0.0) > 1 - confidence:
        return 0.0
    low, high = 0.0, 1.0
    while _surprise(right, guesses, canaries, delta, high) <= 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if _surprise(right, guesses, canaries, delta, middle) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def _surprise(right: int, guesses: int, canaries: int, delta: float, epsilon: float) -> float:
    """The largest probability of so many right guesses if the mechanism were (epsilon, delta)-private."""
    from scipy.stats import binom

    fair = 1 / (1 + math.exp(-epsilon))
    luck = float(binom.sf(right - 1, guesses, fair))
    if delta > 0 and right > 0:
        fewer = np.arange(1, right + 1)
        luck += 2 * canaries * delta * float((np.cumsum(binom.pmf(right - fewer, guesses, fair)) / fewer).max())
    return min(luck, 1.0)
