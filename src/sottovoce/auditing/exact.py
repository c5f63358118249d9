"""Statistics of the game that know the law of what is seen: computed exactly, or from true likelihood ratios."""

from collections.abc import Callable

import numpy as np

from sottovoce.auditing import batches as audit_batches
from sottovoce.auditing import gaussian as audit_gaussian
from sottovoce.auditing import ratio as audit_ratio
from sottovoce.auditing import statistics as audit_statistics
from sottovoce.auditing.finding import Finding, compare, finding
from sottovoce.auditing.game import Game, Heard, Player, Progress, streams_of
from sottovoce.auditing.score import in_turns
from sottovoce.auditing.tape import Made, Tape
from sottovoce.core.random.streams import Streams
from sottovoce.privacy.modes import ProvenColumns

PILOT, FEW = 64, 16  # runs that show which statistic applies; where an answer takes an iterative solver


def by_ratio(game: Game, runs: int, seed: int, confidence: float, progress: Progress) -> Finding | None:
    """From the ratios of true densities; None where messages are not values with noise added at the door."""
    progress("a look first", 0, 0)
    solver = game.algorithm.asks().only.kind == "argmin"
    at_once = max(min(FEW if solver else PILOT, game.at_once), 2)
    table = Table(game, at_once)
    tapes = table.play(0, streams_of(seed, "pilot", at_once))
    if tapes is None or not table.is_complete(seed):
        return None
    one, other = tapes
    here, there = all_made(one), all_made(other)
    if not audit_ratio.noise_is_as_stated(one.answers, here):
        return None
    kinds = {made.kind for made in here}
    sizes = audit_ratio.shifts(here, there)
    if sizes is not None and len(kinds) == 1:
        exact = compare(game, lambda values, delta: audit_ratio.exact_epsilon(min(kinds), sizes[values], delta))
        if exact is not None:
            return finding(game, "exact", table.evidence, 2 * at_once, 1.0, exact)
    return _by_sampled_ratio(game, runs, seed, confidence, progress, table.evidence)


def _by_sampled_ratio(
    game: Game, runs: int, seed: int, confidence: float, progress: Progress, evidence: str
) -> Finding | None:
    at_once = min(game.at_once, max(32, runs // 2))
    table = Table(game, at_once, runs)
    ratios: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])  # (runs, values) of each side

    def play(side: int, turn: int) -> bool:
        tapes = table.play(side, streams_of(seed, f"{side} {turn}", at_once))
        if tapes is None:
            return False
        own, other = tapes
        pairs = zip(own.answers, all_made(own), all_made(other), strict=True)
        ratios[side].append(np.stack([audit_ratio.log_ratio(*three) for three in pairs], axis=1))
        return True

    played, interrupted = in_turns(play, at_once, runs, progress, "runs")
    if not played:
        return None
    first, second = (np.concatenate(side) for side in ratios)

    def bound(values: slice, delta: float) -> float:
        one, other = (side[:, values].sum(axis=1) for side in (first, second))
        return audit_statistics.epsilon_from_ratios(one, other, delta, confidence)

    found = compare(game, bound, last_only=True)
    assert found is not None
    return finding(game, "ratio", evidence, played, confidence, found, interrupted)


class Table:
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
        own, sent = Tape(client=client), Heard(self.runs)
        self.players[side].play(streams, sent if self.answers else lambda down, up: None, own)
        other, sent_again = Tape(own.answers, client), Heard(self.runs)
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
        client, streams = self.game.neighbours.client, streams_of(seed, "complete", self.runs)
        own, sent = Tape(client=client), Heard(self.runs, client)
        self.players[0].play(streams, sent, own)
        other, sent_again = Tape(own.answers, client), Heard(self.runs, client)
        self.players[0].play(streams, sent_again, other, coins=streams_of(seed, "other coins", self.runs))
        values = [value.reshape(len(value), -1) for value in own.answers]
        uploads = [part for part in sent.parts if any(np.array_equal(part, value) for value in values)]
        if len(uploads) < len(values) or not np.array_equal(sent.numbers(), sent_again.numbers()):
            return False
        pairs = zip(all_made(own), all_made(other), strict=True)
        return all(np.array_equal(one.exact, again.exact) for one, again in pairs)


def all_made(tape: Tape) -> list[Made]:
    return [made for made in tape.made if made is not None]


def by_probing(game: Game, seed: int, progress: Progress) -> Finding | None:
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
    found = compare(game, lambda _, delta: audit_ratio.exact_epsilon("gaussian", everything, delta), last_only=None)
    assert found is not None
    return finding(game, "exact", f"every upload, {game.rounds} rounds", played, 1.0, found)


def by_batches(game: Game, seed: int, progress: Progress) -> Finding | None:
    """From computed tails, where batches are secret and a canary's inclusions move messages by fixed amounts."""
    if not game.neighbours.alone:
        return None
    questions_asked = game.rounds * game.algorithm.asks().only.answers
    at_once, client = max(8, min(game.at_once, questions_asked)), game.neighbours.client
    table = Table(game, at_once)
    path = Tape(client=client)
    table.players[0].play(streams_of(seed, "path", at_once), tape=path)
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
        return audit_batches.whitened(all_made(forced))

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
    found = compare(game, lambda _, delta: audit_batches.epsilon_of_scores(here, there, rate, delta), last_only=None)
    assert found is not None
    evidence = f"{table.evidence}, which records were drawn being secret"
    return finding(game, "computed", evidence, played, 1.0, found)
