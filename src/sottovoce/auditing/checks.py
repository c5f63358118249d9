"""Checks of the true code against its promise: noise, clipping, batches, and what was charged.

Each check says what was seen, what is promised, and a verdict. The audit computes what it expects by itself
(`expected.py`, `promise.py`). Tests that depend on chance share `noise.FALSE_ALARM`, the probability that an audit
accuses an honest library.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sottovoce.auditing import noise as tests
from sottovoce.auditing.expected import Expected, World
from sottovoce.auditing.finding import Check, Conclusion
from sottovoce.auditing.game import Game, Player, relation_of
from sottovoce.auditing.neighbours import LONG, RIDGE, Linear, Neighbours, crowd, one_by_one, random_columns
from sottovoce.auditing.promise import GRID
from sottovoce.auditing.second_accountant import second_epsilon
from sottovoce.auditing.tape import Answer, Recorder
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.finished import epsilons_spent
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2

TESTS = 1000  # that share `FALSE_ALARM`: no audit makes more
NUMBERS = 40_000  # of noise that are enough for a test
CLOSE = 1e-6  # relative: two computations of the same noise differ by less
ACCOUNTANTS = 1e-3  # relative: two accountants on the same answers differ by less
EXACT = 1e-9  # relative: bounds are enforced to the last digits
LOW_BITS = 8  # of an answer on a grid, which must be fair coins
HUGE = 1e20  # length of a row whose square is too large for single precision


@dataclass(frozen=True)
class Noise:
    """Standardised noise of like answers, (runs, questions, clients, coordinates), and what it was added to."""

    z: np.ndarray
    exact: np.ndarray
    kind: str
    stated: np.ndarray | None  # the door's own scale, divided by the promised one, where both are known


def passed(path: str, name: str, seen: str, promised: str, holds: bool) -> Check:
    return Check(path, name, seen, promised, "not refuted" if holds else "refuted")


def judged(outcomes: Sequence[tests.Outcome], path: str) -> list[Check]:
    """Refuted if honest noise would look like this in fewer than one of a billion tests."""
    return [passed(path, one.name, one.seen, one.promised, one.p >= tests.FALSE_ALARM / TESTS) for one in outcomes]


# ----------------------------------------------------------------------------------------------------------- playing


def crowd_of(game: Game, dtype: type = np.float64) -> Game:
    """The same promise on rows of very different lengths, one of which differs as much as the relation allows."""
    privacy = game.privacy
    if game.algorithm.layout == "columns":
        if privacy.budget is None:
            return game
        return replace(game, neighbours=random_columns(getattr(privacy, "unit", "")), objective=RIDGE)
    length = _longest(game)
    bound = length * (1 + 1e-6)  # rows are rounded where they are stored in single precision
    features = game.width // game.objective.loss.outputs
    neighbours = crowd(length, bound, features, relation_of(privacy), privacy.promise == "client", dtype)
    return on_others(game, neighbours, Objective(Linear(bend=1 / bound**2), L2(0.1)))


def on_others(game: Game, neighbours: Neighbours, objective: Objective) -> Game:
    """The same game on other data sets; where sums are seen, with as large a share of colluders by default."""
    privacy = game.privacy
    if isinstance(privacy, Proven) and privacy.sums:
        privacy = replace(privacy, least=None, colluders=0 if privacy.colluders == 0 else None, roster=None)
    return replace(game, neighbours=neighbours, objective=objective, privacy=privacy)


def _longest(game: Game) -> float:
    if game.privacy.budget is None or "descent" in game.asks.kinds:
        return 1.0  # a promise bounds rows here, not clipping
    if game.privacy.promise == "client":
        return LONG
    return 10.0 if "argmin" in game.asks.kinds else HUGE  # a solver compares values of the loss


def player_of(game: Game, seed: int, side: int = 0) -> Player:
    """A player with the noise that the true code draws under this seed, and enough runs to test it."""
    wanted = NUMBERS // (game.questions * game.neighbours.first.n * game.width)
    runs = min(max(wanted, 4), 16 if "argmin" in game.asks.kinds else 64)
    return Player(game, side, runs, streams=Streams(seed, runs))


def heard(player: Player, **how: Any) -> list[Answer]:
    """All answers of one play. `how`: options of `Player.run`."""
    recorder = Recorder(player.place)
    player.run(tape=recorder.tape, **how)
    return recorder.answers


def expected(world: World, answers: Sequence[Answer]) -> list[tuple[Answer, Expected]]:
    """The answers that have noise, with what they should be."""
    pairs = ((answer, world.expect(answer)) for answer in answers)
    return [(answer, wanted) for answer, wanted in pairs if wanted is not None]


@np.errstate(all="ignore")  # where there should be no noise but is some, it is infinitely large
def standardised(world: World, answers: Sequence[Answer]) -> dict[str, Noise]:
    """The noise of each kind of question, divided by the promised scale, or by the stated one where batches are
    drawn."""
    noise: dict[str, list[Noise]] = {}
    for answer, wanted in expected(world, answers):
        noisy = _with_runs(wanted.given(answer))
        exact = np.broadcast_to(_with_runs(wanted.exact), noisy.shape)
        if not np.any(wanted.sensitivity) and np.array_equal(noisy, exact):
            continue  # no data can change this answer, and it has no noise
        factor, stated = world.multiplier(answer), None
        if answer.made is not None:
            stated = _with_runs(answer.made.scale / wanted.sensitivity)
            factor, stated = (stated, None) if factor is None else (factor, stated / factor)
        assert factor is not None
        scale = np.broadcast_to(factor * _with_runs(wanted.sensitivity), (*noisy.shape[:-1], 1))
        alike = noise.setdefault(answer.kind, [])
        if not alike or alike[0].z.shape == noisy.shape:  # others: some clients stopped earlier, see `charges`
            alike.append(Noise((noisy - exact) / scale, exact / scale, wanted.kind, stated))
    return {kind: _together(alike) for kind, alike in noise.items()}


def _together(alike: Sequence[Noise]) -> Noise:
    stated = [np.ravel(one.stated) for one in alike if one.stated is not None]
    z, exact = (np.stack([getattr(one, name) for one in alike], axis=1) for name in ("z", "exact"))
    return Noise(z, exact, alike[0].kind, np.concatenate(stated) if len(stated) == len(alike) else None)


def _with_runs(array: np.ndarray) -> np.ndarray:
    array = np.atleast_2d(array)
    return array if array.ndim == 3 else array[None]


# ----------------------------------------------------------------------------------------- noise and what was charged


def noise_and_charges(game: Game, path: str, seed: int, player: Player | None = None) -> list[Check]:
    """Play, asking for twice the planned rounds; check all noise and all charges."""
    proven = game.privacy.budget is not None
    player, world = player or player_of(game, seed), World.of(game)
    answers = heard(player, rounds=game.rounds + (min(game.rounds, 50) if proven else 0))
    checks = charges(player, answers, world, path) if proven else []
    noise = standardised(world, answers)
    for kind, of_kind in noise.items():
        where = path if len(noise) == 1 else f"{path}, {kind}"
        if of_kind.stated is not None:
            low, high = float(of_kind.stated.min()), float(of_kind.stated.max())
            verdict: Conclusion = "refuted" if low <= 1 - CLOSE else "suspicious" if high >= 1 + 1e-4 else "not refuted"
            seen = f"{low:.6g} to {high:.6g} times it"
            checks.append(Check(where, "noise that the code states", seen, "as promised (1)", verdict))
        with np.errstate(all="ignore"):
            checks += judged(tests.of_noise(of_kind.z, of_kind.exact, of_kind.kind), where)
    if game.privacy.on_grid:
        checks += on_grid(world, answers, path)
    if not noise:  # a paper's noise may be added inside local steps, where only the method itself sees it
        verdict = "suspicious" if proven else "not refuted"
        checks.append(Check(path, "noise", "none on answers or uploads", "noise somewhere", verdict))
    return checks


def charges(player: Player, answers: Sequence[Answer], world: World, path: str) -> list[Check]:
    """What was answered, what the ledger says was answered, and what it costs by a second accountant."""
    promises, place = world.promises, player.place
    answered = np.zeros((len(promises), place.n), dtype=np.int64)
    for answer, _ in expected(world, answers):
        answered[world.number_of(answer), answer.local] += 1
    spent = [player.ledger.spent(client) for client in range(place.n)]
    events = list(dict.fromkeys(event for charged in spent for event in charged))
    kinds = {(event.mechanism, event.relation, event.sampling) for event in events}
    wanted = {(promise.mechanism, promise.relation, promise.sampling) for promise in promises}
    bounds, allowed = {event.row_bound for event in events}, set(world.row_bounds)
    limits = [promise.answers if promise.sampling == "full" else math.inf for promise in promises]
    charged, total = np.array([sum(one.values()) for one in spent]), answered.sum(axis=0)
    all_charged = _charged_as_planned(place.door.events, spent, answered)
    most, within = sum(promise.answers for promise in promises), bool((answered.max(axis=1) <= limits).all())
    stated, rests_on = ", ".join(map(str, bounds)), ", ".join(f"{bound:g}" for bound in sorted(allowed))
    return [
        passed(path, "answers charged", _span(charged), f"{_span(total)}: all given", all_charged),
        passed(path, "answers given when asked for more", _span(total), f"at most {most}", within),
        passed(path, "kind of what is charged", _words(kinds), _words(wanted), kinds <= wanted),
        passed(path, "bound on rows that a charge names", stated or "nothing", rests_on, bounds <= allowed),
        *_shares_drawn(events, world, path),
        *_cost(player, answers, world, answered, events, path),
    ]


def _charged_as_planned(planned: Sequence[Event], spent: Sequence[dict[Event, int]], answered: np.ndarray) -> bool:
    """Whether each client was charged for the answers of each part, as what they were planned to be."""
    names = [_name(event) for event in planned]
    counts = np.zeros((len(names) + 1, len(spent)), dtype=np.int64)  # the last row: charges that nobody planned
    for client, charged in enumerate(spent):
        for event, count in charged.items():
            counts[names.index(_name(event)) if _name(event) in names else -1, client] += count
    for name, answers in zip(names, answered, strict=True):
        counts[names.index(name)] -= answers
    return not counts.any()


def _name(event: Event) -> tuple[float, float | None]:
    """What the events of one part have in common: clients of other sizes draw other shares of their records."""
    return event.noise_multiplier, event.row_bound


def _shares_drawn(events: Sequence[Event], world: World, path: str) -> Iterator[Check]:
    """Whether every charge for a batch names the share of records that its client draws."""
    if all(promise.sampling == "full" for promise in world.promises):
        return
    rates = world.rate(np.arange(world.federation.n), world.asks.batch)[:, 0]
    for event in events:
        rate = event.rate if event.sampling == "poisson" else event.batch / max(event.size, 1)
        holds = bool(np.any(np.isclose(rate, rates, rtol=1e-9)))
        yield passed(path, "share drawn, as charged", f"{rate:.4g}", f"{rates.max():.4g}", holds)


def _cost(
    player: Player, answers: Sequence[Answer], world: World, answered: np.ndarray, events: Sequence[Event], path: str
) -> Iterator[Check]:
    """What the given answers cost by a second accountant, with the least noise that was charged or stated."""
    spent: dict[Event, int] = {}
    for number, (promise, planned) in enumerate(zip(world.promises, player.place.door.events, strict=True)):
        multipliers = [event.noise_multiplier for event in events if _name(event) == _name(planned)]
        multipliers += _stated_multipliers(world, answers, number)
        batch = world.asks.parts[number].batch if promise.sampling != "full" else 0.0
        rates = world.rate(np.arange(player.place.n), batch)[:, 0]
        size = int(world.federation.sizes[np.argmax(rates)])
        event = promise.event(min(multipliers, default=math.inf), float(rates.max()), size)
        spent[event] = spent.get(event, 0) + int(answered[number].max())
    budget, epsilon = world.promises[0].epsilon, second_epsilon(spent, world.promises[0].delta)
    printed, least = float(epsilons_spent(player.place).max()), epsilon * (1 - ACCOUNTANTS)
    within = epsilon <= budget * (1 + ACCOUNTANTS)
    yield passed(path, "epsilon by a second accountant", f"{epsilon:.4f}", f"{budget:g}", within)
    yield passed(path, "epsilon that is printed", f"{printed:.4f}", f"at least {least:.4f}", printed >= least)


def _stated_multipliers(world: World, answers: Sequence[Answer], number: int) -> list[float]:
    """The noise, divided by the sensitivity, that the door says it adds to the answers of this part."""
    together = math.sqrt(world.promises[number].contributors)  # each adds a share of the noise
    return [
        together * float(np.min(answer.made.scale / wanted.sensitivity))
        for answer, wanted in expected(world, answers)
        if world.number_of(answer) == number and answer.made is not None and np.all(wanted.sensitivity > 0)
    ]


def on_grid(world: World, answers: Sequence[Answer], path: str) -> Iterator[Check]:
    """Low bits: answers with discrete noise are whole steps of a public grid, and their last bits are fair coins."""
    worst, ones, count = 0.0, np.zeros(LOW_BITS), 0
    for answer, wanted in expected(world, answers):
        steps = wanted.given(answer) / (wanted.cut / GRID)
        whole = np.rint(steps)
        off = np.abs(steps - whole) - 2.0**-34 * np.abs(whole)  # a step is promised to ten digits here
        worst = max(worst, float(off.max()))
        bits = whole.astype(np.int64)[..., None] >> np.arange(LOW_BITS) & 1
        ones += bits.reshape(-1, LOW_BITS).sum(axis=0)
        count += whole.size
    yield passed(path, "low bits", f"{worst:.1g} of a step off the grid", "on a public grid", worst < 1e-2)
    yield from judged([tests.fair_bits(ones, count)], path)


def _span(counts: np.ndarray) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _words(kinds: set[tuple[str, ...]]) -> str:
    return "; ".join(", ".join(kind) for kind in sorted(kinds)) or "nothing"


# ---------------------------------------------------------------------------------------------------------- clipping


def clipping(game: Game, path: str, seed: int) -> Iterator[Check]:
    """How much the exact answers of two neighbours differ, at the same points and over the same batches."""
    recorders: list[Recorder] = []
    for side in (0, 1):
        player = Player(game, side, 2)
        recorders.append(Recorder(player.place, recorders[0].tape.answers if recorders else None))
        player.play(Streams(seed, 2), tape=recorders[side].tape)
    world, client = World.of(game), game.neighbours.client
    largest, elsewhere = 0.0, 0.0
    for one, other in zip(*(recorder.answers for recorder in recorders), strict=True):
        wanted = world.expect(one)
        if wanted is None or one.made is None or other.made is None:
            continue
        moved = np.linalg.norm(one.made.exact - other.made.exact, ord=world.norm, axis=-1, keepdims=True)
        bound = np.broadcast_to(wanted.sensitivity, moved.shape)
        ratio = np.where(moved > 0, moved / np.where(bound > 0, bound, 1e-300), 0.0)
        largest = max(largest, float(ratio[..., client, :].max()))
        elsewhere = max(elsewhere, float(np.delete(ratio, client, axis=-2).max(initial=0.0)))
    seen, finite = f"{largest:.6g} times the bound", math.isfinite(largest) and math.isfinite(elsewhere)
    yield passed(path, "what one record (or unit) changes", seen, "at most 1", finite and largest <= 1 + EXACT)
    yield passed(path, "what it changes at other clients", f"{elsewhere:.3g}", "0", finite and elsewhere == 0.0)


# ----------------------------------------------------------------------------------------------------------- batches


def batches(game: Game, path: str, seed: int) -> Iterator[Check]:
    """Which records were drawn, seen in exact gradients of records that have a coordinate each."""
    game = on_others(game, one_by_one(), Objective(Linear(), L2(0.1)))
    world, first = World.of(game), np.arange(1)
    rate = float(world.rate(first, game.asks.batch)[0, 0])
    answers = [answer for answer in heard(player_of(game, seed)) if answer.kind == "gradient"]
    exact = (answer.given if answer.made is None else answer.made.exact for answer in answers)
    table = np.stack([_with_runs(gradient) for gradient in exact], axis=1)
    drawn = table != 0
    one = min(1.0, getattr(game.privacy, "clip", None) or math.inf) * float(world.weight(first)[0, 0]) / rate
    sizes = np.abs(table[drawn])
    close = 2 / GRID if game.privacy.on_grid else EXACT  # truncation takes up to a step, and clipping too
    holds = bool(len(sizes)) and bool(np.allclose(sizes, one, rtol=close, atol=0))
    seen = f"{sizes.min(initial=math.inf):.6g} to {sizes.max(initial=0):.6g}"
    yield passed(path, "what a drawn record counts for", seen, f"{one:.6g}", holds)
    yield from judged(tests.of_batches(drawn, rate, relation_of(game.privacy) == "replace-one"), path)
