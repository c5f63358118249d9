"""Which clients take part in which round. Algorithms do not decide this, and it adds no privacy.

The server draws these sets and sees who answers, so sampling clients hides nothing from it. What counts for a client's
budget is `most(rounds)`, the largest number of rounds in which it can be asked.
"""

import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Booleans, Floats
from sottovoce.core.random.streams import SERVER, Purpose, Streams


@dataclass(frozen=True)
class Participation(ABC):
    """A rule that names the active clients of each round.

    Examples
    --------
    >>> from sottovoce.core.participation import PARTICIPATION
    >>> sorted(PARTICIPATION)
    ['bernoulli', 'covering', 'everyone', 'k-of-n', 'schedule']
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check.fields(self)

    @abstractmethod
    def masks(self, n: int, streams: Streams) -> Iterator[Booleans]:
        """For rounds 1, 2, ...: which of the `n` clients are asked, (runs?, n). The same seed gives the same sets."""

    def most(self, rounds: int) -> int:
        """The largest number of rounds in which one client can be asked."""
        return rounds

    def rate(self, n: int) -> float:
        """The probability that one of `n` clients is asked in a round, or a bound on it: some papers' claims use it."""
        return 1.0

    def answers(self, n: int) -> float:
        """How many of `n` clients are asked in a round, on average."""
        return float(n)

    @property
    def pace(self) -> float:
        """The largest share of rounds in which one client can be asked."""
        return 1.0

    def meet(self, n: int) -> bool:
        """Whether, over many rounds, all of `n` clients are linked by rounds in which two of them take part."""
        return True


@dataclass(frozen=True)
class Everyone(Participation):
    """All clients in every round.

    Examples
    --------
    >>> from sottovoce import Everyone
    >>> Everyone().most(rounds=100)
    100
    """

    name: ClassVar[str] = "everyone"

    def masks(self, n: int, streams: Streams) -> Iterator[Booleans]:
        return itertools.repeat(np.ones(streams.shape(n), dtype=bool))


@dataclass(frozen=True)
class KOfN(Participation):
    """`k` clients a round, drawn without replacement.

    Examples
    --------
    >>> from sottovoce import KOfN
    >>> from sottovoce.core.random.streams import Streams
    >>> next(KOfN(2).masks(5, Streams(0))).sum()
    np.int64(2)
    """

    k: check.Whole
    name: ClassVar[str] = "k-of-n"

    def masks(self, n: int, streams: Streams) -> Iterator[Booleans]:
        check.require(self.k <= n, "KOfN", f"k must be at most the number of clients ({n})", self.k)
        for draw in _draws(n, streams):
            yield _smallest(draw, self.k)

    def rate(self, n: int) -> float:
        return min(self.k / n, 1.0)

    def answers(self, n: int) -> float:
        return float(min(self.k, n))

    def meet(self, n: int) -> bool:
        return self.k > 1 or n == 1


@dataclass(frozen=True)
class Bernoulli(Participation):
    """Each client on its own with probability `p` (one number, or one per client).

    Examples
    --------
    >>> from sottovoce.core.participation import Bernoulli
    >>> from sottovoce.core.random.streams import Streams
    >>> next(Bernoulli([1.0, 0.5, 1.0]).masks(3, Streams(0)))[[0, 2]]
    array([ True,  True])
    """

    p: Annotated[float | Sequence[float], check.Interval(0, 1, closed=("high",), each=True)]
    name: ClassVar[str] = "bernoulli"

    def masks(self, n: int, streams: Streams) -> Iterator[Booleans]:
        p = np.atleast_1d(np.asarray(self.p, dtype=np.float64))
        check.require(len(p) in (1, n), "Bernoulli", f"p must be one number or one per client ({n})", len(p))
        for draw in _draws(n, streams):
            yield draw < p

    def rate(self, n: int) -> float:
        return float(np.max(self.p))

    def answers(self, n: int) -> float:
        return float(n * np.mean(self.p))


