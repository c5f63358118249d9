"""Two runs whose answers differ must not share noise, and each must be charged: else their difference has none.

Who attacks has the models of several runs (an analyst who trains twice, or reads two published models), the settings
and the ledgers' counts. Noise may follow from a seed only together with everything that the answer depends on.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPADMM, DPSGD, PVP, ADMMSharing, FedPLT, FedSPDDP
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.train import train
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.file import FileLedger
from sottovoce.privacy.modes import NoPrivacy, Proven
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation
from tests.attacks.attacker import spent
from tests.cases import COLUMN_UNITS, goal, small_columns
from tests.local import assemble
from tests.privacy.test_parties import ask, place

LOOSE = Proven(epsilon=2.0, delta=1e-4, clip=50.0)  # nothing is clipped, so that exact differences are known
GOAL = Objective(Logistic(), L2(0.05))
FEATURES = 8


def rows(seed: int = 0, size: int = 40) -> Federation:
    """One client with so many records."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, FEATURES))
    X /= 2 * np.linalg.norm(X, axis=1)[:, None]
    y = np.where(np.arange(size) % 3 == 0, 1.0, -1.0)
    return Federation.from_clients([(X, y)], row_bound=1.0)


def neighbour(of: Federation) -> Federation:
    """The same, but for one record."""
    X, y = of.X.copy(), of.y.copy()
    X[0] *= -1.7
    return Federation.from_clients([(X, y)], row_bound=of.row_bound)


def model(data: Any, privacy: Any, method: Any = None, seed: int = 5, **more: Any) -> np.ndarray:
    method = DPSGD(step=1.0) if method is None else method
    settings = {"objective": GOAL, "rounds": 1, "engine": "numpy"} | more
    return train(method, data, settings.pop("objective"), privacy=privacy, seed=seed, **settings).model


def noise_cancels(difference: np.ndarray, exact: np.ndarray, noise: np.ndarray) -> bool:
    """Whether a difference of two noisy models is their noise-free difference, to a twentieth of the noise."""
    return float(np.linalg.norm(difference - exact)) < 0.05 * float(np.linalg.norm(noise))


def make_room(folder: Path) -> None:
    """Larger budgets, so that a further run could be afforded: what is not charged was not for lack of it."""
    for path in sorted(folder.rglob("*.ledger")):
        with FileLedger.open(path) as ledger:
            ledger.change_budget(Budget(1000.0, ledger.budget.delta), "room for further runs")


# ------------------------------------------------------------------------------------------------- row 2: neural models


