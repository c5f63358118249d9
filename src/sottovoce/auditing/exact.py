"""The exact distribution of a transcript that is linear in Gaussian noise, found by feeding noise to the algorithm.

If all losses are linear (or quadratic), every message is b + M ξ with ξ standard normal: all numbers drawn in the run,
wherever they are drawn and whether or not anyone sees them. A run with ξ = 0 shows b; a run with a single 1 in ξ shows
a column of M. Two neighbours with the same M are two Gaussians with the same covariance M M'. They are as hard to tell
apart as N(0, 1) and N(mu, 1), mu² = (b − b')' (M M')⁻¹ (b − b').

If batches are secret (`by_batches`), the audit chooses which of them hold the canary. All other records are blank, so a
batch matters only in whether it holds the canary: a coin I_j of known probability for each question. If losses are
linear, the j-th inclusion moves later messages by a fixed h_j. Then the messages, in units of their noise and without
their predictable part, are Σ_j I_j h_j + ξ. Their score along any w is a sum of independent coins plus a Gaussian; its
tails are computed, not sampled. To find the h_j, the audit chooses the batches of the true code and forces past
messages on it (`Tape`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
from scipy.special import ndtr

from sottovoce.auditing.finding import Finding, conclude
from sottovoce.auditing.game import Game, Player, Sampling, streams_of
from sottovoce.auditing.ratio import Table, exact_epsilon
from sottovoce.core.arrays import AnyArray, Floats, Integers
from sottovoce.core.random.binding import Bound
from sottovoce.core.random.streams import SERVER, About, Purpose, Rounds, Streams

LINEAR = 1e-7  # relative: how closely b + M ξ must reproduce the messages
MOST_NUMBERS = 40_000  # drawn in a run: each of them needs a run of its own
TRIES = 5  # runs with noise that check b + M ξ
MOST_MESSAGES = 4_000  # numbers sent in a run
STEP = 1e-3  # of the grid that shifts are rounded to, in standard deviations of the noise; always to the safe side


class NotLinear(Exception):
    """This run is not linear in Gaussian noise, or it is too long for this method."""


def by_probing(game: Game, sampling: Sampling) -> Finding | None:
    """A bound from the exact distribution of messages that are linear in Gaussian noise; None where they are not."""
    if game.secret_batches or getattr(game.privacy, "mechanism", "gaussian") != "gaussian":
        return None
    player_of = lru_cache(lambda side, runs: Player(game, side, runs))
    played = 0

    def messages(side: int, streams: Probe) -> np.ndarray:
        nonlocal played
        runs = streams.runs or 1
        sent: list[np.ndarray] = []
        player_of(side, runs).play(streams, lambda down, up: sent.extend(up.values()))
        played += runs
        return np.concatenate([array.reshape(runs, -1) for array in sent], axis=1)

    try:
        mu = np.array([transcript_mu(messages, sampling.seed, game.at_once, partial(sampling.progress, "numbers"))])
    except NotLinear:
        return None
    evidence = f"every upload, {game.rounds} rounds"
    return conclude(game, "exact", evidence, played, lambda _, delta: exact_epsilon("gaussian", mu, delta))


@dataclass
class Numbers:
    """A place for each number drawn in a run, by who drew it, when and for what. As in `Streams`, noise that an
    algorithm uses twice is one number."""

    count: int = 0
    places: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def of(self, key: tuple[int, ...], count: int) -> np.ndarray:
        if key not in self.places:
            self.places[key] = np.arange(self.count, self.count + count)
            self.count += count
        return self.places[key]


Choose = Callable[[np.ndarray], np.ndarray]
"""choose(places): the numbers that the audit wants at these places of `Numbers`, (runs, places)."""


@dataclass(frozen=True)
class Chosen(Streams):
    """Streams of which the audit chooses some numbers."""

    choose: Choose = field(default=lambda ids: np.zeros((1, len(ids))), compare=False)
    numbers: Numbers = field(default_factory=Numbers, compare=False)

    def derived(self, about: str) -> "Chosen":
        return self


class Probe(Chosen):
    """Streams whose normal numbers are chosen. The server's public random numbers are the same in all runs."""

    def normal(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        ids = [self.numbers.of((int(client), round_, int(purpose), question), count) for client in clients]
        return self.choose(np.concatenate(ids)).astype(np.float64).reshape(self.runs or 1, len(clients), count)

    def noisy(
        self, exact: np.ndarray, scale: np.ndarray | float, clients: np.ndarray, round_: int, purpose: Purpose,
        question: int = 0, bound: Bound | None = None, in_place: bool = False,
    ) -> np.ndarray:  # fmt: skip
        return self.normal(clients, round_, purpose, exact.shape[-1], question) * scale + exact

    def bits(
        self, clients: np.ndarray, round_: Rounds, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        servers = purpose is Purpose.ALGORITHM and all(int(client) == SERVER for client in clients)
        if not servers or not isinstance(round_, int):
            raise NotLinear("random numbers that are neither Gaussian nor the server's")
        same = Streams(self.seed).bits(clients, round_, purpose, count, question)
        return np.broadcast_to(same, (self.runs or 1, *same.shape))

    def uniform_rows(self, *_: object, **__: object) -> np.ndarray:
        raise NotLinear("random batches")


Messages = Callable[[int, Probe], np.ndarray]
"""messages(side, streams): all numbers that were sent on this side's data with these streams, (runs, numbers)."""


def transcript_mu(messages: Messages, seed: int, at_once: int, progress: Callable[[int, int], None]) -> float:
    """mu of the pair of transcripts; inf if a single message identifies the data set. `NotLinear` if they are not."""
    numbers = Numbers()
    noise = np.random.default_rng(seed).standard_normal((TRIES, MOST_NUMBERS))
    noise[0] = 0.0

    def some(ids: np.ndarray) -> np.ndarray:
        if numbers.count > MOST_NUMBERS:
            raise NotLinear(f"more than {MOST_NUMBERS} random numbers in a run are too many to try one by one")
        return noise[:, ids]

    here, there = (messages(side, Probe(seed, TRIES, some, numbers)) for side in (0, 1))
    if here.shape[1] > MOST_MESSAGES:
        raise NotLinear(f"{here.shape[1]} numbers sent in a run are more than {MOST_MESSAGES}")

    def columns(side: int, sent: np.ndarray) -> np.ndarray:
        """M', row by row, checked against the runs with noise."""
        response = np.empty((numbers.count, sent.shape[1]))
        for low in range(0, numbers.count, at_once):
            high = min(low + at_once, numbers.count)
            units = Probe(seed, high - low, partial(np.equal, np.arange(low, high)[:, None]), numbers)
            response[low:high] = messages(side, units) - sent[0]
            progress(high, numbers.count)
        size = np.abs(sent).max() + 1e-300
        if not np.allclose(sent[0] + noise[:, : numbers.count] @ response, sent, rtol=0, atol=LINEAR * size):
            raise NotLinear("messages are not linear in the noise")
        return response

    apart = here - there
    if np.allclose(apart, apart[:1], rtol=0, atol=LINEAR * (np.abs(here).max() + np.abs(there).max())):
        return distance(apart[0], columns(0, here))
    # Another M: two Gaussians of different shape. If one can be where the other cannot, a message identifies it.
    if same_support(apart[0], columns(0, here), columns(1, there)):
        raise NotLinear("neighbours react differently to the same noise")
    return float("inf")


def distance(shift: np.ndarray, columns: np.ndarray) -> float:
    """sqrt(shift' (M M')⁻¹ shift) with M' = `columns`; inf if there is no noise in the direction of the shift."""
    size = np.sqrt(np.square(columns).sum(axis=0))
    still = size <= 1e-12 * size.max(initial=0.0)
    if np.any(np.abs(shift[still]) > 1e-9 * np.abs(shift).max(initial=0.0)):
        return float("inf")
    shift, columns = shift[~still] / size[~still], columns[:, ~still] / size[~still]
    if not shift.any():
        return 0.0
    values, vectors = np.linalg.eigh(columns.T @ columns)
    along = vectors.T @ shift
    kept = values > 1e-11 * values[-1]
    if np.linalg.norm(along[~kept]) > 1e-6 * np.linalg.norm(along):
        return float("inf")
    return float(np.sqrt(np.sum(along[kept] ** 2 / values[kept])))


def same_support(shift: np.ndarray, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether b + range(M) and b' + range(M') are the same flat set, with M' = `one`, `other` row by row."""
    bases = []
    for rows in (one, other):
        _, values, vectors = np.linalg.svd(rows, full_matrices=False)
        bases.append(vectors[values > 1e-9 * values[0]] if len(values) and values[0] > 0 else vectors[:0])
    if len(bases[0]) != len(bases[1]):
        return False
    far = [bases[1] - (bases[1] @ bases[0].T) @ bases[0], shift - (shift @ bases[0].T) @ bases[0]]
    size = float(np.linalg.norm(shift)) + 1e-300
    return bool(np.abs(far[0]).max(initial=0.0) < 1e-6 and np.linalg.norm(far[1]) < 1e-6 * size)


# ------------------------------------------------------------------------------------------------------ secret batches


def by_batches(game: Game, sampling: Sampling) -> Finding | None:
    """A bound from computed tails, if batches are secret and each inclusion of a canary has a fixed effect."""
    if not (game.secret_batches and game.neighbours.alone):
        return None
    probing = _Inclusions(game, sampling, Table(game, max(8, min(game.at_once, game.questions))))
    try:
        here, there = probing.effects(0), probing.effects(1)
    except NotLinear:
        return None
    client, door = game.neighbours.client, probing.table.players[0].place.door
    rate = float(door.rates(game.asks.batch)[client, 0])
    evidence = f"{probing.table.evidence}, which records were drawn being secret"
    return conclude(
        game, "computed", evidence, probing.played, lambda _, delta: epsilon_of_scores(here, there, rate, delta)
    )


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
        never = self._sent(side, 0, lambda ids: np.zeros((runs, len(ids))))[0]
        count, parts = self.questions.count, []
        for low in range(0, count, runs):
            moved = self._sent(side, 0, partial(np.equal, np.arange(low, low + runs)[:, None]))
            parts.append((moved - never)[: count - low])
            self.sampling.progress("batches", side * count + low, 2 * count)
        effects, chosen = np.concatenate(parts), np.random.default_rng(seed).random((runs, count)) < 0.2
        chosen[0] = False
        moved = self._sent(side, 1, lambda ids: chosen[:, ids])
        close = 1e3 * LINEAR * (np.abs(moved).max() + 1.0)
        if not np.allclose(moved[0] + chosen @ effects, moved, rtol=0, atol=close):
            raise NotLinear("inclusions do not add up")
        return effects

    def _sent(self, side: int, run: int, choose: Choose) -> np.ndarray:
        """What the client would send in each run before noise is added, in units of that noise: (runs, numbers).

        Past messages are those of run `run`.
        """
        streams = ChosenBatches(self.sampling.seed, self.table.runs, choose, self.questions, self.client)
        forced = self.table.game.tape([np.broadcast_to(answer[run], answer.shape) for answer in self._past.answers])
        self.table.players[side].play(streams, tape=forced)
        self.played += self.table.runs
        if None in forced.made:
            raise NotLinear("noise is not added at the door")
        return np.concatenate([(one.exact / one.scale).reshape(len(one.exact), -1) for one in forced.all_made], axis=1)


@dataclass(frozen=True)
class ChosenBatches(Chosen):
    """Streams whose batches hold the first record of one client in the runs where 1 is chosen for the question."""

    client: int = 0

    def uniform_rows(
        self, clients: AnyArray, sizes: Integers, round_: int, purpose: Purpose, question: int = 0, about: About = None
    ) -> Floats:
        draws = super().uniform_rows(clients, sizes, round_, purpose, question)
        for place in np.flatnonzero(np.asarray(clients) == self.client):
            inside = self.choose(self.numbers.of((round_, int(purpose), question), 1))[:, 0]
            draws[..., int(sizes[:place].sum())] = np.where(inside, 0.0, 1.0)
        return draws


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
    low, high = int(np.minimum(steps, 0).sum()), int(np.maximum(steps, 0).sum())
    size = 1 << max(4, (high - low + 1).bit_length())
    angle = 2 * np.pi * np.arange(size // 2 + 1) / size
    transform = np.ones(len(angle), dtype=np.complex128)
    for step, count in zip(*np.unique(steps, return_counts=True), strict=True):
        transform *= (1 - rate + rate * np.exp(-1j * angle * step)) ** int(count)
    weights = np.maximum(np.fft.irfft(transform * np.exp(1j * angle * low), size), 0.0)
    kept = np.flatnonzero(weights > 1e-18)
    return np.array([float(weights[kept] @ ndtr((low + kept) * STEP - t)) for t in thresholds])
