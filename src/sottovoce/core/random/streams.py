"""Random streams keyed by (run, client, round, purpose): counter-based, so nobody's draws depend on who else draws.

What noise and batches are bound to besides the seed is decided in `privacy/noise_key.py`.

The generator is Philox 4x32-10 (Salmon et al., 2011): the random bits are a function of a key and a counter. The
key is made from the seed and the run; the counter is (block, client, round, purpose and question). A simulator that
draws for all clients in one call and a client that draws for itself alone therefore get the same numbers, and an
interrupted run goes on with the same numbers from any round.

These streams are for simulation and tests. Philox is not a cryptographic generator, and whoever knows the seed
knows the noise: a guarantee made with them says so, and noise that leaves a machine comes from the operating
system instead (`privacy/discrete_noise.py`).
"""

import hashlib
import math
import secrets
import sys
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from sottovoce.core import check

SERVER = 0xFFFFFFFF  # the client number under which the server draws
KERNEL_PAYS_FROM, THREADS_PAY_FROM = 4096, 1 << 18  # numbers in one draw, which are the same either way
_QUESTION_BITS = 24
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
About = np.ndarray | None  # four words of 32 bits (held as uint64) for each client: see `Streams.bits`


class Purpose(IntEnum):
    """What a draw is for: two purposes never share numbers."""

    KEY = 0
    NOISE = 1
    BATCH = 2
    RELEASE = 3
    ALGORITHM = 4
    PARTICIPATION = 5
    BINDING = 6


def philox(counter: tuple, key: tuple) -> tuple[np.ndarray, ...]:
    """Philox 4x32-10 on broadcastable arrays of 32-bit words (held as uint64): four words out."""
    c0, c1, c2, c3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = (np.asarray(word, dtype=np.uint64) for word in key)
    for bump in range(10):
        round0 = (k0 + np.uint64(bump * _W0 & 0xFFFFFFFF)) & _LOW
        round1 = (k1 + np.uint64(bump * _W1 & 0xFFFFFFFF)) & _LOW
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ round0, p1 & _LOW, (p0 >> _32) ^ c3 ^ round1, p0 & _LOW
    return c0, c1, c2, c3


