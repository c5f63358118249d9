"""FedAvg and its kin against gradient descent, arg-mins, and a plain re-reading of Algorithms 3 and 4 of FedEPM."""

from itertools import pairwise
from math import ceil, sqrt
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPFedAvg, FedAvg, FedProx, SFedAvg, SFedProx
from sottovoce.algorithms.fedavg import Down
from sottovoce.core.check import InvalidInput
from sottovoce.core.participation import Bernoulli, Everyone, KOfN
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Checkpoint
from sottovoce.privacy import accounting
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic
from sottovoce.problems.rows import Rows
from tests.cases import goal, small
from tests.local import assemble
from tests.reference import optimum

OFF: dict[str, Any] = {"privacy": sv.NoPrivacy(), "engine": "numpy", "seed": 0}


def fit(algorithm: Any, federation: Federation | None = None, objective: Any = None, **options: Any) -> sv.Result:
    options = OFF | {"record_every": options["rounds"]} | options
    return sv.train(algorithm, federation or small(), objective or goal(), **options)


def gradients(w: np.ndarray, ridge: float = 0.05) -> np.ndarray:
    """Of every client's logistic loss at its own point (6, 4), ridge included, written out."""
    federation = small()
    rows = [(federation.X[i:j], federation.y[i:j]) for i, j in pairwise(federation.offsets)]
    slopes = [X.T @ (-y / (1 + np.exp(y * (X @ v)))) / len(y) for (X, y), v in zip(rows, w, strict=True)]
    return np.stack(slopes) + ridge * w


def uploads(algorithm: Any, privacy: Any, runs: int = 500) -> np.ndarray:
    """What the clients send in the first round: (runs, 6, 4)."""
    kept: list[Checkpoint] = []
    fit(algorithm, rounds=1, privacy=privacy, runs=runs, seed=1, after_round=kept.append)
    return kept[-1].server.z


def deviation(z: np.ndarray) -> np.ndarray:
    return np.sqrt(z.var(axis=0).mean(axis=-1))


def test_local_steps_of_fedprox_end_at_the_arg_min() -> None:
    """(36): many steps from w solve argmin f_i + r + pull/2 |. − w|²; FedAvg's would go on to each client's own."""
    federation = small()
    rows = Rows(federation.X, federation.y, federation.offsets, Logistic(), "mean", "numpy")
    for pull in (0.4, 0.0):
        expected = rows.argmin(np.zeros((1, 4)), pull + 1e-12, ridge=0.05, tol=1e-11)
        model = fit(FedProx(step=2.0, local_steps=250, pull=pull), rounds=1).model
        np.testing.assert_allclose(model, expected.mean(axis=0), atol=1e-9)


def test_many_local_steps_drift_and_one_does_not() -> None:
    best = optimum(small(), goal())
    errors = [np.linalg.norm(fit(FedAvg(step=3.0, local_steps=e), rounds=400).model - best) for e in (1, 5)]
    assert errors[0] < 1e-12
    assert errors[1] > 1e-2
    pulled = fit(FedProx(step=3.0, local_steps=5, pull=0.2), rounds=400).model
    assert 1e-3 < np.linalg.norm(pulled - best) < errors[1]


# ------------------------------------------------------------------------------------------------- SFedAvg and SFedProx


