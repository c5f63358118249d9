"""Random numbers as a function of (seed, run, client, round, purpose, question): no draw depends on who else draws.

What noise and batches are bound to besides the seed is decided in `privacy/noise_key.py`.

The generator is Philox (`philox.py`). Its key is made from the seed and the run; its counter is (block, client, round,
purpose and question). So a simulator that draws for all clients in one call and a client that draws for itself alone
get the same numbers, and an interrupted run continues with the same numbers from any round.

These streams are for simulation and tests. Philox is not a cryptographic generator, and whoever knows the seed
knows the noise: a guarantee made with them says so. Noise that leaves a machine comes from the operating system instead
(`privacy/discrete_noise.py`).
"""

import hashlib
import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, cached_property, lru_cache, partial

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Integers, Numbers, Words
from sottovoce.core.compiling import KERNEL_PAYS_FROM, THREADS, Kernel, compiled_pays
from sottovoce.core.random.binding import Bound, Factors
from sottovoce.core.random.normal import normal
from sottovoce.core.random.philox import joined, philox
from sottovoce.core.random.quantiles import to_unit

SERVER = 0xFFFFFFFF  # the client number under which the server draws
_QUESTION_BITS = 24
_BITS, _NORMAL = 0.5, 2.5  # nanoseconds for a random number, about
_ABOUT_NOTHING = np.zeros((1, 0, 4), np.uint64)
_NO_WORDS = np.zeros((0, 2), np.uint64)
_UNBOUND = Bound(Factors(_NO_WORDS, _NO_WORDS, _NO_WORDS), np.zeros((1, 1, 2), np.uint64), _NO_WORDS)
Rounds = int | Words  # a number, or few of them as (rounds, 1, 1, 1): see `Streams.uniform_of_rounds`
About = Words | None  # four words of 32 bits (held as uint64) for each client: see `Streams.bits`


class Purpose(IntEnum):
    """What a draw is for: two purposes never share numbers."""

    KEY = 0
    NOISE = 1
    BATCH = 2
    RELEASE = 3
    ALGORITHM = 4
    PARTICIPATION = 5
    BINDING = 6


