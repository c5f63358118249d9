"""The ways through the code that a user can take, each audited by the same checks."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from sottovoce.auditing import noise as audit_noise
from sottovoce.auditing import promise as audit_promise
from sottovoce.auditing.checks import (
    batches,
    clipping,
    judged,
    noise_and_charges,
    passed,
    player_of,
    standardised,
    watched,
    world_of,
)
from sottovoce.auditing.finding import Check
from sottovoce.auditing.game import Game, Player, Progress, columns_promise, silent
from sottovoce.auditing.neighbours import Neighbours
from sottovoce.auditing.scenes import crowd_of
from sottovoce.core import check
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import VerticalAlgorithm
from sottovoce.core.random.streams import Purpose, Streams
from sottovoce.core.round import Checkpoint
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.privacy.noise_key import NoiseKey

PATHS = {
    "plain": "the method as it is",
    "variants": "its other variants (G, P, A, B)",
    "float32": "rows stored in single precision",
    "kernel": "the compiled engine",
    "secure": "noise from the operating system",
    "client": "unit 'client'",
    "add-remove": "the other relation",
    "laplace": "Laplace noise, delta = 0",
    "fixed-size": "secret batches of fixed size",
    "poisson": "secret batches, record by record",
    "columns": "every unit and variant where columns are split",
    "ledgers": "owners' ledger files, in a temporary folder",
    "resume": "going on from a checkpoint",
    "seeds": "the same seed with other settings, and with other rows",
}
USUAL = ("plain", "fixed-size")  # what an audit looks at if it is not told
FEW_ROUNDS = 4  # where files are written, or noise comes slowly
Place = tuple[str, Game]


def examine(
    game: Game, paths: Sequence[str] = USUAL, seed: int = 0, own_data: bool = False, progress: Progress = silent
) -> list[Check]:
    """Every check on each of these paths that the method has. `own_data`: noise is looked at on the game's own rows.

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
            checks += _SPECIAL[name](game, seed) if isinstance(game.privacy, Proven | ProvenColumns) else []
            continue
        for label, place in _places(game, name):
            checks += _all(place, label, seed, own_data and name == "plain")
    return checks


def _all(game: Game, path: str, seed: int, own_data: bool) -> list[Check]:
    crowd = crowd_of(game, np.float32 if path == "float32" else np.float64)
    checks = noise_and_charges(game if own_data else crowd, path, seed)
    if game.privacy.mode == "proven" and getattr(game.privacy, "noise", "seeded") == "seeded":
        checks += clipping(crowd, path, seed)
    asks = game.algorithm.asks()
    if asks.batch and asks.only.kind == "gradient":
        checks += batches(game, path, seed)
    return checks


# ------------------------------------------------------------------------------------- the same checks, another game


def _places(game: Game, name: str) -> list[Place]:
    """The game of each place on this path; none where the method has no such path."""
    if name == "plain":
        return [("plain", game)]
    if name == "columns":
        return _columns(game)
    if isinstance(game.algorithm, VerticalAlgorithm):
        return []
    if name == "kernel":
        return [(name, replace(game, engine="kernel"))]
    if name == "float32":
        return [(name, game)]
    if not isinstance(game.privacy, Proven):
        return []
    if name == "variants":
        return _variants(game)
    return _of_promise(game, name, game.privacy)


def _of_promise(game: Game, name: str, privacy: Proven) -> list[Place]:
    kind, record = game.algorithm.asks().only.kind, privacy.unit == "record"
    if name == "secure" and kind == "gradient":
        few = min(game.rounds, FEW_ROUNDS)
        return [(name, replace(game, privacy=replace(privacy, noise="secure"), rounds=few, algorithm=_whole(game)))]
    if name == "client" and privacy.mechanism == "gaussian" and record:
        return [(name, replace(game, privacy=replace(privacy, unit="client", relation="replace-one")))]
    if name == "add-remove" and record and privacy.relation == "replace-one":
        return [(name, replace(game, privacy=replace(privacy, relation="add-remove"), algorithm=_whole(game)))]
    if name == "laplace" and record and privacy.mechanism == "gaussian" and kind in ("gradient", "prox-steps"):
        laplace = replace(privacy, mechanism="laplace", delta=0.0)
        return [(name, replace(game, privacy=laplace, algorithm=_whole(game)))]
    if name in ("fixed-size", "poisson") and record and kind == "gradient" and _has(game, "batch"):
        if privacy.mechanism != "gaussian" or privacy.noise == "secure":
            return []
        relation: Any = "replace-one" if name == "fixed-size" else "add-remove"
        method: Any = game.algorithm
        method = method if method.asks().batch else replace(method, batch=2)
        return [(name, replace(game, privacy=replace(privacy, relation=relation), algorithm=method))]
    return []


