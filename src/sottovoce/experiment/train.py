"""Training on this machine: `train`, the main function of the library."""

from dataclasses import replace
from pathlib import Path

from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.contract import Layout, Method
from sottovoce.core.histogram import Evaluation
from sottovoce.core.participation import Everyone, Participation
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import AfterRound, Checkpoint
from sottovoce.experiment.held_out import Split
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import LocalParties
from sottovoce.experiment.public_test import checked
from sottovoce.experiment.result import Result
from sottovoce.experiment.rounds import Ledgers
from sottovoce.experiment.tables import describe_task
from sottovoce.experiment.task import Engine, Task, warn_about_delta
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers, new_run, same_run
from sottovoce.privacy.modes import PrivacyMode
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.objective import Objective

AnyLedgers = str | Path | Ledgers | None  # a folder, or open ones
CLIENTS: dict[Layout, type[LocalClients]] = {"rows": LocalClients, "columns": LocalParties}


def local_clients(
    task: Task,
    federation: FederatedData,
    streams: Streams,
    test: object = None,
    ledgers: Path | Ledgers | None = None,
    run: str = "",
    kept_split: str = "",
) -> LocalClients:
    """All clients of a federation in this process: parts checked, ledgers opened, noise calibrated.

    `ledgers`: a folder, or open ones; `kept_split`: what a checkpoint kept of which records are held out.
    """
    check.of_kind("train", "federation", federation, FederatedData, "Federation.from_arrays(X, y, groups)")
    task = task.for_layout(federation.layout)
    task.check(federation.layout)
    data = task.objective.on(federation, blanks=getattr(task.privacy, "relation", "") == "add-remove")
    task = task.settled(data)
    folder = ledgers if isinstance(ledgers, Path) else None
    ledger = open_ledgers("train", task.privacy, federation, ledgers, streams.runs, run)
    kind, split = CLIENTS[federation.layout], None
    try:
        task.objective.loss.check_both_classes(task.objective.loss.check_labels(data.y))
        warn_about_delta(task.privacy, data)
        events = kind.planned(task, data, ledger, folder is not None)
        if task.evaluate is not None:
            split = Split.simulated(ledger, streams, range(data.n), kept_split)
        clients = kind.of(task, data, ledger, streams, events, test=checked(task, federation, test), split=split)
        clients.randomise_labels(folder)
        return clients
    except Exception:
        if ledger is not None:
            ledger.close()
        raise


def open_ledgers(
    who: str,
    privacy: PrivacyMode,
    federation: FederatedData,
    ledgers: Path | Ledgers | None,
    runs: int | None = None,
    run: str = "",
) -> Ledgers | None:
    """What answers are charged to: files in a folder, ledgers that are open already, or memory."""
    if privacy.budget is None:
        check.require(ledgers is None, who, f"ledgers are for privacy 'proven'; {type(privacy).__name__} has no budget")
        return None
    budget = Budget(*privacy.budget)
    if ledgers is None:
        return MemoryLedger(budget, (federation.n,) if runs is None else (runs, federation.n))
    if isinstance(ledgers, Path):
        check.require(runs is None, who, "ledgers are for one run at a time, not for runs", runs)
        return OwnerLedgers.open(ledgers, federation.names, federation.data(), budget, run)
    if federation.layout == "columns":
        raise check.InvalidInput("train: where columns are split, ledgers must be a folder, got open ones")
    rule = f"open ledgers must have the budget of the run, {budget}"
    check.require(ledgers.budget == budget, "train", rule, ledgers.budget)
    return ledgers


