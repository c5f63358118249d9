"""The distinguishing game: which two data sets an observer has to tell apart, and how the true code is run on them.

The audit supplies the noise of both sides, so that two neighbouring data sets can be compared under the same noise.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np

from sottovoce.algorithms.fed_plt_rates import DoesNotContract
from sottovoce.auditing.neighbours import LONG, RIDGE, Linear, Neighbours, canary, columns, worst_columns
from sottovoce.auditing.tape import SumTape, Tape
from sottovoce.core import check, codec
from sottovoce.core import round as loop
from sottovoce.core.contract import Asks, Method
from sottovoce.core.histogram import Evaluation
from sottovoce.core.participation import Everyone
from sottovoce.core.plain import Json, Progress, silent
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.rounds import Ledgers
from sottovoce.experiment.task import Engine, Task
from sottovoce.experiment.train import local_clients
from sottovoce.privacy.modes import PrivacyMode, Proven, ProvenColumns, Published
from sottovoce.privacy.noise_key import SharedNoise
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2

IN_CACHE = 2**16  # most numbers (messages of all clients, and records) in the runs that are played together
KERNEL_PAYS_FROM = 20_000  # answers: with fewer, compiling takes longer than it saves
Promise = Published | Proven | ProvenColumns
Hear = Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], None]


def deaf(down: Mapping[str, np.ndarray], up: Mapping[str, np.ndarray]) -> None:
    """Listen to no message."""


@dataclass(frozen=True)
class Sampling:
    """How many runs to play, with which seed, for which confidence, and whom to tell about the progress."""

    runs: int = 20_000
    seed: int = 0
    confidence: float = 0.95
    progress: Progress = silent


@dataclass(frozen=True)
class Game:
    """What is run, and on which two data sets.

    Parameters
    ----------
    algorithm, objective, privacy, rounds
        What is run. Everyone takes part in each round, and the observer knows that.
    neighbours
        The two data sets.
    claim
        The (epsilon, delta) that is claimed for the whole run, if not the one that follows from `privacy`.
    batches_known
        Whether the observer knows which records were drawn. No guarantee with random batches covers that case.
    evaluate
        How the finished model is measured on held-out records, if it is. The loss must then be for classes.
    tamper
        Called with the clients before they play: how tests put a broken mechanism in place.
    """

    algorithm: Method
    neighbours: Neighbours
    objective: Objective
    privacy: Promise
    rounds: int
    claim: tuple[float, float] | None = None
    batches_known: bool = False
    engine: Engine = "auto"
    evaluate: Evaluation | None = None
    tamper: Callable[[LocalClients], None] = lambda clients: None

    def __post_init__(self) -> None:
        check.whole("audit", rounds=self.rounds)
        promises = self.privacy.mode != "none"
        check.require(promises, "audit", "needs a mode that promises something: published or proven", self.privacy)
        settled = self.task("auto").settled(self.neighbours.first)
        object.__setattr__(self, "objective", settled.objective)
        object.__setattr__(self, "privacy", settled.privacy)

    def task(self, engine: Engine) -> Task:
        """What is run, as a task."""
        return Task(self.algorithm, self.objective, self.privacy, Everyone(), self.rounds, engine, self.evaluate)

    @property
    def asks(self) -> Asks:
        return self.task("auto").asks()

    @property
    def questions(self) -> int:
        """Number of questions to each client in one run."""
        return sum(part.given(self.rounds, self.rounds) for part in self.asks.parts)

    @property
    def width(self) -> int:
        """Number of coordinates of a model, or of the scores where columns are split."""
        return self.neighbours.first.message_size(self.objective.loss)

    @property
    def at_once(self) -> int:
        """Number of runs played together, so that one message of all of them stays in cache."""
        federation = self.neighbours.first
        return max(1, min(2048, IN_CACHE // (federation.n * self.width + len(federation.y))))

    def tape(self, forced: Sequence[np.ndarray] | None = None) -> Tape:
        """Keeps, or forces, what an observer sees of the client that differs."""
        client = self.neighbours.client
        return SumTape(forced, client, self.privacy.honest) if self.privacy.sums else Tape(forced, client)

    @property
    def secret_batches(self) -> bool:
        return self.asks.batch > 0 and not self.batches_known


def worst_case(
    method: Method, privacy: Promise, rounds: int, clients: int = 10, records: int = 10, features: int = 5
) -> Game:
    """The game of a method on the data set that reveals most: one record differs, or all records of a client.

    Rows are as long as the clip norm. To hide whole clients, rows are so long that every upload is clipped. Split
    columns have worst cases of their own.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.auditing.audit import worst_case
    >>> game = worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3)
    >>> game.neighbours.words
    'worst-case canary: one record of 10 x 10, turned into the opposite, 5 features'
    """
    if method.layout == "columns":
        if privacy.budget is None:
            return Game(method, columns(), Objective(Logistic(), L2(1.0)), privacy, rounds)
        return Game(method, worst_columns(cast(ProvenColumns, privacy), mu=1.0), RIDGE, privacy, rounds)
    whole = privacy.promise == "client"
    length = max(1.0, getattr(privacy, "clip", None) or 1.0) * (LONG if whole else 1.0)
    neighbours = canary(clients, records, features, relation_of(privacy), whole, length)
    return Game(method, neighbours, Objective(Linear(bend=1 / length**2), L2(0.1)), privacy, rounds)


def relation_of(privacy: PrivacyMode) -> Literal["replace-one", "add-remove"]:
    """How neighbours differ. A published method is held to the relation of its paper, which replaces a record."""
    return getattr(privacy, "relation", "replace-one")


def columns_promise(epsilon: float, delta: float, unit: Literal["party", "column", "record"]) -> ProvenColumns:
    """The ridge variant for this unit, with bounds that `worst_columns` nearly reaches."""
    bounds: dict[str, Json] = {"column": {"column_bound": 2.0}, "record": {"row_bound": 0.1, "score_bound": 0.045}}
    return ProvenColumns(epsilon, delta, unit, bound=1.0, **bounds.get(unit, {}))


# ------------------------------------------------------------------------------------------------------- playing


class Player:
    """The true code on one of the two data sets, set up once and played with new random numbers each time.

    Parameters
    ----------
    runs
        Runs played together; None for a single one, without an axis of runs.
    in_all
        Runs to be played over time, if more than once.
    streams
        The random numbers of the set-up, and of plays that are given no others.
    ledgers
        A folder for the owners' ledger files.
    """

    def __init__(
        self,
        game: Game,
        side: int,
        runs: int | None,
        in_all: int = 0,
        streams: Streams | None = None,
        ledgers: Path | None = None,
    ) -> None:
        self.game, self.streams = game, streams or Streams(0, runs)
        answers = max(runs or 1, in_all) * game.questions
        engine: Engine = "kernel" if game.engine == "auto" and answers >= KERNEL_PAYS_FROM else game.engine
        with warnings.catch_warnings(action="ignore", category=check.PrivacyWarning):  # a delta large for few records
            self.task = game.task(engine)
            self.place = local_clients(self.task, game.neighbours.side(side), self.streams, ledgers=ledgers)
        game.tamper(self.place)
        self.place.measure_training = False
        self._unspent = None if self.place.ledger is None else self.place.ledger.state()

    @property
    def ledger(self) -> Ledgers:
        """What answers are charged to; only where there is a budget."""
        return cast(Ledgers, self.place.ledger)

    def play(self, streams: Streams, hear: Hear = deaf, tape: Tape | None = None, coins: Streams | None = None) -> None:
        """Play all runs once with noise from the audit, the same on both sides.

        `hear` gets every broadcast with the uploads that answer it; `coins` are the clients' other random numbers.
        """
        place = self.place
        place.door.key = SharedNoise(streams.derived("door"))  # whatever the settings and the rows are
        place.streams = coins or streams
        if place.ledger is not None:
            place.ledger.restore(self._unspent or {})
        plain = type(place).exchange

        def listening(method: Method, down: loop.State, active: np.ndarray, k: int) -> loop.Exchange | None:
            exchange = plain(place, method, down, active, k)
            if exchange is not None and exchange.up is not None:
                hear(codec.to_arrays(down), codec.to_arrays(exchange.up))
            return exchange

        def counting(model: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
            counts = type(place).evaluate(place, model)
            if counts is not None:
                hear({"w": model}, {"counts": counts[0]})
            return counts

        place.exchange = listening  # pyright: ignore[reportAttributeAccessIssue] (an audit listens in)
        place.evaluate = counting
        self.run(streams, tape)

    def run(
        self,
        streams: Streams | None = None,
        tape: Tape | None = None,
        rounds: int | None = None,
        resume: loop.Checkpoint | None = None,
        after_round: loop.AfterRound | None = None,
    ) -> None:
        """Play once as it stands: with the noise of the true code, unless `play` replaced it."""
        game, place = self.game, self.place
        rounds = rounds if rounds and game.evaluate is None else game.rounds  # counts come right after the last round
        place.door.intercept = tape or (lambda answer, *made_of: answer)
        if resume is not None:
            place.restore(game.algorithm, resume.clients)
        with warnings.catch_warnings(action="ignore", category=DoesNotContract):  # convergence does not matter here
            played = replace(self.task, rounds=rounds)
            outcome = played.play(place, streams or self.streams, resume, rounds, after_round)
        if place.ledger is not None:
            place.models(outcome.rounds)  # for prediction, where columns are split: one more answer
        if game.evaluate is not None:
            place.evaluate(outcome.model)


def in_turns(play: Callable[[int, int], bool], at_once: int, runs: int, progress: Progress) -> tuple[int, bool]:
    """Play both sides in turn until `runs` are played: (how many were, whether the user interrupted).

    (0, False) as soon as `play(side, turn)` says that it cannot.
    """
    played = 0
    try:
        for turn in range(-(-runs // (2 * at_once))):
            for side in (0, 1):
                if not play(side, turn):
                    return 0, False
            played += 2 * at_once
            progress("runs", min(played, runs), runs)
    except KeyboardInterrupt:
        if played == 0:
            raise
        return played, True
    return played, False


def streams_of(seed: int, what: str, runs: int) -> Streams:
    """Random numbers for `runs` runs; other words give unrelated ones."""
    return replace(Streams(seed).derived(what), runs=runs)


@dataclass
class Heard:
    """Everything that was sent, as one row of numbers for each run.

    `client`: only what this client sent or received. `directions`: only its part along these directions.
    """

    runs: int
    client: int | None = None
    directions: np.ndarray | None = None
    parts: list[np.ndarray] = field(default_factory=list)

    def __call__(self, down: Mapping[str, np.ndarray], up: Mapping[str, np.ndarray]) -> None:
        for array in (*down.values(), *up.values()):
            if self.client is not None and array.shape[-2] > 1:
                array = array[..., self.client : self.client + 1, :]
            if self.directions is not None and array.shape[-1] == self.directions.shape[1]:
                array = array @ self.directions.T
            whole = np.broadcast_to(array, (self.runs, *array.shape[-2:]))  # what is the same in all runs is sent once
            self.parts.append(np.array(whole, dtype=np.float64).reshape(self.runs, -1))

    def numbers(self) -> np.ndarray:
        return np.concatenate(self.parts, axis=1)
