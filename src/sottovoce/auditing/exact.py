"""The exact distribution of a transcript that is linear in Gaussian noise, found by feeding noise to the algorithm.

If all losses are linear (or quadratic), every message is b + M ξ with ξ standard normal: all numbers drawn in the run,
wherever they are drawn and whether or not anyone sees them. A run with ξ = 0 shows b; a run with a single 1 in ξ shows
a column of M. Two neighbours with the same M are two Gaussians with the same covariance M M'. They are as hard to tell
apart as N(0, 1) and N(mu, 1), mu² = (b − b')' (M M')⁻¹ (b − b').
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from sottovoce.auditing.finding import Finding, conclude
from sottovoce.auditing.game import Game, Player, Sampling
from sottovoce.auditing.ratio import exact_epsilon
from sottovoce.core.random.streams import SERVER, About, Purpose, Streams

LINEAR = 1e-7  # relative: how closely b + M ξ must reproduce the messages
MOST_NUMBERS = 40_000  # drawn in a run: each of them needs a run of its own
TRIES = 5  # runs with noise that check b + M ξ
MOST_MESSAGES = 4_000  # numbers sent in a run


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
        player_of(side, runs).play(
            streams, lambda down, up: sent.extend(array.reshape(runs, -1) for array in up.values())
        )
        played += runs
        return np.concatenate(sent, axis=1)

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


@dataclass(frozen=True)
class Probe(Streams):
    """Streams whose normal numbers are chosen: `choose(numbers)` gives them as (runs, numbers). The server's public
    random numbers are the same in all runs."""

    choose: Callable[[np.ndarray], np.ndarray] = field(default=lambda ids: np.zeros((1, len(ids))), compare=False)
    numbers: Numbers = field(default_factory=Numbers, compare=False)

    def derived(self, about: str) -> "Probe":
        return self

    def normal(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        ids = [self.numbers.of((int(client), round_, int(purpose), question), count) for client in clients]
        return self.choose(np.concatenate(ids)).reshape(self.runs or 1, len(clients), count)

    def bits(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        if purpose is not Purpose.ALGORITHM or any(int(client) != SERVER for client in clients):
            raise NotLinear("random numbers that are neither Gaussian nor the server's")
        same = Streams(self.seed).bits(clients, round_, purpose, count, question)
        return np.broadcast_to(same, (self.runs or 1, *same.shape))

    def uniform_rows(self, *_: object, **__: object) -> np.ndarray:
        raise NotLinear("random batches")


Messages = Callable[[int, Probe], np.ndarray]
"""messages(side, streams): all numbers that were sent on this side's data with these streams, (runs, numbers)."""


def transcript_mu(
    messages: Messages, seed: int, at_once: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> float:
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
            units = Probe(seed, high - low, lambda ids, low=low, high=high: _units(ids, low, high), numbers)
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


def _units(ids: np.ndarray, low: int, high: int) -> np.ndarray:
    return (ids == np.arange(low, high)[:, None]).astype(np.float64)


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
