"""Checks of counts of held-out records (`core/histogram.py`): computed again from the rows, with the noise as promised.

Two data sets differ in one record, which is held out. Its counts must move by no more than the proof says, all other
answers must be the same to the last bit, and the counts must cost their share of the budget.
"""

import hashlib
import itertools
import math
from dataclasses import replace

import numpy as np

from sottovoce.auditing import noise as tests
from sottovoce.auditing.checks import EXACT, judged, passed
from sottovoce.auditing.finding import Check
from sottovoce.auditing.game import Game, Player, relation_of
from sottovoce.auditing.neighbours import Neighbours, equal_clients
from sottovoce.auditing.promise import gaussian_mu
from sottovoce.auditing.second_accountant import second_epsilon
from sottovoce.auditing.tape import RELEASE, Answer, Recorder
from sottovoce.core.histogram import Evaluation
from sottovoce.core.random.streams import Streams
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2

PATH = "held-out"
EVALUATION = Evaluation(share=0.2, held_out=0.4, bins=6)
_CLIENTS, _RECORDS, _RUNS = 3, 20, 64


def held_out_game(game: Game, seed: int) -> Game:
    """The same method and promise, with a record that differs among those that the first client holds out."""
    rng, features = np.random.default_rng(0), 3
    X = rng.uniform(-1, 1, (_CLIENTS * _RECORDS, features)) / math.sqrt(features)
    y = np.where(rng.random(len(X)) < 0.4, 1.0, -1.0)
    other_X, other_y, changed = X.copy(), y.copy(), int(np.flatnonzero(_held(seed, 0))[0])
    if relation_of(game.privacy) == "add-remove":
        other_X[changed] = 0.0
    else:
        other_X[changed], other_y[changed] = -X[changed], -y[changed]
    first, second = (equal_clients(*rows, _CLIENTS, 1.0) for rows in ((X, y), (other_X, other_y)))
    neighbours = Neighbours(first, second, 0, X[changed], "one held-out record")
    objective = Objective(Logistic(), L2(0.1))
    return replace(game, neighbours=neighbours, objective=objective, evaluate=EVALUATION, rounds=min(game.rounds, 4))


def held_out(game: Game, seed: int) -> list[Check]:
    """All checks of the counts."""
    game = held_out_game(game, seed)
    (first, player), (second, _) = (_heard(game, side, seed) for side in (0, 1))
    counts = [next(answer for answer in answers if answer.kind == "histogram") for answers in (first, second)]
    exact = np.stack([_counted(game, answer, side, seed) for side, answer in enumerate(counts)])
    reach, privacy = 2.0 if relation_of(game.privacy) == "replace-one" else math.sqrt(2), game.privacy
    scale = reach / math.sqrt(EVALUATION.share) / gaussian_mu(privacy.epsilon, privacy.delta)
    made = [answer.made for answer in counts if answer.made is not None]
    stated = float(np.min(made[0].scale)) / scale
    same = all(np.array_equal(one.exact, exact[side]) for side, one in enumerate(made))
    moved = float(np.linalg.norm(exact[0, :, 0] - exact[1, :, 0], axis=-1).max())
    elsewhere = float(np.abs(exact[0, :, 1:] - exact[1, :, 1:]).max())
    trained = ([answer.given for answer in each if answer.kind != "histogram"] for each in (first, second))
    apart = max(float(np.abs(one - other).max()) for one, other in zip(*trained, strict=True))
    z = (counts[0].given - exact[0])[:, None] / scale
    spent = player.ledger.spent(0)
    charged, epsilon = sum(spent.values()), second_epsilon(spent, privacy.delta)
    within = epsilon <= privacy.epsilon * (1 + 1e-3)
    return [
        passed(PATH, "counts", "as computed again" if same else "others", "those of the held-out rows", same),
        passed(PATH, "what one record changes", f"{moved:.6g}", f"at most {reach:.6g}", moved <= reach * (1 + EXACT)),
        passed(PATH, "what it changes at other clients", f"{elsewhere:g}", "0", elsewhere == 0.0),
        passed(PATH, "what it changes in training", f"{apart:g}", "0", apart == 0.0),
        passed(PATH, "noise that the code states", f"{stated:.6g} times it", "as promised (1)", abs(stated - 1) < 1e-4),
        *judged(tests.of_noise(z, exact[0][:, None] / scale, "gaussian"), PATH),
        passed(PATH, "answers charged", str(charged), f"{len(first)}: all given", charged == len(first)),
        passed(PATH, "epsilon by a second accountant", f"{epsilon:.4f}", f"{privacy.epsilon:g}", within),
    ]


def _heard(game: Game, side: int, seed: int) -> tuple[list[Answer], Player]:
    """The answers of one play of many runs, with the same noise on both sides; and who played."""
    player = Player(game, side, _RUNS, streams=Streams(seed, _RUNS))
    recorder = Recorder(player.place)
    player.play(Streams(seed + 1, _RUNS), tape=recorder.tape)
    return [answer for answer in recorder.answers if answer.kind != RELEASE], player


def _held(seed: int, client: int) -> np.ndarray:
    """Which records a client of the simulator holds out: the same rule, written a second time."""
    key = f"sottovoce held out seed {seed}, client {client}".encode()
    ranks = np.frombuffer(hashlib.shake_256(key).digest(8 * _RECORDS), dtype="<u8")
    return np.isin(np.arange(_RECORDS), sorted(range(_RECORDS), key=lambda j: ranks[j])[: round(0.4 * _RECORDS)])


def _counted(game: Game, answer: Answer, side: int, seed: int) -> np.ndarray:
    """The counts of every client in every run, record by record: (runs, clients, counts)."""
    bins, w = EVALUATION.bins // 2, np.asarray(answer.asked["w"])
    counts = np.zeros((_RUNS, _CLIENTS, 4 + 4 * bins))
    for client, (X, y) in enumerate(game.neighbours.side(side).data()):
        there = X.any(axis=1) | (relation_of(game.privacy) == "replace-one")
        for record, run in itertools.product(np.flatnonzero(_held(seed, client) & there), range(_RUNS)):
            point = w[run, 0]
            chance, most = (1 / (1 + math.exp(-score)) for score in (X[record] @ point, np.linalg.norm(point)))
            place = min(int((max(chance, 1 - chance) - 0.5) / (most - 0.5) * bins), bins - 1)
            cell = 2 * int(y[record] > 0) + int(chance >= 0.5)
            counts[run, client, cell] += 1
            counts[run, client, 4 + cell * bins + place] += 1
    return counts
