"""How much more likely are the messages under one data set than under its neighbour?

Everything an observer sees is a value that is fixed by the past, plus fresh noise of known distribution. So the
likelihood ratio of a transcript is the product, value by value, of two noise densities: around what the algorithm would
have sent on the one data set and on the other, *both given the same past*. Two runs of the true code show these values:
one on the first data set, and one on the second with the messages of the first forced on it.

If the distance between the two does not depend on the past (as with a canary of linear loss), no sampling is needed:
Gaussian values add up to one Gaussian of mu² = Σ |shift|²/scale², Laplace values to epsilon = Σ |shift|_1/scale.
"""

import math
from collections.abc import Sequence

import numpy as np

from sottovoce.auditing import noise as tests
from sottovoce.auditing.finding import Finding, conclude
from sottovoce.auditing.game import Game, Heard, Player, Sampling, deaf, in_turns, streams_of
from sottovoce.auditing.score import epsilon_from_ratios
from sottovoce.auditing.tape import Made, Tape
from sottovoce.core.random.streams import Streams
from sottovoce.privacy.accounting import gaussian_epsilon

CONSTANT = 1e-6  # relative: shifts that differ by less from run to run count as the same
NEARLY = 1e-4  # deviations: what is left of noise after a subtraction may be off by less
PILOT, FEW = 64, 16  # runs that show which statistic applies; fewer where each answer needs an iterative solver
_EVIDENCE = {  # by `PrivacyMode.promise`
    "record": "every noisy answer about the client's data (more than the server sees)",
    "columns": "every noisy answer about the party's data, its model for prediction included",
}


def by_ratio(game: Game, sampling: Sampling) -> Finding | None:
    """A bound from ratios of true densities; None where messages are not values with noise added at the door."""
    if game.secret_batches:
        return None
    sampling.progress("a look first", 0, 0)
    runs = max(min(FEW if "argmin" in game.asks.kinds else PILOT, game.at_once), 2)
    table = Table(game, runs)
    tapes = table.play(0, streams_of(sampling.seed, "pilot", runs))
    if tapes is None or not table.is_complete(sampling.seed):
        return None
    here, there = (tape.all_made for tape in tapes)
    if not noise_is_as_stated(tapes[0].answers, here):
        return None
    kinds = {made.kind for made in here}
    sizes = shifts(here, there)
    if sizes is not None and len(kinds) == 1:

        def bound(values: slice, delta: float) -> float | None:
            return exact_epsilon(min(kinds), sizes[values], delta)

        exact = conclude(game, "exact", table.evidence, 2 * runs, bound, "all")
        if exact is not None:
            return exact
    return _by_sampled_ratio(game, sampling, table.evidence)


def _by_sampled_ratio(game: Game, sampling: Sampling, evidence: str) -> Finding | None:
    at_once = min(game.at_once, max(32, sampling.runs // 2))
    table = Table(game, at_once, sampling.runs)
    ratios: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])  # (runs, values) of each side

    def play(side: int, turn: int) -> bool:
        tapes = table.play(side, streams_of(sampling.seed, f"{side} {turn}", at_once))
        if tapes is None:
            return False
        here, there = tapes
        values = zip(here.answers, here.all_made, there.all_made, strict=True)
        ratios[side].append(np.stack([log_ratio(*value) for value in values], axis=1))
        return True

    played, interrupted = in_turns(play, at_once, sampling.runs, sampling.progress)
    if not played:
        return None
    first, second = (np.concatenate(side) for side in ratios)

    def bound(values: slice, delta: float) -> float:
        one, other = (side[:, values].sum(axis=1) for side in (first, second))
        return epsilon_from_ratios(one, other, delta, sampling.confidence)

    return conclude(game, "ratio", evidence, played, bound, "last", sampling.confidence, interrupted)