@dataclass(frozen=True)
class Streams:
    """The random numbers of one training run, or of `runs` independent ones at once (a leading axis on every draw)."""

    seed: check.WholeOrZero = field(repr=False)  # whoever knows it knows the noise
    runs: check.Whole | None = None
    drawn: bool = field(default=False, kw_only=True)  # by the operating system: then it must never be stored

    def __post_init__(self) -> None:
        check.fields(self)

    @classmethod
    def unpredictable(cls, runs: int | None = None) -> "Streams":
        """Streams whose seed comes from the operating system."""
        return cls(secrets.randbits(128), runs, drawn=True)

    def derived(self, about: str) -> "Streams":
        """Other streams, the same for the same `about`. These streams cannot be computed from them."""
        return _derived(self.seed, self.runs, about)

    @cached_property
    def of_algorithms(self) -> "Streams":
        """What algorithms draw from."""
        return self.derived("algorithm")

    def shape(self, clients: int) -> tuple[int, ...]:
        """(clients,), or (runs, clients) where there are several runs."""
        return (clients,) if self.runs is None else (self.runs, clients)

    @cached_property
    def _keys(self) -> tuple[Words, Words]:
        """One 64-bit key per run, made from the seed by Philox: two words, of shape (runs, 1, 1) or scalars."""
        words = [int(word) for word in np.random.SeedSequence(self.seed).generate_state(4)]
        run = np.arange(self.runs or 1, dtype=np.uint64)
        k0, k1, _, _ = philox((run, words[2], words[3], int(Purpose.KEY)), (words[0], words[1]))
        if self.runs is None:
            return k0[0], k1[0]
        return k0[:, None, None], k1[:, None, None]

    @cached_property
    def _key_of_each_run(self) -> tuple[Words, Words]:
        k0, k1 = (np.atleast_1d(key).reshape(-1) for key in self._keys)
        return k0, k1

    def bits(
        self, clients: AnyArray, round_: Rounds, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> Words:
        """`count` words of 64 random bits for each client: (runs?, clients, count).

        `about`: what else these bits are bound to, four words of 32 bits for each client (runs?, clients, 4). Bits
        that are bound to different things have different keys. Of few `Rounds` at once: (rounds, runs or 1, clients,
        count).
        """
        if compiled_pays(len(clients) * count * (self.runs or 1)):
            from sottovoce.core.random import compiled

            out = np.empty((self.runs or 1, len(clients), count), dtype=np.uint64)
            given = *self._key_of_each_run, self._bound_to(about), *self._whose(clients, round_, purpose, question)
            return self._by_kernel(compiled.fill(), given, out, _BITS)
        blocks = np.arange((count + 1) // 2, dtype=np.uint64)
        owner = np.asarray(clients, dtype=np.uint64)[:, None]
        a, b, c, d = philox((blocks, owner, round_, _tag(purpose, question)), self._keys_about(about))
        pairs = np.stack([joined(a, b), joined(c, d)], axis=-1)
        return pairs.reshape(*pairs.shape[:-2], -1)[..., :count]

    def _keys_about(self, about: About) -> tuple[Words, Words]:
        """The keys for bits that are bound to `about`, for each client: (runs?, clients, 1)."""
        if about is None:
            return self._keys
        k0, k1, _, _ = philox(tuple(about[..., word, None] for word in range(4)), self._keys)
        return k0, k1

    def _whose(
        self, clients: AnyArray, round_: Rounds, purpose: Purpose, question: int
    ) -> tuple[Words | np.uint64, ...]:
        """The counter of the compiled loops, but for the block."""
        numbers = clients.view(np.uint64) if clients.dtype == np.int64 else np.asarray(clients, np.uint64)  # >= 0
        return np.ascontiguousarray(numbers), np.uint64(round_), np.uint64(_tag(purpose, question))

    def _bound_to(self, about: About) -> Words:
        """What changes the keys, for the compiled loops: (runs or 1, clients, 4), or empty."""
        return _ABOUT_NOTHING if about is None else np.ascontiguousarray(self._of_each_run(about, about.shape[-2]))

    def _of_each_run(self, words: Words, clients: int) -> Words:
        """What numbers are bound to as (runs or 1, clients, words)."""
        bound = words.reshape(-1, clients, words.shape[-1])
        fits = len(bound) in (1, self.runs or 1)  # else runs would share their numbers
        check.require(fits, "Streams", "numbers must be bound to something for each run, or to the same", len(bound))
        return bound

    def _by_kernel(
        self, kernel: Kernel, given: tuple[AnyArray | np.uint64, ...], out: np.ndarray, each: float
    ) -> np.ndarray:
        """`out` (runs, clients, count), filled by a loop of `compiled.py` that takes so long for `each` number."""
        ends = range(out.shape[0] * out.shape[1] + 1)
        THREADS.share(partial(kernel, *given, out), ends, each * out.size)
        return out[0] if self.runs is None else out

    def uniform(
        self, clients: AnyArray, round_: Rounds, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> Floats:
        """Uniform numbers strictly inside (0, 1): (runs?, clients, count)."""
        return to_unit(self.bits(clients, round_, purpose, count, question, about))

    def uniform_of_rounds(self, client: int, purpose: Purpose, count: int) -> Iterator[Floats]:
        """Uniform numbers of one client for the rounds 1, 2, ...: (runs?, count).

        NumPy takes hardly longer for many numbers than for few, so it draws those of several rounds at once.
        """
        clients, at_once = np.array([client], np.uint64), max(1, KERNEL_PAYS_FROM // (count * (self.runs or 1)))
        for low in itertools.count(1, at_once):
            rounds = np.arange(low, low + at_once, dtype=np.uint64)[:, None, None, None]
            drawn = self.uniform(clients, rounds if at_once > 1 else low, purpose, count)
            yield from drawn.reshape(at_once, *self.shape(count))

    def uniform_rows(
        self, clients: AnyArray, sizes: Integers, round_: int, purpose: Purpose, question: int = 0, about: About = None
    ) -> Floats:
        """One uniform number per row of each client, one client after the other: (runs?, sizes.sum())."""
        if len(sizes) and (sizes == sizes[0]).all():
            table = self.uniform(clients, round_, purpose, int(sizes[0]), question, about)
            return table.reshape(*table.shape[:-2], -1)
        starts = np.cumsum(sizes) - sizes
        index = np.arange(int(sizes.sum()), dtype=np.uint64) - np.repeat(starts, sizes).astype(np.uint64)
        owner = np.repeat(np.asarray(clients, dtype=np.uint64), sizes)
        k0, k1 = self._keys_about(about)
        if np.ndim(k0):
            k0, k1 = (np.repeat(key, 1 if key.shape[-2] == 1 else sizes, axis=-2)[..., 0] for key in (k0, k1))
        a, b, c, d = philox((index >> np.uint64(1), owner, round_, _tag(purpose, question)), (k0, k1))
        odd = (index & np.uint64(1)).astype(bool)
        return to_unit(np.where(odd, joined(c, d), joined(a, b)))

    def normal(
        self, clients: AnyArray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> Floats:
        """Standard normal numbers: (runs?, clients, count)."""
        n, runs = len(clients), self.runs or 1
        if compiled_pays(n * count * runs):
            from sottovoce.core.random import compiled

            given = *self._key_of_each_run, self._bound_to(about), *self._whose(clients, round_, purpose, question)
            return self._by_kernel(compiled.normal(), given, np.empty((runs, n, count)), _NORMAL)
        return normal(self.bits(clients, round_, purpose, count, question, about))

    def noisy(
        self, exact: Floats, scale: Numbers, clients: AnyArray, round_: int, purpose: Purpose, question: int = 0,
        bound: Bound | None = None, in_place: bool = False,
    ) -> Floats:  # fmt: skip
        """`exact` (runs?, clients, count) plus `scale` times a normal number for each.

        `scale`: one number, or (runs?, clients or 1, 1).

        One loop over the answer, where NumPy makes many. `in_place`: the memory of `exact` may be used for the sums.
        """
        shape, count, scale = self.shape(len(clients)), exact.shape[-1], np.asarray(scale, np.float64)
        whole = exact if exact.shape[:-1] == shape else np.broadcast_to(exact, (*shape, count))
        whole = np.ascontiguousarray(whole) if in_place and whole is exact else np.array(whole, order="C")
        scale = np.ascontiguousarray(scale if scale.shape == (*shape, 1) else np.broadcast_to(scale, (*shape, 1)))
        if compiled_pays(whole.size):
            factors, others, rows = _UNBOUND if bound is None else bound
            others = np.ascontiguousarray(self._of_each_run(others, others.shape[-2]))
            whose, out = self._whose(clients, round_, purpose, question), whole.reshape(self.runs or 1, -1, count)
            given = *self._key_of_each_run, factors.table, others, rows, *whose, scale.reshape(-1), out.view(np.uint32)
            return self._by_kernel(_noisy(), given, out, _NORMAL)
        about = None if bound is None else bound.words(whole)
        return normal(self.bits(clients, round_, purpose, count, question, about)) * scale + whole

    def laplace(
        self, clients: AnyArray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> Floats:
        """Laplace numbers of scale 1: (runs?, clients, count)."""
        q = self.uniform(clients, round_, purpose, count, question, about) - 0.5
        return np.copysign(np.log(1 - 2 * np.abs(q)), q)  # 1 - 2|q| is exact, so no digit is lost where it is near 1


@lru_cache(maxsize=128)  # every round asks for the same few, and their keys take long to make
def _derived(seed: int, runs: int | None, about: str) -> Streams:
    digest = hashlib.sha256(f"{seed} {about}".encode()).digest()
    return Streams(int.from_bytes(digest[:16], "big"), runs)


@cache
def _noisy() -> Kernel:
    """Kept: an import statement in each round takes longer than the call of the loop."""
    from sottovoce.core.random.compiled import noisy

    return noisy()


class Draw:
    """The random numbers that an algorithm may use in one round: every call gives new ones."""

    def __init__(self, streams: Streams, clients: AnyArray, round_: int) -> None:
        # Separate streams: an algorithm that looks inside must not find the noise of its oracle.
        self._streams = streams.of_algorithms
        self._clients, self._round, self._question = clients, round_, 0

    def uniform(self, count: int) -> Floats:
        """Uniform on (0, 1): (..., count), one row per client (one row at the server)."""
        return self._streams.uniform(self._clients, self._round, Purpose.ALGORITHM, count, self._next())

    def normal(self, count: int) -> Floats:
        """Standard normal: (..., count), one row per client (one row at the server)."""
        return self._streams.normal(self._clients, self._round, Purpose.ALGORITHM, count, self._next())

    def _next(self) -> int:
        self._question += 1
        return self._question - 1


def _tag(purpose: Purpose, question: int) -> int:
    check.require(0 <= question < 1 << _QUESTION_BITS, "Streams", "at most 2^24 questions a round", question)
    return int(purpose) << _QUESTION_BITS | question
