"""The number that noise is made for must bound what the floating-point answer does, whatever the private data.

Who attacks knows all data but one unit (a party's columns, a column, a record, a run) and compares the released numbers
with the guarantee that is printed beside them.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD, PVP, ADMMSharing, FedSPDDP
from sottovoce.auditing.tape import Tape
from sottovoce.core import round as loop
from sottovoce.core.check import NoGuarantee
from sottovoce.core.contract import Kept
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.train import train
from sottovoce.privacy import accounting
from sottovoce.privacy.doors.party import OutOfRange
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation
from tests.cases import COLUMN_UNITS, goal, small, small_columns
from tests.local import assemble

SAMPLES = 8
SLACK = 1 + 1e-9  # of the comparison here; noise is not made for more than it says
LABELS = np.where(np.arange(SAMPLES) % 2 == 0, 1.0, -1.0)

# ---------------------------------------------------------------------------------------------------- row 4: ridge fits


def released(D: np.ndarray, privacy: Any, u: np.ndarray, mu: float) -> list[tuple[np.ndarray, float]]:
    """(exact part, sensitivity that its noise is for) of the scores and of the model of the party with columns D."""
    algorithm, lam = ADMMSharing(), 0.05
    data = VerticalFederation((D, np.ones((SAMPLES, 1))), LABELS, ("attacked", "other"))
    parts = (algorithm, data, Objective(Logistic(), L2(lam)), privacy, Everyone(), 1, Streams(7), None, "numpy")
    place: Any = assemble(*parts)
    place.start(algorithm)
    place.door.intercept = tape = Tape()
    target, rho = np.vstack([u, u]), np.full((2, 1), lam / mu)
    try:
        place.door.open(np.arange(2), np.ones(2, dtype=bool), 1)[0].fit(target, rho)
        place.door.models(Kept(target=target, rho=rho), np.arange(2), 1)
    except OutOfRange:  # by public numbers: so for all data alike
        return []
    noise = place.door.events[0].noise_multiplier
    return [(made.exact[0], float(made.scale[0, 0]) / noise) for made in tape.made if made is not None]


def columns(rng: np.random.Generator, unit: str, size: float, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Nearly parallel columns of this size and those of a neighbour, (samples, 5) each."""
    along = rng.normal(size=(SAMPLES, 1))

    def drawn(width: int) -> np.ndarray:
        return size * (along + gap * rng.normal(size=(SAMPLES, width)))

    D = drawn(5)
    if unit == "party":
        return D, drawn(5) if rng.random() < 0.5 else np.zeros_like(D)
    other = D.copy()
    if unit == "column":
        other[:, 0] = drawn(1)[:, 0] if rng.random() < 0.5 else 0.0
    else:
        other[0] = size * rng.normal(size=5)
    return D, other


LARGE = 1e9
RIDGES = {
    "party": ProvenColumns(20.0, 1e-3, unit="party", bound=50.0),
    "column": ProvenColumns(20.0, 1e-3, unit="column", bound=50.0, column_bound=LARGE),
    "record": ProvenColumns(20.0, 1e-3, unit="record", bound=50.0, row_bound=LARGE, score_bound=10.0),
}


@pytest.mark.parametrize("unit", ["party", "column"])
def test_a_ridge_fit_moves_no_more_than_its_noise_is_for(unit: str) -> None:
    """A party's columns are nearly parallel and large, so that rounding decides what its fit says.

    The scores of two neighbours moved by up to five times the number that their noise was made for.
    """
    rng, worst = np.random.default_rng(1), (0.0, "")
    for _ in range(150):
        size, gap = 10.0 ** rng.uniform(0, 8), 10.0 ** rng.uniform(-9, -6)
        mu = 10.0 ** rng.uniform(-20, -5)
        D, other = columns(rng, unit, size, gap)
        u = rng.normal(size=SAMPLES)
        pair = (released(D, RIDGES[unit], u, mu), released(other, RIDGES[unit], u, mu))
        for what, (a, stated), (b, _) in zip(("scores", "model"), *pair, strict=False):
            moved = float(np.linalg.norm(a - b)) / stated
            worst = max(worst, (moved, f"{what}, columns of size {size:.1g}, {gap:.1g} apart, lam/rho {mu:.1g}"))
    assert worst[0] <= SLACK, f"moved {worst[0]:.3g} times what the noise is for: {worst[1]}"


@pytest.mark.parametrize("mu", [1e-16, 1e-20, 1e-40])
@pytest.mark.parametrize("unit", ["party", "column"])
def test_scores_stay_in_their_ball_at_vanishing_penalties(unit: str, mu: float) -> None:
    """lam/rho, which the server chooses, is lost in rounding beside the columns.

    In exact numbers H lies between 0 and 1, so the scores H u lie in the ball |s − u/2| <= |u|/2: all that the proof of
    a whole party needs. So must the released numbers.
    """
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(60):
        D, _ = columns(rng, unit, 10.0 ** rng.uniform(0, 6), 10.0 ** rng.uniform(-9, -7))
        u = rng.normal(size=SAMPLES)
        for scores, _ in released(D, RIDGES[unit], u, mu)[:1]:
            worst = max(worst, 2 * float(np.linalg.norm(scores - u / 2) / np.linalg.norm(u)))
    assert worst <= SLACK, f"the scores are {worst:.3g} radii from the middle of their ball"


