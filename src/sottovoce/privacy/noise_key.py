"""What noise is bound to. How it is bound is decided here, and nowhere else; `Task.key` names the parts of a task.

Noise that two different answers share cancels in their difference and leaves an exact number; and two answers that are
paid for, equal, with equal noise, show that they are equal. So seeded noise is a function of the seed and of everything
that an answer depends on:

* the task: algorithm, objective (of a neural model every parameter, buffer and the code of its layers), privacy,
  participation, rounds, what each answer is (`Event`), the bound on rows, and the engine that computes;
* each client's own rows as they are used: prepared, labels coded, in their storage type. One digest per client, so that
  one client alone and all clients together draw the same numbers;
* the client, the round, the purpose and the number of the question;
* what is asked: the point, or the start, centre and constants of an arg-min, of local steps or of a fit;
* the exact answer itself, and the scale of the noise. What the list above forgets, this catches: two answers that
  differ in any bit have different noise.

Batches are bound to all of it but the answer. So noise and batches are the same twice only where the same question is
asked about the same rows in the same run played again, and then the answer is the same too: it tells nothing new.

How. The seed and the task give a Philox key (`core/random/streams.py`). The words of an exact answer and of what is
asked are hashed by a multilinear function with secret factors (`core/random/binding.py`): two different answers collide
with probability 2^-64. That hash and the digest of the rows then change the key. It is a function for simulations:
whoever knows the seed knows the noise, and noise that leaves a machine comes from the operating system instead
(`privacy/discrete_noise.py`).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import lru_cache, reduce
from typing import NamedTuple, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Matrix, is_sparse, of_clients, unwritable
from sottovoce.core.random.binding import Bound, Factors, sums
from sottovoce.core.random.bits import SeededBits
from sottovoce.core.random.streams import SERVER, Purpose, Streams

_NOTHING = np.zeros((1, 0))  # used where there is no exact answer
_FEW = 4096  # numbers whose hash may be kept
_NO_SUMS = np.zeros((1, 2), np.uint64)


class Occasion(NamedTuple):
    """For whom and for what random numbers are drawn."""

    who: np.ndarray  # the clients' numbers in the federation
    local: np.ndarray  # their places on this machine
    k: int  # the round
    purpose: Purpose
    question: int = 0  # its number in the round


@dataclass(frozen=True, eq=False, repr=False)
class NoiseKey:
    """The random numbers of one task on the rows of the clients on this machine.

    Parameters
    ----------
    streams
        Those of the seed and the task: see `of_task`.
    rows
        Two words of 32 bits for each client on this machine, (clients, 2): see `rows_digests`.
    """

    streams: Streams
    rows: np.ndarray

    @classmethod
    def of_task(cls, streams: Streams, rows: np.ndarray, *task: object) -> "NoiseKey":
        """The key for a seed's streams, the digests of the rows, and all settings that an answer depends on."""
        return cls(streams.derived(stable_text(task)), rows)

    def noise(
        self, kind: str, at: Occasion, exact: np.ndarray, asked: Sequence[np.ndarray] = (), count: int = 0
    ) -> np.ndarray:
        """Noise of deviation 1 (Laplace: of scale 1) for an exact answer: (runs?, clients, its length, or `count`).

        `asked`: what else the noise is bound to, arrays with a client axis, the last but one.
        """
        draw = self.streams.laplace if kind == "laplace" else self.streams.normal
        bound = self.binding(at.local, (exact, *asked))
        return draw(at.who, at.k, at.purpose, count or exact.shape[-1], at.question, bound)

    def noisy(
        self, kind: str, scale: np.ndarray | float, at: Occasion, exact: np.ndarray, asked: Sequence[np.ndarray] = (),
        in_place: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """An exact answer plus `noise` for it times `scale`: a number, or numbers that fit the answer.

        `in_place`: the memory of the exact answer may be used for the noisy one.
        """
        scale = np.asarray(scale)
        if kind != "laplace" and scale.shape[-1:] in ((), (1,)):  # one for each client
            bound = self.bound(at.local, exact.shape[-1], asked)
            whose = at.who, at.k, at.purpose, at.question
            return self.streams.noisy(exact, scale, *whose, bound, in_place)
        noise = self.noise(kind, at, exact, asked)
        noise *= scale
        noise += exact  # in place: numbers of an answer that is larger than its noise would share it, so it is refused
        return noise

    def bits(self, at: Occasion, arrays: Sequence[np.ndarray]) -> list[SeededBits]:
        """A stream of bits for each client (of each run, runs first), bound as noise is: for noise on a grid."""
        words, n = self.binding(at.local, arrays), len(at.local)
        table = np.broadcast_to(np.zeros((n, 4)) if words is None else words, (*self.streams.shape(n), 4))
        named, numbers, seed = f"{at.k} {int(at.purpose)} {at.question}", at.who.tolist(), self.streams.seed
        return [
            SeededBits(seed, f"{place[:-1]} {numbers[place[-1]]} {named} {words_of}")
            for place, words_of in zip(np.ndindex(table.shape[:-1]), table.reshape(-1, 4).tolist(), strict=True)
        ]

    def uniform(self, at: Occasion, exact: np.ndarray) -> np.ndarray:
        """One uniform number in (0, 1) for each number of an exact answer, bound to it as noise is."""
        about = self.binding(at.local, (exact,))
        return self.streams.uniform(at.who, at.k, at.purpose, exact.shape[-1], at.question, about)

    def batch(self, at: Occasion, sizes: np.ndarray, asked: Sequence[np.ndarray] = ()) -> np.ndarray:
        """One uniform number for each row of these clients, end to end: who is in a batch follows from them."""
        about = self.binding(at.local, (_NOTHING, *asked))
        return self.streams.uniform_rows(at.who, sizes, at.k, at.purpose, at.question, about)

    def binding(self, local: np.ndarray, arrays: Sequence[np.ndarray]) -> np.ndarray | None:
        """Four words for each client: a hash of these arrays, and the digest of its rows."""
        bound = self.bound(local, arrays[0].shape[-1], arrays[1:])
        return None if bound is None else bound.words(arrays[0])

    def bound(self, local: np.ndarray, count: int, asked: Sequence[np.ndarray]) -> Bound | None:
        """What the noise of an answer of `count` numbers is bound to, but for the answer itself."""
        rows, seed = of_clients(self.rows, local), self.streams.seed
        hashed = [_sums(array, seed, place) for place, array in enumerate(asked, 1)]
        return Bound(_factors(seed, count, 0), reduce(np.add, hashed or [_NO_SUMS]), rows)


@dataclass(frozen=True, eq=False, repr=False)
class SharedNoise(NoiseKey):
    """Noise bound to the question alone, for audits: they compare two data sets under the same noise."""

    rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.uint64))

    def bound(self, local: np.ndarray, count: int, asked: Sequence[np.ndarray]) -> None:
        return None


