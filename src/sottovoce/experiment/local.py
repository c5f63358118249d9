"""Transport: all active clients in one call, on this machine. And `train`, the library's face."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check, codec
from sottovoce.core import round as loop
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Algorithm, Site, VerticalAlgorithm
from sottovoce.core.participation import Everyone, Participation
from sottovoce.core.random.streams import Draw, Streams
from sottovoce.core.round import Checkpoint, Exchange, History
from sottovoce.experiment.to_tables import describe
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.charges import Charges, charges_of
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers, new_run, same_run
from sottovoce.privacy.doors.base import Door, Sealed, Visit, quietly
from sottovoce.privacy.doors.record import open_door, plan
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import Guarantee, Statement, state_guarantee
from sottovoce.privacy.modes import Privacy, Proven, ProvenColumns, Published, VerticalPrivacy
from sottovoce.privacy.noise_key import NoiseKey, rows_digests
from sottovoce.problems.federation import Federation
from sottovoce.problems.objective import Objective
from sottovoce.problems.rows import Rows
from sottovoce.problems.vertical import VerticalFederation

Engine = Literal["auto", "numpy", "kernel"]


@dataclass
class Simulator:
    """All clients of a federation in one process."""

    federation: Federation
    objective: Objective
    rows: Rows
    door: Door
    streams: Streams
    ledger: MemoryLedger | OwnerLedgers | None
    test: tuple[np.ndarray, np.ndarray] | None
    measure_training: bool = True

    _zeros: Sealed | None = None  # those that the last round had

    def __post_init__(self) -> None:
        self.n, self.dim = self.federation.n, self.rows.dim
        self._everyone = np.arange(self.n)
        self._states: Any = None

    def start(self, algorithm: Algorithm) -> None:
        """Initialise the clients' states. Their oracles are closed: a start that reads data would be a leak."""
        self._states = self._first_states(algorithm, self._everyone)
        codec.to_arrays(self._states)

    def _first_states(self, algorithm: Algorithm, local: np.ndarray) -> Any:
        return algorithm.init_client(self.site(local, np.ones(self._shape(len(local)), dtype=bool), k=0))

    def site(self, local: np.ndarray, active: np.ndarray, k: int) -> Site:
        """What these clients have in round k, before they are told anything; in round 0 their oracles are closed."""
        return self._site(local, k, *self.door.open(local, active, k, [self._sealed_zeros(len(local))]))

    def exchange(self, algorithm: Algorithm, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        able = self.door.able(self._everyone, k)
        if not able.any():
            return None
        active = active & able
        # With several runs at once a client works if any run asks it; runs that did not ask keep their old state.
        asked = np.flatnonzero(active if active.ndim == 1 else active.any(axis=0))
        if len(asked) == 0:
            return Exchange(None, active)
        everyone = len(asked) == self.n
        takes = active if everyone else active[..., asked]
        before, told = (x if everyone else codec.rows(x, asked) for x in (self._states, down))
        after, up = self.door.take_part(self._visit(algorithm, before, told, asked, takes, k))
        if everyone and takes.all():
            self._states = after
            return Exchange(up, active)
        self._states = codec.merge(self._states, after, asked, takes[..., None])
        return Exchange(codec.merge(codec.empty_rows(up, self.n), up, asked, takes[..., None]), active)

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Objective on the private rows (a simulation may look), loss and accuracy on the public test set."""
        w = model[..., 0, :]
        numbers: dict[str, np.ndarray] = {}
        if self.measure_training:
            numbers["objective"] = self._value(model) + self.objective.penalty.value(w)
        if self.test is not None:
            X, y = self.test
            loss = self.objective.loss
            scores = loss.scores(X, w)
            numbers["test_loss"] = loss.value(scores, y).mean(axis=-1)
            if loss.classification:
                numbers["test_accuracy"] = (loss.predict(scores) == y).mean(axis=-1)
        if self.ledger is not None:
            of_clients = np.sort(self.ledger.epsilons(roughly=True), axis=-1)
            numbers["epsilon"] = of_clients[..., -1]  # of the client that spent most
            numbers["epsilon_median"] = (of_clients[..., (self.n - 1) // 2] + of_clients[..., self.n // 2]) / 2
            numbers["epsilon_least"] = of_clients[..., 0]
        return numbers

    def _value(self, model: np.ndarray) -> np.ndarray:
        """The data term on the private rows. Where there is a guarantee, no error about them: NaN takes its place."""
        if self.ledger is None:
            return self.rows.value(model).mean(axis=-1)
        with quietly(), suppress(Exception):
            return self.rows.value(model).mean(axis=-1)
        return np.full(model.shape[:-2], np.nan)

    def spent(self) -> tuple[np.ndarray | None, str]:
        """The epsilon of every client (of the worst run), and which accountant says so."""
        if self.ledger is None:
            return None, ""
        from sottovoce.privacy import accounting

        epsilons = self.ledger.epsilons().reshape(-1, self.n).max(axis=0)
        return epsilons, accounting.accountant_name(self.ledger.spent(int(np.argmax(epsilons))), self.delta)

    def charges(self, rounds: int) -> Charges | None:
        """What the ledgers were charged; None where there are none."""
        return None if self.ledger is None else charges_of(self.ledger, self.door.event, rounds)  # type: ignore[attr-defined]

    def statement(
        self, algorithm: Algorithm, charges: Charges | None, lasting: bool, forgotten: bool
    ) -> Statement | None:
        """What is known of a finished run with a budget."""
        epsilons, accountant = self.spent()
        if epsilons is None or charges is None:
            return None
        of_all = None
        if charges.repetitions > 1:
            from sottovoce.privacy import accounting

            of_all = accounting.epsilon(charges.of_all_repetitions(), self.delta or 0.0)
        kind = algorithm.asks().kind
        return Statement(epsilons, accountant, charges, kind, lasting, forgotten=forgotten, of_all=of_all)

    @property
    def delta(self) -> float | None:
        """Of the budget; None where there is none."""
        return getattr(getattr(self.door, "privacy", None), "delta", None)

    def close(self) -> None:
        if isinstance(self.ledger, OwnerLedgers):
            self.ledger.close()

    def finished(self) -> None:
        """All rounds are done: kept answers are not needed any more."""
        if isinstance(self.ledger, OwnerLedgers):
            self.ledger.finished()

    def snapshot(self) -> dict[str, np.ndarray]:
        states = {f"client.{name}": array for name, array in codec.to_arrays(self._states).items()}
        if self.ledger is not None:
            states |= {f"ledger.{name}": array for name, array in self.ledger.state().items()}
        return states

    def restore(self, algorithm: Algorithm, arrays: dict[str, np.ndarray]) -> None:
        """Take up a snapshot; `algorithm` says what a client's state looks like."""
        self.start(algorithm)
        self._states = codec.from_arrays(type(self._states), codec.under("client.", arrays), like=self._states)
        if self.ledger is not None:
            self.ledger.restore(codec.under("ledger.", arrays))

    def _visit(
        self, algorithm: Algorithm, before: Any, told: Any, local: np.ndarray, active: np.ndarray, k: int
    ) -> Visit:
        """One round of some clients. What the server said is not theirs to change, so it is sealed."""
        zeros, arrays = self._sealed_zeros(len(local)), codec.to_arrays(told)
        sealed = {name: Sealed(array) for name, array in arrays.items()}
        told = type(told)(**{name: part.given for name, part in sealed.items()})
        oracle, releases = self.door.open(local, active, k, [zeros, *sealed.values()])
        return Visit(
            before=before,
            clients=len(local),
            start=lambda: self._first_states(algorithm, local),
            oracle=oracle,
            releases=releases,
            zeros=zeros.given,
            play=lambda states, f, release: algorithm.client(states, told, self._site(local, k, f, release)),
            alone=lambda place: self._visit(
                algorithm,
                codec.rows(before, np.array([place])),
                codec.rows(told, np.array([place])),
                local[place : place + 1],
                active[..., place : place + 1],
                k,
            ),
        )

    def _site(self, local: np.ndarray, k: int, oracle: Any, release: Any) -> Site:
        who = self.door.clients[local]
        return Site(
            f=oracle,
            penalty=self.objective.penalty,
            # A plain function: an attribute of the site must not lead back to the rows.
            release=lambda u, noise=None, centre=None: release(u, noise, centre),
            rng=Draw(self.streams, who, k),
            k=k,
            who=who,
            claim=self.door.claim,
            zeros=self._sealed_zeros(len(local)).given,
        )

    def _sealed_zeros(self, clients: int) -> Sealed:
        shape = (*self._shape(clients), self.dim)
        if self._zeros is None or self._zeros.given.shape != shape:
            self._zeros = Sealed(np.zeros(shape))
        return self._zeros

    def _shape(self, clients: int) -> tuple[int, ...]:
        return (clients,) if self.streams.runs is None else (self.streams.runs, clients)


@dataclass(frozen=True)
class Result:
    """A trained model, how it got there, and what may be said about privacy.

    Examples
    --------
    >>> import sottovoce as sv
    >>> fed = sv.Federation.from_arrays([[1.0], [-1.0], [0.9], [-0.8]], [1, -1, 1, -1], groups=["a", "a", "b", "b"])
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(0.1))
    >>> result = sv.train(sv.DPADMM(), fed, goal, rounds=10, privacy=sv.NoPrivacy(), seed=0, engine="numpy")
    >>> result.predict([[0.5], [-0.3]])
    array([ 1., -1.])
    >>> result.rounds, result.model.shape, sorted(result.history.columns)[:3]
    (10, (1,), ['answered', 'bytes_down', 'bytes_up'])
    >>> print(result.guarantee)
    No privacy: exact answers were sent in the clear.
    """

    model: np.ndarray  # (dim,), or (runs, dim)
    history: History
    guarantee: Guarantee
    rounds: int
    stopped: str
    objective: Objective
    config: dict[str, Any]
    charges: Charges | None = None  # what the owners' ledgers were charged, where there are any

    def scores(self, X: ArrayLike) -> np.ndarray:
        """Margins of new rows: (runs?, rows), or with one column per class for softmax."""
        return self.objective.loss.scores(check.finite_array("Result", "X", X, ndim=2), self.model)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Labels (or values, for regression) of new rows."""
        return self.objective.loss.predict(self.scores(X))

    def save(self, path: str | Path) -> Path:
        """Write a run folder: config, history (Parquet), model, guarantee, charges. All of it, or nothing."""
        from sottovoce.experiment import store

        return store.save(self, Path(path))


def train(
    algorithm: Algorithm,
    federation: Federation | VerticalFederation,
    objective: Objective,
    *,
    rounds: int,
    privacy: Privacy | VerticalPrivacy,
    participation: Participation = Everyone(),  # noqa: B008 (frozen)
    seed: int | None = None,
    runs: int | None = None,
    test: tuple[Any, ArrayLike] | None = None,
    engine: Engine = "auto",
    record_every: int = 1,
    measure_training: bool = True,
    ledgers: "str | Path | MemoryLedger | OwnerLedgers | None" = None,
    resume: Checkpoint | None = None,
    after_round: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Result:
    """Train one model over a federation, on this machine.

    Parameters
    ----------
    algorithm
        One of `sottovoce.algorithms`, e.g. ``DPADMM(rho=0.1)``.
    federation, objective
        Who holds which rows (or, in a `VerticalFederation`, which columns); what is minimised.
    rounds
        How many rounds.
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
    check.whole("train", rounds=rounds, record_every=record_every)
    lasting = ledgers is not None and not isinstance(ledgers, MemoryLedger)
    if resume is not None:
        check.of_kind("train", "resume", resume, Checkpoint, "load_checkpoint(...)")
        seed = _seed_to_resume(resume, seed, privacy, lasting)
    streams = Streams.unpredictable(runs) if seed is None else Streams(seed, runs)
    parts = (algorithm, federation, objective, privacy, participation, rounds, streams, test, engine)
    run = new_run() if resume is None else same_run(resume.clients.get("ledger.run"))
    simulator = assemble(*parts, ledgers=Path(ledgers) if isinstance(ledgers, str) else ledgers, run=run)
    simulator.measure_training = measure_training
    if resume is not None:
        simulator.restore(algorithm, resume.clients)
    try:
        outcome = loop.train(
            algorithm,
            simulator,
            rounds=rounds,
            penalty=objective.penalty,
            participation=participation,
            streams=streams,
            resume=resume,
            record_every=record_every,
            after_round=after_round,
        )
        config = describe(
            algorithm, federation, objective, privacy, participation, getattr(simulator.rows, "engine", engine)
        )
        stated = {} if seed is None else {"seed": seed}
        config["run"] |= {"rounds": rounds, **stated, "runs": runs or 0, "record_every": record_every}
        if isinstance(federation, VerticalFederation):
            from sottovoce.experiment import columns as vertical

            assert isinstance(simulator, vertical.VerticalSimulator)
            result = vertical.result(simulator, outcome, algorithm, privacy, config, lasting=lasting)
            simulator.finished()
            return result
        assert not isinstance(privacy, ProvenColumns)  # `assemble` has refused it
        charges = simulator.charges(outcome.rounds)
        known = simulator.statement(algorithm, charges, lasting, forgotten="seed" not in config["run"])
        simulator.finished()
    finally:
        simulator.close()
    terms = claim_terms(privacy, algorithm, federation.sizes, federation.row_bound, participation, outcome.rounds)
    guarantee = state_guarantee(privacy, algorithm.name, outcome.rounds, known, claim_terms=terms)
    model = outcome.model[..., 0, :]
    return Result(model, outcome.history, guarantee, outcome.rounds, outcome.stopped, objective, config, charges)


def assemble(
    algorithm: Algorithm,
    federation: Federation | VerticalFederation,
    objective: Objective,
    privacy: Any,  # a Privacy; a VerticalPrivacy where columns are split
    participation: Participation,
    rounds: int,
    streams: Streams,
    test: tuple[Any, ArrayLike] | None,
    engine: Engine,
    ledgers: Path | MemoryLedger | OwnerLedgers | None = None,
    run: str = "",
) -> Simulator:
    """Check that the parts fit, and put them together."""
    if isinstance(federation, VerticalFederation):
        from sottovoce.experiment import columns as vertical

        if isinstance(ledgers, MemoryLedger | OwnerLedgers):
            raise InvalidInput("train: where columns are split, ledgers must be a folder, got open ones")
        return vertical.assemble(  # its simulator is one of ours
            algorithm, federation, objective, privacy, participation, rounds, streams, test, ledgers, run
        )
    if isinstance(algorithm, VerticalAlgorithm):
        raise InvalidInput(
            f"train: {algorithm.name} is for columns split between parties; give it a VerticalFederation (in a file: "
            "[data] split = [66, 57], the columns of each party)"
        )
    for name, part, kind, example in (
        ("algorithm", algorithm, Algorithm, "DPADMM(rho=0.1)"),
        ("federation", federation, Federation, "Federation.from_arrays(X, y, groups)"),
        ("objective", objective, Objective, "Objective(Logistic(), L2(1e-6))"),
        ("privacy", privacy, Privacy, "Proven(epsilon=1.0, delta=1e-5, clip=1.0)"),
        ("participation", participation, Participation, "Everyone()"),
    ):
        check.of_kind("train", name, part, kind, example)
    if privacy.mode not in algorithm.modes:
        known = ", ".join(sorted(algorithm.modes))
        raise NoGuarantee(f"{algorithm.name}: has no {privacy.mode!r} variant (it has: {known})")
    algorithm.check(objective.penalty)
    loss = objective.loss
    y = loss.check_labels(federation.y)
    loss.check_both_classes(y)
    rows = objective.oracle(federation.X, y, federation.offsets, engine)
    event, ledger, asks = None, None, algorithm.asks()
    if isinstance(privacy, Proven):
        _warn_about_delta(privacy, federation)
        spent = {} if ledgers is None or isinstance(ledgers, Path) else ledgers.spent_here(0)
        event = plan(privacy, asks, participation.most(rounds), federation.sizes, spent, federation.row_bound)
    if isinstance(privacy, Proven):
        budget = Budget(privacy.epsilon, privacy.delta)
        if ledgers is None:
            ledger = MemoryLedger(budget, (federation.n,) if streams.runs is None else (streams.runs, federation.n))
        elif not isinstance(ledgers, Path):
            same = ledgers.budget == budget
            check.require(same, "train", f"open ledgers must have the budget of the run, {budget}", ledgers.budget)
            ledger = ledgers
        else:
            check.require(
                streams.runs is None, "train", "ledgers are for one run at a time, not for runs", streams.runs
            )
            ledger = OwnerLedgers.open(ledgers, federation.names, federation.data(), budget, run)
    elif ledgers is not None:
        raise InvalidInput(
            f"train: ledgers count what Proven answers cost; privacy={type(privacy).__name__} has no budget"
        )
    everyone = np.arange(federation.n)
    bound = federation.row_bound
    key = row_key(streams, rows, bound, algorithm, objective, privacy, participation, rounds, event)
    door = open_door(privacy, event, ledger, rows, asks, key=key, clients=everyone, row_bound=bound)
    pair = test is None or (isinstance(test, tuple) and len(test) == 2)
    check.require(pair, "train", "test must be a pair (X, y)", type(test).__name__)
    public = None if test is None else _test_set(objective, federation, *test)
    return Simulator(federation, objective, rows, door, streams, ledger, public)


def row_key(
    streams: Streams,
    rows: Rows,
    row_bound: float | None,
    algorithm: Algorithm,
    objective: Objective,
    privacy: Privacy,
    participation: Participation,
    rounds: int,
    event: Event | None,
) -> NoiseKey:
    """What noise is bound to: everything that decides a client's answers, on this machine or on its own."""
    task = (algorithm, objective, privacy, participation, rounds, event, rows.engine, row_bound)
    return NoiseKey.of_task(streams, rows_digests(rows.X, rows.y, rows.offsets), *task)


def _seed_to_resume(
    resume: Checkpoint, seed: int | None, privacy: Privacy | VerticalPrivacy, ledgers: bool
) -> int | None:
    """A resumed run must go on with the noise it had: rounds after the checkpoint may have been answered already."""
    drawn = seed is None and resume.seed is None
    if isinstance(privacy, Proven | ProvenColumns) and (privacy.noise == "secure" or drawn) and not ledgers:
        raise NoGuarantee(
            "train: a run with secure noise, or without a stated seed, cannot be resumed from memory: answers given "
            "after the checkpoint would go uncounted. Keep ledgers=FOLDER, where they stay counted, or start anew"
        )
    if seed is None or resume.seed is None:
        return resume.seed if seed is None else seed
    check.require(seed == resume.seed, "train", "resume needs the seed of the run")
    return seed


def claim_terms(
    privacy: Privacy,
    algorithm: Algorithm,
    sizes: np.ndarray,
    row_bound: float | None,
    participation: Participation,
    rounds: int,
) -> dict[str, Any]:
    """The terms of a paper's claim, with what this run is known to do that the claim does not cover."""
    terms = algorithm.claim_terms(sizes, rounds)
    unmet = [*terms.get("unmet", ())]
    claimed, rate = terms.get("client_rate", 1.0), participation.rate(len(sizes))
    if claimed < rate:
        unmet.append(f"clients take part with a chance of {claimed:g} in it (client_rate), and of up to {rate:g} here")
    if algorithm.asks().batch and "data_rate" not in terms:
        unmet.append("its noise is for the gradient over all records, and batches are drawn")
    if isinstance(privacy, Published) and privacy.clip is None and row_bound is None:
        unmet.append("the bound on gradients was read off the longest private row; give clip, or promise a row_bound")
    return terms | {"unmet": tuple(unmet)}


def _warn_about_delta(privacy: Proven, federation: Federation) -> None:
    """A delta of 1/size allows a mechanism that publishes one record in the clear."""
    largest = int(np.argmax(federation.sizes))
    size = int(federation.sizes[largest])
    if privacy.unit == "record" and privacy.delta >= 1 / size:
        warnings.warn(
            f"Proven: delta = {privacy.delta:g} is not below 1/size for client {federation.names[largest]!r} with "
            f"{size} records: such a delta would allow giving one record away; use a smaller one",
            check.PrivacyWarning,
            stacklevel=4,
        )


def _test_set(
    objective: Objective, federation: Federation, X: ArrayLike, y: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    X = check.finite_array("test", "X", X, ndim=2)
    columns = federation.X.shape[1]
    check.require(X.shape[1] == columns, "test", f"X must have the federation's {columns} columns", X.shape[1])
    labels = objective.loss.check_labels(y)
    check.require(len(labels) == len(X), "test", f"y must have one entry per row of X ({len(X)})", len(labels))
    return X, labels
