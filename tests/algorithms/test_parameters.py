"""Hyper-parameters by name: what scikit-learn's `clone` and its searches need."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sottovoce as sv
from sottovoce.algorithms import DPADMM, DPSGD, ADMMSharing
from sottovoce.core.check import InvalidInput
from tests.cases import EVERY

RNG = np.random.default_rng(2)
X = RNG.uniform(-1, 1, size=(120, 3))
Y = np.where(X @ [2.0, -1.0, 0.5] + 0.3 * RNG.normal(size=120) > 0, "yes", "no")
EXACT: dict[str, Any] = {"privacy": "none", "rounds": 3, "engine": "numpy", "random_state": 0}


@pytest.mark.parametrize("name", EVERY)
def test_parameters_make_the_same_algorithm(name: str) -> None:
    algorithm = EVERY[name].algorithm
    assert type(algorithm)(**algorithm.get_params()) == algorithm
    assert clone(algorithm) == algorithm
    assert algorithm.set_params() == algorithm


def test_changing_a_parameter_makes_a_copy() -> None:
    before = DPADMM(rho=0.1, c_w=3.0)
    assert before.set_params(rho=0.5) == DPADMM(rho=0.5, c_w=3.0)
    assert before == DPADMM(rho=0.1, c_w=3.0)
    with pytest.raises(InvalidInput, match=r"DPADMM: unknown hyper-parameter 'roh'\. Did you mean 'rho'"):
        before.set_params(roh=0.5)
    with pytest.raises(InvalidInput, match="DPADMM: rho must be > 0, got -1"):
        before.set_params(rho=-1)


def test_an_estimator_shows_and_changes_its_algorithms_parameters() -> None:
    model = sv.FederatedClassifier(DPADMM(rho=0.1), **EXACT)
    assert model.get_params()["algorithm__rho"] == 0.1
    assert model.set_params(algorithm__rho=0.5, algorithm__c_w=2.0, rounds=7) is model
    assert (model.algorithm, model.rounds) == (DPADMM(rho=0.5, c_w=2.0), 7)
    model.set_params(algorithm=DPSGD(), algorithm__step=0.3)  # in this order, as in scikit-learn
    assert model.algorithm == DPSGD(step=0.3)
    named = sv.FederatedClassifier("dp-sgd", **EXACT).set_params(algorithm__step=0.3)
    assert named.algorithm == DPSGD(step=0.3)
    columns = sv.VerticalClassifier(algorithm="admm-sharing", privacy="none").set_params(algorithm__rho=2.0)
    assert columns.algorithm == ADMMSharing(rho=2.0)
    with pytest.raises(InvalidInput, match=r"cannot set algorithm__rho, as algorithm is 'auto'\. Give algorithm"):
        sv.FederatedClassifier("auto").set_params(algorithm__rho=1.0)
    for wrong in ({"algorithm__roh": 1.0}, {"algoritm__rho": 1.0}, {"rouns": 3}):
        with pytest.raises(ValueError, match=r"unknown|Invalid parameter"):
            model.set_params(**wrong)


def test_a_copy_keeps_its_own_algorithm() -> None:
    model = sv.FederatedClassifier(DPADMM(rho=0.1), **EXACT)
    copied: Any = clone(model)
    copied.set_params(algorithm__rho=0.5)
    assert model.algorithm == DPADMM(rho=0.1)


def test_other_parts_are_changed_as_scikit_learn_does() -> None:
    model = sv.FederatedClassifier("dp-admm", prepare=sv.PublicScaler((-1, 1)), **EXACT)
    model.set_params(prepare__ranges=(-2, 2))
    assert model.get_params()["prepare__ranges"] == (-2, 2)


@pytest.mark.parametrize("piped", [False, True], ids=["alone", "in a pipeline"])
def test_a_grid_search_over_a_hyper_parameter(piped: bool) -> None:
    model: Any = sv.FederatedClassifier(DPADMM(c_w=5.0), **EXACT)
    name, chosen = "algorithm__rho", lambda best: best
    if piped:
        model = make_pipeline(FunctionTransformer(), model)
        name, chosen = f"federatedclassifier__{name}", lambda best: best[-1]
    search = GridSearchCV(model, {name: [0.1, 1000.0]}, cv=3, scoring="neg_log_loss").fit(X, Y)
    assert search.best_params_ == {name: 0.1}  # a thousand holds every client where it is
    low, high = search.cv_results_["mean_test_score"]
    assert low > high + 0.1
    best = chosen(search.best_estimator_)
    assert best.algorithm == DPADMM(rho=0.1, c_w=5.0)
    alone = sv.FederatedClassifier(DPADMM(rho=0.1, c_w=5.0), **EXACT).fit(X, Y)
    assert np.array_equal(best.coef_, alone.coef_)
