"""Checks of the true code against what is promised: its noise, its clipping, its batches, and what it charged.

Each is a row: what was seen, what is promised, a verdict. Expectations are the audit's own (`audit_expect.py`,
`auditing/promise.py`). Tests that rest on chance share out `FALSE_ALARM`, the chance that an honest library is
called a liar by any of them in one audit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.auditing import draws as audit_draws
from sottovoce.auditing import noise as audit_noise
from sottovoce.auditing import promise as audit_promise
from sottovoce.auditing.expected import World
from sottovoce.auditing.finding import Check
from sottovoce.auditing.game import Game, Player
from sottovoce.auditing.noise import Outcome
from sottovoce.auditing.record import Answer, Recorder
from sottovoce.auditing.scenes import one_by_one
from sottovoce.core.random.streams import Streams
from sottovoce.privacy.modes import ProvenColumns, Published
from sottovoce.problems.vertical import VerticalFederation

FALSE_ALARM = 1e-6  # of all tests of one audit together
TESTS = 1000  # that share it out: no audit makes more
NUMBERS = 40_000  # of noise that one look takes
CLOSE = 1e-6  # relative: two computations of the same noise agree better than this
ACCOUNTANTS = 1e-3  # relative: so do two accountants on the same answers
EXACT = 1e-9  # relative: a bound is enforced to the last digits
GRID = 2.0**24  # steps in a clip norm on the grid of secure noise


@dataclass(frozen=True)
class Noise:
    """Standardised noise of like answers, (runs, questions, clients, coordinates), and what it was added to."""

    z: np.ndarray
    exact: np.ndarray
    kind: str
    stated: np.ndarray | None  # the door's own scale over the sensitivity, where it says one


def world_of(game: Game, side: int = 0) -> World:
    federation = (game.neighbours.first, game.neighbours.second)[side]
    return World(federation, game.objective, game.privacy, game.algorithm.asks())


def runs_for(game: Game) -> int:
    """As many as make noise enough, and no more than a few where every number is a slow one."""
    if getattr(game.privacy, "noise", "seeded") == "secure":
        return 3
    asks = game.algorithm.asks()
    federation: Any = game.neighbours.first
    width = federation.samples if isinstance(federation, VerticalFederation) else federation.X.shape[1]
    wanted = NUMBERS // (game.rounds * asks.only.answers * federation.n * width)
    return int(min(max(wanted, 4), 16 if asks.only.kind == "argmin" else 64))


def player_of(game: Game, seed: int, side: int = 0) -> Player:
    """With noise of its own, as the true code would draw it under this seed."""
    runs = runs_for(game)
    return Player(game, side, runs, streams=Streams(seed, runs))


def watched(player: Player, rounds: int | None = None, **how: Any) -> Recorder:
    """One play, heard."""
    recorder = Recorder()
    recorder.listen(player.place)
    player.run(tape=recorder.tape, rounds=rounds, **how)
    return recorder


@np.errstate(all="ignore")  # noise where there should be none is infinitely large, and found to be
def standardised(world: World, answers: Sequence[Answer], multiplier: float | None) -> dict[str, Noise]:
    """The noise of each kind of question. Without a multiplier the one that the door states is taken."""
    found: dict[str, list[tuple[np.ndarray, np.ndarray, str, np.ndarray | None]]] = {}
    for answer in answers:
        wanted = world.expect(answer)
        if wanted is None:
            continue
        given = _with_runs(answer.given - wanted.public)
        exact = np.broadcast_to(_with_runs(wanted.exact), given.shape)
        if not np.any(wanted.sensitivity) and np.array_equal(given, exact):
            continue  # no data can change this answer, and it has no noise
        stated = None if answer.made is None else _with_runs(answer.made.scale / wanted.sensitivity)
        factor = multiplier if multiplier is not None else stated
        assert factor is not None
        scale = np.broadcast_to(factor * _with_runs(wanted.sensitivity), (*given.shape[:-1], 1))
        many = found.setdefault(answer.kind, [])
        if many and many[0][0].shape != given.shape:
            continue  # some clients fell silent before the others: `charges` looks at that
        many.append(((given - exact) / scale, exact / scale, wanted.kind, stated))
    return {
        kind: Noise(
            np.stack([one[0] for one in many], axis=1),
            np.stack([one[1] for one in many], axis=1),
            many[0][2],
            _together([one[3] for one in many]),
        )
        for kind, many in found.items()
    }


def _together(stated: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [np.ravel(one) for one in stated if one is not None]
    return np.concatenate(known) if len(known) == len(stated) else None


def _with_runs(array: Any) -> np.ndarray:
    array = np.atleast_2d(array)
    return array if array.ndim == 3 else array[None]


@np.errstate(all="ignore")
def looked_at(noise: Noise, path: str) -> list[Check]:
    return judged(audit_noise.look(noise.z, noise.exact, noise.kind), path)


def judged(outcomes: Sequence[Outcome], path: str) -> list[Check]:
    """Refuted where honest noise would look like this in fewer than one of a billion looks."""
    limit = FALSE_ALARM / TESTS
    return [
        Check(path, one.name, one.seen, one.promised, "refuted" if one.p < limit else "not refuted") for one in outcomes
    ]


def passed(path: str, name: str, seen: str, promised: str, holds: bool, fails: Any = "refuted") -> Check:
    return Check(path, name, seen, promised, "not refuted" if holds else fails)


# ----------------------------------------------------------------------------------------- noise and what was charged


def noise_and_charges(game: Game, path: str, seed: int, player: Player | None = None) -> list[Check]:
    """Play, asking for twice the rounds that were planned; look at all noise, and at all that was charged."""
    proven = not isinstance(game.privacy, Published)
    asked = game.rounds + (min(game.rounds, 50) if proven else 0)
    player = player or player_of(game, seed)
    recorder = watched(player, asked)
    promise = audit_promise.promised(game.privacy, game.algorithm.asks(), game.rounds) if proven else None
    multiplier = 1.0 if promise is None else promise.multiplier
    world = world_of(game)
    found = standardised(world, recorder.answers, multiplier)
    checks = [] if promise is None else charges(player, recorder, promise, world, path)
    for kind, noise in found.items():
        where = path if len(found) == 1 else f"{path}, {kind}"
        if noise.stated is not None and multiplier is not None:
            ratio = noise.stated / multiplier
            seen = f"{ratio.min():.6g} to {ratio.max():.6g} times it"
            low, high = ratio.min() > 1 - CLOSE, ratio.max() < 1 + 1e-4
            verdict = "not refuted" if low and high else "suspicious" if low else "refuted"
            checks.append(Check(where, "noise that the code states", seen, "as promised (1)", verdict))
        checks += looked_at(noise, where)
    if getattr(game.privacy, "noise", "seeded") == "secure":
        checks.append(on_grid(world, recorder.answers, path))
    if not found:  # a paper's noise may join inside local steps, where only the method itself sees it
        elsewhere = "suspicious" if proven else "not refuted"
        checks.append(Check(path, "noise", "none on answers or uploads", "noise somewhere", elsewhere))
    return checks


def charges(
    player: Player, recorder: Recorder, promise: audit_promise.Promised, world: World, path: str
) -> list[Check]:
    """What was answered, what the ledger says was, and what a second accountant makes of it."""
    counts = np.zeros(player.place.n, dtype=np.int64)
    for answer in recorder.answers:
        if world.expect(answer) is not None:
            counts[answer.local] += 1
    ledger: Any = player.place.ledger
    spent = [ledger.spent(client) for client in range(player.place.n)]
    charged = np.array([sum(events.values()) for events in spent])
    checks = [
        passed(path, "answers charged", _span(charged), f"{_span(counts)}: all given", bool((charged == counts).all())),
        passed(
            path, "answers given when asked for more", _span(counts), f"at most {promise.answers}",
            int(counts.max()) <= promise.answers or promise.sampling != "full",
        ),
    ]  # fmt: skip
    events = {event for one in spent for event in one}
    kinds = {(event.mechanism, event.relation, event.sampling) for event in events}
    wanted = (promise.mechanism, promise.relation, promise.sampling)
    checks.append(passed(path, "kind of what is charged", _words(kinds), _words({wanted}), kinds <= {wanted}))
    bounds, bound = {event.row_bound for event in events}, world.row_bound
    told = ", ".join(f"{one}" for one in bounds) or "nothing"
    checks.append(passed(path, "bound on rows that a charge names", told, f"{bound:g}", bounds <= {bound}))
    stated = min((event.noise_multiplier for event in events), default=math.inf)
    seen = _seen_multiplier(world, recorder.answers, stated)
    rates = world.rate(np.arange(player.place.n))[:, 0] if promise.sampling != "full" else np.ones(1)
    worst = int(np.argmax(rates))
    size = int(world.federation.sizes[worst]) if promise.sampling != "full" else 1
    for event in events if promise.sampling != "full" else ():
        rate = event.rate if event.sampling == "poisson" else event.batch / max(event.size, 1)
        holds = bool(np.any(np.isclose(rate, rates, rtol=1e-9)))
        checks.append(passed(path, "share drawn, as charged", f"{rate:.4g}", f"{rates[worst]:.4g}", holds))
    epsilon = promise.epsilon_of(min(stated, seen), int(counts.max()), float(rates[worst]), size)
    holds = epsilon <= promise.epsilon * (1 + ACCOUNTANTS)
    checks.append(passed(path, "epsilon by a second accountant", f"{epsilon:.4f}", f"{promise.epsilon:g}", holds))
    epsilons, _ = player.place.spent()
    printed = 0.0 if epsilons is None else float(np.max(epsilons))
    name, least = "epsilon that is printed", epsilon * (1 - ACCOUNTANTS)
    checks.append(passed(path, name, f"{printed:.4f}", f"at least {least:.4f}", printed >= least))
    return checks


def _seen_multiplier(world: World, answers: Sequence[Answer], stated: float) -> float:
    """The least noise over sensitivity that the door says it adds; what is charged, where it does not say."""
    least = stated
    for answer in answers:
        wanted = world.expect(answer)
        if wanted is not None and answer.made is not None and np.all(wanted.sensitivity > 0):
            least = min(least, float(np.min(answer.made.scale / wanted.sensitivity)))
    return least


def on_grid(world: World, answers: Sequence[Answer], path: str) -> Check:
    """Low bits: secure answers lie on a grid that does not depend on the data."""
    worst = 0.0
    for answer in answers:
        wanted = world.expect(answer)
        if wanted is None:
            continue
        privacy, columns = world.privacy, isinstance(world.privacy, ProvenColumns)
        bound = privacy.model_bound if answer.kind == "model" else privacy.bound if columns else privacy.clip
        weight = world.weight(answer.local) if answer.kind == "gradient" else 1.0
        steps = (answer.given - wanted.public) / (bound * weight / GRID)
        worst = max(worst, float(np.abs(steps - np.rint(steps)).max()))
    return passed(path, "low bits", f"{worst:.1g} of a step off the grid", "on a public grid", worst < 1e-2)


def _span(counts: np.ndarray) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _words(kinds: set[tuple[str, ...]]) -> str:
    return "; ".join(", ".join(kind) for kind in sorted(kinds)) or "nothing"


# ---------------------------------------------------------------------------------------------------------- clipping


def clipping(game: Game, path: str, seed: int) -> list[Check]:
    """How far the exact answers of two neighbours are apart, at the same points and over the same batches."""
    runs, streams = 2, Streams(seed, 2)
    players = [Player(game, side, runs) for side in (0, 1)]
    first = Recorder()
    first.listen(players[0].place)
    players[0].play(streams, tape=first.tape)
    second = Recorder(forced=first.tape.answers)
    second.listen(players[1].place)
    players[1].play(streams, tape=second.tape)
    world, largest, strays = world_of(game), 0.0, 0.0
    order = world.norm
    for one, other in zip(first.answers, second.answers, strict=True):
        wanted = world.expect(one)
        if wanted is None or one.made is None or other.made is None:
            continue
        moved = np.linalg.norm(one.made.exact - other.made.exact, ord=order, axis=-1, keepdims=True)
        bound = np.broadcast_to(wanted.sensitivity, moved.shape)
        ratio = np.where(moved > 0, moved / np.where(bound > 0, bound, 1e-300), 0.0)
        client = game.neighbours.client
        largest = max(largest, float(ratio[..., client, :].max()))
        strays = max(strays, float(np.delete(ratio, client, axis=-2).max(initial=0.0)))
    seen, finite = f"{largest:.6g} times the bound", math.isfinite(largest) and math.isfinite(strays)
    holds = finite and largest <= 1 + EXACT
    return [
        passed(path, "what one record (or unit) changes", seen, "at most 1", holds),
        passed(path, "what it changes at other clients", f"{strays:.3g}", "0", finite and strays == 0.0),
    ]


# ----------------------------------------------------------------------------------------------------------- batches


def batches(game: Game, path: str, seed: int) -> list[Check]:
    """Which records were drawn, seen in exact gradients of records that have a coordinate each."""
    game = one_by_one(game)
    world = world_of(game)
    rate = float(world.rate(np.arange(1))[0, 0])
    recorder = watched(player_of(game, seed))
    exact = [
        _with_runs(answer.given if answer.made is None else answer.made.exact)
        for answer in recorder.answers
        if answer.kind == "gradient"
    ]
    table = np.stack(exact, axis=1)
    drawn = table != 0
    clip = getattr(game.privacy, "clip", None)
    one = min(1.0, math.inf if clip is None else clip) * float(world.weight(np.arange(1))[0, 0]) / rate
    sizes = np.abs(table[drawn])
    holds = bool(len(sizes)) and bool(np.allclose(sizes, one, rtol=EXACT, atol=0))
    seen = f"{sizes.min(initial=math.inf):.6g} to {sizes.max(initial=0):.6g}"
    fixed = getattr(game.privacy, "relation", "replace-one") == "replace-one"
    return [
        passed(path, "what a drawn record counts for", seen, f"{one:.6g}", holds),
        *judged(audit_draws.look(drawn, rate, fixed), path),
    ]
