"""The exit of a door: what an algorithm releases in a round, and the upload that is made of it."""

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Arrays, Noise, Part

if TYPE_CHECKING:
    from sottovoce.privacy.doors.base import Door


@dataclass(frozen=True)
class Question:
    """Who is asked what.

    Parameters
    ----------
    local
        The clients' places on this machine.
    active
        In which runs they are asked: (runs?, clients) of bool.
    k, number
        The round, and which question of that round it is.
    part
        What was declared for this round.
    asked
        What noise and batches are bound to of what is asked: arrays with a client axis, the last but one.
    """

    local: np.ndarray
    active: np.ndarray
    k: int
    number: int
    part: Part = Part()  # noqa: RUF009 (frozen)
    asked: tuple[np.ndarray, ...] = ()


class Sealed:
    """Numbers (float64, or uint64 for terms of a sum) in bytes that nobody can change, and an array to give away.

    Whoever has that array cannot write into it, and whatever they do to the array object itself changes nothing here.
    """

    def __init__(self, array: np.ndarray) -> None:
        array = np.asarray(array)
        self._dtype = np.uint64 if array.dtype == np.uint64 else np.float64
        self._bytes, self._shape = array.astype(self._dtype, copy=False).tobytes(), array.shape
        self.given = self.again()

    def again(self) -> np.ndarray:
        """Another array over the same bytes."""
        return np.ndarray(self._shape, self._dtype, self._bytes)


class SealedZeros(Sealed):
    """The same for zeros of this shape, which take no room: all entries are the same eight bytes."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._bytes, self._shape, self._dtype = bytes(8), shape, np.float64
        self.given = self.again()

    def again(self) -> np.ndarray:
        return np.broadcast_to(np.frombuffer(self._bytes, dtype=self._dtype).reshape(()), self._shape)


@contextmanager
def quietly() -> Generator[None]:
    """No warning of what is computed inside: it would depend on private numbers."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        yield


@dataclass(frozen=True)
class Visit:
    """One round of some clients: what an algorithm's client half is called with, once or, to be safe, twice."""

    before: Arrays  # the clients' states
    clients: int
    start: Callable[[], Arrays]  # makes the states that they begin with: they are public
    oracle: Any
    releases: "Releases"
    zeros: np.ndarray  # (runs?, clients, dim)
    # play(states, oracle, release) -> (new states, upload)
    play: Callable[[Any, Any, Callable[..., np.ndarray]], tuple[Arrays, Arrays]]
    alone: Callable[[int], "Visit"]  # the same round of the client at this place alone


@dataclass
class Releases:
    """The exit of one round, and a record of what went through it: uploads are made from what is kept here."""

    door: "Door"
    local: np.ndarray
    active: np.ndarray
    k: int
    public: Sequence[Sealed] = ()
    shapes: Sequence[tuple[int, ...]] | None = None  # of what may be released, one after the other, where that is fixed
    before: Sequence[np.ndarray] = ()  # what was released in a first try of this round: it is not released again

    def __post_init__(self) -> None:
        self._kept: list[Sealed] = []
        self._handed: list[Sealed] = []  # what the algorithm got: the same, or zeros where only sums may be seen

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(
        self, u: np.ndarray, noise: Noise | None = None, centre: np.ndarray | float | None = None
    ) -> np.ndarray:
        """The value to upload in place of `u`: read-only, so that it stays what was released.

        Where only sums may be seen it is a placeholder of zeros: a single noisy value must not enter a client's state.
        """
        place = len(self._kept)
        if self.shapes is not None and (place >= len(self.shapes) or np.shape(u) != self.shapes[place]):
            raise InvalidInput("release: this algorithm releases other arrays for some data sets than for others")
        if place < len(self.before):
            released = self.before[place]
        else:
            question = Question(self.local, self.active, self.k, place)
            released = self.door.release(u, noise, self._public_centre(centre, u), question)
        self._kept.append(Sealed(released))
        self._handed.append(Sealed(np.zeros(np.shape(released))) if self.door.summed else self._kept[-1])
        return self._handed[-1].given

    def of_client(self, place: int) -> list[np.ndarray]:
        """What was released so far of one client."""
        return [kept.again()[..., place : place + 1, :] for kept in self._kept]

    def sealed(self, upload: codec.Message) -> codec.Message:
        """The upload, made of the kept bytes; refuses a field that did not come out of `release`."""
        return self.message(upload.__class__, places_of(upload, [handed.given for handed in self._handed]))

    def message(self, kind: type[codec.Message], places: Mapping[str, int | None]) -> codec.Message:
        """A message whose fields are what these calls of `release` gave, whatever its class does when it is made."""
        if self.door.summed:
            taken = [place for place in places.values() if place is not None]
            once = len(set(taken)) == len(taken)
            check.require(once, "upload", "where only sums are seen, one field of an upload is one answer")
        arrays = {
            name: np.zeros((*self.active.shape, 0)) if place is None else self._kept[place].again()
            for name, place in places.items()
        }
        made = kind(**arrays)
        changed = [name for name, array in arrays.items() if getattr(made, name) is not array]
        check.require(not changed, "upload", "a message must keep its fields as they are given", ", ".join(changed))
        return made

    def _public_centre(self, centre: np.ndarray | float | None, u: np.ndarray) -> np.ndarray | None:
        if centre is None:
            return None
        if isinstance(centre, float) and centre == 0.0:
            return np.zeros(np.shape(u))  # as public as any
        for public in self.public:
            if centre is public.given:
                return public.again()
        raise InvalidInput("release: the centre must be public: a field of the broadcast as it came, or site.zeros")


class Rehearsal:
    """Stands in for `release` where all numbers are public: keeps what is released, and charges nothing."""

    def __init__(self) -> None:
        self.released: list[tuple[np.ndarray, np.ndarray | None]] = []
        self.given: list[np.ndarray] = []  # what the algorithm got

    def __call__(self, u: np.ndarray, noise: Noise | None = None, centre: np.ndarray | None = None) -> np.ndarray:
        self.released.append((u, centre))
        self.given.append(Sealed(u).given)
        return self.given[-1]


def places_of(upload: Arrays, released: Sequence[np.ndarray]) -> dict[str, int | None]:
    """Which of the released arrays each field of an upload is; refuses a field that is none of them.

    A field without coordinates says nothing, and needs no release: its place is None.
    """
    places: dict[str, int | None] = {}
    for name, array in codec.to_arrays(upload).items():
        is_empty = array.shape[-1] == 0
        places[name] = None if is_empty else next((j for j, one in enumerate(released) if one is array), None)
        if places[name] is None and not is_empty:
            raise InvalidInput(f"upload: field {name!r} did not pass through site.release; nothing was sent")
    return places
