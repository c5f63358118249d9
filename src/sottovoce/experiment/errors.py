"""How far noise moved the parameters of a model: the noise's law is public, so to say it costs no privacy."""

from collections.abc import Sequence

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

    They are known for Gaussian noise on all records, everyone in every round, and one kind of question.
    """
    privacy, parts, loss = task.privacy, task.algorithm.asks().parts, task.objective.loss
    if task.split is not None:  # the method knows its noise, which is different on each of its sums
        noise = KnownNoise(0.0, 1.0, loss.curvature, task.objective.penalty, rounds)
        errors = task.algorithm.standard_errors(server, noise) if rounds else None
        return None if errors is None else errors[..., 0, :]
    sizes = task.training_sizes(sizes)
    plain = isinstance(privacy, Proven) and privacy.mechanism == "gaussian" and isinstance(task.participation, Everyone)
    if not plain or len(parts) != 1 or parts[0].batch or not events or row_bound is None:
        return None
    assert isinstance(privacy, Proven)
    scale, by_client = task.objective.scale, privacy.unit == "client"
    of_record = 1 / sizes if scale == "mean" else np.full(len(sizes), 1.0 if isinstance(scale, str) else scale)
    replaced, cut = privacy.relation == "replace-one", privacy.clip
    if parts[0].kind == "moments" and not by_client:
        slope = min(parts[0].slope_bound, loss.slope_at_zero)
        one, cut = moments.sensitivity(parts[0].kappa, slope, replaced), privacy.clip / slope
    elif parts[0].kind == "gradient":
        one = (2 if replaced else 1) * privacy.clip
    else:
        return None
    weights = np.ones(len(sizes)) if by_client else of_record
    if privacy.sums:  # all add the same noise, a share of what hides the heaviest record
        weights = np.full(len(sizes), weights.max() / np.sqrt(privacy.honest))
    deviation = events[0].noise_multiplier * one * float(np.linalg.norm(weights)) / len(sizes)
    curvature = float(np.mean(of_record * sizes)) * loss.curvature * row_bound**2
    if not np.isfinite(curvature) or (privacy.participations or rounds) < rounds:
        return None
    noise = KnownNoise(deviation, cut, curvature, task.objective.penalty, rounds)
    errors = task.algorithm.standard_errors(server, noise)
    return None if errors is None else errors[..., 0, :]
