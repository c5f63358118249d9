"""What secret batches leave to be seen: the exact power of a linear score against a canary that is drawn at times.

With everything else blank, a batch matters only in whether it holds the canary: a coin I_j of known probability for
each question. Where losses are linear the j-th inclusion moves what is sent later by a fixed h_j, so that what is seen,
in units of its noise and with its predictable part taken away, is Σ_j I_j h_j + ξ. Its score along any w is a sum of
independent coins plus a Gaussian, whose tails are computed, not sampled. The h_j are read off the algorithm by choosing
batches for it, with what was sent forced on it (`audit.Tape`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sottovoce.auditing.gaussian import LINEAR, Numbers
from sottovoce.auditing.tape import Made
from sottovoce.core.random.streams import About, Purpose, Streams

STEP = 1e-3  # of the grid that coins are rounded to, in standard deviations of the noise; always to the safe side


@dataclass(frozen=True)
class ChosenBatches(Streams):
    """Streams whose batches hold one record of one client, or do not, as chosen: `choose(question)` for each run.

    The record is the client's first one.
    """

    client: int = 0
    choose: Callable[[int], np.ndarray] = field(default=lambda question: np.zeros(1, dtype=bool), compare=False)
    questions: Numbers = field(default_factory=Numbers, compare=False)

    def derived(self, about: str) -> "ChosenBatches":
        return self

    def uniform_rows(
        self,
        clients: np.ndarray,
        sizes: np.ndarray,
        round_: int,
        purpose: Purpose,
        question: int = 0,
        about: About = None,
    ) -> np.ndarray:
        draws = super().uniform_rows(clients, sizes, round_, purpose, question)
        for place in np.flatnonzero(np.asarray(clients) == self.client):
            number = int(self.questions.of((round_, int(purpose), question), 1)[0])
            draws[..., int(sizes[:place].sum())] = np.where(self.choose(number), 0.0, 1.0)
        return draws


def whitened(made: Sequence[Made]) -> np.ndarray:
    """What was meant to be sent, in units of its noise: (runs, numbers)."""
    return np.concatenate([(one.exact / one.scale).reshape(len(one.exact), -1) for one in made], axis=1)


def linear_in_batches(base: np.ndarray, moved: np.ndarray, chosen: np.ndarray, responses: np.ndarray) -> bool:
    """Whether `moved` is what the responses to single inclusions say that the `chosen` ones (runs, questions) do."""
    said = base + chosen @ responses
    return bool(np.allclose(said, moved, rtol=0, atol=1e3 * LINEAR * (np.abs(moved).max() + 1.0)))


def epsilon_of_scores(here: np.ndarray, there: np.ndarray, rate: float, delta: float) -> float:
    """A lower bound on epsilon from the responses (questions, numbers) of two neighbours, each question's batch
    holding the canary with probability `rate`. No sampling error; only linear scores are looked at."""
    along = (here - there).sum(axis=0)
    length = float(np.linalg.norm(along))
    if length == 0:
        return 0.0
    mine, other = here @ along / length, there @ along / length
    return max(_best_threshold(mine, other, rate, delta), _best_threshold(-other, -mine, rate, delta))


def _best_threshold(likely: np.ndarray, rare: np.ndarray, rate: float, delta: float) -> float:
    """max over t of log((P(Σ I likely + Z >= t) - delta)/P(Σ I rare + Z >= t)), with both sums rounded so that the
    result is not too large."""
    top = float(np.maximum(likely, 0).sum() * rate + 6 * math.sqrt(rate * np.square(likely).sum()) + 6)
    thresholds = np.linspace(0.0, top, 400)
    probable, seldom = _tail(np.floor(likely / STEP), rate, thresholds), _tail(np.ceil(rare / STEP), rate, thresholds)
    good = (probable > delta) & (seldom > 1e-12)  # below, rounding in the transform would count
    with np.errstate(divide="ignore"):
        bounds = np.log(np.where(good, probable - delta, 1.0)) - np.log(np.where(good, seldom, 1.0))
    return max(0.0, float(bounds.max()))


def _tail(steps: np.ndarray, rate: float, thresholds: np.ndarray) -> np.ndarray:
    """P(Σ I_j steps_j · STEP + Z >= t): the law of the sum by a Fourier transform, then the Gaussian."""
    from scipy.special import ndtr

    low, high = int(np.minimum(steps, 0).sum()), int(np.maximum(steps, 0).sum())
    size = 1 << max(4, (high - low + 1).bit_length())
    angle = 2 * np.pi * np.arange(size // 2 + 1) / size
    transform = np.ones(len(angle), dtype=np.complex128)
    for step, count in zip(*np.unique(steps, return_counts=True), strict=True):
        transform *= (1 - rate + rate * np.exp(-1j * angle * step)) ** int(count)
    weights = np.maximum(np.fft.irfft(transform * np.exp(1j * angle * low), size), 0.0)
    kept = np.flatnonzero(weights > 1e-18)
    values = (low + kept) * STEP
    return np.array([float(weights[kept] @ ndtr(values - t)) for t in thresholds])
