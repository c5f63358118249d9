"""What every algorithm owes the rest of the library, checked on every row of `cases.py`."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from sottovoce.algorithms import ALGORITHMS, MaskedMoments, Moments
from sottovoce.core import codec
from sottovoce.core.participation import Everyone, KOfN, Participation
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.train import train
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy.modes import NoPrivacy, Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.vertical import VerticalFederation
from tests.cases import CASES, EVERY, MODES, VERTICAL, Method, all_modes, data, goal, noisy_modes, small, variants
from tests.local import assemble


def test_every_algorithm_has_a_row() -> None:
    """Vertical ones too: what is not in the table is not checked. A method of one round has a file of its own."""
    rows = {name: type(case.algorithm) for name, case in EVERY.items()}
    assert rows | {"moments": Moments, "masked-moments": MaskedMoments} == ALGORITHMS
    assert not CASES.keys() & VERTICAL.keys()


def run(name: str, mode: str, federation: Federation | None = None, **options: Any) -> Any:
    algorithm = EVERY[name].algorithm
    defaults: dict[str, Any] = {"rounds": 6, "seed": 11, "engine": "numpy", "privacy": all_modes(algorithm)[mode]}
    return train(algorithm, federation or data(name), goal(), **(defaults | options))


EVERYONE = Everyone()


@cache
def usual_run(name: str, mode: str, participation: Participation = EVERYONE) -> Any:
    """Once for all tests that compare another run with it."""
    return run(name, mode, participation=participation)


def simulator(name: str, mode: str, engine: str = "numpy") -> LocalClients:
    algorithm = EVERY[name].algorithm
    parts = (algorithm, data(name), goal(), all_modes(algorithm)[mode], Everyone(), 6, Streams(11), None, engine)
    assembled = assemble(*parts)
    assembled.start(algorithm)
    return assembled


def same(a: Any, b: Any) -> bool:
    return all(
        np.array_equal(x, y) for x, y in zip(codec.to_arrays(a).values(), codec.to_arrays(b).values(), strict=True)
    )


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_same_seed_same_run(name: str, mode: str) -> None:
    first, second, other = usual_run(name, mode), run(name, mode), run(name, mode, seed=12)
    assert np.array_equal(first.model, second.model)
    assert mode == "none" or not np.array_equal(first.model, other.model)


@pytest.mark.parametrize(("name", "mode"), MODES)
@pytest.mark.parametrize("participation", [Everyone(), KOfN(3)], ids=["everyone", "3-of-6"])
def test_resume_equals_uninterrupted(name: str, mode: str, participation: Any) -> None:
    kept: list[Checkpoint] = []
    whole = run(name, mode, participation=participation, after_round=kept.append)
    resumed = run(name, mode, participation=participation, resume=kept[2])
    assert kept[2].k == 3
    assert np.array_equal(whole.model, resumed.model)
    for column in whole.history.columns.keys() - {"seconds"}:
        assert np.array_equal(whole.history[column], resumed.history[column]), column
    assert whole.guarantee == resumed.guarantee


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_inputs_are_not_mutated(name: str, mode: str) -> None:
    federation = data(name)
    before = [part.copy() for arrays in federation.data() for part in arrays]
    algorithm = EVERY[name].algorithm
    server_step = type(algorithm).server

    def frozen_server(self: Any, server: Any, up: Any, hub: Any) -> Any:
        for array in codec.to_arrays(server).values():
            array.flags.writeable = False
        return server_step(self, server, up, hub)

    with frozen_arrays(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(algorithm), "server", frozen_server)
        run(name, mode, federation)
    after = [part for arrays in federation.data() for part in arrays]
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_renumbering_clients_renumbers_the_result(name: str) -> None:
    federation = small()
    order = np.array([4, 2, 0, 5, 1, 3])
    pairs = [
        (federation.X[a:b], federation.y[a:b]) for a, b in zip(federation.offsets, federation.offsets[1:], strict=False)
    ]
    shuffled = Federation.from_clients([pairs[i] for i in order], row_bound=1.0)
    kept: list[Checkpoint] = []
    one = run(name, "none", federation, after_round=kept.append)
    other = run(name, "none", shuffled, after_round=kept.append)
    exact = (
        "argmin" not in EVERY[name].algorithm.asks().kinds and EVERY[name].algorithm.layout == "rows"
    )  # arg-mins are solved to a certificate only
    np.testing.assert_allclose(one.model, other.model, rtol=0, atol=1e-11 if exact else 1e-7)
    for field in (field for field in kept[5].clients if field.startswith("client.")):
        states = kept[5].clients[field]
        np.testing.assert_allclose(states[order], kept[11].clients[field], rtol=0, atol=1e-11 if exact else 1e-7)


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_inactive_clients_are_unchanged_and_unread(name: str, mode: str) -> None:
    algorithm, place = EVERY[name].algorithm, simulator(name, mode)
    active = np.array([True, False, True, True, False, True])
    for k in (1, 2):
        before = place.snapshot()
        down = algorithm.broadcast(server := algorithm.init_server(hub(place)), hub(place))
        exchange = place.exchange(algorithm, down, active if k == 2 else ~active | active, k)
        assert exchange is not None
    after = place.snapshot()
    for field in (f for f in before if f.startswith("client.")):
        assert np.array_equal(before[field][~active], after[field][~active])
    # Rows of those who did not answer hold nothing: a server that read them would spread what is put there.
    clean = algorithm.server(server, exchange.up, hub(place, active))
    poisoned = codec.merge(codec.empty_rows(exchange.up, 6, np.nan), codec.rows(exchange.up, np.flatnonzero(active)),
                           np.flatnonzero(active), np.ones((4, 1), dtype=bool))  # fmt: skip
    assert same(clean, algorithm.server(server, poisoned, hub(place, active)))


ENGINES = [(*case, engine) for case in MODES for engine in ("numpy", "kernel") if case[0] in CASES or engine == "numpy"]


@pytest.mark.parametrize(("name", "mode", "engine"), ENGINES)
def test_one_client_alone_equals_its_row_bit_for_bit(name: str, mode: str, engine: str) -> None:
    algorithm, together = EVERY[name].algorithm, simulator(name, mode, engine)
    apart = {i: _alone(together, i) for i in (0, 3, 5)}
    for alone in apart.values():
        alone.start(algorithm)
    for k in (1, 2, 3):
        down = algorithm.broadcast(algorithm.init_server(hub(together)), hub(together))
        down = dataclasses.replace(down, **{f: v + 0.1 * k for f, v in codec.to_arrays(down).items()})
        stacked = together.exchange(algorithm, down, np.ones(6, dtype=bool), k)
        assert stacked is not None
        for i, alone in apart.items():
            single = alone.exchange(algorithm, codec.rows(down, np.array([i])), np.ones(1, dtype=bool), k)
            assert single is not None
            assert same(codec.rows(stacked.up, np.array([i])), single.up)


def _alone(together: LocalClients, i: int) -> LocalClients:
    """The same client on a machine of its own: only its data, its own ledger, its number in the federation."""
    whole, labels = together.federation, together.labels
    single = Federation.from_clients([whole.data()[i]], row_bound=whole.row_bound) if labels is None else None
    single = single or cast(VerticalFederation, whole).alone(i)
    ledger = MemoryLedger(together.ledger.budget, (1,)) if isinstance(together.ledger, MemoryLedger) else None
    events = getattr(together.door, "events", ())
    made = type(together).of(together.task, single, ledger, together.streams, events, np.array([i]))
    made.labels = labels
    return made


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_a_run_in_a_stack_equals_the_run_alone(name: str, mode: str) -> None:
    stacked, alone = run(name, mode, runs=3), usual_run(name, mode)
    assert stacked.model.shape == (3, 10 if name in VERTICAL else 4)
    assert np.array_equal(stacked.model[0], alone.model)
    assert mode == "none" or not np.array_equal(stacked.model[0], stacked.model[1])
    partial = run(name, mode, runs=3, participation=KOfN(3))
    assert np.array_equal(partial.model[0], usual_run(name, mode, KOfN(3)).model)


def client_level(algorithm: Method) -> dict[str, Any]:
    """The unit "client", with a bound that no upload reaches."""
    if algorithm.name in VERTICAL or "proven" not in algorithm.modes:
        return {}
    return {"client": Proven(epsilon=20.0, delta=1e-3, clip=50.0, unit="client")}


HUGE = 1e20
FADING: list[Any] = [
    pytest.param(algorithm, dataclasses.replace(privacy, epsilon=HUGE), id=f"{name}{variant and ' ' + variant}, {mode}")
    for name, case in EVERY.items()
    for variant, algorithm in variants(case.algorithm).items()
    for mode, privacy in (noisy_modes(algorithm) | client_level(algorithm)).items()
    if mode != "published" or algorithm == case.algorithm  # papers have one variant
]


@pytest.mark.parametrize("participation", [Everyone(), KOfN(3)], ids=["everyone", "3-of-6"])
@pytest.mark.parametrize(("algorithm", "privacy"), FADING)
def test_noise_fades_with_the_budget(algorithm: Method, privacy: Any, participation: Any) -> None:
    """At an enormous budget a noisy mode is the non-private method: what is not noise is the same code.

    For large ε the noise of one answer is about 1/√(2ε) of its sensitivity, which is in proportion to the bound that is
    enforced; over the answers of six rounds it adds up to some tens of that.
    """
    name, bound = algorithm.name, getattr(privacy, "bound", None) or privacy.clip or 1.0
    noisy, plain = _model(algorithm, privacy, participation), _plain_model(algorithm, participation)
    tolerance = EVERY[name].tolerance + 100 * bound / np.sqrt(2 * HUGE)
    np.testing.assert_allclose(noisy, plain, atol=tolerance, rtol=0)


def _model(algorithm: Method, privacy: Any, participation: Participation) -> np.ndarray:
    options: dict[str, Any] = {"rounds": 6, "seed": 11, "engine": "numpy", "participation": participation}
    return train(algorithm, data(algorithm.name), goal(), privacy=privacy, **options).model


@cache
def _plain_model(algorithm: Method, participation: Participation) -> np.ndarray:
    """The same for all modes."""
    return _model(algorithm, NoPrivacy(), participation)


def hub(place: LocalClients, answered: np.ndarray | None = None) -> Any:
    from sottovoce.core.contract import Hub
    from sottovoce.core.random.streams import Draw

    answered = np.zeros(place.n, dtype=bool) if answered is None else answered
    draw = Draw(place.streams, np.array([0xFFFFFFFF]), 1)
    labels, zeros = getattr(place, "labels", None), np.zeros((1, place.dim))
    return Hub(place.n, place.task.objective.penalty, draw, 1, answered[:, None], zeros, labels)


@contextmanager
def frozen_arrays() -> Iterator[None]:
    """Every message and state handed to an algorithm is read-only: writing to it would raise."""
    plain_exchange = LocalClients.exchange

    def freeze(*messages: Any) -> None:
        for message in messages:
            for array in codec.to_arrays(message).values():
                array.flags.writeable = False

    def guarded(self: LocalClients, algorithm: Any, down: Any, active: np.ndarray, k: int) -> Any:
        freeze(self._states, down)
        exchange = plain_exchange(self, algorithm, down, active, k)
        if exchange is not None and exchange.up is not None:
            freeze(exchange.up)
        return exchange

    LocalClients.exchange = guarded
    try:
        yield
    finally:
        LocalClients.exchange = plain_exchange


@pytest.mark.parametrize("name", ["dp-admm", "fedepm", "fedspd-dp"])
def test_nobodys_constants_depend_on_anothers_rows(name: str) -> None:
    """Without a promised bound each client uses its own longest row: alone it does what it does among others."""
    algorithm, federation = ALGORITHMS[name](), small()
    X = federation.X * np.repeat([1.0, 5.0, 1.0, 1.0, 0.2, 1.0], federation.sizes)[:, None]
    uneven = dataclasses.replace(federation, X=X, row_bound=None)
    uploads = []
    for fed, row in ((uneven, 3), (Federation.from_clients([uneven.data()[3]]), 0)):
        place = assemble(algorithm, fed, goal(), NoPrivacy(), Everyone(), 6, Streams(11), None, "numpy")
        place.start(algorithm)
        down = algorithm.broadcast(algorithm.init_server(hub(place)), hub(place))
        exchange = place.exchange(algorithm, down, np.ones(fed.n, dtype=bool), 1)
        assert exchange is not None
        uploads.append(codec.rows(exchange.up, np.array([row])))
    assert same(*uploads)
