"""An algorithm from outside tries to upload exact numbers: by changing an array after it was released, or its centre.

Who attacks wrote the algorithm. What the server gets must be what was released (a noisy answer), or nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD
from sottovoce.algorithms.dp_sgd import Down, Up
from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Array, Nothing, Site
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.privacy.modes import Proven
from tests.cases import goal, small
from tests.local import assemble

RECORD = Proven(epsilon=1.0, delta=1e-3, clip=1.0)
CLIENT = Proven(epsilon=1.0, delta=1e-3, clip=1.0, unit="client")
MARK = 12345.0  # stands for an exact number: nothing in a released answer has this value


def overwrite(released: Array) -> None:
    released.flags.writeable = True
    released[...] = MARK


def overwrite_by_setflags(released: Array) -> None:
    released.setflags(write=True)
    released.fill(MARK)


def overwrite_the_base(released: Array) -> None:
    base = released
    while isinstance(base.base, np.ndarray):
        base = base.base
    base.flags.writeable = True
    base[...] = MARK


def swap_the_data(released: Array) -> None:
    released.data = np.full(released.shape, MARK)  # type: ignore[misc]


def write_to_memory(released: Array) -> None:
    """Through the address, as a C extension would; not possible where the buffer itself is never sent."""
    view = np.lib.stride_tricks.as_strided(released, released.shape, released.strides, writeable=True)
    view[...] = MARK


def change_the_type(released: Array) -> None:
    released.dtype = np.int64  # type: ignore[misc]


def change_the_strides(released: Array) -> None:
    released.strides = (0,) * released.ndim


def change_the_shape(released: Array) -> None:
    released.shape = released.shape[::-1]


TRICKS: dict[str, Callable[[Array], None]] = {
    trick.__name__: trick
    for trick in (
        overwrite,
        overwrite_by_setflags,
        overwrite_the_base,
        swap_the_data,
        write_to_memory,
        change_the_type,
        change_the_strides,
        change_the_shape,
    )
}


@dataclass(frozen=True)
class Cheat(DPSGD):
    """Releases a noisy gradient, then changes it before it goes out."""

    trick: str = "overwrite"
    given: list[bytes] = field(default_factory=list, compare=False, repr=False)  # what `release` gave back

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        centre = {"centre": down.w if down.w.shape == site.zeros.shape else site.zeros}
        released = site.release(site.f.grad(np.broadcast_to(down.w, site.zeros.shape)), **centre)
        self.given.append(released.tobytes())
        TRICKS[self.trick](released)
        return state, Up(released)


def uploads(algorithm: Any, privacy: Any) -> list[np.ndarray]:
    """What the server gets in one round."""
    place = assemble(algorithm, small(), goal(), privacy, Everyone(), 1, Streams(5), None, "numpy")
    place.start(algorithm)
    exchange = place.exchange(algorithm, Down(np.zeros((1, place.dim))), np.ones(place.n, dtype=bool), 1)
    assert exchange is not None
    return list(codec.to_arrays(exchange.up).values())


@pytest.mark.parametrize("privacy", [RECORD, CLIENT], ids=["record", "client"])
@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_the_server_gets_is_what_was_released(trick: str, privacy: Any) -> None:
    """The algorithm writes into the array that `release` gave it, in every way that numpy knows."""
    cheat = Cheat(trick=trick)
    try:
        (got,) = uploads(cheat, privacy)
    except (InvalidInput, ValueError, AttributeError, TypeError):  # refused: nothing was sent
        return
    assert not (got == MARK).any(), "exact numbers were sent in place of what was released"
    assert (got.shape, got.dtype, got.tobytes()) == ((6, 4), np.dtype(np.float64), cheat.given[-1])


@dataclass(frozen=True)
class Late(DPSGD):
    """Keeps what it released, and changes it after the round was checked."""

    kept: list[Array] = field(default_factory=list, compare=False, repr=False)

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        released = site.release(site.f.grad(np.broadcast_to(down.w, site.zeros.shape)))
        self.kept.append(released)
        return state, Up(released)


def test_a_reference_that_was_kept_changes_nothing_later() -> None:
    """The upload was checked; then the algorithm writes through a reference of its own, before the server reads."""
    late = Late()
    (got,) = uploads(late, RECORD)
    before = got.copy()
    with suppress(ValueError):  # it may be that it cannot
        overwrite(late.kept[0])
    assert np.array_equal(got, before), "the algorithm still holds what the server reads"


@dataclass(frozen=True)
class Recentred(DPSGD):
    """Writes exact numbers into the broadcast, which then serves as a public centre."""

    way: str = "broadcast"

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        centre = down.w if self.way == "broadcast" else site.zeros
        exact = site.f.grad(np.zeros(site.zeros.shape))  # behind unit "client" an exact gradient
        target = centre
        if self.way == "base of zeros":
            while isinstance(target.base, np.ndarray):
                target = target.base
        target.flags.writeable = True
        target[...] = MARK + 0 * exact[:1] if self.way == "broadcast" else MARK
        return state, Up(site.release(exact, centre=centre))


@pytest.mark.parametrize("way", ["broadcast", "zeros", "base of zeros"])
def test_a_public_centre_stays_what_the_server_said(way: str) -> None:
    """Unit "client": a release is centre + clipped and noisy rest. The algorithm moves its exact numbers to the centre.

    The server's own broadcast must stay what it said, and so must the zeros that every round has.
    """
    method, n = Recentred(way=way), small().n
    place = assemble(method, small(), goal(), CLIENT, Everyone(), 1, Streams(5), None, "numpy")
    place.start(method)
    try:
        exchange = place.exchange(method, Down(np.zeros((n, place.dim))), np.ones(n, dtype=bool), 1)
    except (InvalidInput, ValueError):  # refused: nothing was sent
        return
    assert exchange is not None
    (got,) = codec.to_arrays(exchange.up).values()
    assert np.abs(got).max() < MARK / 2, "an upload is around exact numbers, in place of the broadcast"


def test_an_honest_method_is_not_refused() -> None:
    """What is refused above is refused for its tricks: the same method without them has its upload sent."""
    (got,) = uploads(Late(), RECORD)
    assert (got.shape, got.dtype) == ((6, 4), np.float64)
