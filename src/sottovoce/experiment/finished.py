"""The end of a run on this machine: what was spent, the guarantee that follows from it, and standard errors.

Standard errors follow from the law of the noise, which is public: no privacy is spent on them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from sottovoce.core import moments
from sottovoce.core.contract import KnownNoise
from sottovoce.core.participation import Everyone
from sottovoce.core.plain import Json
from sottovoce.core.round import Outcome
from sottovoce.experiment.result import Result
from sottovoce.experiment.rounds import Ledgers
from sottovoce.experiment.task import Task
from sottovoce.experiment.vertical_result import RESULTS
from sottovoce.ledger.charges import Charges
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import Statement, state_guarantee
from sottovoce.privacy.modes import Proven

if TYPE_CHECKING:
    from sottovoce.experiment.local import LocalClients


def epsilons_spent(clients: "LocalClients") -> np.ndarray:
    """The epsilon of every client, of the worst run; only where there is a budget."""
    return cast(Ledgers, clients.ledger).epsilons().reshape(-1, clients.n).max(axis=0)


def charges_of(clients: "LocalClients", rounds: int) -> Charges | None:
    """What the ledgers were charged; None where there are none."""
    if clients.ledger is None:
        return None
    return Charges(clients.door.events, rounds, *clients.ledger.histories(), clients.ledger.run, clients.label_charges)


def finished_run(
    clients: "LocalClients", outcome: Outcome, config: Json, lasting: bool, model: np.ndarray, **facts: object
) -> Result:
    """The result with its guarantee, from what the ledgers say. `facts`: what else the guarantee depends on."""
    task, federation, charges = clients.task, clients.federation, charges_of(clients, outcome.rounds)
    known = _statement(clients, charges, lasting, forgotten="seed" not in config["run"])
    terms = task.claim_terms(federation.sizes, federation.row_bound, outcome.rounds)
    guarantee = state_guarantee(task.privacy, task.algorithm.name, outcome.rounds, known, terms, **facts)
    parts = (model, outcome.history, guarantee, outcome.rounds, outcome.stopped, task.objective, config, charges)
    measured = {} if clients.test is None else clients.test.metrics(model)
    result = RESULTS[clients.layout](*parts, measured, **federation.model_parts())
    if task.privacy.budget is None or (clients.layout == "columns" and task.split is None):
        return result
    where = federation.sizes, clients.door.events, outcome.server, outcome.rounds, federation.row_bound
    return replace(result, standard_errors=standard_errors(task, *where))


def _statement(clients: "LocalClients", charges: Charges | None, lasting: bool, forgotten: bool) -> Statement | None:
    """What is known of a finished run with a budget."""
    if clients.ledger is None or charges is None:
        return None
    epsilons, delta = epsilons_spent(clients), clients.ledger.budget.delta
    accountant = accounting.accountant_name(clients.ledger.spent(int(np.argmax(epsilons))), delta)
    several, kinds = charges.repetitions > 1, clients.task.asks().kinds
    of_all = accounting.epsilon(charges.of_all_repetitions(), delta) if several else None
    return Statement(epsilons, accountant, charges, kinds, lasting, forgotten=forgotten, of_all=of_all)


def standard_errors(
    task: Task, sizes: np.ndarray, events: Sequence[Event], server: object, rounds: int, row_bound: float | None
) -> np.ndarray | None:
    """Standard errors of a settled task's model, (runs?, dim); None where the method or the run has none.

    They are known for Gaussian noise on all records, and everyone in every round.
    """
    parts, loss = task.declared.parts, task.objective.loss
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