def networks(kind: str) -> list[Callable[[], Any]]:
    """Two networks that print the same and start with the same trainable parameters."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test TORCH=1")
    nn = torch.nn

    class Part(nn.Module):
        """A layer before the head, told apart by something that no layer prints."""

        def __init__(self, number: float) -> None:
            super().__init__()
            self.number = number if kind == "attribute" else 1.0
            if kind == "buffer":
                self.register_buffer("scale", torch.tensor(number))
            if kind == "hidden buffer":
                self.register_buffer("scale", torch.tensor(number), persistent=False)
            if kind == "frozen":
                self.scale = nn.Parameter(torch.tensor(number), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return x * getattr(self, "scale", 1.0) * self.number

    class Other(Part):
        def forward(self, x: Any) -> Any:
            return -0.7 * super().forward(x)

    Other.__name__ = Other.__qualname__ = Part.__name__

    def build(part: Callable[[], Any]) -> Any:
        head = nn.Linear(FEATURES, 1, bias=False)
        nn.init.zeros_(head.weight)
        return nn.Sequential(part(), head)

    if kind == "code":
        return [lambda: build(lambda: Part(1.0)), lambda: build(lambda: Other(1.0))]
    return [lambda: build(lambda: Part(1.0)), lambda: build(lambda: Part(-0.7))]


def module_goals(kind: str) -> list[Objective]:
    from sottovoce.problems.module import Module

    modules = [Module(build, Logistic()) for build in networks(kind)]
    assert modules[0].network == modules[1].network  # they print the same
    return [Objective(module, L2(0.05)) for module in modules]


KINDS = ["frozen", "buffer", "hidden buffer", "attribute", "code"]


@pytest.mark.parametrize("kind", KINDS)
def test_two_backbones_do_not_share_noise(kind: str) -> None:
    """An analyst trains the same head on two public backbones with one seed, and subtracts the models.

    The difference was the exact difference of two gradients of the private rows.
    """
    pytest.importorskip("torch", reason="PyTorch is not installed: make test TORCH=1")
    data, goals = rows(), module_goals(kind)
    noisy = [model(data, LOOSE, objective=objective) for objective in goals]
    exact = [model(data, NoPrivacy(), objective=objective) for objective in goals]
    noise = model(data, LOOSE, objective=goals[0], seed=6) - noisy[0]
    assert not noise_cancels(noisy[1] - noisy[0], exact[1] - exact[0], noise), "the models differ by exact gradients"


@pytest.mark.parametrize("kind", KINDS)
def test_two_backbones_are_charged_twice(kind: str, tmp_path: Path) -> None:
    """The same with ledgers: both runs looked at the rows, so both must be in the ledger."""
    pytest.importorskip("torch", reason="PyTorch is not installed: make test TORCH=1")
    for objective in module_goals(kind):
        model(rows(), LOOSE, objective=objective, ledgers=tmp_path)
        make_room(tmp_path)
    assert spent(tmp_path) == [2]


# --------------------------------------------------------------------------------------------- row 3: engines, and runs


@pytest.mark.parametrize("engines", [("numpy", "kernel"), ("auto", "kernel"), ("numpy", "numpy")])
def test_every_run_on_a_ledger_is_charged(engines: tuple[Any, Any], tmp_path: Path) -> None:
    """An analyst repeats a run, with another engine or with the same, and the same seed.

    Engines agree to rounding only, and what differs there is a function of the rows without noise. Each run looks at
    the rows anew and must be charged, even the very same one: only stored answers may be sent again for free.
    """
    for engine in engines:
        model(rows(), LOOSE, engine=engine, ledgers=tmp_path)
        make_room(tmp_path)
    assert spent(tmp_path) == [2]


@pytest.mark.parametrize("method", [DPSGD(step=1.0), DPADMM(rho=0.3), PVP(rho=0.3)], ids=lambda method: method.name)
def test_engines_share_noise_only_where_they_agree_to_the_last_bit(method: Any) -> None:
    """Models of two engines with one seed, subtracted: the rounding errors of exact gradients were left."""
    pytest.importorskip("numba")
    for seed in range(3):
        data = rows(seed, 2000)
        one, other = (model(data, LOOSE, method, engine=engine) for engine in ("numpy", "kernel"))
        apart = float(np.abs(one - other).max())
        assert apart == 0.0 or apart > 1e-6, f"the two models differ by {apart:.1g}, without noise"


def test_split_columns_are_charged_for_every_run(tmp_path: Path) -> None:
    """The same where columns are split: parties pay again. Labels are flipped once for life, and those flips are kept:
    the second run uses the same flipped labels, which give away no more."""
    privacy, flips = replace(COLUMN_UNITS["proven, record"], label_epsilon=1.0), []
    for seed in (5, 6):
        train(ADMMSharing(), small_columns(), goal(), rounds=2, privacy=privacy, seed=seed, ledgers=tmp_path)
        make_room(tmp_path)
        flips.append((tmp_path / "labels" / "flips.npz").read_bytes())
    assert spent(tmp_path) == [2 * 3] * 6  # two rounds and a model, twice
    assert spent(tmp_path / "labels") == [1]
    assert flips[0] == flips[1]


# ------------------------------------------------------------------------------------------------ row 9: two neighbours

NEIGHBOURS: dict[str, tuple[Any, Any, Any]] = {
    "gradient": (DPSGD(step=1.0), LOOSE, GOAL),
    "gradient, laplace": (DPSGD(step=1.0), replace(LOOSE, delta=0.0, mechanism="laplace"), GOAL),
    "arg-min": (PVP(rho=0.3), LOOSE, GOAL),
    "prox-steps": (FedSPDDP(rho=0.3, gamma=0.6, local_steps=3, variant="P"), LOOSE, GOAL),
    "descent": (FedPLT(rho=1.0, step=0.5, variant="B"), LOOSE, Objective(Squared(), L2(0.05))),
    "whole client": (DPSGD(step=1.0), replace(LOOSE, unit="client"), GOAL),
}


@pytest.mark.parametrize("kind", NEIGHBOURS)
def test_neighbours_do_not_share_noise(kind: str) -> None:
    """An analyst trains on yesterday's rows and on today's, in which one record changed, with one seed.

    The difference of the two models was the record's exact contribution.
    """
    method, privacy, objective = NEIGHBOURS[kind]
    of = {"method": method, "objective": objective}
    a, b = rows(), neighbour(rows())
    noisy, other = model(a, privacy, **of), model(b, privacy, **of)
    exact = model(b, NoPrivacy(), **of) - model(a, NoPrivacy(), **of)
    noise = model(a, privacy, seed=6, **of) - noisy
    assert not noise_cancels(other - noisy, exact, noise), "the models differ by one record's exact contribution"


def test_another_record_of_one_client_leaves_the_others_their_noise() -> None:
    """Noise is bound to each client's own rows: what others have changes nothing of a client's own answer.

    Else one client alone and all together would not agree; and still the changed client's noise must be another.
    """
    halves = [rows(0), rows(1)]
    uploads = []
    for data in ([halves[0], halves[1]], [neighbour(halves[0]), halves[1]]):
        whole = Federation.from_clients([half.data()[0] for half in data], row_bound=1.0)
        method = DPSGD(step=1.0)
        simulator = assemble(method, whole, GOAL, LOOSE, Everyone(), 1, Streams(5), None, "numpy")
        oracle, _ = simulator.door.open(np.arange(2), np.ones(2, dtype=bool), 1)
        uploads.append(oracle.grad(np.zeros((1, FEATURES))))
    assert np.array_equal(uploads[0][1], uploads[1][1])
    assert np.linalg.norm(uploads[0][0] - uploads[1][0]) > 0.5, "the changed client kept its noise"


@pytest.mark.parametrize("unit", COLUMN_UNITS)
def test_neighbouring_columns_do_not_share_noise(unit: str) -> None:
    """The same where columns are split: one sample's entries change at one party, which gets the same target twice."""
    usual, target, rho = small_columns(), np.random.default_rng(0).normal(size=(6, 40)), np.full((6, 1), 0.3)
    changed = usual.dense_data()[2][0].copy()
    changed[0] *= -1.0
    other = VerticalFederation((*usual.parts[:2], changed, *usual.parts[3:]), usual.y, usual.names)
    noise = []
    for data in (usual, other):
        simulator = place(COLUMN_UNITS[unit], federation=data)
        exact = simulator.exact.predict(simulator.exact.fit(target, rho, np.arange(6)), np.arange(6))
        noise.append((ask(simulator, target, 1, 0.3) - exact)[2])
    assert not noise_cancels(noise[1] - noise[0], 0.0 * noise[0], noise[0]), "both answers have the same noise"


def test_flips_of_labels_do_not_follow_from_the_seed_alone() -> None:
    """Labels of two days, randomised with one seed: where the two differ the label has changed, without a doubt."""
    privacy = replace(COLUMN_UNITS["proven, record"], label_epsilon=1.0)
    flips = []
    for turned in (0, 1):
        usual = small_columns()
        y = usual.y.copy()
        y[:turned] *= -1
        data = VerticalFederation(usual.parts, y, usual.names)
        split: Any = assemble(ADMMSharing(), data, goal(), privacy, Everyone(), 1, Streams(5), None, "numpy")
        told = -np.sign(split.labels.slope(np.zeros((1, 40))))[0]
        flips.append(told != y)
    assert flips[0].any()
    assert not np.array_equal(flips[0], flips[1]), "the same labels are flipped, so changed ones show"
