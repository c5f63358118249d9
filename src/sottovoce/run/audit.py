"""The distinguishing game: two neighbouring data sets, many runs of the true code, every message as evidence.

What is found is a lower bound on epsilon. Above a claimed value, the claim is false; below, nothing is shown. Of
four statistics the strongest that applies is taken:

1. exact: the shift between the neighbours does not depend on the past, or the transcript is linear in Gaussian noise;
   epsilon is then computed, and runs only check that this is so (`audit_ratio.py`, `audit_gaussian.py`);
2. computed: where batches are secret, the exact power of the best linear score (`audit_batches.py`);
3. ratio: the true likelihood ratio of each run, computed with the values of one run forced on another;
4. score: a linear score of the messages, learnt on pilot runs. It trusts nothing but what was seen.

The first three trust that the noise follows the law the code states, after a look at it. In `Proven` mode they take
every noisy answer as seen, which is more than the server sees, and check that messages are functions of the answers.
"""

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from sottovoce.algorithms.fed_plt_rates import DoesNotContract
from sottovoce.core import check, codec
from sottovoce.core import round as loop
from sottovoce.core.algorithm import Algorithm, VerticalAlgorithm
from sottovoce.core.participation import Everyone
from sottovoce.core.streams import Streams
from sottovoce.privacy import audit_batches, audit_gaussian, audit_ratio, audit_statistics, claims
from sottovoce.privacy.audit import Made, Tape
from sottovoce.privacy.modes import Proven, ProvenColumns, Published
from sottovoce.privacy.noise_key import SharedNoise
from sottovoce.problems.losses import Logistic, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import VerticalFederation
from sottovoce.run.audit_neighbours import LONG, Linear, Neighbours, canary, columns, worst_columns
from sottovoce.run.simulate import Engine, Simulator, assemble
from sottovoce.run.vertical import VerticalSimulator

PILOT, FEW = 64, 16  # runs that show which statistic applies; where an answer takes an iterative solver
IN_CACHE = 2**16  # numbers in a message of all clients, and records, of the runs that are played at once
KERNEL_PAYS_FROM = 20_000  # gradients in a play: below, nobody waits for a compiler
ROUNDING = 1e-6  # relative: budgets are used up to the last digit, and an exact value is one of many roundings
Statistic = Literal["auto", "score"]
Kind = Literal["exact", "computed", "ratio", "score", "guesses"]
Progress = Callable[[str, int, int], None]


def _silent(what: str, done: int, of: int) -> None: ...


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
    tamper: Callable[[Simulator], None] = lambda place: None

    def __post_init__(self) -> None:
        check.whole("audit", rounds=self.rounds)
        promises = isinstance(self.privacy, Published | Proven | ProvenColumns)
        check.require(promises, "audit", "needs a mode that promises something: published or proven", self.privacy)
        seeded = getattr(self.privacy, "noise", "seeded") == "seeded"
        check.require(seeded, "audit", "plays with seeded noise; secure noise follows the same law", "secure")

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


@dataclass(frozen=True)
class Comparison:
    """One claim against what was found."""

    what: str
    claimed: float
    delta: float
    lower: float  # epsilon is at least this

    @property
    def refuted(self) -> bool:
        return self.lower > self.claimed * (1 + ROUNDING)


