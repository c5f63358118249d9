"""Constants that noise rests on are believed of this library's own losses and penalties alone, by their exact types."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD, FedSPDDP
from sottovoce.auditing.neighbours import Linear
from sottovoce.core.check import NoGuarantee
from sottovoce.core.vouched import vouched
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy, Proven, Published
from sottovoce.problems.losses import LOSSES, Huber, Logistic, Softmax, Squared, WeightedLogistic, WeightedSoftmax
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L1, L2, PENALTIES, Ball, Box, ElasticNet, NoPenalty
from sottovoce.problems.rows import Rows
from tests.cases import small

PROVEN = Proven(1.0, 1e-5, 1.0)


@dataclass(frozen=True)
class Flat(Logistic):
    """States a curvature that it does not have, and says that it is one of the library's."""

    __module__ = Logistic.__module__

    curvature = 1e-6


@dataclass(frozen=True)
class FreeProx(L1):
    __module__ = L1.__module__

    def prox(self, v: np.ndarray, step: float | np.ndarray) -> np.ndarray:
        return 10.0 * v


def run(loss: Any, privacy: Any, algorithm: Any = None, penalty: Any = None) -> Any:
    goal = Objective(loss, penalty or L2(0.1))
    return train(algorithm or DPSGD(step=0.1), small(), goal, rounds=1, privacy=privacy, seed=0)


def test_the_library_vouches_for_its_own_and_for_nothing_else() -> None:
    ours = [Logistic(), Softmax(3), Squared(), Huber(), *(LOSSES[name]() for name in ("smoothed-hinge",)), Linear()]
    ours += [WeightedLogistic((1.0, 2.0)), WeightedSoftmax(3, (1.0, 2.0, 3.0))]
    assert {type(loss) for loss in ours} == {*LOSSES.values(), Linear}
    penalties = [NoPenalty(), L1(1.0), L2(1.0), ElasticNet(1.0, 1.0), Box(0.0, 1.0), Ball(1.0)]
    assert {type(penalty) for penalty in penalties} == set(PENALTIES.values())
    assert all(vouched(thing) for thing in [*ours, *penalties])
    assert not any(vouched(thing) for thing in (Flat(), FreeProx(1.0), object, 3.0))


def test_an_attribute_of_its_own_that_hides_one_of_the_class_is_noticed() -> None:
    loss = Huber()
    object.__setattr__(loss, "note", "hides nothing")
    assert vouched(loss)
    object.__setattr__(loss, "code", 2)  # the kernel would take the slopes of another loss
    assert not vouched(loss)
    for name in ("lipschitz", "curvature"):
        loss = Logistic()
        object.__setattr__(loss, name, 0.01)
        assert not vouched(loss)
    with pytest.raises(AttributeError):  # it follows from a field
        object.__setattr__(Huber(), "lipschitz", 0.01)


def test_a_loss_of_someone_else_is_refused_where_its_constants_would_be_believed() -> None:
    with pytest.raises(NoGuarantee, match=r"nobody vouches for .* Flat.*unit='client', or Published or NoPrivacy"):
        run(Flat(), PROVEN)
    for privacy in (Proven(1.0, 1e-5, 1.0, unit="client"), Published(0.9, 1e-3), NoPrivacy()):
        run(Flat(), privacy)
    run(Linear(), PROVEN)


def test_a_penalty_of_someone_else_is_refused_where_its_prox_would_be_believed() -> None:
    with pytest.raises(NoGuarantee, match="nothing is known about the prox of FreeProx"):
        run(Logistic(), PROVEN, FedSPDDP(variant="P"), FreeProx(0.01))


def test_neural_models_are_vouched_for_if_their_output_loss_is() -> None:
    torch = pytest.importorskip("torch")
    from sottovoce.problems.module import Module

    class Net(Module):
        pass

    def build() -> Any:
        return torch.nn.Linear(4, 1)

    run(Module(build, Logistic()), PROVEN)
    for loss in (Module(build, Flat()), Net(build, Logistic())):
        with pytest.raises(NoGuarantee, match="nobody vouches"):
            run(loss, PROVEN)


@pytest.mark.parametrize("engine", ["numpy", "kernel"])
def test_the_loss_of_canaries_is_a_straight_line(engine: str) -> None:
    """So that every curvature that is stated for it is true, wherever its margins are."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), rng.choice([-2.0, 0.0, 5.0], 30)
    rows = Rows(X, y, [0, 10, 30], Linear(width=0.5), engine=engine)
    w = rng.normal(size=(2, 3))
    np.testing.assert_allclose(rows.gradient(w), rows.gradient(1e3 * w), rtol=1e-12)
    by_hand = -0.5 * np.sign(y[:10]) @ X[:10] / 10
    np.testing.assert_allclose(rows.gradient(w)[0], by_hand, rtol=1e-12)
    np.testing.assert_allclose(np.sum(rows.gradient(w) * w, axis=1), rows.value(w), rtol=1e-12)
    loss, v = Linear(width=0.5), rng.normal(size=30)
    near = loss.prox(v, y, 2.0)
    np.testing.assert_allclose(2.0 * (near - v) + loss.slope(near, y), 0.0, atol=1e-12)
