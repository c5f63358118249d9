"""The ways through the code that a user can take. The same checks are made on each.

| path | what is checked |
|---|---|
| plain | the method as it is |
| variants | its other variants (G, P, A, B) |
| float32 | rows stored in single precision |
| kernel | the compiled engine |
| secure | noise from the operating system |
| client | unit 'client' |
| add-remove | the other relation |
| laplace | Laplace noise, delta = 0 |
| fixed-size | secret batches of fixed size |
| poisson | secret batches, record by record |
| columns | every unit and variant where columns are split |
| ledgers | owners' ledger files, in a temporary folder |
| resume | resuming from a checkpoint |
| sums | an observer of sums (observer = 'sums') |
| seeds | the same seed with other settings, and with other rows |
| held-out | counts of held-out records ([evaluate]) |
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import cast, get_args, get_type_hints

import numpy as np

from sottovoce.auditing import checks as basic
from sottovoce.auditing import noise as tests
from sottovoce.auditing.expected import World
from sottovoce.auditing.finding import Check
from sottovoce.auditing.game import Game, Player, columns_promise
from sottovoce.auditing.held_out import held_out, held_out_game
from sottovoce.auditing.tape import Answer
from sottovoce.core import check
from sottovoce.core.plain import Progress, silent
from sottovoce.core.random.streams import Purpose, Streams
from sottovoce.core.round import Checkpoint
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.privacy.noise_key import NoiseKey, Occasion

PATHS = (  # the module's text says what they are
    *("plain", "variants", "float32", "kernel", "secure", "client", "add-remove", "laplace", "fixed-size", "poisson"),
    *("columns", "ledgers", "resume", "sums", "seeds", "held-out"),
)
USUAL = ("plain", "fixed-size")  # the paths that an audit checks by default
FEW_ROUNDS = 4  # where files are written
Place = tuple[str, Game]
Play = tuple[World, Sequence[Answer]]  # what is promised, and what was answered


def examine(
    game: Game, paths: Sequence[str] = USUAL, seed: int = 0, own_data: bool = False, progress: Progress = silent
) -> list[Check]:
    """Make every check on each of these paths that the method has.

    `own_data`: on the path "plain", noise is checked on the rows of the game itself.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.auditing.audit import worst_case
    >>> from sottovoce.auditing.paths import examine
    >>> game = worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3)
    >>> checks = examine(game, ["plain"])
    >>> {check.verdict for check in checks}
    {'not refuted'}
    """
    checks: list[Check] = []
    for done, name in enumerate(paths):
        check.one_of("audit", "path", name, PATHS)
        progress("checks", done, len(paths))
        if name in _SPECIAL:
            checks += _SPECIAL[name](game, seed) if _has_path(game, name) else []
            continue
        for label, place in _places(game, name):
            checks += _all_checks(place, label, seed, own_data and name == "plain")
    return checks


def paths_of(game: Game) -> list[str]:
    """The paths that the method of this game has."""
    return [name for name in PATHS if _has_path(game, name)]


def _has_path(game: Game, name: str) -> bool:
    proven = game.privacy.budget is not None
    with suppress(check.InvalidInput, check.NoGuarantee):
        if name == "held-out" and proven:  # the method and its promise must go with counts of held-out records
            held_out_game(game, 0).task("auto").check("rows")
            return not game.privacy.secret_noise
        return proven if name in _SPECIAL else bool(_places(game, name))
    return False


def _all_checks(game: Game, path: str, seed: int, own_data: bool) -> Iterator[Check]:
    crowd = basic.crowd_of(game, np.float32 if path == "float32" else np.float64)
    yield from basic.noise_and_charges(game if own_data else crowd, path, seed)
    drawn_in_secret = game.privacy.secret_noise and game.asks.batch  # two sides would have other batches
    if game.privacy.budget is not None and not drawn_in_secret:
        yield from basic.clipping(crowd, path, seed)
    if game.asks.batch and game.asks.kinds == ("gradient",):
        yield from basic.batches(game, path, seed)


# ------------------------------------------------------------------------------------- the same checks, another game


def _places(game: Game, name: str) -> list[Place]:
    """The games to check on this path; none where the method has no such path."""
    if name == "plain" or (name == "float32" and game.algorithm.layout == "rows"):
        return [(name, game)]
    if game.algorithm.layout == "columns":
        return _columns(game) if name == "columns" and game.privacy.budget is not None else []
    if name == "kernel":
        return [(name, replace(game, engine="kernel"))]
    if game.privacy.budget is None:
        return []
    if name == "variants":
        return _variants(game)
    places = _of_promise(game, name)
    if name == "secure":  # on batches of either kind too
        for kind, place in _of_promise(game, "fixed-size") + _of_promise(game, "poisson"):
            places.append((f"secure, {kind}", replace(place, privacy=replace(place.privacy, noise="secure"))))
    return places


def _of_promise(game: Game, name: str) -> list[Place]:
    """The game with another promise, where there is one."""
    privacy = cast(Proven, game.privacy)
    kinds, record, gaussian = game.asks.kinds, privacy.unit == "record", privacy.mechanism == "gaussian"
    has_batch = any(field.name == "batch" for field in fields(game.algorithm))
    batched = record and gaussian and kinds == ("gradient",) and has_batch
    in_l1 = record and gaussian and kinds in (("gradient",), ("prox-steps",))  # gradients can be clipped in L1 too
    places = {  # name: whether the method has it, what changes in the promise, and the size of batches
        "client": (gaussian and record, {"unit": "client", "relation": "replace-one"}, None),
        "add-remove": (record and privacy.relation == "replace-one", {"relation": "add-remove"}, 0),
        "sums": (gaussian and not (privacy.sums or game.algorithm.why_not_sums(privacy.unit)), {"observer": "sums"}, 0),
        "laplace": (in_l1, {"mechanism": "laplace", "delta": 0.0}, 0),
        "fixed-size": (batched, {"relation": "replace-one"}, game.asks.batch or 2),
        "poisson": (batched, {"relation": "add-remove"}, game.asks.batch or 2),
        "secure": (not (record and "descent" in kinds), {"noise": "secure"}, 0),
    }
    has, changes, batch = places.get(name, (False, {}, None))
    if not has:
        return []
    method = game.algorithm  # batches need one relation and one kind of noise
    method = replace(method, batch=batch) if has_batch and batch is not None else method
    return [(name, replace(game, privacy=replace(privacy, **changes), algorithm=method))]


def _variants(game: Game) -> list[Place]:
    """The method with each other value of its field `variant`."""
    method, current = game.algorithm, getattr(game.algorithm, "variant", "")
    names = get_args(get_type_hints(type(method))["variant"]) if current else ()
    others = {name: replace(method, variant=name) for name in names if name != current}
    return [(f"variant {name}", replace(game, algorithm=other)) for name, other in others.items()]


def _columns(game: Game) -> list[Place]:
    epsilon, delta = game.privacy.epsilon, game.privacy.delta
    ridge = [columns_promise(epsilon, delta, unit) for unit in ("record", "column", "party")]
    clipped = replace(ridge[-1], variant="clip", model_bound=1.0)
    promises = {f"columns, {one.unit}": one for one in ridge} | {"columns, clipped": clipped}
    promises |= {f"{label}, secure": replace(one, noise="secure") for label, one in promises.items()}
    return [(label, replace(game, privacy=one)) for label, one in promises.items()]


# ------------------------------------------------------------------------------------------------------ other checks


def _ledgers(game: Game, seed: int) -> list[Check]:
    """One run on ledger files, and a later run on the same files: together they must not exceed the promise.

    Charges are counted in the ledger of the first client: all clients are asked the same.
    """
    game, path = basic.crowd_of(replace(game, rounds=min(game.rounds, FEW_ROUNDS))), "ledgers"
    with tempfile.TemporaryDirectory() as folder:
        world, player = World.of(game), Player(game, 0, None, streams=Streams(seed), ledgers=Path(folder))
        with closing(player.place):
            checks = basic.noise_and_charges(game, path, seed, player)
            before = sum(player.ledger.spent(0).values())
        # Of another length, so that its answers have other noise: all kinds of answer draw on one budget.
        later = Player(replace(game, rounds=game.rounds + 1), 0, None, streams=Streams(seed + 1), ledgers=Path(folder))
        with closing(later.place):
            answered = len(basic.expected(world, basic.heard(later)))
            charged = sum(later.ledger.spent(0).values())
    most = sum(promise.answers for promise in world.promises)
    seen, wanted = f"{answered} answers more, {charged} charged in all", f"all charged, at most {most}"
    holds = charged <= most and charged - before == answered
    return [*checks, basic.passed(path, "a later run on the same ledgers", seen, wanted, holds)]


def _resume(game: Game, seed: int) -> Iterator[Check]:
    """Play the rounds after a checkpoint twice: the answers must be identical, or their noise unrelated."""
    game, path = basic.crowd_of(game), "resume"
    half, kept = game.rounds // 2, dict[int, Checkpoint]()
    world, second = World.of(game), basic.player_of(game, seed)
    whole = basic.heard(basic.player_of(game, seed), after_round=lambda saved: kept.update({saved.k: saved}))
    if half not in kept:
        return
    again = basic.heard(second, resume=kept[half])
    before = [answer for answer in whole if answer.k > half]
    charged, answered = sum(second.ledger.spent(0).values()), len(basic.expected(world, whole))
    yield basic.passed(path, "answers charged over both halves", str(charged), str(answered), charged == answered)
    if len(before) == len(again) and all(
        np.array_equal(one.given, other.given) for one, other in zip(before, again, strict=True)
    ):
        yield basic.passed(path, "answers after a checkpoint", "the same again", "the same, or new", True)
    else:
        yield _unrelated(path, "noise after a checkpoint", (world, before), (world, again))


def _seeds(game: Game, seed: int) -> Iterator[Check]:
    """The same seed for another question: the noise must be unrelated."""
    game, path = basic.crowd_of(game), "seeds"
    first = basic.player_of(game, seed)
    here = World.of(game), basic.heard(first)
    privacy = cast("Proven | ProvenColumns", game.privacy)
    changed = {"epsilon": replace(game, privacy=replace(privacy, epsilon=privacy.epsilon * 1.01))}
    rows = game.algorithm.layout == "rows"
    if rows:
        sides = (game.neighbours.first, game.neighbours.second)  # the same rows, with a promise that allows longer ones
        first_side, second_side = (replace(side, row_bound=1.01 * (side.row_bound or 0.0)) for side in sides)
        longer = replace(game.neighbours, first=first_side, second=second_side)
        changed["bound on rows"] = replace(game, neighbours=longer)
    for name, other in changed.items():
        there = World.of(other), basic.heard(basic.player_of(other, seed))
        yield _unrelated(path, f"noise under another {name}", here, there)
    second, client = basic.player_of(game, seed, side=1), game.neighbours.client
    there = World.of(game, 1), basic.heard(second)
    yield _unrelated(path, "noise of the client whose rows differ", here, there, client)
    keys = [first.place.door.key, second.place.door.key]
    if rows:
        engine = "numpy" if first.place.exact.engine == "kernel" else "kernel"
        keys.append(basic.player_of(replace(game, engine=engine), seed).place.door.key)
    yield from _bindings(keys, client, path)


def _bindings(keys: Sequence[NoiseKey], client: int, path: str) -> list[Check]:
    """Ask the keys of two data sets, and of another engine, the same question: each thing that noise is bound to must
    change it alone."""
    who, exact = np.array([client]), np.zeros((1, 1000))

    def noise(key: NoiseKey, answer: np.ndarray, purpose: Purpose = Purpose.NOISE, asked: float = 0.0) -> np.ndarray:
        at = Occasion(who, who, 1, purpose)
        return (key.noisy("gaussian", 1.0, at, answer, (np.full((1, 1), asked),)) - answer).ravel()

    def batch(key: NoiseKey) -> np.ndarray:
        return key.batch(Occasion(who, who, 1, Purpose.BATCH), np.array([exact.size])).ravel() - 0.5

    key, other = keys[:2]
    pairs = {
        "noise for the same answer about other rows": (noise(key, exact), noise(other, exact)),
        "noise for another answer about the same rows": (noise(key, exact), noise(key, exact + 1.0)),
        "noise for the same answer to another question": (noise(key, exact), noise(key, exact, asked=1.0)),
        "noise for another purpose": (noise(key, exact), noise(key, exact, Purpose.RELEASE)),
        "batches of the same question about other rows": (batch(key), batch(other)),
    }
    for engine in keys[2:]:
        pairs["noise for the same answer by another engine"] = (noise(key, exact), noise(engine, exact))
    return [_uncorrelated(path, name, *pair) for name, pair in pairs.items()]


def _unrelated(path: str, name: str, here: Play, there: Play, client: int | None = None) -> Check:
    """Whether the noise of two plays is unrelated, number by number; of one client, or of all."""
    clients = slice(None) if client is None else slice(client, client + 1)
    noises = (basic.standardised(*side).values() for side in (here, there))
    flat = (np.concatenate([noise.z[:, :, clients].ravel() for noise in of_side]) for of_side in noises)
    return _uncorrelated(path, name, *flat)


def _uncorrelated(path: str, name: str, one: np.ndarray, other: np.ndarray) -> Check:
    outcome = tests.related(np.stack([one, other])[:, None, None, :], "runs")
    return basic.judged([replace(outcome, name=name)], path)[0]


_SPECIAL = {"ledgers": _ledgers, "resume": _resume, "seeds": _seeds, "held-out": held_out}
