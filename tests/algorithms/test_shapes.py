"""Every message that occurs has a declared shape, and every declared shape occurs.

A deployed client refuses a broadcast whose shape was not declared, so a declaration that lacks one stops the method
there; and it accepts whatever was declared, so a declaration must not allow more than is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.core import codec
from sottovoce.core.participation import Everyone, KOfN, Participation, Schedule
from sottovoce.core.shapes import declared
from sottovoce.experiment.train import train
from tests.cases import EVERY, Method, all_modes, data, goal, variants

ROUNDS = 8
CLIENTS = 6
GAPS = Schedule(((0, 1, 2), (), (2, 3), (0, 1, 2, 3, 4, 5), (4,), (4, 5), (1, 5), (0, 1, 2, 3, 4, 5)))
LOST: dict[str, set[tuple[int, int]]] = {  # (round, client) of replies that the server never gets
    "none": set(),
    "one early": {(1, 0)},
    "all of one round": {(3, client) for client in range(CLIENTS)},
    "several": {(1, 2), (2, 2), (4, 0), (4, 1), (5, 5), (7, 3)},
}
RUNS: list[tuple[Participation, str]] = [(Everyone(), lost) for lost in LOST]
RUNS += [(KOfN(3), "none"), (KOfN(3), "several"), (GAPS, "none"), (GAPS, "several")]
Seen = set[tuple[str, str, int, int]]  # direction, field, its width, dim


@contextmanager
def watched(algorithm: Method, lost: set[tuple[int, int]]) -> Iterator[Seen]:
    """Note the width of every field of every message; and let the server believe that some replies did not come."""
    kind, seen = type(algorithm), set()
    broadcast, server = kind.broadcast, kind.server

    def note(direction: str, message: Any, hub: Any) -> None:
        assert type(message) is getattr(kind, direction)
        dim = hub.zeros.shape[-1]
        seen.update((direction, name, array.shape[-1], dim) for name, array in codec.to_arrays(message).items())

    def noted_broadcast(self: Method, state: Any, hub: Any) -> Any:
        down = broadcast(self, state, hub)
        note("down", down, hub)
        return down

    def noted_server(self: Method, state: Any, up: Any, hub: Any) -> Any:
        note("up", up, hub)
        came = np.array([[(hub.k, client) not in lost] for client in range(hub.n)])
        answered = hub.answered & came
        return server(self, state, up, replace(hub, answered=answered)) if answered.any() else state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "broadcast", noted_broadcast)
        patch.setattr(kind, "server", noted_server)
        yield seen


@pytest.mark.parametrize("name", EVERY)
def test_declared_shapes_are_those_that_occur(name: str) -> None:
    occurred: Seen = set()
    federation = data(name)
    for algorithm in variants(EVERY[name].algorithm).values():
        for privacy in all_modes(algorithm).values():
            if privacy.mode == "published" and algorithm != EVERY[name].algorithm:
                continue  # papers have one variant
            for participation, lost in RUNS if privacy.mode == "none" else RUNS[-1:]:
                options: dict[str, Any] = {"rounds": ROUNDS, "seed": 11, "engine": "numpy", "privacy": privacy}
                with watched(algorithm, LOST[lost]) as seen:
                    result = train(algorithm, federation, goal(), participation=participation, **options)
                assert result.rounds == ROUNDS
                occurred |= seen
    algorithm = EVERY[name].algorithm
    (dim,) = {dim for _, _, _, dim in occurred}
    possible = {
        (direction, field, width, dim)
        for direction in ("down", "up")
        for field, widths in declared(algorithm, getattr(algorithm, direction), dim).items()
        for width in widths
    }
    assert occurred == possible


@pytest.mark.parametrize("name", EVERY)
def test_widths_are_bounded_by_public_numbers(name: str) -> None:
    """Whatever the data, a client gives memory to no more than this."""
    algorithm = EVERY[name].algorithm
    for message in (algorithm.down, algorithm.up):
        for dim in (1, 7):
            second_moments = dim * (dim + 3) // 2
            found = {width for widths in declared(algorithm, message, dim).values() for width in widths}
            assert found <= {0, 1, dim, second_moments}
