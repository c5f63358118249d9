"""Other models from the sums that were opened: post-processing, so they cost nothing.

Once the noisy products of split columns are open (`algorithms/masked_moments.py`), a model for another penalty, or of
some of the columns, needs nobody's answer.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from sottovoce.algorithms import MaskedMoments
from sottovoce.algorithms.masked_moments import Server
from sottovoce.core import check, products
from sottovoce.core.contract import KnownNoise
from sottovoce.core.plain import Json
from sottovoce.core.round import Outcome
from sottovoce.problems.penalties import Penalty, WithIntercept

if TYPE_CHECKING:
    from sottovoce.experiment.result import Result, VerticalResult


def opened_sums(outcome: Outcome) -> np.ndarray:
    """The products of columns that a finished run opened."""
    return products.from_limbs(cast(Server, outcome.server).sums)[..., 0, :]


def with_penalty(result: "VerticalResult", penalty: Penalty) -> "VerticalResult":
    """The result with the model for another penalty."""
    method, sums = _opened(result)
    objective, whole = result.objective, penalty
    if isinstance(objective.penalty, WithIntercept):
        whole = WithIntercept(penalty, objective.loss.outputs, objective.penalty.penalised)
    model = method.minimised(sums, whole)
    server = Server(model, products.to_limbs(sums), np.ones((*sums.shape[:-1], 1)))
    known = KnownNoise(method.noise, 1.0, method.curvature, whole, 1)
    errors = None if result.guarantee.epsilon is None else method.standard_errors(server, known)
    return replace(
        result,
        model=model[..., 0, :],
        objective=replace(objective, penalty=whole),
        standard_errors=None if errors is None else errors[..., 0, :],
        metrics={},
        config=_with_penalty(result, penalty),
    )


def of_party(result: "VerticalResult", m: int) -> "VerticalResult":
    """The result with the model that party m's columns alone give: all other coefficients but the bias are zero."""
    method, sums = _opened(result)
    model = method.minimised(sums, result.objective.penalty, method.columns_of(m))
    return replace(result, model=model[..., 0, :], standard_errors=None, metrics={})


def method_of(result: "Result") -> MaskedMoments | None:
    """The method of a run that opened products, with all its constants; None for other runs."""
    from sottovoce.experiment.tables import named

    table = result.config.get("algorithm", {})
    if table.get("name") != MaskedMoments.name:
        return None
    return named({MaskedMoments.name: MaskedMoments}, "algorithm", table, "[algorithm]")


def _opened(result: "VerticalResult") -> tuple[MaskedMoments, np.ndarray]:
    rule, hint = "no products were opened", "Train with masked-moments"
    method = check.given(method_of(result), "Result", rule, hint)
    return method, check.given(result.sums, "Result", rule, hint)[..., None, :]


def _with_penalty(result: "VerticalResult", penalty: Penalty) -> Json:
    from sottovoce.experiment.tables import describe_objective

    table = result.config["objective"]
    objective = describe_objective(replace(result.objective, penalty=penalty))
    kept = {name: table[name] for name in ("fit_intercept", "penalise_intercept") if name in table}
    return result.config | {"objective": objective | kept}