def train(
    algorithm: Method | str,
    federation: FederatedData,
    objective: Objective,
    *,
    rounds: int | None = None,
    privacy: PrivacyMode,
    participation: Participation = Everyone(),  # noqa: B008 (frozen)
    seed: int | None = None,
    runs: int | None = None,
    test: tuple[object, ArrayLike] | None = None,
    engine: Engine = "auto",
    record_every: int = 1,
    measure_training: bool = True,
    ledgers: AnyLedgers = None,
    evaluate: Evaluation | bool | None = None,
    resume: Checkpoint | None = None,
    after_round: AfterRound | None = None,
) -> Result:
    """Train one model over a federation, on this machine.

    Parameters
    ----------
    algorithm
        One of `sottovoce.algorithms`, e.g. ``DPADMM(rho=0.1)``. Or the name of a method, and a rule gives it constants
        and rounds from sizes and the budget alone (`sottovoce.rules`); or "auto": the rule chooses the method too.
    federation, objective
        Who holds which rows (or, in a `VerticalFederation`, which columns); what is minimised.
    rounds
        How many rounds; left out where a rule chooses.
    privacy
        ``Proven(...)`` (where columns are split: ``ProvenColumns(...)``), ``Published(...)`` or ``NoPrivacy()``. There
        is no default: it has to be said.
    participation
        Who takes part in which round.
    seed
        Makes the run repeatable. None: a fresh one from the operating system, which is written nowhere: whoever has it
        could take the noise off again.
    runs
        Train this many independent repetitions at once: every array gains a leading axis.
    test
        Public rows and labels to measure loss and accuracy on; where columns are split, a list of each party's.
    engine
        "kernel" (compiled), "numpy", or by problem size ("auto"). They agree to rounding.
    record_every
        Measure and record every so many rounds (and at the end).
    measure_training
        Record the objective on the private rows. A simulation may look; a deployment may not.
    ledgers
        `Proven` only: a folder with one ledger file per client, made on first use with this run's budget. What is
        spent there stays spent: later runs on the same data draw on the same budgets, and a client that has none
        left stays silent. One synced write per answer. Or ledgers that are open already, with what this run has
        spent on preparing the data, which the noise then makes up for; they are closed at the end.
    evaluate
        Whether, and how, the finished model is measured on records that their owners held out: each owner answers one
        question more, with noisy counts, out of the same budget. True: as `Evaluation()` says, with 5 % of the budget
        and 20 % of the records. The estimate is `Result.evaluation`. Which records these are follows from the seed; or,
        with a folder of ledgers, from a key in it, so that they are the same in all runs on that folder.
    resume
        Go on from this checkpoint of the same run.
    after_round
        Called with a checkpoint after every round.

    Examples
    --------
    >>> import numpy as np
    >>> import sottovoce as sv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(2000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1], 1, -1)
    >>> fed = sv.Federation.from_arrays(X, y, groups=rng.integers(0, 4, size=2000), row_bound=1.0)
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(1e-3))
    >>> privacy = sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0)
    >>> result = sv.train(sv.DPADMM(rho=0.1), fed, goal, rounds=20, privacy=privacy, seed=0, test=(X, y))
    >>> bool(result.history["test_accuracy"][-1] > 0.9)
    True
    >>> result.guarantee.short
    '1 (δ=1e-05) per record, server sees all messages, simulated noise'
    """
    check.whole("train", record_every=record_every, **({} if rounds is None else {"rounds": rounds}))
    asked = Task.of(algorithm, objective, privacy, rounds)
    task = replace(asked, participation=participation, engine=engine, evaluate=evaluation(evaluate))
    return run_task(task, federation, seed, runs, test, record_every, measure_training, ledgers, resume, after_round)


def run_task(
    task: Task,
    federation: FederatedData,
    seed: int | None = None,
    runs: int | None = None,
    test: tuple[object, ArrayLike] | None = None,
    record_every: int = 0,
    measure_training: bool = True,
    ledgers: AnyLedgers = None,
    resume: Checkpoint | None = None,
    after_round: AfterRound | None = None,
) -> Result:
    """`train` for a task as one value; `record_every` = 0: at the end only."""
    lasting = ledgers is not None and not isinstance(ledgers, MemoryLedger)
    if resume is not None:
        check.of_kind("train", "resume", resume, Checkpoint, "load_checkpoint(...)")
        seed = _seed_to_resume(resume, seed, task.privacy, lasting)
    streams = Streams.unpredictable(runs) if seed is None else Streams(seed, runs)
    kept = {} if resume is None else resume.clients
    run = new_run() if resume is None else same_run(kept.get("ledger.run"))
    folder = Path(ledgers) if isinstance(ledgers, str) else ledgers
    clients = local_clients(task, federation, streams, test, folder, run, str(kept.get("split", "")))
    clients.measure_training = measure_training
    settled = clients.task
    if resume is not None:
        clients.restore(settled.algorithm, resume.clients)
    try:
        record_every = record_every or settled.rounds
        outcome = settled.play(clients, streams, resume, record_every, after_round)
        run_table = {"rounds": settled.rounds, "seed": seed, "runs": runs or 0, "record_every": record_every}
        asked = replace(settled, objective=task.objective)  # what was asked for, with what followed from it
        stated = {name: value for name, value in run_table.items() if value is not None}  # no seed that was drawn
        engine = {"engine": getattr(clients.exact, "engine", task.engine)}
        config = {"data": federation.to_table(), **describe_task(asked), "run": engine | stated}
        result = replace(clients.result(outcome, config, lasting), objective=task.objective)
        if clients.ledger is not None:
            clients.ledger.finished()  # all rounds are done: kept answers are not needed any more
        return result
    finally:
        clients.close()


def evaluation(wanted: Evaluation | bool | None) -> Evaluation | None:
    """How held-out records are counted; None if they are not."""
    if wanted is None or isinstance(wanted, bool):
        return Evaluation() if wanted else None
    check.of_kind("train", "evaluate", wanted, Evaluation, "Evaluation(share=0.05), or True")
    return wanted


def _seed_to_resume(resume: Checkpoint, seed: int | None, privacy: PrivacyMode, ledgers: bool) -> int | None:
    """A resumed run must go on with the noise it had: rounds after the checkpoint may have been answered already."""
    drawn = seed is None and resume.seed is None
    if privacy.budget is not None and (privacy.secret_noise or drawn) and not ledgers:
        raise check.NoGuarantee(
            "train: a run with secure noise, or without a stated seed, cannot be resumed from memory: answers given "
            "after the checkpoint would go uncounted. Keep ledgers=FOLDER, where they stay counted, or start anew"
        )
    check.require(None in (seed, resume.seed) or seed == resume.seed, "train", "resume needs the seed of the run")
    return resume.seed if seed is None else seed