@dataclass(frozen=True)
class Covering(KOfN):
    """`k` clients a round, at random, but everyone at least once in each block of `within` rounds: FedEPM's (29).

    A client that was asked before in the block is asked again only while enough places are left for the others.

    Examples
    --------
    >>> from itertools import islice
    >>> from sottovoce.core.participation import Covering
    >>> from sottovoce.core.random.streams import Streams
    >>> bool(sum(islice(Covering(k=2, within=3).masks(5, Streams(0)), 3)).all())
    True
    """

    within: check.Whole
    name: ClassVar[str] = "covering"

    def masks(self, n: int, streams: Streams) -> Iterator[Booleans]:
        enough = self.k <= n <= self.k * self.within
        check.require(enough, "Covering", f"needs k <= {n} <= k * within ({n} clients)", (self.k, self.within))
        waiting = np.ones(streams.shape(n), dtype=bool)
        for past, draw in enumerate(_draws(n, streams)):
            left_in_block = self.within - past % self.within
            if left_in_block == self.within:
                waiting = np.ones_like(waiting)
            spare = self.k * left_in_block - waiting.sum(axis=-1, keepdims=True)
            rank_of_asked = np.where(waiting, np.inf, draw).argsort(axis=-1).argsort(axis=-1)
            may_come = waiting | (rank_of_asked < spare)
            mask = _smallest(np.where(may_come, draw, draw + 1), self.k)
            waiting &= ~mask
            yield mask

    def rate(self, n: int) -> float:
        return 1.0  # towards the end of a block it is certain who is asked


@dataclass(frozen=True)
class Schedule(Participation):
    """A given list of sets of clients, one per round: for example who answered in a recorded run.

    Examples
    --------
    >>> from sottovoce.core.participation import Schedule
    >>> trace = Schedule(((0, 1), (1,), (1, 2)))
    >>> trace.most(rounds=3)
    3
    """

    sets: tuple[tuple[int, ...], ...]
    name: ClassVar[str] = "schedule"

    def masks(self, n: int, streams: Streams) -> Iterator[Booleans]:
        for round_, chosen in enumerate(self.sets, start=1):
            fits = all(0 <= client < n for client in chosen)
            check.require(fits, "Schedule", f"round {round_} must name clients 0..{n - 1}, got {list(chosen)}")
            mask = np.zeros(n, dtype=bool)
            mask[list(chosen)] = True
            yield np.broadcast_to(mask, streams.shape(n))

    def most(self, rounds: int) -> int:
        named = Counter(client for chosen in self.sets[:rounds] for client in set(chosen))
        return max(named.values(), default=0)

    def answers(self, n: int) -> float:
        return sum(len(set(chosen)) for chosen in self.sets) / max(1, len(self.sets))

    @property
    def pace(self) -> float:
        return self.most(len(self.sets)) / max(1, len(self.sets))

    def meet(self, n: int) -> bool:
        groups = [{client} for client in range(n)]
        for chosen in self.sets:
            met = [group for group in groups if not group.isdisjoint(chosen)]
            for group in met[1:]:
                met[0] |= group
                groups.remove(group)
        return len(groups) == 1


PARTICIPATION: dict[str, type[Participation]] = {
    rule.name: rule for rule in (Everyone, KOfN, Bernoulli, Covering, Schedule)
}


def _draws(n: int, streams: Streams) -> Iterator[Floats]:
    """One uniform number per client and round: (runs?, n)."""
    return streams.uniform_of_rounds(SERVER, Purpose.PARTICIPATION, n)


def _smallest(draw: Floats, k: int) -> Booleans:
    """Which clients have the `k` smallest numbers."""
    chosen = np.argpartition(draw, k - 1, axis=-1)[..., :k]
    mask = np.zeros(draw.shape, dtype=bool)
    np.put_along_axis(mask, chosen, True, axis=-1)
    return mask
