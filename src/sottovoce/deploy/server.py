"""The server's half of a deployment: the one loop of `core/round.py` over clients on other machines.

A checkpoint is on disk after every round, so a stopped server goes on where it was: it asks the same question again,
and a client that answered it sends the same answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import AfterRound, Checkpoint, Outcome
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.multiplied_remote import MultipliedRemote
from sottovoce.deploy.remote import Post, Remote, TooFewAnswers, log
from sottovoce.deploy.reported_charges import charged, shown_by, together
from sottovoce.deploy.summed_remote import SummedRemote
from sottovoce.deploy.wire import Status
from sottovoce.experiment import saved, store
from sottovoce.experiment.evaluation import evaluations_of
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import Tables
from sottovoce.experiment.vertical_result import RESULTS, opened_sums
from sottovoce.ledger.charges import Charges
from sottovoce.privacy.guarantee import state_guarantee

Statuses = tuple[Mapping[int, Status], Mapping[int, Status]]  # the last of each client; those at the end of the run


def serve(
    deployment: Deployment, name: str, post: Post, folder: Path, after_round: AfterRound = lambda checkpoint: None
) -> Result:
    """Train over the clients behind `post`, from the start or from the checkpoint in `folder`, and save the run."""
    clients, task = deployment.clients, deployment.task
    nobody, settings = deployment.blank(), deployment.settings
    config, resume = _config(deployment, name), None
    if folder.is_dir() and any(folder.iterdir()):
        resume = saved.load_checkpoint(folder, task, nobody, config)
    batches = bool(task.declared.batch)
    met = post.statuses(clients.wait)
    _must_fit(deployment, met, len(clients.names) if batches or clients.split else clients.least)
    # Without batches noise does not depend on sizes: a client that is late for the first round is no hindrance.
    sizes = np.array([met[i].size if batches else 1 for i in range(len(clients.names))])
    # A run that goes on keeps its engine, whoever is there now: engines agree to rounding only.
    engine = settings.engine if resume is None else str(resume.clients.get("engine", settings.engine))
    kind = SummedRemote if task.privacy.sums else Remote if task.split is None else MultipliedRemote
    remote = kind(deployment, name, post, sizes, engine, sum(status.size for status in met.values()))
    keep = store.Checkpoints(folder, config, nobody, last=resume)
    if resume is not None:
        log.info("going on after round %d", resume.k)
        remote.restore(resume.clients)
    for client, status in met.items():
        remote.limits[client] = status.limit

    def kept(checkpoint: Checkpoint) -> None:
        keep.last = checkpoint
        keep.write()
        after_round(checkpoint)

    assert settings.seed is not None
    outcome = task.play(remote, Streams(settings.seed), resume, settings.record_every, kept)
    check.require(outcome.rounds > 0, "app", f"no round could be done, {outcome.stopped}")
    in_parts = clients.split and task.split is None
    model = remote.models(outcome.rounds) if in_parts else outcome.model[..., 0, :]
    counted = None if task.evaluate is None else remote.evaluate(outcome.model)
    last = post.statuses(wait=0)
    seen = {**met, **last}
    result = _finished(deployment, remote, outcome, model, config, (seen, last))
    if counted is not None:
        whole = np.array([seen[i].size if i in seen else 0 for i in range(len(clients.names))])
        held = whole - task.training_sizes(whole)
        evaluations = evaluations_of(task, model, *counted, held, remote.events, clients.row_bound)
        result = replace(result, evaluations=evaluations)
    store.save(result, folder)
    remote.saved()
    return result


def _config(deployment: Deployment, name: str) -> Json:
    """The settings that are saved with the run."""
    clients = deployment.clients
    config = deployment.tables | {"clients": deployment.tables["clients"] | {"experiment": name}}
    if clients.split:  # where a result is looked for whose model is in parts
        config["data"] = {"source": "arrays", "rows": clients.samples, "split": list(clients.split)}
    if deployment.task.split is not None:
        config["data"] |= {"names": list(clients.names)}  # for whoever verifies the guarantee
    return config


def _finished(
    deployment: Deployment, remote: Remote, outcome: Outcome, model: np.ndarray, config: Tables, statuses: Statuses
) -> Result:
    """The finished run, with its guarantee from what clients' ledgers say at the end; of a silent one, its limit."""
    clients, task, nobody, rounds = deployment.clients, deployment.task, deployment.blank(), outcome.rounds
    names, (seen, last) = clients.names, statuses
    limits = np.where(remote.heard | np.isfinite(remote.limits), remote.limits, 0.0)
    charges, known, budget = None, None, task.privacy.budget
    if remote.events:
        reports = [(name, last.get(i), float(limits[i])) for i, name in enumerate(names)]
        charges = charged(task.privacy, remote.events, rounds, config["clients"]["experiment"], reports)
        known = None if budget is None else shown_by(charges, budget[1], task.asks().kinds)
    sizes = np.array([seen[i].size if i in seen else 1 for i in range(len(names))])
    facts = _facts(deployment, charges, model.shape[-1] > 0)
    terms = task.claim_terms(sizes, clients.row_bound, rounds)
    guarantee = state_guarantee(task.privacy, task.algorithm.name, rounds, known, terms, **facts)
    never = [who for i, who in enumerate(names) if not remote.heard[i] and not np.isfinite(remote.limits[i])]
    guarantee = guarantee.leaving_out(*(f"anything of {who}, who was never heard of in this run" for who in never))
    parts = (model, outcome.history, guarantee, rounds, outcome.stopped, task.objective, config, charges)
    result = RESULTS[nobody.layout](*parts, remote.metrics(model), **nobody.model_parts())
    return result if task.split is None else replace(result, sums=opened_sums(outcome))


def _facts(deployment: Deployment, charges: Charges | None, predicts: bool) -> Json:
    """What a guarantee about split columns also depends on."""
    task, clients = deployment.task, deployment.clients
    if task.split is not None:
        dealers = {"dealers": dict(zip(task.split.pairs, clients.dealers, strict=True))} if clients.dealers else {}
        return {"names": clients.names, **dealers}
    if clients.split and charges is not None:
        return {"together": together(task.privacy, charges), "predicts": predicts}
    return {}


def _must_fit(deployment: Deployment, met: Mapping[int, Status], least: int) -> None:
    clients = deployment.clients
    if len(met) < least:
        missing = ", ".join(name for client, name in enumerate(clients.names) if client not in met)
        why = "" if least == clients.least else "; batches are drawn, so the noise depends on everyone's size"
        why = "; all must be seen to have the same samples" if clients.split else why
        raise TooFewAnswers(f"app: {len(met)} clients are there and {least} must be{why}. Missing: {missing}")
    for client, status in met.items():
        who, columns = f"client {clients.names[client]!r}", clients.split[client] if clients.split else clients.columns
        check.require(status.columns == columns, who, f"must have {columns} columns", status.columns)
        if clients.split:
            check.require(status.size == clients.samples, who, f"must have {clients.samples} samples", status.size)
            same = status.order == met[clients.holding].order
            check.require(same, who, f"must have the samples of {clients.holder!r}, by the same ids and salt",
                          hint="Join them first, or let all parties promise same_order")  # fmt: skip
            check.require(status.labels or client != clients.holding, who, "is the label holder and has no labels")
