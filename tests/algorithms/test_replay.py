"""Replay: with the oracle's answers forced, data may change and no message does.

If that holds, everything the server sees is a function of noisy, charged answers and of nothing else. It is the test
that a badly written algorithm cannot pass, so three such algorithms are kept here to show that it bites.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPADMM, DPSGD, dp_sgd
from sottovoce.algorithms.dp_admm import Client, Down, Up
from sottovoce.auditing.tape import Tape
from sottovoce.core import codec
from sottovoce.core import round as loop
from sottovoce.core.contract import Site
from sottovoce.core.participation import KOfN
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.parties import LocalParties
from sottovoce.privacy.modes import Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.rows import Rows
from tests.cases import CASES, COLUMN_UNITS, EVERY, VERTICAL, Method, data, goal, small
from tests.local import assemble
from tests.replay import replays

ROUNDS = 4  # a second answer depends on the first, and a third on what clients kept
RECORD = Proven(epsilon=5.0, delta=1e-3, clip=1.0)
PROVEN = [name for name, case in CASES.items() if "proven" in case.algorithm.modes]
UNITS: dict[str, Any] = {
    "replace-one": RECORD,
    "add-remove": Proven(epsilon=5.0, delta=1e-3, clip=1.0, relation="add-remove"),
    "laplace": Proven(epsilon=5.0, delta=0.0, clip=1.0, mechanism="laplace"),
    "secure": Proven(epsilon=5.0, delta=1e-3, clip=1.0, noise="secure"),
    "client": Proven(epsilon=5.0, delta=1e-3, clip=1.0, unit="client"),
    "sums": Proven(epsilon=5.0, delta=1e-3, clip=1.0, observer="sums", least=4, colluders=1),
    "sums, client": Proven(epsilon=5.0, delta=1e-3, clip=1.0, unit="client", observer="sums", least=4, colluders=1),
    **COLUMN_UNITS,
    "proven, secure": replace(COLUMN_UNITS["proven, clip"], noise="secure"),
    "proven, record, secure": replace(COLUMN_UNITS["proven, record"], noise="secure"),
    "proven, private labels": replace(COLUMN_UNITS["proven, record"], label_epsilon=1.0),
}


def messages(algorithm: Method, federation: Any, privacy: Any, tape: Tape) -> list[np.ndarray]:
    """Every array that crosses between clients and server in a few rounds, in order."""
    participation, streams = KOfN(4), Streams(5)
    place = assemble(algorithm, federation, goal(), privacy, participation, ROUNDS, streams, None, "numpy")
    place.door.intercept = tape
    seen: list[np.ndarray] = []
    plain = place.exchange

    def listening(method: Any, down: Any, active: np.ndarray, k: int) -> Any:
        exchange = plain(method, down, active, k)
        assert exchange is not None
        seen.extend([*codec.to_arrays(down).values(), *codec.to_arrays(exchange.up).values(), exchange.answered])
        return exchange

    place.exchange = listening  # type: ignore[method-assign]
    options: dict[str, Any] = {"penalty": goal().penalty, "participation": participation, "streams": streams}
    outcome = loop.train(algorithm, place, rounds=ROUNDS, **options)
    # Where columns are split, parties' models are one more answer each.
    return [*seen, outcome.model, *([place.models(ROUNDS)] if isinstance(place, LocalParties) else [])]


# Noise on arg-mins and moments is Gaussian, or refused before training: see privacy/test_door.py.
GAUSSIAN_ONLY = {name for name in PROVEN if set(CASES[name].algorithm.asks().kinds) & {"argmin", "moments"}}
ROW_UNITS = [unit for unit, privacy in UNITS.items() if isinstance(privacy, Proven)]
PAIRS = [
    (n, u)
    for n in PROVEN
    for u in ROW_UNITS
    if not (n in GAUSSIAN_ONLY and u == "laplace")
    and not (UNITS[u].sums and CASES[n].algorithm.why_not_sums(UNITS[u].unit))
]
PAIRS += [(n, u) for n, c in VERTICAL.items() for u in UNITS if "proven" in c.algorithm.modes and u not in ROW_UNITS]


@pytest.mark.parametrize(("name", "unit"), PAIRS)
def test_replay_holds(name: str, unit: str) -> None:
    algorithm = EVERY[name].algorithm
    a, b = data(name, seed=3), data(name, seed=4)
    assert replays(lambda federation, tape: messages(algorithm, federation, UNITS[unit], tape), a, b)


def test_other_data_would_have_shown() -> None:
    """The same two data sets without forced answers: the messages differ, so the test above can fail."""
    a, b = small(seed=3), small(seed=4)
    one, other = (messages(CASES["dp-admm"].algorithm, data, RECORD, Tape()) for data in (a, b))
    assert not all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


@dataclass(frozen=True)
class RawGradient(DPSGD):
    """Leaky: besides the noisy gradient it looks at the rows by itself."""

    rows: Any = field(default=None, compare=False)

    def client(self, state: Any, down: Any, site: Site) -> Any:
        noisy = site.f.grad(down.w)
        return state, dp_sgd.Up(site.release(0.9 * noisy + 0.1 * self.rows.gradient(down.w, site.who)))


@dataclass(frozen=True)
class ExactDual(DPADMM):
    """Leaky: the model is noisy, but the dual step uses an exact gradient."""

    rows: Any = field(default=None, compare=False)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        after, up = super().client(state, down, site)
        return Client(after.w, after.gamma - 0.01 * self.rows.gradient(after.w, site.who)), up


@dataclass(frozen=True)
class NoiseOnlyAtUpload(DPADMM):
    """Leaky: keeps an exact local model and adds noise only to what it sends, as several papers do."""

    rows: Any = field(default=None, compare=False)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        w = state.w - 0.5 * self.rows.gradient(state.w, site.who) + 0.1 * (down.w - state.w)
        return Client(w, state.gamma), Up(site.release(w + site.rng.normal(site.f.dim), centre=down.w))


@pytest.mark.parametrize("leaky", [RawGradient, ExactDual, NoiseOnlyAtUpload])
def test_replay_catches_leaks(leaky: Any) -> None:
    def run(federation: Federation, tape: Tape) -> list[np.ndarray]:
        rows = Rows(federation.X, federation.y, federation.offsets, goal().loss, "mean", "numpy")
        return messages(leaky(rows=rows), federation, RECORD, tape)

    assert not replays(run, small(seed=3), small(seed=4))