def _variants(game: Game) -> list[Place]:
    if not _has(game, "variant"):
        return []
    method: Any = game.algorithm
    places = []
    for variant in get_args(get_type_hints(type(method))["variant"]):
        if variant != method.variant:
            places.append((f"variant {variant}", replace(game, algorithm=replace(method, variant=variant))))
    return places


def _columns(game: Game) -> list[Place]:
    if not isinstance(game.privacy, ProvenColumns):
        return []
    epsilon, delta = game.privacy.epsilon, game.privacy.delta
    ridge = [columns_promise(epsilon, delta, unit) for unit in ("record", "column", "party")]
    clipped = replace(ridge[-1], variant="clip", model_bound=1.0)
    secure = replace(clipped, noise="secure")
    few = min(game.rounds, FEW_ROUNDS)
    return [
        *((f"columns, {one.unit}", replace(game, privacy=one)) for one in ridge),
        ("columns, clipped", replace(game, privacy=clipped)),
        ("columns, secure", replace(game, privacy=secure, rounds=few)),
    ]


def _has(game: Game, name: str) -> bool:
    return any(field.name == name for field in fields(game.algorithm))


def _whole(game: Game) -> Any:
    """The method without batches, which go with one relation and one noise."""
    method: Any = game.algorithm
    return replace(method, batch=0) if _has(game, "batch") else method


# ------------------------------------------------------------------------------------------------------ other checks


def _ledgers(game: Game, seed: int) -> list[Check]:
    """One run on ledger files, and a later one on the same: together they must not answer more than was promised."""
    game, path = crowd_of(replace(game, rounds=min(game.rounds, FEW_ROUNDS))), "ledgers"
    with tempfile.TemporaryDirectory() as folder:
        world, player = world_of(game), Player(game, 0, None, streams=Streams(seed), ledgers=Path(folder))
        try:
            checks = noise_and_charges(game, path, seed, player)
            before = _charged(player)
        finally:
            player.place.close()
        # Of another length, so that its answers have other noise: all kinds of answer together are to be paid for.
        longer = replace(game, rounds=game.rounds + 1)
        later = Player(longer, 0, None, streams=Streams(seed + 1), ledgers=Path(folder))
        try:
            heard = watched(later)
            charged = _charged(later)
        finally:
            later.place.close()
    given = sum(world.expect(answer) is not None for answer in heard.answers)
    most = audit_promise.promised(game.privacy, game.algorithm.asks(), game.rounds).answers
    seen, wanted = f"{given} answers more, {charged} charged in all", f"all charged, at most {most}"
    holds = charged <= most and charged - before == given
    return [*checks, passed(path, "a later run on the same ledgers", seen, wanted, holds)]


def _charged(player: Player) -> int:
    """Answers in the ledger of the first client; all clients are asked the same."""
    ledger: Any = player.place.ledger
    return sum(ledger.spent(0).values())


def _resume(game: Game, seed: int) -> list[Check]:
    """The rounds after a checkpoint, played twice: the very same answers, or noise that has nothing to do with them."""
    game, path = crowd_of(game), "resume"
    half, kept = game.rounds // 2, []

    def keep(checkpoint: Checkpoint) -> None:
        if checkpoint.k == half:
            kept.append(checkpoint)

    first, second = player_of(game, seed), player_of(game, seed)
    all_of_it = watched(first, after_round=keep)
    if not kept:
        return []
    rest = watched(second, resume=kept[0])
    before = [answer for answer in all_of_it.answers if answer.k > half]
    same = len(before) == len(rest.answers) and all(
        np.array_equal(one.given, other.given) for one, other in zip(before, rest.answers, strict=True)
    )
    counts, world = _charged(second), world_of(game)
    answers = sum(world.expect(answer) is not None for answer in all_of_it.answers)
    checks = [passed(path, "answers charged over both halves", str(counts), str(answers), counts == answers)]
    if same:
        return [*checks, Check(path, "answers after a checkpoint", "the same again", "the same, or new", "not refuted")]
    return checks + _unrelated(game, path, "noise after a checkpoint", world, (before, world, rest.answers))