@dataclass(frozen=True)
class Finding:
    """What an audit found, in numbers and in words."""

    method: str
    mode: str
    statistic: Kind
    evidence: str
    neighbours: str
    runs: int
    confidence: float  # 1 for exact values
    comparisons: tuple[Comparison, ...]
    seconds: float
    interrupted: bool = False

    @property
    def worst(self) -> Comparison:
        """The comparison that says most against the claim."""
        return max(self.comparisons, key=lambda one: one.lower / one.claimed if one.claimed else math.inf)

    @property
    def refuted(self) -> bool:
        return any(one.refuted for one in self.comparisons)

    @property
    def verdict(self) -> str:
        return "refuted" if self.refuted else "not refuted"

    def __str__(self) -> str:
        sure = {"exact": "exactly", "computed": "at least"}.get(
            self.statistic, f"at least, with {self.confidence:.0%} confidence,"
        )
        lines = [
            f"{self.method} ({self.mode}), {self.neighbours}.",
            *(
                f"{one.what}: claimed epsilon {one.claimed:.4g} at delta {one.delta:g}; it is {sure} {shown(one.lower)}"
                f"{': REFUTED' if one.refuted else ''}."
                for one in self.comparisons
            ),
            f"Verdict: {self.verdict}. {self.meaning}",
            f"Evidence: {self.evidence}. {self._played()}",
        ]
        return "\n".join(lines)

    @property
    def meaning(self) -> str:
        """What this can and cannot show."""
        if self.refuted:
            return (
                "A data set and its neighbour were found that messages tell apart better than the claim allows. That "
                "settles the claim; it says nothing about the damage on typical data."
            )
        return (
            "This attack found nothing against the claim. That proves nothing: another data set or a better attack may "
            "show more. What holds is what is proven."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        mine = {**asdict(self), "verdict": self.verdict, "meaning": self.meaning}
        mine["comparisons"] = [
            asdict(one) | {"lower": one.lower if math.isfinite(one.lower) else "infinite", "refuted": one.refuted}
            for one in self.comparisons
        ]
        return mine

    def _played(self) -> str:
        text = f"{self.runs} run{'s' if self.runs > 1 else ''} in {self.seconds:.1f} s"
        if self.statistic in ("exact", "computed"):
            text += ", to check that the law is the one computed from"
        return f"Interrupted after {text}." if self.interrupted else f"Played: {text}."


def shown(epsilon: float) -> str:
    """Rounded down: a lower bound must not grow in print."""
    if not math.isfinite(epsilon):
        return "infinite"
    digits = 3 if epsilon < 10 else 2
    return f"{math.floor(epsilon * 10**digits * (1 + ROUNDING)) / 10**digits:.{digits}f}"


def worst_case(
    method: Algorithm[Any, Any, Any, Any],
    privacy: Published | Proven | ProvenColumns,
    rounds: int,
    clients: int = 10,
    records: int = 10,
    features: int = 5,
) -> Game:
    """The game of a method against the canary that its promise is for: one record, or all of a client.

    Whole clients are made to move so far that every upload is clipped. Split columns have canaries of their own shape.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.run.audit import worst_case
    >>> game = worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3)
    >>> game.neighbours.words
    'worst-case canary: one record of 10 x 10, turned into the opposite, 5 features'
    """
    if isinstance(privacy, ProvenColumns):
        goal = Objective(Squared(), L2(2.0), scale="sum")  # rho = 2 by its rule, so lam/rho = 1
        return Game(method, worst_columns(privacy, mu=1.0), goal, privacy, rounds)
    if isinstance(method, VerticalAlgorithm):
        return Game(method, columns(), Objective(Logistic(), L2(1.0)), privacy, rounds)
    whole, length = getattr(privacy, "unit", "record") == "client", 1.0
    if whole:
        length = LONG
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
    """The true code on one of the two data sets, `runs` at a time; set up once, dealt new random numbers each time."""

    def __init__(self, game: Game, side: int, runs: int, in_all: int = 0) -> None:
        """`in_all`: runs to be played over time, if more than once."""
        federation = (game.neighbours.first, game.neighbours.second)[side]
        self.game, self.runs = game, runs
        parts = (game.algorithm, federation, game.objective, game.privacy, Everyone(), game.rounds)
        answers = max(runs, in_all) * game.rounds * game.algorithm.asks().answers
        engine: Engine = "kernel" if game.engine == "auto" and answers >= KERNEL_PAYS_FROM else game.engine
        self.place = assemble(*parts, Streams(0, runs), None, engine)
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
        """One play of all runs. `hear` gets every broadcast and what came back; `coins` are the clients' own."""
        game, place = self.game, self.place
        place.streams, place.door.key = coins or streams, SharedNoise(streams.derived("door"))
        place.door.intercept = tape or (lambda answer, *made_of: answer)
        if place.ledger is not None:
            place.ledger.restore(self._unspent or {})
        plain = type(place).exchange

        def listening(method: Any, down: Any, active: np.ndarray, k: int) -> Any:
            exchange = plain(place, method, down, active, k)
            if exchange is not None and exchange.up is not None:
                hear(codec.to_arrays(down), codec.to_arrays(exchange.up))
            return exchange

        place.exchange = listening  # type: ignore[method-assign]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoesNotContract)  # whether it converges is not asked here
            loop.train(
                game.algorithm,
                place,
                rounds=game.rounds,
                penalty=game.objective.penalty,
                participation=Everyone(),
                streams=streams,
                record_every=game.rounds,
            )
        if isinstance(place, VerticalSimulator) and place.ledger is not None:
            place.models(game.rounds)  # for prediction: one more answer


def _streams(seed: int, what: str, runs: int) -> Streams:
    return replace(Streams(seed).derived(what), runs=runs)


@dataclass
class _Heard:
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


# ------------------------------------------------------------------------------------------------------- the audit


def audit(
    game: Game,
    runs: int = 20_000,
    seed: int = 0,
    statistic: Statistic = "auto",
    confidence: float = audit_statistics.CONFIDENCE,
    progress: Progress = _silent,
) -> Finding:
    """Play, and compare what was found with what is claimed. Ctrl-C ends it with what was played so far.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.run.audit import audit, worst_case
    >>> found = audit(worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3), runs=64)
    >>> found.verdict, found.statistic, round(found.worst.lower, 3)
    ('not refuted', 'exact', 1.0)
    """
    check.whole("audit", at_least=64, runs=runs)
    check.whole("audit", at_least=0, seed=seed)
    check.between("audit", 0, 1, confidence=confidence)
    check.one_of("audit", "statistic", statistic, ("auto", "score"))
    begun = time.perf_counter()
    found = None
    if statistic == "auto":
        if game.secret_batches:
            found = _by_batches(game, seed, progress)
        else:
            found = _by_ratio(game, runs, seed, confidence, progress) or _by_probing(game, seed, progress)
    if found is None:
        found = _by_score(game, runs, seed, confidence, progress)
    return replace(found, seconds=time.perf_counter() - begun)


def _by_ratio(game: Game, runs: int, seed: int, confidence: float, progress: Progress) -> Finding | None:
    """From the ratios of true densities; None where messages are not values with noise added at the door."""
    progress("a look first", 0, 0)
    solver = game.algorithm.asks().kind == "argmin"
    at_once = max(min(FEW if solver else PILOT, game.at_once), 2)
    table = _RatioTable(game, at_once)
    tapes = table.play(0, _streams(seed, "pilot", at_once))
    if tapes is None or not table.is_complete(seed):
        return None
    one, other = tapes
    here, there = _all_made(one), _all_made(other)
    if not audit_ratio.noise_is_as_stated(one.answers, here):
        return None
    kinds = {made.kind for made in here}
    sizes = audit_ratio.shifts(here, there)
    if sizes is not None and len(kinds) == 1:
        exact = _compare(game, lambda values, delta: audit_ratio.exact_epsilon(min(kinds), sizes[values], delta))
        if exact is not None:
            return _finding(game, "exact", table.evidence, 2 * at_once, 1.0, exact)
    return _by_sampled_ratio(game, runs, seed, confidence, progress, table.evidence)


def _by_sampled_ratio(
    game: Game, runs: int, seed: int, confidence: float, progress: Progress, evidence: str
) -> Finding | None:
    at_once = min(game.at_once, max(32, runs // 2))
    table = _RatioTable(game, at_once, runs)
    ratios: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])  # (runs, values) of each side

    def play(side: int, turn: int) -> bool:
        tapes = table.play(side, _streams(seed, f"{side} {turn}", at_once))
        if tapes is None:
            return False
        own, other = tapes
        pairs = zip(own.answers, _all_made(own), _all_made(other), strict=True)
        ratios[side].append(np.stack([audit_ratio.log_ratio(*three) for three in pairs], axis=1))
        return True

    played, interrupted = _in_turns(play, at_once, runs, progress, "runs")
    if not played:
        return None
    first, second = (np.concatenate(side) for side in ratios)

    def bound(values: slice, delta: float) -> float:
        one, other = (side[:, values].sum(axis=1) for side in (first, second))
        return audit_statistics.epsilon_from_ratios(one, other, delta, confidence)

    found = _compare(game, bound, last_only=True)
    assert found is not None
    return _finding(game, "ratio", evidence, played, confidence, found, interrupted)


class _RatioTable:
    """Two players, one of whom is made to say what the other said."""

    def __init__(self, game: Game, runs: int, in_all: int = 0) -> None:
        self.game, self.runs = game, runs
        self.players = [Player(game, side, runs, in_all) for side in (0, 1)]
        self.answers = game.privacy.mode == "proven"
        seen = "every upload of the client"
        if isinstance(game.privacy, ProvenColumns):
            seen = "every noisy answer about the party's data, its model for prediction included"
        elif self.answers and getattr(game.privacy, "unit", "") != "client":
            seen = "every noisy answer about the client's data (more than the server sees)"
        self.evidence = f"{seen}, {game.rounds} rounds"

    def play(self, side: int, streams: Streams) -> tuple[Tape, Tape] | None:
        """The tapes of one side and of the other with the same values forced; None if the densities are not known."""
        client = self.game.neighbours.client
        own, sent = Tape(client=client), _Heard(self.runs)
        self.players[side].play(streams, sent if self.answers else lambda down, up: None, own)
        other, sent_again = Tape(own.answers, client), _Heard(self.runs)
        self.players[1 - side].play(streams, sent_again if self.answers else lambda down, up: None, other)
        if not own.made or None in own.made or None in other.made or len(own.made) != len(other.made):
            return None
        if self.answers and not np.array_equal(sent.numbers(), sent_again.numbers()):
            return None  # messages are not functions of the answers: something else carries data
        return own, other

    def is_complete(self, seed: int) -> bool:
        """Whether the values with noise are all that an observer sees: every upload is one of them, and the clients'
        own coins do not matter once they are given."""
        if self.answers:
            return True
        client, streams = self.game.neighbours.client, _streams(seed, "complete", self.runs)
        own, sent = Tape(client=client), _Heard(self.runs, client)
        self.players[0].play(streams, sent, own)
        other, sent_again = Tape(own.answers, client), _Heard(self.runs, client)
        self.players[0].play(streams, sent_again, other, coins=_streams(seed, "other coins", self.runs))
        values = [value.reshape(len(value), -1) for value in own.answers]
        uploads = [part for part in sent.parts if any(np.array_equal(part, value) for value in values)]
        if len(uploads) < len(values) or not np.array_equal(sent.numbers(), sent_again.numbers()):
            return False
        pairs = zip(_all_made(own), _all_made(other), strict=True)
        return all(np.array_equal(one.exact, again.exact) for one, again in pairs)


def _all_made(tape: Tape) -> list[Made]:
    return [made for made in tape.made if made is not None]


def _by_probing(game: Game, seed: int, progress: Progress) -> Finding | None:
    """From the exact law of messages that are linear in Gaussian noise; None where they are not."""
    if getattr(game.privacy, "mechanism", "gaussian") != "gaussian":
        return None
    players: dict[tuple[int, int], Player] = {}
    played = 0

    def messages(side: int, streams: audit_gaussian.Probe) -> np.ndarray:
        nonlocal played
        runs = streams.runs or 1
        player = players.setdefault((side, runs), Player(game, side, runs))
        sent: list[np.ndarray] = []
        player.play(streams, lambda down, up: sent.extend(array.reshape(runs, -1) for array in up.values()))
        played += runs
        return np.concatenate(sent, axis=1)

    try:
        mu = audit_gaussian.transcript_mu(messages, seed, game.at_once, lambda done, of: progress("numbers", done, of))
    except audit_gaussian.NotLinear:
        return None
    everything = np.array([mu])
    found = _compare(game, lambda _, delta: audit_ratio.exact_epsilon("gaussian", everything, delta), last_only=None)
    assert found is not None
    return _finding(game, "exact", f"every upload, {game.rounds} rounds", played, 1.0, found)


def _by_batches(game: Game, seed: int, progress: Progress) -> Finding | None:
    """From computed tails, where batches are secret and a canary's inclusions move messages by fixed amounts."""
    if not game.neighbours.alone:
        return None
    questions_asked = game.rounds * game.algorithm.asks().answers
    at_once, client = max(8, min(game.at_once, questions_asked)), game.neighbours.client
    table = _RatioTable(game, at_once)
    path = Tape(client=client)
    table.players[0].play(_streams(seed, "path", at_once), tape=path)
    questions, played = audit_gaussian.Numbers(), at_once

    def sent(side: int, run: int, choose: Callable[[int], np.ndarray]) -> np.ndarray:
        """What the client would send in each run, in units of noise, if past messages were those of run `run`."""
        nonlocal played
        streams = audit_batches.ChosenBatches(seed, at_once, client=client, choose=choose, questions=questions)
        forced = Tape([np.broadcast_to(answer[run], answer.shape) for answer in path.answers], client)
        table.players[side].play(streams, tape=forced)
        played += at_once
        if None in forced.made:
            raise audit_gaussian.NotLinear("noise that does not join at the door")
        return audit_batches.whitened(_all_made(forced))

    def responses(side: int) -> np.ndarray:
        never = sent(side, 0, lambda number: np.zeros(at_once, dtype=bool))[0]
        each = []
        for low in range(0, questions.count, at_once):
            moved = sent(side, 0, lambda number, low=low: np.arange(low, low + at_once) == number)
            each.append((moved - never)[: questions.count - low])
            progress("batches", (side * questions.count) + low, 2 * questions.count)
        found = np.concatenate(each)
        chosen = np.random.default_rng(seed).random((at_once, questions.count)) < 0.2
        chosen[0] = False
        moved = sent(side, 1, lambda number: chosen[:, number])
        if not audit_batches.linear_in_batches(moved[0], moved, chosen, found):
            raise audit_gaussian.NotLinear("inclusions do not add up")
        return found

    try:
        here, there = responses(0), responses(1)
    except audit_gaussian.NotLinear:
        return None
    rate = float(table.players[0].place.door.rates[client, 0])
    found = _compare(game, lambda _, delta: audit_batches.epsilon_of_scores(here, there, rate, delta), last_only=None)
    assert found is not None
    evidence = f"{table.evidence}, which records were drawn being secret"
    return _finding(game, "computed", evidence, played, 1.0, found)


def _by_score(game: Game, runs: int, seed: int, confidence: float, progress: Progress) -> Finding:
    at_once = min(game.at_once, max(16, runs // 4))
    players = [Player(game, side, at_once, runs) for side in (0, 1)]
    row = game.neighbours.row
    directions = None if row is None else np.kron(np.eye(game.objective.loss.outputs), row)
    pilot: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    tested: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])

    def heard(side: int, what: str) -> np.ndarray:
        messages = _Heard(at_once, game.neighbours.client, directions)
        players[side].play(_streams(seed, what, at_once), messages)
        return messages.numbers()

    def play(side: int, turn: int) -> bool:
        """As many pilot runs, which share their noise so that differences show, as runs to test on, which do not."""
        mine = heard(side, f"pilot {turn}"), heard(side, f"score {turn} {side}")
        pilot[side].append(mine[0])
        tested[side].append(mine[1])
        return True

    played, interrupted = _in_turns(play, 2 * at_once, runs, progress, "runs")
    turns = played // (4 * at_once)  # what one side was interrupted in is left out
    first, second = (np.concatenate(pilot[side][:turns] + tested[side][:turns]) for side in (0, 1))
    useful = np.any(np.abs(first - first[:1]) > 0, axis=0) | np.any(first[:1] != second[:1], axis=0)

    def bound(_: slice, delta: float) -> float:
        return audit_statistics.epsilon_from_seen(first[:, useful], second[:, useful], delta, confidence)

    found = _compare(game, bound, last_only=None)
    assert found is not None
    evidence = f"every upload of the client and every broadcast, along the record, {game.rounds} rounds"
    return _finding(game, "score", evidence, played, confidence, found, interrupted)


def _in_turns(
    play: Callable[[int, int], bool], at_once: int, runs: int, progress: Progress, what: str
) -> tuple[int, bool]:
    """Play both sides in turn until `runs` are played: (how many were, whether it was cut short)."""
    played = 0
    try:
        for turn in range(-(-runs // (2 * at_once))):
            for side in (0, 1):
                if not play(side, turn):
                    return 0, False
            played += 2 * at_once
            progress(what, min(played, runs), runs)
    except KeyboardInterrupt:
        if played == 0:
            raise
        return played, True
    return played, False


# --------------------------------------------------------------------------------------------------- what is claimed


def _compare(
    game: Game, bound: Callable[[Any, float], float | None], last_only: bool | None = False
) -> list[Comparison] | None:
    """The claims about this game next to `bound(values, delta)`: of the whole run, and of single uploads.

    Of single uploads the worst is taken, or the last (`last_only`), or none (None). None if a bound has no formula.
    """
    epsilon, delta, of_each = claimed(game)
    whole = bound(slice(None), delta)
    if whole is None:
        return None
    found = [Comparison(f"all {game.rounds} rounds", epsilon, delta, whole)]
    if of_each and last_only is not None and isinstance(game.privacy, Published):
        single = game.privacy.delta if not _claim_is_pure(game) else 0.0
        uploads = range(game.rounds - 1 if last_only else 0, game.rounds)
        each = [(bound(slice(k, k + 1), single) or 0.0, k + 1) for k in uploads]
        worst, k = max(each)
        found.append(Comparison(f"upload {k}, given those before", game.privacy.epsilon, single, worst))
    return found


def claimed(game: Game) -> tuple[float, float, bool]:
    """(epsilon, delta) of the whole run, and whether each upload has a claim of its own.

    A paper that states no total is held to what follows from its rounds: their epsilons and deltas add up.
    """
    privacy = game.privacy
    if game.claim is not None or not isinstance(privacy, Published):
        epsilon, delta = game.claim or (privacy.epsilon, privacy.delta)
        return epsilon, delta, False
    claim = claims.CLAIMS.get(game.algorithm.name)
    delta = 0.0 if _claim_is_pure(game) else privacy.delta
    terms = game.algorithm.claim_terms(game.neighbours.first.sizes, game.rounds)
    rates = {name: terms[name] for name in ("data_rate", "client_rate") if name in terms}
    total = None if claim is None else claim.total(claims.Asked(privacy.epsilon, delta, game.rounds, **rates))
    single = claim is None or claim.span == "per round"
    if total is None:
        return game.rounds * privacy.epsilon, min(game.rounds * delta, 0.5), single
    return float(total[0]), float(total[1]), single


def _claim_is_pure(game: Game) -> bool:
    claim = claims.CLAIMS.get(game.algorithm.name)
    return claim is not None and claim.pure


def _finding(
    game: Game,
    statistic: Kind,
    evidence: str,
    runs: int,
    confidence: float,
    comparisons: list[Comparison],
    interrupted: bool = False,
) -> Finding:
    found = tuple(comparisons)
    name, words = game.algorithm.name, game.neighbours.words
    return Finding(name, game.privacy.mode, statistic, evidence, words, runs, confidence, found, 0.0, interrupted)
