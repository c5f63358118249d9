"""The exact law of a transcript that is linear in Gaussian noise, read off the algorithm by feeding it that noise.

Where all losses are linear (or quadratic) every message is b + M ξ with ξ standard normal: all numbers drawn in the
run, wherever they are drawn and whether or not anyone sees them. A run with ξ = 0 shows b, one with a single 1 in ξ
shows a column of M. Two neighbours with the same M are two Gaussians of the same covariance M M', so as private as
N(0, 1) against N(mu, 1) with mu² = (b − b')' (M M')⁻¹ (b − b').
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sottovoce.core.random.streams import SERVER, About, Purpose, Streams

LINEAR = 1e-7  # relative: how well messages must be reproduced by b + M ξ
MOST_NUMBERS = 40_000  # drawn in a run, each of which needs a run of its own
TRIES = 5
MOST_MESSAGES = 4_000  # numbers sent in a run


class NotLinear(Exception):
    """This run is not linear in Gaussian noise (or too long to be looked at in this way)."""


@dataclass
class Numbers:
    """Which numbers were drawn, told apart by who drew them, when and for what, as `Streams` does: noise that an
    algorithm uses twice is one number here too."""

    count: int = 0
    places: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def of(self, key: tuple[int, ...], count: int) -> np.ndarray:
        if key not in self.places:
            self.places[key] = np.arange(self.count, self.count + count)
            self.count += count
        return self.places[key]


@dataclass(frozen=True)
class Probe(Streams):
    """Streams whose normal numbers are chosen: `choose(numbers)` gives them as (runs, numbers). Public coins are the
    same in all runs."""

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
        same = self._public.bits(clients, round_, purpose, count, question)
        return np.broadcast_to(same, (self.runs or 1, *same.shape))

    def uniform_rows(self, *_: Any, **__: Any) -> np.ndarray:
        raise NotLinear("random batches")

    def laplace(self, *_: Any, **__: Any) -> np.ndarray:
        raise NotLinear("Laplace noise")

    @cached_property
    def _public(self) -> Streams:
        return Streams(self.seed)


Messages = Callable[[int, Probe], np.ndarray]
"""messages(side, streams): all that was sent when the side's data was played with these streams, (runs, numbers)."""


def transcript_mu(
    messages: Messages, seed: int, at_once: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> float:
    """mu of the pair of transcripts; inf if one message tells the two apart. `NotLinear` where that does not apply."""
    numbers = Numbers()
    noise = np.random.default_rng(seed).standard_normal((TRIES, MOST_NUMBERS))
    noise[0] = 0.0

    def some(ids: np.ndarray) -> np.ndarray:
        if numbers.count > MOST_NUMBERS:
            raise NotLinear(f"more than {MOST_NUMBERS} random numbers in a run are too many to look at one by one")
        return noise[:, ids]

    here, there = (messages(side, Probe(seed, TRIES, some, numbers)) for side in (0, 1))
    if here.shape[1] > MOST_MESSAGES:
        raise NotLinear(f"{here.shape[1]} numbers sent in a run are more than {MOST_MESSAGES}")

    def columns(side: int, sent: np.ndarray) -> np.ndarray:
        """M', row by row, checked against the runs with noise."""
        found = np.empty((numbers.count, sent.shape[1]))
        for low in range(0, numbers.count, at_once):
            high = min(low + at_once, numbers.count)
            units = Probe(seed, high - low, lambda ids, low=low, high=high: _units(ids, low, high), numbers)
            found[low:high] = messages(side, units) - sent[0]
            progress(high, numbers.count)
        size = np.abs(sent).max() + 1e-300
        if not np.allclose(sent[0] + noise[:, : numbers.count] @ found, sent, rtol=0, atol=LINEAR * size):
            raise NotLinear("messages are not linear in the noise")
        return found

    apart = here - there
    if np.allclose(apart, apart[:1], rtol=0, atol=LINEAR * (np.abs(here).max() + np.abs(there).max())):
        return distance(apart[0], columns(0, here))
    # Another M: two Gaussians of different shape. If one can be where the other cannot, a message tells them apart.
    if same_support(apart[0], columns(0, here), columns(1, there)):
        raise NotLinear("neighbours react differently to the same noise")
    return float("inf")


def _units(ids: np.ndarray, low: int, high: int) -> np.ndarray:
    return (ids == np.arange(low, high)[:, None]).astype(np.float64)


def distance(shift: np.ndarray, columns: np.ndarray) -> float:
    """sqrt(shift' (M M')⁻¹ shift) with M' = `columns`; inf if the noise does not reach in the shift's direction."""
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