def _seeds(game: Game, seed: int) -> list[Check]:
    """One seed, another question: no noise in common."""
    game, path = crowd_of(game), "seeds"
    world, first = world_of(game), player_of(game, seed)
    answers = watched(first).answers
    privacy: Any = game.privacy
    changed_games = {"epsilon": replace(game, privacy=replace(privacy, epsilon=privacy.epsilon * 1.01))}
    if not isinstance(game.algorithm, VerticalAlgorithm):
        changed_games["bound on rows"] = replace(game, neighbours=_with_longer_rows(game.neighbours))
    checks = []
    for name, other in changed_games.items():
        others = watched(player_of(other, seed)).answers
        sides = (answers, world_of(other), others)
        checks += _unrelated(game, path, f"noise under another {name}", world, sides, other)
    if hasattr(first.place.door, "key"):
        second = player_of(game, seed, side=1)
        there = watched(second).answers
        name = "noise of the client whose rows differ"
        changed = game.neighbours.client
        checks += _unrelated(game, path, name, world, (answers, world_of(game, 1), there), client=changed)
        checks += _bindings(first.place.door.key, second.place.door.key, changed, path, _by_another_engine(game, seed))
    return checks


def _with_longer_rows(neighbours: Neighbours) -> Neighbours:
    """The same rows, with a promise that allows longer ones."""
    sides: tuple[Any, Any] = (neighbours.first, neighbours.second)
    first, second = (replace(side, row_bound=1.01 * side.row_bound) for side in sides)
    return replace(neighbours, first=first, second=second)


def _by_another_engine(game: Game, seed: int) -> NoiseKey | None:
    """The key of the same game, computed by the other engine; None where there is one engine."""
    if isinstance(game.algorithm, VerticalAlgorithm):
        return None
    engine = "numpy" if player_of(game, seed).place.exact.engine == "kernel" else "kernel"
    return player_of(replace(game, engine=engine), seed).place.door.key


def _bindings(key: NoiseKey, other: NoiseKey, client: int, path: str, engine: NoiseKey | None) -> list[Check]:
    """One question to the keys of two data sets: each thing that noise is bound to must be enough by itself."""
    who, exact = np.array([client]), np.zeros((1, 1000))

    def noise(of: NoiseKey, answer: np.ndarray, purpose: Purpose = Purpose.NOISE) -> np.ndarray:
        return of.noise("gaussian", who, who, 1, purpose, 0, answer).ravel()

    def batch(of: NoiseKey) -> np.ndarray:
        return of.batch(who, who, np.array([exact.size]), 1, 0).ravel() - 0.5

    pairs = {
        "noise for the same answer about other rows": (noise(key, exact), noise(other, exact)),
        "noise for another answer about the same rows": (noise(key, exact), noise(key, exact + 1.0)),
        "noise for another purpose": (noise(key, exact), noise(key, exact, Purpose.RELEASE)),
        "batches of the same question about other rows": (batch(key), batch(other)),
    }
    if engine is not None:
        pairs["noise for the same answer by another engine"] = (noise(key, exact), noise(engine, exact))
    tables = {name: np.stack(pair)[:, None, None, :] for name, pair in pairs.items()}
    return judged([replace(audit_noise.related(table, "runs"), name=name) for name, table in tables.items()], path)


def _unrelated(
    game: Game, path: str, name: str, world: Any, pair: tuple[Any, Any, Any], other: Game | None = None,
    client: int | None = None,
) -> list[Check]:  # fmt: skip
    """Whether the noise of two plays goes together, number by number."""
    answers, there, others = pair
    sides = []
    for one, where, heard in ((game, world, answers), (other or game, there, others)):
        promise = audit_promise.promised(one.privacy, one.algorithm.asks(), one.rounds)
        found = standardised(where, heard, promise.multiplier)
        rows = slice(None) if client is None else slice(client, client + 1)
        sides.append(np.concatenate([noise.z[:, :, rows].ravel() for noise in found.values()]))
    table = np.stack(sides)[:, None, None, :]
    outcome = audit_noise.related(table, "runs")
    return judged([replace(outcome, name=name)], path)


_SPECIAL: dict[str, Callable[[Game, int], list[Check]]] = {"ledgers": _ledgers, "resume": _resume, "seeds": _seeds}


def paths_of(game: Game) -> list[str]:
    """The paths that this game's method has."""
    found = []
    for name in PATHS:
        try:
            has = name in _SPECIAL or bool(_places(game, name))
        except (InvalidInput, NoGuarantee):
            has = False
        if has and (name not in _SPECIAL or isinstance(game.privacy, Proven | ProvenColumns)):
            found.append(name)
    return found