def plain_secured(algorithm: SFedAvg, masks: list[np.ndarray]) -> np.ndarray:
    """Algorithm 3, with Algorithm 4 inside: the last messages of all clients after the last round."""
    sizes, k0 = small().sizes, algorithm.local_steps
    z, mine, mean = np.zeros((6, 4)), np.zeros((6, 4)), np.zeros(4)
    for k in range(k0 * len(masks)):
        mask = masks[k // k0]
        if k % k0 == 0:
            if algorithm.over == "drawn":
                mean = z[mask].mean(axis=0)  # (34) as printed
            elif k > 0:
                mean = z[masks[k // k0 - 1]].mean(axis=0)  # as section IV-C has it
        v = np.where(k % k0 == 0, mean, mine)
        gamma = 2 * sizes[:, None] / sqrt(2 * k0 + ceil(k / k0)) * algorithm.step / 2  # (38)
        for _ in range(algorithm.inner):
            v = v - gamma * (gradients(v) + algorithm.pull * (v - mean))
        mine = np.where(mask[:, None], v, mine)
        if (k + 1) % k0 == 0:
            z = np.where(mask[:, None], mine, z)
    return z


@pytest.mark.parametrize("over", ["uploaded", "drawn"])
@pytest.mark.parametrize("participation", [Everyone(), KOfN(2)], ids=["everyone", "2-of-6"])
@pytest.mark.parametrize("kind", [SFedAvg, SFedProx])
def test_a_run_is_algorithm_3(kind: Any, participation: Any, over: Any) -> None:
    algorithm = kind(step=0.05, local_steps=3, over=over, pull=0.0 if kind is SFedAvg else 0.8)
    masks = [mask for _, mask in zip(range(7), participation.masks(6, Streams(4)), strict=False)]
    kept: list[Checkpoint] = []
    result = fit(algorithm, rounds=7, participation=participation, seed=4, after_round=kept.append)
    z = plain_secured(algorithm, masks)
    np.testing.assert_allclose(result.model, z[masks[-1]].mean(axis=0), atol=1e-13)
    if over == "drawn":
        np.testing.assert_allclose(kept[-1].server.z, z, atol=1e-13)


def test_constants_of_the_paper() -> None:
    for kind, inner, pull in ((SFedAvg, 1, 0.0), (SFedProx, 3, 1e-5)):
        algorithm = kind(local_steps=4)
        assert (algorithm.inner, algorithm.pull, algorithm.mu, algorithm.by_size) == (inner, pull, 0.05, True)
        assert algorithm.steps(1) == [2 / sqrt(8), 2 / 3, 2 / 3, 2 / 3]
        assert algorithm.asks().only.answers == 4 * inner


def test_steps_by_size_weigh_clients_by_their_records() -> None:
    """(38) on unequal clients: the limit is the optimum of all records pooled, not that of the mean of the f_i."""
    federation = small()
    pooled = optimum(Federation.from_clients([(federation.X, federation.y)], row_bound=1.0), goal())
    model = fit(SFedAvg(step=0.4, local_steps=1), rounds=900).model
    np.testing.assert_allclose(model, pooled, atol=1e-10, rtol=0)
    assert np.linalg.norm(pooled - optimum(federation, goal())) > 0.05


@pytest.mark.parametrize("k", [1, 1000])
@pytest.mark.parametrize("kind", [SFedAvg, SFedProx])
def test_published_noise_has_the_stated_deviation(kind: Any, k: int) -> None:
    """(39): twice the L1 norm of the gradient at the broadcast model, whatever came after it."""
    epsilon, mu, k0, runs = 0.5, 0.7, 2, 500
    algorithm = kind(step=0.3, local_steps=k0, mu=mu)
    parts = (algorithm, small(), goal(), sv.Published(epsilon), Everyone(), k, Streams(1, runs), None, "numpy")
    place = assemble(*parts)
    place.start(algorithm)
    w = np.random.default_rng(0).normal(size=(1, 4))
    exchange = place.exchange(algorithm, Down(np.tile(w, (runs, 1, 1))), np.ones((runs, 6), dtype=bool), k)
    assert exchange is not None
    scale = 2 * np.abs(gradients(np.tile(w, (6, 1)))).sum(axis=-1) / (epsilon * mu * 1.001 ** (k * k0))
    np.testing.assert_allclose(deviation(exchange.up.w), sqrt(2) * scale, rtol=0.1)


def test_prox_needs_one_step_for_all() -> None:
    with pytest.raises(InvalidInput, match="by_size=False"):
        fit(SFedAvg(), objective=goal(penalty="l1"), rounds=1)
    assert fit(SFedAvg(by_size=False), objective=goal(penalty="l1"), rounds=1).rounds == 1


# ------------------------------------------------------------------------------------------------------------ DP-FedAvg


def test_dp_fedavg_noise_and_cost() -> None:
    """Client level: five local steps, one charge; the upload is the model, a clipped move, and noise 2·clip·nm."""
    privacy = sv.Proven(epsilon=4.0, delta=1e-3, clip=1.5, unit="client")
    sent = uploads(DPFedAvg(step=3.0, over="drawn"), privacy)
    noise = accounting.calibrate(4.0, 1e-3, 1, relation="replace-client") * 2 * 1.5
    np.testing.assert_allclose(deviation(sent), noise, rtol=0.08)
    moves = uploads(DPFedAvg(step=3.0, over="drawn"), sv.Proven(1e9, 1e-3, clip=1.5, unit="client"), runs=1)[0]
    exact = np.zeros((6, 4))
    for _ in range(5):
        exact = exact - 3.0 * gradients(exact)
    lengths = np.linalg.norm(exact, axis=-1, keepdims=True)
    assert lengths.max() > 1.5 > lengths.min()
    np.testing.assert_allclose(moves, exact * np.minimum(1, 1.5 / lengths), atol=1e-3)
    guarantee = fit(DPFedAvg(step=3.0), rounds=6, privacy=privacy).guarantee
    assert guarantee.epsilon == pytest.approx(4.0, abs=1e-3)
    assert "whole client" in guarantee.unit


def test_a_run_in_which_nobody_answers_keeps_its_model() -> None:
    """In a stack of runs the server works whenever anyone answered in any of them."""
    for algorithm in (FedAvg(step=1.0), SFedAvg(step=1.0, by_size=False, over="drawn")):
        options: dict[str, Any] = {"rounds": 6, "participation": Bernoulli(0.15), "seed": 8}
        masks = [mask for _, mask in zip(range(6), Bernoulli(0.15).masks(6, Streams(8)), strict=False)]
        assert not all(mask.any() for mask in masks)
        alone, stacked = fit(algorithm, **options), fit(algorithm, runs=5, **options)
        assert np.array_equal(stacked.model[0], alone.model)
        assert np.any(alone.model)


def test_refusals_name_the_class() -> None:
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (FedProx, {"pull": -1.0}, "FedProx: pull"),
        (DPFedAvg, {"step": 0.0}, "DPFedAvg: step"),
        (SFedAvg, {"inner": 0}, "SFedAvg: inner"),
        (SFedProx, {"mu": 0.0}, "SFedProx: mu"),
        (FedAvg, {"over": "all"}, "FedAvg: unknown over"),
    ]
    for kind, bad, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            kind(**bad)
