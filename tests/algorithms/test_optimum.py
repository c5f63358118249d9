"""With noise off every algorithm reaches the optimum that scikit-learn or a closed form gives."""

import numpy as np
import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.experiment.train import train
from sottovoce.privacy.modes import NoPrivacy
from tests.cases import ARG_MIN, CASES, goal, small
from tests.reference import optimum

EVERY_PAIR = [  # is enough: a method meets the loss, the penalty and the sizes in different places
    ("logistic", "l1", True),
    ("logistic", "l2", False),
    ("squared", "l1", False),
    ("squared", "l2", True),
]


@pytest.mark.parametrize(("loss", "penalty", "unequal"), EVERY_PAIR)
@pytest.mark.parametrize("name", CASES)
def test_noise_off_reaches_the_optimum(name: str, loss: str, penalty: str, unequal: bool) -> None:
    case, federation, objective = CASES[name], small(loss, unequal), goal(loss, penalty)
    rounds = case.enough(loss, penalty)
    options = {"rounds": rounds, "privacy": NoPrivacy(), "engine": "numpy", "record_every": rounds, "seed": 0}
    if case.smooth_only and not objective.penalty.smooth:
        with pytest.raises(InvalidInput, match="smooth penalty"):
            train(case.algorithm, federation, objective, **options)
        return
    result = train(case.algorithm, federation, objective, **options)
    np.testing.assert_allclose(result.model, optimum(federation, objective), atol=case.tolerance, rtol=0)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_scale_sum_weighs_clients_by_their_rows(loss: str) -> None:
    from sottovoce.algorithms import ADMM

    federation, objective = small(loss), goal(loss, "l2", scale="sum")
    options = {"rounds": 400, "record_every": 400, "privacy": NoPrivacy(), "engine": "numpy", "seed": 0}
    result = train(ADMM(rho=2.0), federation, objective, **options)
    np.testing.assert_allclose(result.model, optimum(federation, objective), atol=ARG_MIN, rtol=0)


def test_dp_admm_as_printed_nears_the_l1_optimum() -> None:
    """The paper's subgradient step for l1 with the steps of Theorem 3 is slow, O(1/√k), but it gets there."""
    from sottovoce.algorithms import DPADMM

    federation, objective = small(), goal(penalty="l1")
    best = optimum(federation, objective)
    errors = []
    for rounds in (100, 3000):
        result = train(
            DPADMM(rho=0.3, c_w=2.0), federation, objective, rounds=rounds, privacy=NoPrivacy(), engine="numpy",
            record_every=rounds, seed=0,
        )  # fmt: skip
        errors.append(np.linalg.norm(result.model - best) / np.linalg.norm(best))
    assert errors[1] < 0.04
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_dp_admm_in_the_papers_form(scale: str) -> None:
    """The regulariser's gradient at the clients, (39a), with the steps of Theorem 4."""
    from sottovoce.algorithms import DPADMM

    federation, objective = small(), goal(penalty="l2", scale=scale)
    algorithm = DPADMM(rho=0.3 if scale == "mean" else 2.0)
    options = {"rounds": 300, "record_every": 300, "privacy": NoPrivacy(), "engine": "numpy", "seed": 0}
    result = train(algorithm, federation, objective, **options)
    np.testing.assert_allclose(result.model, optimum(federation, objective), atol=1e-10, rtol=0)
