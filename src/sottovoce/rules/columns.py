"""Constants of masked-moments, from what is public about split columns: no data, no training, no search."""

import math
from dataclasses import replace

from sottovoce.algorithms import MaskedMoments
from sottovoce.core import check
from sottovoce.core.products import products_sensitivity
from sottovoce.privacy.modes import PrivacyMode
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import VerticalFederation
from sottovoce.rules.choice import Chosen
from sottovoce.rules.numbers import PublicNumbers, slope_of


def fitted(
    algorithm: MaskedMoments, federation: VerticalFederation, objective: Objective, privacy: PrivacyMode
) -> MaskedMoments:
    """The method with everything that follows from public numbers: who has how many columns, the loss, the noise.

    Rows that are not known to be bounded are cut to √columns, the length of a row with entries in [-1, 1].
    """
    loss = objective.loss
    check.require(objective.scale == "mean", "masked-moments", "is for scale 'mean' or 'records'", objective.scale)
    check.require(loss.convex, "masked-moments", "is for convex losses", loss.name)
    columns = sum(federation.widths)
    public = PublicNumbers(federation.samples, federation.n, columns, *(privacy.budget or (1.0, 1e-6)), loss=loss)
    stated = getattr(privacy, "row_bound", None) or federation.row_bound
    bound = algorithm.slope_bound if algorithm.slope_bound != "auto" else slope_of(loss)
    return replace(
        algorithm,
        slope_bound=min(bound, loss.slope_at_zero),
        widths=federation.widths,
        shares=federation.shares or federation.widths,
        row_bounds=tuple(float(stated or math.sqrt(width)) for width in federation.widths),
        holder=federation.holder,
        bias=federation.bias,
        samples=federation.samples,
        outputs=loss.outputs,
        curvature=public.bend,
        noise=0.0 if privacy.budget is None else products_sensitivity(algorithm.kappa) / public.mu,
    )


def chosen(algorithm: MaskedMoments) -> Chosen:
    """Why: the rule in words, with its numbers."""
    import numpy as np

    lam = algorithm.lam(np.ones(algorithm.split.columns, dtype=bool))
    words = (
        f"columns are split, so products of columns with noise of {algorithm.noise:.3g} records each, one round; "
        f"lambda = {lam:.3g}"
    )
    return Chosen(algorithm.name, words)
