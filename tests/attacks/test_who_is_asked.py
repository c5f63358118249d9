"""An algorithm from outside tries to have answers that nobody is charged for: it changes who seems to be asked.

Who attacks wrote the algorithm. Its server half is told who is asked, and its client half runs in the same process.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPSGD
from sottovoce.algorithms.dp_sgd import Down, Server, Up
from sottovoce.core.arrays import everyone
from sottovoce.core.contract import Array, Hub, Nothing, Site
from sottovoce.core.round import Checkpoint
from tests.cases import goal, small

ROUNDS = 4
PRIVACY = {
    "record": sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0),
    "client": sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0, unit="client"),
    "sums": sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0, observer="sums"),
}


def put_out(mask: Array) -> None:
    mask[...] = False


def put_out_opened(mask: Array) -> None:
    mask.flags.writeable = True
    mask[...] = False


def put_out_the_base(mask: Array) -> None:
    base = every_array(mask)[-1]
    base.flags.writeable = True
    base[...] = False


def put_out_in_memory(mask: Array) -> None:
    """Through the address, as a C extension would."""
    view = np.lib.stride_tricks.as_strided(mask, mask.shape, mask.strides, writeable=True)
    view[...] = False


def show_other_bytes(mask: Array) -> None:
    """An array can be told to show other bytes. Those that it was made of stay, and so do other arrays over them."""
    for one in every_array(mask):
        show(one, bytes(one.size * one.itemsize))


def show(array: Any, shown: bytes) -> None:
    array.__setstate__((1, array.shape, array.dtype, False, shown))


def every_array(array: Any) -> list[Array]:
    """This one, and those that it is a view of."""
    return [array, *every_array(array.base)] if isinstance(array, np.ndarray) else []


WAYS: dict[str, Callable[[Array], None]] = {
    way.__name__: way for way in (put_out, put_out_opened, put_out_the_base, put_out_in_memory, show_other_bytes)
}


@dataclass(frozen=True)
class Unasked(DPSGD):
    """Lets nobody seem to be asked while its clients answer, and everybody again afterwards."""

    way: str = "put_out"
    told: list[Array] = field(default_factory=list, compare=False, repr=False)

    def broadcast(self, server: Server, hub: Hub) -> Down:
        self.told[:] = [hub.answered]
        return super().broadcast(server, hub)

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        before = [(array, array.tobytes()) for array in every_array(self.told[0])]
        with suppress(ValueError):  # refused: it cannot be written into
            WAYS[self.way](self.told[0])
        sent = super().client(state, down, site)
        for array, shown in before:
            if array.flags.writeable:
                array[...] = True
            elif self.way == "show_other_bytes":
                show(array, shown)
        return sent


@dataclass(frozen=True)
class Elsewhere(DPSGD):
    """Has all answers charged to the first client, while it releases them."""

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        before = [(array, array.tobytes()) for array in every_array(site.who)]

        def release(u: Array, noise: Any = None, centre: Any = None) -> Array:
            for array, shown in before:
                show(array, bytes(len(shown)))
            try:
                return site.release(u, noise, centre)
            finally:
                for array, shown in before:
                    show(array, shown)

        return super().client(state, down, replace(site, release=release))


def run(algorithm: Any, privacy: Any, **more: Any) -> sv.Result:
    return sv.train(algorithm, small(), goal(), privacy=privacy, rounds=ROUNDS, seed=3, engine="numpy", **more)


def spent(result: sv.Result) -> float:
    assert result.guarantee.epsilon is not None
    return result.guarantee.epsilon


@pytest.mark.parametrize("participation", [sv.Everyone(), sv.KOfN(6)], ids=["everyone", "k of n"])
@pytest.mark.parametrize("privacy", PRIVACY)
@pytest.mark.parametrize("way", WAYS)
def test_every_answer_is_charged_whatever_the_algorithm_does_to_the_mask(
    way: str, privacy: str, participation: Any
) -> None:
    honest = run(DPSGD(), PRIVACY[privacy], participation=participation)
    attack = run(Unasked(way=way), PRIVACY[privacy], participation=participation)
    assert spent(attack) == spent(honest) > 0.5
    assert np.array_equal(attack.history["epsilon"], honest.history["epsilon"])
    assert np.array_equal(attack.history["answered"], honest.history["answered"])
    assert np.linalg.norm(attack.model) > 0  # answers were given


@pytest.mark.parametrize("way", WAYS)
def test_the_same_with_ledgers_on_disk(way: str, tmp_path: Path) -> None:
    honest = run(DPSGD(), PRIVACY["record"], ledgers=tmp_path / "honest")
    attack = run(Unasked(way=way), PRIVACY["record"], ledgers=tmp_path / "attack")
    assert spent(attack) == spent(honest) > 0.5


@pytest.mark.parametrize("privacy", ["record", "client"])
def test_an_answer_is_charged_to_its_own_client_with_ledgers_on_disk(privacy: str, tmp_path: Path) -> None:
    honest = run(DPSGD(), PRIVACY[privacy], ledgers=tmp_path / "honest")
    attack = run(Elsewhere(), PRIVACY[privacy], ledgers=tmp_path / "attack")
    assert attack.guarantee.epsilon_of_client == honest.guarantee.epsilon_of_client
    assert np.linalg.norm(attack.model) > 0  # answers were given
    assert np.array_equal(everyone(small().n), np.arange(small().n))  # all runs of a process have this one


def test_who_gets_the_checkpoints_of_one_run_cannot_change_those_of_another() -> None:
    """No array may be the same in all runs of a process."""

    def overwrite(checkpoint: Checkpoint) -> None:
        for array in checkpoint.clients.values():
            show(array, bytes(array.size * array.itemsize))

    kept: list[Checkpoint] = []
    honest = run(DPSGD(), PRIVACY["record"], after_round=kept.append)
    run(DPSGD(), PRIVACY["record"], after_round=overwrite)
    again: list[Checkpoint] = []
    run(DPSGD(), PRIVACY["record"], after_round=again.append)
    for before, now in zip(kept, again, strict=True):
        assert {name: array.tobytes() for name, array in before.clients.items()} == {
            name: array.tobytes() for name, array in now.clients.items()
        }
    resumed = run(DPSGD(), PRIVACY["record"], resume=again[1])
    assert spent(resumed) == spent(honest)