class Table:
    """Two players; the values that one of them released are forced on the other."""

    def __init__(self, game: Game, runs: int, in_all: int = 0) -> None:
        self.game, self.runs = game, runs
        self.players = [Player(game, side, runs, in_all) for side in (0, 1)]
        self.answers = game.privacy.mode == "proven"  # whether all noisy answers count as seen, or only uploads
        seen = _EVIDENCE.get(game.privacy.promise, "every upload of the client")
        if game.privacy.sums:
            seen = f"every sum, as the noise of {game.privacy.honest} honest clients hides it"
        self.evidence = f"{seen}, {game.rounds} rounds"

    def play(self, side: int, streams: Streams) -> tuple[Tape, Tape] | None:
        """The tapes of one side, and of the other with the same values forced; None if the densities are unknown."""
        here, sent = self.game.tape(), Heard(self.runs)
        self.players[side].play(streams, sent if self.answers else deaf, here)
        there, sent_again = self.game.tape(here.answers), Heard(self.runs)
        self.players[1 - side].play(streams, sent_again if self.answers else deaf, there)
        if not here.made or None in here.made or None in there.made or len(here.made) != len(there.made):
            return None
        if self.answers and not np.array_equal(sent.numbers(), sent_again.numbers()):
            return None  # messages are not functions of the answers: something else carries data
        return here, there

    def is_complete(self, seed: int) -> bool:
        """Whether an observer sees nothing besides the noisy values: every upload is one of them, and once they are
        given, the clients' other random numbers do not matter."""
        if self.answers:
            return True
        client, streams = self.game.neighbours.client, streams_of(seed, "complete", self.runs)
        tape, sent = Tape(client=client), Heard(self.runs, client)
        self.players[0].play(streams, sent, tape)
        again, sent_again = Tape(tape.answers, client), Heard(self.runs, client)
        self.players[0].play(streams, sent_again, again, coins=streams_of(seed, "other coins", self.runs))
        values = [value.reshape(len(value), -1) for value in tape.answers]
        uploads = [part for part in sent.parts if any(np.array_equal(part, value) for value in values)]
        if len(uploads) < len(values) or not np.array_equal(sent.numbers(), sent_again.numbers()):
            return False
        pairs = zip(tape.all_made, again.all_made, strict=True)
        return all(np.array_equal(one.exact, other.exact) for one, other in pairs)


# ------------------------------------------------------------------------------------------------------- densities


def log_ratio(seen: np.ndarray, here: Made, there: Made) -> np.ndarray:
    """log density of `seen` (runs, 1, dim) under `here` minus that under `there`, (runs,).

    A scale of 0 is a single point: a value there is infinitely more likely than under any noise.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = (_log_density(seen, made) for made in (here, there))
        return np.where(first == second, 0.0, first - second)  # 0 for two points at the same place


def _log_density(seen: np.ndarray, made: Made) -> np.ndarray:
    away = np.abs(seen - made.exact)
    scaled = np.where(away > 0, away / made.scale, 0.0)
    cost = scaled if made.kind == "laplace" else scaled**2 / 2
    return -(cost + np.log(made.scale)).sum(axis=(-2, -1))


def shifts(here: Sequence[Made], there: Sequence[Made]) -> np.ndarray | None:
    """The distance between the two sides at each value, in units of its noise; None if it depends on the past.

    The L2 norm of the shift for Gaussian noise, its L1 norm for Laplace noise. Infinite where one side has no noise
    and the other has some, or another value.
    """
    sizes = []
    for one, other in zip(here, there, strict=True):
        if one.kind != other.kind:
            return None
        if np.any((one.scale == 0) != (other.scale == 0)):
            sizes.append(math.inf)
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = one.exact - other.exact
            shift = np.where(moved != 0, moved / one.scale, 0.0)
            alike = np.allclose(one.scale, other.scale, rtol=CONSTANT, atol=0)
            alike = alike and np.allclose(one.scale, one.scale[:1], rtol=CONSTANT, atol=0)
            size = float(np.linalg.norm(shift[0].ravel(), ord=1 if one.kind == "laplace" else 2))
        if not (alike and np.allclose(shift, shift[:1], rtol=0, atol=CONSTANT * max(size, CONSTANT))):
            return None
        sizes.append(size)
    return np.array(sizes)


def exact_epsilon(kind: str, sizes: np.ndarray, delta: float) -> float | None:
    """The epsilon at `delta` of values with these distances, all of this kind; None if there is no formula."""
    if np.isinf(sizes).any():
        return math.inf
    if kind == "laplace":
        return float(sizes.sum()) if delta == 0 else None
    if delta == 0:
        return math.inf if sizes.any() else 0.0
    mu = float(np.linalg.norm(sizes))
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def noise_is_as_stated(seen: Sequence[np.ndarray], made: Sequence[Made]) -> bool:
    """Whether the added noise has the stated size and is new each time, as far as these runs can tell.

    A ratio computed from densities trusts them, and would miss noise of another size, or noise that is used twice. So
    the noise is checked first, with a false alarm in at most one of a million audits.
    """
    pairs = zip(seen, made, strict=True)
    noise = [((x - m.exact) / m.scale).reshape(len(x), -1) for x, m in pairs if np.all(m.scale > 0)]
    if not noise or len(noise[0]) < 16:
        return True
    drawn = np.concatenate(noise, axis=1)
    kind = "laplace" if any(m.kind == "laplace" for m in made) else "gaussian"
    size = tests.scale(drawn[:, :, None, None], kind, (), "size")
    copies = tests.repeats(drawn.T[:, None, None, :], NEARLY)  # each number, over all runs, is a vector
    return min(size.p, copies.p) > tests.FALSE_ALARM / 2