@dataclass(frozen=True)
class Streams:
    """The random numbers of one training run, or of `runs` independent ones at once (a leading axis on every draw)."""

    seed: int = field(repr=False)  # whoever has it has the noise
    runs: int | None = None
    drawn: bool = field(default=False, kw_only=True)  # by the operating system: then it must never be written

    def __post_init__(self) -> None:
        check.whole("Streams", at_least=0, seed=self.seed)
        if self.runs is not None:
            check.whole("Streams", runs=self.runs)

    @classmethod
    def unpredictable(cls, runs: int | None = None) -> "Streams":
        """Streams whose seed comes from the operating system."""
        return cls(secrets.randbits(128), runs, drawn=True)

    def derived(self, about: str) -> "Streams":
        """Other streams, the same for the same `about`. Whoever holds them cannot tell the ones they came from."""
        return _derived(self.seed, self.runs, about)

    @cached_property
    def _keys(self) -> tuple[np.ndarray, np.ndarray]:
        """One 64-bit key per run, made from the seed by Philox: two words, of shape (runs, 1, 1) or scalars."""
        words = [int(word) for word in np.random.SeedSequence(self.seed).generate_state(4)]
        run = np.arange(self.runs or 1, dtype=np.uint64)
        k0, k1, _, _ = philox((run, words[2], words[3], int(Purpose.KEY)), (words[0], words[1]))
        if self.runs is None:
            return k0[0], k1[0]
        return k0[:, None, None], k1[:, None, None]

    def bits(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        """`count` words of 64 random bits for each client: (runs?, clients, count).

        `about`: what these bits are bound to besides, four words of 32 bits for each client (runs?, clients, 4). Bits
        about different things have different keys.
        """
        if compiled_pays(len(clients) * count * (self.runs or 1)):
            return self._bits_by_kernel(clients, round_, _tag(purpose, question), count, about)
        blocks = np.arange((count + 1) // 2, dtype=np.uint64)
        owner = np.asarray(clients, dtype=np.uint64)[:, None]
        a, b, c, d = philox((blocks, owner, round_, _tag(purpose, question)), self._keys_about(about))
        pairs = np.stack([(a << _32) | b, (c << _32) | d], axis=-1)
        return pairs.reshape(*pairs.shape[:-2], -1)[..., :count]

    def _keys_about(self, about: About) -> tuple[np.ndarray, np.ndarray]:
        """The keys for bits about something: those of the runs, changed for each client, (runs?, clients, 1)."""
        if about is None:
            return self._keys
        k0, k1, _, _ = philox(tuple(about[..., word, None] for word in range(4)), self._keys)
        return k0, k1

    def _bits_by_kernel(self, clients: np.ndarray, round_: int, tag: int, count: int, about: About) -> np.ndarray:
        from sottovoce.core.random import compiled

        shape = (self.runs or 1, len(clients), 1)
        k0, k1 = (np.broadcast_to(key, shape).astype(np.uint64).reshape(-1) for key in self._keys_about(about))
        out = np.empty((*shape[:2], count), dtype=np.uint64)
        fill = compiled.fill(out.size >= THREADS_PAY_FROM)
        fill(k0, k1, np.ascontiguousarray(clients, dtype=np.uint64), np.uint64(round_), np.uint64(tag), out)
        return out[0] if self.runs is None else out

    def uniform(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        """Uniform numbers strictly inside (0, 1): (runs?, clients, count)."""
        return to_unit(self.bits(clients, round_, purpose, count, question, about))

    def uniform_rows(
        self,
        clients: np.ndarray,
        sizes: np.ndarray,
        round_: int,
        purpose: Purpose,
        question: int = 0,
        about: About = None,
    ) -> np.ndarray:
        """One uniform number per row of each client, clients of unequal sizes end to end: (runs?, sizes.sum())."""
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
        return to_unit(np.where(odd, (c << _32) | d, (a << _32) | b))

    def normal(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        """Standard normal numbers: (runs?, clients, count)."""
        return normal(self.bits(clients, round_, purpose, count, question, about))

    def laplace(
        self, clients: np.ndarray, round_: int, purpose: Purpose, count: int, question: int = 0, about: About = None
    ) -> np.ndarray:
        """Laplace numbers of scale 1: (runs?, clients, count)."""
        q = self.uniform(clients, round_, purpose, count, question, about) - 0.5
        return np.copysign(np.log(1 - 2 * np.abs(q)), q)  # of an exact number, so no digit is lost where it is near 1


@lru_cache(maxsize=128)  # every round asks for the same few, and their keys are dear to make
def _derived(seed: int, runs: int | None, about: str) -> Streams:
    digest = hashlib.sha256(f"{seed} {about}".encode()).digest()
    return Streams(int.from_bytes(digest[:16], "big"), runs)


class Draw:
    """The random numbers an algorithm may use in one round at one place: each call asks a fresh question."""

    def __init__(self, streams: Streams, clients: np.ndarray, round_: int) -> None:
        # Of its own: an algorithm that looks inside must not find the noise of its oracle.
        self._streams = streams.derived("algorithm")
        self._clients, self._round, self._question = clients, round_, 0

    def uniform(self, count: int) -> np.ndarray:
        """Uniform on (0, 1): (..., count), one row per client (one row at the server)."""
        return self._streams.uniform(self._clients, self._round, Purpose.ALGORITHM, count, self._next())

    def normal(self, count: int) -> np.ndarray:
        """Standard normal: (..., count), one row per client (one row at the server)."""
        return self._streams.normal(self._clients, self._round, Purpose.ALGORITHM, count, self._next())

    def _next(self) -> int:
        self._question += 1
        return self._question - 1


def _tag(purpose: Purpose, question: int) -> int:
    check.require(0 <= question < 1 << _QUESTION_BITS, "Streams", "at most 2^24 questions a round", question)
    return int(purpose) << _QUESTION_BITS | question


# Wichura (1988), algorithm AS 241. The normal quantile of 0.5 + q, for |q| <= 0.425, is q A(r)/B(r), r = 0.425² − q²;
# that of p, for e^-25 <= p <= 0.075, is −C(r)/D(r), r = sqrt(−log p) − 1.6, and at e^-25 it is −6.66.
A = (
    *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
    *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
)
B = (
    *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
    *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)
C = (
    *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0),
    *(3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
)
D = (
    *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1),
    *(6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)
LOG_2, ROOT_2 = math.log(2), math.sqrt(2)
LOG_SERIES = tuple(2 / n for n in range(21, 0, -2))  # log((1 + s)/(1 − s)) = 2s + 2s³/3 + 2s⁵/5 + …
TABLES = (A, B, C, D, LOG_2, ROOT_2, LOG_SERIES)


def normal(bits: np.ndarray) -> np.ndarray:
    """Standard normal numbers, one from each 64 bits: the inverse distribution function of a uniform number.

    It is put together from sums, products, quotients and square roots, which give the same number in a compiled loop
    and here; a logarithm of a library would not. What is longer than 6.6, once in 2e10, is SciPy's.
    """
    from scipy.special import ndtri

    flat = np.ascontiguousarray(bits).reshape(-1)
    numbers = np.empty(flat.size)
    if compiled_pays(flat.size):
        from sottovoce.core.random import compiled

        quantile = compiled.quantile(flat.size >= THREADS_PAY_FROM)
        quantile(flat, numbers)
    else:
        q = to_unit(flat) - 0.5
        tails = np.abs(q) > 0.425
        numbers[:] = middle_quantile(q)
        numbers[tails] = tail_quantile(q[tails])
    far = np.flatnonzero(np.abs(numbers) > 6.6)
    if len(far):
        numbers[far] = ndtri(to_unit(flat[far]))
    return numbers.reshape(bits.shape)


# The next three are compiled as they stand, for single numbers, and are unrolled so that several are worked on at once.
def to_unit(bits: Any) -> Any:
    # 52 bits and a half step: with 53 the largest value would round to 1, where the normal quantile is infinite.
    # As the digits of a number in [1, 2), of which 1 is taken: no conversion, and exact.
    return np.uint64((bits >> np.uint64(12)) | np.uint64(0x3FF << 52)).view(np.float64) - (1 - 2.0**-53)


def middle_quantile(q: Any) -> Any:
    """The quantile of 0.5 + q, for |q| <= 0.425."""
    a, b, r = A, B, 0.180625 - q * q
    above = ((((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * r + a[6]) * r + a[7]
    below = ((((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + b[5]) * r + b[6]) * r + b[7]
    return q * above / below


def tail_quantile(q: Any) -> Any:
    """The quantile of 0.5 + q, for |q| > 0.425."""
    p = 0.5 - np.abs(q)  # exact, and so is q itself
    digits = np.float64(p).view(np.uint64)
    # p = leading · 2^exponent; a whole number becomes a real one as the last digits of 2^52.
    exponent = np.uint64((digits >> np.uint64(52)) | np.uint64(0x433 << 52)).view(np.float64) - (2.0**52 + 1023)
    leading = np.uint64((digits & np.uint64((1 << 52) - 1)) | np.uint64(0x3FF << 52)).view(np.float64)
    s = (leading - ROOT_2) / (leading + ROOT_2)
    e, t = LOG_SERIES, s * s
    series = (((((e[0] * t + e[1]) * t + e[2]) * t + e[3]) * t + e[4]) * t + e[5]) * t + e[6]
    series = (((series * t + e[7]) * t + e[8]) * t + e[9]) * t + e[10]
    c, d, r = C, D, np.sqrt(-((exponent + 0.5) * LOG_2 + s * series)) - 1.6
    above = ((((((c[0] * r + c[1]) * r + c[2]) * r + c[3]) * r + c[4]) * r + c[5]) * r + c[6]) * r + c[7]
    below = ((((((d[0] * r + d[1]) * r + d[2]) * r + d[3]) * r + d[4]) * r + d[5]) * r + d[6]) * r + d[7]
    return np.copysign(above / below, q)


def compiled_pays(count: int) -> bool:
    return count >= KERNEL_PAYS_FROM and "numba" in sys.modules
