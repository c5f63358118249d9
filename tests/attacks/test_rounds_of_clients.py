"""Unit "client": the algorithm works with exact numbers, and nothing but its noisy releases may show what they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import ADMM, FedPD
from sottovoce.algorithms.dp_sgd import DPSGD, Down
from sottovoce.auditing.tape import Tape
from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Array, Asks, Nothing, Site
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.local import LocalClients
from sottovoce.ledger.kept_answers import KeptAnswers
from sottovoce.privacy.modes import Proven
from sottovoce.problems.rows import Rows
from tests.cases import goal, small
from tests.local import assemble

CLIENT = Proven(epsilon=1.0, delta=1e-4, clip=1.0, unit="client")


def place(algorithm: Any) -> LocalClients:
    made = assemble(algorithm, small(), goal(), CLIENT, Everyone(), 3, Streams(5), None, "numpy")
    made.start(algorithm)
    return made


def first_round(made: LocalClients, algorithm: Any, down: Any) -> tuple[Any, np.ndarray]:
    """What the server gets, and what it was before the noise."""
    made.door.intercept = tape = Tape()
    exchange = made.exchange(algorithm, down, np.ones(made.n, dtype=bool), 1)
    assert exchange is not None
    exact = np.concatenate([one.exact for one in tape.made if one is not None], axis=-2)
    return exchange.up, exact


@pytest.mark.parametrize("when", ["before a release", "after one"])
def test_a_client_that_fails_does_not_show_in_the_others_uploads(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other rows of client 0 make its solver fail. Only its own upload may move: no budget pays for more."""
    algorithm, failing = ADMM(rho=0.1), [False]
    plain, released = Rows.argmin, LocalClients._site

    def argmin(self: Rows, centre: Any, *more: Any) -> Array:
        clients = more[3]
        if failing[0] and when == "before a release" and 0 in np.asarray(clients):
            raise ArithmeticError("client 0 misses its certificate")
        return plain(self, centre, *more)

    def site(self: LocalClients, local: np.ndarray, k: int, oracle: Any, release: Any) -> Site:
        made = released(self, local, k, oracle, release)
        if not (failing[0] and when == "after one" and k > 0 and 0 in local and hasattr(release, "door")):
            return made

        def then_fail(u: Array, noise: Any = None, centre: Any = None) -> Array:
            made.release(u, noise, centre)
            raise ArithmeticError("client 0 fails after its release")

        return Site(**{name: getattr(made, name) for name in Site.__slots__} | {"release": then_fail})  # type: ignore[attr-defined]

    monkeypatch.setattr(Rows, "argmin", argmin)
    monkeypatch.setattr(LocalClients, "_site", site)
    seen = []
    for failing[0] in (False, True):
        made = place(algorithm)
        down = algorithm.broadcast(algorithm.init_server(hub_of(made)), hub_of(made))
        up, _ = first_round(made, algorithm, down)
        seen.append(codec.to_arrays(up))
        assert [sum(made.ledger.spent(client).values()) for client in range(made.n)] == [1] * made.n  # type: ignore[union-attr]
    for name, arrays in seen[0].items():
        assert np.array_equal(arrays[1:], seen[1][name][1:]), "another client's upload moved"


def hub_of(made: LocalClients) -> Any:
    from sottovoce.core.contract import Hub
    from sottovoce.core.random.streams import SERVER, Draw

    draw = Draw(Streams(5), np.array([SERVER], dtype=np.uint64), 0)
    return Hub(made.n, goal().penalty, draw, 1, np.ones((made.n, 1), dtype=bool), np.zeros((1, made.dim)))


@dataclass(frozen=True)
class Two:
    """An upload of two releases."""

    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True)
class Picks(DPSGD):
    """Sends its first release twice if an exact number is positive, else both of its releases."""

    def asks(self) -> Asks:
        return Asks.every_round(releases=2)

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Any]:
        exact = site.f.grad(np.broadcast_to(down.w, site.zeros.shape))
        first, second = (site.release(exact, centre=site.zeros) for _ in range(2))
        return state, Two(first, first if exact.sum() > 0 else second)


def test_which_releases_are_uploaded_does_not_depend_on_data() -> None:
    """Whether two fields of an upload are equal would be an exact fact about the rows."""
    algorithm = Picks()
    for sign in (1.0, -1.0):
        made = place(algorithm)
        made.exact.y[:] = sign * np.abs(made.exact.y)
        up, _ = first_round(made, algorithm, Down(np.zeros((1, made.dim))))
        assert not np.array_equal(up.a, up.b)


@dataclass(frozen=True)
class Swapped:
    g: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "g", np.full_like(self.g, 7.0))


@dataclass(frozen=True)
class Swaps(DPSGD):
    """Its message changes its own fields when it is made."""

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Any]:
        return state, Swapped(site.release(site.f.grad(np.broadcast_to(down.w, site.zeros.shape)), centre=site.zeros))


def test_a_message_cannot_change_what_was_released() -> None:
    made = place(Swaps())
    with pytest.raises(InvalidInput, match=r"did not pass through|must keep its fields"):
        first_round(made, Swaps(), Down(np.zeros((1, made.dim))))


def test_states_that_overflow_are_replaced_and_the_next_round_goes_on() -> None:
    algorithm = FedPD(eta=1.0, local_steps=100, step=50.0)
    made = place(algorithm)
    for k in (1, 2, 3):
        down = type(algorithm.broadcast(algorithm.init_server(hub_of(made)), hub_of(made)))(np.zeros((1, made.dim)))
        exchange = made.exchange(algorithm, down, np.ones(made.n, dtype=bool), k)
        assert exchange is not None
        assert np.isfinite(exchange.up.v).all()
        assert all(np.isfinite(array).all() for array in codec.to_arrays(made._states).values())


def test_a_record_that_a_crash_cut_short_is_not_joined_to_the_next(tmp_path: Path) -> None:
    """Whatever was cut: the answers before it are found, the one after it too, and never a mixture."""
    file, who = tmp_path / "answers", np.arange(2)
    first, second, third = (np.full((2, 3), value) for value in (1.0, 2.0, 3.0))
    KeptAnswers(file).put(1, 0, who, first)
    whole = file.stat().st_size
    KeptAnswers(file).put(1, 1, who, second)
    content = file.read_bytes()
    for cut in range(whole, len(content)):
        file.write_bytes(content[:cut])
        KeptAnswers(file).put(1, 2, who, third)
        found = KeptAnswers(file)
        assert np.array_equal(found.get(1, 0, who), first)  # type: ignore[arg-type]
        assert found.get(1, 1, who) is None
        assert np.array_equal(found.get(1, 2, who), third)  # type: ignore[arg-type]
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert KeptAnswers(file).get(1, 1, who) is None
