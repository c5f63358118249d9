"""The distinguishing game: which two laws are to be told apart, and how the true code is played.

The noise of both sides is dealt by the audit, so that two neighbours can be compared under one noise.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.algorithms.fed_plt_rates import DoesNotContract
from sottovoce.auditing.neighbours import LONG, Linear, Neighbours, canary, columns, worst_columns
from sottovoce.auditing.tape import Tape
from sottovoce.core import check, codec
from sottovoce.core import round as loop
from sottovoce.core.contract import Algorithm, VerticalAlgorithm
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.local import LocalClients
from sottovoce.experiment.parties import LocalParties
from sottovoce.experiment.task import Engine, Task
from sottovoce.experiment.train import local_clients
from sottovoce.privacy.modes import Proven, ProvenColumns, Published
from sottovoce.privacy.noise_key import SharedNoise
from sottovoce.problems.losses import Logistic, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation

IN_CACHE = 2**16  # numbers in a message of all clients, and records, of the runs that are played at once
KERNEL_PAYS_FROM = 20_000  # gradients in a play: below, nobody waits for a compiler
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, of: int) -> None: ...


@dataclass(frozen=True)
class Game:
    """Which two laws are to be told apart.

    Parameters
    ----------
    algorithm, objective, privacy, rounds
        What is run, with everyone taking part in each round (the observer knows who does).
    neighbours
        On which data.
    claim
        The (epsilon, delta) that is claimed for the whole run, if not the one that follows from `privacy`.
    batches_known
        Whether the observer knows which records were drawn. No guarantee with random batches is for that case.
    tamper
        Called with each simulator before it plays: how a broken mechanism is put in its place.
    """

    algorithm: Algorithm[Any, Any, Any, Any]
    neighbours: Neighbours
    objective: Objective
    privacy: Published | Proven | ProvenColumns
    rounds: int
    claim: tuple[float, float] | None = None
    batches_known: bool = False
    engine: Engine = "auto"
    tamper: Callable[[LocalClients], None] = lambda place: None

    def __post_init__(self) -> None:
        check.whole("audit", rounds=self.rounds)
        promises = isinstance(self.privacy, Published | Proven | ProvenColumns)
        check.require(promises, "audit", "needs a mode that promises something: published or proven", self.privacy)

    @property
    def at_once(self) -> int:
        """Runs played together, so that a message of them all stays in cache."""
        federation = self.neighbours.first
        if isinstance(federation, VerticalFederation):
            return max(1, min(2048, IN_CACHE // ((federation.n + 1) * federation.samples)))
        dim = federation.X.shape[1] * self.objective.loss.outputs
        return max(1, min(2048, IN_CACHE // (federation.n * dim + len(federation.X))))

    @property
    def secret_batches(self) -> bool:
        return self.algorithm.asks().batch > 0 and not self.batches_known


def worst_case(
    method: Algorithm[Any, Any, Any, Any],
    privacy: Published | Proven | ProvenColumns,
    rounds: int,
    clients: int = 10,
    records: int = 10,
    features: int = 5,
) -> Game:
    """The game of a method against the canary that its promise is for: one record, or all of a client.

    Rows are as long as the clip norm, and whole clients are made to move so far that every upload is clipped. Split
    columns have canaries of their own shape.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.auditing.audit import worst_case
    >>> game = worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3)
    >>> game.neighbours.words
    'worst-case canary: one record of 10 x 10, turned into the opposite, 5 features'
    """
    if isinstance(privacy, ProvenColumns):
        goal = Objective(Squared(), L2(2.0), scale="sum")  # rho = 2 by its rule, so lam/rho = 1
        return Game(method, worst_columns(privacy, mu=1.0), goal, privacy, rounds)
    if isinstance(method, VerticalAlgorithm):
        return Game(method, columns(), Objective(Logistic(), L2(1.0)), privacy, rounds)
    whole = getattr(privacy, "unit", "record") == "client"
    length = max(1.0, getattr(privacy, "clip", None) or 1.0) * (LONG if whole else 1.0)
    relation: Any = getattr(privacy, "relation", "replace-one")
    neighbours = canary(clients, records, features, relation, whole, length)
    return Game(method, neighbours, Objective(Linear(bend=1 / length**2), L2(0.1)), privacy, rounds)


def columns_promise(epsilon: float, delta: float, unit: Any) -> ProvenColumns:
    """The ridge variant for this unit, with bounds that `worst_columns` comes near to."""
    bounds: dict[str, dict[str, Any]] = {
        "column": {"column_bound": 2.0},
        "record": {"row_bound": 0.1, "score_bound": 0.045},
    }
    return ProvenColumns(epsilon, delta, unit, bound=1.0, **bounds.get(unit, {}))


# ------------------------------------------------------------------------------------------------------- playing


class Player:
    """The true code on one of the two data sets, `runs` at a time; set up once, dealt new random numbers each time.

    Parameters
    ----------
    runs
        Played together; None for a single one, without an axis of runs.
    in_all
        Runs to be played over time, if more than once.
    streams
        The random numbers it is set up with, and plays with where it is dealt no others.
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
        federation = (game.neighbours.first, game.neighbours.second)[side]
        self.game, self.streams = game, streams or Streams(0, runs)
        answers = max(runs or 1, in_all) * game.rounds * game.algorithm.asks().only.answers
        engine: Engine = "kernel" if game.engine == "auto" and answers >= KERNEL_PAYS_FROM else game.engine
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", check.PrivacyWarning)  # of a delta that is large for so few records
            task = Task(game.algorithm, game.objective, game.privacy, Everyone(), game.rounds, engine)
            self.place = local_clients(task, federation, self.streams, ledgers=ledgers)
        game.tamper(self.place)
        self.place.measure_training = False
        self._unspent = None if self.place.ledger is None else self.place.ledger.state()

    def play(
        self,
        streams: Streams,
        hear: Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], None] = lambda down, up: None,
        tape: Tape | None = None,
        coins: Streams | None = None,
    ) -> None:
        """One play of all runs with noise dealt by the audit, the same on both sides. `hear` gets every broadcast and
        what came back; `coins` are the clients' own."""
        place = self.place
        deal(place, streams)
        place.streams = coins or streams
        if place.ledger is not None:
            place.ledger.restore(self._unspent or {})
        plain = type(place).exchange

        def listening(method: Any, down: Any, active: np.ndarray, k: int) -> Any:
            exchange = plain(place, method, down, active, k)
            if exchange is not None and exchange.up is not None:
                hear(codec.to_arrays(down), codec.to_arrays(exchange.up))
            return exchange

        place.exchange = listening  # pyright: ignore[reportAttributeAccessIssue] (an audit listens in)
        self.run(streams, tape)

    def run(
        self,
        streams: Streams | None = None,
        tape: Tape | None = None,
        rounds: int | None = None,
        resume: loop.Checkpoint | None = None,
        after_round: Callable[[loop.Checkpoint], None] = lambda checkpoint: None,
    ) -> loop.Outcome:
        """One play as it stands: with the noise of the true code, if none was dealt."""
        game, place, rounds = self.game, self.place, rounds or self.game.rounds
        place.door.intercept = tape or (lambda answer, *made_of: answer)
        if resume is not None:
            place.restore(game.algorithm, resume.clients)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoesNotContract)  # whether it converges is not asked here
            outcome = loop.train(
                game.algorithm,
                place,
                rounds=rounds,
                penalty=game.objective.penalty,
                participation=Everyone(),
                streams=streams or self.streams,
                record_every=rounds,
                resume=resume,
                after_round=after_round,
            )
        if isinstance(place, LocalParties) and place.ledger is not None:
            place.models(outcome.rounds)  # for prediction: one more answer
        return outcome


def deal(place: LocalClients, streams: Streams) -> None:
    """Make `streams` the noise and the batches of this simulator, whatever its settings and its rows are."""
    place.door.key = SharedNoise(streams.derived("door"))


def streams_of(seed: int, what: str, runs: int) -> Streams:
    return replace(Streams(seed).derived(what), runs=runs)


@dataclass
class Heard:
    """Everything that crossed the wire, as one row of numbers a run; or of one client alone, along some directions."""

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