def _sums(array: np.ndarray, seed: int, place: int) -> np.ndarray:
    """The hash of array number `place`, but for its last step: see `binding.sums`."""
    array = np.asarray(array, np.float64)
    if array.shape[-1] == 1 and array.size <= _FEW:
        return _sums_of_few(array.tobytes(), array.shape, seed, place)
    return sums(array, _factors(seed, array.shape[-1], place))


@lru_cache(maxsize=64)
def _sums_of_few(numbers: bytes, shape: tuple[int, ...], seed: int, place: int) -> np.ndarray:
    """The same for one number of each client. Such is the scale of noise, which is mostly the same in every round."""
    return unwritable(sums(np.frombuffer(numbers).reshape(shape), _factors(seed, 1, place)))


@lru_cache(maxsize=64)
def _factors(seed: int, numbers: int, place: int) -> Factors:
    """Secret factors for array number `place`: the first is added, the others multiply.

    Each array has factors of its own, so that the sums of all of them are the hash of all arrays end to end.
    """
    words = 2 * numbers
    bits = Streams(seed).bits(np.array([SERVER]), 0, Purpose.BINDING, 2 * (words + 1), place)
    return Factors.of(bits.reshape(words + 1, 2).T)


def rows_digests(X: np.ndarray, y: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """A digest of each client's own rows and labels, in their storage type: (clients, 2)."""
    rows, labels = np.ascontiguousarray(X), np.ascontiguousarray(y)
    about = hashlib.sha256(f"{rows.dtype.str} {rows.shape[1:]} {labels.dtype.str} ".encode())
    words = np.empty((len(offsets) - 1, 2), dtype=np.uint32)
    for client, (low, high) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        digest = about.copy()
        digest.update(rows[low:high].data)
        digest.update(labels[low:high].data)
        words[client] = np.frombuffer(digest.digest()[:8], dtype=np.uint32)
    return words.astype(np.uint64)


def parts_digests(parts: Sequence[Matrix]) -> np.ndarray:
    """The same for each party's columns, dense or sparse: (parties, 2)."""
    return np.stack([_part_digest(part) for part in parts])


def _part_digest(part: Matrix) -> np.ndarray:
    arrays = (part.data, part.indices, part.indptr) if is_sparse(part) else (part,)
    digest = hashlib.sha256(f"{part.shape}".encode())
    for array in arrays:
        array = np.ascontiguousarray(array)
        digest.update(f" {array.dtype.str} {array.shape} ".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest()[:8], dtype=np.uint32).astype(np.uint64)


def _left_out(each: "Field[object]", value: object) -> bool:
    """A field that came later is not told at its default, so that noise stays what it was before there was one."""
    return bool(each.metadata.get("later")) and value == each.default


def stable_text(value: object) -> str:
    """A text that is the same for equal settings, in every process, and for no others."""
    if isinstance(value, np.ndarray):
        array: np.ndarray = np.ascontiguousarray(cast(np.ndarray, value))
        return f"array({array.dtype}, {array.shape}, {hashlib.sha256(array.tobytes()).hexdigest()})"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(stable_text, cast(Sequence[object], value)))})"
    if is_dataclass(value) and not isinstance(value, type):
        counted = [each for each in fields(value) if not _left_out(each, getattr(value, each.name))]
        parts = ", ".join(f"{each.name}={stable_text(getattr(value, each.name))}" for each in counted)
        # A class of ours is the same wherever it is kept in this library; one of somebody else's is named in full.
        home = type(value).__module__.removeprefix("sottovoce.")
        ours = home != type(value).__module__
        return f"{'sottovoce' if ours else home}.{type(value).__qualname__}({parts})"
    rule = f"{type(value).__name__} has no text of its own, so a run with it could not be repeated"
    check.require(type(value).__repr__ is not object.__repr__, "train", rule, hint="Make it a frozen dataclass")
    return repr(value)
