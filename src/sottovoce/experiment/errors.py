"""Standard errors of a model's parameters, from the law of its noise, which is public: no privacy is spent on them."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from sottovoce.core import moments
from sottovoce.core.contract import KnownNoise
from sottovoce.core.participation import Everyone
from sottovoce.experiment.task import Task
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven


def standard_errors(
    task: Task, sizes: np.ndarray, events: Sequence[Event], server: object, rounds: int, row_bound: float | None
) -> np.ndarray | None:
    """Standard errors of a settled task's model, (runs?, dim); None where the method or the run has none.

    They are known for Gaussian noise on all records, and everyone in every round.
    """
    parts, loss = task.algorithm.asks().parts, task.objective.loss
    if task.split is not None:  # the method knows its noise, which is different on each of its sums
        noise = KnownNoise(0.0, 1.0, loss.curvature, task.objective.penalty, rounds)
        errors = task.algorithm.standard_errors(server, noise) if rounds else None
        return None if errors is None else errors[..., 0, :]
    sizes = task.training_sizes(sizes)
    privacy = cast(Proven, task.privacy)  # it has a budget, and rows are split
    plain = privacy.mechanism == "gaussian" and isinstance(task.participation, Everyone)
    if not plain or any(part.batch for part in parts) or len(events) != len(parts) or row_bound is None:
        return None
    scale, by_client = task.objective.scale, privacy.unit == "client"
    of_record = 1 / sizes if scale == "mean" else np.full(len(sizes), 1.0 if isinstance(scale, str) else scale)
    weights = np.ones(len(sizes)) if by_client else of_record
    if privacy.sums:  # all add the same noise, a share of what hides the heaviest record
        weights = np.full(len(sizes), weights.max() / np.sqrt(privacy.honest))
    deviations, cut = [], privacy.clip
    for part, event in zip(parts, events, strict=True):
        replaced = privacy.relation == "replace-one"
        if part.kind == "moments" and not by_client:
            slope = min(part.slope_bound, loss.slope_at_zero)
            one, cut = moments.sensitivity(part.kappa, slope, replaced), privacy.clip / slope
        elif part.kind == "gradient":
            one = (2 if replaced else 1) * privacy.clip
        else:
            return None
        deviations.append(event.noise_multiplier * one * float(np.linalg.norm(weights)) / len(sizes))
    curvature = float(np.mean(of_record * sizes)) * loss.curvature * row_bound**2
    if not np.isfinite(curvature) or (privacy.participations or rounds) < rounds:
        return None
    first, later = (*deviations, 0.0)[:2]
    noise = KnownNoise(first, cut, curvature, task.objective.penalty, rounds, later)
    errors = task.algorithm.standard_errors(server, noise)
    return None if errors is None else errors[..., 0, :]
