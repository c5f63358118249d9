"""What secret batches reveal: the exact power of a linear score against a canary that is in some of the batches.

All other records are blank, so a batch matters only in whether it holds the canary: a coin I_j of known probability for
each question. If losses are linear, the j-th inclusion moves later messages by a fixed h_j. Then the messages, in units
of their noise and without their predictable part, are Σ_j I_j h_j + ξ. Their score along any w is a sum of independent
coins plus a Gaussian; its tails are computed, not sampled. To find the h_j, the audit chooses the batches of the true
code and forces past messages on it (`Tape`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sottovoce.auditing.exact import LINEAR, NotLinear, Numbers
from sottovoce.auditing.finding import Finding, conclude
from sottovoce.auditing.game import Game, Sampling, streams_of
from sottovoce.auditing.ratio import Table
from sottovoce.auditing.tape import Made
from sottovoce.core.random.streams import About, Purpose, Streams

STEP = 1e-3  # of the grid that shifts are rounded to, in standard deviations of the noise; always to the safe side


def by_batches(game: Game, sampling: Sampling) -> Finding | None:
    """A bound from computed tails, if batches are secret and each inclusion of a canary has a fixed effect."""
    if not (game.secret_batches and game.neighbours.alone):
        return None
    at_once = max(8, min(game.at_once, game.questions))
    probing = _Inclusions(game, sampling, Table(game, at_once))
    try:
        here, there = probing.effects(0), probing.effects(1)
    except NotLinear:
        return None
    client, door = game.neighbours.client, probing.table.players[0].place.door
    rate = float(door.rates(game.asks.batch)[client, 0])
    evidence = f"{probing.table.evidence}, which records were drawn being secret"

    def bound(_: slice, delta: float) -> float:
        return epsilon_of_scores(here, there, rate, delta)

    return conclude(game, "computed", evidence, probing.played, bound)


class _Inclusions:
    """Finds out what each inclusion of the canary does to the messages, by choosing batches for the true code."""

    def __init__(self, game: Game, sampling: Sampling, table: Table) -> None:
        self.client, self.sampling, self.table = game.neighbours.client, sampling, table
        self.questions, self.played = Numbers(), table.runs
        self._past = game.tape()
        table.players[0].play(streams_of(sampling.seed, "path", table.runs), tape=self._past)

    def effects(self, side: int) -> np.ndarray:
        """What one inclusion in each question's batch changes in the messages: (questions, numbers)."""
        runs, seed = self.table.runs, self.sampling.seed
        never = self._sent(side, 0, lambda number: np.zeros(runs, dtype=bool))[0]
        count, effects = self.questions.count, []
        for low in range(0, count, runs):
            moved = self._sent(side, 0, lambda number, low=low: np.arange(low, low + runs) == number)
            effects.append((moved - never)[: count - low])
            self.sampling.progress("batches", side * count + low, 2 * count)
        chosen = np.random.default_rng(seed).random((runs, count)) < 0.2
        chosen[0] = False
        moved = self._sent(side, 1, lambda number: chosen[:, number])
        if not linear_in_batches(moved[0], moved, chosen, np.concatenate(effects)):
            raise NotLinear("inclusions do not add up")
        return np.concatenate(effects)

    def _sent(self, side: int, run: int, choose: Callable[[int], np.ndarray]) -> np.ndarray:
        """What the client would send in each run, in units of noise, if past messages were those of run `run`."""
        streams = ChosenBatches(self.sampling.seed, self.table.runs, self.client, choose, self.questions)
        past = [np.broadcast_to(answer[run], answer.shape) for answer in self._past.answers]
        forced = self.table.game.tape(past)
        self.table.players[side].play(streams, tape=forced)
        self.played += self.table.runs
        if None in forced.made:
            raise NotLinear("noise is not added at the door")
        return whitened(forced.all_made)


@dataclass(frozen=True)
class ChosenBatches(Streams):
    """Streams whose batches hold the first record of one client in the runs that `choose(question)` names."""

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
    """The values before noise was added, in units of that noise: (runs, numbers)."""
    return np.concatenate([(one.exact / one.scale).reshape(len(one.exact), -1) for one in made], axis=1)


def linear_in_batches(base: np.ndarray, moved: np.ndarray, chosen: np.ndarray, responses: np.ndarray) -> bool:
    """Whether `moved` is the sum of the responses to the inclusions that were `chosen` (runs, questions)."""
    predicted = base + chosen @ responses
    return bool(np.allclose(predicted, moved, rtol=0, atol=1e3 * LINEAR * (np.abs(moved).max() + 1.0)))


def epsilon_of_scores(here: np.ndarray, there: np.ndarray, rate: float, delta: float) -> float:
    """A lower bound on epsilon from the responses (questions, numbers) of two neighbours, if each batch holds the
    canary with probability `rate`. Without sampling error; the best linear score may not be the best score."""
    along = (here - there).sum(axis=0)
    length = float(np.linalg.norm(along))
    if length == 0:
        return 0.0
    first, second = here @ along / length, there @ along / length
    return max(_best_threshold(first, second, rate, delta), _best_threshold(-second, -first, rate, delta))


def _best_threshold(likely: np.ndarray, rare: np.ndarray, rate: float, delta: float) -> float:
    """max over t of log((P(Σ I likely + Z >= t) - delta)/P(Σ I rare + Z >= t)). Both sums are rounded in the
    direction that makes the result smaller."""
    top = float(np.maximum(likely, 0).sum() * rate + 6 * math.sqrt(rate * np.square(likely).sum()) + 6)
    thresholds = np.linspace(0.0, top, 400)
    probable, seldom = _tail(np.floor(likely / STEP), rate, thresholds), _tail(np.ceil(rare / STEP), rate, thresholds)
    good = (probable > delta) & (seldom > 1e-12)  # below, the transform is only rounding errors
    with np.errstate(divide="ignore"):
        bounds = np.log(np.where(good, probable - delta, 1.0)) - np.log(np.where(good, seldom, 1.0))
    return max(0.0, float(bounds.max()))


def _tail(steps: np.ndarray, rate: float, thresholds: np.ndarray) -> np.ndarray:
    """P(Σ I_j steps_j · STEP + Z >= t): the distribution of the sum by a Fourier transform, then the Gaussian."""
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
