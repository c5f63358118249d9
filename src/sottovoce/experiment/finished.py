"""The end of a run on this machine: what was spent, and the result with the guarantee that follows from it."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core.plain import Json
from sottovoce.core.round import Outcome
from sottovoce.experiment.errors import standard_errors
from sottovoce.experiment.result import RESULTS, Result
from sottovoce.ledger.charges import Charges
from sottovoce.privacy.guarantee import Statement, state_guarantee

if TYPE_CHECKING:
    from sottovoce.experiment.local import LocalClients


def epsilons_spent(clients: "LocalClients") -> tuple[np.ndarray | None, str]:
    """The epsilon of every client (of the worst run), and which accountant says so."""
    if clients.ledger is None:
        return None, ""
    from sottovoce.privacy import accounting

    epsilons = clients.ledger.epsilons().reshape(-1, clients.n).max(axis=0)
    return epsilons, accounting.accountant_name(clients.ledger.spent(int(np.argmax(epsilons))), clients.delta)


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
    epsilons, accountant = epsilons_spent(clients)
    if epsilons is None or charges is None:
        return None
    of_all = None
    if charges.repetitions > 1:
        from sottovoce.privacy import accounting

        of_all = accounting.epsilon(charges.of_all_repetitions(), clients.delta or 0.0)
    kinds = clients.task.asks().kinds
    return Statement(epsilons, accountant, charges, kinds, lasting, forgotten=forgotten, of_all=of_all)
