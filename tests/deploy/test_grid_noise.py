"""Noise on a grid, at nodes: the simulator's integers bit for bit if seeded, the operating system's bits if not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import DPSGD, FedEPM, FedPLT, FedSPDDP, Moments, MomentsThenGradients, NoisyGD
from sottovoce.auditing.verify import verify
from sottovoce.core.random import bits
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import LIMITS as OVER_LIMITS
from sottovoce.experiment import saved
from sottovoce.privacy import accounting, noise_key
from tests.cases import CASES
from tests.deploy.test_node import asks
from tests.deployments import (
    COLUMNS,
    NAME,
    SECURE,
    SECURE_COLUMNS,
    SEEDED,
    LocalPost,
    charged,
    column_deployment,
    deployment,
    simulated,
    write_nodes,
    write_parties,
)

DISCRETE = replace(SEEDED, noise="discrete")
ADD_REMOVE = replace(DISCRETE, relation="add-remove")
BOTH = {"relations": ["replace-one", "add-remove"]}
METHODS: dict[str, tuple[Any, Any]] = {
    **{name: (CASES[name].algorithm, DISCRETE) for name in ("dp-admm", "fed-plt", "fedepm", "fedspd-dp", "dp-sgd")},
    "dp-sgd, fixed-size batches": (DPSGD(step=1.0, batch=5), DISCRETE),
    "dp-sgd, Poisson batches": (DPSGD(step=1.0, batch=0.25), ADD_REMOVE),
    "dp-sgd, add-remove": (DPSGD(step=1.0), ADD_REMOVE),
    "dp-sgd, unit client": (DPSGD(step=1.0), replace(DISCRETE, unit="client")),
    "noisy-gd": (NoisyGD(), DISCRETE),
    "moments": (Moments(), DISCRETE),
    "moments, add-remove": (Moments(), ADD_REMOVE),
    "moments-then-gradients": (MomentsThenGradients(), DISCRETE),
    "admm": (CASES["admm"].algorithm, DISCRETE),
    "fedepm, local steps": (FedEPM(variant="P"), ADD_REMOVE),
    "fedspd-dp, local steps": (FedSPDDP(variant="P"), DISCRETE),
}


@pytest.mark.parametrize("name", METHODS)
def test_simulator_and_node_give_the_same_integers(name: str, tmp_path: Path) -> None:
    algorithm, privacy = METHODS[name]
    made = deployment(algorithm, privacy, 1 if type(algorithm) is Moments else 3)
    relation = privacy.counted_relation
    result = serve(made, NAME, LocalPost(write_nodes(tmp_path, relations=[relation])), tmp_path / "run")
    expected = simulated(made)
    assert np.array_equal(result.model, expected.model)
    assert result.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client
    assert "repeatable" in result.guarantee.noise
    seeded = replace(privacy, noise="seeded")
    assert not np.array_equal(result.model, simulated(deployment(algorithm, seeded, made.task.rounds)).model)


@pytest.mark.parametrize("algorithm", [FedEPM(variant="P"), FedSPDDP(variant="P"), FedPLT(local_steps=3, variant="B")])
def test_hidden_local_steps_are_the_same_in_the_simulator_and_at_nodes(algorithm: Any, tmp_path: Path) -> None:
    """How much noise a client adds depends on its own numbers alone, to the last bit."""
    made = deployment(algorithm, SEEDED, 3)
    result = serve(made, NAME, LocalPost(write_nodes(tmp_path)), tmp_path / "run")
    assert np.array_equal(result.model, simulated(made).model)


@pytest.mark.parametrize("privacy", [SECURE_COLUMNS, COLUMNS], ids=["clip", "ridge"])
def test_parties_and_the_simulator_give_the_same_integers(privacy: Any, tmp_path: Path) -> None:
    made = column_deployment("admm-sharing", replace(privacy, noise="discrete"))
    result = serve(made, NAME, LocalPost(write_parties(tmp_path)), tmp_path / "run")
    expected = simulated(made)
    assert np.array_equal(result.model, expected.model)
    assert result.guarantee.epsilon_of_client == expected.guarantee.epsilon_of_client


def test_a_node_that_accepts_no_seed_refuses_seeded_integers(tmp_path: Path) -> None:
    files = write_nodes(tmp_path, seeded=False)
    for privacy in (SEEDED, DISCRETE):
        reply = Node(files[0]).answer(asks("dp-admm", privacy)[0])
        assert (reply.code, charged(files[0])) == (OVER_LIMITS, 0)
        assert "seeded noise is not accepted, noise must be 'secure'" in reply.why
    assert Node(files[0]).answer(asks("dp-admm", SECURE)[0]).code == ""


@pytest.mark.parametrize("name", ["dp-sgd", "dp-sgd, fixed-size batches", "dp-sgd, Poisson batches", "moments",
                                  "dp-sgd, unit client", "admm", "fedspd-dp, local steps"])  # fmt: skip
def test_secure_noise_reaches_no_seeded_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither integers nor batches nor floating-point noise: whatever is drawn from a seed raises an error here."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("seeded bits in a deployment")

    algorithm, privacy = METHODS[name]
    made = deployment(algorithm, replace(privacy, noise="secure"), 1)
    files = write_nodes(tmp_path, relations=[privacy.counted_relation], seeded=False)
    for module in (bits, noise_key):
        monkeypatch.setattr(module, "SeededBits", refuse)
    for method in ("noise", "bits", "batch", "uniform"):
        monkeypatch.setattr(noise_key.NoiseKey, method, refuse)
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    assert [charged(file) for file in files] == [1, 1, 1]
    assert "operating system" in result.guarantee.noise


@pytest.mark.parametrize("name", ["dp-sgd, fixed-size batches", "dp-sgd, Poisson batches"])
def test_random_batches_with_secure_noise_have_a_guarantee(name: str, tmp_path: Path) -> None:
    """It names the theorem, its epsilon is the accountant's, and the saved run holds up to `verify`."""
    algorithm, privacy = METHODS[name]
    privacy = replace(privacy, epsilon=2.0, noise="secure")
    made = deployment(algorithm, privacy, 3)
    files = write_nodes(tmp_path, relations=[privacy.counted_relation], seeded=False)
    result = serve(made, NAME, LocalPost(files), tmp_path / "run")
    shown = str(result.guarantee)
    assert "Theorem 2" in shown
    sizes = np.array([20, 31, 47])
    (event,) = made.plan(sizes)
    assert event.sampling == ("poisson" if privacy.relation == "add-remove" else "fixed-size")
    assert result.guarantee.epsilon == pytest.approx(accounting.epsilon({event: 3}, privacy.delta), rel=1e-12)
    assert 0.99 * privacy.epsilon < accounting.epsilon({event: 3}, privacy.delta) <= privacy.epsilon
    report = verify(tmp_path / "run")
    assert report.holds, str(report)
    assert np.array_equal(saved.load_result(tmp_path / "run").model, result.model)