# ------------------------------------------------------------------------------------------------ row 5: runs at a time


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_a_guarantee_covers_all_models_of_its_result(kind: str) -> None:
    """Someone is handed a result with 50 models of 50 runs on the same rows, and reads one guarantee.

    It must count what all 50 cost together; or say, in its text, that only one of them may be released.
    """
    runs, rounds = 50, 2
    if kind == "rows":
        privacy: Any = Proven(epsilon=1.0, delta=1e-3, clip=1.0)
        result = train(DPSGD(), small(), goal(), rounds=rounds, privacy=privacy, seed=5, runs=runs, engine="numpy")
        answers, relation = rounds, "replace-one"
    else:
        privacy = COLUMN_UNITS["proven, record"]
        result = train(ADMMSharing(), small_columns(), goal(), rounds=rounds, privacy=privacy, seed=5, runs=runs)
        answers, relation = rounds + 1, "replace-one"
    noise = accounting.calibrate(privacy.epsilon, privacy.delta, answers, relation=relation)
    event = {"mechanism": "gaussian", "relation": relation}
    together = accounting.epsilon({Event(noise_multiplier=noise, **event): runs * answers}, privacy.delta)  # type: ignore[arg-type]
    said = result.guarantee
    assert said.epsilon is not None
    only_one = re.search(r"\b(only|just) one\b|\bone of (them|the|these)\b", said.text) is not None
    assert only_one or said.epsilon >= together * (1 - 1e-6), f"{said.epsilon:.3g} is printed, {together:.3g} is true"


# ------------------------------------------------------------------------------------------- row 7: losses from outside


@dataclass(frozen=True)
class Flatter(Logistic):
    """Says that its slope is at most 1/50, and it is 1: long rows are then scaled down far too little."""

    lipschitz = 0.02


@dataclass(frozen=True)
class Steeper(Logistic):
    """Says the usual slope, and its own is 30 times as large."""

    def value(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 30 * super().value(margin, y)

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 30 * super().slope(margin, y)

    def second(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return 30 * super().second(margin, y)


@dataclass(frozen=True)
class Concave(Logistic):
    """Says that it is convex and hardly bends; in truth local steps drive two close points apart."""

    curvature = 1e-6

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -0.05 * y - 0.95 * np.tanh(1e3 * margin)


@dataclass(frozen=True)
class Nosy(Logistic):
    """The slope of each row depends on all others: one record moves every clipped gradient."""

    def slope(self, margin: np.ndarray, y: np.ndarray) -> np.ndarray:
        return super().slope(margin, y) * (100.0 if np.sum(y) >= 0 else -100.0)


METHODS = {
    "gradient": DPSGD(step=1.0),
    "arg-min": PVP(rho=1000.0),
    "prox-steps": FedSPDDP(rho=0.3, gamma=0.6, local_steps=20, variant="P"),
}


@pytest.mark.parametrize(
    ("loss", "kind"),
    [(Flatter(), "arg-min"), (Steeper(), "arg-min"), (Concave(), "prox-steps"), (Nosy(), "gradient")],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_the_constants_of_a_loss_from_outside_are_not_believed(loss: Any, kind: str) -> None:
    """A user's own loss states constants that are not its own, by mistake or not; the guarantee was printed for them.

    Such a loss must be refused in `Proven`, or its answers must move by no more than their noise is made for.
    """
    length, y = 40.0 if isinstance(loss, Flatter) else 1.0, np.where(np.arange(12) % 2 == 0, 1.0, -1.0)
    X = np.tile([length, 0.0], (12, 1))
    if isinstance(loss, Nosy):
        X[:, 0] *= y
    answers = []
    for turned in (0, 1):
        labels = y.copy()
        labels[:turned] *= -1
        data = Federation.from_clients([(X, labels)], row_bound=length)
        try:
            answers.append(exact_answer(data, Objective(loss, L2(0.05)), METHODS[kind]))
        except NoGuarantee:
            return  # refused, whatever the rows
    (usual, stated), (other, _) = answers
    moved = float(np.linalg.norm(usual - other))
    assert moved <= stated * SLACK, f"moved {moved / stated:.3g} times what the noise is for"


def exact_answer(data: Federation, objective: Objective, algorithm: Any) -> tuple[np.ndarray, float]:
    """The exact part of the first answer in training, and the sensitivity that its noise is for."""
    privacy = Proven(epsilon=1.0, delta=1e-3, clip=1.0)
    place = assemble(algorithm, data, objective, privacy, Everyone(), 1, Streams(7), None, "numpy")
    place.door.intercept = tape = Tape()
    place.start(algorithm)
    options: dict[str, Any] = {"penalty": objective.penalty, "participation": Everyone(), "streams": Streams(7)}
    loop.train(algorithm, place, rounds=1, **options)
    made = tape.made[0]
    assert made is not None
    return made.exact[0], float(made.scale[0, 0]) / place.door.events[0].noise_multiplier
